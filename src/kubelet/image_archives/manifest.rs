//! Image indexes and manifests, and the choice of the platform. Pure.

use std::fmt;

use ring::digest::Context;
use serde_json::{Value, json};

use crate::protocol::sha256::sha256;
use crate::types::architecture::ARCHITECTURE;

/// A blob with its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) media_type: String,
}

/// `sha256:` and 64 hexadecimal digits. Other algorithms are not supported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Digest(String);

impl Digest {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix(SHA256_PREFIX)?;
        let is_hex = hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_hex.then(|| Self(hex.to_owned()))
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }

    /// Whether it is the digest of the hashed bytes.
    pub(crate) fn is_of(&self, hash: Context) -> bool {
        let hex: String = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        self.0 == hex
    }

    /// Without the algorithm: the name of the blob's file.
    pub(crate) fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SHA256_PREFIX}{}", self.0)
    }
}

const SHA256_PREFIX: &str = "sha256:";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Document {
    /// Manifests, one for each platform.
    Index(Vec<PlatformManifest>),
    Manifest {
        config: Descriptor,
        layers: Vec<Descriptor>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlatformManifest {
    pub(crate) manifest: Descriptor,
    os: String,
    architecture: String,
    variant: String,
}

/// The media types of manifests, for the `Accept` header.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";
/// containerd's limit of a manifest.
pub(crate) const MAX_IMAGE_MANIFEST_BYTES: u64 = 4 << 20;

const MAX_MANIFEST_LAYERS: usize = 512;

/// Values of a document. Each takes up to 160 bytes in memory, and two bytes as text.
const MAX_DOCUMENT_VALUES: usize = 100_000;

/// Parses a manifest of a registry, for the fuzz targets.
pub fn check_manifest(bytes: &[u8]) {
    match Document::parse(bytes) {
        Ok(Document::Index(manifests)) => {
            let machines = ["x86_64", "aarch64", "arm", "x86", "riscv64"];
            drop(machines.map(|machine| select(&manifests, machine).cloned()));
        }
        Ok(Document::Manifest { layers, .. }) => assert!(layers.len() <= MAX_MANIFEST_LAYERS),
        Err(problem) => assert!(problem.to_string().len() < 1000, "{problem}"),
    }
}

/// Why a document is neither an index nor a manifest.
#[derive(Debug)]
pub(crate) enum ManifestError {
    Invalid(&'static str),
    Json(serde_json::Error),
    Missing(&'static str),
    TooManyValues,
    /// With the head of the digest.
    UnsupportedDigest(String),
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) => f.write_str(what),
            Self::Json(error) => write!(f, "no manifest: {error}"),
            Self::Missing(name) => write!(f, "a manifest without {name}"),
            Self::TooManyValues => write!(f, "a manifest with more than {MAX_DOCUMENT_VALUES} values"),
            Self::UnsupportedDigest(head) => write!(f, "unsupported digest {head:?}"),
        }
    }
}

impl std::error::Error for ManifestError {}

impl Document {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let document = document(bytes)?;
        if let Some(manifests) = document.get("manifests").and_then(Value::as_array) {
            // A platform that cannot be parsed is not this machine's.
            return Ok(Self::Index(manifests.iter().filter_map(platform_manifest).collect()));
        }
        let of = |name: &'static str| document.get(name).ok_or(ManifestError::Missing(name));
        let layers = of("layers")?.as_array().filter(|layers| layers.len() <= MAX_MANIFEST_LAYERS);
        let layers = layers.ok_or(ManifestError::Invalid("a manifest with invalid layers"))?;
        Ok(Self::Manifest {
            config: descriptor(of("config")?)?,
            layers: layers.iter().map(descriptor).collect::<Result<_, _>>()?,
        })
    }
}

/// The JSON of a document with a bounded number of values.
pub(crate) fn document(bytes: &[u8]) -> Result<Value, ManifestError> {
    // Each value has one of these before it or is the first of its document.
    let values = bytes.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    if values > MAX_DOCUMENT_VALUES {
        return Err(ManifestError::TooManyValues);
    }
    serde_json::from_slice(bytes).map_err(ManifestError::Json)
}

pub(crate) fn descriptor(value: &Value) -> Result<Descriptor, ManifestError> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let digest = Digest::parse(text("digest"))
        .ok_or_else(|| ManifestError::UnsupportedDigest(text("digest").chars().take(100).collect()))?;
    let size = value.get("size").and_then(Value::as_u64);
    let size = size.ok_or(ManifestError::Invalid("a descriptor without a size"))?;
    Ok(Descriptor { digest, size, media_type: text("mediaType").to_owned() })
}

/// The index of an OCI layout that gives images these names.
pub(crate) fn layout_index<'a>(images: impl IntoIterator<Item = (&'a str, &'a Descriptor)>) -> String {
    let entries = images.into_iter().map(|(name, top)| {
        json!({
            "mediaType": top.media_type, "digest": top.digest.to_string(), "size": top.size,
            "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
        })
    });
    json!({"schemaVersion": 2, "manifests": entries.collect::<Vec<_>>()}).to_string()
}

