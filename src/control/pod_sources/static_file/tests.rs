//! Real files and real inotify: what people and programs do to a manifest directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use async_channel::Receiver;

use super::*;
use crate::state::pods::SourceUpdate;
use crate::types::log::{self, Level};

/// A temporary directory, and a source that watches `manifests` in it.
struct Bench {
    root: PathBuf,
    inbox: Receiver<SyncEvent>,
    /// Every update so far must have these pods.
    always: Vec<&'static str>,
    task: rt::Task<()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn root() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let root = std::env::temp_dir().join(format!("coracle-static-file-{}-{number}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    root
}

impl Bench {
    /// Starts a source on a directory filled by `prepare`.
    async fn new(prepare: impl FnOnce(&Path)) -> Self {
        let root = root();
        let path = root.join("manifests");
        fs::create_dir(&path).unwrap();
        prepare(&path);
        Self::at(root, path)
    }

    fn at(root: PathBuf, path: PathBuf) -> Self {
        // An hour, so that these tests depend on events only.
        let interval = Duration::from_secs(3600);
        let (sender, inbox) = async_channel::bounded(16);
        Self {
            root,
            inbox,
            always: Vec::new(),
            task: rt::spawn(run(path, ManifestNode::named("n"), interval, Instant::now(), sender)),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join("manifests").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    #[track_caller]
    fn next(&self) -> impl Future<Output = SourceUpdate> {
        let place = std::panic::Location::caller();
        let inbox = self.inbox.clone();
        async move {
            match rt::deadline(Duration::from_secs(20), inbox.recv()).await {
                Ok(Ok(SyncEvent::Sources(update))) => update,
                other => panic!("{place}: expected an update, found {other:?}"),
            }
        }
    }

    /// Waits for an update with exactly these pods.
    #[track_caller]
    fn pods(&self, expected: &[&str]) -> impl Future<Output = SourceUpdate> {
        let place = std::panic::Location::caller();
        async move {
            let mut seen = Vec::new();
            loop {
                let Ok(update) = rt::deadline(Duration::from_secs(20), self.next()).await else {
                    panic!("{place}: expected {expected:?}, saw {seen:?}");
                };
                let names = names(&update);
                for name in &self.always {
                    assert!(names.iter().any(|other| other == name), "{place}: {name} is not in {names:?}");
                }
                if names == expected {
                    return update;
                }
                seen.push(names);
            }
        }
    }

    /// Adds one more pod and waits until the source reports it: all earlier changes have been handled then.
    async fn settle(&self, expected: &[&str]) {
        self.write("zzz.yaml", &pod("zzz"));
        let expected: Vec<&str> = expected.iter().copied().chain(["zzz-n"]).collect();
        self.pods(&expected).await;
    }
}

fn names(update: &SourceUpdate) -> Vec<String> {
    update.pods.iter().map(|pod| pod.pod.metadata.name.clone()).collect()
}

fn images(update: &SourceUpdate) -> Vec<String> {
    update.pods.iter().map(|pod| pod.pod.spec.containers[0].image.clone()).collect()
}

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: c\n    image: example.com/i:1\n"
    )
}

fn block_on(test: impl Future<Output = ()>) {
    rt::block_on(test);
}

#[test]
fn manifest_that_is_open_at_the_start_is_read_when_it_is_closed() {
    block_on(async {
        let mut writer = None;
        let bench = Bench::new(|path| {
            fs::write(path.join("a.yaml"), pod("web")).unwrap();
            let mut file = fs::File::create(path.join("b.yaml")).unwrap();
            io::Write::write_all(&mut file, pod("half").as_bytes()).unwrap();
            writer = Some(file);
        })
        .await;
        let update = bench.next().await;
        assert_eq!((names(&update), update.complete), (vec!["web-n".to_owned()], false));
        assert_eq!(update.problems.len(), 1, "{:?}", update.problems);
        drop(writer);
        let update = bench.pods(&["web-n", "half-n"]).await;
        assert!(update.complete);
    });
}

#[test]
fn existing_manifests_are_in_the_first_update() {
    block_on(async {
        let bench = Bench::new(|path| {
            fs::write(path.join("a.yaml"), pod("web")).unwrap();
            fs::write(path.join("b.yaml"), pod("db")).unwrap();
            fs::write(path.join("c.yaml.bak"), pod("old")).unwrap();
            fs::create_dir(path.join("d")).unwrap();
        })
        .await;
        let update = bench.next().await;
        assert_eq!(names(&update), ["web-n", "db-n"]);
        assert_eq!(&*update.pods[0].origin, bench.path("a.yaml").to_str().unwrap());
        assert!(update.complete);
    });
}

#[test]
fn empty_directory_is_a_complete_set_of_no_pods() {
    block_on(async {
        let update = Bench::new(|_| {}).await.next().await;
        assert!(update.complete && update.pods.is_empty() && update.problems.is_empty());
    });
}

#[test]
fn files_come_change_and_go() {
    block_on(async {
        let bench = Bench::new(|_| {}).await;
        bench.pods(&[]).await;
        bench.write("a.yaml", &pod("web"));
        let first = bench.pods(&["web-n"]).await;
        bench.write("a.yaml", &pod("web").replace("i:1", "i:2"));
        let second = bench.pods(&["web-n"]).await;
        assert_eq!(images(&second), ["example.com/i:2"]);
        assert_ne!(first.pods[0].pod.metadata.uid, second.pods[0].pod.metadata.uid);
        fs::remove_file(bench.path("a.yaml")).unwrap();
        bench.pods(&[]).await;
    });
}

#[test]
fn broken_file_keeps_its_pod_until_repaired_or_removed() {
    block_on(async {
        let mut bench = Bench::new(|path| fs::write(path.join("a.yaml"), pod("web")).unwrap()).await;
        bench.pods(&["web-n"]).await;
        bench.always = vec!["web-n"];
        bench.write("a.yaml", "apiVersion: v1\nkind: Pod\n metadata: x\n");
        let broken = bench.pods(&["web-n"]).await;
        assert!(broken.problems[0].keeps_last_good);
        assert!(broken.problems[0].message.starts_with("line 3, column "), "{:?}", broken.problems);
        bench.write("a.yaml", "");
        let empty = bench.pods(&["web-n"]).await;
        assert!(empty.problems[0].message.starts_with("there is nothing in the file"), "{:?}", empty.problems);
        bench.write("a.yaml", &pod("web").replace("i:1", "i:2"));
        let repaired = bench.pods(&["web-n"]).await;
        assert_eq!((images(&repaired), repaired.problems), (vec!["example.com/i:2".to_owned()], Vec::new()));
        bench.write("a.yaml", "x");
        bench.pods(&["web-n"]).await;
        bench.always.clear();
        fs::remove_file(bench.path("a.yaml")).unwrap();
        let removed = bench.pods(&[]).await;
        assert!(removed.problems.is_empty() && removed.complete);
    });
}

#[test]
fn file_broken_from_the_start_leaves_the_source_incomplete() {
    block_on(async {
        let bench = Bench::new(|path| {
            fs::write(path.join("a.yaml"), "}").unwrap();
            fs::write(path.join("b.yaml"), pod("db")).unwrap();
        })
        .await;
        let update = bench.pods(&["db-n"]).await;
        assert!(!update.complete && !update.problems[0].keeps_last_good);
        bench.write("a.yaml", &pod("web"));
        assert!(bench.pods(&["web-n", "db-n"]).await.complete);
    });
}

#[test]
fn rename_over_a_manifest_is_one_change() {
    block_on(async {
        let mut bench = Bench::new(|path| fs::write(path.join("a.yaml"), pod("web")).unwrap()).await;
        let first = bench.pods(&["web-n"]).await;
        bench.always = vec!["web-n"];
        // The same content causes no update.
        bench.write(".a.yaml.new", &pod("web"));
        fs::rename(bench.path(".a.yaml.new"), bench.path("a.yaml")).unwrap();
        bench.settle(&["web-n"]).await;
        bench.write(".a.yaml.new", &pod("web").replace("i:1", "i:2"));
        fs::rename(bench.path(".a.yaml.new"), bench.path("a.yaml")).unwrap();
        let second = bench.pods(&["web-n", "zzz-n"]).await;
        assert_eq!(images(&second)[0], "example.com/i:2");
        assert_ne!(first.pods[0].pod.metadata.uid, second.pods[0].pod.metadata.uid);
    });
}

#[test]
fn files_moved_away_are_removed_and_files_moved_in_are_added() {
    block_on(async {
        let bench = Bench::new(|path| fs::write(path.join("a.yaml"), pod("web")).unwrap()).await;
        bench.pods(&["web-n"]).await;
        fs::rename(bench.path("a.yaml"), bench.root.join("a.yaml")).unwrap();
        bench.pods(&[]).await;
        fs::rename(bench.root.join("a.yaml"), bench.path("b.yaml")).unwrap();
        bench.pods(&["web-n"]).await;
    });
}

#[test]
fn vim_nano_emacs_and_sed_make_one_change_each() {
    block_on(async {
        let mut bench = Bench::new(|path| fs::write(path.join("a.yaml"), pod("web")).unwrap()).await;
        bench.pods(&["web-n"]).await;
        bench.always = vec!["web-n"];
        let version = |number: u32| pod("web").replace("i:1", &format!("i:{number}"));
        let image = |number: u32| vec![format!("example.com/i:{number}")];

        // vim: a swap file, a test file, the old file renamed away, a new one written.
        bench.write(".a.yaml.swp", "b0VIM");
        bench.write("4913", "");
        fs::remove_file(bench.path("4913")).unwrap();
        fs::rename(bench.path("a.yaml"), bench.path("a.yaml~")).unwrap();
        bench.write("a.yaml", &version(2));
        fs::remove_file(bench.path("a.yaml~")).unwrap();
        fs::remove_file(bench.path(".a.yaml.swp")).unwrap();
        assert_eq!(images(&bench.pods(&["web-n"]).await), image(2));

        // nano: a backup, then the same file rewritten in pieces.
        fs::copy(bench.path("a.yaml"), bench.path("a.yaml~")).unwrap();
        let text = version(3);
        let mut file = fs::File::create(bench.path("a.yaml")).unwrap();
        for piece in text.as_bytes().chunks(20) {
            io::Write::write_all(&mut file, piece).unwrap();
            rt::yield_now().await;
        }
        drop(file);
        assert_eq!(images(&bench.pods(&["web-n"]).await), image(3));

        // Emacs: a lock that is a dangling link, an auto-save file, a backup by renaming.
        symlink("me@host.1:2", bench.path(".#a.yaml")).unwrap();
        bench.write("#a.yaml#", "half a manif");
        fs::rename(bench.path("a.yaml"), bench.path("a.yaml~")).unwrap();
        bench.write("a.yaml", &version(4));
        fs::remove_file(bench.path("#a.yaml#")).unwrap();
        fs::remove_file(bench.path(".#a.yaml")).unwrap();
        assert_eq!(images(&bench.pods(&["web-n"]).await), image(4));

        // sed -i: a temporary file, renamed over the original.
        bench.write("sedGx3aQz", &version(5));
        fs::rename(bench.path("sedGx3aQz"), bench.path("a.yaml")).unwrap();
        assert_eq!(images(&bench.pods(&["web-n"]).await), image(5));
        bench.settle(&["web-n"]).await;
    });
}

#[test]
fn half_written_file_is_not_read_before_it_is_closed() {
    block_on(async {
        let bench = Bench::new(|_| {}).await;
        bench.pods(&[]).await;
        let text = pod("web") + "  - name: second\n    image: example.com/j:1\n";
        let (half, rest) = text.split_at(pod("web").len());
        let mut file = fs::File::create(bench.path("a.yaml")).unwrap();
        io::Write::write_all(&mut file, half.as_bytes()).unwrap();
        bench.settle(&[]).await;
        io::Write::write_all(&mut file, rest.as_bytes()).unwrap();
        drop(file);
        let update = bench.pods(&["web-n", "zzz-n"]).await;
        assert_eq!(update.pods[0].pod.spec.containers.len(), 2);
    });
}

#[test]
fn links_are_followed_and_a_dangling_link_removes_nothing() {
    block_on(async {
        let mut bench = Bench::new(|_| {}).await;
        bench.pods(&[]).await;
        fs::write(bench.root.join("web.yaml"), pod("web")).unwrap();
        symlink(bench.root.join("web.yaml"), bench.path("a.yaml")).unwrap();
        bench.pods(&["web-n"]).await;
        fs::hard_link(bench.root.join("web.yaml"), bench.root.join("spare")).unwrap();
        bench.always = vec!["web-n"];
        fs::remove_file(bench.root.join("web.yaml")).unwrap();
        bench.settle(&["web-n"]).await;
        fs::rename(bench.root.join("spare"), bench.path("b.yaml")).unwrap();
        bench.pods(&["web-n", "web-n", "zzz-n"]).await;
    });
}

#[test]
fn mounted_config_map_is_followed_through_its_links() {
    block_on(async {
        let bench = Bench::new(|path| {
            for (version, image) in [("..v1", "i:1"), ("..v2", "i:2")] {
                fs::create_dir(path.join(version)).unwrap();
                fs::write(path.join(version).join("a.yaml"), pod("web").replace("i:1", image)).unwrap();
            }
            symlink("..v1", path.join("..data")).unwrap();
            symlink("..data/a.yaml", path.join("a.yaml")).unwrap();
        })
        .await;
        assert_eq!(images(&bench.pods(&["web-n"]).await), ["example.com/i:1"]);
        symlink("..v2", bench.path("..data_tmp")).unwrap();
        fs::rename(bench.path("..data_tmp"), bench.path("..data")).unwrap();
        assert_eq!(images(&bench.pods(&["web-n"]).await), ["example.com/i:2"]);
    });
}

#[test]
fn directory_that_disappears_and_returns_removes_nothing() {
    block_on(async {
        let mut bench = Bench::new(|path| fs::write(path.join("a.yaml"), pod("web")).unwrap()).await;
        bench.pods(&["web-n"]).await;
        bench.always = vec!["web-n"];
        let (path, aside) = (bench.root.join("manifests"), bench.root.join("aside"));
        fs::rename(&path, &aside).unwrap();
        let gone = bench.next().await;
        assert!(gone.problems[0].message.starts_with("cannot be read: No such file"), "{:?}", gone.problems);
        fs::rename(&aside, &path).unwrap();
        assert!(bench.pods(&["web-n"]).await.problems.is_empty());

        // Deleted and recreated empty.
        fs::remove_dir_all(&path).unwrap();
        while bench.pods(&["web-n"]).await.problems.is_empty() {}
        fs::create_dir(&path).unwrap();
        let mut empty = bench.next().await;
        while !empty.problems.iter().any(|problem| problem.message.contains("empty directory")) {
            assert_eq!(names(&empty), ["web-n"]);
            empty = bench.next().await;
        }
        bench.write("b.yaml", &pod("db"));
        let back = bench.pods(&["web-n", "db-n"]).await;
        assert!(back.problems.is_empty());
    });
}

#[test]
fn source_waits_for_a_missing_directory() {
    block_on(async {
        let root = root();
        let path = root.join("not/yet/there");
        let bench = Bench::at(root, path.clone());
        let first = bench.next().await;
        assert!(!first.complete && first.problems[0].message.starts_with("cannot be read"));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("a.yaml"), pod("web")).unwrap();
        let update = bench.pods(&["web-n"]).await;
        assert!(update.complete && update.problems.is_empty());
    });
}

#[test]
fn directory_link_may_be_switched_to_another_target() {
    block_on(async {
        let root = root();
        for (version, image) in [("v1", "i:1"), ("v2", "i:2")] {
            fs::create_dir(root.join(version)).unwrap();
            fs::write(root.join(version).join("a.yaml"), pod("web").replace("i:1", image)).unwrap();
        }
        let path = root.join("current");
        symlink("v1", &path).unwrap();
        let mut bench = Bench::at(root.clone(), path.clone());
        bench.pods(&["web-n"]).await;
        bench.always = vec!["web-n"];
        symlink("v2", root.join("next")).unwrap();
        fs::rename(root.join("next"), &path).unwrap();
        assert_eq!(images(&bench.pods(&["web-n"]).await), ["example.com/i:2"]);
    });
}

#[test]
fn single_manifest_file_is_a_source() {
    block_on(async {
        let root = root();
        let path = root.join("pod.yaml");
        fs::write(&path, pod("web")).unwrap();
        let bench = Bench::at(root.clone(), path.clone());
        let first = bench.pods(&["web-n"]).await;
        assert_eq!(&*first.pods[0].origin, path.to_str().unwrap());
        fs::write(root.join("other.yaml"), pod("other")).unwrap();
        fs::write(root.join("new"), pod("web").replace("i:1", "i:2")).unwrap();
        fs::rename(root.join("new"), &path).unwrap();
        assert_eq!(images(&bench.pods(&["web-n"]).await), ["example.com/i:2"]);
        fs::remove_file(&path).unwrap();
        let removed = bench.pods(&[]).await;
        assert!(removed.problems.is_empty());
        fs::write(&path, pod("again")).unwrap();
        bench.pods(&["again-n"]).await;
    });
}

#[test]
fn non_files_are_ignored_and_oversized_files_are_reported() {
    block_on(async {
        let bench = Bench::new(|path| {
            fs::create_dir(path.join("sub.yaml")).unwrap();
            let pipe = path.join("pipe.yaml");
            nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
            let large = fs::File::create(path.join("large.yaml")).unwrap();
            large.set_len(11 << 20).unwrap();
        })
        .await;
        let update = bench.next().await;
        assert_eq!(update.problems.len(), 1);
        assert_eq!(update.problems[0].message, "the text is larger than 10 MiB");
        bench.settle(&[]).await;
    });
}

#[test]
fn interval_is_enough_without_inotify() {
    block_on(async {
        let root = root();
        let path = root.join("manifests");
        fs::create_dir(&path).unwrap();
        let (inbox, received) = async_channel::bounded(16);
        let mut running = StaticFileSource {
            files: Files::new(path.clone(), Instant::now()),
            skipped: SortedSet::new(),
            path,
            node: ManifestNode::named("n"),
            interval: Duration::from_millis(20),
            inbox,
            watcher: Watcher { watch: None, failure_told: true },
            sent: None,
        };
        let task = rt::spawn(async move { while running.list_and_wait().await.is_ok() {} });
        let bench = Bench { root, inbox: received, always: Vec::new(), task };
        bench.pods(&[]).await;
        bench.write("a.yaml", &pod("web"));
        bench.pods(&["web-n"]).await;
        fs::remove_file(bench.path("a.yaml")).unwrap();
        bench.pods(&[]).await;
    });
}

#[test]
fn file_that_is_skipped_for_its_name_is_logged_once() {
    block_on(async {
        let lines: std::rc::Rc<std::cell::RefCell<Vec<String>>> = std::rc::Rc::default();
        let read = std::rc::Rc::clone(&lines);
        log::read_by(move |level, line| {
            if line.contains("manifest skipped") {
                assert_eq!(level, Level::Info);
                read.borrow_mut().push(line.to_owned());
            }
        });
        let take = || std::mem::take(&mut *lines.borrow_mut());
        let bench = Bench::new(|path| {
            fs::write(path.join("a.yaml.rpmsave"), pod("old")).unwrap();
            fs::write(path.join(".b.yaml.swp"), "").unwrap();
            fs::create_dir(path.join("..2026")).unwrap();
            symlink("..2026", path.join("..data")).unwrap();
            symlink("nowhere", path.join(".#b.yaml")).unwrap();
        })
        .await;
        bench.pods(&[]).await;
        let logged = take();
        let [hidden, kept] = logged.as_slice() else { panic!("{logged:?}") };
        assert!(hidden.contains("/manifests/.b.yaml.swp reason=\"hidden file\""), "{hidden}");
        assert!(kept.contains("/manifests/a.yaml.rpmsave reason=\"extension of a backup"), "{kept}");
        fs::remove_file(bench.path("a.yaml.rpmsave")).unwrap();
        bench.write("a.yaml", &pod("web"));
        bench.pods(&["web-n"]).await;
        assert_eq!(take(), [""; 0]);
        bench.write("a.yaml.rpmsave", "");
        bench.settle(&["web-n"]).await;
        assert_eq!(take().len(), 1, "the file has come again");
    });
}

#[test]
fn source_ends_when_its_inbox_closes() {
    block_on(async {
        let mut bench = Bench::new(|_| {}).await;
        bench.pods(&[]).await;
        bench.inbox.close();
        bench.write("a.yaml", &pod("web"));
        rt::deadline(Duration::from_secs(20), &mut bench.task).await.expect("the task ends");
    });
}
