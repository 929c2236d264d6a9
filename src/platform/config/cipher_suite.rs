//! The TLS cipher suites that Go knows. Pure.

/// What a name of `tlsCipherSuites` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CipherSuite {
    /// Of TLS 1.3, whose suites cannot be chosen.
    Tls13,
    Tls12,
    /// Only Go has it.
    Unsupported,
}

impl CipherSuite {
    /// The suite of a name in `tlsCipherPossibleValues` (k8s.io/component-base/cli/flag/ciphersuites_flag.go): those of
    /// `CipherSuites` and `InsecureCipherSuites` of crypto/tls, and two older names.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let suite = name.strip_prefix("TLS_")?;
        let Some((key_exchange, cipher)) = suite.split_once("_WITH_") else {
            let is_known = matches!(suite, "AES_128_GCM_SHA256" | "AES_256_GCM_SHA384" | "CHACHA20_POLY1305_SHA256");
            return is_known.then_some(Self::Tls13);
        };
        match (key_exchange, cipher) {
            (
                "ECDHE_ECDSA" | "ECDHE_RSA",
                "AES_128_GCM_SHA256" | "AES_256_GCM_SHA384" | "CHACHA20_POLY1305" | "CHACHA20_POLY1305_SHA256",
            ) => Some(Self::Tls12),
            (
                "ECDHE_ECDSA" | "ECDHE_RSA" | "RSA",
                "AES_128_CBC_SHA" | "AES_128_CBC_SHA256" | "AES_256_CBC_SHA" | "RC4_128_SHA",
            )
            | ("ECDHE_RSA" | "RSA", "3DES_EDE_CBC_SHA")
            | ("RSA", "AES_128_GCM_SHA256" | "AES_256_GCM_SHA384") => Some(Self::Unsupported),
            _ => None,
        }
    }
}
