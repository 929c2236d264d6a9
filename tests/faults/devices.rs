//! Device plugins, and pods that request their devices.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::node::{Manifest, Node};
use crate::device_plugin::messages::*;
use crate::device_plugin::{Plugin, ask};
use crate::wait::wait_for;

pub(crate) const CAMERA: &str = "example.com/camera";

fn kubelet(node: &Node) -> PathBuf {
    node.folder().join("pods/device-plugins/kubelet.sock")
}

fn plugin(node: &Node, ids: &[&str]) -> Plugin {
    let directory = node.folder().join("pods/device-plugins");
    wait_for("the socket for plugins", || kubelet(node).exists());
    Plugin::start(&directory.join("camera.sock"), ids)
}

/// A node whose plugin has these devices, and a pod that has the first of them.
pub(crate) fn one_with_a_camera(ids: &[&str]) -> (Node, Plugin) {
    let mut node = Node::new();
    node.start_agent();
    let plugin = plugin(&node, ids);
    plugin.register(&kubelet(&node), CAMERA);
    node.apply(&wanting("one", 1));
    node.wait_until_ready("one");
    (node, plugin)
}

/// A pod of one container that requests `count` devices.
fn wanting(name: &str, count: u32) -> Manifest {
    let limits = format!("resources: {{limits: {{\"{CAMERA}\": {count}}}}}");
    Manifest::new(name).container_with(name, "", &limits)
}

/// The devices that the plugin passed to the pod's newest container.
fn devices_of(node: &Node, pod: &str) -> String {
    let made = node.created_containers(pod);
    let envs = &made.last().expect("no container was made").envs;
    let found = envs.iter().find(|variable| variable.key == "DEVICES").expect("the container has no devices");
    String::from_utf8(found.value.clone()).unwrap()
}

#[test]
fn container_gets_its_device_with_mounts_environment_and_annotations() {
    let (node, plugin) = one_with_a_camera(&["cam0"]);
    assert_eq!(plugin.calls("Allocate"), [["cam0"]]);
    let made = node.created_containers("one").remove(0);
    assert_eq!(devices_of(&node, "one"), "cam0");
    let device = &made.devices[0];
    assert_eq!(
        (device.container_path.as_str(), device.host_path.as_str(), device.permissions.as_str()),
        ("/dev/cam0", "/dev/null", "rw")
    );
    let mount = &made.mounts[0];
    assert_eq!((mount.container_path.as_str(), mount.readonly), ("/firmware", true));
    assert_eq!(made.annotations.get("example.com/devices").map(String::as_str), Some("cam0"));
    assert_eq!(made.cdi_devices[0].name, "example.com/camera=all");
}

#[test]
fn plugin_is_asked_for_preferences_and_before_each_start() {
    let mut node = Node::new();
    node.start_agent();
    let plugin = plugin(&node, &["cam0", "cam1", "cam2"]);
    let options = DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };
    *plugin.shared.options.lock().unwrap() = options;
    *plugin.shared.preferred.lock().unwrap() = vec!["cam2".to_owned()];
    plugin.register(&kubelet(&node), CAMERA);
    node.apply(&wanting("one", 1));
    node.wait_until_ready("one");
    assert_eq!(plugin.calls("GetPreferredAllocation"), [["cam0", "cam1", "cam2"]]);
    assert_eq!(plugin.calls("Allocate"), [["cam2"]]);
    node.fake.exit("one", 1);
    node.wait_until("the container has restarted", |_| node.created_containers("one").len() == 2);
    assert_eq!(plugin.calls("PreStartContainer"), [["cam2"], ["cam2"]]);
    assert_eq!(plugin.calls("Allocate").len(), 1, "the container keeps its devices");
    assert_eq!(devices_of(&node, "one"), "cam2");
}

#[test]
fn pod_waits_for_an_allocated_device_until_its_holder_ends() {
    let (node, _plugin) = one_with_a_camera(&["cam0"]);
    node.apply(&wanting("two", 1));
    node.apply(&Manifest::new("beside").container("main", ""));
    node.wait_until_ready("beside");
    assert!(node.created_containers("two").is_empty());
    node.remove_manifest("one");
    node.wait_until_ready("two");
    assert_eq!(devices_of(&node, "two"), "cam0");
}

