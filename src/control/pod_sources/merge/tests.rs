use super::*;

fn pod(uid: &str, name: &str) -> SourcePod {
    let mut pod = Pod::default();
    pod.metadata.uid = PodUid::from(uid);
    pod.metadata.name = name.to_owned();
    pod.metadata.namespace = "default".to_owned();
    pod.metadata.annotations.insert(CONFIG_SEEN, "2026-11-20T20:03:54.626664676Z".to_owned());
    SourcePod { pod: Arc::new(pod), origin: Arc::from(format!("/etc/kubernetes/manifests/{uid}.yaml")) }
}

fn update(pods: Vec<SourcePod>) -> SourceUpdate {
    let (objects, mirrors, problems, unread) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    SourceUpdate { source: SourceName::File, pods, objects, mirrors, problems, unread, complete: true, relisted: false }
}

fn sources() -> Sources {
    Sources::new(&[SourceName::File])
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().map(|pod| pod.metadata.name.as_str()).collect()
}

#[test]
fn source_that_has_not_reported_is_not_ready() {
    let mut sources = sources();
    assert!(!sources.all_ready());
    sources.receive(update(Vec::new()));
    assert!(sources.all_ready());
}

#[test]
fn new_pods_are_added_and_missing_ones_removed() {
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "a"), pod("2", "b")]));
    assert_eq!(names(&sources.changes(|_| false).added), ["a", "b"]);
    sources.receive(update(vec![pod("2", "b"), pod("3", "c")]));
    let changes = sources.changes(|_| false);
    assert_eq!(changes.removed, [PodUid::from("1")]);
    assert_eq!(names(&changes.added), ["c"]);
    assert!(changes.updated.is_empty());
}

#[test]
fn changed_manifest_with_a_hashed_uid_is_a_removal_and_an_addition() {
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "a")]));
    sources.changes(|_| false);
    sources.receive(update(vec![pod("2", "a")]));
    let changes = sources.changes(|_| false);
    assert_eq!((changes.removed, names(&changes.added)), (vec![PodUid::from("1")], vec!["a"]));
}

#[test]
fn pod_with_a_fixed_uid_is_updated_when_its_content_changes() {
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "a")]));
    sources.changes(|_| false);
    let mut changed = pod("1", "a");
    Arc::make_mut(&mut changed.pod).spec.host_network = true;
    sources.receive(update(vec![changed]));
    assert_eq!(names(&sources.changes(|_| false).updated), ["a"]);
}

#[test]
fn pod_with_only_another_status_is_reconciled() {
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "a")]));
    sources.changes(|_| false);
    let mut changed = pod("1", "a");
    Arc::make_mut(&mut changed.pod).status.message = "x".to_owned();
    sources.receive(update(vec![changed]));
    let changes = sources.changes(|_| false);
    assert_eq!(names(&changes.reconciled), ["a"]);
    assert!(changes.updated.is_empty() && changes.added.is_empty() && changes.removed.is_empty());
    assert!(sources.pods().all(|pod| pod.pod.status.message == "x"));
}

#[test]
fn source_is_ready_after_its_first_complete_update() {
    let mut sources = sources();
    sources.receive(SourceUpdate { complete: false, ..update(vec![pod("1", "a")]) });
    assert!(!sources.all_ready());
    assert_eq!(names(&sources.changes(|_| false).added), ["a"]);
    sources.receive(update(Vec::new()));
    sources.receive(SourceUpdate { complete: false, ..update(Vec::new()) });
    assert!(sources.all_ready());
}

#[test]
fn new_manifest_does_not_displace_a_wanted_pod_of_the_same_name() {
    let mut sources = sources();
    sources.receive(update(vec![pod("2", "a")]));
    sources.changes(|_| false);
    sources.receive(update(vec![pod("1", "a"), pod("2", "a")]));
    let changes = sources.changes(|_| false);
    assert!(changes.added.is_empty() && changes.removed.is_empty());
}

