use std::sync::Arc;

use super::*;
use crate::state::pods::{Exit, ObservedContainer, PodChangeKind};
use crate::types::api::annotations::CONFIG_SOURCE;
use crate::types::api::{Container, PodUid};

fn pod(policy: RestartPolicy, containers: &[&str]) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = "default".to_owned();
    pod.metadata.name = "web-node1".to_owned();
    pod.metadata.uid = PodUid::from("u");
    pod.spec.restart_policy = policy;
    pod.spec.containers = containers.iter().map(|name| container(name, None)).collect();
    pod.spec.init_containers = vec![container("first", None), container("side", Some(RestartPolicy::Always))];
    pod
}

fn container(name: &str, restart_policy: Option<RestartPolicy>) -> Container {
    Container { name: name.to_owned(), restart_policy, ..Container::default() }
}

fn observed(containers: &[(&str, ContainerState)]) -> ObservedPod {
    let mut observed = ObservedPod::new(PodUid::from("u"), "default", "web-node1");
    for (name, state) in containers {
        observed.containers.push(ObservedContainer::seen(&format!("{name}-id"), name, "s", state.clone()));
    }
    observed
}

const RUNS: ContainerState = ContainerState::Running { started_at: 1 };

fn exited(code: i32) -> ContainerState {
    ContainerState::Exited(Box::new(Exit { code, ..Exit::default() }))
}

