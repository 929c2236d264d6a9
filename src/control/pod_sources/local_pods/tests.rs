//! Tests the store through its requests, on a temporary directory.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::state::pods::SourceUpdate;

const WEB: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: main, image: busybox}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
";

/// A directory of manifests, with a store per call.
struct Disk(PathBuf);

impl Disk {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("coracle-local-pods-{}-{number}", std::process::id())))
    }

    /// The answers to the changes, and the last update after them.
    fn asked(&self, changes: Vec<PodChange>) -> (Vec<PodAnswer>, SourceUpdate) {
        let (pods, asked) = LocalPods::new();
        let (inbox, updates) = async_channel::bounded(64);
        let directory = self.0.clone();
        rt::block_on(async {
            let _task = rt::spawn(run(directory, ManifestNode::named("node1"), asked, inbox));
            let mut answers = Vec::new();
            for change in changes {
                answers.push(pods.request(change).await);
            }
            let mut last = None;
            while last.is_none() || !updates.is_empty() {
                match updates.recv().await.unwrap() {
                    SyncEvent::Sources(update) => last = Some(update),
                    other => panic!("{other:?}"),
                }
            }
            (answers, last.unwrap())
        })
    }

    fn after_a_restart(&self) -> SourceUpdate {
        self.asked(Vec::new()).1
    }

    fn file(&self) -> PathBuf {
        self.0.join("default_web.yaml")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn about(kind: PodChangeKind) -> PodChange {
    PodChange { namespace: "default".to_owned(), name: "web".to_owned(), kind }
}

fn put(text: &str) -> PodChange {
    about(PodChangeKind::Put(text.as_bytes().to_vec()))
}

fn done(how: ApplyOutcome) -> PodAnswer {
    PodAnswer::Applied { how, warnings: Vec::new() }
}

/// The names of an update's pods and objects.
fn names(update: &SourceUpdate) -> (Vec<&str>, Vec<String>) {
    let pods = update.pods.iter().map(|pod| pod.pod.metadata.name.as_str());
    (pods.collect(), update.objects.iter().map(|object| object.object.key.to_string()).collect())
}

fn problems(update: &SourceUpdate) -> Vec<&str> {
    update.problems.iter().map(|problem| problem.message.as_str()).collect()
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn put_pod_survives_a_restart_with_its_uid_and_objects() {
    let disk = Disk::new();
    let (answers, now) = disk.asked(vec![put(WEB)]);
    assert_eq!(answers, [done(ApplyOutcome::Created)]);
    assert_eq!(names(&now), (vec!["web-node1"], vec!["ConfigMap default/settings".to_owned()]));
    let pod = &now.pods[0];
    assert_eq!(&*pod.origin, "local:default/web");
    assert_eq!(pod.pod.annotation("kubernetes.io/config.source"), Some("local"));
    let later = disk.after_a_restart();
    assert_eq!(names(&later), names(&now));
    assert_eq!(later.pods[0].pod.metadata.uid, pod.pod.metadata.uid);
    assert!(later.complete && later.problems.is_empty());
}

#[test]
fn unchanged_manifest_is_not_written_again() {
    let disk = Disk::new();
    disk.asked(vec![put(WEB)]);
    let first = inode(&disk.file());
    let (answers, update) = disk.asked(vec![put(WEB), put(WEB)]);
    assert_eq!(answers, [done(ApplyOutcome::Unchanged), done(ApplyOutcome::Unchanged)]);
    assert_eq!(inode(&disk.file()), first);
    let other = WEB.replace("busybox", "nginx");
    let (answers, changed) = disk.asked(vec![put(&other), about(PodChangeKind::Get)]);
    assert_eq!(answers, [done(ApplyOutcome::Changed), PodAnswer::Manifest(other.into_bytes())]);
    assert_ne!(changed.pods[0].pod.metadata.uid, update.pods[0].pod.metadata.uid);
}

#[test]
fn refused_manifest_changes_nothing() {
    let disk = Disk::new();
    let (answers, update) = disk.asked(vec![
        put(WEB),
        put(&WEB.replace("image: busybox", "image: ''")),
        put(&WEB.replace("name: web", "name: other")),
        put(&WEB.replace("{name: web}", "{name: web, namespace: boats}")),
        put(&format!("{WEB}---\n{WEB}")),
        put("kind: ["),
        put(""),
        put(WEB.split("---\n").nth(1).unwrap()),
        about(PodChangeKind::Get),
    ]);
    let why = |index: usize| match &answers[index] {
        PodAnswer::Refused(why) => why.as_str(),
        other => panic!("{index}: {other:?}"),
    };
    assert!(why(1).starts_with("document 1 (line 1): spec.containers[0].image: "), "{}", why(1));
    assert_eq!(why(2), "metadata.name: expected web as in the path, found other");
    assert_eq!(why(3), "metadata.namespace: expected default as in the path, found boats");
    assert_eq!(why(4), "expected one Pod or workload, and ConfigMaps, Secrets and Services of it; found 2");
    assert!(!why(5).is_empty());
    assert_eq!(why(6), "expected one Pod or workload, and ConfigMaps, Secrets and Services of it; found 0");
    assert_eq!(why(7), "expected one Pod or workload, and ConfigMaps, Secrets and Services of it; found 0");
    assert_eq!(answers[8], PodAnswer::Manifest(WEB.as_bytes().to_vec()));
    assert_eq!(names(&update).0, ["web-node1"]);
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 1);
}

#[test]
fn deleted_pod_stays_deleted() {
    let disk = Disk::new();
    let missing = PodAnswer::Missing("no applied pod default/web on this node".to_owned());
    let (answers, update) = disk.asked(vec![
        about(PodChangeKind::Delete),
        put(WEB),
        about(PodChangeKind::Delete),
        about(PodChangeKind::Get),
        about(PodChangeKind::Delete),
    ]);
    assert_eq!(answers, [missing.clone(), done(ApplyOutcome::Created), PodAnswer::Deleted, missing.clone(), missing]);
    assert_eq!(names(&update), (Vec::new(), Vec::new()));
    assert_eq!(names(&disk.after_a_restart()).0, Vec::<&str>::new());
}

#[test]
fn damaged_file_is_set_aside_with_one_error_and_others_run() {
    let disk = Disk::new();
    let two =
        PodChange { name: "two".to_owned(), ..put(&WEB.replace("name: web", "name: two").replace("settings", "x")) };
    disk.asked(vec![put(WEB), two]);
    let whole = fs::read(disk.file()).unwrap();
    fs::write(disk.file(), &whole[..whole.len() - 9]).unwrap();
    // The damaged file's pod is unknown, so running pods without a manifest must not end, now and after another start.
    for _ in 0..2 {
        let update = disk.after_a_restart();
        assert_eq!(names(&update).0, ["two-node1"]);
        assert_eq!(problems(&update), ["its file is corrupt and was set aside: apply the pod again, or delete it"]);
        assert_eq!(&*update.problems[0].origin, "local:default/web");
        assert!(!update.complete);
        assert!(!disk.file().exists());
    }
    let (answers, update) = disk.asked(vec![about(PodChangeKind::Get), put(WEB)]);
    assert_eq!(answers[0], PodAnswer::Failed("its file is corrupt: apply the pod again".to_owned()));
    assert!(update.complete && update.problems.is_empty());
    assert_eq!(names(&disk.after_a_restart()).0, ["two-node1", "web-node1"]);
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 2, "what was set aside is left");
}