#[test]
fn running_pod_wins_its_name_when_nothing_else_is_known() {
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "a"), pod("2", "a")]));
    assert_eq!(sources.pods().count(), 2, "what there is can be seen before it is known what counts");
    let added = sources.changes(|pod| pod.metadata.uid.as_str() == "2").added;
    assert_eq!(added.iter().map(|pod| pod.metadata.uid.as_str()).collect::<Vec<_>>(), ["2"]);
    assert_eq!(sources.pods().count(), 1);
}

#[test]
fn only_one_pod_of_a_uid_is_wanted() {
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "a"), pod("1", "b")]));
    assert_eq!(names(&sources.changes(|_| false).added), ["a"]);
}

#[test]
fn new_manifest_does_not_take_over_the_uid_of_a_wanted_pod() {
    let mut newcomer = SourcePod { origin: Arc::from("/etc/kubernetes/manifests/0.yaml"), ..pod("1", "new") };
    Arc::make_mut(&mut newcomer.pod).spec.host_network = true;
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "a")]));
    sources.changes(|_| false);
    sources.receive(update(vec![newcomer.clone(), pod("1", "a")]));
    let changes = sources.changes(|_| true);
    assert!(changes.updated.is_empty() && changes.added.is_empty() && changes.removed.is_empty());
    assert_eq!(names(&changes.ignored.iter().map(|(pod, _)| Arc::clone(pod)).collect::<Vec<_>>()), ["new"]);
    // A moved manifest is an update.
    sources.receive(update(vec![newcomer]));
    let changes = sources.changes(|_| true);
    assert_eq!((names(&changes.updated), changes.removed.len()), (vec!["new"], 0));
}

#[test]
fn pod_of_another_name_does_not_take_over_a_running_uid_after_a_start() {
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "new"), pod("1", "a")]));
    assert_eq!(names(&sources.changes(|pod| pod.metadata.name == "a").added), ["a"]);
}

#[test]
fn unchanged_pod_keeps_its_allocation_despite_own_annotations() {
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "a")]));
    let first = sources.changes(|_| false).added.remove(0);
    let mut again = pod("1", "a");
    Arc::make_mut(&mut again.pod).metadata.annotations.insert(CONFIG_SEEN, "later".to_owned());
    sources.receive(update(vec![again]));
    let changes = sources.changes(|_| false);
    assert!(changes.updated.is_empty() && changes.added.is_empty() && changes.removed.is_empty());
    assert!(sources.pods().all(|pod| Arc::ptr_eq(&pod.pod, &first)));
}

#[test]
fn later_pod_of_the_same_name_is_ignored_and_reported() {
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "a"), pod("2", "a")]));
    let changes = sources.changes(|_| false);
    assert_eq!((changes.added.len(), changes.ignored.len()), (1, 1));
    let view = sources.views().next().expect("one source");
    assert_eq!(view.pods, 1);
    assert_eq!(view.problems, [changes.ignored[0].1.clone()]);
    assert!(sources.changes(|_| false).ignored.is_empty(), "it is told once");
    assert_eq!(
        view.problems[0].to_string(),
        "/etc/kubernetes/manifests/2.yaml: pod default/a is ignored: \
         /etc/kubernetes/manifests/1.yaml has a pod of this name or uid (since 2026-11-20T20:03:54Z)"
    );
}

#[test]
fn second_pod_takes_over_when_the_first_is_removed() {
    let mut sources = sources();
    sources.receive(update(vec![pod("1", "a"), pod("2", "a")]));
    sources.changes(|_| false);
    sources.receive(update(vec![pod("2", "a")]));
    let changes = sources.changes(|_| false);
    assert_eq!((changes.removed, names(&changes.added)), (vec![PodUid::from("1")], vec!["a"]));
}

/// The pods as an update of another source.
fn from_source(source: SourceName, mut pods: Vec<SourcePod>) -> SourceUpdate {
    for pod in &mut pods {
        pod.origin = Arc::from(format!("{}:{}", source.as_str(), pod.pod.metadata.name));
    }
    SourceUpdate { source, ..update(pods) }
}

