//! Compares the responses with those of a 1.36 kubelet (`tests/data/upstream-1.36/figures`).

use std::path::PathBuf;

use serde_json::Value;

use super::snapshot::{Processes, SystemContainer, UsageStats, VolumeSnapshot};
use super::*;
use crate::kubelet::node::NodeInfo;
use crate::platform::cgroups::{Bound, CpuStat, DeviceIo, MemoryStat, Usage};
use crate::platform::config::Config;
use crate::platform::host::file_system::FileSystem;
use crate::platform::host::procfs::{Counts, DiskIo, Interface, MemInfo, Pressure, Stall};
use crate::platform::rpc::{Client, Server, ServerLimits, handler, hanging, serve_connection};
use crate::platform::rt::{TestFolder, UnixStream};
use crate::protocol::grpc::{Code, Status};
use crate::types::metrics::parsed::{self, Family};
use crate::types::sorted::SortedSet;

const SUMMARY: &str = include_str!("../../../tests/data/upstream-1.36/figures/stats-summary.json");
const CADVISOR: &str = include_str!("../../../tests/data/upstream-1.36/figures/metrics-cadvisor.txt");
const RESOURCE: &str = include_str!("../../../tests/data/upstream-1.36/figures/metrics-resource.txt");

const AT: i64 = 1_795_205_203_460_000_000;

fn figures(group: &str) -> UsageStats {
    let stall = |total_usec| Stall { avg10_percent_hundredths: 25, total_usec, ..Stall::default() };
    let pressure = || Some(Pressure { some: stall(7), full: Some(stall(3)) });
    let usage = Usage {
        cpu: Some(CpuStat { usage_usec: 90, user_usec: 60, system_usec: 30, nr_periods: 5, ..CpuStat::default() }),
        memory_current: Some(8192),
        memory_peak: Some(9000),
        memory_max: Some(Bound::At(16_384)),
        memory_low: Some(Bound::At(0)),
        memory_hits: Some(0),
        memory_throttles: Some(3),
        swap_current: Some(0),
        swap_max: Some(Bound::None),
        memory: Some(MemoryStat { anon: 4096, file: 4096, inactive_file: 1024, pgfault: 3, ..MemoryStat::default() }),
        oom_kills: Some(2),
        pids: Some(4),
        pids_max: Some(Bound::None),
        cpu_max: Some((Bound::At(25_000), 100_000)),
        cpu_weight: Some(4),
        cpu_pressure: pressure(),
        memory_pressure: pressure(),
        io_pressure: pressure(),
        io: vec![
            DeviceIo { device: (254, 0), read_bytes: 4096, written_bytes: 8192, reads: 1, writes: 2 },
            DeviceIo { device: (8, 9), ..DeviceIo::default() },
        ],
    };
    UsageStats { nano_cores: Some(1000), ..UsageStats::of_group(group, usage, AT, Some(1 << 20)) }
}

fn pod(name: &str) -> PodSnapshot {
    let found = DiskUsage { bytes: 4096, inodes: 2 };
    let container = |container: &str| ContainerSnapshot {
        id: format!("{name}-{container}"),
        name: container.to_owned(),
        image: "docker.io/library/busybox:1".to_owned(),
        started_at: AT - 5_500_000_000,
        figures: figures(&format!("/kubepods/pod{name}/{name}-{container}")),
        layer: Some(found),
        logs: Some(found),
        processes: Some(Processes { count: 2, files: 9, most_files: Some(1024) }),
        ..ContainerSnapshot::default()
    };
    let volume = |name: &str, is_elsewhere| VolumeSnapshot {
        at: AT,
        name: name.to_owned(),
        claim: None,
        is_elsewhere,
        disk: FileSystem::default(),
        used: found,
    };
    PodSnapshot {
        namespace: "golden".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        started_at: Some(AT - 6_000_000_000),
        group: Some(format!("/kubepods/pod{name}")),
        figures: figures(&format!("/kubepods/pod{name}")),
        interfaces: interfaces(),
        processes: Some(4),
        pod_files: found,
        volumes: vec![volume("disk", false), volume("memory", true)],
        containers: vec![container("a"), container("b")],
        ..PodSnapshot::default()
    }
}

