use std::time::{Duration, Instant};

use super::allocations::{
    DeviceAllocation, DeviceAllocations, DeviceChoice, DeviceFile, InsufficientDevices, Registration, selectors,
};
use super::v1beta1::{ContainerAllocateResponse, Device, DevicePluginOptions, HEALTHY, NumaNode, TopologyInfo};
use crate::kubelet::resource_managers::Nodes;
use crate::platform::rt::processor_time;
use crate::state::pods::{AllocatedDevice, DeviceHealth};
use crate::types::api::{Container, DeviceAttribute, Pod, RestartPolicy, annotations};
use crate::types::cpu_set::CpuSet;

const CAM: &str = "example.com/cam";

fn device(id: &str) -> Device {
    Device { id: id.to_owned(), health: HEALTHY.to_owned(), topology: None }
}

fn ill(id: &str) -> Device {
    Device { health: "Unhealthy".to_owned(), ..device(id) }
}

fn told(allocations: &mut DeviceAllocations, ids: &[&str]) -> Registration {
    let registration = allocations.register(CAM, DevicePluginOptions::default());
    allocations.set_devices(CAM, registration, ids.iter().map(|id| device(id)).collect());
    registration
}

fn allocations(ids: &[&str]) -> DeviceAllocations {
    let mut allocations = DeviceAllocations::default();
    told(&mut allocations, ids);
    allocations
}

fn container(name: &str, count: u32) -> Container {
    let mut container = Container { name: name.to_owned(), ..Container::default() };
    container.resources.limits.insert(CAM, count.to_string().parse().unwrap());
    container
}

fn pod(uid: &str, count: u32) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = uid.into();
    pod.spec.containers = vec![container("main", count)];
    pod
}

fn of(allocations: &DeviceAllocations, pod: &Pod, container: &str) -> Vec<String> {
    allocations.of_container(&pod.metadata.uid, container).flat_map(|given| given.ids().cloned()).collect()
}

fn lacks(allocations: &mut DeviceAllocations, pod: &Pod) -> String {
    let InsufficientDevices(why) = allocations.reserve(pod, |_| false).unwrap_err();
    why
}

fn amounts(allocations: &DeviceAllocations) -> Option<(i64, i64)> {
    let [capacity, allocatable] = allocations.amounts();
    Some((capacity.get(CAM)?.value(), allocatable.get(CAM)?.value()))
}

#[test]
fn late_checkpoint_entry_takes_no_device_from_a_running_pod() {
    let mut early = allocations(&["a", "b", "c"]);
    let (one, two, three) = (pod("1", 1), pod("2", 1), pod("3", 1));
    early.reserve(&one, |_| false).unwrap();
    early.reserve(&two, |_| false).unwrap();
    let entries = early.entries.to_vec();
    let mut late = allocations(&["a", "b", "c"]);
    late.reserve(&three, |_| false).unwrap();
    late.merge(entries, Vec::new(), Instant::now());
    let all = [&one, &two, &three].map(|pod| of(&late, pod, "main"));
    assert_eq!(all, [Vec::new(), vec!["b".to_owned()], vec!["a".to_owned()]]);
}

#[test]
fn pod_needs_known_devices_while_the_checkpoint_is_unreadable() {
    let mut allocations = DeviceAllocations::default();
    assert!(!allocations.concerns(&pod("1", 1)), "the resource is unknown");
    allocations.is_unread = true;
    assert!(allocations.concerns(&pod("1", 1)));
    assert_eq!(lacks(&mut allocations, &pod("1", 1)), "cannot allocate unregistered device example.com/cam");
    allocations.merge(Vec::new(), Vec::new(), Instant::now());
    allocations.is_unread = false;
    assert!(!allocations.concerns(&pod("1", 1)));
}

