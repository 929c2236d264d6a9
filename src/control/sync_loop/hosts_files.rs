//! Keeps the names of pods and Services in the hosts files of running pods. Only on a node without a cluster, which has
//! its own names.
//!
//! ```text
//! a status or a Service changed -> the names change -> a second later: files written (blocking) -> HostsWritten
//! ```
//!
//! A container that starts meanwhile gets the newest names with its own file.

use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use crate::control::pod_table::PodTable;
use crate::control::pod_workers::State;
use crate::kubelet::kuberuntime::{HostsUpdate, PodRuntime, update_hosts_files};
use crate::platform::rt;
use crate::state::objects::Objects;
use crate::state::pods::{HostName, HostNames, NamedPod, SyncEvent, host_names};
use crate::types::owned::{Owned, View};

/// Pods that start one after the other change the names of one another: the files are written once for all changes of
/// this time.
const HOSTS_FILES_DELAY: Duration = Duration::from_secs(1);
/// From one write of the files to the next: 110 pods that start would write a megabyte each second.
const HOSTS_FILES_PAUSE: Duration = Duration::from_secs(5);

pub(super) struct HostsFiles {
    /// `None` in a cluster.
    names: Option<Owned<HostNames>>,
    objects: View<Objects>,
    inbox: Sender<SyncEvent>,
    /// Something that names depend on may have changed.
    is_stale: bool,
    /// When the files of the running pods are to be written.
    due: Option<Instant>,
    /// The earliest time of the next write.
    not_before: Option<Instant>,
    writer: Option<rt::Task<()>>,
}

impl HostsFiles {
    pub(super) fn new(names: Owned<HostNames>, objects: View<Objects>, inbox: Sender<SyncEvent>) -> Self {
        Self { names: Some(names), objects, inbox, is_stale: false, due: None, not_before: None, writer: None }
    }

    pub(super) fn set_in_cluster(&mut self) {
        self.names = None;
    }

    pub(super) fn is_in_cluster(&self) -> bool {
        self.names.is_none()
    }

    /// The status of a pod or a Service may have changed.
    pub(super) fn on_change(&mut self) {
        self.is_stale = true;
    }

    pub(super) fn on_written(&mut self) {
        self.writer = None;
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.filter(|_| self.writer.is_none())
    }

    pub(super) fn round(&mut self, pods: &PodTable, now: Instant) {
        let Some(names) = &mut self.names else { return };
        if std::mem::take(&mut self.is_stale) && names.write().replace(of_node(pods, &self.objects.read())) {
            let soon = now.checked_add(HOSTS_FILES_DELAY);
            self.due = self.due.or_else(|| soon.max(self.not_before));
        }
        if self.writer.is_none() && self.due.is_some_and(|due| due <= now) {
            (self.due, self.not_before) = (None, now.checked_add(HOSTS_FILES_PAUSE));
            let updates = updates(pods, &names.read());
            let (runtime, inbox) = (Rc::clone(pods.runtime()), self.inbox.clone());
            self.writer = Some(rt::spawn(write(runtime, updates, inbox)));
        }
    }
}

async fn write(runtime: Rc<PodRuntime>, updates: Vec<HostsUpdate>, inbox: Sender<SyncEvent>) {
    update_hosts_files(&runtime.node, updates).await;
    // Fails only when the agent is ending.
    let _ = inbox.send(SyncEvent::HostsWritten).await;
}

fn of_node(pods: &PodTable, objects: &Objects) -> Vec<HostName> {
    let records = pods.records();
    let running = pods.workers().iter().filter(|worker| worker.state == State::Sync);
    let named = running.filter_map(|worker| {
        let pod = worker.pod.as_deref()?;
        Some(NamedPod { pod, status: records.statuses.status(&pod.metadata.uid)? })
    });
    host_names(&named.collect::<Vec<_>>(), objects.manifest_services())
}

fn updates(pods: &PodTable, names: &HostNames) -> Vec<HostsUpdate> {
    let records = pods.records();
    let running = pods.workers().iter().filter(|worker| worker.state == State::Sync);
    let updates = running.filter_map(|worker| {
        let pod = worker.pod.as_ref()?;
        let ips = &records.statuses.status(&pod.metadata.uid)?.pod_ips;
        let pod_ips = ips.iter().filter_map(|ip| ip.ip.parse().ok()).collect();
        Some(HostsUpdate { pod: pod.clone(), pod_ips, names: names.lines(&pod.metadata.namespace) })
    });
    updates.collect()
}
