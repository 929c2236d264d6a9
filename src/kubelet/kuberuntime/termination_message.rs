//! Termination messages: from the termination log, or from the end of the output if configured.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use crate::kubelet::kuberuntime::labels::{AnnotatedContainerInfo, POD_UID};
use crate::platform::cri::v1;
use crate::platform::host::file;
use crate::platform::rt;
use crate::state::pods::PodDirs;
use crate::types::api::{PodUid, TerminationMessagePolicy};

/// Maximum size of a termination log; its end is used.
const LOG_BYTES: u64 = 4096;
/// Limits of the output used instead.
const MAX_OUTPUT_LINES: usize = 80;
const OUTPUT_BYTES: usize = 2048;
/// Size of the log's end that is searched: enough for 80 lines with CRI prefixes.
const OUTPUT_WINDOW_BYTES: u64 = 64 << 10;
/// How long a log in a volume is waited for: a file server may hang, and the pod's status waits for the message.
const VOLUME_LOG_WAIT: Duration = Duration::from_secs(2);

/// The termination message of an exited container; empty if there is none.
///
/// The node's own file comes first, then, as upstream, whatever is mounted at its path.
pub(super) async fn termination_message(status: &v1::ContainerStatus, dirs: &PodDirs) -> String {
    let mark = AnnotatedContainerInfo::read(&status.labels, &status.annotations);
    let uid = PodUid::from(status.labels.get(POD_UID).map_or("", String::as_str));
    let own_logs = dirs.container(&uid, mark.name);
    let is_own = |mount: &&v1::Mount| Path::new(&mount.host_path).parent() == Some(&own_logs);
    let at_path = || status.mounts.iter().filter(|mount| mount.container_path == mark.message_path);
    let message = if let Some(own) = at_path().find(is_own) {
        rt::blocking_for(uid.as_str(), of_log(own)).await
    } else if let Some(mount) = at_path().next() {
        // Apart from the pod's name lookups, as the statistics of its volumes.
        let read = rt::inquire_for(&format!("volumes of {uid}"), of_log(mount));
        let late = |elapsed| unreadable("termination log", Path::new(&mount.host_path), &elapsed);
        rt::deadline(VOLUME_LOG_WAIT, read).await.unwrap_or_else(late)
    } else {
        String::new()
    };
    if !message.is_empty() || !falls_back(&mark, status) {
        return message;
    }
    let output = status.log_path.clone();
    rt::blocking_for(uid.as_str(), move || of_output(Path::new(&output))).await
}

/// A container that failed to start has no output.
fn falls_back(mark: &AnnotatedContainerInfo<'_>, status: &v1::ContainerStatus) -> bool {
    mark.message_policy == TerminationMessagePolicy::FallbackToLogsOnError
        && status.exit_code != 0
        && status.reason != "ContainerCannotRun"
}

/// Reads the log at this mount.
fn of_log(mount: &v1::Mount) -> impl FnOnce() -> String + Send + use<> {
    let path = mount.host_path.clone();
    move || match file::read_tail(Path::new(&path), LOG_BYTES) {
        Ok((bytes, _)) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => unreadable("termination log", Path::new(&path), &error),
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

    const PATH: &str = "/dev/termination-log";

    fn dirs(root: &Path) -> PodDirs {
        PodDirs::new(root, root)
    }

    fn mount(log: &str) -> v1::Mount {
        v1::Mount { container_path: PATH.to_owned(), host_path: log.to_owned(), ..v1::Mount::default() }
    }

    fn message(status: &v1::ContainerStatus) -> String {
        block_on(termination_message(status, &dirs(Path::new("/nonexistent"))))
    }

    fn ended(code: i32, policy: &str, log: &str, output: &str) -> v1::ContainerStatus {
        let annotations = [
            ("io.kubernetes.container.terminationMessagePath", PATH),
            ("io.kubernetes.container.terminationMessagePolicy", policy),
        ];
        let annotations: SortedMap<String, String> =
            annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        v1::ContainerStatus {
            exit_code: code,
            annotations,
            mounts: vec![mount(log)],
            log_path: output.to_owned(),
            ..v1::ContainerStatus::default()
        }
    }

    #[test]
    fn output_is_used_only_for_failures_with_an_empty_log() {
        let scratch = Scratch::new("last-words");
        let (empty, full) = (scratch.write("empty", b""), scratch.write("message", b"bye"));
        let output = scratch.write("0.log", &log_of(&["F sorry"]));
        let message_of = |code, policy, log: &str| message(&ended(code, policy, log, &output));
        assert_eq!(message_of(1, "FallbackToLogsOnError", &empty), "sorry\n");
        assert_eq!(message_of(1, "FallbackToLogsOnError", &full), "bye");
        assert_eq!(message_of(0, "FallbackToLogsOnError", &empty), "");
        assert_eq!(message_of(1, "File", &empty), "");
        let lost = message_of(1, "File", "/nonexistent/log");
        assert!(lost.starts_with("Error on reading termination log /nonexistent/log: "), "{lost}");
        let cannot_run = v1::ContainerStatus {
            reason: "ContainerCannotRun".to_owned(),
            ..ended(128, "FallbackToLogsOnError", &empty, &output)
        };
        assert_eq!(message(&cannot_run), "");
    }

    #[test]
    fn end_of_a_long_log_is_used() {
        let scratch = Scratch::new("long-log");
        let log = scratch.write("log", &[&[b'a'; 5000][..], b"end"].concat());
        let message = message(&ended(0, "File", &log, ""));
        assert_eq!((message.len(), message.ends_with("aend")), (4096, true));
    }

    /// The status of container `main` of pod `u1`, with these mounts at the path of its log.
    fn ended_with(logs: &[&str]) -> v1::ContainerStatus {
        let labels = [("io.kubernetes.pod.uid", "u1"), ("io.kubernetes.container.name", "main")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let mounts = logs.iter().map(|log| mount(log)).collect();
        v1::ContainerStatus { labels, mounts, ..ended(1, "File", "", "") }
    }

    #[test]
    fn nodes_own_log_is_read_instead_of_a_volume_at_its_path() {
        let scratch = Scratch::new("own-log");
        let own_logs = dirs(&scratch.0).container(&"u1".into(), "main");
        std::fs::create_dir_all(&own_logs).unwrap();
        std::fs::write(own_logs.join("01"), "own").unwrap();
        let (volume, own) = (scratch.write("volume", b"of the volume"), own_logs.join("01").display().to_string());
        let message_of = |logs: &[&str]| block_on(termination_message(&ended_with(logs), &dirs(&scratch.0)));
        assert_eq!(message_of(&[&volume, &own]), "own");
        assert_eq!(message_of(&[&volume]), "of the volume");
    }

    #[test]
    fn log_in_a_volume_is_waited_for_briefly() {
        let seen = rt::simulate(1, |world| async move {
            world.disk.set(Duration::from_secs(100_000));
            let (status, dirs) = (ended_with(&["/volume/log"]), dirs(Path::new("/root")));
            let message = termination_message(&status, &dirs).await;
            (message, world.passed())
        });
        let expected = "Error on reading termination log /volume/log: deadline exceeded".to_owned();
        assert_eq!(seen, Ok((expected, VOLUME_LOG_WAIT)));
    }
}
