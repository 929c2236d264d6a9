//! `coracle logs`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use super::command_table::Logs;
use super::failed;
use super::find_pod::{container_of, find_pod};
use crate::types::api::Pod;
use crate::types::error::ErrorChain;

pub(super) fn run(command: &Logs) -> ExitCode {
    let pod = match find_pod(&command.local_socket, &command.pod, command.namespace.as_deref()) {
        Ok((pod, _)) => pod,
        Err(line) => return failed(&line),
    };
    let container = match container_of(&pod, command.container.as_deref()) {
        Ok(container) => container,
        Err(line) => return failed(&line),
    };
    match copy(&command.local_socket, &path(&pod, container, command), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe, like head(1).
        Err(CopyError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(CopyError::Output(error)) => failed(&format!("write the log: {}", ErrorChain(&error))),
        Err(CopyError::Refused(line)) => failed(&line),
        Err(CopyError::Input(error)) => {
            failed(&format!("no answer from {}: {}", command.local_socket.display(), ErrorChain(&error)))
        }
    }
}

fn path(pod: &Pod, container: &str, command: &Logs) -> String {
    let mut query = Vec::new();
    for (name, given) in
        [("follow", command.follow), ("previous", command.previous), ("timestamps", command.timestamps)]
    {
        if given {
            query.push(format!("{name}=true"));
        }
    }
    query.extend(command.tail.filter(|lines| *lines >= 0).map(|lines| format!("tailLines={lines}")));
    query.extend(command.since.map(|since| format!("sinceSeconds={}", since.seconds())));
    query.extend(command.limit_bytes.map(|bytes| format!("limitBytes={bytes}")));
    let meta = &pod.metadata;
    format!("/containerLogs/{}/{}/{container}?{}", meta.namespace, meta.name, query.join("&"))
}

/// The last lines of a container's log; none if the agent cannot read it.
pub(super) fn last_lines(socket: &Path, pod: &Pod, container: &str, previous: bool) -> Vec<String> {
    let meta = &pod.metadata;
    let query = format!("tailLines={LAST_LINES}&limitBytes={LAST_BYTES}&previous={previous}");
    let path = format!("/containerLogs/{}/{}/{container}?{query}", meta.namespace, meta.name);
    let mut log = Vec::new();
    match copy(socket, &path, &mut log) {
        Ok(()) => String::from_utf8_lossy(&log).lines().map(str::to_owned).collect(),
        Err(CopyError::Input(_) | CopyError::Output(_) | CopyError::Refused(_)) => Vec::new(),
    }
}

const LAST_LINES: u32 = 5;
const LAST_BYTES: u32 = 2048;

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
    copy_answer(&mut BufReader::new(stream), out)
}

fn copy_answer(answer: &mut impl BufRead, out: &mut impl Write) -> Result<(), CopyError> {
    let mut line = |most| {
        let mut line = String::new();
        answer.by_ref().take(most).read_line(&mut line).map_err(CopyError::Input)?;
        Ok::<_, CopyError>(line.trim_end().to_owned())
    };
    let status = line(LONGEST_LINE)?;
    while !line(LONGEST_LINE)?.is_empty() {}
    if !status.ends_with(" 200 OK") {
        let mut body = String::new();
        answer.take(LONGEST_LINE).read_to_string(&mut body).map_err(CopyError::Input)?;
        return Err(CopyError::Refused(body.trim_end().to_owned()));
    }
    loop {
        let mut size = String::new();
        answer.by_ref().take(LONGEST_LINE).read_line(&mut size).map_err(CopyError::Input)?;
        let cut_short = || CopyError::Input(io::ErrorKind::UnexpectedEof.into());
        let size = u64::from_str_radix(size.trim_end(), 16).map_err(|_| cut_short())?;
        if size == 0 {
            return Ok(());
        }
        let mut left = size;
        while left > 0 {
            let bytes = answer.fill_buf().map_err(CopyError::Input)?;
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            let Some(part) = bytes.get(..most).filter(|part| !part.is_empty()) else { return Err(cut_short()) };
            out.write_all(part).map_err(CopyError::Output)?;
            answer.consume(most);
            left = left.saturating_sub(u64::try_from(most).unwrap_or(u64::MAX));
        }
        // Each chunk is followed by CRLF.
        answer.read_exact(&mut [0; 2]).map_err(CopyError::Input)?;
        out.flush().map_err(CopyError::Output)?;
    }
}

const LONGEST_LINE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(answer: &str) -> (String, Option<String>) {
        let mut out = Vec::new();
        let error = match copy_answer(&mut answer.as_bytes(), &mut out) {
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
        let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\nno such\n";
        assert_eq!(copied(answer), (String::new(), Some("no such".to_owned())));
    }
}
