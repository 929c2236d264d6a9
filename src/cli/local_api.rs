//! Client of the agent's local API.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{error, fmt};

use serde_json::Value;

use crate::control::server::parse_response;
use crate::platform::config::LOCAL_SOCKET;
use crate::types::api::{Decode, DecodeError, decode, decode_bytes};
use crate::types::error::ErrorChain;

/// GETs `path` from the agent at `socket`.
pub(super) fn get<T: Decode>(socket: &Path, path: &str) -> Result<T, LocalApiError> {
    let failed = |kind| LocalApiError { socket: socket.to_owned(), kind };
    let bytes = exchange(socket, "GET", path, &[], LOCAL_RESPONSE_TIMEOUT)
        .map_err(|error| LocalApiError::from_io(socket, error))?;
    let (status, body) = parse_response(&bytes).ok_or_else(|| failed(Kind::CutShort))?;
    if status != "200 OK" {
        let message = String::from_utf8_lossy(body).trim().to_owned();
        let is_explained = status.starts_with('5') && !message.is_empty();
        return Err(failed(if is_explained { Kind::Message(message) } else { Kind::Refused(status.to_owned()) }));
    }
    decode_bytes(body).map_err(|error| failed(Kind::Malformed(error)))
}

/// Decodes an answer or a part of it.
pub(super) fn decoded<T: Decode>(body: Value) -> Result<T, DecodeError> {
    decode(body).map(|decoded| decoded.value)
}

/// DELETEs `path` at the agent; returns its message.
pub(super) fn remove(patience: Duration, socket: &Path, path: &str) -> Result<String, LocalApiError> {
    let failed = |kind| LocalApiError { socket: socket.to_owned(), kind };
    let bytes =
        exchange(socket, "DELETE", path, &[], patience).map_err(|error| LocalApiError::from_io(socket, error))?;
    let (status, body) = parse_response(&bytes).ok_or_else(|| failed(Kind::CutShort))?;
    let message = String::from_utf8_lossy(body).trim().to_owned();
    if status == "200 OK" { Ok(message) } else { Err(failed(Kind::Message(message))) }
}

/// Sends a change of one pod to the agent; returns its answer, or why it was refused.
pub(super) fn change(socket: &Path, method: &str, path: &str, body: &[u8]) -> Result<Value, RequestFailure> {
    change_within(LOCAL_RESPONSE_TIMEOUT, socket, method, path, body)
}

