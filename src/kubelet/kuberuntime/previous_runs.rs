//! Recovers restart counts from logs when the runtime has lost the containers.

use std::path::PathBuf;

use crate::platform::rt;

/// The next restart count according to a container's log directory; 0 without logs.
///
/// As the upstream kubelet does after a reboot that lost the runtime's state (`calcRestartCountByLogDir`).
pub(super) async fn restart_count(pod: &str, logs: PathBuf) -> u32 {
    rt::blocking_for(pod, move || {
        let entries = std::fs::read_dir(logs).into_iter().flatten().flatten();
        entries.filter_map(|entry| run_of(entry.file_name().to_str()?)).max().map_or(0, |run| run.saturating_add(1))
    })
    .await
}

/// The restart count in a log name: `3.log`, or rotated `3.log.20260102-030405`.
fn run_of(name: &str) -> Option<u32> {
    let (run, rest) = name.split_once('.')?;
    let is_log = rest == "log" || rest.starts_with("log.");
    run.parse().ok().filter(|_| is_log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_parsed_only_from_log_names() {
        assert_eq!(run_of("0.log"), Some(0));
        assert_eq!(run_of("12.log.20260102-030405.gz"), Some(12));
        for other in ["log", "x.log", "1.txt", "1.logs", ".log", "-1.log"] {
            assert_eq!(run_of(other), None, "{other}");
        }
    }

    #[test]
    fn count_continues_from_the_highest_log() {
        let logs = std::env::temp_dir().join(format!("coracle-earlier-runs-{}", std::process::id()));
        let counts = [vec![], vec!["0.log"], vec!["2.log", "10.log"]].map(|names| {
            std::fs::create_dir_all(&logs).expect("create a temporary directory");
            names.iter().for_each(|name| std::fs::write(logs.join(name), "").expect("write a temporary file"));
            rt::block_on(restart_count("u", logs.clone()))
        });
        std::fs::remove_dir_all(&logs).expect("remove the temporary directory");
        assert_eq!(counts, [0, 1, 11]);
        assert_eq!(rt::block_on(restart_count("u", logs)), 0, "no directory");
    }
}
