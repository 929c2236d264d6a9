//! `coracle logs`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use super::command_table::Logs;
use super::find_pod::{PodListResponse, container_of, find_pod};
use super::local_api::{escaped, get};
use super::{complain, failed};
use crate::types::api::{Pod, decode};
use crate::types::error::ErrorChain;

pub(super) fn run(command: &Logs) -> ExitCode {
    match sources(command) {
        Ok(sources) => match sources.as_slice() {
            [] => failed("no pod with these labels; coracle pods lists all pods"),
            [(pod, container)] => print_log(command, pod, container, &mut io::stdout().lock()),
            sources if command.follow => follow_all(command, sources),
            sources => {
                let all = sources.iter().map(|(pod, container)| print_prefixed(command, pod, container));
                worst(all.collect::<Vec<_>>().into_iter())
            }
        },
        Err(line) => failed(&line),
    }
}

fn worst(mut codes: impl Iterator<Item = ExitCode>) -> ExitCode {
    codes.find(|code| *code != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS)
}

/// Pods with their containers, in the order of the command line.
fn sources(command: &Logs) -> Result<Vec<(Pod, String)>, String> {
    let namespace = command.namespace.as_deref();
    let mut pods = Vec::new();
    let mut container = command.container.clone();
    for name in &command.pods {
        match (find_pod(&command.local_socket, name, namespace), pods.as_slice()) {
            (Ok((pod, _)), _) => pods.push(pod),
            // As kubectl, a container may stand after its pod.
            (Err(_), [pod]) if container.is_none() && has_container(pod, name) => container = Some(name.clone()),
            (Err(line), _) => return Err(line),
        }
    }
    if let Some(selector) = &command.selector {
        let response =
            get::<PodListResponse>(&command.local_socket, "/pods").map_err(|error| ErrorChain(&error).to_string())?;
        let read = response.pods.into_iter().filter_map(|entry| decode::<Pod>(entry.pod).ok()).map(|pod| pod.value);
        pods.extend(read.filter(|pod| {
            namespace.is_none_or(|namespace| pod.metadata.namespace == namespace)
                && selector.matches(&pod.metadata.labels)
        }));
    }
    let mut sources = Vec::new();
    for pod in pods {
        let containers: Vec<String> = if command.all_containers {
            pod.spec.all_containers().map(|container| container.name.clone()).collect()
        } else {
            vec![container_of(&pod, container.as_deref())?.to_owned()]
        };
        sources.extend(containers.into_iter().map(|container| (pod.clone(), container)));
    }
    Ok(sources)
}

fn has_container(pod: &Pod, name: &str) -> bool {
    pod.spec.all_containers().any(|container| container.name == name)
}

/// Follows all logs at once, a thread for each.
fn follow_all(command: &Logs, sources: &[(Pod, String)]) -> ExitCode {
    if sources.len() > MAX_FOLLOWED_LOGS {
        return failed(&format!("logs: {} logs to follow, at most {MAX_FOLLOWED_LOGS} are possible", sources.len()));
    }
    thread::scope(|scope| {
        let follow = |(pod, container): &(Pod, String)| {
            let (pod, container) = (pod.clone(), container.clone());
            scope.spawn(move || print_prefixed(command, &pod, &container))
        };
        let threads: Vec<_> = sources.iter().map(follow).collect();
        worst(threads.into_iter().map(|thread| thread.join().unwrap_or(ExitCode::FAILURE)))
    })
}

/// Each log takes a thread and a connection.
const MAX_FOLLOWED_LOGS: usize = 16;

/// The log with the name of its source before each line.
fn print_prefixed(command: &Logs, pod: &Pod, container: &str) -> ExitCode {
    let prefix = format!("[{}/{container}] ", pod.metadata.name).into_bytes();
    let mut out = Prefixed { prefix, line: Vec::new(), out: io::stdout() };
    let code = print_log(command, pod, container, &mut out);
    // A last line without an end.
    let ended = if out.line.is_empty() { Ok(()) } else { out.write_all(b"\n") };
    match ended {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            failed(&format!("write the log: {}", ErrorChain(&error)))
        }
        _ => code,
    }
}

fn print_log(command: &Logs, pod: &Pod, container: &str, out: &mut impl Write) -> ExitCode {
    match copy(&command.local_socket, &path(pod, container, command), out) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe, like head(1).
        Err(CopyError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(CopyError::Output(error)) => failed(&format!("write the log: {}", ErrorChain(&error))),
        Err(CopyError::Refused(line)) => {
            if command.all_containers && !command.previous {
                // A container that has not started yet has no log, and the others do.
                complain(&line);
                return ExitCode::SUCCESS;
            }
            failed(&line)
        }
        Err(CopyError::Input(error)) => {
            failed(&format!("no answer from {}: {}", command.local_socket.display(), ErrorChain(&error)))
        }
    }
}

/// Writes whole lines, each after the prefix and in one piece.
/// Threads of other logs write to the same output.
struct Prefixed<W> {
    prefix: Vec<u8>,
    line: Vec<u8>,
    out: W,
}

