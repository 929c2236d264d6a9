//! The ConfigMap `cluster-info`: a kubeconfig that everyone may read, signed with each bootstrap token. Pure.
//!
//! The signature is a JWS with detached content (RFC 7515, appendix F) and HMAC-SHA-256: only a holder of the token
//! can have made it.

use std::fmt;

use ring::hmac;
use serde_json::Value;

use super::BootstrapToken;
use crate::kubelet::certificates::signing_request::url_safe;
use crate::types::api::Bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClusterInfoError {
    NoKubeconfig,
    /// No signature with this token.
    NoSuchToken {
        id: String,
    },
    /// The signature does not match.
    BadSignature {
        id: String,
    },
}

impl fmt::Display for ClusterInfoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKubeconfig => {
                f.write_str("the cluster is not set up for joining: its cluster-info has no kubeconfig")
            }
            Self::NoSuchToken { id } => write!(
                f,
                "the cluster does not know token {id:?}, or it has expired (kubeadm token create, on the control plane, \
                 makes a new one)"
            ),
            Self::BadSignature { id } => {
                write!(f, "the signature for token {id:?} does not match: wrong token secret, or another cluster")
            }
        }
    }
}

/// The kubeconfig in `cluster_info`, if it is signed with the token.
pub(crate) fn verified_kubeconfig(cluster_info: &Value, token: &BootstrapToken) -> Result<String, ClusterInfoError> {
    let data = |key: &str| {
        let text = cluster_info.get("data").and_then(|data| data.get(key)?.as_str());
        text.filter(|text| !text.is_empty())
    };
    let id = || token.id().to_owned();
    let kubeconfig = data("kubeconfig").ok_or(ClusterInfoError::NoKubeconfig)?;
    let signature = data(&format!("jws-kubeconfig-{}", token.id()));
    let signature = signature.ok_or_else(|| ClusterInfoError::NoSuchToken { id: id() })?;
    if is_signed(kubeconfig, signature, token) {
        Ok(kubeconfig.to_owned())
    } else {
        Err(ClusterInfoError::BadSignature { id: id() })
    }
}

fn is_signed(content: &str, signature: &str, token: &BootstrapToken) -> bool {
    let mut parts = signature.split('.');
    let (Some(header), Some(""), Some(mac), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let fields: Option<Value> = decode(header).and_then(|header| serde_json::from_slice(&header).ok());
    let is_ours = fields.is_some_and(|fields| {
        fields.get("alg").is_some_and(|alg| alg == "HS256") && fields.get("kid").is_some_and(|kid| kid == token.id())
    });
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret().as_bytes());
    let signed = format!("{header}.{}", url_safe(content.as_bytes()));
    is_ours && decode(mac).is_some_and(|mac| hmac::verify(&key, signed.as_bytes(), &mac).is_ok())
}

fn decode(text: &str) -> Option<Vec<u8>> {
    Bytes::from_base64url(text).map(|bytes| bytes.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Signed by the bootstrapsigner of kube-controller-manager 1.36.
    const KUBECONFIG: &str = include_str!("../../../../tests/data/certificates/cluster-info.conf");
    const SIGNATURE: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..z1H3zLuDOY5zoWzIJf403P-IFhgv90lJMWwfJqctJqA";

    fn token(text: &str) -> BootstrapToken {
        text.parse().unwrap()
    }

    fn info(kubeconfig: &str, signature: &str) -> Value {
        json!({"data": {"kubeconfig": kubeconfig, "jws-kubeconfig-abcdef": signature}})
    }

    #[test]
    fn kubeconfig_signed_with_the_token_is_accepted() {
        let read = verified_kubeconfig(&info(KUBECONFIG, SIGNATURE), &token("abcdef.0123456789abcdef"));
        assert_eq!(read, Ok(KUBECONFIG.to_owned()));
    }

    #[test]
    fn missing_token_is_named_in_the_error() {
        let error = ClusterInfoError::NoSuchToken { id: "aaaaaa".to_owned() };
        let read = verified_kubeconfig(&info(KUBECONFIG, SIGNATURE), &token("aaaaaa.0123456789abcdef"));
        assert_eq!(read, Err(error));
        let empty = verified_kubeconfig(&json!({}), &token("aaaaaa.0123456789abcdef"));
        assert_eq!(empty, Err(ClusterInfoError::NoKubeconfig));
    }

    #[test]
    fn other_signatures_are_refused() {
        let bad = Err(ClusterInfoError::BadSignature { id: "abcdef".to_owned() });
        let right = token("abcdef.0123456789abcdef");
        let (header, mac) = SIGNATURE.split_once("..").unwrap();
        let plain = url_safe(br#"{"alg":"none","kid":"abcdef"}"#);
        let other = url_safe(br#"{"alg":"HS256","kid":"aaaaaa"}"#);
        for signature in [
            "x",
            "...",
            &format!("{plain}.."),
            &format!("{plain}..{mac}"),
            &format!("{other}..{mac}"),
            &format!("{header}.."),
            &format!("{header}..{}", mac.to_lowercase()),
            &format!("{header}.x.{mac}"),
            &format!("{header}..{mac}."),
            &format!("{header}..{mac}="),
        ] {
            assert_eq!(verified_kubeconfig(&info(KUBECONFIG, signature), &right), bad, "{signature}");
        }
        let changed = KUBECONFIG.replace("server", "Server");
        assert_eq!(verified_kubeconfig(&info(&changed, SIGNATURE), &right), bad);
        assert_eq!(verified_kubeconfig(&info(KUBECONFIG, SIGNATURE), &token("abcdef.0123456789abcdee")), bad);
    }
}
