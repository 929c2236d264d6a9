use super::*;
use crate::control::pod_sources::static_pod::{Origin, read_manifest};

/// The file records, with a clock and a directory listing for tests.
struct Desk {
    files: Files,
    start: Instant,
    now: Instant,
    listing: Listing,
}

impl Desk {
    fn new() -> Self {
        let start = Instant::now();
        let directory = DirectoryId { device: 1, inode: 1, born: None };
        let listing = Listing { directory, single: false, files: SortedMap::new(), skipped: SortedSet::new() };
        Self { files: Files::new(PathBuf::from("/m"), start), start, now: start, listing }
    }

    /// A desk after its first listing, with one file `name` in its directory.
    fn with(name: &str, text: &str) -> Self {
        let mut desk = Self::new();
        desk.put(name, 1);
        assert_eq!(desk.look(), [name]);
        desk.read(name, 1, text);
        desk
    }

    fn put(&mut self, name: &str, size: u64) {
        self.listing.files.insert(name.into(), Ok(stamp(size)));
    }

    fn remove(&mut self, name: &str) {
        self.listing.files.remove(OsStr::new(name));
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    /// The names of the files to read.
    fn look(&mut self) -> Vec<String> {
        let look = self.files.compare(&self.listing, self.now, time());
        look.read.into_iter().map(|file| file.name.into_string().unwrap()).collect()
    }

    /// When to list again, in milliseconds from now.
    fn again(&mut self) -> Option<u128> {
        self.files.compare(&self.listing, self.now, time()).again.map(|again| (again - self.now).as_millis())
    }

    fn note(&mut self, name: &str, event: FileEvent) -> Option<u128> {
        self.files.note(OsStr::new(name), event, self.now).map(|due| (due - self.now).as_millis())
    }

    fn read(&mut self, name: &str, size: u64, text: &str) {
        let path = format!("/m/{name}");
        let seen = format!("{:?}", self.now - self.start);
        let origin =
            Origin { source: SourceName::File, path: &path, node_name: "n", config_seen: &seen, board_key: None };
        let content = Content::Read(stamp(size), read_manifest(text.as_bytes(), &origin));
        self.files.take(OsStr::new(name), content, time());
    }

    fn pods(&self) -> Vec<String> {
        self.files.update().pods.iter().map(|pod| pod.pod.metadata.name.clone()).collect()
    }

    fn problems(&self) -> Vec<String> {
        self.files.update().problems.iter().map(ToString::to_string).collect()
    }
}

fn stamp(size: u64) -> Stamp {
    Stamp { device: 1, inode: 1, size, times: [0; 4] }
}

fn time() -> Time {
    Time::from_unix_nanos(0)
}

fn pod(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: i}}]}}}}\n"
    )
}

const SINCE: &str = "since 1970-01-01T00:00:00Z";

#[test]
fn first_look_reads_everything_and_second_reads_nothing() {
    let mut desk = Desk::new();
    desk.put("a", 1);
    desk.put("b", 1);
    assert!(!desk.files.update().complete, "before the first look");
    assert_eq!(desk.look(), ["a", "b"]);
    desk.read("a", 1, &pod("web"));
    desk.read("b", 1, &pod("db"));
    assert_eq!(desk.look(), [] as [&str; 0]);
    assert_eq!(desk.pods(), ["web-n", "db-n"]);
    assert!(desk.files.update().complete);
}

#[test]
fn closed_or_moved_file_is_read_even_if_its_stamp_is_unchanged() {
    for event in [FileEvent::Closed, FileEvent::MovedIn] {
        let mut desk = Desk::with("a", &pod("web"));
        assert_eq!(desk.note("a", event), Some(0));
        assert_eq!(desk.look(), ["a"]);
        desk.read("a", 1, &pod("web"));
        desk.put("b", 5);
        desk.note("b", event);
        assert_eq!(desk.look(), ["b"]);
    }
}

#[test]
fn file_being_written_is_not_read_before_it_is_closed() {
    let mut desk = Desk::with("a", &pod("web"));
    assert_eq!(desk.note("b", FileEvent::Created), Some(100));
    desk.put("b", 0);
    assert_eq!(desk.note("b", FileEvent::Written), None);
    desk.put("b", 10);
    assert_eq!(desk.look(), [] as [&str; 0]);
    desk.pass(5000);
    desk.note("b", FileEvent::Written);
    desk.put("b", 20);
    assert_eq!(desk.look(), [] as [&str; 0]);
    assert!(!desk.files.update().complete, "something is not read yet");
    desk.note("b", FileEvent::Closed);
    assert_eq!(desk.look(), ["b"]);
}