#[test]
fn device_is_not_allocated_twice() {
    let mut allocations = allocations(&["a", "b", "c"]);
    let (one, two, three) = (pod("1", 2), pod("2", 1), pod("3", 1));
    allocations.reserve(&one, |_| false).unwrap();
    allocations.reserve(&two, |_| false).unwrap();
    assert_eq!(
        (of(&allocations, &one, "main"), of(&allocations, &two, "main")),
        (vec!["a".into(), "b".into()], vec!["c".into()])
    );
    let why = "requested number of devices unavailable for example.com/cam. Requested: 1, Available: 0";
    assert_eq!(lacks(&mut allocations, &three), why);
    // Repeating it changes nothing.
    allocations.reserve(&one, |_| false).unwrap();
    assert_eq!(of(&allocations, &one, "main"), ["a", "b"]);
    assert!(allocations.keep_only(|uid| uid.as_str() != "1"));
    allocations.reserve(&three, |_| false).unwrap();
    assert_eq!(of(&allocations, &three, "main"), ["a"]);
}

#[test]
fn pod_gets_all_its_devices_or_none() {
    let mut allocations = allocations(&["a", "b", "c"]);
    let mut both = pod("1", 2);
    both.spec.containers.push(container("second", 2));
    lacks(&mut allocations, &both);
    allocations.reserve(&pod("2", 3), |_| false).unwrap();
}

#[test]
fn devices_of_ended_init_containers_are_reused_but_not_of_sidecars() {
    let mut allocations = allocations(&["a", "b", "c"]);
    let mut pod = pod("1", 2);
    pod.spec.init_containers = vec![
        container("first", 2),
        Container { restart_policy: Some(RestartPolicy::Always), ..container("sidecar", 1) },
        container("last", 1),
    ];
    allocations.reserve(&pod, |_| false).unwrap();
    assert_eq!(of(&allocations, &pod, "first"), ["a", "b"]);
    assert_eq!(of(&allocations, &pod, "sidecar"), ["a"]);
    assert_eq!(of(&allocations, &pod, "last"), ["b"]);
    assert_eq!(of(&allocations, &pod, "main"), ["b", "c"]);
}

#[test]
fn only_healthy_devices_are_allocated_with_upstreams_errors() {
    let mut allocations = DeviceAllocations::default();
    // An unknown resource is accounted by the cluster; a static pod waits for it.
    allocations.reserve(&pod("1", 1), |_| false).unwrap();
    let mut own = pod("1", 1);
    own.metadata.annotations.insert(annotations::CONFIG_SOURCE, "file".to_owned());
    assert_eq!(lacks(&mut allocations, &own), "no device plugin has registered example.com/cam");
    let registration = allocations.register(CAM, DevicePluginOptions::default());
    let none = "no healthy devices present; cannot allocate unhealthy devices example.com/cam";
    assert_eq!(lacks(&mut allocations, &pod("1", 1)), none);
    allocations.set_devices(CAM, registration, vec![ill("a"), device("b")]);
    allocations.reserve(&own, |_| false).unwrap();
    assert_eq!(of(&allocations, &own, "main"), ["b"]);
    assert_eq!(amounts(&allocations), Some((2, 1)));
}

#[test]
fn running_containers_keep_their_devices_unchecked() {
    let mut allocations = allocations(&["a"]);
    allocations.reserve(&pod("1", 1), |_| false).unwrap();
    let mut later = DeviceAllocations::default();
    let mut given = allocations.entries.to_vec();
    given[0].response = Some(ContainerAllocateResponse::default());
    given[0].is_confirmed = false;
    later.restore(given, vec![CAM.to_owned()], Instant::now());
    let none = "no healthy devices present; cannot allocate unhealthy devices example.com/cam";
    assert_eq!(lacks(&mut later, &pod("1", 1)), none, "after a reboot it waits for its device");
    assert_eq!(of(&later, &pod("1", 1), "main"), ["a"], "the pod keeps it");
    told(&mut later, &["b"]);
    let other = "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/cam";
    assert_eq!(lacks(&mut later, &pod("1", 1)), other);
    later.reserve(&pod("1", 1), |name| name == "main").unwrap();
    // Once confirmed, the container may be recreated with its devices.
    later.reserve(&pod("1", 1), |_| false).unwrap();
    assert_eq!(of(&later, &pod("1", 1), "main"), ["a"]);
    let changed = "pod \"1\" container \"main\" changed request for resource \"example.com/cam\" from 1 to 2";
    assert_eq!(lacks(&mut later, &pod("1", 2)), changed);
    assert_eq!(of(&later, &pod("1", 1), "main"), ["a"]);
}

