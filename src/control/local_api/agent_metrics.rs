//! The agent's own metrics: `/metrics` and `/metrics/probes`.
//!
//! Metrics use upstream's names where upstream has the same metric. `agent_metrics/tests.rs` lists the upstream metrics
//! that are missing here, and why.

use super::board_metrics::of_board;
use super::node_stats::NodeStats;
use super::shown_pods::each_pod;
use crate::control::pod_table::PodRecords;
use crate::control::server::PodCounts;
use crate::kubelet::certificates::{CertificateKind, CertificateStatuses};
use crate::kubelet::node::BoardHealth;
use crate::kubelet::offline::OfflineStore;
use crate::kubelet::stats::{ClaimUsage, write_claims};
use crate::platform::apiserver::{Client, Rank};
use crate::platform::host::clock;
use crate::platform::host::own_process::OwnProcess;
use crate::state::pods::{ContainerState, ObservedCache};
use crate::types::api::{KUBERNETES_VERSION, PodUid, conditions};
use crate::types::metrics::{self, Exposition, Kind, Labels, Number};
use crate::types::sorted::SortedMap;

/// A snapshot of the data on the pages.
pub(super) struct AgentMetrics<'a> {
    pub(super) node: &'a str,
    pub(super) cgroup_v2: bool,
    pub(super) records: &'a PodRecords,
    pub(super) pods: PodCounts,
    /// Events that were dropped before they reached the API server.
    pub(super) lost_events: u64,
    pub(super) store: Option<&'a OfflineStore>,
    /// Number of directories of former pods that cannot be removed.
    pub(super) leftovers: usize,
    pub(super) observed: &'a ObservedCache,
    pub(super) cluster: Option<&'a Client>,
    pub(super) certificates: &'a CertificateStatuses,
    pub(super) process: OwnProcess,
    pub(super) claims: Vec<ClaimUsage>,
    pub(super) board: &'a BoardHealth,
    /// Prepared ResourceClaims by driver, and their total.
    pub(super) claims_in_use: (SortedMap<String, u64>, u64),
}

impl NodeStats {
    pub(super) fn agent_page(&self, claims: Vec<ClaimUsage>) -> Vec<u8> {
        let (records, seen) = (self.views.records.read(), self.views.observed.read());
        let (node, events) = (&self.runtime.node, self.events.borrow());
        let mut pods = PodCounts::default();
        each_pod(&records, &events, clock::now(), &mut |pod| pods.add(&pod.health));
        page(&AgentMetrics {
            node: &node.node_name,
            cgroup_v2: node.cgroup_v2,
            records: &records,
            pods,
            lost_events: events.lost(),
            store: self.store.as_ref(),
            leftovers: self.views.leftovers.read().len(),
            observed: &seen,
            cluster: self.cluster.as_ref(),
            certificates: &self.certificates,
            process: OwnProcess::read(),
            claims_in_use: self.dra.in_use(),
            claims,
            board: &self.status_inputs.board.borrow(),
        })
    }

    pub(super) fn probes_page(&self) -> Vec<u8> {
        let mut page = Exposition::default();
        metrics::write_probes(&mut page);
        started_at(&mut page, &OwnProcess::read(), ALPHA_START);
        page.into_bytes()
    }
}

pub(super) fn page(inputs: &AgentMetrics<'_>) -> Vec<u8> {
    let mut page = Exposition::default();
    of_node(&mut page, inputs);
    of_pods(&mut page, inputs);
    of_resizes(&mut page, inputs.records);
    of_containers(&mut page, inputs.observed);
    metrics::write(&mut page);
    write_claims(&mut page, &inputs.claims);
    of_resource_claims(&mut page, &inputs.claims_in_use);
    of_process(&mut page, &inputs.process);
    of_coracle(&mut page, inputs);
    of_board(&mut page, inputs.board);
    page.into_bytes()
}

fn of_resource_claims(page: &mut Exposition, (by_driver, total): &(SortedMap<String, u64>, u64)) {
    page.family(
        "dra_resource_claims_in_use",
        Kind::Gauge,
        "[ALPHA] The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label \
         value) and across all drivers (special value <any> for driver_name). Note that the sum of all by-driver counts is \
         not the total number of in-use ResourceClaims because the same ResourceClaim might use devices from different \
         drivers. Instead, use the count for the <any> driver_name.",
    );
    let any = [("<any>", total)].into_iter();
    for (driver, count) in any.chain(by_driver.iter().map(|(driver, count)| (driver.as_str(), count))) {
        page.sample(&Labels::of(&[("driver_name", driver)]), Number::Whole(*count));
    }
}

