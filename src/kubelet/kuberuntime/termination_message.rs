//! Termination messages: from the termination log, or from the end of the output if configured.

use std::fmt::Display;
use std::path::Path;

use crate::kubelet::kuberuntime::labels::{AnnotatedContainerInfo, POD_UID};
use crate::platform::cri::v1;
use crate::platform::host::file;
use crate::platform::rt;
use crate::types::api::TerminationMessagePolicy;

/// Maximum size of a termination log; its end is used.
const LOG_BYTES: u64 = 4096;
/// Limits of the output used instead.
const MAX_OUTPUT_LINES: usize = 80;
const OUTPUT_BYTES: usize = 2048;
/// Size of the log's end that is searched: enough for 80 lines with CRI prefixes.
const OUTPUT_WINDOW_BYTES: u64 = 64 << 10;

/// The termination message of an exited container; empty if there is none.
pub(super) async fn termination_message(status: &v1::ContainerStatus) -> String {
    let mark = AnnotatedContainerInfo::read(&status.labels, &status.annotations);
    let mount = status.mounts.iter().find(|mount| mount.container_path == mark.message_path);
    let log = mount.map(|mount| mount.host_path.clone());
    let output = falls_back(&mark, status).then(|| status.log_path.clone());
    if log.is_none() && output.is_none() {
        return String::new();
    }
    let pod = status.labels.get(POD_UID).map_or("", String::as_str);
    rt::blocking_for(pod, move || {
        let words = log.map(|path| of_log(Path::new(&path))).unwrap_or_default();
        match output {
            Some(path) if words.is_empty() => of_output(Path::new(&path)),
            Some(_) | None => words,
        }
    })
    .await
}

/// A container that failed to start has no output.
fn falls_back(mark: &AnnotatedContainerInfo<'_>, status: &v1::ContainerStatus) -> bool {
    mark.message_policy == TerminationMessagePolicy::FallbackToLogsOnError
        && status.exit_code != 0
        && status.reason != "ContainerCannotRun"
}

fn of_log(path: &Path) -> String {
    match file::read_tail(path, LOG_BYTES) {
        Ok((bytes, _)) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => unreadable("termination log", path, &error),
    }
}

fn of_output(path: &Path) -> String {
    match file::read_tail(path, OUTPUT_WINDOW_BYTES) {
        Ok((bytes, cut)) => end_of_output(&bytes, cut),
        Err(error) => unreadable("termination message from logs", path, &error),
    }
}

fn unreadable(subject: &str, path: &Path, error: &dyn Display) -> String {
    format!("Error on reading {subject} {}: {error}", path.display())
}

/// The end of the container's output, from the end of its log file; `cut`: the first line is incomplete.
fn end_of_output(bytes: &[u8], cut: bool) -> String {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let is_whole = |line: &&[u8]| line.ends_with(b"\n");
    if lines.last().is_some_and(|last| !is_whole(last)) {
        lines.pop();
    }
    let skipped = lines.len().saturating_sub(MAX_OUTPUT_LINES);
    let mut output = Vec::new();
    for (index, line) in lines.iter().enumerate().skip(skipped) {
        if cut && index == 0 {
            // The incomplete first line starts inside the container's text.
            output.extend_from_slice(line);
        } else if let Some((text, is_partial)) = written(line) {
            output.extend_from_slice(text);
            if !is_partial {
                output.push(b'\n');
            }
        }
    }
    let end = output.len().saturating_sub(OUTPUT_BYTES);
    String::from_utf8_lossy(output.get(end..).unwrap_or_default()).into_owned()
}

/// The container's text in a line `2026-11-20T20:28:11.512009866Z stdout F the text`, and whether it continues in the
/// next line. `None` for a malformed line.
fn written(line: &[u8]) -> Option<(&[u8], bool)> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let (_time, _stream, tag) = (words.next()?, words.next()?, words.next()?);
    let is_partial = tag.split(|byte| *byte == b':').any(|tag| tag == b"P");
    Some((words.next()?, is_partial))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::platform::rt::block_on;
    use crate::types::sorted::SortedMap;

    const AT: &str = "2026-11-20T20:28:11.512009866Z";

    fn log_of(lines: &[&str]) -> Vec<u8> {
        lines.iter().flat_map(|line| format!("{AT} stdout {line}\n").into_bytes()).collect()
    }

    #[test]
    fn end_of_output_has_no_cri_prefixes() {
        assert_eq!(end_of_output(&log_of(&["F one", "P two ", "F three", "F "]), false), "one\ntwo three\n\n");
        assert_eq!(end_of_output(b"", false), "");
        assert_eq!(end_of_output(b"nonsense\n\n", false), "");
        let torn = [log_of(&["F one"]), b"2026-11-20T20:28:11Z stdout F tw".to_vec()].concat();
        assert_eq!(end_of_output(&torn, false), "one\n");
        assert_eq!(end_of_output(b"ddle of a line\n", true), "ddle of a line\n");
    }

    #[test]
    fn output_is_limited_to_80_lines_and_two_kilobytes() {
        let lines: Vec<String> = (0..100).map(|n| format!("F {n}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let end = end_of_output(&log_of(&lines), false);
        assert_eq!((end.lines().next(), end.lines().count()), (Some("20"), 80));
        let long = format!("F {}y", "x".repeat(5000));
        let end = end_of_output(&log_of(&[&long]), false);
        assert_eq!(end, format!("{}y\n", "x".repeat(2046)));
    }

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("coracle-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, bytes: &[u8]) -> String {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).unwrap();
            path.display().to_string()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn ended(code: i32, policy: &str, log: &str, output: &str) -> v1::ContainerStatus {
        let annotations = [
            ("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
            ("io.kubernetes.container.terminationMessagePolicy", policy),
        ];
        let annotations: SortedMap<String, String> =
            annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let container_path = "/dev/termination-log".to_owned();
        v1::ContainerStatus {
            exit_code: code,
            annotations,
            mounts: vec![v1::Mount { container_path, host_path: log.to_owned(), ..v1::Mount::default() }],
            log_path: output.to_owned(),
            ..v1::ContainerStatus::default()
        }
    }

    #[test]
    fn output_is_used_only_for_failures_with_an_empty_log() {
        let scratch = Scratch::new("last-words");
        let (empty, message) = (scratch.write("empty", b""), scratch.write("message", b"bye"));
        let output = scratch.write("0.log", &log_of(&["F sorry"]));
        let message_of = |code, policy, log: &str| block_on(termination_message(&ended(code, policy, log, &output)));
        assert_eq!(message_of(1, "FallbackToLogsOnError", &empty), "sorry\n");
        assert_eq!(message_of(1, "FallbackToLogsOnError", &message), "bye");
        assert_eq!(message_of(0, "FallbackToLogsOnError", &empty), "");
        assert_eq!(message_of(1, "File", &empty), "");
        let lost = message_of(1, "File", "/nonexistent/log");
        assert!(lost.starts_with("Error on reading termination log /nonexistent/log: "), "{lost}");
        let cannot_run = v1::ContainerStatus {
            reason: "ContainerCannotRun".to_owned(),
            ..ended(128, "FallbackToLogsOnError", &empty, &output)
        };
        assert_eq!(block_on(termination_message(&cannot_run)), "");
    }

    #[test]
    fn end_of_a_long_log_is_used() {
        let scratch = Scratch::new("long-log");
        let log = scratch.write("log", &[&[b'a'; 5000][..], b"end"].concat());
        let message = block_on(termination_message(&ended(0, "File", &log, "")));
        assert_eq!((message.len(), message.ends_with("aend")), (4096, true));
    }
}
