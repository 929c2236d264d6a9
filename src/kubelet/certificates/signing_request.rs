//! The CertificateSigningRequest object: what is sent, and its outcome. Pure.

use ring::digest;
use serde_json::{Value, json};

use super::pkcs10::Names;
use crate::protocol::pem;
use crate::types::api::Bytes;

/// The two kinds of certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Client,
    Serving,
}

impl Purpose {
    pub(crate) const fn signer(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    /// The usages that the signer requires; RSA keys also get key encipherment.
    fn usages(self, is_rsa: bool) -> Vec<&'static str> {
        let auth_usage = match self {
            Self::Client => "client auth",
            Self::Serving => "server auth",
        };
        // The order that upstream uses for the digest in the request's name.
        if is_rsa {
            vec!["digital signature", auth_usage, "key encipherment"]
        } else {
            vec!["digital signature", auth_usage]
        }
    }
}

#[derive(Debug)]
pub(crate) struct SigningRequest {
    pub(crate) name: String,
    /// The request in PEM, as it is in `spec.request`.
    pub(super) pem: String,
    pub(crate) object: Value,
}

impl SigningRequest {
    /// `der` is the PKCS #10 request, `public_key` its key. The same key and names give the same name, so that a
    /// retry finds the earlier request.
    pub(crate) fn new(purpose: Purpose, names: &Names, public_key: &[u8], is_rsa: bool, der: &[u8]) -> Self {
        let usages = purpose.usages(is_rsa);
        let name = name(names, public_key, &usages);
        let pem = pem::encode(pem::CERTIFICATE_REQUEST, der);
        let object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": Bytes(pem.clone().into_bytes()).to_base64(),
                "signerName": purpose.signer(),
                "usages": usages,
            },
        });
        Self { name, pem, object }
    }

    pub(super) fn annotate(&mut self, name: &str, value: &str) {
        if let Some(metadata) = self.object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("annotations".to_owned(), json!({ name: value }));
        }
    }
}

/// The name that upstream gives a node's first request: a digest of its relevant parts, each followed by a `|`, which
/// no part contains.
fn name(names: &Names, public_key: &[u8], usages: &[&str]) -> String {
    let mut context = digest::Context::new(&digest::SHA512_256);
    let mut write = |part: &[u8]| {
        context.update(url_safe(part).as_bytes());
        context.update(b"|");
    };
    write(public_key);
    write(names.common_name.as_bytes());
    names.organizations.iter().for_each(|name| write(name.as_bytes()));
    usages.iter().for_each(|usage| write(usage.as_bytes()));
    // Serving names are part of the digest; upstream uses `generateName` for serving requests.
    names.dns_names.iter().for_each(|name| write(name.as_bytes()));
    names.ip_addresses.iter().for_each(|address| write(address.to_string().as_bytes()));
    format!("node-csr-{}", url_safe(context.finish().as_ref()))
}

/// Base64 for URLs, without padding (RFC 4648, section 5).
pub(super) fn url_safe(bytes: &[u8]) -> String {
    Bytes(bytes.to_vec()).to_base64url()
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pending,
    /// The certificates, in PEM.
    Issued(Vec<u8>),
    /// Denied or failed, with upstream's message.
    Refused(String),
}

