//! Makes the new image from a delta and the older image, as the tar of an OCI layout.
//!
//! The older layers are unpacked into an unnamed file, because patches read them in any order. The new layers are
//! written straight to the import tool, with their digests checked: a wrong one ends the tar before its index.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde_json::json;

use super::delta_file::{DeltaFile, SectionReader};
use super::description::{Content, DeltaLayer, Description, OldLayer, Section, descriptor};
use super::layer::{Hash, temporary, unpack};
use super::patch::{Base, Patch, PatchError, apply};
use crate::kubelet::image_archives::archive_list::Failure;
use crate::kubelet::image_archives::import::unusable;
use crate::kubelet::image_archives::manifest::{Descriptor, Digest, OCI_LAYOUT, layout_index};
use crate::kubelet::image_archives::tar_header::{TAR_BLOCK_BYTES, header, padding};
use crate::platform::host::file_system::room;
use crate::types::sorted::{SortedMap, SortedSet};

/// What the runtime has.
#[derive(Debug, Default)]
pub(in crate::kubelet::image_archives) struct Sources {
    /// Its blobs.
    pub(in crate::kubelet::image_archives) present: SortedSet<String>,
    /// The blobs of older layers, by the digest of the uncompressed layer.
    pub(in crate::kubelet::image_archives) old: SortedMap<Digest, String>,
}

const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// What the disk must have beyond the older layers.
const REBUILD_SPARE_BYTES: u64 = 32 << 20;

impl DeltaFile {
    /// The older layers to read, each with a blob that it may be.
    pub(in crate::kubelet::image_archives) fn needed(
        &self,
        present: &SortedSet<String>,
    ) -> Vec<(Digest, Option<Digest>)> {
        let Description { old, layers, .. } = &self.description;
        let missing = || missing(layers, present);
        let mut needed = Vec::new();
        if missing().any(|layer| matches!(layer.content, Content::Patch(_))) {
            needed.extend(old.layers.iter().map(|layer| (layer.diff_id.clone(), layer.blob.clone())));
        }
        let kept = missing().filter(|layer| layer.content == Content::Old);
        needed.extend(kept.map(|layer| (layer.diff_id.clone(), None)));
        needed
    }

    /// One line for a node that lacks an older layer.
    pub(in crate::kubelet::image_archives) fn lacks(&self, layer: &Digest, present: &SortedSet<String>) -> String {
        let old = &self.description.old;
        let name = old.names.first().map(String::as_str).unwrap_or_default();
        let image = format!("image {name} (config {})", old.config);
        if present.contains(&old.config.to_string()) {
            return format!("needs layer {layer} of {image}, which the runtime has not kept (discard_unpacked_layers)");
        }
        format!("needs {image}, which the node does not have")
    }
}

/// The layer as the runtime has it already.
fn standing(layer: &DeltaLayer, present: &SortedSet<String>) -> Option<Descriptor> {
    let blob = layer.blob.as_ref().filter(|blob| present.contains(&blob.digest.to_string())).cloned();
    blob.or_else(|| present.contains(&layer.diff_id.to_string()).then(|| uncompressed(layer)))
}

/// The layers that the runtime does not have, each once.
fn missing<'a>(layers: &'a [DeltaLayer], present: &'a SortedSet<String>) -> impl Iterator<Item = &'a DeltaLayer> {
    let is_again = move |at: usize, layer: &DeltaLayer| layers.iter().take(at).any(|one| one.diff_id == layer.diff_id);
    let one = move |(at, layer): (usize, &'a DeltaLayer)| (!is_again(at, layer)).then_some(layer);
    layers.iter().enumerate().filter_map(one).filter(move |layer| standing(layer, present).is_none())
}

fn uncompressed(layer: &DeltaLayer) -> Descriptor {
    if let Some(blob) = layer.blob.as_ref().filter(|blob| blob.digest == layer.diff_id) {
        return blob.clone();
    }
    Descriptor { digest: layer.diff_id.clone(), size: layer.length, media_type: OCI_LAYER.to_owned() }
}

/// Writes the image to `sink`; `None`: the sink did not take everything. `fetch` gives a blob of the runtime. Blocks.
pub(in crate::kubelet::image_archives) fn rebuild(
    delta: &DeltaFile,
    sources: &Sources,
    directory: &Path,
    fetch: &dyn Fn(&str, &mut File) -> Result<(), Failure>,
    sink: &mut dyn Write,
) -> Result<Option<()>, Failure> {
    let mut tar = Tar { sink, is_closed: false };
    let rebuilder = Rebuilder { delta, sources, directory, fetch };
    match rebuilder.write(&mut tar) {
        Err(_) if tar.is_closed => Ok(None),
        written => written.map(Some),
    }
}

struct Rebuilder<'a> {
    delta: &'a DeltaFile,
    sources: &'a Sources,
    directory: &'a Path,
    fetch: &'a dyn Fn(&str, &mut File) -> Result<(), Failure>,
}

