//! Makes a delta of two archives. For workstations: it holds the changed layers in memory.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::DELTA_MAGIC;
use super::description::{Content, DeltaLayer, Description, OldImage, OldLayer, Section};
use super::difference::Matcher;
use super::error::DeltaError;
use super::layer::{temporary, unpack};
use super::saved_image::{SavedImage, SavedLayer};
use crate::kubelet::image_archives::manifest::Digest;

/// Bytes of a delta, and of what it stands for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DeltaSummary {
    pub(crate) image: String,
    pub(crate) delta_bytes: u64,
    /// The layers of the new image that the older one lacks, as they are in the archive.
    pub(crate) layer_bytes: u64,
    pub(crate) patched: usize,
    pub(crate) whole: usize,
}

/// A whole layer keeps its digest, so that a patch has to be this many hundredths smaller.
const WORTHWHILE_PERCENT: u64 = 90;

/// Writes what the image in `new` has and that in `old` lacks to `target`. Blocks.
pub(crate) fn make_delta(old: &Path, new: &Path, target: &Path) -> Result<DeltaSummary, DeltaError> {
    let (old_image, new_image) = (SavedImage::open(old)?, SavedImage::open(new)?);
    if old_image.config == new_image.config {
        return Err(DeltaError::Invalid("both archives have the same image"));
    }
    let mut unfinished = target.as_os_str().to_owned();
    unfinished.push(".part");
    let unfinished = PathBuf::from(unfinished);
    let written =
        |error: io::Error| DeltaError::File { path: unfinished.clone(), problem: Box::new(DeltaError::Io(error)) };
    let directory = target.parent().filter(|directory| *directory != Path::new("")).unwrap_or(Path::new("."));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&unfinished);
    let mut maker = Maker { file: file.map_err(written)?, directory, summary: DeltaSummary::default() };
    let made = maker
        .make(&old_image, &new_image)
        .and_then(|()| maker.file.sync_all().and_then(|()| fs::rename(&unfinished, target)).map_err(written));
    if made.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    made.map(|()| maker.summary)
}

struct Maker<'a> {
    file: File,
    /// For unnamed files.
    directory: &'a Path,
    summary: DeltaSummary,
}

