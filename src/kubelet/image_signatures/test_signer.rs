//! Signs images in tests, as cosign does.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use super::bundle::BUNDLE_TYPE;
use super::evidence::Signature;
use crate::kubelet::image_archives::manifest::Digest;
use crate::protocol::{der, pem};
use crate::types::api::Bytes;

pub(crate) struct Signer(EcdsaKeyPair);

impl Signer {
    pub(crate) fn new() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap())
    }

    pub(crate) fn public(&self) -> String {
        let oid = |bytes: &[u8]| der::element(der::tag::OID, &[bytes]);
        let (ec, p256) = (oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]), oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7]));
        let point = self.0.public_key().as_ref().to_vec();
        pem::encode("PUBLIC KEY", &der::sequence(&[&der::sequence(&[&ec, &p256]), &der::bit_string(&point)]))
    }

    pub(crate) fn sign(&self, content: &[u8]) -> String {
        base64(self.0.sign(&SystemRandom::new(), content).unwrap().as_ref())
    }

    pub(crate) fn simple(&self, name: &str, digest: &Digest) -> Signature {
        let payload = json!({"critical": {"identity": {"docker-reference": name}, "type": "cosign container image signature",
            "image": {"docker-manifest-digest": digest.to_string()}}, "optional": null});
        self.of_payload(&payload.to_string())
    }

    pub(crate) fn of_payload(&self, payload: &str) -> Signature {
        Signature::Simple { payload: payload.as_bytes().to_vec(), signature: self.sign(payload.as_bytes()) }
    }

    pub(crate) fn statement(&self, subject: &Value, predicate: &str) -> Signature {
        let statement = json!({"_type": "https://in-toto.io/Statement/v1", "subject": [subject],
            "predicateType": predicate, "predicate": {}});
        let (kind, payload) = ("application/vnd.in-toto+json", statement.to_string());
        let content = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
        let envelope = json!({"payload": base64(payload.as_bytes()), "payloadType": kind,
            "signatures": [{"sig": self.sign(content.as_bytes())}]});
        bundle(json!({"dsseEnvelope": envelope, "verificationMaterial": {"publicKey": {"hint": "x"}}}))
    }
}

pub(crate) fn bundle(mut fields: Value) -> Signature {
    fields["mediaType"] = json!(BUNDLE_TYPE);
    Signature::Bundle(fields.to_string().into_bytes())
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    Bytes(bytes.to_vec()).to_base64()
}
