//! Answers `/logs/?query=SERVICE`: from the journal, or from a log file of the service.
//!
//! `Copy` and `heuristicsCopyFileLogs` in pkg/kubelet/kubelet_server_journal.go.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::time::{Duration, Instant};

use super::node_log_query::{NodeLogQuery, journal_arguments};
use crate::control::server::connections::Text;
use crate::control::server::http::Response;
use crate::platform::host::open_beneath::open_below;
use crate::platform::host::program::{self, RunningProgram};
use crate::platform::rt;

/// Upstream's limit for the whole answer.
const NODE_LOG_TIMEOUT: Duration = Duration::from_secs(30);
/// More than 100,000 lines of usual length.
const MAX_NODE_LOG_BYTES: usize = 32 << 20;
const NODE_LOG_PART_BYTES: usize = 64 << 10;

pub(super) struct NodeLogText {
    query: NodeLogQuery,
    root: PathBuf,
    /// The program that reads the journal.
    journalctl: PathBuf,
    ends: Instant,
    bytes_left: usize,
    parts: VecDeque<Part>,
}

enum Part {
    Note(String),
    File(File),
    Journal(RunningProgram),
}

impl NodeLogText {
    pub(super) fn new(query: NodeLogQuery, root: &Path, journalctl: &Path) -> Self {
        Self {
            query,
            root: root.to_owned(),
            journalctl: journalctl.to_owned(),
            ends: rt::now() + NODE_LOG_TIMEOUT,
            bytes_left: MAX_NODE_LOG_BYTES,
            parts: VecDeque::new(),
        }
    }

    async fn find(&mut self) {
        let mut command = Command::new(&self.journalctl);
        command.args(["--field", "_SYSTEMD_UNIT"]);
        // Without the journal, or with an unusable one, services log to files.
        let units =
            program::run(command, Vec::new(), NODE_LOG_TIMEOUT).await.map(|output| output.stdout).unwrap_or_default();
        let units = String::from_utf8_lossy(&units);
        let is_of_journal = |service: &String| units.contains(&[service, ".service"].concat());
        let in_files: Vec<String> =
            self.query.services.iter().filter(|service| !is_of_journal(service)).cloned().collect();
        if in_files.is_empty() {
            let mut command = Command::new(&self.journalctl);
            command.args(journal_arguments(&self.query));
            self.parts.push_back(match program::stream(command).await {
                Ok(running) => Part::Journal(running),
                Err(_) => Part::Note("\nerror: journal output not available\n".to_owned()),
            });
        } else if !self.query.options.is_empty() {
            let names = in_files.join(" ");
            self.parts.push_back(Part::Note(format!(
                "\noptions present and query resolved to log files for [{names}]\ntry without specifying options\n"
            )));
        } else {
            let root = self.root.clone();
            let open = move |service: String| (log_of(&root, &service), service);
            let logs = rt::blocking_for_client(move || in_files.into_iter().map(open).collect::<Vec<_>>()).await;
            let part = |(log, service): (io::Result<File>, String)| {
                log.map_or_else(|error| note(&service, &error), Part::File)
            };
            self.parts.extend(logs.into_iter().map(part));
        }
    }

    /// The next bytes of the first part; `None` at its end.
    async fn read(part: &mut Part, timeout: Duration) -> Option<Vec<u8>> {
        match part {
            Part::Note(note) => (!note.is_empty()).then(|| std::mem::take(note).into_bytes()),
            Part::File(file) => {
                let mut file = file.try_clone().ok()?;
                let read = rt::blocking_for_client(move || {
                    let mut bytes = vec![0; NODE_LOG_PART_BYTES];
                    let count = file.read(&mut bytes).unwrap_or(0);
                    bytes.truncate(count);
                    bytes
                });
                Some(read.await).filter(|bytes| !bytes.is_empty())
            }
            Part::Journal(running) => rt::deadline(timeout, running.next()).await.ok()?.ok()?,
        }
    }
}

impl Text for NodeLogText {
    fn open_limit(&self) -> Duration {
        NODE_LOG_TIMEOUT
    }

