//! What the servers need from the node agent.

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use async_channel::Receiver;

use super::image_entries::{ImageEntry, MissingImage};
use super::log_query::LogQuery;
use super::metrics_pages::Page;
use super::node_status::NodeStatus;
use super::sync_status::SyncStatus;
use crate::kubelet::status::{LogUnavailable, PodProblem};
use crate::state::pods::{PodAnswer, PodChange};
use crate::types::api::{Event, record};

/// Pods, images and metrics of the node. The node agent implements it.
pub(crate) trait LocalApi {
    fn status(&self) -> NodeStatus;

    /// Calls `each` for every pod, so that only the encoded list is held in memory.
    fn pods(&self, each: &mut dyn FnMut(PodEntry));

    /// Calls `each` for every pod of the runtime, as a minimal v1.Pod.
    fn running_pods(&self, each: &mut dyn FnMut(serde_json::Value));

    /// Calls `each` for every event, oldest first.
    fn events(&self, each: &mut dyn FnMut(Event));

    /// Every device of this node.
    fn devices(&self) -> Vec<DeviceEntry>;

    /// Every Job of this node.
    fn jobs(&self) -> JobRows;

    /// The bytes of a metrics page, computed when awaited.
    fn page(&self, page: Page) -> Pin<Box<dyn Future<Output = Vec<u8>>>>;

    /// Every image of the runtime. The error is one line.
    fn images(&self) -> AnswerFuture<Vec<ImageEntry>>;

    /// The images that known pods need and the runtime does not have. The error is one line.
    fn missing_images(&self) -> AnswerFuture<Vec<MissingImage>>;

    /// Pulls the image for a user. Returns its id. The error is one line.
    fn pull_image(&self, name: String) -> AnswerFuture<String>;

    /// Removes the image of this name. Returns its id. The error is one line.
    fn remove_image(&self, name: String) -> AnswerFuture<String>;

    /// Starts an exchange with the API server, if none is running. With `wait`, returns after it has ended.
    fn sync(&self, wait: bool) -> AnswerFuture<SyncStatus>;

    /// The log file of a container.
    fn log(&self, query: &LogQuery) -> Result<LogSource, LogUnavailable>;

    /// The runtime's id of the running container of this name.
    fn running_container(&self, pod: &PodQuery, name: &str) -> Result<String, NotFound>;

    /// Carries out a change of one pod when awaited, and returns the result.
    fn change(&self, change: PodChange) -> Pin<Box<dyn Future<Output = PodAnswer>>>;

    /// Updates or restores the agent itself. Returns what happens next, or why nothing does, as one line.
    fn update_agent(&self, _request: AgentRequest) -> AnswerFuture<String> {
        Box::pin(std::future::ready(Err("not supported here".to_owned())))
    }

    /// The id of the pod's sandbox, if it is ready.
    fn sandbox(&self, pod: &PodQuery) -> Result<String, NotFound>;
}

/// A result that takes a while. The error is one line.
pub(crate) type AnswerFuture<T> = Pin<Box<dyn Future<Output = Result<T, String>>>>;

/// A request about the agent itself. A digest names a file that is stored already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentRequest {
    Config {
        digest: String,
        within: Duration,
    },
    Program {
        digest: String,
        version: String,
        within: Duration,
    },
    RollBack,
    /// A trial of the runtime's configuration has ended.
    RuntimeVerdict,
    Url {
        url: String,
        within: Duration,
        allow_downgrade: bool,
    },
}

/// A pod named by a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodQuery {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// If set, a pod of the same name with another uid does not match.
    pub(crate) uid: Option<String>,
}

impl PodQuery {
    pub(crate) fn new(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.map(str::to_owned) }
    }
}

/// What was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotFound {
    Pod,
    Container(String),
}

/// A log on disk.
pub(crate) struct LogSource {
    pub(crate) log: PathBuf,
    /// Closes when the container no longer runs.
    pub(crate) ended: Receiver<()>,
}

record! {
    /// The response of `/devices`.
    pub(crate) struct DeviceEntries {
        pub(crate) devices: Vec<DeviceEntry>,
    }
}

record! {
    /// One device of `/devices`.
    pub(crate) struct DeviceEntry {
        pub(crate) resource: String,
        /// The device file, or the id that the plugin gave.
        pub(crate) device: String,
        pub(crate) healthy: bool,
        pub(crate) attributes: serde_json::Map<String, serde_json::Value>,
        /// The container or claim that has it, such as `default/web-node1/main` or `claim default/camera`.
        pub(crate) used_by: String,
    }
}

record! {
    /// The response of `/jobs`.
    pub(crate) struct JobRows {
        pub(crate) jobs: Vec<JobRow>,
        pub(crate) cron_jobs: Vec<CronJobRow>,
    }
}

record! {
    /// One Job of `/jobs`.
    pub(crate) struct JobRow {
        pub(crate) namespace: String,
        pub(crate) name: String,
        /// `Running` or `Suspended`, or of a finished Job `Complete` or `Failed`.
        pub(crate) status: String,
        /// Why it has failed.
        pub(crate) reason: String,
        /// Unset for a work queue.
        pub(crate) completions: Option<u32>,
        pub(crate) active: u32,
        pub(crate) succeeded: u32,
        pub(crate) failed: u32,
        /// Unix times; unset while the clock is not set.
        pub(crate) start_time: Option<i64>,
        pub(crate) completion_time: Option<i64>,
    }
}

record! {
    /// One CronJob of `/jobs`.
    pub(crate) struct CronJobRow {
        pub(crate) namespace: String,
        pub(crate) name: String,
        pub(crate) schedule: String,
        /// The node's own if unset.
        pub(crate) time_zone: Option<String>,
        pub(crate) suspend: bool,
        /// Jobs that have not finished.
        pub(crate) active: u32,
        /// Unix times. The next is unset while the clock is not set, the CronJob is suspended or waits for a Job's end.
        pub(crate) last_schedule_time: Option<i64>,
        pub(crate) next_schedule_time: Option<i64>,
        /// Why no Job starts.
        pub(crate) problem: String,
    }
}

record! {
    /// One pod of `/pods`.
    pub(crate) struct PodEntry {
        /// The pod's origin, such as `file:/etc/kubernetes/manifests/web.yaml`.
        pub(crate) source: String,
        /// The v1.Pod object with its status.
        pub(crate) pod: serde_json::Value,
        /// Why it does not run as wanted.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) problem: Option<PodProblem>,
        /// A user has stopped it.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub(crate) is_stopped: bool = "stopped",
    }
}
