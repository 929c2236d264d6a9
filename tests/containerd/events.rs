//! Events of pods on a real runtime.

use super::node::{Events, Manifest, Node, PATIENCE, STAY, wait_for};

impl Node {
    pub(crate) fn events(&self, pod: &str) -> Events {
        self.ask(&["events", pod, "-o", "json"]).map(|text| Events::parse(&text)).unwrap_or_default()
    }
}

#[test]
fn pods_events_match_those_of_the_upstream_kubelet() {
    let node = Node::start();
    node.apply(&Manifest::new("web").init_container("first", "true").container("main", STAY));
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let uid = node.pods().get("web").unwrap().uid().to_owned();
    let events = wait_for("its events", PATIENCE, || Some(node.events("web")).filter(|events| events.0.len() >= 6));
    let image =
        "Container image \"localhost/coracle/busybox:1\" already present on machine and can be accessed by the pod";
    let told: Vec<String> = events.lines().into_iter().filter(|line| !line.contains("MissingClusterDNS")).collect();
    assert_eq!(
        told,
        [
            format!("Normal Pulled spec.initContainers{{first}} {image}"),
            "Normal Created spec.initContainers{first} Container created".to_owned(),
            "Normal Started spec.initContainers{first} Container started".to_owned(),
            format!("Normal Pulled spec.containers{{main}} {image}"),
            "Normal Created spec.containers{main} Container created".to_owned(),
            "Normal Started spec.containers{main} Container started".to_owned(),
        ]
    );
    let object = &events.0[0].0["involvedObject"];
    assert_eq!((&object["kind"], &object["name"]), (&"Pod".into(), &"web-node-a".into()));
    assert_eq!((&object["namespace"], &object["uid"]), (&"default".into(), &uid.into()));

    node.remove_manifest("web");
    node.wait_until_gone("web");
    let line = "Normal Killing spec.containers{main} Stopping container main";
    assert!(node.events("web").lines().iter().any(|told| told == line), "the events of a pod outlive it");
    let table = node.ask(&["events"]).unwrap();
    assert!(table.lines().any(|line| line.contains("Node/node-a ") && line.ends_with(" Starting kubelet.")), "{table}");
}

#[test]
fn crashing_container_gets_a_back_off_event() {
    let node = Node::start();
    node.apply(&Manifest::new("web").container("main", "exit 1"));
    let events = wait_for("it to back off", PATIENCE, || {
        Some(node.events("web")).filter(|events| events.find("BackOff", "").is_some())
    });
    let uid = node.pods().get("web").unwrap().uid().to_owned();
    let message = format!("Back-off restarting failed container main in pod web-node-a_default({uid})");
    assert!(events.find("BackOff", &message).is_some(), "{:#?}", events.lines());
    assert!(events.find("Started", "Container started").unwrap().count() >= 2, "{:#?}", events.lines());
}
