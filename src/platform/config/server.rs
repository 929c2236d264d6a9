//! The node's own server: where it listens, how TLS is spoken, and who may ask what. Pure.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;

use super::fields::Fields;

/// The server of the kubelet's API: `enableServer`, `address`, `port`, `readOnlyPort`, `tlsMinVersion`, `tlsCipherSuites`,
/// `tlsCurvePreferences`, `authentication`, `authorization`, `enableSystemLogHandler` and `enableDebuggingHandlers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerSettings {
    pub(crate) enabled: bool,
    pub(crate) address: SocketAddr,
    pub(crate) tls: TlsSettings,
    /// Who shows nothing is `system:anonymous`, and not refused outright.
    pub(crate) anonymous: bool,
    /// The cluster is asked whose a token is, and what it says is good for so long. `None`: nobody's.
    pub(crate) token_ttl: Option<Duration>,
    pub(crate) authorization: Authorization,
    /// Plain HTTP for whoever reaches it, with figures and pods alone; `None`: none.
    pub(crate) read_only: Option<SocketAddr>,
    /// The files below /var/log are shown.
    pub(crate) system_logs: bool,
    /// Whether containers may be looked into: their logs, commands in them, their ports.
    pub(crate) debugging: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    /// Nothing older than TLS 1.3; else nothing older than 1.2.
    pub(crate) only_1_3: bool,
    /// Of TLS 1.2, by their names of the registry; empty: all that are good.
    pub(crate) cipher_suites: Vec<String>,
    /// By their numbers of the registry; empty: all that are good.
    pub(crate) curves: Vec<u16>,
}

/// Who may do what, of those who are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authorization {
    /// Everybody everything.
    AlwaysAllow,
    /// The cluster is asked, and what it says is good for so long.
    Webhook { allowed_ttl: Duration, refused_ttl: Duration },
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 10250),
            tls: TlsSettings::default(),
            anonymous: false,
            token_ttl: Some(Duration::from_secs(120)),
            authorization: Authorization::Webhook {
                allowed_ttl: Duration::from_secs(300),
                refused_ttl: Duration::from_secs(30),
            },
            read_only: None,
            system_logs: true,
            debugging: true,
        }
    }
}

pub(super) fn read(fields: &Fields<'_>) -> ServerSettings {
    let mut settings = ServerSettings::default();
    fields.replace("enableServer", Fields::bool, &mut settings.enabled);
    // As in the kubelet, no port means the usual one.
    if let Some(port) = fields.int("port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0) {
        settings.address.set_port(port);
    }
    if let Some(ip) = fields.text("address").and_then(|ip| ip.parse().ok()) {
        settings.address.set_ip(ip);
    }
    let read_only = fields.int("readOnlyPort").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    settings.read_only = read_only.map(|port| SocketAddr::new(settings.address.ip(), port));
    fields.replace("enableSystemLogHandler", Fields::bool, &mut settings.system_logs);
    settings.tls = TlsSettings {
        only_1_3: fields.text("tlsMinVersion") == Some("VersionTLS13"),
        cipher_suites: list(fields, "tlsCipherSuites").filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        curves: list(fields, "tlsCurvePreferences").filter_map(|number| u16::try_from(number.as_i64()?).ok()).collect(),
    };
    fields.replace("enableDebuggingHandlers", Fields::bool, &mut settings.debugging);
    fields.replace("authentication.anonymous.enabled", Fields::bool, &mut settings.anonymous);
    if fields.bool("authentication.webhook.enabled") == Some(false) {
        settings.token_ttl = None;
    } else if let Some(ttl) = fields.duration("authentication.webhook.cacheTTL") {
        settings.token_ttl = Some(ttl);
    }
    match (&mut settings.authorization, fields.text("authorization.mode")) {
        (mode, Some("AlwaysAllow")) => *mode = Authorization::AlwaysAllow,
        (Authorization::Webhook { allowed_ttl, refused_ttl }, _) => {
            fields.replace("authorization.webhook.cacheAuthorizedTTL", Fields::duration, allowed_ttl);
            fields.replace("authorization.webhook.cacheUnauthorizedTTL", Fields::duration, refused_ttl);
        }
        (Authorization::AlwaysAllow, _) => {}
    }
    settings
}

fn list<'a>(fields: &Fields<'a>, path: &str) -> impl Iterator<Item = &'a Value> {
    fields.at(path).and_then(Value::as_array).into_iter().flatten()
}
