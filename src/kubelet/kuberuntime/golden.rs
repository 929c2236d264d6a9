//! Compares configurations with those recorded from the upstream kubelet.

use core::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::container_config::{ContainerInput, container_config};
use super::dns::pod_dns;
use super::environment::{Environment, EnvironmentInputs};
use super::pod_index::PodIndex;
use super::resources::may_swap;
use super::sandbox_config::sandbox_config;
use super::security_context::ImageUser;
use crate::control::pod_sources::static_pod::{Object, Origin, read_manifest};
use crate::kubelet::allocation::{ResizeTerms, infeasible};
use crate::kubelet::node::NodeSettings;
use crate::kubelet::volumes::PodVolumes;
use crate::platform::cri::v1::{self, DnsConfig, Mount};
use crate::protocol::protobuf::Message as _;
use crate::state::objects::{Content, ObjectEvent, Objects, SourceObject, Topic};
use crate::state::pods::{HostIps, ObservedPod, SourceName};
use crate::types::api::annotations::SPEC_HASH;
use crate::types::api::{Container, Format, MEMORY, Pod, Quantity, ResourceList, Time, decode};

/// The recorded node: cgroup v1, two CPUs, no QoS cgroups.
pub(crate) fn node() -> NodeSettings {
    let memory = |kib: i64| Quantity::new(kib * 1024, Format::BinarySi);
    let mut allocatable = ResourceList::new();
    allocatable.insert("cpu", Quantity::new(2, Format::DecimalSi));
    allocatable.insert(MEMORY, memory(24_632_892));
    NodeSettings {
        node_name: "node1".to_owned(),
        node_ips: HostIps::new(&[], &["10.77.0.1".parse().unwrap()]),
        root_dir: "/var/lib/kubelet".into(),
        claims_dir: "/opt/local-path-provisioner".into(),
        pod_logs_dir: "/var/log/pods".into(),
        has_cluster: true,
        cluster_dns: vec!["10.96.0.10".parse().unwrap()],
        cluster_domain: "cluster.local".to_owned(),
        resolv_conf: Some("/etc/resolv.conf".into()),
        cpu_cfs_quota: true,
        cpu_cfs_quota_period: Duration::from_millis(100),
        memory_capacity: 24_684_092 << 10,
        allocatable,
        max_pods: 110,
        user_ids_per_pod: 65536,
        huge_page_sizes: vec![2 << 20, 1 << 30],
        cgroup_v2: false,
        swap_limits: true,
        shared_swap: None,
        pod_cgroups: None,
        system_containers: Vec::new(),
        memory_qos: Some(crate::platform::config::MemoryQos::default()),
        single_process_oom_kill: true,
        shares_shims: false,
        selinux: false,
        container_file_label: None,
        seccomp_default: false,
        seccomp_root: "/var/lib/kubelet/seccomp".into(),
        masked_paths: Vec::new(),
    }
}

/// The node with this much allocatable memory.
pub(crate) fn node_with_memory(bytes: u64) -> NodeSettings {
    let mut node = node();
    node.allocatable.insert(MEMORY, Quantity::new(bytes.try_into().unwrap(), Format::BinarySi));
    node
}

/// Creates all configurations of a pod, valid or not; used to test that this terminates.
pub(crate) fn report_everything(pod: &Pod) {
    let (node, objects) = (node(), objects(pod));
    let dns = pod_dns(pod, &node, &DnsConfig::default());
    let _ = sandbox_config(pod, 0, &node, &dns.config);
    let ips = ["10.0.0.2".parse().unwrap()];
    let _ = super::hosts::hosts_file(pod, &ips, &node.cluster_domain, "", "");
    let index = PodIndex::new(pod);
    let volumes = PodVolumes::of_pod(pod);
    for (number, container) in pod.spec.all_containers().enumerate() {
        let inputs =
            EnvironmentInputs { index: &index, pod_ips: &ips, node: &node, objects: &objects, from_files: &[] };
        let Ok(environment) = Environment::new(container, inputs) else { continue };
        // They are planned before the first await.
        drop(volumes.file_values(container));
        let never = Box::pin(std::future::pending());
        drop(volumes.container_mounts(container, &|text: &str| environment.expand_path(text), true, never));
        let _ = container_config(ContainerInput {
            index: &index,
            container,
            is_init: number < pod.spec.init_containers.len(),
            restart_count: u32::MAX,
            image_ref: "sha256:1",
            image_user: &ImageUser::Uid(0),
            environment,
            mounts: Vec::new(),
            target: None,
            node: &node,
        });
    }
    // Adding the grace period to a time must not overflow.
    let _ = Instant::now() + pod.spec.termination_grace();
}

/// The containers of a pod stop in their order.
pub(crate) fn stop_everything(pod: &Pod) {
    let running: Vec<&str> = pod.spec.all_containers().map(|container| container.name.as_str()).collect();
    let turns = super::stop_order::stop_order(Some(&pod.spec), &running);
    // Sidecars come first among these, and stop last.
    turns.into_iter().rev().for_each(drop);
}

