//! An image in an archive, opened for its parts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde_json::Value;

use super::description::diff_ids;
use super::error::DeltaError;
use crate::kubelet::image_archives::contents::number;
use crate::kubelet::image_archives::import::{pour_tar, unpacked};
use crate::kubelet::image_archives::manifest::{Descriptor, Digest, Document, MAX_IMAGE_MANIFEST_BYTES};
use crate::kubelet::image_archives::tar_header::TAR_BLOCK_BYTES;
use crate::types::sorted::SortedMap;

#[derive(Debug)]
pub(super) struct SavedImage {
    pub(super) names: Vec<String>,
    pub(super) config: Vec<u8>,
    /// An archive of docker's has none.
    pub(super) manifest: Option<Vec<u8>>,
    pub(super) layers: Vec<SavedLayer>,
    file: File,
}

#[derive(Clone, Debug)]
pub(super) struct SavedLayer {
    /// The digest of the uncompressed layer.
    pub(super) diff_id: Digest,
    /// The layer in the manifest.
    pub(super) blob: Option<Descriptor>,
    extent: Extent,
}

impl SavedLayer {
    /// The size in the archive.
    pub(super) fn size(&self) -> u64 {
        self.extent.length
    }
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    at: u64,
    length: u64,
}

/// Most files in an archive.
const MAX_ARCHIVE_FILES: usize = 100_000;
/// Depth of indexes in indexes.
const MAX_INDEX_DEPTH: usize = 3;

impl SavedImage {
    pub(super) fn open(path: &Path) -> Result<Self, DeltaError> {
        Self::read(path).map_err(|problem| DeltaError::File { path: path.to_owned(), problem: Box::new(problem) })
    }

    fn read(path: &Path) -> Result<Self, DeltaError> {
        let mut file = unpacked(path)?;
        let named = pour_tar(&mut file, &mut io::sink())?.ok_or(DeltaError::Invalid("it cannot be read"))?;
        let archive = Archive { files: files(&file)?, file };
        // Archives with both have the manifest in the layout.
        let index = archive.files.get("index.json").copied();
        match index.filter(|_| archive.files.contains_key("oci-layout")) {
            Some(index) => archive.of_layout(index, named.images),
            None => archive.of_docker(named.images),
        }
    }

    /// The layer as it is in the archive, at the beginning of `target`.
    pub(super) fn copy_layer(&self, layer: &SavedLayer, target: &mut dyn io::Write) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        let Extent { mut at, length } = layer.extent;
        let end = at + length;
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let bytes = buffer.get_mut(..most).unwrap_or_default();
            self.file.read_exact_at(bytes, at)?;
            target.write_all(bytes)?;
            at += u64::try_from(most).unwrap_or(u64::MAX);
        }
        Ok(())
    }
}

struct Archive {
    file: File,
    files: SortedMap<String, Extent>,
}

