//! Tests the versions of all pods, and their files.

use super::*;
use crate::control::pod_sources::static_pod::testing::pods_of;
use crate::control::pod_sources::static_pod::{Object, Origin, read_manifest};
use crate::control::pod_sources::unread_records::MAX_RECORD_READS;
use crate::control::pod_table::testing::with_node;
use crate::control::versions::pod_versions::PodVersions;
use crate::types::api::annotations::READY_WITHIN;
use crate::types::api::yaml::MAX_BYTES;

struct Disk(PathBuf);

impl Disk {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("coracle-versions-{name}-{}", std::process::id())))
    }

    fn open(&self) -> Versions {
        Versions::open(self.0.clone())
    }

    fn keep(&self, versions: &mut Versions) -> usize {
        let now = Instant::now();
        let written = versions.take_unwritten(now);
        write(&written).unwrap();
        versions.on_written(true, now);
        written.len()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pod(path: &str, image: &str) -> SourcePod {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, annotations: {{{READY_WITHIN}: 60s}}}}\n\
         spec: {{containers: [{{name: main, image: {image}}}]}}"
    );
    assert!(text.len() < MAX_BYTES);
    let origin = Origin { source: SourceName::File, path, node_name: "n", config_seen: "now", board_key: None };
    let objects = read_manifest(text.as_bytes(), &origin).unwrap();
    match objects.into_iter().next().unwrap().object.unwrap() {
        Object::Pod(pod) => SourcePod { pod: Arc::from(pod), origin: Arc::from(path) },
        Object::Agent(_) | Object::Config(_) | Object::Workload(_) => unreachable!("it is a pod"),
    }
}

fn update(pods: &[SourcePod], complete: bool) -> SourceUpdate {
    SourceUpdate {
        source: SourceName::File,
        pods: pods.to_vec(),
        objects: Vec::new(),
        mirrors: Vec::new(),
        problems: Vec::new(),
        unread: Vec::new(),
        complete,
        relisted: false,
    }
}

/// The images that run after this update of the source, once all images have been pulled.
fn runs(versions: &mut Versions, pods: &[SourcePod]) -> Vec<String> {
    let mut update = update(pods, true);
    versions.apply(&mut update, |_| false, |_| false);
    let nexts: Vec<PodUid> = versions.nexts().map(|(_, next)| next.metadata.uid.clone()).collect();
    for uid in nexts {
        assert!(versions.take_next(&uid));
    }
    for source in &mut update.pods {
        if let Some(runs) = versions.runs(source) {
            source.pod = Arc::clone(runs);
        }
    }
    update.pods.iter().map(|source| source.pod.spec.containers[0].image.clone()).collect()
}

fn reject(versions: &mut Versions) {
    let verdicts = versions.judge(true, Instant::now(), |_| TrialState::Failed, |_| true);
    assert!(matches!(verdicts.as_slice(), [(_, TrialResult::Rejected(_))]), "{verdicts:?}");
}

#[test]
fn rejected_version_stays_rejected_after_a_restart_without_rewrites() {
    let disk = Disk::new("rejected");
    let mut versions = disk.open();
    assert_eq!(runs(&mut versions, &[pod("/m/web.yaml", "a")]), ["a"]);
    assert_eq!((disk.keep(&mut versions), disk.keep(&mut versions)), (1, 0));
    assert_eq!(runs(&mut versions, &[pod("/m/web.yaml", "b")]), ["b"]);
    reject(&mut versions);
    assert_eq!(runs(&mut versions, &[pod("/m/web.yaml", "b")]), ["a"]);
    assert_eq!(disk.keep(&mut versions), 1);

    let mut versions = disk.open();
    assert_eq!(runs(&mut versions, &[pod("/m/web.yaml", "b")]), ["a"]);
    assert_eq!(disk.keep(&mut versions), 0);
    let view = versions.views().next().unwrap();
    assert_eq!((&*view.pod, view.state.unwrap().0, view.earlier), ("default/web-n", "rejected", 0));
    assert_eq!(versions.kept().count(), 1);

    // Removing the manifest removes all versions of its pod.
    assert!(runs(&mut versions, &[]).is_empty());
    disk.keep(&mut versions);
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 0);
}

