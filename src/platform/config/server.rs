//! Settings of the kubelet's server: addresses, TLS, authentication and authorization. Pure.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;

use super::cipher_suite::CipherSuite;
use super::fields::Fields;

/// The default port of a kubelet's API.
pub(super) const KUBELET_PORT: u16 = 10250;

/// The settings of the kubelet API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerSettings {
    pub(crate) enabled: bool,
    pub(crate) address: SocketAddr,
    pub(crate) tls: TlsSettings,
    /// Whether a request without credentials has the user `system:anonymous`. Otherwise it is refused.
    pub(crate) anonymous: bool,
    /// How long to cache the result of a TokenReview; `None` disables token authentication.
    pub(crate) token_ttl: Option<Duration>,
    pub(crate) authorization: Authorization,
    /// The address of the read-only port, with plain HTTP; `None` if it is off.
    pub(crate) read_only: Option<SocketAddr>,
    /// Whether to serve the files below /var/log.
    pub(crate) system_logs: bool,
    /// Whether to serve the logs of services by their names (`enableSystemLogQuery`).
    pub(crate) system_log_queries: bool,
    /// `enableProfilingHandler`.
    pub(crate) profiling: bool,
    /// `enableDebugFlagsHandler`.
    pub(crate) debug_flags: bool,
    /// Whether to serve container logs, exec, attach and port forwarding.
    pub(crate) debugging: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    /// Requires TLS 1.3; otherwise TLS 1.2 is accepted too.
    pub(crate) only_1_3: bool,
    /// TLS 1.2 cipher suites by their IANA names; empty: all secure ones.
    pub(crate) cipher_suites: Vec<String>,
    /// Curves by their IANA numbers; empty: all secure ones.
    pub(crate) curves: Vec<u16>,
}

/// The authorization of authenticated users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authorization {
    /// Everything is allowed.
    AlwaysAllow,
    /// By SubjectAccessReview, whose results are cached this long.
    Webhook { allowed_ttl: Duration, refused_ttl: Duration },
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), KUBELET_PORT),
            tls: TlsSettings::default(),
            anonymous: false,
            token_ttl: Some(Duration::from_secs(120)),
            authorization: Authorization::Webhook {
                allowed_ttl: Duration::from_secs(300),
                refused_ttl: Duration::from_secs(30),
            },
            read_only: None,
            system_logs: true,
            system_log_queries: false,
            profiling: true,
            debug_flags: true,
            debugging: true,
        }
    }
}

pub(super) fn read(fields: &Fields<'_>) -> ServerSettings {
    let mut settings = ServerSettings::default();
    fields.replace("enableServer", Fields::bool, &mut settings.enabled);
    // As in the kubelet, port 0 means the default.
    if let Some(port) = fields.int("port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0) {
        settings.address.set_port(port);
    }
    if let Some(ip) = fields.text("address").and_then(|ip| ip.parse().ok()) {
        settings.address.set_ip(ip);
    }
    let read_only = fields.int("readOnlyPort").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    settings.read_only = read_only.map(|port| SocketAddr::new(settings.address.ip(), port));
    fields.replace("enableSystemLogHandler", Fields::bool, &mut settings.system_logs);
    fields.replace("enableSystemLogQuery", Fields::bool, &mut settings.system_log_queries);
    fields.replace("enableProfilingHandler", Fields::bool, &mut settings.profiling);
    fields.replace("enableDebugFlagsHandler", Fields::bool, &mut settings.debug_flags);
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

/// Upstream supports suites that are no longer secure.
pub(super) fn warning(fields: &Fields<'_>) -> Option<String> {
    let names = || list(fields, "tlsCipherSuites").filter_map(Value::as_str);
    let is = |suite: CipherSuite| move |name: &&str| CipherSuite::of(name) == Some(suite);
    let unsupported: Vec<&str> = names().filter(is(CipherSuite::Unsupported)).collect();
    let needs_1_3 = !names().any(|name| is(CipherSuite::Tls12)(&name));
    let rest = if needs_1_3 { "; none is left for TLS 1.2, so clients need TLS 1.3" } else { "" };
    let is_left_out = !unsupported.is_empty();
    is_left_out.then(|| format!("tlsCipherSuites: not supported and ignored: {}{rest}", unsupported.join(", ")))
}

fn list<'a>(fields: &Fields<'a>, path: &str) -> impl Iterator<Item = &'a Value> {
    fields.at(path).and_then(Value::as_array).into_iter().flatten()
}
