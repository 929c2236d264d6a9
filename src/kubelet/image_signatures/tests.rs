//! Policies and verdicts about images that the tests sign.

use std::path::Path;

use serde_json::{Value, json};

use super::evidence::{Evidence, Signature};
use super::policy::Policy;
use super::public_key::PublicKey;
use super::test_signer::{Signer, base64, bundle};
use super::*;
use crate::kubelet::image_archives::image_name::{Reference, reference};
use crate::kubelet::image_archives::manifest::Digest;

const NAME: &str = "registry.example.com/team/app:1";

fn image(name: &str) -> Reference {
    reference(name).unwrap().in_pod()
}

fn manifest(config: char) -> Vec<u8> {
    let digest = format!("sha256:{}", String::from(config).repeat(64));
    json!({"schemaVersion": 2, "config": {"digest": digest, "size": 1}, "layers": []}).to_string().into_bytes()
}

/// An index with the manifest, and its digest.
fn index_of(manifest: &[u8]) -> (Vec<u8>, Digest) {
    let entry = json!({"digest": Digest::of(manifest).to_string(), "size": manifest.len()});
    let index = json!({"manifests": [entry]}).to_string().into_bytes();
    let digest = Digest::of(&index);
    (index, digest)
}

fn policy(text: &str) -> Result<Policy, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|error| error.kind().to_string());
    Policy::parse(text.as_bytes(), &read).map_err(|error| error.to_string())
}

fn signed_by(signer: &Signer, identity: Value) -> Policy {
    let mut requirement = json!({"type": "sigstoreSigned", "keyData": base64(signer.public().as_bytes())});
    if !identity.is_null() {
        requirement["signedIdentity"] = identity;
    }
    policy(&json!({"default": [requirement]}).to_string()).unwrap()
}

fn judged(policy: &Policy, name: &str, evidence: &Evidence) -> Result<SignedImage, String> {
    let image = image(name);
    judge(policy.requirements(&image), &image, evidence).map_err(|refusal| refusal.to_string())
}

fn of(manifest: &[u8], signatures: Vec<Signature>) -> Evidence {
    Evidence { index: None, manifest: manifest.to_vec(), signatures }
}

#[test]
fn signed_manifest_gives_its_digest_and_the_image_id() {
    let signer = Signer::new();
    let manifest = manifest('c');
    let digest = Digest::of(&manifest);
    let evidence = of(&manifest, vec![signer.simple(NAME, &digest)]);
    let signed = judged(&signed_by(&signer, Value::Null), NAME, &evidence).unwrap();
    assert_eq!((signed.digest, signed.image_id.hex()), (digest, "c".repeat(64).as_str()));
    let stored = Evidence::from_json(&evidence.to_json());
    assert_eq!(stored, Some(evidence), "as written to the disk");
}

#[test]
fn index_or_manifest_may_be_signed() {
    let signer = Signer::new();
    let policy = signed_by(&signer, Value::Null);
    let manifest = manifest('c');
    let (index, top) = index_of(&manifest);
    let own = Digest::of(&manifest);
    for digest in [top, own.clone()] {
        let signatures = vec![signer.simple(NAME, &digest)];
        let evidence = Evidence { index: Some(index.clone()), manifest: manifest.clone(), signatures };
        assert_eq!(judged(&policy, NAME, &evidence).unwrap().digest, digest);
    }
    let other = index_of(b"other").0;
    let evidence = Evidence { index: Some(other), manifest, signatures: vec![signer.simple(NAME, &own)] };
    let error = judged(&policy, NAME, &evidence).unwrap_err();
    assert!(error.ends_with(": its manifest is not valid"), "an index of another manifest: {error}");
}

#[track_caller]
fn check_refused(signature: Signature, why: &str) {
    let signer = Signer::new();
    let error = judged(&signed_by(&signer, Value::Null), NAME, &of(&manifest('c'), vec![signature])).unwrap_err();
    assert!(error.ends_with(&format!("{why} (default[0])")), "{error}");
}