#[test]
fn present_version_runs_until_the_next_is_taken_also_after_a_restart() {
    let disk = Disk::new("next");
    let mut versions = disk.open();
    let (first, second) = (pod("/m/web.yaml", "a"), pod("/m/web.yaml", "b"));
    runs(&mut versions, std::slice::from_ref(&first));
    disk.keep(&mut versions);
    for _ in 0..5 {
        let mut update = update(std::slice::from_ref(&second), true);
        versions.apply(&mut update, |_| false, |_| false);
        assert_eq!(update.pods[0].pod.metadata.uid, first.pod.metadata.uid);
        let nexts: Vec<_> = versions.nexts().map(|(present, next)| (present.clone(), Arc::clone(next))).collect();
        assert_eq!(nexts, [(first.pod.metadata.uid.clone(), Arc::clone(&second.pod))]);
        assert_eq!(versions.kept().count(), 2, "the images of both are in use");
        assert_eq!((versions.due(), disk.keep(&mut versions)), (None, 0), "nothing is on trial, nothing to store");
        versions = disk.open();
    }
    assert_eq!(runs(&mut versions, std::slice::from_ref(&second)), ["b"]);
    assert!(!versions.take_next(&second.pod.metadata.uid));
    assert_eq!(disk.keep(&mut versions), 1);
    // The pod is deleted while another version waits.
    versions.apply(&mut update(&[pod("/m/web.yaml", "c")], true), |_| false, |_| false);
    assert_eq!(versions.nexts().count(), 1);
    versions.apply(&mut update(&[], true), |_| false, |_| false);
    assert_eq!(versions.nexts().count(), 0);
}

#[test]
fn damaged_file_is_set_aside_and_the_manifest_counts() {
    let disk = Disk::new("damaged");
    let mut versions = disk.open();
    runs(&mut versions, &[pod("/m/web.yaml", "a")]);
    disk.keep(&mut versions);
    let path = disk.0.join("default_web-n.json");
    let whole = fs::read(&path).unwrap();
    for cut in (0..whole.len()).step_by(97) {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut versions = disk.open();
        assert_eq!(runs(&mut versions, &[pod("/m/web.yaml", "b")]), ["b"], "cut at {cut}");
        assert_eq!(versions.due(), None, "it is the first version that is known");
    }
    assert!(disk.0.join("default_web-n.json.corrupt").exists());
}

#[test]
fn pod_waits_while_disk_cannot_read_its_versions() {
    with_node(|node| {
        let disk = Disk::new("unread");
        let path = disk.0.join("default_web-n.json");
        let mut former = disk.open();
        runs(&mut former, &[pod("/m/web.yaml", "a")]);
        disk.keep(&mut former);
        let record = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        // Cannot be read as a file.
        fs::create_dir(&path).unwrap();
        let mut versions = PodVersions::new(disk.open(), node.inbox);
        let reported = update(&[pod("/m/web.yaml", "b")], true);
        assert!(versions.hold(&reported));
        assert_eq!(versions.on_sources(reported, &node.pods).pods.len(), 0);
        versions.set_read(disk.open());
        assert_eq!(versions.take_read().len(), 0, "it still cannot be read");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, record).unwrap();
        versions.set_read(disk.open());
        let [again] = versions.take_read().try_into().unwrap();
        let given = versions.on_sources(again, &node.pods);
        assert!(given.complete);
        assert_eq!(given.pods[0].pod.spec.containers[0].image, "a", "the next version waits for its images");
    });
}

#[test]
fn pod_runs_when_its_versions_can_never_be_read() {
    with_node(|node| {
        let disk = Disk::new("unreadable");
        fs::create_dir_all(disk.0.join("default_web-n.json")).unwrap();
        let mut versions = PodVersions::new(disk.open(), node.inbox);
        assert!(versions.hold(&update(&[pod("/m/web.yaml", "b")], true)));
        for attempt in 1..MAX_RECORD_READS {
            versions.set_read(disk.open());
            assert_eq!(versions.take_read().len(), 0, "attempt {attempt}");
        }
        versions.set_read(disk.open());
        let [again] = versions.take_read().try_into().unwrap();
        assert_eq!(versions.on_sources(again, &node.pods).pods.len(), 1);
    });
}

