use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::kubelet::image_archives::contents::Contents;
use crate::kubelet::image_archives::layout_record_name;
use crate::kubelet::image_archives::manifest::Digest;
use crate::kubelet::image_archives::tar_header::small_tar;
use crate::kubelet::image_credentials::PullSecrets;
use crate::kubelet::image_signatures::Signature;
use crate::kubelet::image_signatures::test_signer::{Signer, base64};
use crate::kubelet::images::WantedImage;
use crate::kubelet::images::tests::{Script, image, images, pod};
use crate::platform::cri::v1::PodSandboxConfig;
use crate::platform::rt::TestFolder;
use crate::types::api::{Container, PullPolicy};

const NAME: &str = "127.0.0.1:1/app:1";

/// The gate, whose registry is unreachable.
fn gate(folder: &Path) -> SignatureGate {
    let places = SignaturePlaces {
        policy: folder.join("policy.json"),
        directory: folder.to_owned(),
        hosts: folder.to_owned(),
        endpoint: folder.to_owned(),
        proxies: Arc::default(),
    };
    SignatureGate::new(places, RuntimeService::new(crate::platform::rpc::Client::new("/nowhere"), Duration::ZERO))
}

fn write_policy(folder: &Path, requirement: Value) {
    fs::write(folder.join("policy.json"), json!({"default": [requirement]}).to_string()).unwrap();
}

fn signed_by(signer: &Signer) -> Value {
    json!({"type": "sigstoreSigned", "keyData": base64(signer.public().as_bytes())})
}

fn id(digit: char) -> String {
    format!("sha256:{}", String::from(digit).repeat(64))
}

/// The reason and the message of a container that wants the present image, or the image's id. Nothing is pulled.
fn wanted(folder: &Path, present: &str, policy: PullPolicy) -> Result<String, Waiting> {
    let script = std::rc::Rc::new(Script::default());
    script.add(NAME, image(present));
    let images = images(&script, None).with_signatures(Some(gate(folder)));
    let container = Container { image: NAME.to_owned(), image_pull_policy: Some(policy), ..Container::default() };
    let (pod, sandbox) = (pod("u"), PodSandboxConfig::default());
    let wanted = WantedImage::by(&container);
    let ensured = images.ensure(&pod, wanted, &sandbox, PullSecrets::default(), std::future::pending());
    let ensured = rt::block_on(ensured).map(|present| present.image_ref);
    assert_eq!(script.pulls(), 0);
    ensured
}

#[track_caller]
fn check_refused(ensured: Result<String, Waiting>, why: &str) {
    let waiting = ensured.unwrap_err();
    assert_eq!(waiting.reason, Reason::SIGNATURE_VALIDATION_FAILED, "{waiting:?}");
    let begin = format!("image pull failed for {NAME} because the signature validation failed: ");
    assert!(waiting.message.starts_with(&begin) && waiting.message.contains(why), "{}", waiting.message);
}

#[test]
fn rejected_image_is_neither_used_nor_pulled() {
    let folder = TestFolder::new("signatures-reject");
    write_policy(&folder.0, json!({"type": "reject"}));
    for policy in [PullPolicy::Never, PullPolicy::IfNotPresent, PullPolicy::Always] {
        check_refused(wanted(&folder.0, &id('c'), policy), "the policy rejects it (default[0])");
    }
    write_policy(&folder.0, json!({"type": "insecureAcceptAnything"}));
    assert_eq!(wanted(&folder.0, &id('c'), PullPolicy::Never), Ok(id('c')));
}

#[test]
fn policy_that_cannot_be_read_lets_no_image_pass() {
    let folder = TestFolder::new("signatures-unread");
    for policy in [PullPolicy::Never, PullPolicy::IfNotPresent, PullPolicy::Always] {
        check_refused(wanted(&folder.0, &id('c'), policy), "policy.json: No such file");
    }
    write_policy(&folder.0, json!({"type": "signedBy"}));
    check_refused(wanted(&folder.0, &id('c'), PullPolicy::Never), "default[0]: signedBy is not supported");
}