impl<W: Write> Write for Prefixed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            let is_whole = part.ends_with(b"\n");
            if is_whole || self.line.len() > MAX_PREFIXED_LINE_BYTES {
                let end: &[u8] = if is_whole { b"" } else { b"\n" };
                let written = self.out.write_all(&[&*self.prefix, &*self.line, end].concat());
                self.line.clear();
                written?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A longer line is split.
const MAX_PREFIXED_LINE_BYTES: usize = 64 << 10;

fn path(pod: &Pod, container: &str, command: &Logs) -> String {
    let mut query = Vec::new();
    for (name, value) in
        [("follow", command.follow), ("previous", command.previous), ("timestamps", command.timestamps)]
    {
        if value {
            query.push(format!("{name}=true"));
        }
    }
    query.extend(command.tail.filter(|lines| *lines >= 0).map(|lines| format!("tailLines={lines}")));
    query.extend(command.since.map(|since| format!("sinceSeconds={}", since.seconds())));
    query.extend(command.since_time.as_ref().map(|time| format!("sinceTime={}", escaped(time))));
    query.extend(command.limit_bytes.map(|bytes| format!("limitBytes={bytes}")));
    let meta = &pod.metadata;
    format!("/containerLogs/{}/{}/{container}?{}", meta.namespace, meta.name, query.join("&"))
}

/// The last lines of a container's log; none if the agent cannot read it.
pub(super) fn last_lines(socket: &Path, pod: &Pod, container: &str, previous: bool) -> Vec<String> {
    let meta = &pod.metadata;
    let query = format!("tailLines={SHOWN_LAST_LINES}&limitBytes={SHOWN_LAST_BYTES}&previous={previous}");
    let path = format!("/containerLogs/{}/{}/{container}?{query}", meta.namespace, meta.name);
    let mut log = Vec::new();
    match copy(socket, &path, &mut log) {
        Ok(()) => String::from_utf8_lossy(&log).lines().map(str::to_owned).collect(),
        Err(CopyError::Input(_) | CopyError::Output(_) | CopyError::Refused(_)) => Vec::new(),
    }
}

const SHOWN_LAST_LINES: u32 = 5;
const SHOWN_LAST_BYTES: u32 = 2048;

enum CopyError {
    Input(io::Error),
    Output(io::Error),
    /// The agent's message.
    Refused(String),
}

/// Copies the log as it arrives.
fn copy(socket: &Path, path: &str, out: &mut impl Write) -> Result<(), CopyError> {
    let mut stream = UnixStream::connect(socket).map_err(CopyError::Input)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").map_err(CopyError::Input)?;
    copy_response(&mut BufReader::new(stream), out)
}

fn copy_response(response: &mut impl BufRead, out: &mut impl Write) -> Result<(), CopyError> {
    let mut line = |most| {
        let mut line = String::new();
        response.by_ref().take(most).read_line(&mut line).map_err(CopyError::Input)?;
        Ok::<_, CopyError>(line.trim_end().to_owned())
    };
    let status = line(MAX_LINE_START_BYTES)?;
    while !line(MAX_LINE_START_BYTES)?.is_empty() {}
    if !status.ends_with(" 200 OK") {
        let mut body = String::new();
        response.take(MAX_LINE_START_BYTES).read_to_string(&mut body).map_err(CopyError::Input)?;
        return Err(CopyError::Refused(body.trim_end().to_owned()));
    }
    loop {
        let mut size = String::new();
        response.by_ref().take(MAX_LINE_START_BYTES).read_line(&mut size).map_err(CopyError::Input)?;
        let cut_short = || CopyError::Input(io::ErrorKind::UnexpectedEof.into());
        let size = u64::from_str_radix(size.trim_end(), 16).map_err(|_| cut_short())?;
        if size == 0 {
            return Ok(());
        }
        let mut bytes_left = size;
        while bytes_left > 0 {
            let bytes = response.fill_buf().map_err(CopyError::Input)?;
            let most = usize::try_from(bytes_left).unwrap_or(usize::MAX).min(bytes.len());
            let Some(part) = bytes.get(..most).filter(|part| !part.is_empty()) else { return Err(cut_short()) };
            out.write_all(part).map_err(CopyError::Output)?;
            response.consume(most);
            bytes_left = bytes_left.saturating_sub(u64::try_from(most).unwrap_or(u64::MAX));
        }
        // Each chunk is followed by CRLF.
        response.read_exact(&mut [0; 2]).map_err(CopyError::Input)?;
        out.flush().map_err(CopyError::Output)?;
    }
}

const MAX_LINE_START_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(response: &str) -> (String, Option<String>) {
        let mut out = Vec::new();
        let error = match copy_response(&mut response.as_bytes(), &mut out) {
            Ok(()) => None,
            Err(CopyError::Refused(line)) => Some(line),
            Err(CopyError::Input(error) | CopyError::Output(error)) => Some(error.kind().to_string()),
        };
        (String::from_utf8(out).unwrap(), error)
    }

    #[test]
    fn chunked_log_is_complete_only_with_the_last_chunk() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(copied(&format!("{head}4\r\none\n\r\n3\r\ntwo\r\n0\r\n\r\n")), ("one\ntwo".to_owned(), None));
        for cut in ["", "4\r\none", "4\r\none\n", "4\r\none\n\r\n"] {
            assert!(copied(&format!("{head}{cut}")).1.is_some(), "{cut:?}");
        }
    }

    #[test]
    fn refusal_has_the_agents_message() {
        let response = "HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\nno such\n";
        assert_eq!(copied(response), (String::new(), Some("no such".to_owned())));
    }

    #[test]
    fn prefix_stands_before_each_whole_line() {
        let mut out = Prefixed { prefix: b"[web/main] ".to_vec(), line: Vec::new(), out: Vec::new() };
        for part in ["one\ntw", "o\n", "\nrest"] {
            out.write_all(part.as_bytes()).unwrap();
        }
        assert_eq!(String::from_utf8(out.out).unwrap(), "[web/main] one\n[web/main] two\n[web/main] \n");
        assert_eq!(out.line, b"rest");
    }
}