#[test]
fn wrong_signatures_are_refused_with_the_reason() {
    let signer = Signer::new();
    let policy = signed_by(&signer, Value::Null);
    let (manifest, other) = (manifest('c'), Digest::of(b"other"));
    let own = Digest::of(&manifest);
    let Signature::Simple { payload, signature } = signer.simple(NAME, &own) else { panic!("not simple") };
    let cut = Signature::Simple { payload: payload[..payload.len() - 1].to_vec(), signature: signature.clone() };
    let no_signature = Signature::Simple { payload: payload.clone(), signature: "!".to_owned() };
    let of_type = |kind: &str| {
        let text = String::from_utf8(payload.clone()).unwrap();
        signer.of_payload(&text.replace("cosign container image signature", kind))
    };
    let extended = String::from_utf8(payload.clone()).unwrap().replace("\"critical\":{", "\"critical\":{\"x\":1,");
    for (signatures, why) in [
        (vec![], "it has no signature".to_owned()),
        (
            vec![Signer::new().simple(NAME, &own)],
            "no signature is accepted: it is not by a key of the policy".to_owned(),
        ),
        (vec![signer.simple(NAME, &other)], format!("it is for the digest {other}")),
        (
            vec![signer.simple("registry.example.com/team/app:2", &own)],
            "it is for registry.example.com/team/app:2".to_owned(),
        ),
        (
            vec![signer.simple("registry.example.com/other:1", &own)],
            "it is for registry.example.com/other:1".to_owned(),
        ),
        (
            vec![signer.simple("registry.example.com/team/app", &own)],
            "it is for registry.example.com/team/app".to_owned(),
        ),
        (vec![signer.simple("A b", &own)], "it is for A b".to_owned()),
        (vec![cut], "it is not by a key of the policy".to_owned()),
        (vec![no_signature], "its signature is not base64".to_owned()),
        (vec![of_type("atomic container signature")], "its payload is not one of an image's signature".to_owned()),
        (vec![signer.of_payload(&extended)], "its payload is not one of an image's signature".to_owned()),
        (vec![signer.of_payload("{}")], "its payload is not one of an image's signature".to_owned()),
        (
            vec![signer.simple(NAME, &other), Signer::new().simple(NAME, &own)],
            format!("it is for the digest {other}; it is not by a key of the policy"),
        ),
    ] {
        let error = judged(&policy, NAME, &of(&manifest, signatures)).unwrap_err();
        assert!(error.ends_with(&format!("{why} (default[0])")), "{error}, expected {why}");
        assert!(error.starts_with(&own.to_string()), "{error}");
    }
    let signed = judged(&policy, NAME, &of(&manifest, vec![of_type("x"), signer.simple(NAME, &own)])).unwrap();
    assert_eq!(signed.digest, own, "one signature is good");
}

#[test]
fn bundle_without_a_name_is_good_for_an_image_by_digest_only() {
    let signer = Signer::new();
    let manifest = manifest('c');
    let digest = Digest::of(&manifest);
    let sign = "https://sigstore.dev/cosign/sign/v1";
    let nameless = signer.statement(&json!({"digest": {"sha256": digest.hex()}}), sign);
    let plain = bundle(json!({"messageSignature": {"signature": signer.sign(&manifest)},
        "verificationMaterial": {"publicKey": {}}}));
    let by_digest = format!("registry.example.com/team/app@{digest}");
    for signature in [&nameless, &plain] {
        let evidence = of(&manifest, vec![signature.clone()]);
        for (identity, name, is_accepted) in [
            (Value::Null, by_digest.as_str(), true),
            (json!({"type": "matchRepository"}), &by_digest, true),
            (json!({"type": "matchExact"}), &by_digest, false),
            (json!({"type": "matchRepository"}), NAME, false),
            (Value::Null, NAME, false),
        ] {
            let judged = judged(&signed_by(&signer, identity.clone()), name, &evidence);
            assert_eq!(judged.is_ok(), is_accepted, "{identity} {name}: {judged:?}");
        }
    }
    let named = signer.statement(&json!({"name": NAME, "digest": {"sha256": digest.hex()}}), sign);
    assert!(judged(&signed_by(&signer, Value::Null), NAME, &of(&manifest, vec![named])).is_ok());
}

#[test]
fn wrong_bundle_is_refused() {
    let signer = Signer::new();
    let subject = json!({"name": NAME, "digest": {"sha256": Digest::of(&manifest('c')).hex()}});
    check_refused(Signature::Bundle(b"{".to_vec()), "its bundle is not valid JSON");
    check_refused(Signature::Bundle(b"{}".to_vec()), "it is not a bundle of version 0.3");
    check_refused(
        bundle(json!({"verificationMaterial": {"certificate": {}}})),
        "it is signed with a certificate, not with a key",
    );
    check_refused(
        signer.statement(&subject, "https://sigstore.dev/cosign/sign/v1"),
        "it is not by a key of the policy",
    );
    check_refused(bundle(json!({"verificationMaterial": {"publicKey": {}}})), "it is not by a key of the policy");
    let evidence = of(&manifest('c'), vec![signer.statement(&subject, "https://slsa.dev/provenance/v1")]);
    let error = judged(&signed_by(&signer, Value::Null), NAME, &evidence).unwrap_err();
    assert!(error.contains("its statement is not one of an image's signature"), "{error}");
    let other = json!({"name": NAME, "digest": {"sha256": Digest::of(b"other").hex()}});
    let evidence = of(&manifest('c'), vec![signer.statement(&other, "https://sigstore.dev/cosign/sign/v1")]);
    let error = judged(&signed_by(&signer, Value::Null), NAME, &evidence).unwrap_err();
    assert!(error.contains(&format!("it is for the digest {}", Digest::of(b"other"))), "{error}");
}

