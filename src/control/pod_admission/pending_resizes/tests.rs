use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::control::pod_table::testing::{self, Node, with_node};
use crate::kubelet::admission::Admission;
use crate::kubelet::resource_managers::{State, Topology};
use crate::platform::config::Config;
use crate::platform::rt;
use crate::types::api::{Container, ContainerStatus, PodCondition, ResourceList, ResourceRequirements};

fn list(cpu: &str) -> ResourceList {
    [(CPU, cpu.parse().unwrap())].into_iter().collect()
}

/// A pod with one container that asks for this CPU.
fn pod(uid: &str, cpu: &str) -> Arc<Pod> {
    let mut pod = Pod::clone(&testing::pod(uid));
    pod.metadata.generation = 1;
    let mut container = Container { name: "main".to_owned(), ..Container::default() };
    container.resources.requests = list(cpu);
    pod.spec.containers = vec![container];
    Arc::new(pod)
}

fn resized(pod: &Pod, cpu: &str) -> Arc<Pod> {
    let mut pod = pod.clone();
    pod.metadata.generation += 1;
    pod.spec.containers[0].resources.requests = list(cpu);
    Arc::new(pod)
}

struct Part {
    resizes: PendingResizes,
    admission: PodAdmission,
    managers: ResourceManagers,
    gate: Result<(), Rejection>,
}

impl Part {
    /// The node has 4 CPUs.
    fn new(node: &Node) -> Self {
        let config = Config::default();
        let admission = PodAdmission::new(Admission::new(&config, &list("4"), 110), Rc::clone(&node.devices));
        let managers = ResourceManagers::new(&config, Topology::read(Path::new("/nowhere")), State::Nothing).unwrap();
        Self { resizes: PendingResizes::default(), admission, managers, gate: Ok(()) }
    }

    fn add(&mut self, node: &mut Node, pod: &Arc<Pod>) {
        let (uid, now) = (pod.metadata.uid.clone(), rt::now());
        node.pods.restore_allocation(pod);
        node.pods.apply([Effect::Update(Arc::clone(pod)), Effect::Admit { uid, after: Vec::new() }], now);
        self.resizes.on_added(pod, &node.pods, now);
    }

    fn update(&mut self, node: &mut Node, pod: &Arc<Pod>) {
        let gate = |_: &Pod| self.gate.clone();
        let deciders = ResizeContext { admission: &self.admission, managers: &self.managers, gate: &gate };
        let effects = self.resizes.on_update(pod, &node.pods, deciders, rt::now());
        node.pods.apply(effects, rt::now());
    }

    fn retry(&mut self, node: &mut Node) {
        for uid in self.resizes.deferred(&node.pods) {
            let gate = |_: &Pod| self.gate.clone();
            let deciders = ResizeContext { admission: &self.admission, managers: &self.managers, gate: &gate };
            let effects = self.resizes.retry(&uid, &node.pods, deciders, RetryTrigger::PeriodicRetry);
            node.pods.apply(effects, rt::now());
        }
    }

    /// The reason and the generation of the pending resize.
    fn pending(&self, uid: &str) -> Option<(String, i64)> {
        let pending = self.resizes.of(&uid.into(), &Resizing::No).pending;
        pending.map(|(reason, _, generation)| (reason.to_string(), generation))
    }
}

/// The CPU that the pod's worker has.
fn cpu(node: &Node, uid: &str) -> String {
    let pod = node.pods.worker(&uid.into()).unwrap().pod.clone().unwrap();
    pod.spec.containers[0].resources.request(CPU).unwrap().to_string()
}

#[test]
fn refused_resize_never_reaches_the_worker() {
    with_node(|mut node| {
        let mut part = Part::new(&node);
        let (first, other) = (pod("a", "1"), pod("b", "2"));
        part.add(&mut node, &first);
        part.add(&mut node, &other);
        let wanted = resized(&first, "3");
        part.update(&mut node, &wanted);
        assert_eq!(part.pending("a"), Some(("Deferred".to_owned(), 2)));
        assert_eq!(cpu(&node, "a"), "1");
        // Another client has written the status; the spec is still the desired one.
        node.pods.apply([Effect::UpdateStatus(Arc::clone(&wanted))], rt::now());
        assert_eq!(cpu(&node, "a"), "1");
        part.retry(&mut node);
        assert_eq!(cpu(&node, "a"), "1");
        node.pods.apply([Effect::Delete(Arc::clone(&wanted))], rt::now());
        assert_eq!(cpu(&node, "a"), "1", "it ends with what it has");
    });
}

