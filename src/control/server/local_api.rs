//! The local door: what this node runs, for root on this machine, without a cluster and without a certificate.
//!
//! HTTP/1.1 on a Unix socket, one request a connection, answered in JSON, for figures in Prometheus' text, or for a log in
//! its own. What the runtime streams is asked for
//! as on port 10250, with SPDY/3.1 or WebSocket from there on; all else but changes of `pod_changes` and of images are GETs:
//!
//! ```text
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/status    a NodeStatus
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/pods      {"pods": [PodEntry, ...]}
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/events    a v1.EventList
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/images    {"images": [ImageEntry, ...]}
//! curl --unix-socket /run/coracle/coracle.sock -X DELETE http://localhost/images?image=NAME
//! curl --unix-socket /run/coracle/coracle.sock -X POST http://localhost/sync?wait=true
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/stats/summary
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/metrics
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/metrics/probes
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/metrics/resource
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/metrics/cadvisor
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/containerLogs/default/web-node1/main?follow=true
//!     /exec/NAMESPACE/POD/CONTAINER?command=sh&input=1&output=1&error=1&tty=1
//!     /attach/NAMESPACE/POD/CONTAINER?input=1&output=1&error=1&tty=1
//!     /portForward/NAMESPACE/POD
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/pods/default/web -T web.yaml
//! curl --unix-socket /run/coracle/coracle.sock http://localhost/pods/default/web -X DELETE
//! ```

use std::cell::Cell;
use std::future::ready;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use async_channel::Receiver;
use serde::{Deserialize, Serialize};

use super::connections::{Answering, Answers, Connections, FEW, Reply, Standing, answer};
use super::container_logs::container_logs;
use super::http::{Response, Status};
use super::images::{self, ArchivesStatus, ImageEntry, MissingImage, images};
use super::local_socket::{LocalError, LocalSocket, is_trusted};
use super::log_query::LogQuery;
use super::metrics_pages::Page;
use super::pod_changes;
use super::streaming::{Streaming, stream};
use super::sync_requests::{SyncStatus, sync};
use super::watchdog::{Stall, WatchdogStatus};
use crate::platform::rt;
use crate::protocol::http1::Request;
use crate::state::pods::{PodAnswer, PodChange};
use crate::types::api::{self, Event};
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

/// What the local door answers; the node agent implements it.
pub(crate) trait LocalApi {
    fn status(&self) -> NodeStatus;

    /// Gives every pod, one at a time, so that the whole list is held only once: as the bytes of the answer.
    fn pods(&self, each: &mut dyn FnMut(PodEntry));

    /// Gives what the runtime has of every pod, as a v1.Pod with little in it.
    fn running_pods(&self, each: &mut dyn FnMut(serde_json::Value));

    /// Gives every event, oldest first.
    fn events(&self, each: &mut dyn FnMut(Event));

    /// A page of figures as its bytes. They are found out when it is awaited.
    fn page(&self, page: Page) -> Pin<Box<dyn Future<Output = Vec<u8>>>>;

    /// Every image of the runtime; an error is one line.
    fn images(&self) -> Found<Vec<ImageEntry>>;

    /// The images that known pods need and the runtime does not have; an error is one line.
    fn missing_images(&self) -> Found<Vec<MissingImage>>;

    /// Removes the image of this name: its id, or one line about why it stays.
    fn remove_image(&self, name: String) -> Found<String>;

    /// Has the cluster asked and told, if it is not anyway; with `wait` until that has ended.
    fn sync(&self, wait: bool) -> Found<SyncStatus>;

    /// Where a container's log is, or why there is none.
    fn log(&self, asked: &LogQuery) -> Result<LogSource, String>;

    /// The container that runs under this name, by the runtime's id.
    fn running_container(&self, pod: &PodQuery, name: &str) -> Result<String, Absent>;

    /// Does something about one pod, and tells what has become of it; it is begun when it is awaited.
    fn change(&self, change: PodChange) -> Pin<Box<dyn Future<Output = PodAnswer>>>;

    /// The pod's sandbox, if it is ready.
    fn sandbox(&self, pod: &PodQuery) -> Result<String, Absent>;
}

/// What takes a while to find out; an error is one line.
pub(crate) type Found<T> = Pin<Box<dyn Future<Output = Result<T, String>>>>;

/// A pod as a path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodQuery {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Another pod of this name is not meant.
    pub(crate) uid: Option<String>,
}

impl PodQuery {
    pub(crate) fn new(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.map(str::to_owned) }
    }
}

/// What is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    Pod,
    Container(String),
}

/// A log on disk.
pub(crate) struct LogSource {
    pub(crate) log: PathBuf,
    /// Closed when its container does not run any more.
    pub(crate) ended: Receiver<()>,
}

