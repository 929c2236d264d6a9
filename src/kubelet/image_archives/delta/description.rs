//! The description in a delta. Pure.

use serde_json::{Value, json};

use super::error::DeltaError;
use crate::kubelet::image_archives::manifest::{Descriptor, Digest, Document};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) names: Vec<String>,
    pub(super) config: String,
    pub(super) manifest: Option<String>,
    pub(super) old: OldImage,
    pub(super) layers: Vec<DeltaLayer>,
}

/// The image that the node must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OldImage {
    pub(super) names: Vec<String>,
    pub(super) config: Digest,
    /// The layers that patches read, one after the other.
    pub(super) layers: Vec<OldLayer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OldLayer {
    pub(super) diff_id: Digest,
    pub(super) length: u64,
    /// The blob in the older archive's manifest.
    pub(super) blob: Option<Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeltaLayer {
    pub(super) diff_id: Digest,
    /// Uncompressed.
    pub(super) length: u64,
    /// The layer in the new image's manifest.
    pub(super) blob: Option<Descriptor>,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The older image has it.
    Old,
    /// The blob as it is.
    Whole(Section),
    /// Steps, differences and new bytes, each packed by gzip.
    Patch([Section; 3]),
}

/// A part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) at: u64,
    pub(super) length: u64,
}

/// Longest layer, uncompressed.
const MAX_LAYER_BYTES: u64 = 1 << 40;
const MAX_DELTA_NAMES: usize = 1000;
const MAX_DELTA_LAYERS: usize = 512;

impl Description {
    pub(super) fn to_json(&self) -> Value {
        let old = |layer: &OldLayer| {
            let blob = layer.blob.as_ref().map(Digest::to_string);
            json!({"diffId": layer.diff_id.to_string(), "length": layer.length, "blob": blob})
        };
        let new = |layer: &DeltaLayer| {
            let blob = layer.blob.as_ref().map(descriptor);
            let sections: Vec<u64> = match &layer.content {
                Content::Old => Vec::new(),
                Content::Whole(section) => vec![section.length],
                Content::Patch(sections) => sections.iter().map(|section| section.length).collect(),
            };
            json!({"diffId": layer.diff_id.to_string(), "length": layer.length, "blob": blob, "sections": sections})
        };
        json!({
            "names": self.names, "image": self.config_digest().to_string(),
            "config": self.config, "manifest": self.manifest,
            "old": {
                "names": self.old.names, "config": self.old.config.to_string(),
                "layers": self.old.layers.iter().map(old).collect::<Vec<_>>(),
            },
            "layers": self.layers.iter().map(new).collect::<Vec<_>>(),
        })
    }

    /// Parses the description of a delta whose sections are at `from..end`.
    pub(super) fn parse(bytes: &[u8], from: u64, end: u64) -> Option<Self> {
        let document: Value = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
        let old = document.get("old")?;
        let mut at = from;
        let layers = list(&document, "layers")?;
        let layers: Vec<_> = layers.iter().map(|layer| new_layer(layer, &mut at)).collect::<Option<_>>()?;
        let old = OldImage {
            names: names(old)?,
            config: digest(old, "config")?,
            layers: list(old, "layers")?.iter().map(old_layer).collect::<Option<_>>()?,
        };
        let total = old.layers.iter().try_fold(0_u64, |sum, layer| sum.checked_add(layer.length))?;
        let parsed =
            Self { names: names(&document)?, config: text("config")?, manifest: text("manifest"), old, layers };
        let is_image = digest(&document, "image")? == parsed.config_digest() && !parsed.names.is_empty();
        (at == end && total <= MAX_LAYER_BYTES && is_image && parsed.is_consistent()).then_some(parsed)
    }

    pub(super) fn config_digest(&self) -> Digest {
        Digest::of(self.config.as_bytes())
    }

    /// Whether the layers are those of the configuration and of the manifest.
    fn is_consistent(&self) -> bool {
        let ids = diff_ids(self.config.as_bytes()).unwrap_or_default();
        let is_of_config = ids.iter().eq(self.layers.iter().map(|layer| &layer.diff_id));
        let is_of_manifest = self.manifest.as_ref().is_none_or(|manifest| {
            let Ok(Document::Manifest { config, layers }) = Document::parse(manifest.as_bytes()) else { return false };
            let own = self.layers.iter().map(|layer| layer.blob.as_ref());
            config.digest == self.config_digest() && layers.iter().map(Some).eq(own)
        });
        is_of_config && is_of_manifest
    }
}

/// The uncompressed layers in an image's configuration.
pub(super) fn diff_ids(config: &[u8]) -> Result<Vec<Digest>, DeltaError> {
    let config: Value =
        serde_json::from_slice(config).map_err(|error| DeltaError::Json { name: "configuration", error })?;
    let ids = config.get("rootfs").and_then(|rootfs| rootfs.get("diff_ids")).and_then(Value::as_array);
    let ids = ids.into_iter().flatten().map(|id| Digest::parse(id.as_str().unwrap_or_default()));
    ids.collect::<Option<_>>().ok_or(DeltaError::Invalid("its configuration has a layer without a SHA-256 digest"))
}

fn new_layer(layer: &Value, at: &mut u64) -> Option<DeltaLayer> {
    let mut section = |length: &Value| {
        let section = Section { at: *at, length: length.as_u64()? };
        *at = at.checked_add(section.length)?;
        Some(section)
    };
    let blob = match layer.get("blob")? {
        Value::Null => None,
        blob => Some(Descriptor {
            digest: digest(blob, "digest")?,
            size: blob.get("size")?.as_u64()?,
            media_type: blob.get("mediaType")?.as_str()?.to_owned(),
        }),
    };
    let content = match list(layer, "sections")? {
        [] => Content::Old,
        [whole] => Content::Whole(section(whole)?),
        [steps, differences, inserts] => Content::Patch([section(steps)?, section(differences)?, section(inserts)?]),
        _ => return None,
    };
    if let Content::Whole(section) = content {
        blob.as_ref().filter(|blob| blob.size == section.length)?;
    }
    Some(DeltaLayer { diff_id: digest(layer, "diffId")?, length: length(layer)?, blob, content })
}

fn old_layer(layer: &Value) -> Option<OldLayer> {
    Some(OldLayer { diff_id: digest(layer, "diffId")?, length: length(layer)?, blob: digest(layer, "blob") })
}

pub(super) fn descriptor(blob: &Descriptor) -> Value {
    json!({"mediaType": blob.media_type, "digest": blob.digest.to_string(), "size": blob.size})
}

fn digest(value: &Value, name: &str) -> Option<Digest> {
    Digest::parse(value.get(name)?.as_str()?)
}

fn length(layer: &Value) -> Option<u64> {
    layer.get("length")?.as_u64().filter(|length| *length <= MAX_LAYER_BYTES)
}

fn list<'a>(value: &'a Value, name: &str) -> Option<&'a [Value]> {
    Some(value.get(name)?.as_array()?.as_slice()).filter(|list| list.len() <= MAX_DELTA_LAYERS)
}

fn names(value: &Value) -> Option<Vec<String>> {
    let names = value.get("names")?.as_array().filter(|names| names.len() <= MAX_DELTA_NAMES)?;
    names.iter().map(|name| Some(name.as_str()?.to_owned())).collect()
}