#[test]
fn resource_without_a_plugin_is_removed_after_five_minutes() {
    let now = Instant::now();
    let mut allocations = allocations(&["a", "b"]);
    let registration = told(&mut allocations, &["a", "b"]);
    assert_eq!(amounts(&allocations), Some((2, 2)));
    assert!(!allocations.stop(CAM, registration - 1, now), "an earlier plugin's registration");
    assert!(allocations.stop(CAM, registration, now));
    assert_eq!(amounts(&allocations), Some((2, 0)));
    let due = allocations.due().unwrap();
    assert_eq!(due, now + Duration::from_secs(300));
    assert!(!allocations.expire(due - Duration::from_millis(1)));
    assert!(allocations.expire(due));
    assert_eq!(amounts(&allocations), Some((0, 0)), "a capacity of zero is reported");
    assert_eq!(allocations.due(), None);
    told(&mut allocations, &["a"]);
    assert_eq!(amounts(&allocations), Some((1, 1)));
}

#[test]
fn returning_plugin_has_its_allocations() {
    let mut allocations = allocations(&["a", "b"]);
    allocations.reserve(&pod("1", 1), |_| false).unwrap();
    let registration = told(&mut allocations, &["a", "b"]);
    allocations.stop(CAM, registration, Instant::now());
    told(&mut allocations, &["a", "b"]);
    allocations.reserve(&pod("2", 1), |_| false).unwrap();
    assert_eq!(of(&allocations, &pod("2", 1), "main"), ["b"]);
}

#[test]
fn list_of_a_replaced_plugin_is_ignored() {
    let mut allocations = allocations(&["a"]);
    let old = told(&mut allocations, &["a"]);
    told(&mut allocations, &["b"]);
    assert!(!allocations.set_devices(CAM, old, vec![device("z")]));
    allocations.reserve(&pod("1", 1), |_| false).unwrap();
    assert_eq!(of(&allocations, &pod("1", 1), "main"), ["b"]);
}

#[test]
fn equal_list_is_not_a_change() {
    let mut allocations = DeviceAllocations::default();
    let registration = allocations.register(CAM, DevicePluginOptions::default());
    assert!(allocations.set_devices(CAM, registration, vec![device("a"), device("b")]));
    assert!(!allocations.set_devices(CAM, registration, vec![device("b"), device("a")]));
    assert!(allocations.set_devices(CAM, registration, vec![device("b"), ill("a")]));
    assert!(allocations.set_devices(CAM, registration, vec![device("b")]));
}

#[test]
fn plugin_preference_applies_as_far_as_available() {
    let preferring = DevicePluginOptions { get_preferred_allocation_available: true, ..DevicePluginOptions::default() };
    let mut allocations = DeviceAllocations::default();
    let registration = allocations.register(CAM, preferring);
    allocations.set_devices(CAM, registration, ["a", "b", "c", "d"].map(device).to_vec());
    allocations.reserve(&pod("1", 1), |_| false).unwrap();
    allocations.reserve(&pod("2", 2), |_| false).unwrap();
    let given = allocations.unallocated(&"2".into()).remove(0);
    let all = ["b", "c", "d"].map(str::to_owned).to_vec();
    assert_eq!(allocations.choice(&given), Some((all, Vec::new())));
    // Another pod's device, an unknown one, and a duplicate.
    allocations.prefer(&given, &["a", "z", "d", "d"].map(str::to_owned));
    assert_eq!(of(&allocations, &pod("2", 2), "main"), ["b", "d"]);
    allocations.reserve(&pod("3", 1), |_| false).unwrap();
    assert_eq!(of(&allocations, &pod("3", 1), "main"), ["c"]);
    let given = allocations.unallocated(&"3".into()).remove(0);
    assert_eq!(allocations.choice(&given), None, "there is nothing to choose from");
}

#[test]
fn devices_are_stored_by_numa_node() {
    let mut allocations = DeviceAllocations::default();
    let registration = allocations.register(CAM, DevicePluginOptions::default());
    let near = |id: &str, nodes: &[i64]| {
        let nodes = nodes.iter().map(|id| NumaNode { id: *id }).collect();
        Device { topology: Some(TopologyInfo { nodes }), ..device(id) }
    };
    allocations.set_devices(CAM, registration, vec![near("a", &[0, 1]), near("b", &[]), near("c", &[1])]);
    allocations.reserve(&pod("1", 3), |_| false).unwrap();
    let ids: Vec<(i64, Vec<String>)> = allocations.entries[0].ids.clone().into_iter().collect();
    let of = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(ids, [(-1, of(&["b"])), (0, of(&["a"])), (1, of(&["a", "c"]))]);
    assert_eq!(allocations.entries[0].ids().count(), 3);
}