#[test]
fn failed_write_is_retried_together_with_newer_changes() {
    let mut versions = Disk::new("full").open();
    let now = Instant::now();
    runs(&mut versions, &[pod("/m/web.yaml", "a")]);
    assert_eq!(versions.take_unwritten(now).len(), 1);
    versions.on_written(false, now);
    assert_eq!(versions.due(), Some(now + VERSION_WRITE_RETRY_DELAY));
    assert_eq!(versions.take_unwritten(now).len(), 0, "its time has not come");
    assert_eq!(versions.take_unwritten(now + VERSION_WRITE_RETRY_DELAY).len(), 1);
    versions.on_written(false, now + VERSION_WRITE_RETRY_DELAY);
    runs(&mut versions, &[]);
    assert_eq!(
        versions.take_unwritten(now + VERSION_WRITE_RETRY_DELAY),
        [(versions.directory.join("default_web-n.json"), None)]
    );
    versions.on_written(true, now + VERSION_WRITE_RETRY_DELAY);
    assert_eq!((versions.due(), versions.take_unwritten(now + VERSION_WRITE_RETRY_DELAY * 9).len()), (None, 0));
}

#[test]
fn unknown_pods_are_forgotten_once_all_sources_have_reported() {
    let disk = Disk::new("forgotten");
    let mut versions = disk.open();
    runs(&mut versions, &[pod("/m/web.yaml", "a")]);
    disk.keep(&mut versions);
    let mut versions = disk.open();
    versions.apply(&mut update(&[], true), |_| false, |_| false);
    assert_eq!(disk.keep(&mut versions), 0);
    versions.on_all_sources_ready();
    assert_eq!(disk.keep(&mut versions), 1);
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 0);

    let mut versions = disk.open();
    runs(&mut versions, &[pod("/m/web.yaml", "a")]);
    versions.apply(&mut update(&[], false), |_| false, |_| false);
    assert_eq!(versions.kept().count(), 1, "a source that could not be read has taken it");
}

#[test]
fn two_pods_of_one_name_are_not_versions_of_each_other() {
    let mut versions = Disk::new("two").open();
    let (first, second) = (pod("/m/a.yaml", "a"), pod("/m/b.yaml", "b"));
    assert_eq!(runs(&mut versions, &[first.clone(), second.clone()]), ["a", "b"]);
    assert_eq!(versions.kept().count(), 0);
    runs(&mut versions, std::slice::from_ref(&first));
    assert_eq!(runs(&mut versions, &[first, second.clone()]), ["a", "b"]);
    assert_eq!(versions.due(), None);
    let mut other = update(&[second], true);
    Disk::new("other").open().apply(&mut other, |_| true, |_| false);
    assert_eq!(other.pods[0].pod.spec.containers[0].image, "b");
}

#[test]
fn trial_of_a_stopped_pod_begins_when_the_pod_is_started() {
    let disk = Disk::new("stopped");
    let (now, long_after) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
    disk.keep(&mut {
        let mut versions = disk.open();
        versions.apply(&mut update(&[pod("/m/web.yaml", "a")], true), |_| false, |_| true);
        versions
    });
    let changed = pod("/m/web.yaml", "b");
    // More starts of the agent than a trial has.
    for _ in 0..5 {
        let mut versions = disk.open();
        versions.apply(&mut update(&[pod("/m/web.yaml", "a")], true), |_| false, |_| true);
        versions.apply(&mut update(std::slice::from_ref(&changed), true), |_| false, |_| true);
        versions.take_next(&changed.pod.metadata.uid);
        for time in [now, long_after] {
            assert_eq!(versions.judge(true, time, |_| TrialState::NotReady, |_| true), []);
        }
        assert!(
            versions.records.values().all(|entry| entry.record.state().is_some_and(|(word, _)| word == "on trial"))
        );
        disk.keep(&mut versions);
    }
    let mut versions = disk.open();
    versions.apply(&mut update(std::slice::from_ref(&changed), true), |_| false, |_| true);
    versions.set_stopped(|_| false);
    assert_eq!(versions.judge(true, now, |_| TrialState::NotReady, |_| true), []);
    let verdicts = versions.judge(true, long_after, |_| TrialState::NotReady, |_| true);
    assert!(matches!(&*verdicts, [(_, TrialResult::Rejected(_))]), "{verdicts:?}");
}

