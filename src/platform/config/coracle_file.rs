//! The file of `--coracle-config`: settings of Coracle that the kubelet does not have.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::Error;
use super::api_endpoint::{self, ApiEndpointSettings};
use super::check::{Problem, check_fields};
use super::device_rules::{DeviceRule, device_rules};
use super::fields::{Fields, MIN_DAY_BUDGET_BYTES};
use super::file::{one, read_bytes};
use super::image_fetch::{self, FetchSettings, time_windows};
use super::name_template::NameTemplate;
use super::node_name::is_subdomain;
use super::schema::CORACLE_FILE;
use crate::platform::host::tpm::TPM_DEVICE;
use crate::types::api::yaml;
use crate::types::time_windows::TimeWindow;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoracleFile {
    /// `nameTemplate`
    pub(crate) name_template: Option<NameTemplate>,
    /// `reenrolment`
    pub(crate) reenrolment: Option<ReenrolmentSettings>,
    pub(crate) sync: SyncSettings,
    pub(crate) images: FetchSettings,
    pub(crate) devices: Vec<DeviceRule>,
    pub(crate) update_lock_limit: Option<Duration>,
    pub(crate) api_endpoint: Option<ApiEndpointSettings>,
}

/// How the node gets a certificate when its own has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReenrolmentSettings {
    /// With the token for the requests.
    pub(crate) secret: SecretName,
    /// The device of the TPM for the key; it may be missing. `None`: the key is in a file.
    pub(crate) tpm: Option<PathBuf>,
}

/// The name of a Secret in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// When to communicate with the API server, and how much data that may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncSettings {
    pub(crate) mode: SyncMode,
    /// `None`: as in the kubelet's configuration.
    pub(crate) lease_duration: Option<Duration>,
    /// `None`: no limit.
    pub(crate) bytes_per_day: Option<u64>,
    /// Images count against `bytes_per_day`.
    pub(crate) includes_images: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SyncMode {
    /// Watch all the time.
    #[default]
    Watch,
    Poll {
        every: Duration,
    },
    Windows(SyncWindows),
    /// Only on a command on the node.
    Manual,
}

impl SyncMode {
    /// For the cluster; empty for a node that watches.
    pub(crate) fn summary(&self) -> String {
        match self {
            Self::Watch => String::new(),
            Self::Poll { every } => format!("poll {}s", every.as_secs()),
            Self::Windows(_) => "windows".to_owned(),
            Self::Manual => "manual".to_owned(),
        }
    }
}

/// Synchronizes while all of these hold; at least one is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncWindows {
    /// Within one of these, if there are any.
    pub(crate) times: Vec<TimeWindow>,
    /// While this network interface is up.
    pub(crate) interface: Option<String>,
}

/// Optional, unless given by a flag.
pub(super) const PLACE: &str = "/etc/coracle/coracle.yaml";
/// `leaseDurationSeconds` is an int32.
const MAX_LEASE_SECONDS: u64 = i32::MAX as u64;

/// Reads the file. Without `given` it is the default file, which may be missing.
pub(super) fn read(config_path: Option<&Path>) -> Result<CoracleFile, Error> {
    let path = config_path.unwrap_or(Path::new(PLACE));
    let text = match read_bytes(path) {
        Err(error) if config_path.is_none() && error.kind() == io::ErrorKind::NotFound => {
            return Ok(CoracleFile::default());
        }
        text => text.map_err(|source| Error::Read { path: path.to_owned(), source })?,
    };
    let file_path = PathBuf::from(path);
    let unparsed = |source| Error::Parse { path: path.to_owned(), source };
    let documents = yaml::parse(&text).map_err(unparsed)?;
    if documents.is_empty() {
        // Only comments.
        return Ok(CoracleFile::default());
    }
    let refused = |problem| Error::Field { path: file_path.clone(), problem };
    let document = one(documents, "configuration of Coracle").map_err(refused)?.strict().map_err(unparsed)?;
    let sync = settings(&document).map_err(refused)?;
    let images = image_fetch::read(&document).map_err(refused)?;
    let devices = device_rules(&document).map_err(refused)?;
    let name_template = name_template(&document).map_err(refused)?;
    let update_lock_limit = document.as_object().and_then(|document| Fields(document).duration("updates.lockLimit"));
    let reenrolment = reenrolment(&document).map_err(refused)?;
    let api_endpoint = api_endpoint::read(&document, sync.mode == SyncMode::Watch).map_err(refused)?;
    Ok(CoracleFile { name_template, reenrolment, sync, images, devices, update_lock_limit, api_endpoint })
}