/// The same with another timeout.
pub(super) fn change_within(
    patience: Duration,
    socket: &Path,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Value, RequestFailure> {
    let bytes = request(patience, socket, method, path, body)?;
    decode_bytes(&bytes).map_err(|error| {
        let error = LocalApiError { socket: socket.to_owned(), kind: Kind::Malformed(error) };
        RequestFailure::Unreachable(ErrorChain(&error).to_string())
    })
}

/// GETs `path` as it is.
pub(super) fn fetch(socket: &Path, path: &str) -> Result<Vec<u8>, RequestFailure> {
    request(LOCAL_RESPONSE_TIMEOUT, socket, "GET", path, &[])
}

/// The body of a successful answer.
fn request(
    patience: Duration,
    socket: &Path,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Vec<u8>, RequestFailure> {
    let failed =
        |kind| RequestFailure::Unreachable(ErrorChain(&LocalApiError { socket: socket.to_owned(), kind }).to_string());
    let bytes = exchange(socket, method, path, body, patience)
        .map_err(|error| RequestFailure::Unreachable(ErrorChain(&LocalApiError::from_io(socket, error)).to_string()))?;
    let (status, body) = parse_response(&bytes).ok_or_else(|| failed(Kind::CutShort))?;
    if !status.starts_with('2') {
        let line = String::from_utf8_lossy(body).trim_end().to_owned();
        return Err(if status.starts_with("404") {
            RequestFailure::Missing(line)
        } else {
            RequestFailure::Rejected(line)
        });
    }
    Ok(body.to_vec())
}

/// Why nothing was changed, as one line.
#[derive(Debug)]
pub(super) enum RequestFailure {
    /// The agent could not be reached.
    Unreachable(String),
    /// The agent has no such pod.
    Missing(String),
    Rejected(String),
}

impl RequestFailure {
    pub(super) fn line(self) -> String {
        match self {
            Self::Unreachable(line) | Self::Missing(line) | Self::Rejected(line) => line,
        }
    }
}

/// The socket unless the command line names one: that of the environment, or the default.
pub(super) fn default_socket() -> PathBuf {
    std::env::var_os("CORACLE_SOCKET")
        .filter(|path| !path.is_empty())
        .map_or_else(|| LOCAL_SOCKET.into(), PathBuf::from)
}

/// The path of a pod or of a resource below it.
pub(super) fn pod_path(namespace: &str, name: &str, more: &str) -> String {
    format!("/pods/{}/{}{more}", escaped(namespace), escaped(name))
}

/// Escaped for a path or query.
pub(super) fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let escape = |byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

fn exchange(socket: &Path, method: &str, path: &str, body: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    stream.write_all(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n").as_bytes())?;
    // The agent may answer a refused request before it has read the whole body.
    let sent = stream.write_all(body);
    let mut bytes = Vec::new();
    stream.take(MAX_LOCAL_RESPONSE_BYTES).read_to_end(&mut bytes)?;
    if bytes.is_empty() { sent.map(|()| bytes) } else { Ok(bytes) }
}

#[derive(Debug)]
pub(super) struct LocalApiError {
    socket: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    NotRunning(io::Error),
    NotAllowed(io::Error),
    NoAnswer(io::Error),
    CutShort,
    Refused(String),
    /// The agent's message.
    Message(String),
    Malformed(DecodeError),
}

impl LocalApiError {
    /// The agent answered, with its own message.
    pub(super) fn is_of_the_agent(&self) -> bool {
        matches!(self.kind, Kind::Message(_))
    }

    /// An error of connecting to the socket or reading from it.
    pub(super) fn from_io(socket: &Path, error: io::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Kind::NotRunning(error),
            ErrorKind::PermissionDenied => Kind::NotAllowed(error),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => Kind::CutShort,
            _ => Kind::NoAnswer(error),
        };
        Self { socket: socket.to_owned(), kind }
    }
}

impl fmt::Display for LocalApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.socket.display();
        match &self.kind {
            Kind::NotRunning(_) => write!(f, "not running, or listening on another socket (--local-socket): {socket}"),
            Kind::NotAllowed(_) => write!(f, "permission denied, only root has access (try sudo): {socket}"),
            Kind::NoAnswer(_) => write!(f, "no answer from {socket}"),
            // The agent closes connections of users other than its own and root.
            Kind::CutShort => write!(f, "no answer from {socket}: connection closed (only root has access)"),
            Kind::Message(line) => f.write_str(line),
            Kind::Refused(status) => write!(f, "{socket} answers {status}"),
            Kind::Malformed(_) => write!(f, "invalid answer from {socket}"),
        }
    }
}

impl error::Error for LocalApiError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.kind {
            Kind::NotRunning(error) | Kind::NotAllowed(error) | Kind::NoAnswer(error) => Some(error),
            Kind::Malformed(error) => Some(error),
            Kind::CutShort | Kind::Refused(_) | Kind::Message(_) => None,
        }
    }
}

