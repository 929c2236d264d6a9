//! The file of `--coracle-config`: what Coracle has settings for and the kubelet has none.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::Error;
use super::check::{Problem, check_fields};
use super::device_rules::{DeviceRule, device_rules};
use super::fields::Fields;
use super::file::{one, read_bytes};
use super::schema::CORACLE_FILE;
use crate::types::api::yaml;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoracleFile {
    pub(crate) sync: SyncSettings,
    pub(crate) devices: Vec<DeviceRule>,
}

/// When the API server is asked and told, and what that may cost: `sync` of Coracle's own file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncSettings {
    pub(crate) mode: SyncMode,
    /// `None`: what the kubelet's configuration says.
    pub(crate) lease_duration: Option<Duration>,
    /// `None`: no bound.
    pub(crate) bytes_per_day: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SyncMode {
    /// Always.
    #[default]
    Watch,
    Poll {
        every: Duration,
    },
    Windows(SyncWindows),
    /// Only when somebody on the node says so.
    Manual,
}

/// When all of these hold; there is at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncWindows {
    /// In one of these, if there are any.
    pub(crate) times: Vec<TimeWindow>,
    /// While this network interface is up.
    pub(crate) interface: Option<String>,
}

/// From one minute of the day to another, in UTC; over midnight if it ends before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeWindow {
    pub(crate) from: u16,
    pub(crate) to: u16,
}

/// Read if it is there.
pub(super) const PLACE: &str = "/etc/coracle/coracle.yaml";
/// As the API writes it down.
const LONGEST_LEASE: u64 = i32::MAX as u64;

/// What the file says; without `given` that of the usual place, which need not be there.
pub(super) fn read(given: Option<&Path>) -> Result<CoracleFile, Error> {
    let path = given.unwrap_or(Path::new(PLACE));
    let text = match read_bytes(path) {
        Err(error) if given.is_none() && error.kind() == io::ErrorKind::NotFound => return Ok(CoracleFile::default()),
        text => text.map_err(|source| Error::Read { path: path.to_owned(), source })?,
    };
    let place = PathBuf::from(path);
    let unparsed = |source| Error::Parse { path: path.to_owned(), source };
    let documents = yaml::parse(&text).map_err(unparsed)?;
    if documents.is_empty() {
        // Nothing but comments.
        return Ok(CoracleFile::default());
    }
    let refused = |problem| Error::Field { path: place.clone(), problem };
    let document = one(documents, "configuration of Coracle").map_err(refused)?.strict().map_err(unparsed)?;
    let sync = settings(&document).map_err(refused)?;
    let devices = device_rules(&document).map_err(refused)?;
    Ok(CoracleFile { sync, devices })
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
    if lease_duration.is_some_and(|duration| duration.subsec_nanos() > 0 || duration.as_secs() > LONGEST_LEASE) {
        return Err(problem("sync.lease.duration", "expected whole seconds, as 40s or 2h"));
    }
    let mode = match mode {
        "poll" => {
            let every = fields.duration("sync.every").ok_or_else(|| problem("sync.every", "required: as 15m"))?;
            // It is renewed with each poll; one that fails must not make the node look dead.
            if lease_duration.is_some_and(|duration| duration < every.saturating_mul(2)) {
                return Err(problem("sync.lease.duration", "expected at least twice sync.every"));
            }
            SyncMode::Poll { every }
        }
        "windows" => SyncMode::Windows(windows(&fields)?),
        "manual" => SyncMode::Manual,
        _ => SyncMode::Watch,
    };
    let bytes = fields.at("sync.bytesPerDay").and_then(|value| match value {
        Value::String(text) => text.parse().ok(),
        value => value.to_string().parse().ok(),
    });
    let bytes_per_day =
        bytes.map(|bytes: crate::types::api::Quantity| u64::try_from(bytes.value()).unwrap_or_default());
    if bytes_per_day.is_some_and(|bytes| bytes < LEAST_BYTES) {
        return Err(problem("sync.bytesPerDay", "expected at least 64Ki: a connection alone takes some kilobytes"));
    }
    Ok(SyncSettings { mode, lease_duration, bytes_per_day })
}

const LEAST_BYTES: u64 = 64 << 10;

fn windows(fields: &Fields<'_>) -> Result<SyncWindows, Problem> {
    let mut times = Vec::new();
    let texts = fields.at("sync.windows").and_then(Value::as_array).into_iter().flatten();
    for (index, text) in texts.enumerate() {
        let window = text.as_str().and_then(time_window).ok_or_else(|| Problem {
            path: format!("sync.windows[{index}]"),
            fault: format!("expected two times of the day as \"01:00-03:00\", found {text}"),
        });
        times.push(window?);
    }
    let interface = fields.text("sync.whileInterface").map(str::to_owned);
    if interface.as_ref().is_some_and(|name| name.len() > 15 || name.contains(['/', ' ']) || name.starts_with('.')) {
        let fault = "expected the name of a network interface, as wwan0".to_owned();
        return Err(Problem { path: "sync.whileInterface".to_owned(), fault });
    }
    if times.is_empty() && interface.is_none() {
        let fault = "required: times as \"01:00-03:00\", or sync.whileInterface".to_owned();
        return Err(Problem { path: "sync.windows".to_owned(), fault });
    }
    Ok(SyncWindows { times, interface })
}

fn time_window(text: &str) -> Option<TimeWindow> {
    let (from, to) = text.split_once('-')?;
    let window = TimeWindow { from: minute(from)?, to: minute(to)? };
    (window.from != window.to).then_some(window)
}

/// `24:00` is the end of the day.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hour) || !digits(minute) {
        return None;
    }
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let minutes = hour * 60 + minute;
    (minute < 60 && minutes <= 24 * 60).then_some(minutes % (24 * 60))
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
    fn each_mode_is_read_with_what_belongs_to_it() {
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
        check(json!({"sync": sync}), Ok(SyncSettings { mode, lease_duration, bytes_per_day: Some(1_000_000) }));
    }

    #[test]
    fn the_file_of_the_packages_changes_nothing_and_what_stands_there_as_an_example_is_understood() {
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
        let devices = text.lines().skip_while(|line| *line != "#devices:").map(|line| line.trim_start_matches('#'));
        let devices: Vec<&str> = devices.collect();
        assert_eq!(read_text(&devices.join("\n")).devices[0].paths, ["/dev/video*"]);
        assert_eq!(read_text("# nothing\n"), CoracleFile::default());
    }

    #[test]
    fn what_cannot_stand_gets_one_line_with_its_place() {
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
                "sync.windows: required: times as \"01:00-03:00\", or sync.whileInterface",
            ),
            (
                json!({"sync": {"mode": "windows", "whileInterface": "../x"}}),
                "sync.whileInterface: expected the name of a network interface, as wwan0",
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
                "sync.lease.duration: expected whole seconds, as 40s or 2h",
            ),
            (
                json!({"sync": {"bytesPerDay": "1k"}}),
                "sync.bytesPerDay: expected at least 64Ki: a connection alone takes some kilobytes",
            ),
        ];
        for (document, line) in table {
            check(document, Err(line));
        }
        for text in ["1:00-03:00", "01:00", "01:00-01:00", "01:60-02:00", "24:01-03:00", "a", "01:00-03:00-04:00"] {
            let line = format!("sync.windows[0]: expected two times of the day as \"01:00-03:00\", found \"{text}\"");
            check(json!({"sync": {"mode": "windows", "windows": [text]}}), Err(&line));
        }
    }
}