#[test]
fn version_of_a_moved_tag_is_kept_for_the_next_process() {
    let disk = Disk::new("moved-tag");
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: {coracle.dev/auto-update: 1h}}, \
                spec: {containers: [{name: main, image: 'r.io/app:stable'}]}}";
    let source = SourcePod { pod: Arc::new(pods_of(text).remove(0)), origin: Arc::from("/m/web.yaml") };
    let (manifest, now) = (Arc::clone(&source.pod), Instant::now());
    let tags = |digest: &str| {
        [("r.io/app:stable".to_owned(), TagTarget { digest: digest.to_owned(), manifest: String::new() })]
    };
    let mut versions = disk.open();
    versions.apply(&mut update(std::slice::from_ref(&source), true), |_| false, |_| false);
    assert_eq!(versions.on_tags(&manifest, &tags("sha256:1"), &PodStatus::default()), [""; 0], "the first is the base");
    assert_eq!(versions.on_tags(&manifest, &tags("sha256:2"), &PodStatus::default()), ["r.io/app:stable"]);
    assert_eq!(versions.runs(&source).unwrap().metadata.uid, manifest.metadata.uid, "its images are pulled first");
    let next = versions.nexts().next().unwrap().1.metadata.uid.clone();
    versions.take_next(&next);
    assert_eq!(versions.judge(true, now, |_| TrialState::Ready, |_| true), [], "no trial was asked for");
    disk.keep(&mut versions);

    let mut versions = disk.open();
    let mut update = update(std::slice::from_ref(&source), true);
    versions.apply(&mut update, |_| false, |_| false);
    assert_eq!(update.pods[0].pod.metadata.uid, next);
    assert_eq!(update.pods[0].pod.spec.containers[0].image, "r.io/app@sha256:2");
    assert_eq!(versions.auto_updated().next(), Some(&manifest), "its tags are followed");
    versions.apply_request(&manifest, RecordAction::Hold).unwrap();
    assert_eq!(versions.auto_updated().next(), None);
}

#[test]
fn pods_of_one_owner_take_turns() {
    let runs = Pod::default();
    for (is_ready, is_pulling, has_next, holds_up, other_is_ready, expected) in [
        (true, false, true, None, true, None),
        (true, true, true, None, true, Some("is replaced first")),
        (true, false, false, Some("is on trial"), true, Some("is on trial")),
        (false, false, false, None, true, Some("is not ready")),
        // The new version does not become ready: it must not replace the others.
        (false, false, false, None, false, Some("is not ready")),
        // Of the former version, pods that are not ready come first, and do not wait for one another.
        (false, false, true, None, true, Some("is not ready")),
        (false, false, true, None, false, None),
    ] {
        let sibling = Sibling { runs: &runs, has_next, holds_up };
        assert_eq!(sibling.comes_first(is_ready, is_pulling, other_is_ready), expected);
    }
}

#[test]
fn siblings_are_the_other_pods_of_the_owner() {
    let pods = pods_of(
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, \
         selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, \
         spec: {containers: [{name: c, image: i}]}}}}",
    );
    let mut versions = Versions::default();
    let all = pods.iter().map(|pod| SourcePod { pod: Arc::new(pod.clone()), origin: Arc::from("/m/web.yaml") });
    let mut update = SourceUpdate {
        source: SourceName::File,
        pods: all.collect(),
        objects: Vec::new(),
        mirrors: Vec::new(),
        problems: Vec::new(),
        unread: Vec::new(),
        complete: true,
        relisted: false,
    };
    versions.apply(&mut update, |_| false, |_| false);
    let names: Vec<&str> = versions.siblings(&pods[1]).map(|sibling| &*sibling.runs.metadata.name).collect();
    assert_eq!(names, ["web-0-node", "web-2-node"]);
}