fn interfaces() -> Vec<Interface> {
    let counts = Counts { bytes: 10, packets: 2, errors: 0, dropped: 1 };
    vec![Interface { name: "eth0".to_owned(), received: counts, sent: counts }]
}

/// A snapshot with every field set.
fn look() -> Snapshot {
    let disk = FileSystem { capacity: 1000, available: 500, used: 400, inodes: 100, inodes_free: 60 };
    let found = DiskUsage { bytes: 300, inodes: 30 };
    Snapshot {
        at: AT,
        node: NodeSnapshot {
            name: "node1".to_owned(),
            booted_at: AT - 7_591_000_000_000,
            figures: UsageStats { group: "/".to_owned(), ..figures("/") },
            pods: figures("/kubepods"),
            classes: vec![figures("/kubepods/burstable"), figures("/kubepods/besteffort")],
            memory: MemInfo { total: 1 << 30, swap_total: 1 << 20, ..MemInfo::default() },
            interfaces: interfaces(),
            main_interface: "eth0".to_owned(),
            disk: Some(disk),
            device: Some(("/dev/vda".to_owned(), DiskIo { busy_ms: 89, ..DiskIo::default() })),
            device_names: [((254, 0), "vda".to_owned())].into_iter().collect(),
            system: vec![SystemContainer { name: "kubelet", started_at: Some(AT), figures: figures("/agent") }],
            images: Some((disk, found)),
            layers: None,
            tasks: Some((909, 32_768)),
            processors: 2,
            sockets_and_cores: (1, 2),
        },
        pods: vec![pod("one"), pod("two")],
        is_partial: false,
    }
}

/// The paths of all fields, such as `pods[].cpu.time`.
fn fields(value: &Value, path: &str, into: &mut SortedSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| fields(value, &format!("{path}.{key}"), into)),
        Value::Array(list) => list.iter().for_each(|value| fields(value, &format!("{path}[]"), into)),
        _ => drop(into.insert(path.to_owned())),
    }
}

fn all_fields(text: &[u8]) -> SortedSet<String> {
    let mut all = SortedSet::new();
    fields(&serde_json::from_slice(text).unwrap(), "", &mut all);
    all
}

#[test]
fn summary_has_every_upstream_field() {
    let (ours, upstream) = (all_fields(&summary::summary(&look(), false)), all_fields(SUMMARY.as_bytes()));
    let missing: Vec<_> = upstream.difference(&ours).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // The recorded node had no cgroup v2: no pod pressure, no pod networks, no process counts.
    let more = ours.difference(&upstream).filter(|field| {
        !field.contains(".psi.") && !field.starts_with(".pods[].network.") && !field.contains(".process_stats.")
    });
    let more: Vec<_> = more.collect();
    assert!(more.is_empty(), "{more:?}");
}

#[test]
fn summary_has_the_cgroups_of_the_nodes_services() {
    let response: Value = serde_json::from_slice(&summary::summary(&look(), false)).unwrap();
    let containers = response["node"]["systemContainers"].as_array().unwrap();
    let names: Vec<_> = containers.iter().map(|container| &container["name"]).collect();
    assert_eq!(names, ["pods", "kubelet"]);
    assert_eq!(containers[1]["startTime"], "2026-11-20T20:06:43Z");
    assert_eq!(containers[1]["memory"]["workingSetBytes"], 7168);
}

#[test]
fn summary_reads_the_cgroups_of_runtime_and_system_that_are_configured() {
    let settings = |runtime: &str, system: &str| {
        let mut config = Config::default();
        runtime.clone_into(&mut config.cgroups.runtime);
        system.clone_into(&mut config.cgroups.system);
        Settings::new(&NodeSettings::new(&config, &NodeInfo::default()))
    };
    let both = settings("/runtime.slice", "/system.slice");
    let expected = [("runtime", "/runtime.slice".to_owned()), ("misc", "/system.slice".to_owned())];
    for only_cpu_and_memory in [false, true] {
        assert_eq!(both.inputs(StatsEndpoint::Summary { only_cpu_and_memory }, None).system, expected);
    }
    for endpoint in [StatsEndpoint::Cadvisor, StatsEndpoint::Resource] {
        assert_eq!(both.inputs(endpoint, None).system, []);
    }
    let system = settings("", "/system.slice").inputs(StatsEndpoint::Summary { only_cpu_and_memory: false }, None);
    assert_eq!(system.system, expected[1..]);
}