impl Maker<'_> {
    fn make(&mut self, old: &SavedImage, new: &SavedImage) -> Result<(), DeltaError> {
        self.file.write_all(DELTA_MAGIC).map_err(DeltaError::Io)?;
        let has = |image: &SavedImage, layer: &SavedLayer| image.layers.iter().any(|one| one.diff_id == layer.diff_id);
        let mut base = Vec::new();
        let mut old_layers: Vec<OldLayer> = Vec::new();
        for layer in old.layers.iter().filter(|layer| !has(new, layer)) {
            if old_layers.iter().all(|earlier| earlier.diff_id != layer.diff_id) {
                let length = self.unpack(old, layer, &mut base)?;
                let blob = layer.blob.as_ref().map(|blob| blob.digest.clone());
                old_layers.push(OldLayer { diff_id: layer.diff_id.clone(), length, blob });
            }
        }
        let matcher = Matcher::new(&base);
        let mut layers: Vec<DeltaLayer> = Vec::new();
        for layer in &new.layers {
            // A layer that occurs twice is taken from its first place.
            let again = layers.iter().find(|earlier| earlier.diff_id == layer.diff_id).map(|earlier| earlier.length);
            let (length, content) = match again {
                Some(length) => (length, Content::Old),
                None if has(old, layer) => (self.unpack(new, layer, &mut io::sink())?, Content::Old),
                None => self.content(new, layer, &matcher)?,
            };
            let (diff_id, blob) = (layer.diff_id.clone(), layer.blob.clone());
            layers.push(DeltaLayer { diff_id, length, blob, content });
        }
        if !layers.iter().any(|layer| matches!(layer.content, Content::Patch(_))) {
            old_layers.clear();
        }
        let text = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec());
            text.map_err(|_| DeltaError::Invalid("its configuration or manifest is no UTF-8"))
        };
        let description = Description {
            names: new.names.clone(),
            config: text(&new.config)?,
            manifest: new.manifest.as_deref().map(text).transpose()?,
            old: OldImage { names: old.names.clone(), config: Digest::of(&old.config), layers: old_layers },
            layers,
        };
        let bytes = description.to_json().to_string().into_bytes();
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let written = self.file.write_all(&bytes).and_then(|()| self.file.write_all(&length.to_be_bytes()));
        written.map_err(DeltaError::Io)?;
        self.summary.image = new.names.first().cloned().unwrap_or_default();
        self.summary.delta_bytes = self.position()?;
        Ok(())
    }

    /// Writes a layer in the shorter of two ways.
    fn content(
        &mut self,
        image: &SavedImage,
        layer: &SavedLayer,
        matcher: &Matcher<'_>,
    ) -> Result<(u64, Content), DeltaError> {
        let mut bytes = Vec::new();
        let length = self.unpack(image, layer, &mut bytes)?;
        let begin = self.position()?;
        let steps = matcher.difference(&bytes);
        drop(bytes);
        let mut sections = Vec::new();
        for bytes in [&steps.steps, &steps.differences, &steps.inserts] {
            sections.push(self.packed(bytes)?);
        }
        self.summary.layer_bytes += layer.size();
        let patched: u64 = sections.iter().map(|section| section.length).sum();
        let is_worth = patched <= layer.size() / 100 * WORTHWHILE_PERCENT;
        match <[Section; 3]>::try_from(sections) {
            Ok(sections) if is_worth || layer.blob.is_none() => {
                self.summary.patched += 1;
                Ok((length, Content::Patch(sections)))
            }
            Ok(_) | Err(_) => {
                self.summary.whole += 1;
                let begun = self.file.set_len(begin).and_then(|()| self.file.seek(io::SeekFrom::Start(begin)));
                let written = begun.and_then(|_| image.copy_layer(layer, &mut self.file));
                written.map_err(DeltaError::Io)?;
                Ok((length, Content::Whole(Section { at: begin, length: layer.size() })))
            }
        }
    }

    fn unpack(&self, image: &SavedImage, layer: &SavedLayer, target: &mut dyn Write) -> Result<u64, DeltaError> {
        let mut raw = temporary(self.directory)?;
        image.copy_layer(layer, &mut raw).map_err(DeltaError::Io)?;
        Ok(unpack(raw, &layer.diff_id, u64::MAX, target)?)
    }

    /// Appends the bytes, packed by gzip.
    fn packed(&mut self, bytes: &[u8]) -> Result<Section, DeltaError> {
        let at = self.position()?;
        gzip(bytes, self.directory, &mut self.file)?;
        Ok(Section { at, length: self.position()? - at })
    }

    fn position(&mut self) -> Result<u64, DeltaError> {
        self.file.stream_position().map_err(DeltaError::Io)
    }
}

/// Writes the bytes, packed by the program gzip. `directory` is for unnamed files.
pub(super) fn gzip(bytes: &[u8], directory: &Path, target: &mut dyn Write) -> Result<(), DeltaError> {
    let mut plain = temporary(directory)?;
    plain.write_all(bytes).and_then(|()| plain.rewind()).map_err(DeltaError::Gzip)?;
    let mut command = Command::new("gzip");
    command.arg("-9nc").stdin(plain).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(DeltaError::Gzip)?;
    if let Some(mut packed) = child.stdout.take() {
        copy(&mut packed, target).map_err(DeltaError::Gzip)?;
    }
    let status = child.wait().map_err(DeltaError::Gzip)?;
    if status.success() { Ok(()) } else { Err(DeltaError::GzipFailed(status)) }
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<u64> {
    io::copy(&mut { from }, &mut { to })
}
