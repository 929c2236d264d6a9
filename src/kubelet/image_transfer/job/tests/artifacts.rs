//! Files of artifacts from a registry that misbehaves.

use super::*;
use crate::kubelet::image_archives::artifact;

/// A registry with files of these names, each of as many bytes.
fn registry(files: &[(&str, usize)]) -> (FakeRegistry, Vec<Vec<u8>>) {
    let contents: Vec<Vec<u8>> = files.iter().map(|(_, length)| layer(*length)).collect();
    let registry = FakeRegistry::start(&contents);
    let describe = |((title, _), bytes): (&(&str, usize), &Vec<u8>)| {
        let annotations = json!({ "org.opencontainers.image.title": title });
        json!({ "digest": Digest::of(bytes).to_string(), "size": bytes.len(), "annotations": annotations })
    };
    let layers: Vec<_> = files.iter().zip(&contents).map(describe).collect();
    let config = json!({ "digest": Digest::of(b"{}").to_string(), "size": 2 });
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
    registry.set(|state| state.manifest = manifest.to_string().into_bytes());
    (registry, contents)
}

fn for_arm64(files: &[ArtifactFile]) -> Result<Vec<Descriptor>, String> {
    let program = artifact::program(files, "arm64")?;
    Ok(vec![program.blob.clone(), artifact::signature(files, program)?.blob.clone()])
}

const FILES: [(&str, usize); 4] = [("c-amd64", 5000), ("c-amd64.sig", 64), ("c-arm64", 4000), ("c-arm64.sig", 65)];

#[test]
fn only_the_files_for_the_machine_are_fetched() {
    let (registry, contents) = registry(&FILES);
    let folder = Folder::new("artifact-files");
    let found = job(&[&registry], &folder, "b").run_artifact(for_arm64).unwrap();
    let digests: Vec<Digest> = found.iter().map(|found| found.digest.clone()).collect();
    assert_eq!(digests, [Digest::of(&contents[2]), Digest::of(&contents[3])]);
    for content in &contents[2..] {
        assert_eq!(fs::read(folder.layout().blob(&Digest::of(content))).unwrap(), *content);
    }
    registry.set(|state| assert_eq!(state.sent, 4065));
}

#[test]
fn cut_file_is_continued_by_the_next_fetch_and_wrong_bytes_are_refused() {
    let (registry, contents) = registry(&FILES);
    let folder = Folder::new("artifact-cut");
    registry.set(|state| state.faults = vec![Fault::Cut(3000), Fault::Wrong]);
    let found = job(&[&registry], &folder, "b").run_artifact(for_arm64).unwrap();
    assert_eq!(fs::read(folder.layout().blob(&found[0].digest)).unwrap(), contents[2]);
    let requests = registry.blob_requests();
    assert!(requests[1].to_lowercase().contains("range: bytes=3000-"), "{requests:?}");
    assert_eq!(requests.len(), 4, "{requests:?}");
}

#[test]
fn artifact_without_the_wanted_file_costs_no_blob() {
    let (registry, _) = registry(&FILES[..3]);
    let folder = Folder::new("artifact-missing");
    let error = job(&[&registry], &folder, "b").run_artifact(for_arm64).unwrap_err();
    assert_eq!(error.to_string(), "the artifact has no layer c-arm64.sig");
    assert!(registry.blob_requests().is_empty());
}
