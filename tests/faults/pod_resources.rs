//! The pod resources API.

use super::devices::{CAMERA, one_with_a_camera};
use super::node::{Manifest, NODE_NAME, Node, Pods};
use crate::device_plugin::ask;
use crate::device_plugin::messages::*;

#[test]
fn pod_resources_list_the_devices_of_each_pod() {
    let (node, _plugin) = one_with_a_camera(&["cam0", "cam1"]);
    let socket = node.folder().join("pods/pod-resources/kubelet.sock");
    let device = |id: &str| ContainerDevices {
        resource_name: CAMERA.to_owned(),
        device_ids: vec![id.to_owned()],
        topology: None,
    };
    let name = format!("one-{NODE_NAME}");
    let one = PodResources {
        name: name.clone(),
        namespace: "default".to_owned(),
        containers: vec![ContainerResources {
            name: "one".to_owned(),
            devices: vec![device("cam0")],
            cpu_ids: Vec::new(),
            memory: Vec::new(),
        }],
    };
    let listed: ListPodResources = ask(&socket, "/v1.PodResourcesLister/List", Empty {}).unwrap();
    assert_eq!(listed.pod_resources, [one]);
    let listed_for_old_clients: ListPodResources = ask(&socket, "/v1alpha1.PodResourcesLister/List", Empty {}).unwrap();
    assert_eq!(listed_for_old_clients, listed);
    let all: Allocatable = ask(&socket, "/v1.PodResourcesLister/GetAllocatableResources", Empty {}).unwrap();
    assert_eq!(all.devices, [device("cam0"), device("cam1")]);
    assert!(all.cpu_ids.is_empty() && all.memory.is_empty(), "no container has exclusive CPUs or memory");
    let get = |name: &str| {
        let asked = GetPodResources { pod_name: name.to_owned(), pod_namespace: "default".to_owned() };
        ask::<_, ListPodResources>(&socket, "/v1.PodResourcesLister/Get", asked)
    };
    assert_eq!(get(&name).unwrap(), listed);
    assert_eq!(get("two").unwrap_err(), "Unknown: pod two in namespace default not found");
    // Requests above the rate limit are refused, and nothing else happens.
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..40).map(|_| scope.spawn(|| get("two").unwrap_err())).collect();
        let refused = asked.into_iter().map(|asked| asked.join().unwrap());
        assert!(refused.filter(|why| why == "ResourceExhausted: rejected by rate limit").count() > 0);
    });
}

#[test]
fn pod_resources_leave_out_pods_that_have_ended_unless_their_gate_is_off_or_the_client_is_old() {
    let mut node = Node::new();
    node.start_agent();
    node.apply(&Manifest::new("job").container("main", "").spec("restartPolicy: Never"));
    node.wait_until_ready("job");
    let socket = node.folder().join("pods/pod-resources/kubelet.sock");
    let name = format!("job-{NODE_NAME}");
    let (list, old_list) = ("/v1.PodResourcesLister/List", "/v1alpha1.PodResourcesLister/List");
    let listed = |method: &'static str| -> Vec<String> {
        let listed: ListPodResources = ask(&socket, method, Empty {}).unwrap();
        listed.pod_resources.into_iter().map(|pod| pod.name).collect()
    };
    assert_eq!(listed(list), [name.as_str()]);
    node.fake.exit("main", 0);
    let has_ended = |pods: &Pods| pods.get("job").is_some_and(|pod| pod.json()["status"]["phase"] == "Succeeded");
    node.wait_until("the pod has ended", has_ended);
    assert!(listed(list).is_empty());
    assert_eq!(listed(old_list), [name.as_str()]);
    let asked = GetPodResources { pod_name: name.clone(), pod_namespace: "default".to_owned() };
    let got: ListPodResources = ask(&socket, "/v1.PodResourcesLister/Get", asked).unwrap();
    assert_eq!(got.pod_resources[0].name, name);
    node.kill_agent();
    node.configure("featureGates: {KubeletPodResourcesListUseActivePods: false}\n");
    node.start_agent();
    node.wait_until("the ended pod is known again", has_ended);
    assert_eq!(listed(list), [name]);
}

#[test]
fn pod_resources_list_exclusive_cpus_and_memory_and_the_allocatable_amounts() {
    let mut node = Node::new();
    node.configure(
        "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nmemoryManagerPolicy: Static\n\
         evictionHard: {memory.available: 100Mi}\nreservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n",
    );
    node.start_agent();
    let amounts = "{cpu: 1, memory: 32Mi}";
    let resources = format!("resources: {{requests: {amounts}, limits: {amounts}}}");
    node.apply(&Manifest::new("own").container_with("main", "", &resources));
    node.apply(&Manifest::new("shared").container("main", ""));
    node.wait_until_ready("own");
    node.wait_until_ready("shared");
    let socket = node.folder().join("pods/pod-resources/kubelet.sock");
    let all: Allocatable = ask(&socket, "/v1.PodResourcesLister/GetAllocatableResources", Empty {}).unwrap();
    assert!(!all.cpu_ids.is_empty() && !all.cpu_ids.contains(&0), "{:?}", all.cpu_ids);
    let memory = all.memory.iter().find(|block| block.memory_type == "memory").unwrap();
    assert_eq!(memory.topology, Some(Topology::near(0)));
    let listed: ListPodResources = ask(&socket, "/v1.PodResourcesLister/List", Empty {}).unwrap();
    let of = |name: &str| {
        let name = format!("{name}-{NODE_NAME}");
        listed.pod_resources.iter().find(|pod| pod.name == name).unwrap().containers[0].clone()
    };
    let own = of("own");
    assert_eq!(own.cpu_ids, all.cpu_ids[..1]);
    let block = ContainerMemory { memory_type: "memory".to_owned(), size: 32 << 20, topology: Some(Topology::near(0)) };
    assert_eq!(own.memory, [block]);
    assert!(memory.size > 32 << 20);
    let shared = of("shared");
    assert!(shared.cpu_ids.is_empty() && shared.memory.is_empty());
}