/// How often a command with -w asks.
pub(super) const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Longer than the agent's own timeout.
const LOCAL_RESPONSE_TIMEOUT: Duration = Duration::from_secs(12);
/// Size limit of an answer, far above that of a full node.
const MAX_LOCAL_RESPONSE_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::rc::Rc;

    use super::*;
    use crate::control::server::{
        AnswerFuture, DeviceEntry, ImageEntry, JobRows, LocalApi, LocalServer, LogQuery, LogSource, MissingImage,
        NodeStatus, NotFound, Page, PodEntry, PodQuery, SyncStatus,
    };
    use crate::kubelet::status::{LogUnavailable, NoLog};
    use crate::platform::rt::{block_on, blocking, either};
    use crate::state::pods::{PodAnswer, PodChange};
    use crate::types::api::Event;

    struct Empty;

    impl LocalApi for Empty {
        fn jobs(&self) -> JobRows {
            JobRows::default()
        }

        fn devices(&self) -> Vec<DeviceEntry> {
            Vec::new()
        }

        fn status(&self) -> NodeStatus {
            NodeStatus { node: "n".to_owned(), ..NodeStatus::default() }
        }

        fn pods(&self, _each: &mut dyn FnMut(PodEntry)) {}

        fn running_pods(&self, _each: &mut dyn FnMut(Value)) {}

        fn events(&self, _each: &mut dyn FnMut(Event)) {}

        fn page(&self, _page: Page) -> Pin<Box<dyn Future<Output = Vec<u8>>>> {
            Box::pin(async { Vec::new() })
        }

        fn images(&self) -> AnswerFuture<Vec<ImageEntry>> {
            Box::pin(async { Ok(vec![ImageEntry { id: "a".to_owned(), ..ImageEntry::default() }]) })
        }

        fn missing_images(&self) -> AnswerFuture<Vec<MissingImage>> {
            Box::pin(async { Ok(vec![MissingImage { image: "a:1".to_owned(), pods: Vec::new() }]) })
        }

        fn pull_image(&self, _name: String) -> AnswerFuture<String> {
            Box::pin(async { Err("no registry".to_owned()) })
        }

        fn remove_image(&self, name: String) -> AnswerFuture<String> {
            Box::pin(async move { Err(format!("image {name} stays")) })
        }

        fn sync(&self, _wait: bool) -> AnswerFuture<SyncStatus> {
            Box::pin(async { Ok(SyncStatus::default()) })
        }

        fn log(&self, query: &LogQuery) -> Result<LogSource, LogUnavailable> {
            let LogQuery { pod, container, .. } = query;
            Err(LogUnavailable { pod: pod.clone(), container: container.clone(), why: NoLog::NoPod })
        }

        fn change(&self, change: PodChange) -> Pin<Box<dyn Future<Output = PodAnswer>>> {
            Box::pin(async move { PodAnswer::Refused(format!("{change:?}")) })
        }

        fn running_container(&self, _: &PodQuery, _: &str) -> Result<String, NotFound> {
            Err(NotFound::Pod)
        }

        fn sandbox(&self, _: &PodQuery) -> Result<String, NotFound> {
            Err(NotFound::Pod)
        }
    }

    #[test]
    fn answer_is_decoded_and_unknown_path_refused() {
        let socket = std::env::temp_dir().join(format!("coracle-local-api-{}/c.sock", std::process::id()));
        let server = LocalServer::bind(&socket, None).unwrap();
        let serve = async {
            server.serve(Rc::new(Empty)).await;
            unreachable!("serves for ever")
        };
        let here = socket.clone();
        let client = blocking(move || (get::<NodeStatus>(&here, "/status"), get::<NodeStatus>(&here, "/x")));
        let (status, refused) = block_on(either(serve, client));
        std::fs::remove_dir_all(socket.parent().unwrap()).unwrap();
        let missing = vec![MissingImage { image: "a:1".to_owned(), pods: Vec::new() }];
        assert_eq!(status.unwrap(), NodeStatus { missing_images: Some(missing), ..Empty.status() });
        let line = format!("{} answers 404 Not Found", socket.display());
        assert_eq!(ErrorChain(&refused.unwrap_err()).to_string(), line);
    }

    #[test]
    fn change_is_sent_with_its_body_and_a_refusal_has_the_agents_message() {
        let socket = std::env::temp_dir().join(format!("coracle-change-{}/c.sock", std::process::id()));
        let server = LocalServer::bind(&socket, None).unwrap();
        let serve = async {
            server.serve(Rc::new(Empty)).await;
            unreachable!("serves for ever")
        };
        let here = socket.clone();
        let client = blocking(move || {
            let put = change(&here, "PUT", &pod_path("default", "a b", ""), b"x");
            (put, change(&here, "PUT", "/nowhere", b"x"), change(&here, "GET", "/x", b""))
        });
        let (put, nowhere, missing) = block_on(either(serve, client));
        std::fs::remove_dir_all(socket.parent().unwrap()).unwrap();
        let line = "PodChange { namespace: \"default\", name: \"a b\", kind: Put([120]) }";
        assert!(matches!(put, Err(RequestFailure::Rejected(message)) if message == line));
        assert_eq!(nowhere.unwrap_err().line(), "only GET is answered here");
        assert!(matches!(missing, Err(RequestFailure::Missing(_))));
    }

    #[test]
    fn missing_agent_is_reported_in_one_line() {
        let error = get::<Value>(Path::new("/nowhere/c.sock"), "/pods").unwrap_err();
        let line = "not running, or listening on another socket (--local-socket): /nowhere/c.sock: No such file or directory (os error 2)";
        assert_eq!(ErrorChain(&error).to_string(), line);
    }
}