#[test]
fn killed_plugin_takes_no_device_from_running_pods() {
    let (node, mut plugin) = one_with_a_camera(&["cam0", "cam1"]);
    plugin.kill();
    node.wait_until("the loss of the plugin is logged", |_| node.log().contains("device plugin stopped"));
    node.apply(&wanting("two", 1));
    node.apply(&Manifest::new("beside").container("main", ""));
    node.fake.exit("one", 1);
    node.wait_until("one restarts with its devices", |_| node.created_containers("one").len() == 2);
    node.wait_until_ready("beside");
    assert_eq!(devices_of(&node, "one"), "cam0");
    assert!(node.created_containers("two").is_empty());
    plugin.restart();
    plugin.register(&kubelet(&node), CAMERA);
    node.wait_until_ready("two");
    assert_eq!(devices_of(&node, "two"), "cam1");
}

#[test]
fn hung_plugin_delays_only_pods_that_want_its_devices() {
    let mut node = Node::new();
    node.start_agent();
    let mut plugin = plugin(&node, &["cam0"]);
    plugin.hang("Allocate");
    plugin.register(&kubelet(&node), CAMERA);
    node.apply(&wanting("one", 1));
    plugin.wait_for("Allocate");
    node.apply(&Manifest::new("beside").container("main", ""));
    node.wait_until_ready("beside");
    assert!(node.created_containers("one").is_empty());
    plugin.mend();
    plugin.restart();
    plugin.register(&kubelet(&node), CAMERA);
    node.wait_until_ready("one");
    assert_eq!(devices_of(&node, "one"), "cam0");
}

#[test]
fn refused_allocation_is_retried_for_static_pods() {
    let mut node = Node::new();
    node.start_agent();
    let plugin = plugin(&node, &["cam0"]);
    plugin.fail("Allocate", "the lens is dirty");
    plugin.register(&kubelet(&node), CAMERA);
    node.apply(&wanting("one", 1));
    let why = "the pod waits for its devices: rpc error: code = Unknown desc = the lens is dirty";
    node.wait_until("the failure is logged", |_| node.log().contains(why));
    plugin.mend();
    node.wait_until_ready("one");
}

#[test]
fn agent_killed_during_allocation_allocates_no_device_twice() {
    let (mut node, mut plugin) = one_with_a_camera(&["cam0", "cam1"]);
    let before = node.seen("one").ids().join(" ");
    plugin.hang("Allocate");
    node.apply(&wanting("two", 1));
    node.wait_until("Allocate is called", |_| plugin.calls("Allocate").len() == 2);
    node.kill_agent();
    plugin.mend();
    node.start_agent();
    // The agent removed the plugin's socket, which makes the plugin register again.
    node.wait_until("the agent is back", |pods| !pods.0.is_empty());
    plugin.restart();
    plugin.register(&kubelet(&node), CAMERA);
    node.wait_until_ready("two");
    node.wait_until_ready("one");
    assert_eq!(node.seen("one").ids().join(" "), before, "running containers are not touched");
    assert_eq!(devices_of(&node, "two"), "cam1");
    node.apply(&wanting("three", 1));
    node.wait_until("the third pod waits", |_| node.log().contains("Requested: 1, Available: 0"));
}

#[test]
fn readable_part_of_a_damaged_checkpoint_is_used() {
    let (mut node, mut plugin) = one_with_a_camera(&["cam0", "cam1"]);
    node.kill_agent();
    let checkpoint = node.folder().join("pods/device-plugins/kubelet_internal_checkpoint");
    let text = std::fs::read_to_string(&checkpoint).unwrap();
    std::fs::write(&checkpoint, text.split("\"RegisteredDevices\"").next().unwrap()).unwrap();
    node.start_agent();
    node.wait_until("the checkpoint is set aside", |_| checkpoint.with_extension("corrupt").exists());
    node.wait_until_ready("one");
    plugin.restart();
    plugin.register(&kubelet(&node), CAMERA);
    node.apply(&wanting("two", 1));
    node.wait_until_ready("two");
    assert_eq!(devices_of(&node, "two"), "cam1");
}

