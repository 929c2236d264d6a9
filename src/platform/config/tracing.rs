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

/// `None` without a sampling rate.
pub(super) fn read(fields: &Fields<'_>) -> Result<Option<TracingSettings>, Problem> {
    let endpoint_text =
        fields.text(TRACING_ENDPOINT_FIELD).filter(|endpoint| !endpoint.is_empty()).unwrap_or(DEFAULT_COLLECTOR);
    let wanted =
        || conflict(TRACING_ENDPOINT_FIELD, format!("expected HOST:PORT or unix:///PATH, found {endpoint_text:?}"));
    let endpoint = parse(endpoint_text).ok_or_else(wanted)?;
    let per_million = fields.int("tracing.samplingRatePerMillion").and_then(|rate| u32::try_from(rate).ok());
    Ok(per_million.filter(|rate| *rate > 0).map(|per_million| TracingSettings { endpoint, per_million }))
}

fn parse(endpoint: &str) -> Option<TraceEndpoint> {
    if let Some(path) = endpoint.strip_prefix("unix:") {
        let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
        return path.is_absolute().then_some(TraceEndpoint::Unix(path));
    }
    let address = endpoint.strip_prefix("dns://").map_or(endpoint, |rest| rest.trim_start_matches('/'));
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_name = !host.is_empty() && !host.contains(['/', ' ']);
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
        ] {
            let found = settings(&json!({"endpoint": endpoint, "samplingRatePerMillion": 1}));
            assert_eq!(found, Ok(Some((shown.to_owned(), 1))));
        }
        for bad in ["collector", "https://collector:1", "unix:run", ":4317", "a:b"] {
            let why = settings(&json!({"endpoint": bad})).unwrap_err();
            assert_eq!(why, format!("tracing.endpoint: expected HOST:PORT or unix:///PATH, found {bad:?}"));
        }
    }
}