fn reenrolment(document: &Value) -> Result<Option<ReenrolmentSettings>, Problem> {
    let field = |pointer| document.pointer(pointer).and_then(Value::as_str);
    let Some(text) = field("/reenrolment/secret") else { return Ok(None) };
    let tpm = field("/reenrolment/tpm").unwrap_or(TPM_DEVICE);
    let tpm = Some(tpm).filter(|path| !path.is_empty()).map(PathBuf::from);
    match text.split_once('/') {
        Some((namespace, name)) if is_subdomain(namespace) && is_subdomain(name) => {
            let secret = SecretName { namespace: namespace.to_owned(), name: name.to_owned() };
            Ok(Some(ReenrolmentSettings { secret, tpm }))
        }
        _ => Err(Problem {
            path: "reenrolment.secret".to_owned(),
            fault: format!("expected NAMESPACE/NAME, found {text:?}"),
        }),
    }
}

fn name_template(document: &Value) -> Result<Option<NameTemplate>, Problem> {
    let text = document.get("nameTemplate").and_then(Value::as_str);
    let template = text.map(str::parse).transpose();
    template.map_err(|fault| Problem { path: "nameTemplate".to_owned(), fault })
}

fn settings(document: &Value) -> Result<SyncSettings, Problem> {
    check_fields(document, CORACLE_FILE)?;
    let Some(fields) = document.as_object().map(Fields) else { return Ok(SyncSettings::default()) };
    let problem = |path: &str, fault: &str| Problem { path: path.to_owned(), fault: fault.to_owned() };
    let mode = fields.text("sync.mode").unwrap_or("watch");
    for (path, its) in [("sync.every", "poll"), ("sync.windows", "windows"), ("sync.whileInterface", "windows")] {
        if mode != its && fields.at(path).is_some_and(|value| !value.is_null()) {
            return Err(problem(path, &format!("only for sync.mode: {its}, which is {mode}")));
        }
    }
    let lease_duration = fields.duration("sync.lease.duration");
    if lease_duration.is_some_and(|duration| duration.subsec_nanos() > 0 || duration.as_secs() > MAX_LEASE_SECONDS) {
        return Err(problem("sync.lease.duration", "expected whole seconds such as 40s or 2h"));
    }
    let mode = match mode {
        "poll" => {
            let every = fields.duration("sync.every").ok_or_else(|| problem("sync.every", "required: as 15m"))?;
            // Each poll renews the lease; one failed poll must not make the node NotReady.
            if lease_duration.is_some_and(|duration| duration < every.saturating_mul(2)) {
                return Err(problem("sync.lease.duration", "expected at least twice sync.every"));
            }
            SyncMode::Poll { every }
        }
        "windows" => SyncMode::Windows(windows(&fields)?),
        "manual" => SyncMode::Manual,
        _ => SyncMode::Watch,
    };
    let bytes_per_day = fields.bytes("sync.bytesPerDay");
    if bytes_per_day.is_some_and(|bytes| bytes < MIN_DAY_BUDGET_BYTES) {
        return Err(problem("sync.bytesPerDay", "expected at least 64Ki: a connection alone takes some kilobytes"));
    }
    let includes_images = fields.bool("sync.includesImages").unwrap_or_default();
    if includes_images && bytes_per_day.is_none() {
        return Err(problem("sync.includesImages", "only with sync.bytesPerDay"));
    }
    Ok(SyncSettings { mode, lease_duration, bytes_per_day, includes_images })
}

