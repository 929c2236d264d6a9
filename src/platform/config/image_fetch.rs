//! `images` in the file of `--coracle-config`: who fetches images, when, and how many bytes that may take. Pure.

use std::path::PathBuf;

use serde_json::Value;

use super::check::Problem;
use super::fields::{Fields, LEAST_BYTES};
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
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            is_resumable: false,
            hosts_directory: PathBuf::from("/etc/containerd/certs.d"),
            windows: Vec::new(),
            bytes_per_day: None,
            bytes_per_second: None,
        }
    }
}

const LEAST_RATE: u64 = 1 << 10;

/// The schema has been checked.
pub(super) fn read(document: &Value) -> Result<FetchSettings, Problem> {
    let mut settings = FetchSettings::default();
    let Some(fields) = document.as_object().map(Fields) else { return Ok(settings) };
    let problem = |path: &str, fault: &str| Problem { path: path.to_owned(), fault: fault.to_owned() };
    settings.is_resumable = fields.text("images.fetch") == Some("resumable");
    if let Some(directory) = fields.text("images.hostsDirectory") {
        settings.hosts_directory = PathBuf::from(directory);
    }
    settings.windows = time_windows(&fields, "images.windows")?;
    if settings.windows.is_empty() && fields.at("images.windows").is_some_and(|windows| !windows.is_null()) {
        return Err(problem("images.windows", "expected times such as \"01:00-03:00\", found none"));
    }
    settings.bytes_per_day = fields.bytes("images.bytesPerDay");
    if settings.bytes_per_day.is_some_and(|bytes| bytes < LEAST_BYTES) {
        return Err(problem("images.bytesPerDay", "expected at least 64Ki"));
    }
    settings.bytes_per_second = fields.bytes("images.bytesPerSecond");
    if settings.bytes_per_second.is_some_and(|bytes| bytes < LEAST_RATE) {
        return Err(problem("images.bytesPerSecond", "expected at least 1Ki"));
    }
    if settings.bytes_per_second.is_some() && !settings.is_resumable {
        return Err(problem("images.bytesPerSecond", "only with images.fetch: resumable"));
    }
    Ok(settings)
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
        ] {
            let error = read(&json!({"images": images})).unwrap_err();
            assert_eq!(error.to_string(), line);
        }
    }
}