/// The content of the file `oci-layout`.
pub(crate) const OCI_LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;

fn platform_manifest(value: &Value) -> Option<PlatformManifest> {
    let platform = value.get("platform");
    let text = |name: &str| platform.and_then(|platform| platform.get(name)?.as_str()).unwrap_or_default().to_owned();
    let manifest = descriptor(value).ok()?;
    Some(PlatformManifest { manifest, os: text("os"), architecture: text("architecture"), variant: text("variant") })
}

/// The manifest for a machine, in Rust's or Go's naming, in the newest variant that the machine can run.
pub(crate) fn select<'a>(manifests: &'a [PlatformManifest], machine: &str) -> Option<&'a Descriptor> {
    let (architecture, variants): (&str, &[&str]) = match machine {
        "x86_64" | "amd64" => ("amd64", &["", "v1"]),
        "aarch64" | "arm64" => ("arm64", &["v8", ""]),
        "arm" => ("arm", &["v7", "", "v6", "v5"]),
        "x86" | "386" => ("386", &[""]),
        other => (other, &[""]),
    };
    variants.iter().find_map(|variant| {
        let is_it =
            |one: &&PlatformManifest| one.os == "linux" && one.architecture == architecture && one.variant == *variant;
        manifests.iter().find(is_it).map(|one| &one.manifest)
    })
}

/// The manifest for this machine in a document, and the digest of its configuration. `find` gives further documents.
pub(crate) fn config_here<'a>(
    document: &'a [u8],
    find: &dyn Fn(&Digest) -> Option<&'a [u8]>,
) -> Option<(&'a [u8], Digest)> {
    let manifest = match Document::parse(document).ok()? {
        Document::Index(manifests) => find(&select(&manifests, ARCHITECTURE)?.digest)?,
        Document::Manifest { .. } => document,
    };
    match Document::parse(manifest).ok()? {
        Document::Manifest { config, .. } => Some((manifest, config.digest)),
        Document::Index(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn digest(c: char) -> String {
        format!("sha256:{}", String::from(c).repeat(64))
    }

    #[test]
    fn platform_is_selected_by_architecture_and_variant() {
        let manifest = |c: char, architecture: &str, variant: &str, os: &str| {
            let platform = json!({"architecture": architecture, "variant": variant, "os": os});
            json!({"digest": digest(c), "size": 7, "mediaType": "m", "platform": platform})
        };
        let index = json!({"manifests": [
            manifest('0', "amd64", "", "windows"), manifest('1', "arm", "v5", "linux"), manifest('2', "arm", "v7", "linux"),
            manifest('3', "amd64", "", "linux"), manifest('4', "arm64", "v8", "linux"), manifest('5', "unknown", "", "unknown"),
            {"digest": "sha512:x", "size": 1},
        ]});
        let Document::Index(manifests) = Document::parse(index.to_string().as_bytes()).unwrap() else {
            panic!("no index")
        };
        for (machine, c) in [
            ("x86_64", Some('3')),
            ("amd64", Some('3')),
            ("arm64", Some('4')),
            ("aarch64", Some('4')),
            ("arm", Some('2')),
            ("riscv64", None),
        ] {
            let found = select(&manifests, machine).map(|found| found.digest.to_string());
            assert_eq!(found, c.map(digest), "{machine}");
        }
    }

    #[test]
    fn manifest_has_a_config_and_layers() {
        let blob = |c: char| json!({"digest": digest(c), "size": 7});
        let found =
            Document::parse(json!({"config": blob('a'), "layers": [blob('b')]}).to_string().as_bytes()).unwrap();
        let of =
            |c: char| Descriptor { digest: Digest::parse(&digest(c)).unwrap(), size: 7, media_type: String::new() };
        assert_eq!(found, Document::Manifest { config: of('a'), layers: vec![of('b')] });
        for bad in [
            json!({}),
            json!({"config": blob('a')}),
            json!({"config": blob('a'), "layers": [{"digest": digest('b')}]}),
            json!({"config": {"digest": "sha256:../../x", "size": 1}, "layers": []}),
            json!({"config": {"digest": digest('A'), "size": 1}, "layers": []}),
        ] {
            assert!(Document::parse(bad.to_string().as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn document_of_small_values_that_take_much_memory_is_refused() {
        let values = format!("{{\"layers\":[{}0]}}", "[0],".repeat(1_000_000));
        let error = Document::parse(values.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "a manifest with more than 100000 values");
    }

    #[test]
    fn error_shows_only_the_head_of_a_digest() {
        let long = json!({"config": {"digest": "x".repeat(1 << 20), "size": 1}, "layers": []}).to_string();
        assert!(Document::parse(long.as_bytes()).unwrap_err().to_string().len() < 200);
    }
}