/// The answer of `/status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeStatus {
    pub(crate) version: String,
    pub(crate) node: String,
    pub(crate) addresses: Vec<String>,
    /// Of the machine.
    pub(crate) processors: u32,
    pub(crate) uptime_seconds: u64,
    /// Whether the sync loop moves.
    pub(crate) healthy: bool,
    pub(crate) watchdog: WatchdogStatus,
    /// The newest one, of this process or an earlier one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_stall: Option<Stall>,
    pub(crate) runtime: RuntimeStatus,
    /// As in a node's status; none before the first look.
    pub(crate) conditions: Vec<ConditionStatus>,
    pub(crate) sources: Vec<SourceStatus>,
    pub(crate) pods: u64,
    /// Of the node's own pods.
    pub(crate) versions: Vec<VersionStatus>,
    /// Images on their way, in the order in which they were asked for.
    pub(crate) pulls: Vec<PullStatus>,
    pub(crate) image_archives: ArchivesStatus,
    /// None if the runtime did not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing_images: Option<Vec<MissingImage>>,
    /// None without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_server: Option<ApiServerStatus>,
    /// None without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sync: Option<SyncStatus>,
    /// None without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offline: Option<OfflineStatus>,
    /// Those that the node shows to its cluster; none away from one.
    pub(crate) certificates: Vec<CertificateStatus>,
    /// The last errors, oldest first.
    pub(crate) errors: Vec<RecentError>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RuntimeStatus {
    pub(crate) endpoint: String,
    /// Empty until the runtime has answered once.
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) ready: bool,
    pub(crate) network_ready: bool,
    /// Why it is not ready.
    pub(crate) message: String,
}

/// One condition of the node, as a v1.NodeCondition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ConditionStatus {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// `True` or `False`.
    pub(crate) status: String,
    /// RFC 3339.
    pub(crate) last_transition_time: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// One source of pods: a manifest directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SourceStatus {
    pub(crate) name: String,
    pub(crate) pods: u64,
    /// Whether it has reported at least once.
    pub(crate) ready: bool,
    /// What is wrong with it now: each names its file.
    pub(crate) errors: Vec<String>,
}

/// The versions of one of the node's own pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VersionStatus {
    /// As `default/web-node1`.
    pub(crate) pod: String,
    /// `on trial`, `rejected`, `rolled back` or `held`; empty where what the manifest says runs.
    pub(crate) state: String,
    pub(crate) message: String,
    /// Those before the present one that are kept.
    pub(crate) earlier: u64,
}

/// A pull of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PullStatus {
    pub(crate) image: String,
    /// Who wants it.
    pub(crate) pod: String,
    /// False: it waits for its turn.
    pub(crate) begun: bool,
    /// Since it began, or since it was asked for.
    pub(crate) seconds: u64,
}

/// The way to the API server, since this process began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ApiServerStatus {
    /// Host and port; empty until the kubeconfig could be read.
    pub(crate) server: String,
    pub(crate) connected: bool,
    /// Why it is not connected; empty where no try has failed.
    pub(crate) message: String,
    /// Connections that were made.
    pub(crate) connections: u64,
    /// What went over them with TLS, without the headers of TCP and below.
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
}

/// What is stored for a start without the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OfflineStatus {
    /// Pods and what they need.
    pub(crate) records: u64,
    /// On the disk.
    pub(crate) bytes: u64,
    /// Written since this process began.
    pub(crate) written_bytes: u64,
    /// When something in it last changed, RFC 3339; empty while there is nothing.
    pub(crate) changed: String,
    /// The cluster has not been heard since the start: its pods are those that are stored.
    pub(crate) in_use: bool,
    /// Records that were damaged or of another version, and have been set aside.
    pub(crate) set_aside: u64,
    /// Records that no key opens.
    pub(crate) unopened: u64,
    /// Records that did not fit.
    pub(crate) left_out: u64,
    /// What becomes of Secrets and tokens.
    pub(crate) secrets: String,
    /// Why it cannot be read or written; empty if it can.
    pub(crate) message: String,
}

/// One of the node's own certificates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CertificateStatus {
    /// `client` or `serving`.
    pub(crate) name: String,
    pub(crate) state: CertificateState,
    /// RFC 3339; empty where there is none.
    pub(crate) not_after: String,
    /// Why there is none, or none that is newer.
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CertificateState {
    #[default]
    Missing,
    Good,
    /// Good, and to be replaced.
    Due,
    Expired,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RecentError {
    /// RFC 3339.
    pub(crate) time: String,
    pub(crate) message: String,
}

/// One pod of `/pods`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodEntry {
    /// Where it comes from, as `file:/etc/kubernetes/manifests/web.yaml`.
    pub(crate) source: String,
    /// The v1.Pod object with its status.
    pub(crate) pod: serde_json::Value,
}