#[test]
fn brief_summary_has_only_cpu_and_memory() {
    let brief = all_fields(&summary::summary(&look(), true));
    let parts = brief.iter().filter(|field| {
        if *field == ".node.nodeName" {
            return false;
        }
        let rest = field.trim_start_matches(".node").trim_start_matches(".systemContainers[]");
        let rest = rest.trim_start_matches(".pods[]").trim_start_matches(".containers[]");
        ![".cpu.", ".memory.", ".name", ".startTime", ".podRef."].iter().any(|part| rest.starts_with(part))
    });
    assert_eq!(parts.collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(brief.contains(".pods[].containers[].memory.workingSetBytes"), "{brief:?}");
}

#[test]
fn unknown_values_are_left_out_of_the_summary() {
    let mut look = look();
    look.pods[0].figures = UsageStats::default();
    look.pods[0].containers[0].figures.memory.available = None;
    look.pods[0].volumes.clear();
    let response: Value = serde_json::from_slice(&summary::summary(&look, false)).unwrap();
    let [first, second] = [&response["pods"][0], &response["pods"][1]];
    for part in ["cpu", "memory", "io", "swap", "volume"] {
        assert_eq!((first.get(part).is_some(), second.get(part).is_some()), (false, true), "{part}");
    }
    assert_eq!(first["containers"][0]["memory"].get("availableBytes"), None);
    // Layers and logs of two containers, the disk-backed volume, and the pod's own files.
    assert_eq!(second["ephemeral-storage"]["usedBytes"], 6 * 4096);
    assert_eq!(second["containers"][0]["startTime"], "2026-11-20T20:06:37Z");
    assert_eq!(second["cpu"]["psi"]["some"]["avg10"], 0.25);
    assert_eq!(second["cpu"]["usageCoreNanoSeconds"], 90_000);
}

/// Checks that `ours` has upstream's type, help text and labels.
#[track_caller]
fn check_family(name: &str, ours: &Family, upstream: &Family) {
    assert_eq!((&ours.help, &ours.kind), (&upstream.help, &upstream.kind), "{name}");
    let missing: Vec<_> = upstream.label_names().difference(&ours.label_names()).cloned().collect();
    assert!(missing.is_empty(), "{name} without {missing:?}, with {:?}", ours.label_names());
    let timed = |family: &Family| family.samples.iter().map(|sample| sample.3.is_some()).collect::<SortedSet<_>>();
    assert_eq!(timed(ours), timed(upstream), "{name}: moments");
}

#[test]
fn resource_page_has_every_upstream_family() {
    let text = String::from_utf8(resource::resource(&look())).unwrap();
    let (ours, upstream) = (parsed::parse(&text), parsed::parse(RESOURCE));
    assert_eq!(ours.keys().collect::<Vec<_>>(), upstream.keys().collect::<Vec<_>>());
    for (name, family) in &upstream {
        check_family(name, &ours[name], family);
    }
    let main = [("container", "a"), ("pod", "two")];
    assert_eq!(ours["container_cpu_usage_seconds_total"].value(&main), 0.000_09);
    assert_eq!(ours["container_memory_working_set_bytes"].value(&main), 7168.0);
    assert_eq!(ours["container_start_time_seconds"].value(&main), 1_795_205_197.96);
    assert_eq!(ours["container_swap_limit_bytes"].value(&main), f64::from(1 << 20));
    assert_eq!(ours["resource_scrape_error"].value(&[]), 0.0);
}

#[test]
fn cadvisor_page_has_the_upstream_families() {
    let machine = Machine { os_image: "Debian".to_owned(), ..Machine::default() };
    let text = String::from_utf8(cadvisor::cadvisor(&look(), &machine)).unwrap();
    let (ours, upstream) = (parsed::parse(&text), parsed::parse(CADVISOR));
    let differences = include_str!("../../../docs/differences-from-upstream.md");
    let declared = differences.split("### Families of `/metrics/cadvisor` that are missing").nth(1).unwrap();
    let declared = declared.split("\n#").next().unwrap();
    for (name, family) in &upstream {
        let is_declared = declared.contains(&format!("`{name}`"));
        match ours.get(name) {
            Some(our) => check_family(name, our, family),
            None => assert!(is_declared, "{name} is missing"),
        }
        assert!(!is_declared || !ours.contains_key(name), "{name} is declared to be missing");
    }
    let more = ours.keys().filter(|name| !upstream.contains_key(*name));
    // The recorded node had neither pressure nor the io controller, and was older than the events of memory.
    let newer = ["container_pressure_", "container_memory_events_"];
    let newer = |name: &str| newer.iter().any(|start| name.starts_with(start));
    let recorded = |name: &str| !newer(name) && !name.ends_with("s_bytes_total") && !name.contains("_blkio_");
    let unknown: Vec<_> = more.filter(|name| recorded(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let main = [("container", "a"), ("pod", "two"), ("id", "/kubepods/podtwo/two-a")];
    assert_eq!(ours["container_spec_cpu_quota"].value(&main), 25_000.0);
    assert_eq!(ours["container_spec_cpu_shares"].value(&main), 80.0);
    assert_eq!(ours["container_pressure_cpu_waiting_seconds_total"].value(&main), 0.000_007);
    assert_eq!(ours["container_threads_max"].value(&main), 0.0);
    assert_eq!(ours["container_memory_events_high_total"].value(&main), 3.0);
    let disk = [("container", "a"), ("pod", "two"), ("device", "/dev/vda")];
    for (kind, bytes, count) in [("reads", 4096.0, 1.0), ("writes", 8192.0, 2.0)] {
        assert_eq!(ours[&format!("container_fs_{kind}_bytes_total")].value(&disk), bytes);
        assert_eq!(ours[&format!("container_fs_{kind}_total")].value(&disk), count);
    }
    let device = [("container", "a"), ("pod", "two"), ("device", "/dev/vda"), ("major", "254"), ("minor", "0")];
    for (operation, bytes) in [("Read", 4096.0), ("Write", 8192.0)] {
        let labels = [&device[..], &[("operation", operation)]].concat();
        assert_eq!(ours["container_blkio_device_usage_total"].value(&labels), bytes);
    }
    let network = [("pod", "two"), ("interface", "eth0")];
    assert_eq!(ours["container_network_receive_packets_dropped_total"].value(&network), 1.0);
    assert_eq!(ours["container_fs_usage_bytes"].value(&[("id", "/")]), 400.0);
    assert_eq!(ours["machine_memory_bytes"].value(&[]), f64::from(1 << 30));
}

#[test]
fn page_without_cgroup_v2_has_no_duplicate_series() {
    let mut look = look();
    look.node.pods = look.node.figures.clone();
    look.node.classes.clear();
    for pod in &mut look.pods {
        pod.figures.group.clear();
        pod.figures.group_usage = None;
        for container in &mut pod.containers {
            container.figures.group.clear();
            container.figures.group_usage = None;
        }
    }
    let text = String::from_utf8(cadvisor::cadvisor(&look, &Machine::default())).unwrap();
    let families = parsed::parse(&text);
    let cpu = &families["container_cpu_usage_seconds_total"];
    assert_eq!(cpu.samples.len(), 1 + 2 + 4);
    parsed::parse(&String::from_utf8(resource::resource(&look)).unwrap());
}

#[test]
fn one_pass_measures_this_machine_and_a_process() {
    let mut look = Snapshot { at: AT, ..Snapshot::default() };
    let network_pid = Some(std::process::id());
    look.pods.push(PodSnapshot { network_pid, ..PodSnapshot::default() });
    let here = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let asked = CollectInputs {
        depth: Depth::Whole,
        with_rest: true,
        groups: None,
        system: Vec::new(),
        agent_started_at: None,
        cgroup_v2: false,
        root_dir: here.clone(),
        images: Some((here, DiskUsage { bytes: 1, inodes: 1 })),
        layers: Some((PathBuf::from("/nowhere/at/all"), DiskUsage::default())),
    };
    collect::pass(&mut look, &asked);
    let node = &look.node;
    let memory = &node.figures.memory;
    let (used, working_set) = (memory.usage.unwrap(), memory.working_set.unwrap());
    assert!(0 < working_set && working_set < used && used < node.memory.total, "{node:?}");
    assert!(node.figures.cpu_nanos.unwrap() > 0 && memory.page_faults.unwrap() > 0, "{node:?}");
    assert!(node.disk.unwrap().capacity > 0 && node.images.is_some() && node.layers.is_none(), "{node:?}");
    assert!(node.processors > 0 && node.tasks.is_some() && node.booted_at < AT, "{node:?}");
    assert_eq!(look.pods[0].interfaces.len(), node.interfaces.len());
    assert!(!look.is_partial);
    // The page of a real machine is valid.
    parsed::parse(&String::from_utf8(cadvisor::cadvisor(&look, &Machine::default())).unwrap());
    let _: Value = serde_json::from_slice(&summary::summary(&look, false)).unwrap();
}

#[test]
fn only_an_answer_refuses_the_statistics_of_sandboxes() {
    let folder = std::env::temp_dir().join(format!("coracle-stats-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("s");
    let asked = || {
        let cri = RuntimeService::new(Client::new(&socket.to_string_lossy()), RUNTIME_STATS_DEADLINE);
        async move { within("x", cri.list_pod_sandbox_stats(None)).await.unwrap_err() }
    };
    let failures = rt::block_on(async {
        let without_runtime = asked().await;
        let server = Server::bind(&socket).unwrap();
        let refuse = handler(|_| async { Err(Status::new(Code::Unknown, "no metrics of this sandbox")) });
        let _served = rt::spawn(async move { match server.serve(refuse).await {} });
        [without_runtime, asked().await]
    });
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(failures, [StatsFailure::Unanswered, StatsFailure::Refused]);
}

#[test]
fn runtime_that_hangs_is_waited_for_once() {
    let folder = TestFolder::new("stats-hanging");
    let root = folder.0.clone();
    let ended = rt::simulate(1, move |world| async move {
        const SOCKET: &str = "/run/simulated/runtime.sock";
        let (hangs, hung) = hanging(|_| true);
        let connections = world.network.host(SOCKET).listen();
        let _served = rt::spawn(async move {
            let mut serving = Vec::new();
            while let Ok(pipe) = connections.recv().await {
                let stream = UnixStream::Simulated(pipe);
                let hangs = Rc::clone(&hangs);
                serving.push(rt::spawn(async move {
                    let _ = serve_connection(stream, hangs, ServerLimits::large()).await;
                }));
            }
        });
        let (client, minutes) = (Client::new(SOCKET), Duration::from_secs(120));
        let (inbox, _events) = async_channel::unbounded();
        let dependencies = Dependencies {
            dirs: PodDirs::new(&root, &root),
            cri: RuntimeService::new(client.clone(), minutes),
            images: ImageService::new(client, minutes),
            csi: Csi::new(&root, "node1", inbox, None),
        };
        let stats = Stats::new(&NodeSettings::new(&Config::default(), &NodeInfo::default()), dependencies);
        let begun = world.passed();
        let page = stats.render(StatsEndpoint::Summary { only_cpu_and_memory: false }, Vec::new(), None).await;
        let page: Value = serde_json::from_slice(&page).unwrap();
        assert!(page["node"]["memory"]["workingSetBytes"].as_u64().is_some_and(|bytes| bytes > 0), "{page}");
        (hung.get(), (world.passed() - begun).as_secs())
    });
    assert_eq!(ended, Ok((3, RUNTIME_STATS_DEADLINE.as_secs())));
}