fn healthy(id: &str) -> AllocatedDevice {
    AllocatedDevice { id: id.to_owned(), health: DeviceHealth::Healthy, message: String::new() }
}

fn unhealthy(id: &str) -> AllocatedDevice {
    AllocatedDevice { health: DeviceHealth::Unhealthy, ..healthy(id) }
}

#[test]
fn device_health_is_reported_and_missing_devices_are_unhealthy() {
    let mut allocations = allocations(&["a", "b"]);
    allocations.reserve(&pod("1", 2), |_| false).unwrap();
    let registration = allocations.register(CAM, DevicePluginOptions::default());
    allocations.set_devices(CAM, registration, vec![ill("a"), device("b")]);
    let shown = allocations.shown(&"1".into());
    assert_eq!(shown[0].devices, [unhealthy("a"), healthy("b")]);
    assert_eq!((shown[0].container.as_str(), shown[0].resource.as_str()), ("main", CAM));
    allocations.set_devices(CAM, registration, vec![device("a")]);
    assert_eq!(allocations.shown(&"1".into())[0].devices, [healthy("a"), unhealthy("b")]);
    let mut again = DeviceAllocations::default();
    again.restore(allocations.entries.to_vec(), vec![CAM.to_owned()], Instant::now());
    let both = [healthy("a"), healthy("b")];
    assert_eq!(again.shown(&"1".into())[0].devices, both, "no list has arrived yet");
}

fn file(path: &str, model: &str) -> DeviceFile {
    let attributes = [("model".to_owned(), DeviceAttribute::String(model.to_owned()))];
    DeviceFile { path: path.to_owned(), attributes: attributes.into_iter().collect() }
}

fn selecting(uid: &str, selectors: &str) -> Pod {
    let mut pod = pod(uid, 1);
    pod.metadata.annotations.insert(annotations::DEVICE_SELECTORS, selectors.to_owned());
    pod
}

#[test]
fn container_gets_only_devices_that_its_pod_selects() {
    let mut book = DeviceAllocations::default();
    book.add_local(CAM);
    let files = || vec![file("/dev/video0", "imx219"), file("/dev/video1", "imx477"), file("/dev/video2", "imx477")];
    assert!(book.set_rule_devices(CAM, files()) && !book.set_rule_devices(CAM, files()));
    let pods = ["1", "2", "3"].map(|uid| selecting(uid, "example.com/cam: {model: imx477}"));
    book.reserve(&pods[0], |_| false).unwrap();
    book.reserve(&pods[1], |_| false).unwrap();
    let given = [of(&book, &pods[0], "main"), of(&book, &pods[1], "main")];
    assert_eq!(given, [["/dev/video1"], ["/dev/video2"]]);
    let text =
        "requested number of devices unavailable for example.com/cam. Requested: 1, Available: 0 (as the pod selects)";
    assert_eq!(lacks(&mut book, &pods[2]), text);
    book.reserve(&pod("4", 1), |_| false).unwrap();
    assert_eq!(of(&book, &pod("4", 1), "main"), ["/dev/video0"]);
}

#[test]
fn wrong_selectors_give_no_device() {
    let why = |pod: &Pod| {
        let InsufficientDevices(why) = selectors(pod).unwrap_err();
        why
    };
    let wrong = selecting("1", "example.com/cam: imx219");
    assert!(why(&wrong).starts_with("annotation coracle.dev/device-selectors: example.com/cam: expected attributes"));
    let stray = why(&selecting("1", "example.com/gpu: {model: x}"));
    assert_eq!(stray, "annotation coracle.dev/device-selectors: no container has a limit of example.com/gpu");
    let mut book = allocations(&["a"]);
    assert!(lacks(&mut book, &wrong).starts_with("annotation "));
    assert!(selectors(&pod("1", 1)).is_ok());
}