#[test]
fn kept_signatures_of_another_digest_are_no_use_to_an_image_by_digest() {
    let signer = Signer::new();
    let manifest = manifest('c');
    let evidence = of(&manifest, vec![signer.simple(NAME, &Digest::of(&manifest))]);
    let other = format!("registry.example.com/team/app@{}", Digest::of(b"other"));
    let error = judged(&signed_by(&signer, Value::Null), &other, &evidence).unwrap_err();
    assert!(error.ends_with("the known signatures are of another digest"), "{error}");
}

#[test]
fn identities_match_as_in_containers_image() {
    let digest = format!("@sha256:{}", "a".repeat(64));
    let with_digest = |name: &str| [name, &digest].concat();
    let (exact, default, repository) = (json!({"type": "matchExact"}), Value::Null, json!({"type": "matchRepository"}));
    let remap = json!({"type": "remapIdentity", "prefix": "mirror.lan", "signedPrefix": "docker.io/library"});
    let exact_reference = json!({"type": "exactReference", "dockerReference": "r.io/a:1"});
    let exact_repository = json!({"type": "exactRepository", "dockerRepository": "r.io/a"});
    let (by_digest, library) = (with_digest("r.io/a"), with_digest("mirror.lan/a"));
    for (identity, image, signed, is_accepted) in [
        (&exact, "r.io/a:1", "r.io/a:1", true),
        (&exact, "busybox:1", "docker.io/library/busybox:1", true),
        (&exact, "r.io/a:1", "r.io/a:2", false),
        (&exact, "r.io/a:1", "r.io/a", false),
        (&exact, &by_digest, "r.io/a:1", false),
        (&exact, &by_digest, &by_digest, true),
        (&default, "r.io/a:1", "r.io/a:1", true),
        (&default, "r.io/a:1", "r.io/a:2", false),
        (&default, &by_digest, "r.io/a:9", true),
        (&default, &by_digest, "r.io/a", false),
        (&default, &by_digest, "r.io/b:9", false),
        (&repository, "r.io/a:1", "r.io/a", true),
        (&repository, "r.io/a:1", "r.io/a:2", true),
        (&repository, "r.io/a:1", "r.io/a/b:1", false),
        (&exact_reference, "r.io/x:7", "r.io/a:1", true),
        (&exact_reference, "r.io/a:1", "r.io/a:2", false),
        (&exact_repository, "r.io/x:7", "r.io/a:3", true),
        (&exact_repository, "r.io/x:7", "r.io/x:7", false),
        (&remap, "mirror.lan/a:1", "docker.io/library/a:1", true),
        (&remap, "mirror.lan/a:1", "mirror.lan/a:1", false),
        (&remap, "mirror.lan.x/a:1", "mirror.lan.x/a:1", true),
        (&remap, &library, "docker.io/library/a:1", true),
    ] {
        let signer = Signer::new();
        let policy = signed_by(&signer, identity.clone());
        let Requirement::SigstoreSigned(required) = &policy.default[0] else { panic!("no signature is required") };
        let found = required.identity.accepts(&self::image(image), &reference(signed).unwrap());
        assert_eq!(found, is_accepted, "{identity} {image} {signed}");
    }
}