impl Outcome {
    pub(crate) fn of(object: &Value) -> Self {
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let status = object.get("status").unwrap_or(&Value::Null);
        let conditions = status.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut approved = false;
        for condition in conditions {
            let kind = text(condition, "type");
            let what = match kind.as_str() {
                "Denied" => "is denied",
                "Failed" => "failed",
                "Approved" => {
                    approved = true;
                    continue;
                }
                _ => continue,
            };
            let (reason, message) = (text(condition, "reason"), text(condition, "message"));
            return Self::Refused(format!("certificate signing request {what}, reason: {reason}, message: {message}"));
        }
        let issued = Bytes::from_base64(&text(status, "certificate")).map(|bytes| bytes.0);
        match issued.filter(|bytes| approved && !bytes.is_empty()) {
            Some(bytes) => Self::Issued(bytes),
            None => Self::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

    use super::*;
    use crate::kubelet::certificates::key::Key;
    use crate::kubelet::certificates::reenrolment_key::SIGNATURE_ANNOTATION;

    #[test]
    fn request_has_its_signer_and_usages() {
        for (purpose, signer, usage) in [
            (Purpose::Client, "kubernetes.io/kube-apiserver-client-kubelet", "client auth"),
            (Purpose::Serving, "kubernetes.io/kubelet-serving", "server auth"),
        ] {
            let request = SigningRequest::new(purpose, &Names::of_node("a"), b"key", false, b"der");
            let spec = &request.object["spec"];
            assert_eq!(spec["signerName"], signer);
            assert_eq!(spec["usages"], json!(["digital signature", usage]));
            let text = Bytes::from_base64(spec["request"].as_str().unwrap()).unwrap().0;
            assert!(text.starts_with(b"-----BEGIN CERTIFICATE REQUEST-----\n"));
            assert_eq!(request.object["metadata"]["name"], request.name);
        }
    }

    #[test]
    fn annotation_signs_the_bytes_of_the_request() {
        let key = Key::generate().unwrap();
        let mut request = SigningRequest::new(Purpose::Client, &Names::of_node("a"), b"key", false, b"der");
        let plain = request.object.clone();
        request.annotate(SIGNATURE_ANNOTATION, &Bytes(key.sign(request.pem.as_bytes()).unwrap()).to_base64());
        let base64 = |value: &Value| Bytes::from_base64(value.as_str().unwrap()).unwrap().0;
        let signed = base64(&request.object["metadata"]["annotations"]["coracle.dev/reenrolment-signature"]);
        let text = base64(&request.object["spec"]["request"]);
        // The last 65 bytes of a P-256 SubjectPublicKeyInfo are the point.
        let public = key.public_key().unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &public[public.len() - 65..]);
        assert!(public.verify(&text, &signed).is_ok());
        assert!(public.verify(b"other", &signed).is_err());
        assert_eq!(plain["spec"], request.object["spec"]);
    }

    #[test]
    fn name_is_valid_and_depends_on_key_and_names() {
        let of = |names: &Names, key: &[u8]| SigningRequest::new(Purpose::Client, names, key, false, b"").name;
        let one = of(&Names::of_node("a"), b"key");
        assert_eq!(one, of(&Names::of_node("a"), b"key"));
        assert_ne!(one, of(&Names::of_node("b"), b"key"));
        assert_ne!(one, of(&Names::of_node("a"), b"other"));
        let more = Names { dns_names: vec!["a".to_owned()], ..Names::of_node("a") };
        assert_ne!(one, of(&more, b"key"));
        assert_eq!(one.len(), "node-csr-".len() + 43);
    }

    #[test]
    fn name_is_the_same_digest_as_upstreams() {
        // base64url of each part, followed by a bar; SHA-512/256 from another program.
        let parts = ["a2V5", "c3lzdGVtOm5vZGU6YQ", "c3lzdGVtOm5vZGVz", "ZGlnaXRhbCBzaWduYXR1cmU", "Y2xpZW50IGF1dGg"];
        let text: String = parts.iter().flat_map(|part| [part, "|"]).collect();
        let digest = digest::digest(&digest::SHA512_256, text.as_bytes());
        let request = SigningRequest::new(Purpose::Client, &Names::of_node("a"), b"key", false, b"");
        assert_eq!(request.name, format!("node-csr-{}", url_safe(digest.as_ref())));
        assert_eq!(request.name, "node-csr-LW0LVgSwdautjTGAdsQsOa5R7qh0S_OcteJFLCr3UlQ");
    }

    #[track_caller]
    fn check(status: Value, outcome: Outcome) {
        assert_eq!(Outcome::of(&json!({"status": status})), outcome);
    }

    #[test]
    fn request_is_pending_until_approved_and_signed() {
        let approved = json!([{"type": "Approved", "reason": "AutoApproved"}]);
        check(json!({}), Outcome::Pending);
        check(Value::Null, Outcome::Pending);
        check(json!({"conditions": approved}), Outcome::Pending);
        check(json!({"certificate": "cGVt"}), Outcome::Pending);
        check(json!({"conditions": approved, "certificate": "%"}), Outcome::Pending);
        check(json!({"conditions": approved, "certificate": "cGVt"}), Outcome::Issued(b"pem".to_vec()));
        assert_eq!(Outcome::of(&json!(null)), Outcome::Pending);
    }

    #[test]
    fn denied_or_failed_request_has_the_reason() {
        let words = "certificate signing request is denied, reason: No, message: not this node";
        let denied = json!({"type": "Denied", "reason": "No", "message": "not this node"});
        check(json!({"conditions": [denied]}), Outcome::Refused(words.to_owned()));
        let words = "certificate signing request failed, reason: SignerValidationFailure, message: ";
        let failed = json!([{"type": "Approved"}, {"type": "Failed", "reason": "SignerValidationFailure"}]);
        check(json!({"conditions": failed, "certificate": "cGVt"}), Outcome::Refused(words.to_owned()));
    }
}