#[test]
fn restarted_container_gets_another_device_of_a_rule() {
    let mut allocations = DeviceAllocations::default();
    allocations.add_local(CAM);
    assert!(allocations.set_rule_devices(CAM, vec![file("/dev/video0", "")]));
    allocations.reserve(&pod("1", 1), |_| false).unwrap();
    allocations.set_rule_devices(CAM, vec![file("/dev/video1", "")]);
    allocations.reserve(&pod("1", 1), |_| true).unwrap();
    assert_eq!(of(&allocations, &pod("1", 1), "main"), ["/dev/video0"], "a running container keeps its device");
    allocations.reserve(&pod("1", 1), |_| false).unwrap();
    assert_eq!(of(&allocations, &pod("1", 1), "main"), ["/dev/video1"]);
}

fn nodes(text: &str) -> Nodes {
    Nodes::of(&CpuSet::parse(text).unwrap())
}

/// Allocations with these devices; a negative node means none.
fn near_nodes(devices: &[(&str, i64)], options: DevicePluginOptions) -> DeviceAllocations {
    let mut allocations = DeviceAllocations::default();
    let registration = allocations.register(CAM, options);
    let topology = |node: i64| (node >= 0).then(|| TopologyInfo { nodes: vec![NumaNode { id: node }] });
    let devices = devices.iter().map(|(id, node)| Device { topology: topology(*node), ..device(id) });
    allocations.set_devices(CAM, registration, devices.collect());
    allocations
}

/// Gives the container these devices without a decision.
fn put(allocations: &mut DeviceAllocations, pod: &str, container: &str, ids: &[&str]) {
    allocations.entries.push(DeviceAllocation {
        pod: pod.into(),
        container: container.to_owned(),
        resource: CAM.to_owned(),
        ids: [(0, ids.iter().map(|id| (*id).to_owned()).collect())].into_iter().collect(),
        response: Some(ContainerAllocateResponse::default()),
        is_confirmed: true,
    });
}

/// Checks the hints, such as `0` or `0-1+` (preferred), of a container and of a pod with only that container.
#[track_caller]
fn check_hints(allocations: &DeviceAllocations, count: u32, expected: Option<&[&str]>) {
    let pod = pod("p", count);
    let shown = |container| {
        let found = allocations.hints(nodes("0-1"), &pod, container, &DeviceChoice::default(), false);
        let shown = found.first().map(|hints| {
            let plus = |preferred| if preferred { "+" } else { "" };
            let hints = hints.iter().map(|hint| format!("{}{}", hint.nodes.unwrap().numbers(), plus(hint.preferred)));
            hints.collect::<Vec<_>>()
        });
        assert_eq!(found.len(), usize::from(shown.is_some()));
        shown
    };
    let expected = expected.map(|hints| hints.iter().map(|hint| (*hint).to_owned()).collect::<Vec<_>>());
    assert_eq!(shown(Some(&pod.spec.containers[0])), expected);
    assert_eq!(shown(None), expected);
}

/// The cases are upstream's (`getCommonTestCases` of the device manager), as are those of the next tests.
#[test]
fn topology_hints_are_upstreams() {
    let hints = |devices: &[(&str, i64)], count, expected: Option<&[&str]>| {
        check_hints(&near_nodes(devices, DevicePluginOptions::default()), count, expected);
    };
    hints(&[("a", -1), ("b", -1)], 1, None);
    hints(&[("a", -1), ("b", 1)], 1, Some(&["1+", "0-1"]));
    hints(&[("a", 0), ("b", 1)], 1, Some(&["0+", "1+", "0-1"]));
    hints(&[("a", 0), ("b", 1)], 2, Some(&["0-1+"]));
    let four = [("a", 0), ("b", 1), ("c", 0), ("d", 1)];
    hints(&four, 2, Some(&["0+", "1+", "0-1"]));
    hints(&four, 6, Some(&[]));
    let mut allocations = near_nodes(&four, DevicePluginOptions::default());
    put(&mut allocations, "other", "main", &["a", "b"]);
    check_hints(&allocations, 2, Some(&["0-1"]));
    // The devices it already has determine its hints.
    let mut allocations = near_nodes(&[("a", 0), ("b", 0)], DevicePluginOptions::default());
    put(&mut allocations, "p", "main", &["a", "b"]);
    check_hints(&allocations, 2, Some(&["0+", "0-1"]));
    check_hints(&allocations, 1, Some(&[]));
    check_hints(&allocations, 4, Some(&[]));
    let waits = allocations.hints(nodes("0-1"), &pod("p", 4), None, &DeviceChoice::default(), true);
    assert!(waits.is_empty(), "missing devices give no empty hints");
}