#[test]
fn half_written_file_keeps_its_last_good_pods_until_it_is_closed() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.note("a", FileEvent::Written);
    desk.put("a", 10);
    assert_eq!(desk.again(), Some(20_000));
    desk.pass(20_000);
    assert_eq!(desk.look(), ["a"]);
    desk.files.take(OsStr::new("a"), Content::HalfWritten, time());
    assert_eq!(desk.pods(), ["web-n"]);
    let problem = format!(
        "/m/a: a program has it open for writing; it is read when it is closed ({SINCE}; its last good \
                          state stays in use)"
    );
    assert_eq!(desk.problems(), [problem]);
    assert_eq!(desk.again(), Some(20_000), "it is checked again after a while");
    desk.note("a", FileEvent::Closed);
    assert_eq!(desk.look(), ["a"]);
    desk.read("a", 10, &pod("db"));
    assert_eq!((desk.pods(), desk.problems()), (vec!["db-n".to_owned()], Vec::new()));
}

#[test]
fn change_without_an_event_is_read_once_it_is_stable() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.put("a", 2);
    assert_eq!(desk.again(), Some(100));
    desk.pass(60);
    desk.put("a", 3);
    assert_eq!(desk.again(), Some(100), "it has changed again");
    desk.pass(100);
    assert_eq!(desk.look(), ["a"]);
}

#[test]
fn new_link_is_read_soon() {
    let mut desk = Desk::with("a", &pod("web"));
    assert_eq!(desk.note("b", FileEvent::Created), Some(100));
    desk.put("b", 7);
    assert_eq!(desk.look(), [] as [&str; 0]);
    desk.pass(100);
    assert_eq!(desk.look(), ["b"]);
}

#[test]
fn new_empty_file_gets_time_to_be_filled_or_removed() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.put("4913", 0);
    desk.note("4913", FileEvent::Created);
    desk.note("4913", FileEvent::Closed);
    assert_eq!(desk.again(), Some(1000));
    desk.pass(500);
    assert_eq!(desk.look(), [] as [&str; 0]);
    desk.pass(500);
    assert_eq!(desk.look(), ["4913"]);
    desk.read("4913", 0, "");
    assert_eq!(
        desk.problems(),
        [format!("/m/4913: there is nothing in the file; to remove its pods, delete it ({SINCE})")]
    );
}

#[test]
fn removed_file_removes_its_pods_after_a_moment() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.remove("a");
    assert_eq!(desk.note("a", FileEvent::MovedAway), Some(50));
    assert_eq!(desk.again(), Some(50));
    assert_eq!(desk.pods(), ["web-n"]);
    desk.pass(50);
    assert_eq!(desk.again(), None);
    assert_eq!(desk.pods(), [] as [&str; 0]);
}

#[test]
fn file_missing_without_an_event_is_removed_after_two_looks() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.remove("a");
    desk.pass(20_000);
    assert_eq!(desk.again(), Some(50));
    desk.put("a", 1);
    desk.pass(50);
    assert_eq!((desk.again(), desk.pods()), (None, vec!["web-n".to_owned()]), "it came back in time");
    desk.remove("a");
    assert_eq!(desk.again(), Some(50));
    desk.pass(50);
    desk.look();
    assert_eq!(desk.pods(), [] as [&str; 0]);
}

#[test]
fn editor_that_renames_the_old_file_away_makes_one_change() {
    let mut desk = Desk::with("a", &pod("web"));
    // A slow vim with backupcopy=no: the directory is listed in between.
    desk.note("a", FileEvent::MovedAway);
    desk.remove("a");
    assert_eq!(desk.note("a~", FileEvent::MovedIn), Some(0));
    assert_eq!(desk.again(), Some(50));
    assert_eq!(desk.pods(), ["web-n"]);
    desk.pass(10);
    desk.note("a", FileEvent::Created);
    desk.note("a", FileEvent::Written);
    desk.put("a", 9);
    desk.pass(60);
    assert_eq!(desk.look(), [] as [&str; 0]);
    assert_eq!(desk.pods(), ["web-n"]);
    desk.note("a", FileEvent::Closed);
    assert_eq!(desk.look(), ["a"]);
}

