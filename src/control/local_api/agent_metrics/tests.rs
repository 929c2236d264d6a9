//! Compares the pages with those of a kubelet 1.36 (`tests/data/upstream-1.36/figures`).

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::control::pod_sources::merge::Sources;
use crate::kubelet::certificates::CertificateEntry;
use crate::state::pods::{
    ObservedContainer, ObservedPod, ObservedSandbox, SandboxState, SourceName, SourcePod, SourceUpdate,
};
use crate::types::api::{Container, Pod, PodSpec};
use crate::types::metrics::{Count, Timed, parsed};

const METRICS: &str = include_str!("../../../../tests/data/upstream-1.36/figures/metrics.txt");
const PROBES: &str = include_str!("../../../../tests/data/upstream-1.36/figures/metrics-probes.txt");

/// Prefixes of upstream's metrics that are missing on this node's page, and why.
const NOT_ON_THE_PAGE: [(&str, &str); 44] = [
    ("aggregator_", "of an API server's library, which all upstream programs contain"),
    ("apiserver_", "the same"),
    ("cardinality_enforcement_", "of upstream's metrics library"),
    ("disabled_metrics_total", "the same"),
    ("hidden_metrics_total", "the same"),
    ("registered_metrics_total", "the same"),
    ("force_cleaned_failed_volume_", "volumes are read from the disk, not reconstructed"),
    ("reconstruct_volume_", "the same"),
    ("storage_operation_", "the same"),
    ("volume_manager_", "the same"),
    ("volume_operation_", "the same"),
    ("kubelet_orphan_pod_cleaned_volumes", "the same"),
    ("go_", "of Go's runtime"),
    ("workqueue_", "of Go's client library; there are no such queues"),
    ("rest_client_exec_plugin_certificate_", "the log has the failures of a plugin"),
    ("rest_client_exec_plugin_policy_", "the same"),
    ("rest_client_exec_plugin_ttl_", "the same"),
    ("rest_client_rate_limiter_", "requests do not wait for a rate"),
    ("rest_client_request_size_bytes", "coracle_api_server_sent_bytes_total has all of them"),
    ("rest_client_response_size_bytes", "coracle_api_server_received_bytes_total has all of them"),
    ("rest_client_transport_", "there is one connection: coracle_api_server_connections_total"),
    ("kubernetes_feature_enabled", "most gates have no effect here; /configz shows those that are set"),
    ("process_network_", "of the whole machine; /metrics/cadvisor has it"),
    ("process_virtual_memory_max_bytes", "no board sets it"),
    ("kubelet_container_log_filesystem_used_bytes", "/stats/summary has it"),
    ("kubelet_containers_per_pod_count", "kubelet_running_containers has the number"),
    ("kubelet_cri_losing_support", "the oldest supported CRI is the only one"),
    ("kubelet_evented_pleg_", "events of the runtime are no feature of their own"),
    (
        "kubelet_first_network_pod_start_sli_",
        "would compare the API server's clock with the board's, which may be wrong; kubelet_pod_start_duration_seconds counts \
         from when the node saw the pod",
    ),
    ("kubelet_pod_start_sli_", "the same"),
    ("kubelet_pod_start_total_", "the same"),
    ("kubelet_graceful_shutdown_", "the node's conditions and events show it"),
    ("kubelet_http_", "requests are not counted"),
    ("kubelet_websocket_", "the same"),
    ("kubelet_image_manager_", "kubelet_image_pull_duration_seconds counts the pulls"),
    ("kubelet_imagemanager_inmemory_", "pull records are not cached in memory"),
    ("kubelet_imagemanager_ondisk_", "the records are files of image_manager"),
    ("kubelet_volume_metric_collection_", "no pod waits for the measurement of volumes"),
    ("kubelet_lifecycle_handler_", "there is no such fallback"),
    ("kubelet_sleep_action_", "events show it"),
    ("kubelet_node_startup_", "the log has the moments"),
    ("kubelet_pleg_discard_events", "no event is ever discarded: its sender waits"),
    ("kubelet_pleg_pod_relist_duration_seconds", "pods are not relisted one by one"),
    ("kubelet_pod_watch_events_dropped_total", "nothing is ever dropped"),
];