#[test]
fn kept_signature_is_judged_again_by_the_present_policy() {
    let folder = TestFolder::new("signatures-kept");
    let (signer, other) = (Signer::new(), Signer::new());
    let manifest = json!({"config": {"digest": id('c'), "size": 1}, "layers": []}).to_string().into_bytes();
    let signatures: Vec<Signature> = vec![signer.simple(NAME, &Digest::of(&manifest))];
    let evidence = Evidence { index: None, manifest, signatures };
    let kept = gate(&folder.0).kept;
    for present in ['c', 'd'] {
        rt::block_on(kept.keep(&id(present), "127.0.0.1:1/app", &evidence)).unwrap();
    }
    write_policy(&folder.0, signed_by(&signer));
    for policy in [PullPolicy::Never, PullPolicy::IfNotPresent] {
        assert_eq!(wanted(&folder.0, &id('c'), policy), Ok(id('c')));
    }
    let no_digest = "it has no digest by which a registry could be asked";
    let why = format!("the present image is not the signed {}; {no_digest}", id('c'));
    check_refused(wanted(&folder.0, &id('d'), PullPolicy::Never), &why);
    let why = format!("the present image has no kept signature; {no_digest}");
    check_refused(wanted(&folder.0, &id('e'), PullPolicy::Never), &why);
    write_policy(&folder.0, signed_by(&other));
    check_refused(wanted(&folder.0, &id('c'), PullPolicy::Never), "it is not by a key of the policy (default[0])");
}

/// The blob's file in a layout, and its descriptor.
fn blob(content: &str, kind: &str) -> ((String, String), Value) {
    let digest = Digest::of(content.as_bytes());
    let file = (format!("blobs/sha256/{}", digest.hex()), content.to_owned());
    (file, json!({"digest": digest.to_string(), "size": content.len(), "mediaType": kind}))
}

fn image_manifest() -> String {
    json!({"config": {"digest": id('c'), "size": 1}, "layers": []}).to_string()
}

/// A layout as `cosign save` writes it, with the image and `signatures`, as the import keeps it; and the image's names.
/// `change` alters a file.
fn import(folder: &Path, signatures: &[Signature], change: fn(&mut String)) -> Vec<String> {
    let (image_file, mut image) = blob(&image_manifest(), "application/vnd.oci.image.manifest.v1+json");
    image["annotations"] = json!({"kind": "dev.cosignproject.cosign/image"});
    if signatures.is_empty() {
        image["annotations"] = json!({"io.containerd.image.name": NAME});
    }
    let mut files = vec![image_file];
    let mut entries = vec![image];
    for signature in signatures {
        let (kind, content, annotations) = match signature {
            Signature::Simple { payload, signature } => (
                "application/vnd.dev.cosign.simplesigning.v1+json",
                payload,
                json!({"dev.cosignproject.cosign/signature": signature}),
            ),
            Signature::Bundle(bundle) => (crate::kubelet::image_signatures::BUNDLE_TYPE, bundle, json!({})),
        };
        let (file, mut layer) = blob(std::str::from_utf8(content).unwrap(), kind);
        layer["annotations"] = annotations;
        let manifest = json!({"config": {"digest": id('0'), "size": 1}, "layers": [layer]}).to_string();
        let (manifest_file, mut entry) = blob(&manifest, "application/vnd.oci.image.manifest.v1+json");
        entry["annotations"] = json!({"kind": "dev.cosignproject.cosign/sigs"});
        files.extend([file, manifest_file]);
        entries.push(entry);
    }
    files.iter_mut().for_each(|(_, content)| change(content));
    files.push(("index.json".to_owned(), json!({"manifests": entries}).to_string()));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, content)| (name.as_str(), content.as_str())).collect();
    let mut contents = Contents::default();
    contents.push(&small_tar(&files).unwrap()).unwrap();
    let Ok(archive) = contents.end() else { return Vec::new() };
    fs::create_dir_all(folder.join("image-signatures")).unwrap();
    for (id, record) in archive.layout.records() {
        fs::write(folder.join("image-signatures").join(layout_record_name(id.hex())), record).unwrap();
    }
    archive.images
}

#[test]
fn image_of_signed_archive_is_accepted_without_registry() {
    let folder = TestFolder::new("signatures-archive");
    let signer = Signer::new();
    write_policy(&folder.0, signed_by(&signer));
    let signature = signer.simple(NAME, &Digest::of(image_manifest().as_bytes()));
    assert_eq!(import(&folder.0, &[signature], |_| {}), [NAME]);
    assert_eq!(wanted(&folder.0, &id('c'), PullPolicy::IfNotPresent), Ok(id('c')));
    fs::remove_file(folder.0.join("image-signatures").join(layout_record_name(&"c".repeat(64)))).unwrap();
    assert_eq!(wanted(&folder.0, &id('c'), PullPolicy::Never), Ok(id('c')), "kept like that of a registry");
}

