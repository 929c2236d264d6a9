use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::kubelet::image_archives::manifest::Digest;
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

fn write_policy(folder: &Path, requirement: serde_json::Value) {
    fs::write(folder.join("policy.json"), json!({"default": [requirement]}).to_string()).unwrap();
}

fn signed_by(signer: &Signer) -> serde_json::Value {
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
    let why = "the present image has no digest of its registry";
    check_refused(wanted(&folder.0, &id('d'), PullPolicy::Never), why);
    write_policy(&folder.0, signed_by(&other));
    check_refused(wanted(&folder.0, &id('c'), PullPolicy::Never), why);
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