    fn open(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Response>> + '_>> {
        Box::pin(async {
            self.find().await;
            Ok(())
        })
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<u8>>> + '_>> {
        Box::pin(async {
            loop {
                let time = self.ends.saturating_duration_since(rt::now());
                let part = self.parts.front_mut().filter(|_| self.bytes_left > 0 && !time.is_zero())?;
                match Self::read(part, time).await {
                    Some(mut bytes) => {
                        bytes.truncate(self.bytes_left);
                        self.bytes_left -= bytes.len();
                        if self.bytes_left == 0 {
                            bytes.extend_from_slice(b"\noutput is too long: narrow the query\n");
                        }
                        return Some(bytes);
                    }
                    None => drop(self.parts.pop_front()),
                }
            }
        })
    }
}

/// In place of the log file of a service.
fn note(service: &str, error: &io::Error) -> Part {
    Part::Note(match error.kind() {
        io::ErrorKind::NotFound => format!("\nlog not found for {service}\n"),
        _ => format!("\nerror getting log for {service}: {error}\n"),
    })
}

/// The log file of a service, by its usual names. Blocking.
fn log_of(root: &Path, service: &str) -> io::Result<File> {
    for name in [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")] {
        match open_below(root, Path::new(&name)).map_err(io::Error::from).and_then(|file| Ok((file.metadata()?, file)))
        {
            Ok((metadata, file)) if metadata.is_file() => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// The answer to a query, with a directory of logs and a program for journalctl that tells its arguments.
    fn query_logs(name: &str, query: NodeLogQuery, journalctl: &str) -> String {
        let root = std::env::temp_dir().join(format!("coracle-node-logs-{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("log/web")).unwrap();
        fs::write(root.join("log/web/web.log"), "of web\n").unwrap();
        fs::write(root.join("log/db.log"), "of db\n").unwrap();
        fs::write(root.join("secret"), "outside").unwrap();
        symlink("../secret", root.join("log/out.log")).unwrap();
        let program = root.join("journalctl");
        fs::write(&program, format!("#!/bin/sh\n{journalctl}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let shown = rt::block_on(async {
            let mut text = NodeLogText::new(query, &root.join("log"), &program);
            text.open().await.unwrap();
            let mut shown = Vec::new();
            while let Some(part) = text.next().await {
                shown.extend(part);
            }
            String::from_utf8(shown).unwrap()
        });
        fs::remove_dir_all(&root).unwrap();
        shown
    }

    fn asking(services: &[&str], options: &[&str]) -> NodeLogQuery {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        NodeLogQuery { services: own(services), file: None, options: own(options) }
    }

    const JOURNAL: &str = "if [ \"$1\" = --field ]; then echo kubelet.service; else echo \"$@\"; echo why >&2; fi";

    #[test]
    fn service_of_the_journal_is_read_by_journalctl() {
        let shown = query_logs("journal", asking(&["kubelet"], &["--lines=2"]), JOURNAL);
        assert_eq!(shown, "--utc --no-pager --output=short-precise --lines=2 --unit=kubelet\nwhy\n");
    }

    #[test]
    fn slow_journal_has_upstreams_time_to_answer() {
        let text = NodeLogText::new(asking(&["kubelet"], &[]), Path::new("/"), Path::new("journalctl"));
        assert_eq!(text.open_limit(), Duration::from_secs(30));
    }

    #[test]
    fn other_services_are_read_from_their_files_below_the_log_directory() {
        let shown = query_logs("files", asking(&["web", "db", "out", "none"], &[]), JOURNAL);
        let (files, rest) = shown.split_at("of web\nof db\n".len());
        assert_eq!(files, "of web\nof db\n");
        assert!(rest.starts_with("\nerror getting log for out: ") && !rest.contains("outside"), "{rest}");
        assert!(rest.ends_with("\nlog not found for none\n"), "{rest}");
        let shown = query_logs("options", asking(&["db"], &["--lines=2"]), "exit 1");
        assert!(shown.starts_with("\noptions present and query resolved to log files for [db]\n"), "{shown}");
    }

    #[test]
    fn endless_journal_is_cut() {
        let endless = "if [ \"$1\" = --field ]; then echo kubelet.service; else exec yes; fi";
        let shown = query_logs("endless", asking(&["kubelet"], &[]), endless);
        assert!(shown.len() < MAX_NODE_LOG_BYTES + 100 && shown.ends_with("narrow the query\n"));
    }
}