#[test]
fn deleted_file_that_is_written_again_at_once_ends_its_pods_first() {
    let names = |update: &SourceUpdate| -> Vec<String> {
        update.pods.iter().map(|source| source.pod.metadata.name.clone()).collect()
    };
    let mut desk = Desk::with("a", &pod("web"));
    desk.put("b", 1);
    desk.note("b", FileEvent::Closed);
    assert_eq!(desk.look(), ["b"]);
    desk.read("b", 1, &pod("other"));
    // Even the same bytes with the same stamp.
    desk.note("a", FileEvent::Deleted);
    desk.note("a", FileEvent::Created);
    assert!(desk.files.update_of_deletions().is_none(), "it was not read");
    desk.pass(60);
    assert_eq!(desk.look(), [] as [&str; 0], "its writer may not have finished");
    assert!(desk.files.update_of_deletions().is_none());
    desk.note("a", FileEvent::Closed);
    assert_eq!(desk.look(), ["a"]);
    desk.read("a", 1, &pod("web"));
    let update = desk.files.update_of_deletions().unwrap();
    assert_eq!(names(&update), ["other-n"]);
    assert_eq!(desk.pods(), ["web-n", "other-n"]);
    assert!(desk.files.update_of_deletions().is_none(), "once");
    // A file that is only replaced ends nothing.
    desk.note("a", FileEvent::MovedAway);
    desk.note("a", FileEvent::MovedIn);
    desk.put("a", 2);
    assert_eq!(desk.look(), ["a"]);
    desk.read("a", 2, &pod("web"));
    assert!(desk.files.update_of_deletions().is_none());
}

#[test]
fn events_of_non_manifests_are_ignored_unless_moved_in() {
    let mut desk = Desk::with("a", &pod("web"));
    for event in [
        FileEvent::Created,
        FileEvent::Written,
        FileEvent::Closed,
        FileEvent::Attributes,
        FileEvent::MovedAway,
        FileEvent::Deleted,
    ] {
        assert_eq!(desk.note(".a.swp", event), None);
    }
    assert_eq!(desk.note("..data", FileEvent::MovedIn), Some(0));
    assert_eq!(desk.look(), [] as [&str; 0]);
}

#[test]
fn broken_file_keeps_its_last_pods() {
    let mut desk = Desk::with("a", &format!("{}---\n{}", pod("web"), pod("db")));
    assert_eq!(desk.pods(), ["web-n", "db-n"]);
    desk.read("a", 2, "kind: [");
    assert_eq!(desk.pods(), ["web-n", "db-n"]);
    assert!(
        desk.problems()[0].ends_with(&format!("({SINCE}; its last good state stays in use)")),
        "{:?}",
        desk.problems()
    );
    assert!(!desk.files.update().complete);

    desk.read("a", 3, "");
    assert_eq!(desk.pods(), ["web-n", "db-n"]);

    desk.files.take(OsStr::new("a"), Content::Unreadable(Arc::new(io::Error::other("no"))), time());
    assert_eq!(desk.problems(), [format!("/m/a: cannot be read: no ({SINCE}; its last good state stays in use)")]);
    assert_eq!(desk.pods(), ["web-n", "db-n"]);

    desk.read("a", 4, &pod("web"));
    assert_eq!((desk.pods(), desk.problems()), (vec!["web-n".to_owned()], Vec::new()));
    assert!(desk.files.update().complete);
}

#[test]
fn broken_document_keeps_old_pods_without_a_valid_successor() {
    let mut desk = Desk::with("a", &format!("{}---\n{}", pod("web"), pod("db")));
    let old = desk.files.update();
    desk.read(
        "a",
        2,
        &format!("{}---\n{}", pod("web").replace("image: i", "image: new"), "{apiVersion: v1, kind: Pod, spec: 1}"),
    );
    let new = desk.files.update();
    assert_eq!(desk.pods(), ["web-n", "db-n"]);
    assert_ne!(old.pods[0].pod.metadata.uid, new.pods[0].pod.metadata.uid);
    assert!(Arc::ptr_eq(&old.pods[1].pod, &new.pods[1].pod));
}

#[test]
fn document_of_unsupported_kind_keeps_no_pods() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.read("a", 2, &format!("{{apiVersion: v1, kind: Ingress}}\n---\n{}", pod("db")));
    assert_eq!(desk.pods(), ["db-n"]);
    assert_eq!(
        desk.problems(),
        [format!(
            "/m/a: document 1 (line 1): kind Ingress: a manifest has Pods, ConfigMaps, Secrets, Services, claims and workloads ({SINCE})"
        )]
    );
    assert!(desk.files.update().complete);
}