#[test]
fn invalid_registrations_are_refused_and_others_accepted() {
    let mut node = Node::new();
    node.start_agent();
    let plugin = plugin(&node, &["cam0"]);
    let kubelet = kubelet(&node);
    let refused = |resource: &str, version: &str| plugin.try_register(&kubelet, resource, version).unwrap_err();
    let version =
        "Unknown: requested API version \"v1\" is not supported by kubelet. Supported version is [\"v1beta1\"]";
    assert_eq!(refused(CAMERA, "v1"), version);
    assert_eq!(refused("cpu", "v1beta1"), "Unknown: the ResourceName \"cpu\" is invalid");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff", b"\0"]
    {
        let mut stream = UnixStream::connect(&kubelet).unwrap();
        stream.write_all(garbage).unwrap();
        drop(stream);
    }
    plugin.hang("GetDevicePluginOptions");
    // An endpoint that does not answer delays no other.
    let (socket, at) = (node.folder().join("pods/device-plugins/other.sock"), kubelet.clone());
    let other = Plugin::start(&socket, &["x"]);
    std::thread::scope(|scope| {
        let hangs = scope.spawn(|| plugin.try_register(&at, CAMERA, "v1beta1"));
        other.register(&kubelet, "example.com/other");
        plugin.wait_for("GetDevicePluginOptions");
        node.apply(&Manifest::new("beside").container("main", ""));
        node.wait_until_ready("beside");
        node.kill_agent();
        assert!(hangs.join().unwrap().is_err());
    });
}

#[test]
fn plugin_socket_in_the_registry_is_discovered_and_its_loss_noticed() {
    let mut node = Node::new();
    let registry = node.folder().join("pods/plugins_registry");
    std::fs::create_dir_all(registry.join("example")).unwrap();
    let mut plugin = Plugin::start(&registry.join("example/camera.sock"), &["cam0"]);
    let info = |kind: &str| PluginInfo {
        kind: kind.to_owned(),
        name: CAMERA.to_owned(),
        endpoint: String::new(),
        supported_versions: vec!["v1beta1".to_owned()],
    };
    *plugin.shared.info.lock().unwrap() = info("DevicePlugin");
    node.start_agent();
    node.apply(&wanting("one", 1));
    node.wait_until_ready("one");
    let told = || plugin.shared.told.lock().unwrap().clone();
    assert_eq!(told(), [RegistrationStatus { plugin_registered: true, error: String::new() }]);
    let strange = Plugin::start(&registry.join("strange.sock"), &[]);
    *strange.shared.info.lock().unwrap() = info("Strange");
    node.wait_until("the registration is refused", |_| !strange.shared.told.lock().unwrap().is_empty());
    let error = strange.shared.told.lock().unwrap()[0].error.clone();
    let expected = "RegisterPlugin error -- no handler registered for plugin type: Strange at socket ";
    assert!(error.starts_with(expected), "{error}");
    plugin.kill();
    std::fs::remove_file(registry.join("example/camera.sock")).unwrap();
    node.wait_until("the plugin is deregistered", |_| node.log().contains("plugin deregistered"));
    node.apply(&wanting("two", 1));
    plugin.set(&[("cam0", true), ("cam1", true)]);
    plugin.restart();
    node.wait_until_ready("two");
    assert_eq!(devices_of(&node, "two"), "cam1");
}

#[test]
fn devices_are_allocated_from_the_containers_numa_node() {
    let mut node = Node::new();
    node.configure("topologyManagerPolicy: restricted\n");
    node.start_agent();
    let plugin = plugin(&node, &[]);
    // No test machine has this many NUMA nodes.
    plugin.set_near(&[("cam0", 63), ("cam1", 0), ("cam2", 0)]);
    *plugin.shared.options.lock().unwrap() =
        DevicePluginOptions { get_preferred_allocation_available: true, ..DevicePluginOptions::default() };
    *plugin.shared.preferred.lock().unwrap() = vec!["cam0".to_owned(), "cam2".to_owned()];
    plugin.register(&kubelet(&node), CAMERA);
    node.apply(&wanting("one", 1));
    node.wait_until_ready("one");
    assert_eq!(plugin.calls("GetPreferredAllocation"), [["cam1", "cam2"]]);
    assert_eq!(devices_of(&node, "one"), "cam2");
    node.apply(&wanting("two", 1));
    node.wait_until_ready("two");
    assert_eq!(devices_of(&node, "two"), "cam1");
    node.apply(&wanting("three", 1));
    node.wait_until("the pod is refused", |pods| {
        pods.has("three", |pod| pod.json()["status"]["reason"] == "TopologyAffinityError")
    });
    let socket = node.folder().join("pods/pod-resources/kubelet.sock");
    let all: Allocatable = ask(&socket, "/v1.PodResourcesLister/GetAllocatableResources", Empty {}).unwrap();
    let near: Vec<_> = all.devices.iter().map(|device| device.topology.as_ref().unwrap().nodes[0].id).collect();
    assert_eq!(near, [0, 0, 63]);
}