fn of_node(page: &mut Exposition, inputs: &AgentMetrics<'_>) {
    page.family("kubelet_node_name", Kind::Gauge, "[ALPHA] The node's name. The count is always 1.");
    page.sample(&Labels::of(&[("node", inputs.node)]), Number::Whole(1));
    page.family("kubelet_cgroup_version", Kind::Gauge, "[ALPHA] cgroup version on the hosts.");
    page.sample(&Labels::default(), Number::Whole(if inputs.cgroup_v2 { 2 } else { 1 }));
    page.family(
        "kubernetes_build_info",
        Kind::Gauge,
        "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build \
         date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
    );
    let mut version = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (version.next().unwrap_or_default(), version.next().unwrap_or_default());
    let platform = ["linux/", std::env::consts::ARCH].concat();
    let build = Labels::of(&[
        ("build_date", ""),
        ("compiler", "rustc"),
        ("git_commit", ""),
        ("git_tree_state", ""),
        ("git_version", KUBERNETES_VERSION),
        ("go_version", ""),
        ("major", major),
        ("minor", minor),
        ("platform", &platform),
    ]);
    page.sample(&build, Number::Whole(1));
    if let Some(time) = metrics::last_relist() {
        let help = "[ALPHA] Timestamp in seconds when PLEG was last seen active.";
        page.family("kubelet_pleg_last_seen_seconds", Kind::Gauge, help);
        page.sample(&Labels::default(), Number::Signed(time));
    }
}

fn of_pods(page: &mut Exposition, inputs: &AgentMetrics<'_>) {
    let records = inputs.records;
    let is_over = |uid: &PodUid| records.statuses.status(uid).is_some_and(|status| status.phase.is_terminal());
    let (mut desired, mut active, mut working) = (SortedMap::new(), SortedMap::new(), SortedMap::new());
    let mut ephemeral = 0;
    for pod in records.sources.pods().map(|source| &source.pod) {
        let is_over = is_over(records.running_uid(&pod.metadata.uid));
        let lifecycle = if is_over { "terminated" } else { "sync" };
        *desired.entry(pod.static_label()).or_default() += 1;
        *active.entry(pod.static_label()).or_default() += u64::from(!is_over);
        *working.entry(("desired", lifecycle, pod.static_label())).or_default() += 1;
        ephemeral += pod.spec.ephemeral_containers.len();
    }
    for pod in records.ending.values() {
        *working.entry(("orphan", "terminating", pod.static_label())).or_default() += 1;
    }
    let mut by_source = |name, help, counts: SortedMap<&str, u64>| {
        page.family(name, Kind::Gauge, help);
        for (is_static, count) in counts {
            page.sample(&Labels::of(&[("static", is_static)]), Number::Whole(count));
        }
    };
    by_source(
        "kubelet_active_pods",
        "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new pods. \
         static is true if the pod is not from the apiserver.",
        active,
    );
    by_source(
        "kubelet_desired_pods",
        "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the \
         apiserver.",
        desired,
    );
    let help = "[ALPHA] Current number of ephemeral containers in pods managed by this kubelet.";
    page.family("kubelet_managed_ephemeral_containers", Kind::Gauge, help);
    page.sample(&Labels::default(), Number::Whole(u64::try_from(ephemeral).unwrap_or(u64::MAX)));
    page.family(
        "kubelet_mirror_pods",
        Kind::Gauge,
        "[ALPHA] The number of mirror pods the kubelet will try to create (one per admitted static pod)",
    );
    let mirrors = u64::try_from(records.sources.mirrors().len()).unwrap_or(u64::MAX);
    page.sample(&Labels::default(), Number::Whole(mirrors));
    page.family(
        "kubelet_working_pods",
        Kind::Gauge,
        "[ALPHA] Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is \
         desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been \
         removed from local configuration or force deleted in the API and consumes resources that are not otherwise \
         visible.",
    );
    for ((config, lifecycle, is_static), count) in working {
        let labels = Labels::of(&[("config", config), ("lifecycle", lifecycle), ("static", is_static)]);
        page.sample(&labels, Number::Whole(count));
    }
}