fn windows(fields: &Fields<'_>) -> Result<SyncWindows, Problem> {
    let times = time_windows(fields, "sync.windows")?;
    let interface = fields.text("sync.whileInterface").map(str::to_owned);
    if interface.as_ref().is_some_and(|name| name.len() > 15 || name.contains(['/', ' ']) || name.starts_with('.')) {
        let fault = "expected the name of a network interface such as wwan0".to_owned();
        return Err(Problem { path: "sync.whileInterface".to_owned(), fault });
    }
    if times.is_empty() && interface.is_none() {
        let fault = "required: times such as \"01:00-03:00\", or sync.whileInterface".to_owned();
        return Err(Problem { path: "sync.windows".to_owned(), fault });
    }
    Ok(SyncWindows { times, interface })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(document: Value, expected: Result<SyncSettings, &str>) {
        let read = settings(&document).map_err(|problem| problem.to_string());
        assert_eq!(read, expected.map_err(str::to_owned), "{document}");
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn each_sync_mode_has_its_settings() {
        let of = |mode| Ok(SyncSettings { mode, ..SyncSettings::default() });
        check(json!({}), of(SyncMode::Watch));
        check(json!({"sync": null}), of(SyncMode::Watch));
        check(json!({"sync": {"mode": "manual"}}), of(SyncMode::Manual));
        check(json!({"sync": {"mode": "poll", "every": "1h"}}), of(SyncMode::Poll { every: HOUR }));
        let times = vec![TimeWindow { from: 60, to: 180 }, TimeWindow { from: 1380, to: 0 }];
        let sync = json!({"mode": "windows", "windows": ["01:00-03:00", "23:00-24:00"], "whileInterface": "wwan0"});
        let windows = SyncWindows { times, interface: Some("wwan0".to_owned()) };
        check(json!({"sync": sync}), of(SyncMode::Windows(windows)));
        let sync = json!({"mode": "poll", "every": "1h", "lease": {"duration": "2h"}, "bytesPerDay": "1M"});
        let lease_duration = Some(2 * HOUR);
        let mode = SyncMode::Poll { every: HOUR };
        check(
            json!({"sync": sync}),
            Ok(SyncSettings { mode, lease_duration, bytes_per_day: Some(1_000_000), includes_images: false }),
        );
    }

    #[test]
    fn packaged_file_is_valid_with_and_without_examples() {
        let read_text = |text: &str| {
            let path = std::env::temp_dir().join(format!("coracle-sync-{}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            let read = read(Some(&path));
            std::fs::remove_file(&path).unwrap();
            read.unwrap()
        };
        let text = include_str!("../../../systemd/coracle.yaml");
        assert_eq!(read_text(text), CoracleFile::default());
        let of_mode = |mode: &str, without: &[&str]| {
            let lines = text.lines().map(|line| line.replacen("  #", "  ", 1));
            let lines = lines.filter(|line| !without.iter().any(|name| line.trim().starts_with(name)));
            let settings_only = |line: &String| !line.starts_with("   ") || line.contains("duration:");
            let text: Vec<String> = lines.filter(settings_only).collect();
            let text = text.join("\n").replace("mode: watch", &format!("mode: {mode}"));
            settings(&yaml::parse(text.as_bytes()).unwrap().remove(0).value).unwrap()
        };
        let poll = of_mode("poll", &["windows:", "whileInterface:"]);
        assert_eq!((poll.mode, poll.lease_duration), (SyncMode::Poll { every: HOUR / 4 }, Some(HOUR)));
        assert_eq!(poll.bytes_per_day, Some(1_000_000));
        let SyncMode::Windows(windows) = of_mode("windows", &["every:"]).mode else { panic!("no windows") };
        assert_eq!((windows.times.len(), windows.interface.as_deref()), (1, Some("wwan0")));
        let images = "images: {fetch: resumable, hostsDirectory: /x}";
        let hosts_directory = PathBuf::from("/x");
        assert_eq!(
            read_text(images).images,
            FetchSettings { is_resumable: true, hosts_directory, ..FetchSettings::default() }
        );
        let devices = text.lines().skip_while(|line| *line != "#devices:").map(|line| line.trim_start_matches('#'));
        let devices: Vec<&str> = devices.collect();
        assert_eq!(read_text(&devices.join("\n")).devices[0].paths, ["/dev/video*"]);
        assert_eq!(read_text("# nothing\n"), CoracleFile::default());
        assert_eq!(read_text("nameTemplate: edge-{serial}").name_template, "edge-{serial}".parse().ok());
    }

    #[test]
    fn secret_of_the_reenrolment_has_a_namespace() {
        let read = |text: &str| reenrolment(&json!({"reenrolment": {"secret": text}}));
        let name = SecretName { namespace: "kube-system".to_owned(), name: "coracle-reenrolment".to_owned() };
        let (secret, tpm) = (name, Some(PathBuf::from("/dev/tpmrm0")));
        let settings = ReenrolmentSettings { secret, tpm };
        assert_eq!(read("kube-system/coracle-reenrolment"), Ok(Some(settings.clone())));
        let of_file = json!({"reenrolment": {"secret": "kube-system/coracle-reenrolment", "tpm": ""}});
        assert_eq!(reenrolment(&of_file), Ok(Some(ReenrolmentSettings { tpm: None, ..settings })));
        assert_eq!(reenrolment(&json!({"reenrolment": {}})), Ok(None));
        for text in ["", "a", "a/", "/a", "a/b/c", "A/b", "a/../b"] {
            let error = read(text).unwrap_err().to_string();
            assert_eq!(error, format!("reenrolment.secret: expected NAMESPACE/NAME, found {text:?}"));
        }
    }

    #[test]
    fn bad_name_template_names_the_field() {
        let error = name_template(&json!({"nameTemplate": "edge"})).unwrap_err().to_string();
        assert!(error.starts_with("nameTemplate: expected {serial}"), "{error}");
        let error = settings(&json!({"nameTemplate": 7})).unwrap_err().to_string();
        assert!(error.starts_with("nameTemplate: expected"), "{error}");
    }

    #[test]
    fn errors_name_the_field() {
        let table = [
            (json!({"sinc": {}}), "sinc: unknown field (did you mean sync?)"),
            (json!({"sync": {"mod": "poll"}}), "sync.mod: unknown field (did you mean mode?)"),
            (json!({"sync": {"mode": "push"}}), "sync.mode: expected watch, poll, windows or manual, found \"push\""),
            (json!({"sync": {"mode": "poll"}}), "sync.every: required: as 15m"),
            (
                json!({"sync": {"mode": "poll", "every": 15}}),
                "sync.every: expected a duration from 1s to 720h0m0s, found 15",
            ),
            (json!({"sync": {"every": "15m"}}), "sync.every: only for sync.mode: poll, which is watch"),
            (
                json!({"sync": {"mode": "manual", "windows": []}}),
                "sync.windows: only for sync.mode: windows, which is manual",
            ),
            (
                json!({"sync": {"mode": "windows"}}),
                "sync.windows: required: times such as \"01:00-03:00\", or sync.whileInterface",
            ),
            (
                json!({"sync": {"mode": "windows", "whileInterface": "../x"}}),
                "sync.whileInterface: expected the name of a network interface such as wwan0",
            ),
            (
                json!({"sync": {"mode": "poll", "every": "1h", "lease": {"duration": "90m"}}}),
                "sync.lease.duration: expected at least twice sync.every",
            ),
            (
                json!({"sync": {"lease": {"duration": "2s"}}}),
                "sync.lease.duration: expected a duration from 4s to 596523h14m7s, found \"2s\"",
            ),
            (
                json!({"sync": {"lease": {"duration": "4.5s"}}}),
                "sync.lease.duration: expected whole seconds such as 40s or 2h",
            ),
            (json!({"sync": {"includesImages": true}}), "sync.includesImages: only with sync.bytesPerDay"),
            (
                json!({"sync": {"bytesPerDay": "1k"}}),
                "sync.bytesPerDay: expected at least 64Ki: a connection alone takes some kilobytes",
            ),
        ];
        for (document, line) in table {
            check(document, Err(line));
        }
        for text in ["1:00-03:00", "01:00", "01:00-01:00", "01:60-02:00", "24:01-03:00", "a", "01:00-03:00-04:00"] {
            let line =
                format!("sync.windows[0]: expected two times of the day such as \"01:00-03:00\", found \"{text}\"");
            check(json!({"sync": {"mode": "windows", "windows": [text]}}), Err(&line));
        }
    }
}
