//! What the logs tell of a container's earlier runs, where the runtime has forgotten them.

use std::path::PathBuf;

use crate::platform::rt;

/// The restart count that goes on from the logs in `logs`, the log directory of one container; 0 where there are none.
///
/// As the upstream kubelet does after a reboot that took the runtime's books (`calcRestartCountByLogDir`).
pub(super) async fn restart_count(logs: PathBuf) -> u32 {
    rt::blocking(move || {
        let entries = std::fs::read_dir(logs).into_iter().flatten().flatten();
        entries.filter_map(|entry| run_of(entry.file_name().to_str()?)).max().map_or(0, |run| run.saturating_add(1))
    })
    .await
}

/// The run that a log is of: `3.log`, or what rotation makes of it, `3.log.20260102-030405`.
fn run_of(name: &str) -> Option<u32> {
    let (run, rest) = name.split_once('.')?;
    let is_log = rest == "log" || rest.starts_with("log.");
    run.parse().ok().filter(|_| is_log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_is_read_off_a_log_and_off_nothing_else() {
        assert_eq!(run_of("0.log"), Some(0));
        assert_eq!(run_of("12.log.20260102-030405.gz"), Some(12));
        for other in ["log", "x.log", "1.txt", "1.logs", ".log", "-1.log"] {
            assert_eq!(run_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_count_goes_on_from_the_highest_log() {
        let logs = std::env::temp_dir().join(format!("coracle-earlier-runs-{}", std::process::id()));
        let counts = [vec![], vec!["0.log"], vec!["2.log", "10.log"]].map(|names| {
            std::fs::create_dir_all(&logs).expect("a directory of our own");
            names.iter().for_each(|name| std::fs::write(logs.join(name), "").expect("a file of our own"));
            rt::block_on(restart_count(logs.clone()))
        });
        std::fs::remove_dir_all(&logs).expect("our own directory");
        assert_eq!(counts, [0, 1, 11]);
        assert_eq!(rt::block_on(restart_count(logs)), 0, "no directory");
    }
}