/// Resizes as the pods' conditions show them.
fn of_resizes(page: &mut Exposition, records: &PodRecords) {
    let (mut pending, mut in_progress) = (SortedMap::new(), 0u64);
    let uids = records.sources.pods().map(|source| records.running_uid(&source.pod.metadata.uid));
    for condition in uids.filter_map(|uid| records.statuses.status(uid)).flat_map(|status| &status.conditions) {
        match &*condition.kind {
            conditions::POD_RESIZE_PENDING => {
                *pending.entry(condition.reason.as_str().to_ascii_lowercase()).or_default() += 1;
            }
            conditions::POD_RESIZE_IN_PROGRESS => in_progress += 1,
            _ => {}
        }
    }
    page.family("kubelet_pod_pending_resizes", Kind::Gauge, "[ALPHA] Number of pending resizes for pods.");
    for (reason, count) in &pending {
        page.sample(&Labels::of(&[("reason", reason)]), Number::Whole(*count));
    }
    page.family("kubelet_pod_in_progress_resizes", Kind::Gauge, "[ALPHA] Number of in-progress resizes for pods.");
    page.sample(&Labels::default(), Number::Whole(in_progress));
}

fn of_containers(page: &mut Exposition, observed: &ObservedCache) {
    let mut states = SortedMap::new();
    for container in observed.iter().flat_map(|pod| &pod.containers) {
        let state = match container.state {
            ContainerState::Created => "created",
            ContainerState::Running { .. } => "running",
            ContainerState::Exited(_) => "exited",
            ContainerState::Unknown => "unknown",
        };
        *states.entry(state).or_default() += 1;
    }
    page.family("kubelet_running_containers", Kind::Gauge, "[ALPHA] Number of containers currently running");
    for (state, count) in states {
        page.sample(&Labels::of(&[("container_state", state)]), Number::Whole(count));
    }
    let pods = observed.iter().filter(|pod| pod.ready_sandbox().is_some()).count();
    page.family("kubelet_running_pods", Kind::Gauge, "[ALPHA] Number of pods that have a running pod sandbox");
    page.sample(&Labels::default(), Number::Whole(u64::try_from(pods).unwrap_or(u64::MAX)));
}

fn of_process(page: &mut Exposition, process: &OwnProcess) {
    let cpu = process.cpu_ms.map(|ms| Number::Micros(ms.saturating_mul(1000)));
    let whole = |value: Option<u64>| value.map(Number::Whole);
    for (name, kind, help, value) in [
        ("process_cpu_seconds_total", Kind::Counter, "Total user and system CPU time spent in seconds.", cpu),
        ("process_max_fds", Kind::Gauge, "Maximum number of open file descriptors.", whole(process.most_files)),
        ("process_open_fds", Kind::Gauge, "Number of open file descriptors.", whole(process.open_files)),
        ("process_resident_memory_bytes", Kind::Gauge, "Resident memory size in bytes.", whole(process.resident)),
        ("process_virtual_memory_bytes", Kind::Gauge, "Virtual memory size in bytes.", whole(process.virtual_size)),
    ] {
        page.family(name, kind, help);
        if let Some(value) = value {
            page.sample(&Labels::default(), value);
        }
    }
    started_at(page, process, "Start time of the process since unix epoch in seconds.");
}

fn started_at(page: &mut Exposition, process: &OwnProcess, help: &'static str) {
    page.family("process_start_time_seconds", Kind::Gauge, help);
    if let Some(time) = process.started_at {
        page.sample(&Labels::default(), Number::Signed(time));
    }
}

/// The help text differs between upstream's two pages.
const ALPHA_START: &str = "[ALPHA] Start time of the process since unix epoch in seconds.";