const CONFIG: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: \"1\"}}\n";

fn objects(desk: &Desk) -> Vec<String> {
    let update = desk.files.update();
    let text = |object: &SourceObject| {
        let value = object.object.variable("k").unwrap_or_default();
        format!("{} {} {}", object.origin, object.object.key, String::from_utf8_lossy(value))
    };
    update.objects.iter().map(text).collect()
}

#[test]
fn objects_are_added_changed_and_removed_with_their_file() {
    let mut desk = Desk::with("a", &format!("{CONFIG}---\n{}", pod("web")));
    assert_eq!(objects(&desk), ["/m/a ConfigMap default/c 1"]);
    let before = desk.files.update();
    desk.read("a", 2, &format!("# remark\n---\n{CONFIG}---\n{}", pod("web")));
    assert!(is_same_update(&before, &desk.files.update()));
    desk.read("a", 3, &CONFIG.replace("\"1\"", "\"2\""));
    assert_eq!(objects(&desk), ["/m/a ConfigMap default/c 2"]);
    assert!(!is_same_update(&before, &desk.files.update()));
    desk.read("a", 4, &pod("web"));
    assert_eq!(objects(&desk), [] as [&str; 0]);
}

#[test]
fn broken_object_keeps_its_last_good_state_but_no_pods() {
    let mut desk = Desk::with("a", &format!("{CONFIG}---\n{}", pod("web")));
    desk.read("a", 2, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: [1]}}");
    assert_eq!(objects(&desk), ["/m/a ConfigMap default/c 1"]);
    assert_eq!(desk.pods(), [] as [&str; 0], "the document that was a pod is gone");
    let problem = "/m/a: data.k: expected a string, found a list";
    assert_eq!(desk.problems(), [format!("{problem} ({SINCE}; its last good state stays in use)")]);
    assert!(desk.files.update().complete);
    // A broken pod keeps no objects.
    desk.read("a", 3, "{apiVersion: v1, kind: Pod, spec: 1}");
    assert_eq!(objects(&desk), [] as [&str; 0]);
    // An unparsable file keeps both.
    desk.read("a", 4, CONFIG);
    desk.read("a", 5, "a: [");
    assert_eq!(objects(&desk), ["/m/a ConfigMap default/c 1"]);
}

#[test]
fn warning_is_reported_and_the_pod_runs() {
    let desk = Desk::with("a", &pod("web").replace("spec:", "speck: 1, spec:"));
    assert_eq!(desk.pods(), ["web-n"]);
    assert_eq!(
        desk.problems(),
        [format!("/m/a: warning: speck: unknown field, ignored (did you mean spec?) ({SINCE})")]
    );
    assert!(desk.files.update().complete);
}

#[test]
fn unchanged_pod_keeps_its_allocation() {
    let mut desk = Desk::with("a", &format!("{}---\n{}", pod("web"), pod("db")));
    let old = desk.files.update();
    desk.pass(1);
    desk.read("a", 2, &format!("# a remark\n{}---\n{}", pod("web"), pod("cache")));
    let new = desk.files.update();
    assert!(Arc::ptr_eq(&old.pods[0].pod, &new.pods[0].pod));
    assert!(!is_same_update(&old, &new));
    desk.pass(1);
    desk.read("a", 3, &format!("# another remark\n{}---\n{}", pod("web"), pod("cache")));
    assert!(is_same_update(&new, &desk.files.update()));
}

#[test]
fn problem_keeps_the_time_of_its_first_appearance() {
    let mut desk = Desk::with("a", "x");
    let content = || {
        Content::Read(
            stamp(2),
            read_manifest(
                b"x",
                &Origin { source: SourceName::File, path: "", node_name: "", config_seen: "", board_key: None },
            ),
        )
    };
    desk.files.take(OsStr::new("a"), content(), Time::from_unix_nanos(5_000_000_000));
    assert_eq!(desk.files.update().problems[0].since, time());
}

#[test]
fn directory_that_cannot_be_listed_removes_nothing() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.files.unlisted("cannot be read: gone".to_owned(), time());
    assert_eq!(desk.pods(), ["web-n"]);
    assert_eq!(desk.problems(), [format!("/m: cannot be read: gone ({SINCE}; its last good state stays in use)")]);
    assert!(!desk.files.update().complete);
    desk.look();
    assert_eq!(desk.problems(), [] as [&str; 0]);
}