impl Rebuilder<'_> {
    fn write(&self, tar: &mut Tar<'_>) -> Result<(), Failure> {
        let Description { config, old, layers, .. } = &self.delta.description;
        let mut missing = missing(layers, &self.sources.present);
        let is_patched = missing.any(|layer| matches!(layer.content, Content::Patch(_)));
        let base = if is_patched { self.unpacked(&old.layers)? } else { temporary(self.directory)? };
        tar.file("oci-layout", OCI_LAYOUT.as_bytes())?;
        tar.blob(config.as_bytes())?;
        let mut parts: Vec<Descriptor> = Vec::new();
        for layer in layers {
            let again = parts.iter().zip(layers).find(|(_, earlier)| earlier.diff_id == layer.diff_id);
            let part = match standing(layer, &self.sources.present).or_else(|| again.map(|(part, _)| part.clone())) {
                Some(part) => part,
                None => self.layer(layer, &base, tar)?,
            };
            parts.push(part);
        }
        let (manifest, media_type) = self.manifest(&parts);
        tar.blob(manifest.as_bytes())?;
        let size = u64::try_from(manifest.len()).unwrap_or(u64::MAX);
        let digest = Digest::of(manifest.as_bytes());
        let top = Descriptor { digest, size, media_type: media_type.to_owned() };
        let index = layout_index(self.delta.names().iter().map(|name| (name.as_str(), &top)));
        tar.file("index.json", index.as_bytes())?;
        tar.write(&[0; 2 * TAR_BLOCK_BYTES])
    }

    /// The older layers, one after the other.
    fn unpacked(&self, layers: &[OldLayer]) -> Result<File, Failure> {
        let sum: u64 = layers.iter().map(|layer| layer.length).sum();
        let longest = layers.iter().map(|layer| layer.length).max().unwrap_or_default();
        let wanted = sum.saturating_add(longest).saturating_add(REBUILD_SPARE_BYTES);
        let free = room(self.directory).map_err(unusable)?.available;
        if free < wanted {
            return Err(Failure::Failed(format!("no space left on device: {wanted} bytes needed, {free} free")));
        }
        let mut base = temporary(self.directory)?;
        for layer in layers {
            let length = self.unpack(&layer.diff_id, layer.length, &mut base)?;
            if length != layer.length {
                return Err(damaged());
            }
        }
        Ok(base)
    }

    fn unpack(&self, diff_id: &Digest, limit: u64, target: &mut File) -> Result<u64, Failure> {
        let blob = self.sources.old.get(diff_id).map(String::as_str).unwrap_or_default();
        let mut raw = temporary(self.directory)?;
        (self.fetch)(blob, &mut raw)?;
        unpack(raw, diff_id, limit, target)
    }

    /// Writes one layer.
    fn layer(&self, layer: &DeltaLayer, base: &File, tar: &mut Tar<'_>) -> Result<Descriptor, Failure> {
        let part = match (&layer.content, &layer.blob) {
            (Content::Whole(_), Some(blob)) => blob.clone(),
            (Content::Whole(_) | Content::Old | Content::Patch(_), _) => uncompressed(layer),
        };
        tar.begin(&blob_path(&part.digest), part.size)?;
        let mut hash = Hash::new();
        match &layer.content {
            Content::Whole(section) => {
                let mut reader = self.delta.reader(*section);
                let mut buffer = vec![0; 64 << 10];
                loop {
                    let count = reader.read(&mut buffer).map_err(unusable)?;
                    let bytes = buffer.get(..count).unwrap_or_default();
                    if bytes.is_empty() {
                        break;
                    }
                    hash.update(bytes);
                    tar.write(bytes)?;
                }
            }
            Content::Old => {
                let mut file = temporary(self.directory)?;
                if self.unpack(&layer.diff_id, layer.length, &mut file)? != layer.length {
                    return Err(damaged());
                }
                hash_file(&file, layer.length, &mut hash, tar)?;
            }
            Content::Patch(sections) => {
                let [mut steps, mut differences, mut inserts] = sections.map(|section| self.inflated(section));
                let patch = Patch { steps: &mut steps, differences: &mut differences, inserts: &mut inserts };
                let base = Base {
                    length: self.delta.description.old.layers.iter().map(|layer| layer.length).sum(),
                    read: &|at, bytes| base.read_exact_at(bytes, at),
                };
                let mut write = |bytes: &[u8]| {
                    hash.update(bytes);
                    tar.write(bytes).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
                };
                apply(patch, &base, layer.length, &mut write).map_err(|error| match error {
                    PatchError::Io(error) => unusable(error),
                    PatchError::Invalid => Failure::Refused(PatchError::Invalid.to_string()),
                })?;
            }
        }
        if !hash.is(&part.digest) {
            return Err(Failure::Refused(format!("it is damaged: it does not give layer {}", part.digest)));
        }
        tar.write(padding(part.size))?;
        Ok(part)
    }

    fn inflated(&self, section: Section) -> BufReader<MultiGzDecoder<BufReader<SectionReader<'_>>>> {
        BufReader::new(MultiGzDecoder::new(BufReader::new(self.delta.reader(section))))
    }

    /// The manifest of the new image if all of its layers are as they were there, otherwise one with these layers.
    fn manifest(&self, parts: &[Descriptor]) -> (String, String) {
        let Description { config, manifest, layers, .. } = &self.delta.description;
        let is_as_it_was = layers.iter().map(|layer| layer.blob.as_ref()).eq(parts.iter().map(Some));
        if let (Some(manifest), true) = (manifest, is_as_it_was) {
            let document: serde_json::Value = serde_json::from_str(manifest).unwrap_or_default();
            let media_type = document.get("mediaType").and_then(serde_json::Value::as_str).unwrap_or(OCI_MANIFEST);
            return (manifest.clone(), media_type.to_owned());
        }
        let layer = |part: &Descriptor| {
            // Docker's types go with a manifest of Docker's.
            let kind = match part.media_type.as_str() {
                kind if kind.ends_with("gzip") => [OCI_LAYER, "+gzip"].concat(),
                kind if kind.ends_with("zstd") => [OCI_LAYER, "+zstd"].concat(),
                _ => OCI_LAYER.to_owned(),
            };
            descriptor(&Descriptor { media_type: kind, ..part.clone() })
        };
        let config = json!({
            "mediaType": OCI_CONFIG, "digest": Digest::of(config.as_bytes()).to_string(), "size": config.len(),
        });
        let layers: Vec<_> = parts.iter().map(layer).collect();
        let document = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers});
        (document.to_string(), OCI_MANIFEST.to_owned())
    }
}