#[test]
fn most_specific_scope_counts_and_all_of_its_requirements() {
    let text = json!({"default": [{"type": "reject"}], "transports": {"docker": {
        "r.io": [{"type": "insecureAcceptAnything"}],
        "r.io/a": [{"type": "insecureAcceptAnything"}, {"type": "reject"}],
        "r.io/a/b:1": [{"type": "insecureAcceptAnything"}],
        "*.example.com": [{"type": "insecureAcceptAnything"}],
        "": [{"type": "reject"}],
    }, "docker-daemon": {"": [{"type": "insecureAcceptAnything"}]}}});
    let policy = policy(&text.to_string()).unwrap();
    for (name, place) in [
        ("r.io/x:1", None),
        ("r.io/a:1", Some("transports.docker[\"r.io/a\"][1]")),
        ("r.io/a/b:2", Some("transports.docker[\"r.io/a\"][1]")),
        ("r.io/a/b:1", None),
        ("x.example.com:5000/a:1", None),
        ("example.com/a:1", Some("transports.docker[\"\"][0]")),
        ("busybox:1", Some("transports.docker[\"\"][0]")),
    ] {
        let rejection = policy.requirements(&image(name)).iter().find_map(Requirement::rejection);
        let shown = rejection.map(|rejection| rejection.to_string());
        assert_eq!(shown, place.map(|place| format!("the policy rejects it ({place})")), "{name}");
    }
    assert!(judged(&policy, "r.io/a:1", &of(&manifest('c'), Vec::new())).is_err());
}

