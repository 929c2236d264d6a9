//! `images` in the file of `--coracle-config`: who fetches images, when, and how many bytes that may take. Pure.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use serde_json::Value;

use super::check::Problem;
use super::fields::{Fields, MIN_DAY_BUDGET_BYTES};
use super::server::KUBELET_PORT;
use crate::types::time_windows::TimeWindow;

/// Who fetches images from registries, when, and how much data that may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchSettings {
    /// Coracle fetches them itself, so that a transfer that was cut is continued.
    pub(crate) is_resumable: bool,
    /// containerd's directory of `hosts.toml` files.
    pub(crate) hosts_directory: PathBuf,
    /// Images are pulled within one of these; empty: always.
    pub(crate) windows: Vec<TimeWindow>,
    /// `None`: no limit.
    pub(crate) bytes_per_day: Option<u64>,
    /// `None`: no limit.
    pub(crate) bytes_per_second: Option<u64>,
    /// Serves images to other nodes.
    pub(crate) shares: bool,
    /// Nodes that are asked before the registry, as `host:port`.
    pub(crate) peers: Vec<String>,
    /// The policy that images have to satisfy, a `policy.json`; `None`: signatures are not verified.
    pub(crate) signature_policy: Option<PathBuf>,
    /// The directory with containerd's verifiers.
    pub(crate) runtime_verifiers: PathBuf,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            is_resumable: false,
            hosts_directory: PathBuf::from("/etc/containerd/certs.d"),
            windows: Vec::new(),
            bytes_per_day: None,
            bytes_per_second: None,
            shares: false,
            peers: Vec::new(),
            signature_policy: None,
            runtime_verifiers: PathBuf::from("/opt/containerd/image-verifier/bin"),
        }
    }
}

/// At less an image of 50 MB takes more than half a day.
const MIN_FETCH_BYTES_PER_SECOND: u64 = 1 << 10;
/// The boards of a site.
const MAX_CONFIGURED_PEERS: usize = 64;

/// The schema has been checked.
pub(super) fn read(document: &Value) -> Result<FetchSettings, Problem> {
    let mut settings = FetchSettings::default();
    let Some(fields) = document.as_object().map(Fields) else { return Ok(settings) };
    let problem = |path: &str, fault: &str| Problem { path: path.to_owned(), fault: fault.to_owned() };
    settings.is_resumable = fields.text("images.fetch") == Some("resumable");
    if let Some(directory) = fields.text("images.hostsDirectory") {
        settings.hosts_directory = PathBuf::from(directory);
    }
    settings.signature_policy = fields.text("images.signaturePolicy").map(PathBuf::from);
    if let Some(directory) = fields.text("images.runtimeVerifiers") {
        settings.runtime_verifiers = PathBuf::from(directory);
    }
    settings.windows = time_windows(&fields, "images.windows")?;
    if settings.windows.is_empty() && fields.at("images.windows").is_some_and(|windows| !windows.is_null()) {
        return Err(problem("images.windows", "expected times such as \"01:00-03:00\", found none"));
    }
    settings.bytes_per_day = fields.bytes("images.bytesPerDay");
    if settings.bytes_per_day.is_some_and(|bytes| bytes < MIN_DAY_BUDGET_BYTES) {
        return Err(problem("images.bytesPerDay", "expected at least 64Ki"));
    }
    settings.bytes_per_second = fields.bytes("images.bytesPerSecond");
    if settings.bytes_per_second.is_some_and(|bytes| bytes < MIN_FETCH_BYTES_PER_SECOND) {
        return Err(problem("images.bytesPerSecond", "expected at least 1Ki"));
    }
    settings.shares = fields.bool("images.share").unwrap_or_default();
    settings.peers = peers(&fields)?;
    let only_resumable = [
        ("images.bytesPerSecond", settings.bytes_per_second.is_some()),
        ("images.share", settings.shares),
        ("images.peers", !settings.peers.is_empty()),
    ];
    match only_resumable.iter().find(|(_, is_set)| *is_set && !settings.is_resumable) {
        Some((path, _)) => Err(problem(path, "only with images.fetch: resumable")),
        None => Ok(settings),
    }
}

fn peers(fields: &Fields<'_>) -> Result<Vec<String>, Problem> {
    let texts = fields.at("images.peers").and_then(Value::as_array).into_iter().flatten();
    let parse = |(index, text): (usize, &Value)| {
        text.as_str().filter(|_| index < MAX_CONFIGURED_PEERS).and_then(peer).ok_or_else(|| Problem {
            path: format!("images.peers[{index}]"),
            fault: format!("expected host or host:port, of at most {MAX_CONFIGURED_PEERS} peers, found {text}"),
        })
    };
    texts.enumerate().map(parse).collect()
}