#[test]
fn archive_without_good_signature_is_refused() {
    let folder = TestFolder::new("signatures-bad-archive");
    let (signer, other) = (Signer::new(), Signer::new());
    write_policy(&folder.0, signed_by(&signer));
    let digest = Digest::of(image_manifest().as_bytes());
    let refused = |signatures: &[Signature], change: fn(&mut String), why: &str| {
        import(&folder.0, signatures, change);
        check_refused(wanted(&folder.0, &id('c'), PullPolicy::Never), why);
    };
    refused(&[], |_| {}, "it has no signature (default[0])");
    // The second signature names the image, so that the record of the former import is replaced.
    let named = |signature: Signature| [signature, other.simple(NAME, &digest)];
    refused(&named(other.simple(NAME, &digest)), |_| {}, "it is not by a key of the policy");
    let foreign = Digest::of(b"other");
    refused(&named(signer.simple(NAME, &foreign)), |_| {}, &format!("it is for the digest {foreign}"));
    refused(&named(signer.simple("r.io/b:1", &digest)), |_| {}, "it is for r.io/b:1");
    let alter = |content: &mut String| *content = content.replace("\"optional\":null", "\"optional\":{}");
    refused(&[signer.simple("r.io/b:1", &digest)], alter, "a signature's payload is missing or altered");
    let understate = |content: &mut String| {
        if content.contains("simplesigning") {
            *content = content.replace("\"size\":", "\"size\":0,\"was\":");
        }
    };
    refused(&[signer.simple(NAME, &digest)], understate, "a signature's payload is missing or altered");
    let many: Vec<Signature> = (0..65).map(|i| signer.simple(&format!("r.io/b:{i}"), &digest)).collect();
    refused(&many, |_| {}, "the signatures of its archive: more than 64 signatures");
}

#[test]
fn bundle_of_archive_is_evidence() {
    let folder = TestFolder::new("signatures-archive-bundle");
    let signer = Signer::new();
    let digest = Digest::of(image_manifest().as_bytes());
    let subject = json!({"digest": {"sha256": digest.hex()}});
    let bundle = signer.statement(&subject, "https://sigstore.dev/cosign/sign/v1");
    import(&folder.0, &[signer.simple(NAME, &digest), bundle.clone()], |_| {});
    let kept = gate(&folder.0).kept;
    let evidence = rt::block_on(kept.of_archive(&id('c'))).unwrap().unwrap();
    assert_eq!(evidence.manifest, image_manifest().into_bytes());
    assert!(evidence.signatures.contains(&bundle), "{evidence:?}");
}

#[test]
fn record_of_multi_platform_image_has_manifest_for_this_machine() {
    let platform = json!({"os": "linux", "architecture": crate::types::architecture::ARCHITECTURE});
    let (_, mut entry) = blob(&image_manifest(), "application/vnd.oci.image.manifest.v1+json");
    entry["platform"] = platform;
    let index = json!({"manifests": [{"digest": id('9'), "size": 1}, entry]}).to_string();
    let of = |record: &[&str]| Evidence::of_archive(json!(record).to_string().as_bytes());
    let evidence = of(&[&index, "{}", &image_manifest()]).unwrap();
    assert_eq!(evidence.index, Some(index.clone().into_bytes()));
    assert_eq!(evidence.manifest, image_manifest().into_bytes());
    assert_eq!(of(&[&index]).unwrap_err().to_string(), "no manifest for this machine");
}

#[test]
fn record_of_archive_goes_with_its_image() {
    let folder = TestFolder::new("signatures-archive-record");
    let kept = gate(&folder.0).kept;
    let digest = Digest::of(image_manifest().as_bytes());
    import(&folder.0, &[Signer::new().simple(NAME, &digest)], |_| {});
    rt::block_on(async {
        kept.retain(kept.files().await, &[image(&id('c'))]).await;
        assert!(kept.of_archive(&id('c')).await.is_some());
        kept.retain(kept.files().await, &[image(&id('d'))]).await;
        assert!(kept.of_archive(&id('c')).await.is_none());
    });
}

#[test]
fn kept_signatures_are_by_repository_and_go_with_the_image() {
    let folder = TestFolder::new("signatures-files");
    let kept = KeptSignatures::new(folder.0.join("kept"));
    let evidence = |text: &str| Evidence { manifest: text.as_bytes().to_vec(), ..Evidence::default() };
    rt::block_on(async {
        for (repository, text) in [("r.io/a", "1"), ("r.io/b", "2"), ("r.io/a", "3")] {
            kept.keep(&id('c'), repository, &evidence(text)).await.unwrap();
        }
        kept.keep(&id('d'), "r.io/a", &evidence("4")).await.unwrap();
        assert_eq!(kept.of(&id('c'), "r.io/a").await, Some(evidence("3")));
        assert_eq!(kept.of(&"c".repeat(64), "r.io/b").await, Some(evidence("2")), "an id of CRI-O");
        assert_eq!(kept.of(&id('c'), "r.io/c").await, None);
        assert_eq!(kept.of("../../etc/passwd", "r.io/c").await, None);
        kept.retain(kept.files().await, &[image(&id('d'))]).await;
        assert_eq!(kept.of(&id('c'), "r.io/a").await, None);
        assert_eq!(kept.of(&id('d'), "r.io/a").await, Some(evidence("4")));
    });
}