#[test]
fn policy_that_cannot_be_honoured_is_refused_as_a_whole() {
    let key = base64(Signer::new().public().as_bytes());
    let required = |fields: Value| {
        let mut requirement = json!({"type": "sigstoreSigned"});
        requirement.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"default": [requirement]}).to_string()
    };
    let identity = |identity: Value| required(json!({"keyData": key, "signedIdentity": identity}));
    for (text, line) in [
        ("default: []".to_owned(), "expected a JSON object"),
        ("{}".to_owned(), "expected a field default"),
        (r#"{"default": []}"#.to_owned(), "default: expected a list of at least one requirement"),
        (r#"{"default": [{"type": "insecureAcceptAnything"}], "x": 1}"#.to_owned(), "unknown field \"x\": expected default, transports"),
        (
            r#"{"default": [{"type": "insecureAcceptAnything", "keyPath": "/k"}]}"#.to_owned(),
            "default[0]: unknown field \"keyPath\": expected type",
        ),
        (
            r#"{"default": [{"type": "magic"}]}"#.to_owned(),
            "default[0]: expected the type insecureAcceptAnything, reject or sigstoreSigned",
        ),
        (
            r#"{"default": [{"type": "reject"}], "transports": {"docker": {"r.io": [{"type": "signedBy", "keyType": "GPGKeys"}]}}}"#
                .to_owned(),
            "transports.docker[\"r.io\"][0]: signedBy is not supported: expected sigstoreSigned with a key",
        ),
        (
            json!({"default": [{"type": "reject"}], "transports": {"oci-archive": {"": [{"type": "reject"}]}}}).to_string(),
            "transports.oci-archive[\"\"]: images of archives are judged under docker: expected insecureAcceptAnything",
        ),
        (
            required(json!({"fulcio": {}})),
            "default[0]: fulcio is not supported: expected sigstoreSigned with a key only",
        ),
        (
            required(json!({"keyData": key, "rekorPublicKeyData": key})),
            "default[0]: rekorPublicKeyData is not supported: expected sigstoreSigned with a key only",
        ),
        (required(json!({})), "default[0]: expected one of keyPath, keyPaths, keyData and keyDatas"),
        (
            required(json!({"keyData": key, "keyPath": "/k"})),
            "default[0]: expected one of keyPath, keyPaths, keyData and keyDatas",
        ),
        (required(json!({"keyPath": "/nowhere/k"})), "default[0]: keyPath /nowhere/k: entity not found"),
        (required(json!({"keyPaths": []})), "default[0]: keyPaths: expected a list of 1 to 64 texts"),
        (required(json!({"keyData": [key]})), "default[0]: keyData: expected a text"),
        (required(json!({"keyData": "!"})), "default[0]: keyData: expected base64"),
        (
            required(json!({"keyData": "AAAA"})),
            "default[0]: keyData: expected one public key in PEM: ECDSA P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits",
        ),
        (identity(json!({"type": "matchExact", "x": 1})), "default[0].signedIdentity: unknown field \"x\": expected type"),
        (
            identity(json!({"type": "exactReference", "dockerReference": "r.io/a"})),
            "default[0].signedIdentity: dockerReference: expected an image with a tag or a digest, found \"r.io/a\"",
        ),
        (
            identity(json!({"type": "exactRepository", "dockerRepository": "A b"})),
            "default[0].signedIdentity: dockerRepository: expected a repository, found \"A b\"",
        ),
        (
            identity(json!({"type": "remapIdentity", "prefix": "x", "signedPrefix": "r.io"})),
            "default[0].signedIdentity: prefix: expected a registry, or one with the beginning of a path, found \"x\"",
        ),
        (
            identity(json!({"type": "x"})),
            "default[0].signedIdentity: expected the type matchExact, matchRepoDigestOrExact, matchRepository, \
             exactReference, exactRepository or remapIdentity",
        ),
    ] {
        assert_eq!(policy(&text).unwrap_err(), line, "{text}");
    }
    assert!(policy("{\"default\"").unwrap_err().contains("not JSON"));
    let twice = policy(r#"{"default": [{"type": "reject"}], "default": [{"type": "insecureAcceptAnything"}]}"#);
    assert!(twice.unwrap_err().contains("default"), "a field that is given twice");
}

#[test]
fn each_kind_of_key_verifies_what_openssl_has_signed() {
    let data = |name: &str| std::fs::read(format!("tests/data/signatures/{name}")).unwrap();
    let text = data("text");
    for (key, signature) in
        [("p256", "p256"), ("p384", "p384"), ("p384", "p384-sha384"), ("rsa", "rsa"), ("ed25519", "ed25519")]
    {
        let key = PublicKey::from_pem(&data(&format!("{key}.pub"))).unwrap();
        let signature = data(&format!("{signature}.sig"));
        assert!(key.has_signed(&text, &signature), "{key:?}");
        assert!(!key.has_signed(&text[1..], &signature) && !key.has_signed(&text, &signature[1..]), "{key:?}");
    }
    for other in ["p521", "rsa1024"] {
        assert!(PublicKey::from_pem(&data(&format!("{other}.pub"))).is_none(), "{other}");
    }
    let two = [data("p256.pub"), data("p384.pub")].concat();
    assert!(PublicKey::from_pem(&two).is_none(), "one key a text");
}

/// Recorded with skopeo 1.22: images that it signed, policies, and whether it copied the images.
#[test]
fn verdicts_are_those_of_skopeo() {
    let text = std::fs::read("tests/data/signatures/skopeo.json").unwrap();
    let golden: Value = serde_json::from_slice(&text).unwrap();
    let mut verdicts = 0;
    for case in golden["cases"].as_array().unwrap() {
        let policy = policy(&case["policy"].to_string()).unwrap();
        for (name, is_accepted) in case["verdicts"].as_object().unwrap() {
            let repository = name.split('@').next().unwrap();
            let images = golden["images"].as_object().unwrap();
            let of_image =
                images.iter().find(|(image, _)| **image == *name || image.strip_suffix(":1") == Some(repository));
            let evidence = Evidence::from_json(of_image.unwrap().1).unwrap();
            let judged = judged(&policy, name, &evidence);
            assert_eq!(json!(judged.is_ok()), *is_accepted, "{name} by {}: {judged:?}", case["policy"]);
            verdicts += 1;
        }
    }
    assert_eq!(verdicts, 200);
    for invalid in golden["invalid"].as_array().unwrap() {
        assert!(policy(&invalid.to_string()).is_err(), "{invalid}");
    }
}

#[test]
fn attachments_are_bounded() {
    let layer = |size: u64| {
        json!({"mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "size": size,
            "digest": Digest::of(b"x").to_string(), "annotations": {"dev.cosignproject.cosign/signature": "AA=="}})
    };
    let manifest = |layers: Vec<Value>| json!({"layers": layers}).to_string().into_bytes();
    let found = signature_layers(&manifest(vec![layer(7), json!({"mediaType": "x"})])).unwrap();
    assert_eq!((found.len(), found[0].1.as_str()), (1, "AA=="));
    let error = |layers| signature_layers(&manifest(layers)).unwrap_err().to_string();
    assert_eq!(error(vec![layer(7); 5000]), "more than 64 signatures");
    assert_eq!(error(vec![layer(1 << 20)]), "a signature's payload of more than 64 KiB");
    let referrer = json!({"artifactType": BUNDLE_TYPE, "digest": Digest::of(b"x").to_string(), "size": 7});
    let index = |count: usize| json!({"manifests": vec![referrer.clone(); count]}).to_string().into_bytes();
    assert_eq!(bundle_manifests(&index(32)).unwrap().len(), 32);
    assert_eq!(bundle_manifests(&index(33)).unwrap_err().to_string(), "more than 32 bundles of signatures");
    let blob = |size: u64| json!({"mediaType": BUNDLE_TYPE, "digest": Digest::of(b"x").to_string(), "size": size});
    assert_eq!(bundle_layers(&manifest(vec![blob(7)])).unwrap().len(), 1);
    assert_eq!(
        bundle_layers(&manifest(vec![blob(1 << 20)])).unwrap_err().to_string(),
        "a signature's bundle of more than 256 KiB"
    );
}