fn sight<'a>(
    records: &'a PodRecords,
    seen: &'a ObservedCache,
    certificates: &'a CertificateStatuses,
) -> AgentMetrics<'a> {
    AgentMetrics {
        node: "n1",
        cgroup_v2: true,
        records,
        pods: PodCounts::default(),
        lost_events: 0,
        store: None,
        leftovers: 0,
        observed: seen,
        cluster: None,
        certificates,
        process: OwnProcess::read(),
        claims: Vec::new(),
        board: Box::leak(Box::default()),
        claims_in_use: ([("gpu.example.com".to_owned(), 1)].into_iter().collect(), 1),
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// Counts every metric at least once.
fn count_everything() {
    for what in [Count::StartedPods, Count::StartedPodsErrors, Count::OrphanedPods] {
        metrics::count(what, &[]);
    }
    let one = [Count::AdmissionRejections, Count::Evictions, Count::ImagesCollected, Count::StartedContainers];
    for what in one.into_iter().chain([Count::RuntimeOperations, Count::RuntimeErrors]) {
        metrics::count(what, &["a"]);
    }
    metrics::count(Count::RestartedPods, &[""]);
    metrics::count(Count::StartedContainersErrors, &["ErrImagePull", "container"]);
    metrics::count(Count::TerminatedContainers, &["container", "0", "Completed"]);
    let images = [Count::ImageVolumesFailed, Count::ImageVolumesMounted, Count::ImageVolumesRequested];
    for what in images.into_iter().chain([Count::StartedUserNamespacedPods, Count::StartedUserNamespacedPodsErrors]) {
        metrics::count(what, &[]);
    }
    metrics::count(Count::MustPullChecks, &["credentialPolicyAllowed"]);
    metrics::count(Count::RestRequests, &["200", "h:6443", "GET"]);
    metrics::count(Count::RestRetries, &["503", "h:6443", "GET"]);
    metrics::count(Count::ExecPluginCalls, &["no_error", "0"]);
    metrics::took(Timed::NameLookups, &["h"], Duration::from_millis(7));
    metrics::took(Timed::ServingRotations, &[], Duration::from_secs(86_400));
    metrics::count(Count::Probes, &["main", "default", "web", "u", "Liveness", "failed"]);
    for what in [Timed::PlegIntervals, Timed::PlegRelists, Timed::PodStarts, Timed::PodWorkerStarts] {
        metrics::took(what, &[], Duration::from_millis(7));
    }
    for what in [Timed::StatusSyncs, Timed::TopologyAdmissions] {
        metrics::took(what, &[], Duration::from_millis(7));
    }
    for what in [Timed::ImagePulls, Timed::PodWorkers, Timed::RuntimeOperations, Timed::Sandboxes] {
        metrics::took(what, &["a"], Duration::from_millis(7));
    }
    metrics::took(Timed::RestRequests, &["h:6443", "GET"], Duration::from_millis(7));
    metrics::took(Timed::DraOperations, &["PrepareResources", "false"], Duration::from_millis(7));
    metrics::took(Timed::DraGrpcOperations, &["d", "NodePrepareResources", "OK"], Duration::from_millis(7));
    metrics::took(Timed::Probes, &["main", "default", "web", "Liveness"], Duration::from_millis(7));
    metrics::relisted(1_800_000_000);
}

#[test]
fn metrics_match_upstreams_names_help_and_labels() {
    count_everything();
    let (mut records, certificates) =
        (PodRecords::new(Sources::new(&[SourceName::File])), CertificateStatuses::default());
    records.ending.insert(PodUid::from("u"), Arc::default());
    let mut seen = ObservedCache::default();
    let look = seen.begin();
    let mut pod = ObservedPod::new(PodUid::from("u"), "default", "web");
    *pod.containers = vec![ObservedContainer::seen("c", "main", "s", ContainerState::Running { started_at: 1 })];
    pod.sandboxes = vec![ObservedSandbox {
        id: "s".to_owned(),
        attempt: 0,
        state: SandboxState::Ready,
        created_at: 1,
        host_network: false,
        ips: Vec::new(),
        has_address: false,
        pid: None,
    }];
    seen.observe(pod, &look);
    let ours = parsed::parse(&text(page(&sight(&records, &seen, &certificates))));
    let upstream = parsed::parse_recorded(METRICS);
    let is_left_out = |name: &str| NOT_ON_THE_PAGE.iter().any(|(prefix, _)| name.starts_with(prefix));
    let mut met = 0;
    for (name, family) in &upstream {
        let Some(our) = ours.get(name) else {
            // These metrics have no desired pods to count here.
            let is_empty = matches!(name.as_str(), "kubelet_active_pods" | "kubelet_desired_pods");
            assert!(is_left_out(name) || is_empty, "{name} is missing");
            continue;
        };
        assert!(!is_left_out(name), "{name} is on the page");
        met += 1;
        assert_eq!((&our.help, &our.kind), (&family.help, &family.kind), "{name}");
        assert_eq!(our.label_names(), family.label_names(), "{name}");
    }
    assert!(met >= 25, "{met}");
    assert_eq!(ours["dra_resource_claims_in_use"].value(&[("driver_name", "<any>")]), 1.0);
    assert_eq!(ours["kubelet_running_pods"].value(&[]), 1.0);
    assert_eq!(ours["kubelet_running_containers"].value(&[("container_state", "running")]), 1.0);
    assert_eq!(ours["kubelet_working_pods"].value(&[("lifecycle", "terminating")]), 1.0);
    assert_eq!(ours["kubelet_cgroup_version"].value(&[]), 2.0);
    assert_eq!(ours["kubelet_pleg_last_seen_seconds"].value(&[]), 1_800_000_000.0);
    // No cluster metrics without a cluster.
    assert!(!ours.keys().any(|name| name.starts_with("coracle_api_server_")), "{:?}", ours.keys());
    assert!(ours["coracle_wakeups_total"].value(&[]) >= 0.0);
}

/// Metrics of upstream's source that its idle node does not show and that are missing here, and why.
const NOT_IN_THE_SOURCE: [(&str, &str); 26] = [
    ("authentication_", "of an API server's library, which all upstream programs contain"),
    ("authorization_", "the same"),
    ("kubelet_credential_provider_config_info", "the hash of a file on the node"),
    ("kubelet_podcertificate_states", "events of the pods have the states"),
    ("kubelet_volume_stats_health_status_abnormal", "behind a gate that is off upstream"),
    ("plugin_manager_total_plugins", "the log has registrations of plugins"),
    ("scrape_error", "resource_scrape_error has the same"),
    ("version_info", "kubernetes_build_info has the version"),
    ("csi_operations_seconds", "the time of a driver's calls is not measured"),
    ("kubelet_cgroup_manager_duration_seconds", "writes of cgroup files are not measured"),
    ("kubelet_eviction_stats_age_seconds", "the node is measured for each check"),
    ("kubelet_memory_qos_", "the cgroups have the values"),
    ("kubelet_metrics_provider", "statistics come from one provider"),
    ("kubelet_pod_resources_endpoint_errors_get_allocatable", "the call does not fail"),
    ("kubelet_pod_resources_endpoint_errors_list", "the call does not fail"),
    ("kubelet_started_host_process_containers_", "of Windows"),
    ("csi_node_", "of a feature of 1.37 that is off upstream and that Coracle does not have"),
    ("csi_volume_health_", "the same"),
    ("kubelet_dra_node_", "the same"),
    ("kubelet_partition_", "the same"),
    ("kubelet_pod_checkpoint_", "the same"),
    ("kubelet_pod_pid_limit_applied_total", "the same"),
    ("kubelet_pod_restore_", "the same"),
    ("kubelet_pod_stop_signals_count", "the statuses of containers have the signals"),
    ("kubelet_pod_termination_grace_period_exceeded_total", "events have the reason ExceededGracePeriod"),
    ("pod_status_endpoint_", "of a feature of 1.37 that is off upstream and that Coracle does not have"),
];

#[test]
fn metrics_of_upstreams_source_are_on_the_page_or_declared() {
    let declared: Vec<(&str, &str)> = NOT_ON_THE_PAGE.into_iter().chain(NOT_IN_THE_SOURCE).collect();
    let is_left_out = |name: &str| declared.iter().any(|(prefix, _)| name.starts_with(prefix));
    metrics::processors(1, vec![(0, 1)]);
    let (records, certificates) = (PodRecords::new(Sources::new(&[SourceName::File])), CertificateStatuses::default());
    let seen = ObservedCache::default();
    let text = text(page(&sight(&records, &seen, &certificates)));
    for name in include_str!("../../../../tests/data/upstream-1.36/figures/metric-names.txt").lines() {
        let is_shown = text.contains(&format!("# TYPE {name} ")) || metrics::names().contains(&name);
        // No resize is pending here.
        let is_here = is_shown || name == "kubelet_pod_pending_resizes";
        assert_ne!(is_here, is_left_out(name), "{name}: on the page {is_here}");
    }
    let pages = [
        include_str!("../agent_metrics.rs"),
        include_str!("../../server/kubelet_api/health_metrics.rs"),
        include_str!("../../../kubelet/stats/cadvisor.rs"),
        include_str!("../../../kubelet/stats/cadvisor_families.rs"),
        include_str!("../../../kubelet/stats/resource.rs"),
        include_str!("../../../kubelet/stats/volume_metrics.rs"),
        include_str!("../../../types/metrics/counted.rs"),
    ];
    let newer = include_str!("../../../../tests/data/upstream-1.37/metrics.txt").lines();
    for line in include_str!("../../../../tests/data/upstream-1.36/metrics.txt").lines().chain(newer) {
        let name = line.split(' ').next().unwrap();
        let is_written = pages.iter().any(|page| page.contains(&format!("\"{name}\"")));
        let is_here = text.contains(&format!("# TYPE {name} ")) || metrics::names().contains(&name) || is_written;
        assert_ne!(is_here, is_left_out(name), "{name}: on a page {is_here}");
    }
    let differences = include_str!("../../../../docs/differences-from-upstream.md");
    for (prefix, why) in declared {
        assert!(differences.contains(&format!("`{prefix}")), "docs/differences-from-upstream.md: {prefix}, {why}");
    }
}

#[test]
fn ephemeral_containers_of_all_pods_are_counted() {
    let pod = |containers: usize| SourcePod {
        pod: Arc::new(Pod {
            spec: PodSpec { ephemeral_containers: vec![Container::default(); containers], ..PodSpec::default() },
            ..Pod::default()
        }),
        origin: "API server".into(),
    };
    let mut sources = Sources::new(&[SourceName::Api]);
    sources.receive(SourceUpdate {
        source: SourceName::Api,
        pods: vec![pod(2), pod(0), pod(1)],
        objects: Vec::new(),
        mirrors: Vec::new(),
        problems: Vec::new(),
        unread: Vec::new(),
        complete: true,
        relisted: false,
    });
    let (records, seen) = (PodRecords::new(sources), ObservedCache::default());
    let ours = parsed::parse(&text(page(&sight(&records, &seen, &CertificateStatuses::default()))));
    assert_eq!(ours["kubelet_managed_ephemeral_containers"].value(&[]), 3.0);
}

#[test]
fn probes_have_upstreams_page() {
    count_everything();
    let mut ours = Exposition::default();
    metrics::write_probes(&mut ours);
    started_at(&mut ours, &OwnProcess::read(), ALPHA_START);
    let (ours, upstream) = (parsed::parse(&text(ours.into_bytes())), parsed::parse_recorded(PROBES));
    assert_eq!(ours.keys().collect::<Vec<_>>(), upstream.keys().collect::<Vec<_>>());
    for (name, family) in &upstream {
        assert_eq!((&ours[name].help, &ours[name].kind), (&family.help, &family.kind), "{name}");
        assert_eq!(ours[name].label_names(), family.label_names(), "{name}");
    }
}

#[test]
fn certificate_metrics_show_remaining_time_and_expiry_date() {
    let (records, certificates, seen) =
        (PodRecords::new(Sources::new(&[SourceName::File])), CertificateStatuses::default(), ObservedCache::default());
    certificates.note(
        CertificateKind::Client,
        CertificateEntry { not_after: Some(4_000_000_000), ..CertificateEntry::default() },
    );
    certificates.failed(CertificateKind::Client, "no server".to_owned());
    certificates.failed(CertificateKind::Serving, "no server".to_owned());
    let ours = parsed::parse(&text(page(&sight(&records, &seen, &certificates))));
    let left = ours["kubelet_certificate_manager_client_ttl_seconds"].value(&[]);
    assert!((1e9..3e9).contains(&left), "{left}");
    assert_eq!(ours["kubelet_certificate_manager_client_expiration_renew_errors"].value(&[]), 1.0);
    assert_eq!(ours["kubelet_server_expiration_renew_errors"].value(&[]), 1.0);
    let dates = &ours["coracle_certificate_expiration_timestamp_seconds"];
    assert_eq!(dates.value(&[("certificate", "client")]), 4e9);
    assert_eq!(dates.samples.len(), 1);
    assert!(!ours.contains_key("kubelet_certificate_manager_server_ttl_seconds"), "there is no such certificate");
}