/// A node whose plugin has two cameras and offers every optional call, and a pod that has one of them.
fn one_of_two() -> (Node, Plugin) {
    let mut node = Node::new();
    node.start_agent();
    let plugin = plugin(&node, &["cam0", "cam1"]);
    *plugin.shared.options.lock().unwrap() =
        DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };
    plugin.register(&kubelet(&node), CAMERA);
    (node, plugin)
}

/// Checks that both pods have different devices, and that a third pod waits until the first has ended.
#[track_caller]
fn check_that_each_has_its_own(node: &Node) {
    node.wait_until_ready("one");
    node.wait_until_ready("two");
    let mut given = ["one", "two"].map(|pod| devices_of(node, pod));
    given.sort();
    assert_eq!(given, ["cam0", "cam1"]);
    node.apply(&wanting("three", 1));
    node.wait_until("the third pod waits", |_| node.log().contains("Requested: 1, Available: 0"));
    let of_one = devices_of(node, "one");
    node.remove_manifest("one");
    node.wait_until_ready("three");
    assert_eq!(devices_of(node, "three"), of_one);
}

/// Kills the agent when `begun` says that the second pod's allocation has reached a step.
#[track_caller]
fn check_kill(prepare: impl Fn(&Node, &Plugin), begun: impl Fn(&Node, &Plugin) -> bool, mend: impl Fn(&Node)) {
    let (mut node, mut plugin) = one_of_two();
    // With three devices the plugin always has a choice.
    plugin.set(&[("cam0", true), ("cam1", true), ("cam2", false)]);
    node.apply(&wanting("one", 1));
    node.wait_until_ready("one");
    let before = node.seen("one").ids().join(" ");
    plugin.set(&[("cam0", true), ("cam1", true), ("cam2", true)]);
    // A pod that arrives before the agent knows the third device would leave the plugin no choice.
    let socket = node.folder().join("pods/pod-resources/kubelet.sock");
    node.wait_until("the agent knows of three devices", |_| {
        let all: Result<Allocatable, _> = ask(&socket, "/v1.PodResourcesLister/GetAllocatableResources", Empty {});
        all.is_ok_and(|all| all.devices.len() == 3)
    });
    prepare(&node, &plugin);
    node.apply(&wanting("two", 1));
    node.wait_until("the step is reached", |_| begun(&node, &plugin));
    node.kill_agent();
    plugin.mend();
    mend(&node);
    plugin.set(&[("cam0", true), ("cam1", true)]);
    node.start_agent();
    node.wait_until("the agent is back", |pods| !pods.0.is_empty());
    plugin.restart();
    plugin.register(&kubelet(&node), CAMERA);
    node.wait_until_ready("two");
    assert_eq!(node.seen("one").ids().join(" "), before, "running containers are not touched");
    check_that_each_has_its_own(&node);
}

#[test]
fn agent_killed_before_asking_for_devices_allocates_each_once() {
    let hang = |_: &Node, plugin: &Plugin| plugin.hang("GetPreferredAllocation");
    check_kill(hang, |_, plugin| plugin.calls("GetPreferredAllocation").len() == 2, |_| {});
}

#[test]
fn agent_killed_before_writing_its_checkpoint_allocates_each_device_once() {
    let checkpoint = |node: &Node| node.folder().join("pods/device-plugins/kubelet_internal_checkpoint");
    // A file cannot be renamed over a directory. The previous checkpoint is lost, too. At once: the agent may be writing.
    let block = |node: &Node, _: &Plugin| {
        let aside = node.folder().join("aside");
        std::fs::create_dir(&aside).unwrap();
        renameat2(AT_FDCWD, &aside, AT_FDCWD, &checkpoint(node), RenameFlags::RENAME_EXCHANGE).unwrap();
    };
    let says = "the pod waits for its devices: write the device checkpoint";
    check_kill(block, |node, _| node.log().contains(says), |node| std::fs::remove_dir(checkpoint(node)).unwrap());
}

