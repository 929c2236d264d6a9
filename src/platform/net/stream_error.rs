//! What breaks a connection: the socket, or TLS on it. Pure.

use std::fmt;
use std::io;

use rustls::AlertDescription;

#[derive(Debug)]
pub(super) enum StreamError {
    Io { call: &'static str, cause: io::Error },
    Tls(TlsError),
}

#[derive(Debug)]
pub(crate) enum TlsError {
    /// The peer answered in plain HTTP.
    Http,
    /// The peer does not speak TLS.
    NotTls,
    /// The peer sent an alert.
    Alert(AlertDescription),
    /// The handshake took too long.
    HandshakeTimeout,
    Other(rustls::Error),
}

pub(super) fn reading(cause: io::Error) -> StreamError {
    StreamError::Io { call: "read", cause }
}

pub(super) fn writing(cause: io::Error) -> StreamError {
    StreamError::Io { call: "write", cause }
}

impl From<TlsError> for StreamError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

impl From<rustls::Error> for StreamError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(match error {
            rustls::Error::AlertReceived(alert) => TlsError::Alert(alert),
            error => TlsError::Other(error),
        })
    }
}

/// The upstream kubelet's messages, which users know from events.
impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http => f.write_str("http: server gave HTTP response to HTTPS client"),
            Self::NotTls => f.write_str("tls: first record does not look like a TLS handshake"),
            Self::Alert(alert) => write!(f, "remote error: tls: {}", alert_text(*alert)),
            Self::HandshakeTimeout => f.write_str("net/http: TLS handshake timeout"),
            Self::Other(error) => write!(f, "tls: {error}"),
        }
    }
}

impl std::error::Error for TlsError {}

/// The texts of Go's `crypto/tls` where they are not the alert's own name.
fn alert_text(alert: AlertDescription) -> String {
    let text = match alert {
        AlertDescription::BadRecordMac => "bad record MAC",
        AlertDescription::CertificateExpired => "expired certificate",
        AlertDescription::CertificateRevoked => "revoked certificate",
        AlertDescription::CertificateUnknown => "unknown certificate",
        AlertDescription::DecodeError => "error decoding message",
        AlertDescription::DecryptError => "error decrypting message",
        AlertDescription::InsufficientSecurity => "insufficient security level",
        AlertDescription::ProtocolVersion => "protocol version not supported",
        AlertDescription::UnknownCA => "unknown certificate authority",
        AlertDescription::UnrecognisedName => "unrecognized name",
        alert => return words_of(&format!("{alert:?}")),
    };
    text.to_owned()
}

/// `HandshakeFailure` as `handshake failure`.
fn words_of(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}