fn damaged() -> Failure {
    Failure::Refused("it is damaged: a layer in it has another length".to_owned())
}

fn hash_file(file: &File, length: u64, hash: &mut Hash, tar: &mut Tar<'_>) -> Result<(), Failure> {
    let mut buffer = vec![0; 64 << 10];
    let mut at = 0;
    while at < length {
        let count = file.read_at(&mut buffer, at).map_err(unusable)?;
        let bytes = buffer.get(..count).filter(|bytes| !bytes.is_empty()).ok_or_else(damaged)?;
        hash.update(bytes);
        tar.write(bytes)?;
        at += u64::try_from(count).unwrap_or(u64::MAX);
    }
    Ok(())
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A tar stream whose reader may close it.
struct Tar<'a> {
    sink: &'a mut dyn Write,
    is_closed: bool,
}

impl Tar<'_> {
    fn blob(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file(&blob_path(&Digest::of(bytes)), bytes)
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.begin(name, size)?;
        self.write(bytes)?;
        self.write(padding(size))
    }

    fn begin(&mut self, name: &str, size: u64) -> Result<(), Failure> {
        self.write(&header(name, size).ok_or_else(damaged)?)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.sink.write_all(bytes).map_err(|error| {
            self.is_closed = true;
            unusable(error)
        })
    }
}
