//! `tracing`: where spans are sent, and how many. Pure.

use std::fmt;
use std::path::PathBuf;

use super::check::{Problem, conflict};
use super::fields::Fields;

/// Tracing is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TracingSettings {
    pub(crate) endpoint: TraceEndpoint,
    /// Of a million traces, how many are sampled; never 0.
    pub(crate) per_million: u32,
}

/// A collector that speaks OTLP over gRPC, without TLS, as upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TraceEndpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

const TRACING_ENDPOINT_FIELD: &str = "tracing.endpoint";
/// Upstream's default.
const DEFAULT_COLLECTOR: &str = "localhost:4317";
const DEFAULT_GRPC_PORT: &str = "443";
const EXPECTED_ENDPOINT: &str = "expected HOST:PORT or unix:///PATH";

/// `None` without a sampling rate, and for an endpoint that only upstream's dialer refuses or that is not supported.
pub(super) fn read(fields: &Fields<'_>) -> Result<Option<TracingSettings>, Problem> {
    let endpoint = endpoint(fields);
    if !passes_validation(endpoint) {
        return Err(conflict(TRACING_ENDPOINT_FIELD, format!("{EXPECTED_ENDPOINT}, found {endpoint:?}")));
    }
    Ok(per_million(fields)
        .zip(parse(endpoint))
        .map(|(per_million, endpoint)| TracingSettings { endpoint, per_million }))
}

/// As upstream, an exporter that cannot send does not end the start.
pub(super) fn warning(fields: &Fields<'_>) -> Option<String> {
    let endpoint = endpoint(fields);
    let is_unusable = per_million(fields).is_some() && passes_validation(endpoint) && parse(endpoint).is_none();
    is_unusable
        .then(|| format!("{TRACING_ENDPOINT_FIELD}: {EXPECTED_ENDPOINT}, found {endpoint:?}, no traces are sent"))
}

fn endpoint<'a>(fields: &Fields<'a>) -> &'a str {
    fields.text(TRACING_ENDPOINT_FIELD).unwrap_or(DEFAULT_COLLECTOR)
}

fn per_million(fields: &Fields<'_>) -> Option<u32> {
    fields.count("tracing.samplingRatePerMillion").filter(|rate| *rate > 0)
}

/// Whether upstream's validation (`validateEndpoint` of component-base) accepts it: a URL of these schemes, or a host.
fn passes_validation(endpoint: &str) -> bool {
    let rest = match endpoint.split_once(':') {
        Some(("dns" | "unix" | "unix-abstract", rest)) if endpoint.contains("//") => {
            rest.strip_prefix("//").unwrap_or_default()
        }
        _ if endpoint.contains("//") => return false,
        _ => endpoint,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let port = match authority.rsplit_once(']') {
        Some((_, "")) => Some(""),
        Some((_, port)) => port.strip_prefix(':'),
        None => Some(authority.rsplit_once(':').map_or("", |(_, port)| port)),
    };
    !authority.contains(' ') && port.is_some_and(|port| port.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Without a host or a port, as gRPC.
fn parse(endpoint: &str) -> Option<TraceEndpoint> {
    if let Some(path) = endpoint.strip_prefix("unix:") {
        let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
        return path.is_absolute().then_some(TraceEndpoint::Unix(path));
    }
    let address = endpoint.strip_prefix("dns://").map_or(endpoint, |rest| rest.trim_start_matches('/'));
    let with_port = address.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let (host, port) = with_port.unwrap_or((address, DEFAULT_GRPC_PORT));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_name = !address.is_empty() && !host.contains(['/', ' ']);
    let host = if host.is_empty() { "localhost" } else { host };
    is_name.then_some(TraceEndpoint::Tcp { host: host.to_owned(), port: port.parse().ok()? })
}

impl fmt::Display for TraceEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(tracing: &Value) -> Result<Option<(String, u32)>, String> {
        let fields = json!({ "tracing": tracing });
        let read = read(&Fields(fields.as_object().unwrap())).map_err(|problem| problem.to_string())?;
        Ok(read.map(|settings| (settings.endpoint.to_string(), settings.per_million)))
    }

    #[test]
    fn tracing_is_off_without_a_sampling_rate() {
        for off in [json!({}), json!({"endpoint": "a:1"}), json!({"samplingRatePerMillion": 0}), Value::Null] {
            assert_eq!(settings(&off), Ok(None), "{off}");
        }
        let rate = json!({"samplingRatePerMillion": 100});
        assert_eq!(settings(&rate), Ok(Some(("localhost:4317".to_owned(), 100))));
    }

    #[test]
    fn endpoint_is_an_address_or_a_socket() {
        for (endpoint, shown) in [
            ("collector:4317", "collector:4317"),
            ("[::1]:4317", "[::1]:4317"),
            ("dns:///collector:1", "collector:1"),
            ("unix:///run/otel.sock", "unix:///run/otel.sock"),
            ("unix:/run/otel.sock", "unix:///run/otel.sock"),
            ("collector", "collector:443"),
            ("[::1]", "[::1]:443"),
            (":4317", "localhost:4317"),
        ] {
            let found = settings(&json!({"endpoint": endpoint, "samplingRatePerMillion": 1}));
            assert_eq!(found, Ok(Some((shown.to_owned(), 1))));
        }
        for bad in ["https://collector:1", "//collector:1", "unix:run", "a:b", "a b:1", "[::1]x:1", "dns://a:b/c"] {
            let why = settings(&json!({"endpoint": bad})).unwrap_err();
            assert_eq!(why, format!("tracing.endpoint: expected HOST:PORT or unix:///PATH, found {bad:?}"));
        }
    }

    #[test]
    fn endpoint_that_upstream_accepts_does_not_end_the_start() {
        let warnings = |tracing: &Value| {
            let fields = json!({ "tracing": tracing });
            warning(&Fields(fields.as_object().unwrap()))
        };
        for endpoint in [
            "unix-abstract:///otel",
            "unix://run/otel.sock",
            "unix://",
            "unix:1",
            "dns://192.0.2.53/collector:4317",
            "dns:///",
            "collector:",
            "collector:99999",
            "collector:4317/v1",
        ] {
            let tracing = json!({"endpoint": endpoint, "samplingRatePerMillion": 1});
            assert_eq!(settings(&tracing), Ok(None), "{endpoint}");
            let wanted = "tracing.endpoint: expected HOST:PORT or unix:///PATH, found";
            assert_eq!(warnings(&tracing), Some(format!("{wanted} {endpoint:?}, no traces are sent")));
            assert_eq!(warnings(&json!({"endpoint": endpoint})), None, "without a sampling rate");
        }
        for endpoint in ["collector:4317", "a:b"] {
            assert_eq!(warnings(&json!({"endpoint": endpoint, "samplingRatePerMillion": 1})), None, "{endpoint}");
        }
    }
}