fn asked(pod: &Pod, seen: &ObservedPod, container: Option<&str>) -> Result<(Vec<String>, Vec<String>), String> {
    match restart(pod, PodPhase::Running, Some(seen), container) {
        Ok(asked) => Ok((asked.containers, asked.running)),
        Err(PodAnswer::Refused(why) | PodAnswer::Conflict(why) | PodAnswer::Missing(why)) => Err(why),
        Err(other) => panic!("{other:?}"),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn restart_includes_sidecars_but_not_run_once_containers() {
    let pod = pod(RestartPolicy::Always, &["a", "b"]);
    let seen = observed(&[("first", exited(0)), ("side", RUNS), ("a", RUNS), ("b", exited(1))]);
    let all = (names(&["side", "a", "b"]), names(&["side-id", "a-id"]));
    assert_eq!(asked(&pod, &seen, None), Ok(all), "one that waits in its back-off is started at once");
    assert_eq!(asked(&pod, &seen, Some("a")), Ok((names(&["a"]), names(&["a-id"]))));
    assert_eq!(asked(&pod, &seen, Some("side")), Ok((names(&["side"]), names(&["side-id"]))));
    let once = "container first of pod web-node1 runs once; containers that can be restarted: side, a, b";
    assert_eq!(asked(&pod, &seen, Some("first")), Err(once.to_owned()));
    let none = "pod web-node1 has no container x, only side, a, b";
    assert_eq!(asked(&pod, &seen, Some("x")), Err(none.to_owned()));
}

#[test]
fn completed_run_once_container_is_not_restarted() {
    let mut once = pod(RestartPolicy::Never, &["a"]);
    let seen = observed(&[("side", RUNS), ("a", RUNS)]);
    for container in [None, Some("a")] {
        let why = asked(&once, &seen, container).unwrap_err();
        assert!(why.starts_with("container a of pod web-node1 runs once (restartPolicy Never): "), "{why}");
    }
    assert!(asked(&once, &seen, Some("side")).is_ok(), "it has a policy of its own");
    once.spec.restart_policy = RestartPolicy::OnFailure;
    assert_eq!(asked(&once, &seen, Some("a")).unwrap().1, names(&["a-id"]));
    let done = observed(&[("side", RUNS), ("a", exited(0))]);
    assert_eq!(asked(&once, &done, None).unwrap().0, names(&["side"]));
    assert!(asked(&once, &done, Some("a")).unwrap_err().starts_with("container a is not running: "));
    let ended = restart(&once, PodPhase::Succeeded, Some(&done), None);
    assert!(
        matches!(ended, Err(PodAnswer::Conflict(why)) if why == "pod web-node1 has ended (Succeeded): coracle rerun web-node1 runs it again")
    );
}

#[test]
fn pod_that_has_not_started_cannot_be_restarted() {
    let pod = pod(RestartPolicy::Always, &["a"]);
    let line = "pod web-node1 is not running: coracle describe web-node1 shows why";
    assert_eq!(asked(&pod, &observed(&[]), None), Err(line.to_owned()));
    assert_eq!(restart(&pod, PodPhase::Pending, None, None), Err(PodAnswer::Conflict(line.to_owned())));
}

fn of_source(source: &str, name: &str, origin: &str) -> SourcePod {
    let mut pod = pod(RestartPolicy::Always, &["a"]);
    pod.metadata.name = name.to_owned();
    pod.metadata.annotations.insert(CONFIG_SOURCE, source.to_owned());
    SourcePod { pod: Arc::new(pod), origin: Arc::from(origin) }
}

fn change(name: &str) -> PodChange {
    PodChange { namespace: "default".to_owned(), name: name.to_owned(), kind: PodChangeKind::Delete }
}

#[test]
fn answer_names_the_owner_of_a_pod_of_another_source() {
    let pods = [
        of_source("file", "web-node1", "/m/web.yaml"),
        of_source("api", "db", "api"),
        of_source("local", "own-node1", "local:default/own"),
    ];
    let conflict = |name| conflict_with_other_source(&change(name), "Node1", pods.iter());
    let file = "pod default/web comes from /m/web.yaml: change or remove it there";
    assert_eq!(conflict("web").as_deref(), Some(file));
    assert_eq!(conflict("db").as_deref(), Some("pod default/db is the cluster's: change or delete it there"));
    assert_eq!((conflict("own"), conflict("x")), (None, None));
}

#[test]
fn only_a_pod_of_another_manifest_blocks_a_put() {
    let pods = [
        of_source("file", "web-node1", "/m/web.yaml"),
        of_source("api", "db-node1", "api"),
        of_source("local", "own-node1", "local:default/own"),
    ];
    let taken = |name| is_taken(&change(name), "node1", pods.iter());
    assert!(taken("web").is_some_and(|why| why.starts_with("pod default/web comes from /m/web.yaml already: ")));
    assert_eq!((taken("db"), taken("own"), taken("web-node1")), (None, None, None));
}

#[test]
fn only_ended_pods_of_the_node_run_again() {
    let mut pod = Pod::default();
    pod.metadata.name = "job-n".to_owned();
    pod.metadata.annotations.insert(CONFIG_SOURCE, "file".to_owned());
    assert_eq!(rerun(&pod, PodPhase::Succeeded), Ok(()));
    assert_eq!(rerun(&pod, PodPhase::Failed), Ok(()));
    let Err(PodAnswer::Conflict(why)) = rerun(&pod, PodPhase::Running) else { panic!("it runs") };
    assert_eq!(why, "pod job-n has not ended (Running): coracle restart job-n restarts its containers");
    pod.metadata.annotations.insert(CONFIG_SOURCE, "api".to_owned());
    let Err(PodAnswer::Conflict(why)) = rerun(&pod, PodPhase::Failed) else { panic!("it is the cluster's") };
    assert!(why.contains("cluster"), "{why}");
}

#[test]
fn only_own_pods_can_be_stopped() {
    let own = Pod {
        metadata: {
            let mut metadata = pod(RestartPolicy::Always, &["main"]).metadata;
            metadata.annotations.insert(CONFIG_SOURCE, "file".to_owned());
            metadata
        },
        ..pod(RestartPolicy::Always, &["main"])
    };
    let refused = |pod: &Pod, what| match stop(pod, what) {
        Ok(()) => String::new(),
        Err(PodAnswer::Conflict(why)) => why,
        Err(other) => panic!("{other:?}"),
    };
    assert_eq!(refused(&own, StopAction::Stop), "");
    assert!(refused(&own, StopAction::Start).contains("is not stopped"));
    let mut of_cluster = own.clone();
    of_cluster.metadata.annotations.insert(CONFIG_SOURCE, "api".to_owned());
    assert!(refused(&of_cluster, StopAction::Stop).contains("is the cluster's"));
}