/// The bound local socket; nothing is answered before [`LocalServer::serve`].
#[derive(Debug)]
pub(crate) struct LocalServer {
    socket: LocalSocket,
    streaming: Option<Streaming>,
}

impl LocalServer {
    pub(crate) fn bind(path: &Path) -> Result<Self, LocalError> {
        LocalSocket::bind(path).map(|socket| Self { socket, streaming: None })
    }

    /// exec, attach and port-forward are answered, too.
    pub(crate) fn with_streaming(self, streaming: Streaming) -> Self {
        Self { streaming: Some(streaming), ..self }
    }

    /// Answers, for ever.
    pub(crate) async fn serve(self, api: Rc<dyn LocalApi>) {
        let mut connections = Connections::new(MOST).with_strangers(FEW);
        // Out of file descriptors, most likely: others have to end first.
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        loop {
            connections.room().await;
            match self.socket.listener.accept().await {
                Ok((stream, _)) => {
                    backoff.reset();
                    if is_trusted(&stream) {
                        let (api, streaming) = (Rc::clone(&api), self.streaming.clone());
                        connections.add(|standing| answer(stream, Visit { api, streaming, standing }));
                    }
                }
                Err(error) => {
                    log!(warn, "local socket failed, trying again", error = ErrorChain(&error));
                    rt::sleep(backoff.next_wait()).await;
                }
            }
        }
    }
}

/// One connection: its request is answered, and that is all.
struct Visit {
    api: Rc<dyn LocalApi>,
    streaming: Option<Streaming>,
    standing: Rc<Cell<Standing>>,
}

impl Answers for Visit {
    fn keeps(&self) -> bool {
        false
    }

    fn takes(&self, request: &Request) -> Option<u64> {
        pod_changes::takes(request)
    }

    fn answer<'a>(&'a self, request: &'a Request) -> Answering<'a> {
        // A log that is followed, or a shell, is not ended for who comes later.
        self.standing.set(Standing::Busy);
        Box::pin(ready(self.reply(request)))
    }
}

impl Visit {
    fn reply(&self, request: &Request) -> Reply {
        let api = &*self.api;
        let streamed = self.streaming.as_ref().and_then(|streaming| stream(request, api, streaming));
        if let Some(reply) = streamed.or_else(|| images(request, api).or_else(|| sync(request, api))) {
            return reply;
        }
        match pod_changes::change(request, true) {
            Some(asked) => reply_to_change(asked, api),
            None if matches!(&*request.method, "GET" | "HEAD") => respond(&request.path, &request.query, api),
            None => Reply::Whole(Response::only_get()),
        }
    }
}

/// Connections at once; of those that have not asked for anything yet there are [`FEW`].
const MOST: usize = 128;

/// Does what was asked about one pod, for any door.
pub(super) fn reply_to_change(asked: Result<PodChange, Response>, api: &dyn LocalApi) -> Reply {
    match asked {
        Ok(change) => {
            let answer = api.change(change);
            Reply::Later(Box::pin(async { pod_changes::response(answer.await) }))
        }
        Err(response) => Reply::Whole(response),
    }
}

fn respond(path: &str, query: &str, api: &dyn LocalApi) -> Reply {
    if let Some(page) = Page::of(path, query) {
        return page_of(page, api);
    }
    if path == "/status" {
        return images::status(api);
    }
    container_logs(path, query, api).unwrap_or_else(|| Reply::Whole(respond_whole(path, api)))
}

/// A page of figures, for any door.
pub(super) fn page_of(page: Page, api: &dyn LocalApi) -> Reply {
    let figures = api.page(page);
    let response =
        async move { Response { status: Status::Ok, content_type: page.content_type(), body: figures.await } };
    Reply::Later(Box::pin(response))
}

/// What is known at once.
pub(super) fn respond_whole(path: &str, api: &dyn LocalApi) -> Response {
    match path {
        "/status" => Response::json(json(&api.status())),
        "/pods" => {
            let mut list = List::new("{\"pods\":[");
            api.pods(&mut |entry| list.push(&json(&entry)));
            Response::json(list.end())
        }
        "/events" => {
            let mut list = List::new("{\"apiVersion\":\"v1\",\"kind\":\"EventList\",\"metadata\":{},\"items\":[");
            api.events(&mut |event| list.push(api::encode_text(&event).as_bytes()));
            Response::json(list.end())
        }
        _ => Response::not_found(),
    }
}

/// The bytes of an object whose last entry is a list, built one item at a time.
pub(super) struct List(Vec<u8>);

impl List {
    pub(super) fn new(head: &str) -> Self {
        Self(head.as_bytes().to_vec())
    }

    pub(super) fn push(&mut self, item: &[u8]) {
        if !self.0.ends_with(b"[") {
            self.0.push(b',');
        }
        self.0.extend_from_slice(item);
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"]}");
        self.0
    }
}

pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    // Fails only for maps whose keys are no strings; there are none.
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