/// Metrics that only Coracle has.
fn of_coracle(page: &mut Exposition, inputs: &AgentMetrics<'_>) {
    page.family("coracle_build_info", Kind::Gauge, "A constant '1' with the version of Coracle.");
    page.sample(&Labels::of(&[("version", env!("CARGO_PKG_VERSION"))]), Number::Whole(1));
    let traffic = inputs.cluster.map(Client::traffic);
    let store = inputs.store.map(OfflineStore::stored);
    for (name, help, value) in [
        (
            "coracle_api_server_connections_total",
            "Connections made to the API server.",
            traffic.map(|traffic| traffic.connections()),
        ),
        (
            "coracle_api_server_received_bytes_total",
            "Bytes received from the API server, including TLS overhead.",
            traffic.map(|traffic| traffic.bytes_received()),
        ),
        (
            "coracle_api_server_sent_bytes_total",
            "Bytes sent to the API server, including TLS overhead.",
            traffic.map(|traffic| traffic.bytes_sent()),
        ),
        ("coracle_disk_written_bytes_total", "Bytes this process has written to disks.", inputs.process.written),
        (
            "coracle_events_lost_total",
            "Events that were dropped before they reached the API server.",
            inputs.cluster.map(|_| inputs.lost_events),
        ),
        (
            "coracle_offline_records_set_aside_total",
            "Records of the offline store that were corrupt or of another version.",
            store.as_ref().map(|store| store.damaged + store.other_format),
        ),
        (
            "coracle_offline_written_bytes_total",
            "Bytes written to the offline store.",
            store.as_ref().map(|store| store.written),
        ),
        ("coracle_wakeups_total", "Wake-ups of the threads of this process.", inputs.process.wakes),
    ] {
        page.family(name, Kind::Counter, help);
        if let Some(value) = value {
            page.sample(&Labels::default(), Number::Whole(value));
        }
    }
    if let Some(gate) = inputs.cluster.map(Client::gate).filter(|gate| gate.budget().is_some()) {
        let help = "Whether this kind of traffic is held back because sync.bytesPerDay is used up.";
        page.family("coracle_sync_left_out", Kind::Gauge, help);
        for rank in Rank::ALL {
            let left_out = gate.left_out().any(|left_out| left_out == rank);
            page.sample(&Labels::of(&[("what", rank.name())]), Number::Whole(left_out.into()));
        }
    }
    let help = "Directories of former pods that cannot be removed; coracle status lists them.";
    page.family("coracle_leftover_directories", Kind::Gauge, help);
    let leftovers = u64::try_from(inputs.leftovers).unwrap_or(u64::MAX);
    page.sample(&Labels::default(), Number::Whole(leftovers));
    of_health(inputs, page);
    of_certificates(inputs.certificates, page);
}

/// What `coracle status` counts.
fn of_health(inputs: &AgentMetrics<'_>, page: &mut Exposition) {
    page.family(
        "coracle_pods",
        Kind::Gauge,
        "Pods by whether they run as wanted; coracle status names those that fail.",
    );
    let PodCounts { running, failing, waiting, done, stopped } = &inputs.pods;
    let counts =
        [("running", running), ("failing", failing), ("waiting", waiting), ("done", done), ("stopped", stopped)];
    for (health, count) in counts {
        page.sample(&Labels::of(&[("health", health)]), Number::Whole(*count));
    }
    page.family("coracle_manifest_errors", Kind::Gauge, "Errors in manifests; coracle status lists them.");
    for source in inputs.records.sources.views() {
        let errors = u64::try_from(source.problems.len()).unwrap_or(u64::MAX);
        page.sample(&Labels::of(&[("source", source.name.as_str())]), Number::Whole(errors));
    }
}

/// Upstream's remaining-seconds gauge, which existing alerts use, and the expiry date, which does not depend on the
/// node's clock.
fn of_certificates(certificates: &CertificateStatuses, page: &mut Exposition) {
    let now = clock::now().unix_seconds();
    for (which, entry) in certificates.entries() {
        let (ttl, errors) = match which {
            CertificateKind::Client => (
                "kubelet_certificate_manager_client_ttl_seconds",
                "kubelet_certificate_manager_client_expiration_renew_errors",
            ),
            CertificateKind::Serving => {
                ("kubelet_certificate_manager_server_ttl_seconds", "kubelet_server_expiration_renew_errors")
            }
        };
        page.family(ttl, Kind::Gauge, "[ALPHA] Seconds until the certificate expires, negative after expiry.");
        if let Some(time) = entry.not_after {
            page.sample(&Labels::default(), Number::Signed(time.saturating_sub(now)));
        }
        page.family(errors, Kind::Counter, "[ALPHA] Failed renewals of the certificate.");
        page.sample(&Labels::default(), Number::Whole(entry.failures));
    }
    page.family(
        "coracle_certificate_expiration_timestamp_seconds",
        Kind::Gauge,
        "Expiry of the node's own certificates, in seconds since the Unix epoch.",
    );
    for (which, entry) in certificates.entries() {
        if let Some(time) = entry.not_after {
            page.sample(&Labels::of(&[("certificate", which.name())]), Number::Signed(time));
        }
    }
}

#[cfg(test)]
mod tests;