/// The runtime lists all containers, which are known.
pub(crate) fn list_everything(observed: &ObservedPod) {
    let listed = observed.containers.iter().rev().map(|container| v1::Container {
        id: container.id.clone(),
        state: v1::ContainerState::Running,
        ..Default::default()
    });
    let mut listed = super::observe::listed(&observed.uid, &[], &listed.collect::<Vec<_>>());
    super::observe::add_unlisted_details(&mut listed, observed);
    assert!(listed.containers.iter().all(|container| !container.name.is_empty()));
}

/// The pod as it is allocated and as it is wanted, with other memory of all containers.
pub(crate) fn resized(pod: &Pod) -> [Pod; 2] {
    let with_memory = |mebibytes: i64| {
        let mut pod = pod.clone();
        for container in pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers) {
            let resources = &mut container.resources;
            for list in [&mut resources.requests, &mut resources.limits] {
                list.insert(MEMORY, Quantity::new(mebibytes << 20, Format::BinarySi));
            }
        }
        pod
    };
    [1, 2].map(with_memory)
}

/// Whether the resize can be done on a node with swap, where no container swaps.
pub(crate) fn can_resize([allocated, wanted]: &[Pod; 2]) -> bool {
    let node = NodeSettings { shared_swap: Some(1 << 30), cgroup_v2: true, ..node() };
    let index = PodIndex::new(allocated);
    let swaps = |container: &Container| may_swap(&index, container, &node);
    let terms = ResizeTerms { has_static_cpu_manager: false, has_static_memory_manager: false, swaps: &swaps };
    infeasible(allocated, wanted, terms).is_none()
}

/// The recorded objects; other objects that `pod` refers to are known to be missing.
fn objects(pod: &Pod) -> Objects {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/manifests/00-objects.yaml");
    let origin = Origin { source: SourceName::File, path, node_name: "node1", config_seen: "", board_key: None };
    let read = read_manifest(&std::fs::read(path).unwrap(), &origin).unwrap().into_iter();
    let configs = read.filter_map(|object| match object.object {
        Ok(Object::Config(config)) => Some(config),
        Ok(Object::Agent(_) | Object::Pod(_) | Object::Workload(_)) | Err(_) => None,
    });
    let since = Time::from_timestamp(crate::types::timestamp::Timestamp::UNIX_EPOCH);
    let configs: Vec<SourceObject> =
        configs.map(|object| SourceObject { object: Arc::new(object), origin: path.into(), since }).collect();
    let mut objects = Objects::default();
    objects.replace(&configs);
    for topic in Topic::of(pod) {
        objects.on_event(ObjectEvent::Received(topic, None));
    }
    for SourceObject { object, .. } in configs {
        let topic = Topic::Object(object.key.clone());
        objects.on_event(ObjectEvent::Received(topic, Some(Content::Object(object))));
    }
    objects
}

/// A recorded pod with its configurations.
struct Recording {
    pod: Pod,
    pod_ips: Vec<IpAddr>,
    sandbox: Value,
    containers: Vec<Value>,
}