#[test]
fn agent_killed_while_creating_a_container_allocates_each_device_once() {
    for method in ["CreateContainer", "StartContainer"] {
        let hang = |node: &Node, _: &Plugin| drop(node.fake.on(method).times(1).hang_after_effect());
        let of_two = |node: &Node| node.seen("two").containers.len();
        check_kill(hang, |node, _| of_two(node) == 1, |_| {});
    }
}

/// Lets the plugin's `method` fail in every way. Only pods that want its devices are delayed, and afterwards each pod
/// has one.
#[track_caller]
fn check_plugin(method: &'static str) {
    for fault in ["killed", "hangs", "garbles"] {
        let (node, mut plugin) = one_of_two();
        plugin.wait_for("ListAndWatch");
        match fault {
            "garbles" => plugin.garble(method),
            _ => plugin.hang(method),
        }
        if method == "ListAndWatch" {
            plugin.restart();
            plugin.register(&kubelet(&node), CAMERA);
        }
        node.apply(&wanting("one", 1));
        if method == "ListAndWatch" {
            node.wait_until("the plugin is called", |_| plugin.calls(method).len() == 2);
        } else {
            plugin.wait_for(method);
        }
        if fault == "killed" {
            plugin.kill();
        }
        node.apply(&Manifest::new("beside").container("main", ""));
        node.wait_until_ready("beside");
        assert!(node.created_containers("one").is_empty(), "{method} {fault}");
        plugin.mend();
        plugin.restart();
        plugin.register(&kubelet(&node), CAMERA);
        node.wait_until_ready("one");
        node.apply(&wanting("two", 1));
        check_that_each_has_its_own(&node);
    }
}

#[test]
fn failures_of_list_and_watch_delay_only_the_plugins_pods() {
    check_plugin("ListAndWatch");
}

#[test]
fn failures_of_get_preferred_allocation_delay_only_the_plugins_pods() {
    check_plugin("GetPreferredAllocation");
}

#[test]
fn failures_of_allocate_delay_only_the_plugins_pods() {
    check_plugin("Allocate");
}

#[test]
fn failures_of_pre_start_container_delay_only_the_plugins_pods() {
    check_plugin("PreStartContainer");
}

#[test]
fn lost_checkpoint_is_rebuilt_from_container_annotations() {
    for damage in [None, Some(""), Some("{\"Data\":")] {
        let (mut node, mut plugin) = one_with_a_camera(&["cam0", "cam1"]);
        node.kill_agent();
        let checkpoint = node.folder().join("pods/device-plugins/kubelet_internal_checkpoint");
        let before = std::fs::read_to_string(&checkpoint).unwrap();
        match damage {
            None => std::fs::remove_file(&checkpoint).unwrap(),
            Some(text) => std::fs::write(&checkpoint, text).unwrap(),
        }
        node.start_agent();
        node.wait_until_ready("one");
        plugin.restart();
        plugin.register(&kubelet(&node), CAMERA);
        node.wait_until("the checkpoint is as before", |_| {
            std::fs::read_to_string(&checkpoint).is_ok_and(|text| text == before)
        });
        node.apply(&wanting("two", 1));
        node.wait_until_ready("two");
        assert_eq!(devices_of(&node, "two"), "cam1");
        node.fake.exit("one", 1);
        node.wait_until("one restarts with its devices", |_| node.created_containers("one").len() == 2);
        assert_eq!(devices_of(&node, "one"), "cam0");
        assert_eq!(plugin.calls("Allocate"), [["cam0"], ["cam1"]], "the response was recovered too");
    }
}

/// The agent's resident memory in KiB.
fn resident(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.agent_pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

#[test]
fn ten_plugins_cost_the_agent_little_memory() {
    let (node, _first) = one_with_a_camera(&["cam0"]);
    node.wait_until_at_rest();
    let before = resident(&node);
    let plugins: Vec<Plugin> = (0..10)
        .map(|index| {
            let socket = node.folder().join(format!("pods/device-plugins/{index}.sock"));
            let plugin = Plugin::start(&socket, &["a", "b", "c", "d"]);
            plugin.register(&kubelet(&node), &format!("example.com/device-{index}"));
            plugin
        })
        .collect();
    plugins.iter().for_each(|plugin| plugin.wait_for("ListAndWatch"));
    node.wait_until_at_rest();
    let more = resident(&node).saturating_sub(before);
    println!("ten device plugins: {more} KiB more than {before} are resident");
    assert!(more <= 300, "{more} KiB");
}
