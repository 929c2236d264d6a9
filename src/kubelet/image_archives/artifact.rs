//! The files of an OCI artifact, as ORAS writes them. Pure.
//!
//! Each layer is a file with its name in an annotation. The signature of `NAME` is the layer `NAME.sig`, as on a web
//! server.

use serde_json::Value;

use super::manifest::{Descriptor, ManifestError, descriptor, document};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArtifactFile {
    /// Empty for a layer without a name.
    pub(crate) title: String,
    pub(crate) blob: Descriptor,
}

const TITLE_ANNOTATION: &str = "org.opencontainers.image.title";
/// Files of an artifact.
const MAX_ARTIFACT_FILES: usize = 64;

/// The files of a manifest, which has been verified by its digest.
pub(crate) fn artifact_files(manifest: &[u8]) -> Result<Vec<ArtifactFile>, ManifestError> {
    let document = document(manifest)?;
    let layers = document.get("layers").and_then(Value::as_array).ok_or(ManifestError::Missing("layers"))?;
    if layers.len() > MAX_ARTIFACT_FILES {
        return Err(ManifestError::Invalid("a manifest with more than 64 layers"));
    }
    let file = |layer: &Value| {
        let title = layer.get("annotations").and_then(|annotations| annotations.get(TITLE_ANNOTATION)?.as_str());
        Ok(ArtifactFile { title: title.unwrap_or_default().to_owned(), blob: descriptor(layer)? })
    };
    layers.iter().map(file).collect()
}

/// Whether the file is a signature of another one.
fn is_signature(file: &ArtifactFile) -> bool {
    file.title.ends_with(".sig")
}

/// The program for `architecture`: the only one, or the one whose name ends with it.
pub(crate) fn program<'a>(files: &'a [ArtifactFile], architecture: &str) -> Result<&'a ArtifactFile, String> {
    let programs = || files.iter().filter(|file| !is_signature(file));
    let is_own = |file: &&ArtifactFile| file.title.strip_suffix(architecture).is_some_and(|name| name.ends_with('-'));
    let mut own = programs().filter(is_own);
    match (own.next(), own.next(), programs().count()) {
        (Some(file), None, _) => Ok(file),
        (Some(_), Some(_), _) => Err(format!("two layers of the artifact are for {architecture}")),
        (None, _, 1) => programs().next().ok_or_else(String::new),
        (None, ..) => Err(format!("no layer of the artifact has a name that ends with -{architecture}")),
    }
}

/// The only file besides signatures.
pub(crate) fn content(files: &[ArtifactFile]) -> Result<&ArtifactFile, String> {
    let mut contents = files.iter().filter(|file| !is_signature(file));
    match (contents.next(), contents.next()) {
        (Some(file), None) => Ok(file),
        (None, _) => Err("the artifact has no layer with manifests".to_owned()),
        (Some(_), Some(_)) => Err("the artifact has more than one layer with manifests".to_owned()),
    }
}

/// The signature of `file`.
pub(crate) fn signature<'a>(files: &'a [ArtifactFile], file: &ArtifactFile) -> Result<&'a ArtifactFile, String> {
    let is_its = |other: &&ArtifactFile| other.title.strip_suffix(".sig") == Some(&file.title);
    files.iter().find(is_its).ok_or_else(|| format!("the artifact has no layer {}.sig", file.title))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files(titles: &[&str]) -> Vec<ArtifactFile> {
        let layer = |(number, title): (usize, &&str)| {
            let digest = format!("sha256:{number:064}");
            json!({ "mediaType": "m", "digest": digest, "size": 7, "annotations": { TITLE_ANNOTATION: title } })
        };
        let layers: Vec<Value> = titles.iter().enumerate().map(layer).collect();
        artifact_files(json!({ "config": {}, "layers": layers }).to_string().as_bytes()).unwrap()
    }

    #[track_caller]
    fn check(titles: &[&str], expected: Result<&str, &str>) {
        let files = files(titles);
        let found = program(&files, "arm64").map(|file| file.title.clone());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{titles:?}");
    }

    #[test]
    fn program_is_chosen_by_the_end_of_its_name() {
        check(&["coracle-amd64", "coracle-arm64", "coracle-arm64.sig"], Ok("coracle-arm64"));
        check(&["coracle", "coracle.sig"], Ok("coracle"));
        // Of an index by platform.
        check(&["coracle-amd64"], Ok("coracle-amd64"));
        let none = Err("no layer of the artifact has a name that ends with -arm64");
        check(&["coracle-amd64", "coracle-arm"], none);
        check(&["coracle-amd64", "xarm64"], none);
        check(&[], none);
        check(&["coracle.sig"], none);
        check(&["a-arm64", "b-arm64"], Err("two layers of the artifact are for arm64"));
    }

    #[test]
    fn signature_has_the_name_of_its_file() {
        let files = files(&["a", "b.sig", "a.sig"]);
        assert_eq!(signature(&files, &files[0]).unwrap(), &files[2]);
        assert_eq!(content(&files[..1]).unwrap(), &files[0]);
        assert_eq!(content(&files[1..]).unwrap_err(), "the artifact has no layer with manifests");
        let error = signature(&files[..2], &files[0]).unwrap_err();
        assert_eq!(error, "the artifact has no layer a.sig");
    }

    #[test]
    fn layers_are_bounded_and_need_digests() {
        let layer = |digest: &str| json!({ "digest": digest, "size": 1 });
        let many = vec![layer(&format!("sha256:{}", "0".repeat(64))); MAX_ARTIFACT_FILES + 1];
        for layers in [many, vec![layer("sha256:x")], vec![json!({})]] {
            assert!(artifact_files(json!({ "layers": layers }).to_string().as_bytes()).is_err());
        }
        assert!(artifact_files(b"{}").is_err());
    }
}
