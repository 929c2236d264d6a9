//! exec, attach and port-forward, for the local socket and the kubelet API. The connection is handed over to the
//! runtime's streaming server.
//!
//! Paths and queries are parsed as in pkg/kubelet/server/server.go.

use std::rc::Rc;
use std::time::Duration;

use super::connections::{Reply, UpgradeFuture, UpgradedConnection};
use super::http::{Response, Status};
use super::local_api::{LocalApi, NotFound, PodQuery};
use super::web_sockets::{Streams, WebSocket, is_translated};
use crate::platform::cri::v1::{AttachRequest, ExecRequest};
use crate::platform::cri::{self, RuntimeService};
use crate::platform::net::{Dialer, Url};
use crate::protocol::http1::Request;
use crate::types::api::UriScheme;
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count};

/// A streaming request to the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stream {
    pod: PodQuery,
    kind: StreamKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StreamKind {
    Exec { container: String, command: Vec<String>, streams: Streams },
    Attach { container: String, streams: Streams },
    PortForward { ports: Vec<i32> },
}

/// The connection to the runtime.
#[derive(Clone, Debug)]
pub(crate) struct Streaming {
    pub(crate) cri: RuntimeService,
    pub(crate) dialer: Dialer,
    /// `ExtendWebSocketsToKubelet`.
    pub(crate) translates_web_sockets: bool,
}

/// Time limit for connecting to the runtime's streaming server, which is on this machine.
const STREAM_DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// `None` for any other path.
pub(super) fn stream(request: &Request, api: &dyn LocalApi, streaming: &Streaming) -> Option<Reply> {
    Some(match Stream::of(request)? {
        Ok(_) if !matches!(&*request.method, "GET" | "POST") => Reply::Whole(Response::not_allowed()),
        Ok(stream) => Reply::Upgrade(stream.upgrade(request, api, streaming)),
        Err(refused) => Reply::Whole(refused),
    })
}

impl Stream {
    /// `None` for any other path.
    fn of(request: &Request) -> Option<Result<Self, Response>> {
        let parts: Vec<&str> = request.path.strip_prefix('/')?.split('/').collect();
        let (verb, pod, container) = match *parts.as_slice() {
            ["portForward", namespace, pod] => ("portForward", PodQuery::new(namespace, pod, None), ""),
            ["portForward", namespace, pod, uid] => ("portForward", PodQuery::new(namespace, pod, Some(uid)), ""),
            [verb @ ("exec" | "attach"), namespace, pod, container] => {
                (verb, PodQuery::new(namespace, pod, None), container)
            }
            [verb @ ("exec" | "attach"), namespace, pod, uid, container] => {
                (verb, PodQuery::new(namespace, pod, Some(uid)), container)
            }
            _ => return None,
        };
        Some(StreamKind::of(verb, container, request).map(|kind| Self { pod, kind }))
    }

    /// Connects to the runtime's streaming server. The error is the response to the client.
    fn upgrade(self, request: &Request, api: &dyn LocalApi, streaming: &Streaming) -> UpgradeFuture {
        let id = match &self.kind {
            StreamKind::Exec { container, .. } | StreamKind::Attach { container, .. } => {
                api.running_container(&self.pod, container)
            }
            StreamKind::PortForward { .. } => api.sandbox(&self.pod),
        };
        let (streaming, request) = (streaming.clone(), Rc::new(request.clone()));
        Box::pin(async move {
            let id = id.map_err(|absent| not_found_response(&absent))?;
            let is_translated = streaming.translates_web_sockets && is_translated(&request, self.kind.streams());
            if is_translated {
                metrics::count(Count::WebSocketStreams, &[self.kind.subresource()]);
            }
            let url =
                self.kind.url(&streaming.cri, id).await.map_err(|error| internal(ErrorChain(&error).to_string()))?;
            let unusable =
                || internal(format!("the runtime's streaming server has an address that cannot be used: {url}"));
            let url = Url::parse(&url).filter(|url| url.scheme == UriScheme::Http).ok_or_else(unusable)?;
            let dialed = streaming.dialer.dial(&url.host, url.port(), STREAM_DIAL_TIMEOUT).await;
            let to =
                dialed.map_err(|error| internal(format!("the runtime's streaming server: {}", ErrorChain(&error))))?;
            // No delay: every key press is sent at once.
            let _ = to.set_nodelay(true);
            if is_translated {
                let web_socket = WebSocket::open(&request, self.kind.streams(), to, &url).await;
                let web_socket = web_socket
                    .map_err(|error| internal(format!("the runtime's streaming server: {}", ErrorChain(&error))))?;
                return Ok(UpgradedConnection::Translated(Box::new(web_socket)));
            }
            Ok(UpgradedConnection::Relayed { to, head: request.head_for(&url.target, &url.authority()) })
        })
    }
}

impl StreamKind {
    fn of(verb: &str, container: &str, request: &Request) -> Result<Self, Response> {
        let container = container.to_owned();
        match verb {
            "exec" => {
                // A runtime accepts no other words, so upstream's call of it fails.
                let command = request.exact_query_values("command").ok_or_else(|| Response::not_utf8("command"))?;
                Ok(Self::Exec { container, command, streams: Streams::of(request)? })
            }
            "attach" => Ok(Self::Attach { container, streams: Streams::of(request)? }),
            // SPDY clients name the ports later, one per stream.
            _ => {
                let ports = request.query_values("port");
                let port = |port: &str| port.parse::<u16>().ok().filter(|port| *port > 0).map(i32::from);
                let ports = ports.iter().flat_map(|ports| ports.split(','));
                let wrong = |text: &str| {
                    Response::text(Status::BadRequest, format!("port: expected 1 to 65535, found {text:?}\n"))
                };
                let ports: Result<_, _> = ports.map(|text| port(text).ok_or_else(|| wrong(text))).collect();
                Ok(Self::PortForward { ports: ports? })
            }
        }
    }