#[test]
fn pod_hints_use_the_maximum_at_any_time() {
    let mut pod = pod("p", 1);
    let sidecar = Container { restart_policy: Some(RestartPolicy::Always), ..container("s", 1) };
    pod.spec.init_containers = vec![container("i", 2), sidecar, container("j", 3)];
    pod.spec.containers.push(container("second", 1));
    let four = ["a", "b", "c", "d"].map(|id| (id, 0));
    let allocations = near_nodes(&four, DevicePluginOptions::default());
    let hints = allocations.hints(nodes("0-1"), &pod, None, &DeviceChoice::default(), false);
    assert_eq!(hints[0].len(), 2, "one of the sidecar and three of the last");
    pod.spec.init_containers[2] = container("j", 4);
    assert!(allocations.hints(nodes("0-1"), &pod, None, &DeviceChoice::default(), false)[0].is_empty());
}

#[test]
fn devices_are_taken_from_the_preferred_nodes_first() {
    let given = |devices: &[(&str, i64)], near: &str, count| {
        let mut allocations = near_nodes(devices, DevicePluginOptions::default());
        allocations.prefer_nodes(&"p".into(), "main", nodes(near));
        allocations.reserve(&pod("p", count), |_| false).unwrap();
        of(&allocations, &pod("p", count), "main").join(" ")
    };
    assert_eq!(given(&[("a", -1), ("b", -1)], "0-1", 1), "a");
    assert_eq!(given(&[("a", -1), ("b", 1)], "1", 1), "b");
    assert_eq!(given(&[("a", 0), ("b", 1)], "0", 1), "a");
    assert_eq!(given(&[("a", 0), ("b", 1)], "1", 1), "b");
    let six = [("a", 0), ("b", 1), ("c", 0), ("d", 1), ("e", 0), ("f", 1)];
    assert_eq!(given(&six[..4], "1", 2), "b d");
    assert_eq!(given(&six, "0", 4), "a b c e");
    assert_eq!(given(&six, "1", 4), "a b d f");
    let eight = [("a", 0), ("b", 1), ("c", 2), ("d", 3), ("e", 0), ("f", 1), ("g", 2), ("h", 3)];
    assert_eq!(given(&eight, "1,3", 4), "b d f h");
    assert_eq!(given(&[("a", -1), ("b", 0), ("c", 1)], "1", 2), "b c", "before those without a node");
}