#[test]
fn directory_that_returns_empty_removes_nothing_even_with_the_same_id() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.files.unlisted("gone".to_owned(), time());
    desk.remove("a");
    for _ in 0..3 {
        desk.pass(60_000);
        desk.look();
    }
    assert_eq!(desk.pods(), ["web-n"]);
    desk.put("a", 1);
    desk.look();
    assert_eq!((desk.pods(), desk.problems()), (vec!["web-n".to_owned()], Vec::new()));
}

#[test]
fn directory_empty_after_a_failed_listing_counts_if_birth_time_matches() {
    let mut desk = Desk::new();
    desk.listing.directory.born = Some(Duration::from_secs(7));
    desk.put("a", 1);
    desk.look();
    desk.read("a", 1, &pod("web"));
    assert_eq!(desk.pods(), ["web-n"]);
    desk.files.unlisted("Input/output error".to_owned(), time());
    desk.remove("a");
    for _ in 0..3 {
        desk.pass(60_000);
        desk.look();
    }
    assert_eq!((desk.pods(), desk.problems()), (Vec::new(), Vec::new()));
}

#[test]
fn empty_directory_during_boot_does_not_end_earlier_pods() {
    let mut desk = Desk::new();
    desk.files.boot_over = desk.now + Duration::from_secs(100);
    assert_eq!(desk.again(), Some(100_000));
    assert!(!desk.files.update().complete);
    // The card is mounted, but may still be being filled.
    desk.listing.directory.device = 2;
    desk.put("a", 1);
    assert_eq!(desk.again(), Some(100));
    desk.pass(100);
    assert_eq!(desk.look(), ["a"]);
    desk.read("a", 1, &pod("web"));
    assert_eq!(desk.pods(), ["web-n"]);
    assert!(!desk.files.update().complete);
    desk.pass(99_900);
    assert_eq!(desk.again(), None);
    assert!(desk.files.update().complete);
    // Later removals count.
    desk.remove("a");
    desk.look();
    desk.pass(50);
    desk.look();
    assert_eq!(desk.pods(), [] as [&str; 0]);
}

#[test]
fn file_removed_during_boot_is_gone_at_once() {
    let mut desk = Desk::new();
    desk.files.boot_over = desk.now + Duration::from_secs(100);
    desk.put("a", 1);
    assert_eq!(desk.look(), ["a"]);
    desk.read("a", 1, &pod("web"));
    assert!(desk.files.update().complete, "it was not empty at first");
    desk.remove("a");
    desk.look();
    desk.pass(50);
    desk.look();
    assert_eq!(desk.pods(), [] as [&str; 0]);
    assert!(desk.files.update().complete);
}

#[test]
fn empty_replacement_directory_removes_nothing_until_filled() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.listing.directory.device = 2;
    desk.listing.files.clear();
    for _ in 0..3 {
        desk.pass(60_000);
        assert_eq!(desk.again(), None);
    }
    assert_eq!(desk.pods(), ["web-n"]);
    assert_eq!(
        desk.problems(),
        [format!("/m: an empty directory has come in its place ({SINCE}; its last good state stays in use)")]
    );

    // Files arrive one by one: those still to come do not count as missing.
    desk.put("b", 1);
    desk.note("b", FileEvent::Closed);
    assert_eq!(desk.look(), ["b"]);
    desk.read("b", 1, &pod("db"));
    desk.pass(9000);
    assert_eq!(desk.again(), Some(1000));
    assert_eq!(desk.pods(), ["web-n", "db-n"]);
    desk.pass(1000);
    assert_eq!(desk.again(), None);
    assert_eq!(desk.pods(), ["db-n"]);

    // From then on removals count again.
    desk.remove("b");
    desk.note("b", FileEvent::MovedAway);
    desk.pass(50);
    desk.look();
    assert_eq!(desk.pods(), [] as [&str; 0]);
}

#[test]
fn last_file_of_an_unchanged_directory_can_be_removed() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.remove("a");
    desk.look();
    desk.pass(50);
    desk.look();
    assert_eq!((desk.pods(), desk.problems()), (Vec::new(), Vec::new()));
}

#[test]
fn file_without_readable_metadata_keeps_its_pods() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.listing.files.insert("a".into(), Err(Arc::new(io::Error::other("dangling"))));
    desk.pass(60_000);
    assert_eq!(desk.look(), [] as [&str; 0]);
    assert_eq!(desk.pods(), ["web-n"]);
    desk.put("a", 1);
    desk.look();
    desk.pass(100);
    assert_eq!(desk.look(), ["a"]);
}