    /// `None`: ports are forwarded.
    const fn streams(&self) -> Option<Streams> {
        match self {
            Self::Attach { streams, .. } | Self::Exec { streams, .. } => Some(*streams),
            Self::PortForward { .. } => None,
        }
    }

    /// The label of the metric.
    const fn subresource(&self) -> &'static str {
        match self {
            Self::Attach { .. } => "attach",
            Self::Exec { .. } => "exec",
            Self::PortForward { .. } => "portforward",
        }
    }

    /// Requests the URL of the stream from the runtime.
    async fn url(&self, cri: &RuntimeService, id: String) -> Result<String, cri::Error> {
        let cri = cri.of_pod(&id);
        match self {
            Self::Exec { command, streams: Streams { stdin, stdout, stderr, tty }, .. } => {
                let (cmd, tty, stdin, stdout, stderr) = (command.clone(), *tty, *stdin, *stdout, *stderr);
                cri.exec(&ExecRequest { container_id: id, cmd, tty, stdin, stdout, stderr }).await
            }
            Self::Attach { streams: Streams { stdin, stdout, stderr, tty }, .. } => {
                let (stdin, tty, stdout, stderr) = (*stdin, *tty, *stdout, *stderr);
                cri.attach(&AttachRequest { container_id: id, stdin, tty, stdout, stderr }).await
            }
            Self::PortForward { ports } => cri.port_forward(&id, ports).await,
        }
    }
}

impl Streams {
    fn of(request: &Request) -> Result<Self, Response> {
        let is_set = |key: &str| request.query_value(key).as_deref() == Some("1");
        let (stdin, stdout, tty) = (is_set("input"), is_set("output"), is_set("tty"));
        // A terminal has a single output stream.
        let stderr = is_set("error") && !tty;
        if !(stdin || stdout || stderr) {
            return Err(Response::text(Status::BadRequest, "you must specify at least 1 of stdin, stdout, stderr"));
        }
        Ok(Self { stdin, stdout, stderr, tty })
    }
}

fn internal(text: String) -> Response {
    Response::text(Status::InternalServerError, text + "\n")
}

fn not_found_response(absent: &NotFound) -> Response {
    match absent {
        NotFound::Pod => Response::text(Status::NotFound, "pod does not exist\n"),
        NotFound::Container(name) => internal(format!("container not found ({name:?})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(target: &str) -> Option<Result<Stream, (Status, String)>> {
        let text = format!("POST {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let (request, _) = Request::take(text.as_bytes()).unwrap().unwrap();
        let refused = |refused: Response| (refused.status, String::from_utf8(refused.body).unwrap());
        Stream::of(&request).map(|stream| stream.map_err(refused))
    }

    #[test]
    fn exec_request_has_its_command_and_streams() {
        let stream = of("/exec/ns/web/main?command=sh&command=-c&command=echo+%26%26&input=1&output=1&error=1");
        let streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };
        let command = ["sh", "-c", "echo &&"].map(str::to_owned).to_vec();
        let kind = StreamKind::Exec { container: "main".to_owned(), command, streams };
        assert_eq!(stream, Some(Ok(Stream { pod: PodQuery::new("ns", "web", None), kind })));
        let Some(Ok(terminal)) = of("/attach/ns/web/uid/main?tty=1&output=1&error=1&input=true") else { panic!() };
        let streams = Streams { stdin: false, stdout: true, stderr: false, tty: true };
        let kind = StreamKind::Attach { container: "main".to_owned(), streams };
        assert_eq!(terminal, Stream { pod: PodQuery::new("ns", "web", Some("uid")), kind });
    }

    #[test]
    fn exec_with_a_word_that_is_no_text_is_refused() {
        let refused = of("/exec/ns/web/main?command=rm&command=%FF-dir&output=1");
        assert_eq!(refused, Some(Err((Status::BadRequest, "command: expected UTF-8\n".to_owned()))));
    }

    #[test]
    fn ports_may_be_named_beforehand() {
        let ports = |target: &str| match of(target) {
            Some(Ok(Stream { kind: StreamKind::PortForward { ports }, .. })) => Ok(ports),
            Some(Err((status, _))) => Err(status),
            other => panic!("{other:?}"),
        };
        assert_eq!(ports("/portForward/ns/web"), Ok(vec![]));
        assert_eq!(ports("/portForward/ns/web/uid?port=80,81&port=82"), Ok(vec![80, 81, 82]));
        for wrong in ["0", "65536", "x", ""] {
            assert_eq!(ports(&format!("/portForward/ns/web?port={wrong}")), Err(Status::BadRequest), "{wrong:?}");
        }
    }

    #[test]
    fn exec_without_streams_is_refused_and_other_paths_are_ignored() {
        let (status, text) = of("/exec/ns/web/main?command=a").unwrap().unwrap_err();
        assert_eq!((status, &*text), (Status::BadRequest, "you must specify at least 1 of stdin, stdout, stderr"));
        for path in ["/exec", "/exec/ns/web", "/exec/ns/web/uid/main/x", "/portForward/ns", "/pods", "/"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