#[test]
fn plugin_chooses_among_preferred_devices_or_adds_others() {
    let preferring = DevicePluginOptions { get_preferred_allocation_available: true, ..DevicePluginOptions::default() };
    let split = |near: usize| -> Vec<(String, i64)> {
        (0..8).map(|number| (format!("d{number}"), i64::from(number >= near))).collect()
    };
    let choice = |near: usize, count, reused: &[&str], others: &[&str]| {
        let devices = split(near);
        let devices: Vec<(&str, i64)> = devices.iter().map(|(id, node)| (id.as_str(), *node)).collect();
        let mut allocations = near_nodes(&devices, preferring.clone());
        put(&mut allocations, "other", "main", others);
        allocations.prefer_nodes(&"p".into(), "main", nodes("0"));
        let mut pod = pod("p", count);
        if !reused.is_empty() {
            put(&mut allocations, "p", "init", reused);
            pod.spec.init_containers = vec![container("init", u32::try_from(reused.len()).unwrap())];
        }
        allocations.reserve(&pod, |_| false).unwrap();
        let given = allocations.unallocated(&"p".into()).remove(0);
        allocations.choice(&given).map(|(all, kept)| (all.join(" "), kept.join(" ")))
    };
    let all = "d0 d1 d2 d3 d4 d5 d6 d7";
    let expected = |all: &str, kept: &str| Some((all.to_owned(), kept.to_owned()));
    assert_eq!(choice(8, 1, &[], &[]), expected(all, ""));
    assert_eq!(choice(8, 4, &["d0", "d5"], &[]), expected(all, "d0 d5"));
    assert_eq!(choice(8, 4, &["d0", "d5"], &["d1", "d4"]), expected("d0 d2 d3 d5 d6 d7", "d0 d5"));
    assert_eq!(choice(4, 1, &[], &[]), expected("d0 d1 d2 d3", ""), "only preferred devices");
    assert_eq!(choice(4, 6, &["d1", "d6"], &[]), expected(all, "d1 d6 d0 d2 d3"));
    assert_eq!(choice(4, 6, &["d1", "d6"], &["d0", "d7"]), None, "there are no more");
    assert_eq!(choice(4, 5, &["d1", "d6"], &["d0", "d7"]), expected("d1 d2 d3 d4 d5 d6", "d1 d6 d2 d3"));

    let prefers = |near: usize, preferred: &[&str]| {
        let devices: Vec<(String, i64)> =
            (0..100).map(|number| (format!("d{number:02}"), i64::from(number >= near))).collect();
        let devices: Vec<(&str, i64)> = devices.iter().map(|(id, node)| (id.as_str(), *node)).collect();
        let mut allocations = near_nodes(&devices, preferring.clone());
        allocations.prefer_nodes(&"p".into(), "main", nodes("0"));
        allocations.reserve(&pod("p", 5), |_| false).unwrap();
        let given = allocations.unallocated(&"p".into()).remove(0);
        allocations.prefer(&given, &preferred.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>());
        of(&allocations, &pod("p", 5), "main").join(" ")
    };
    assert_eq!(prefers(50, &["d00", "d19", "d33", "d42", "d47"]), "d00 d19 d33 d42 d47");
    assert_eq!(prefers(50, &["d00", "d19", "d33", "d66", "d86"]), "d00 d01 d02 d19 d33", "distant devices are ignored");
    assert_eq!(prefers(3, &["d00", "d01", "d02", "d42", "d83"]), "d00 d01 d02 d42 d83");
    assert_eq!(prefers(3, &["d42", "bogus"]), "d00 d01 d02 d03 d42");
}

/// Processor time of the choice for a pod with this many containers, each with one device.
fn time_of_choice(count: usize) -> Duration {
    let ids: Vec<String> = (0..count).map(|n| format!("{n:05}")).collect();
    let mut allocations = allocations(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    let mut pod = pod("1", 1);
    pod.spec.containers = ids.iter().map(|id| container(id, 1)).collect();
    let begun = processor_time();
    allocations.reserve(&pod, |_| false).unwrap();
    let took = processor_time() - begun;
    assert!(ids.iter().all(|id| of(&allocations, &pod, id) == [id.clone()]), "each has the first one that is free");
    took
}

/// Processor time of reading the device selectors of a pod with this many containers, each with a resource of its own.
fn time_of_selectors(count: usize) -> Duration {
    let resource = |n: usize| format!("x.io/{n:03}");
    let mut pod = pod("1", 1);
    let texts: Vec<String> = (0..count).map(|n| format!("{}: {{a: b}}", resource(n))).collect();
    pod.metadata.annotations.insert(annotations::DEVICE_SELECTORS, format!("{{{}}}", texts.join(", ")));
    let mut containers: Vec<Container> = (0..count * 8).map(|n| container(&n.to_string(), 1)).collect();
    for (n, container) in containers.iter_mut().rev().take(count).enumerate() {
        container.resources.limits.insert(&resource(n), "1".parse().unwrap());
    }
    pod.spec.containers = containers;
    let begun = processor_time();
    let read = selectors(&pod).unwrap();
    let took = processor_time() - begun;
    assert_eq!(read.resources().count(), count);
    took
}

#[test]
fn selectors_take_time_in_proportion_to_the_containers() {
    let least = |count| (0..3).map(|_| time_of_selectors(count)).min().unwrap();
    let (less, more) = (least(50), least(800));
    assert!(more < less * 40, "{less:?} for 50 resources, {more:?} for 800");
}

#[test]
fn choice_takes_time_in_proportion_to_the_containers() {
    let least = |count| (0..3).map(|_| time_of_choice(count)).min().unwrap();
    let (less, more) = (least(50), least(800));
    assert!(more < less * 40, "{less:?} for 50 containers, {more:?} for 800");
}