/// Host and port; the default port is that of the kubelet API.
fn peer(text: &str) -> Option<String> {
    // An IPv6 address is in brackets.
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, port.parse::<u16>().ok().filter(|port| *port > 0)?),
        _ => (text, KUBELET_PORT),
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')),
    };
    is_host.then(|| format!("{host}:{port}"))
}

/// A list of times such as `01:00-03:00`.
pub(super) fn time_windows(fields: &Fields<'_>, path: &str) -> Result<Vec<TimeWindow>, Problem> {
    let texts = fields.at(path).and_then(Value::as_array).into_iter().flatten();
    let parse = |(index, text): (usize, &Value)| {
        text.as_str().and_then(TimeWindow::parse).ok_or_else(|| Problem {
            path: format!("{path}[{index}]"),
            fault: format!("expected two times of the day such as \"01:00-03:00\", found {text}"),
        })
    };
    texts.enumerate().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_read() {
        let images =
            json!({"fetch": "resumable", "windows": ["01:00-03:00"], "bytesPerDay": "50M", "bytesPerSecond": 20_000});
        let expected = FetchSettings {
            is_resumable: true,
            windows: vec![TimeWindow { from: 60, to: 180 }],
            bytes_per_day: Some(50_000_000),
            bytes_per_second: Some(20_000),
            ..FetchSettings::default()
        };
        assert_eq!(read(&json!({"images": images})), Ok(expected));
    }

    #[test]
    fn signature_policy_is_a_file_of_any_fetcher() {
        let policy = |images| read(&json!({"images": images})).unwrap().signature_policy;
        assert_eq!(policy(json!({"signaturePolicy": "/p.json"})), Some(PathBuf::from("/p.json")));
        assert_eq!(policy(json!({})), None);
    }

    #[test]
    fn peers_are_hosts_with_a_port() {
        for (text, expected) in [
            ("a", Some("a:10250")),
            ("a.lan:1", Some("a.lan:1")),
            ("10.0.0.1", Some("10.0.0.1:10250")),
            ("[fd00::1]", Some("[fd00::1]:10250")),
            ("[::1]:7", Some("[::1]:7")),
            ("::1", None),
            ("[a]", None),
            ("a:x", None),
            ("a:0", None),
            ("a:70000", None),
            ("", None),
            (":1", None),
            ("a/b", None),
            ("user@a", None),
            ("https://a", None),
        ] {
            assert_eq!(peer(text).as_deref(), expected, "{text}");
        }
        let images = json!({"fetch": "resumable", "share": true, "peers": ["a", "b:1"]});
        let settings = read(&json!({"images": images})).unwrap();
        assert_eq!((settings.shares, settings.peers), (true, vec!["a:10250".to_owned(), "b:1".to_owned()]));
        let many = json!({"images": {"fetch": "resumable", "peers": vec!["a"; MAX_CONFIGURED_PEERS + 1]}});
        assert!(read(&many).unwrap_err().to_string().starts_with("images.peers[64]: "));
    }

    #[test]
    fn errors_name_the_field() {
        for (images, line) in [
            (
                json!({"windows": ["1:00-2:00"]}),
                "images.windows[0]: expected two times of the day such as \"01:00-03:00\", found \"1:00-2:00\"",
            ),
            (json!({"windows": []}), "images.windows: expected times such as \"01:00-03:00\", found none"),
            (json!({"bytesPerDay": "1k"}), "images.bytesPerDay: expected at least 64Ki"),
            (json!({"fetch": "resumable", "bytesPerSecond": 1}), "images.bytesPerSecond: expected at least 1Ki"),
            (json!({"bytesPerSecond": "1M"}), "images.bytesPerSecond: only with images.fetch: resumable"),
            (json!({"share": true}), "images.share: only with images.fetch: resumable"),
            (json!({"peers": ["a"]}), "images.peers: only with images.fetch: resumable"),
            (
                json!({"fetch": "resumable", "peers": ["a", "b c"]}),
                "images.peers[1]: expected host or host:port, of at most 64 peers, found \"b c\"",
            ),
        ] {
            let error = read(&json!({"images": images})).unwrap_err();
            assert_eq!(error.to_string(), line);
        }
    }
}