impl Recording {
    fn read(name: &str) -> Self {
        let path = format!("{}/tests/data/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let mut all: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let pod = decode(all["pod"].take()).unwrap();
        assert_eq!(pod.unknown, [""; 0], "{name}");
        Self {
            pod: pod.value,
            pod_ips: serde_json::from_value(all["podIPs"].take()).unwrap(),
            sandbox: all["sandbox"].take(),
            containers: decode(all["containers"].take()).unwrap().value,
        }
    }
}

#[track_caller]
fn check(name: &str) {
    let recording = Recording::read(name);
    let Recording { pod, sandbox, .. } = &recording;
    // The resolver file of the recorded host has only this line.
    let dns = pod_dns(pod, &node(), &DnsConfig { servers: vec!["10.96.0.10".to_owned()], ..DnsConfig::default() });
    assert_eq!(dns.warnings, []);
    let attempt = sandbox["metadata"]["attempt"].as_u64().unwrap_or(0);
    let mut made = sandbox_config(pod, attempt.try_into().unwrap(), &node(), &dns.config).unwrap();
    made.annotations.remove(SPEC_HASH);
    same(&format!("sandbox of {name}"), made.json(), sandbox.clone());
    for recorded in &recording.containers {
        check_container(&recording, recorded);
    }
}

fn check_container(recording: &Recording, recorded: &Value) {
    let pod = &recording.pod;
    let name = recorded["metadata"]["name"].as_str().unwrap();
    let container = pod.spec.all_containers().find(|container| container.name == name).unwrap();
    let index = PodIndex::new(pod);
    let (pod_ips, node, objects) = (&recording.pod_ips, node(), objects(pod));
    let inputs = EnvironmentInputs { index: &index, pod_ips, node: &node, objects: &objects, from_files: &[] };
    let input = ContainerInput {
        index: &index,
        container,
        is_init: pod.spec.init_containers.iter().any(|init| init.name == name),
        restart_count: recorded["metadata"]["attempt"].as_u64().unwrap_or(0).try_into().unwrap(),
        image_ref: recorded["image"]["image"].as_str().unwrap(),
        image_user: &ImageUser::Uid(0),
        environment: Environment::new(container, inputs).unwrap(),
        mounts: recorded_mounts(&recorded["mounts"]),
        target: None,
        node: &node,
    };
    let mut made = container_config(input).unwrap();
    made.annotations.remove(SPEC_HASH);
    // The recorded runtime did not know this field.
    let image = std::mem::take(&mut made.image.as_mut().unwrap().user_specified_image);
    assert_eq!(image, container.image);
    // Upstream iterates a Go map, so its order is random.
    made.envs.sort_by(|one, other| one.key.cmp(&other.key));
    let envs: Vec<Value> = made
        .envs
        .drain(..)
        .map(|env| {
            serde_json::json!({
                "key": env.key, "value": String::from_utf8(env.value).unwrap()
            })
        })
        .collect();
    let mut recorded = recorded.clone();
    let mut recorded_envs = match recorded.as_object_mut().unwrap().remove("envs") {
        Some(Value::Array(envs)) => envs,
        _ => Vec::new(),
    };
    recorded_envs.sort_by(|one, other| one["key"].as_str().cmp(&other["key"].as_str()));
    assert_eq!(envs, recorded_envs, "environment of {name}");
    same(&format!("container {name}"), made.json(), recorded);
}

fn recorded_mounts(recorded: &Value) -> Vec<Mount> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mount = |recorded: &Value| Mount {
        container_path: text(&recorded["container_path"]),
        host_path: text(&recorded["host_path"]),
        readonly: recorded["readonly"] == true,
        ..Mount::default()
    };
    recorded.as_array().unwrap().iter().map(mount).collect()
}

/// Asserts equality and lists the fields that differ.
#[track_caller]
fn same(subject: &str, made: Value, recorded: Value) {
    let mut differences = Vec::new();
    compare("", &made, &recorded, &mut differences);
    assert!(differences.is_empty(), "{subject}:\n{}", differences.join("\n"));
}

fn compare(path: &str, made: &Value, recorded: &Value, differences: &mut Vec<String>) {
    if let (Value::Object(one), Value::Object(other)) = (made, recorded) {
        for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
            let path = format!("{path}.{key}");
            compare(&path, one.get(key).unwrap_or(&Value::Null), other.get(key).unwrap_or(&Value::Null), differences);
        }
    } else if made != recorded {
        differences.push(format!("{path}: made {made}, recorded {recorded}"));
    }
}

macro_rules! recordings {
    ($($test:ident = $name:literal;)*) => { $(
        #[test]
        fn $test() {
            check($name);
        }
    )* };
}

recordings! {
    a_burstable_pod_is_sent_as_recorded = "running";
    a_guaranteed_pod_is_sent_as_recorded = "guaranteed";
    a_pod_in_the_hosts_namespaces_is_sent_as_recorded = "hostnetwork";
    host_ports_are_sent_as_recorded = "hostport";
    a_shared_pid_namespace_and_a_terminal_are_sent_as_recorded = "share-pid";
    security_contexts_are_sent_as_recorded = "security";
    init_containers_and_sidecars_are_sent_as_recorded = "init-sidecar";
    restarted_containers_are_sent_as_recorded = "on-failure";
    hooks_are_sent_as_recorded = "hooks";
    a_hostname_and_resolver_settings_are_sent_as_recorded = "dns-hosts";
    a_static_pod_is_sent_as_recorded = "static-one-node1";
    variables_are_sent_as_recorded = "env";
    a_group_for_volumes_is_sent_as_recorded = "volumes";
    a_pod_that_completes_is_sent_as_recorded = "completed";
    a_pod_without_its_config_map_is_sent_as_recorded = "config-missing";
    a_crashing_pod_is_sent_as_recorded = "crashloop";
    a_pod_with_a_deadline_is_sent_as_recorded = "deadline";
    a_failing_pod_is_sent_as_recorded = "failed";
    a_pod_without_its_image_is_sent_as_recorded = "image-missing";
    a_failing_init_container_is_sent_as_recorded = "init-fails";
    a_pod_that_fails_its_probe_is_sent_as_recorded = "liveness-fails";
    a_pod_that_never_pulls_is_sent_as_recorded = "never-pull";
    a_pod_that_must_not_be_root_is_sent_as_recorded = "nonroot";
    a_pod_that_is_not_ready_is_sent_as_recorded = "not-ready";
    a_pod_with_a_small_limit_is_sent_as_recorded = "oom";
    a_pod_with_a_readiness_gate_is_sent_as_recorded = "readiness-gate";
}
