//! What the servers ask of the node agent.

use std::path::PathBuf;
use std::pin::Pin;

use async_channel::Receiver;
use serde::{Deserialize, Serialize};

use super::image_entries::{ImageEntry, MissingImage};
use super::log_query::LogQuery;
use super::metrics_pages::Page;
use super::node_status::NodeStatus;
use super::sync_status::SyncStatus;
use crate::state::pods::{PodAnswer, PodChange};
use crate::types::api::Event;

/// Pods, images and figures of the node. The node agent implements it.
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

/// One pod of `/pods`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodEntry {
    /// Where it comes from, as `file:/etc/kubernetes/manifests/web.yaml`.
    pub(crate) source: String,
    /// The v1.Pod object with its status.
    pub(crate) pod: serde_json::Value,
}