fn problems_of(sources: &Sources, name: SourceName) -> usize {
    sources.views().find(|view| view.name == name).unwrap().problems.len()
}

#[test]
fn first_source_keeps_a_name_even_when_its_pod_changes() {
    let mut sources = Sources::new(&[SourceName::File, SourceName::Local]);
    sources.receive(from_source(SourceName::Local, vec![pod("1", "a")]));
    sources.changes(|_| false);
    sources.receive(update(vec![pod("2", "a")]));
    let changes = sources.changes(|_| false);
    assert!(changes.added.is_empty() && changes.removed.is_empty());
    assert_eq!((problems_of(&sources, SourceName::File), problems_of(&sources, SourceName::Local)), (1, 0));
    sources.receive(from_source(SourceName::Local, vec![pod("3", "a")]));
    let changes = sources.changes(|_| false);
    assert_eq!((changes.removed, names(&changes.added)), (vec![PodUid::from("1")], vec!["a"]));
    assert_eq!(sources.pods().next().unwrap().pod.metadata.uid, PodUid::from("3"));
    // When the first pod is removed, the other one is wanted.
    sources.receive(from_source(SourceName::Local, Vec::new()));
    let changes = sources.changes(|_| false);
    assert_eq!((changes.removed, names(&changes.added)), (vec![PodUid::from("3")], vec!["a"]));
    assert_eq!(problems_of(&sources, SourceName::File), 0);
}

#[test]
fn after_a_start_the_file_source_wins_unless_the_other_runs() {
    for (running, counts) in [("0", "2"), ("1", "1")] {
        let mut sources = Sources::new(&[SourceName::File, SourceName::Local]);
        sources.receive(from_source(SourceName::Local, vec![pod("1", "a")]));
        sources.receive(update(vec![pod("2", "a")]));
        sources.changes(|pod| pod.metadata.uid.as_str() == running);
        assert_eq!(sources.pods().next().unwrap().pod.metadata.uid, PodUid::from(counts));
    }
}

#[test]
fn cluster_pods_do_not_compete_for_static_pod_names() {
    let mut sources = Sources::new(&[SourceName::File, SourceName::Api]);
    sources.receive(update(vec![pod("1", "a")]));
    sources.receive(from_source(SourceName::Api, vec![pod("2", "a")]));
    assert_eq!(names(&sources.changes(|_| false).added), ["a", "a"]);
}

#[test]
fn stopped_pods_are_not_wanted_until_they_are_started() {
    let mut stopped = StoppedPods::default();
    stopped.stop("a_default", Time::from_unix_seconds(100));
    stopped.stop("gone_default", Time::from_unix_seconds(100));
    let mut sources = sources().with_stopped_pods(stopped.clone());
    assert_eq!(sources.gone_stopped_pods(), Vec::<String>::new(), "before all sources have reported");
    sources.receive(update(vec![pod("1", "a"), pod("2", "b")]));
    let wanted = |sources: &Sources| sources.pods().map(|pod| pod.pod.metadata.name.clone()).collect::<Vec<_>>();
    assert_eq!(wanted(&sources), ["b"], "before the first merge");
    assert_eq!(names(&sources.changes(|_| false).added), ["b"]);
    assert_eq!(sources.stopped().map(|(pod, _)| &*pod.pod.metadata.name).collect::<Vec<_>>(), ["a"]);
    assert_eq!(sources.gone_stopped_pods(), ["gone_default"]);
    stopped.stop("b_default", Time::from_unix_seconds(200));
    stopped.start("a_default");
    sources.set_stopped_pods(stopped);
    let changes = sources.changes(|_| false);
    assert_eq!((changes.removed, names(&changes.added)), (vec![PodUid::from("2")], vec!["a"]));
    assert_eq!(wanted(&sources), ["a"]);
}