#[test]
fn resize_waits_while_the_node_admits_no_pods_unless_nothing_grows() {
    with_node(|mut node| {
        let mut part = Part::new(&node);
        let (first, other) = (pod("a", "1"), pod("b", "2"));
        part.add(&mut node, &first);
        part.add(&mut node, &other);
        part.gate = Err(Rejection { reason: Reason::EVICTED, message: "pressure".to_owned() });
        part.update(&mut node, &resized(&first, "1500m"));
        part.update(&mut node, &resized(&other, "1"));
        assert_eq!((part.pending("a"), cpu(&node, "a")), (Some(("Deferred".to_owned(), 2)), "1".to_owned()));
        assert_eq!((part.pending("b"), cpu(&node, "b")), (None, "1".to_owned()));
        part.gate = Ok(());
        part.retry(&mut node);
        assert_eq!((part.pending("a"), cpu(&node, "a")), (None, "1500m".to_owned()));
    });
}

#[test]
fn deferred_resize_is_allocated_when_there_is_room() {
    with_node(|mut node| {
        let mut part = Part::new(&node);
        let (first, other) = (pod("a", "1"), pod("b", "2"));
        part.add(&mut node, &first);
        part.add(&mut node, &other);
        part.update(&mut node, &resized(&first, "3"));
        part.update(&mut node, &resized(&other, "500m"));
        assert_eq!(cpu(&node, "b"), "500m", "a decrease needs no room");
        part.retry(&mut node);
        assert_eq!((part.pending("a"), cpu(&node, "a")), (None, "3".to_owned()));
        assert_eq!(*node.pods.workers().resizing(&"a".into()), Resizing::InProgress { generation: 2 });
    });
}

#[test]
fn pod_that_shrinks_keeps_its_room_until_the_runtime_has_done_it() {
    with_node(|mut node| {
        let mut part = Part::new(&node);
        let (first, other) = (pod("a", "1"), pod("b", "2"));
        part.add(&mut node, &first);
        part.add(&mut node, &other);
        let actuated = ResourceRequirements { requests: list("2"), ..ResourceRequirements::default() };
        node.pods.runtime().allocations().actuated.set_container(&"b".into(), "main", &actuated);
        part.update(&mut node, &resized(&other, "1"));
        part.update(&mut node, &resized(&first, "3"));
        assert_eq!((cpu(&node, "b"), cpu(&node, "a")), ("1".to_owned(), "1".to_owned()));
        assert_eq!(part.pending("a"), Some(("Deferred".to_owned(), 2)));
    });
}

#[test]
fn resize_beyond_the_node_is_deferred_and_a_reverted_one_forgotten() {
    with_node(|mut node| {
        let mut part = Part::new(&node);
        let first = pod("a", "1");
        part.add(&mut node, &first);
        part.update(&mut node, &resized(&first, "5"));
        assert_eq!(part.pending("a"), Some(("Deferred".to_owned(), 2)));
        part.update(&mut node, &first);
        assert_eq!(part.pending("a"), None);
        assert!(part.resizes.deferred(&node.pods).is_empty());
    });
}

#[test]
fn restart_admits_the_allocated_resources_and_keeps_the_resize_pending() {
    with_node(|mut node| {
        let mut part = Part::new(&node);
        // What the API server has of a pod that ran with 1 CPU and whose resize to 3 CPUs was deferred.
        let mut desired = Pod::clone(&resized(&pod("a", "1"), "3"));
        let resources = ResourceRequirements { requests: list("1"), ..ResourceRequirements::default() };
        desired.status.container_statuses = vec![ContainerStatus {
            name: "main".to_owned(),
            container_id: "containerd://1".to_owned(),
            allocated_resources: list("1"),
            resources: Some(Box::new(resources)),
            ..ContainerStatus::default()
        }];
        desired.status.conditions = vec![PodCondition {
            kind: conditions::POD_RESIZE_PENDING.into(),
            observed_generation: 2,
            reason: Reason::DEFERRED,
            ..PodCondition::default()
        }];
        part.add(&mut node, &Arc::new(desired));
        part.add(&mut node, &pod("b", "2"));
        assert_eq!((cpu(&node, "a"), part.pending("a")), ("1".to_owned(), Some(("Deferred".to_owned(), 2))));
        part.retry(&mut node);
        assert_eq!(cpu(&node, "a"), "1");
        let events = node.ring.borrow().events("node").count();
        assert_eq!(events, 0, "the event was recorded before the restart");
    });
}

#[test]
fn pods_are_tried_by_growth_then_priority() {
    with_node(|mut node| {
        let mut part = Part::new(&node);
        let with_priority = |uid: &str, priority: i32| {
            let mut pod = Pod::clone(&pod(uid, "1"));
            pod.spec.priority = Some(priority);
            Arc::new(pod)
        };
        let pods = [with_priority("a", 0), with_priority("b", 5), with_priority("c", 0)];
        for pod in &pods {
            part.add(&mut node, pod);
        }
        for pod in &pods {
            part.update(&mut node, &resized(pod, "3"));
        }
        assert_eq!(part.resizes.deferred(&node.pods), ["b", "a", "c"].map(PodUid::from));
        part.retry(&mut node);
        assert!(pods.iter().all(|pod| cpu(&node, pod.metadata.uid.as_str()) == "1"));
    });
}