impl Archive {
    fn of_docker(self, names: Vec<String>) -> Result<SavedImage, DeltaError> {
        let images = self.json("manifest.json")?;
        let [image] = images.as_array().map(Vec::as_slice).unwrap_or_default() else {
            return Err(DeltaError::Invalid("expected an archive of one image"));
        };
        let config = self.bytes(image.get("Config").and_then(Value::as_str).unwrap_or_default())?;
        let layers = image.get("Layers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let layers: Vec<_> = layers.iter().map(|layer| (layer.as_str().unwrap_or_default().to_owned(), None)).collect();
        self.saved(names, config, None, layers)
    }

    fn of_layout(self, index: Extent, names: Vec<String>) -> Result<SavedImage, DeltaError> {
        let mut found = Vec::new();
        self.manifests(&self.extent(index)?, 0, &mut found)?;
        found.dedup();
        let (manifest, config, layers) = match (found.pop(), found.is_empty()) {
            (Some(only), true) => only,
            (None, _) => return Err(DeltaError::Invalid("it has no image with all of its layers")),
            (Some(_), false) => {
                return Err(DeltaError::Invalid("it has several images: expected one image for one platform"));
            }
        };
        let config = self.bytes(&blob_path(&config))?;
        let layers = layers.into_iter().map(|layer| (blob_path(&layer), Some(layer))).collect();
        self.saved(names, config, Some(manifest), layers)
    }

    /// The manifests of images that are here with all of their layers.
    fn manifests(
        &self,
        document: &[u8],
        depth: usize,
        manifests: &mut Vec<(Vec<u8>, Descriptor, Vec<Descriptor>)>,
    ) -> Result<(), DeltaError> {
        match Document::parse(document)? {
            Document::Index(_) if depth >= MAX_INDEX_DEPTH => {}
            Document::Index(index) => {
                for one in index {
                    if let Some(extent) = self.files.get(&blob_path(&one.manifest)) {
                        self.manifests(&self.extent(*extent)?, depth + 1, manifests)?;
                    }
                }
            }
            Document::Manifest { config, layers } => {
                let is_here = |blob: &Descriptor| self.files.contains_key(&blob_path(blob));
                // Attestations are manifests, too.
                let is_layer = |blob: &Descriptor| is_here(blob) && blob.media_type.contains("tar");
                if is_here(&config) && layers.iter().all(is_layer) {
                    manifests.push((document.to_vec(), config, layers));
                }
            }
        }
        Ok(())
    }

    fn saved(
        self,
        names: Vec<String>,
        config: Vec<u8>,
        manifest: Option<Vec<u8>>,
        layers: Vec<(String, Option<Descriptor>)>,
    ) -> Result<SavedImage, DeltaError> {
        let diff_ids = diff_ids(&config)?;
        if diff_ids.len() != layers.len() {
            return Err(DeltaError::Layers { configuration: diff_ids.len(), manifest: layers.len() });
        }
        let layer = |(diff_id, (name, blob)): (Digest, (String, Option<Descriptor>))| {
            let extent = self.files.get(&name).copied().ok_or(DeltaError::Missing(name))?;
            Ok::<_, DeltaError>(SavedLayer { diff_id, blob, extent })
        };
        let layers = diff_ids.into_iter().zip(layers).map(layer).collect::<Result<_, _>>()?;
        Ok(SavedImage { names, config, manifest, layers, file: self.file })
    }

    fn json(&self, name: &'static str) -> Result<Value, DeltaError> {
        serde_json::from_slice(&self.bytes(name)?).map_err(|error| DeltaError::Json { name, error })
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, DeltaError> {
        self.extent(*self.files.get(name).ok_or_else(|| DeltaError::Missing(name.to_owned()))?)
    }

    fn extent(&self, Extent { at, length }: Extent) -> Result<Vec<u8>, DeltaError> {
        let length = usize::try_from(length.min(MAX_IMAGE_MANIFEST_BYTES + 1)).unwrap_or_default();
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at).map_err(DeltaError::Read)?;
        Ok(bytes)
    }
}

fn blob_path(blob: &Descriptor) -> String {
    format!("blobs/sha256/{}", blob.digest.hex())
}

/// The files of a tar by name. Links are those of docker to layers that occur twice.
fn files(file: &File) -> Result<SortedMap<String, Extent>, DeltaError> {
    let block = u64::try_from(TAR_BLOCK_BYTES).unwrap_or(u64::MAX);
    let (mut files, mut links) = (SortedMap::new(), Vec::new());
    let mut at = 0;
    let mut header = [0; TAR_BLOCK_BYTES];
    while files.len() + links.len() < MAX_ARCHIVE_FILES {
        match file.read_exact_at(&mut header, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            read => read.map_err(DeltaError::Read)?,
        }
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        let text = |from: usize, length: usize| {
            let field = header.get(from..from + length).unwrap_or_default();
            String::from_utf8_lossy(field.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
        };
        let length = header.get(124..136).and_then(number);
        let length = length.ok_or(DeltaError::Invalid("it is damaged: a file in it has no size"))?;
        at += block;
        let name = match text(345, 155) {
            prefix if prefix.is_empty() => text(0, 100),
            prefix => format!("{prefix}/{}", text(0, 100)),
        };
        let name = name.strip_prefix("./").unwrap_or(&name).to_owned();
        match header.get(156) {
            Some(b'0' | 0) => drop(files.insert(name, Extent { at, length })),
            Some(b'1') => links.push((name, text(157, 100))),
            Some(b'2') => {
                let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
                let target = text(157, 100);
                let target = match target.strip_prefix("../") {
                    Some(above) if !directory.contains('/') => above.to_owned(),
                    _ => format!("{directory}/{target}"),
                };
                links.push((name, target));
            }
            _ => {}
        }
        let end = length.checked_next_multiple_of(block).and_then(|length| at.checked_add(length));
        at = end.ok_or(DeltaError::Invalid("it is damaged"))?;
    }
    for (name, target) in links {
        if let Some(extent) = files.get(&target).copied() {
            files.insert(name, extent);
        }
    }
    Ok(files)
}