#[test]
fn damaged_pod_can_be_deleted() {
    let disk = Disk::new();
    disk.asked(vec![put(WEB)]);
    fs::write(disk.file(), "").unwrap();
    let (answers, update) = disk.asked(vec![about(PodChangeKind::Delete)]);
    assert_eq!(answers, [PodAnswer::Deleted]);
    assert!(update.complete && update.problems.is_empty());
    assert_eq!(fs::read_dir(&disk.0).unwrap().count(), 0);
}

#[test]
fn crash_before_the_rename_leaves_the_old_or_the_new_pod() {
    let disk = Disk::new();
    disk.asked(vec![put(WEB)]);
    let before = disk.after_a_restart();
    let other = WEB.replace("busybox", "nginx");
    let probe = Disk::new();
    probe.asked(vec![put(&other)]);
    let sealed = fs::read(probe.file()).unwrap();
    let unfinished = disk.file().with_extension("new");
    for cut in [0, 1, sealed.len() / 2, sealed.len()] {
        fs::write(&unfinished, &sealed[..cut]).unwrap();
        let update = disk.after_a_restart();
        assert_eq!(update.pods[0].pod.metadata.uid, before.pods[0].pod.metadata.uid, "{cut} bytes");
        assert!(update.complete && update.problems.is_empty());
    }
    fs::rename(&unfinished, disk.file()).unwrap();
    let update = disk.after_a_restart();
    assert_eq!(names(&update).0, ["web-node1"]);
    assert_eq!(update.pods[0].pod.spec.containers[0].image, "nginx");
}

#[test]
fn unreadable_directory_ends_no_pod_and_accepts_none() {
    let disk = Disk::new();
    fs::write(&disk.0, "a file in its place").unwrap();
    let (answers, update) = disk.asked(vec![put(WEB)]);
    fs::remove_file(&disk.0).unwrap();
    assert!(matches!(&answers[0], PodAnswer::Failed(why) if why.ends_with("coracle status shows why")), "{answers:?}");
    assert!(!update.complete);
    assert!(problems(&update)[0].starts_with("cannot be read: "), "{:?}", update.problems);
}

#[test]
fn warning_is_returned_and_shown() {
    let disk = Disk::new();
    let text = WEB.replace("kind: Pod\n", "kind: Pod\nextra: 1\n");
    let (answers, update) = disk.asked(vec![put(&text)]);
    let warning = "document 1 (line 1): extra: unknown field, ignored".to_owned();
    assert_eq!(answers, [PodAnswer::Applied { how: ApplyOutcome::Created, warnings: vec![warning.clone()] }]);
    assert_eq!(problems(&update), [format!("warning: {warning}")]);
    assert!(update.complete);
}
