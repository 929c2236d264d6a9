use super::*;
use crate::control::pod_sources::static_pod::{Origin, read_manifest};

/// A book, its clock, and the directory that it is shown.
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
        let listing = Listing { directory, single: false, files: SortedMap::new() };
        Self { files: Files::new(PathBuf::from("/m"), start), start, now: start, listing }
    }

    /// A desk whose first look is done, at a directory with `name` in it.
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

    /// The names that are to be read.
    fn look(&mut self) -> Vec<String> {
        let look = self.files.look(&self.listing, self.now, time());
        look.read.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    /// When to look again, in milliseconds from now.
    fn again(&mut self) -> Option<u128> {
        self.files.look(&self.listing, self.now, time()).again.map(|again| (again - self.now).as_millis())
    }

    fn note(&mut self, name: &str, event: FileEvent) -> Option<u128> {
        self.files.note(OsStr::new(name), event, self.now).map(|due| (due - self.now).as_millis())
    }

    fn read(&mut self, name: &str, size: u64, text: &str) {
        let path = format!("/m/{name}");
        let seen = format!("{:?}", self.now - self.start);
        let origin = Origin { source: SourceName::File, path: &path, node_name: "n", seen: &seen };
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
fn the_first_look_reads_everything_at_once_and_the_second_nothing() {
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
fn a_closed_or_moved_file_is_read_at_once_also_when_it_looks_the_same() {
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
fn a_file_that_is_being_written_is_read_when_it_is_closed_and_not_before() {
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
fn a_writer_that_never_closes_is_not_waited_for_for_ever() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.note("b", FileEvent::Written);
    desk.put("b", 10);
    assert_eq!(desk.again(), Some(20_000));
    desk.pass(20_000);
    assert_eq!(desk.look(), ["b"]);
}

#[test]
fn a_change_without_an_event_is_read_once_it_has_stayed_the_same() {
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
fn a_link_is_read_soon_after_it_was_made() {
    let mut desk = Desk::with("a", &pod("web"));
    assert_eq!(desk.note("b", FileEvent::Created), Some(100));
    desk.put("b", 7);
    assert_eq!(desk.look(), [] as [&str; 0]);
    desk.pass(100);
    assert_eq!(desk.look(), ["b"]);
}

#[test]
fn a_new_empty_file_is_given_time_to_be_filled_or_to_go() {
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
fn a_file_that_is_gone_takes_its_pods_with_it_a_moment_later() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.remove("a");
    assert_eq!(desk.note("a", FileEvent::Gone), Some(50));
    assert_eq!(desk.again(), Some(50));
    assert_eq!(desk.pods(), ["web-n"]);
    desk.pass(50);
    assert_eq!(desk.again(), None);
    assert_eq!(desk.pods(), [] as [&str; 0]);
}

#[test]
fn a_file_that_is_missing_without_an_event_is_missed_in_two_looks() {
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
fn an_editor_that_renames_the_old_file_away_makes_one_change() {
    let mut desk = Desk::with("a", &pod("web"));
    // vim with backupcopy=no, and slow: a look happens in between.
    desk.note("a", FileEvent::Gone);
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
fn events_of_files_that_are_no_manifests_say_nothing_unless_they_are_moved_in() {
    let mut desk = Desk::with("a", &pod("web"));
    for event in [FileEvent::Created, FileEvent::Written, FileEvent::Closed, FileEvent::Attributes, FileEvent::Gone] {
        assert_eq!(desk.note(".a.swp", event), None);
    }
    assert_eq!(desk.note("..data", FileEvent::MovedIn), Some(0));
    assert_eq!(desk.look(), [] as [&str; 0]);
}

#[test]
fn a_broken_file_keeps_the_pods_that_it_gave_last() {
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
fn a_broken_document_keeps_old_pods_but_not_those_that_have_a_good_successor() {
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
fn a_document_of_an_unsupported_kind_keeps_nothing() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.read("a", 2, &format!("{{apiVersion: v1, kind: Service}}\n---\n{}", pod("db")));
    assert_eq!(desk.pods(), ["db-n"]);
    assert_eq!(
        desk.problems(),
        [format!("/m/a: document 1 (line 1): kind Service is not supported yet in a manifest ({SINCE})")]
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
fn objects_come_with_their_file_change_with_it_and_go_with_it() {
    let mut desk = Desk::with("a", &format!("{CONFIG}---\n{}", pod("web")));
    assert_eq!(objects(&desk), ["/m/a ConfigMap default/c 1"]);
    let before = desk.files.update();
    desk.read("a", 2, &format!("# remark\n---\n{CONFIG}---\n{}", pod("web")));
    assert!(says_the_same(&before, &desk.files.update()));
    desk.read("a", 3, &CONFIG.replace("\"1\"", "\"2\""));
    assert_eq!(objects(&desk), ["/m/a ConfigMap default/c 2"]);
    assert!(!says_the_same(&before, &desk.files.update()));
    desk.read("a", 4, &pod("web"));
    assert_eq!(objects(&desk), [] as [&str; 0]);
}

#[test]
fn a_broken_object_keeps_its_last_good_state_and_says_nothing_of_pods() {
    let mut desk = Desk::with("a", &format!("{CONFIG}---\n{}", pod("web")));
    desk.read("a", 2, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: [1]}}");
    assert_eq!(objects(&desk), ["/m/a ConfigMap default/c 1"]);
    assert_eq!(desk.pods(), [] as [&str; 0], "the document that was a pod is gone");
    let problem = "/m/a: data.k: expected a string, found a list";
    assert_eq!(desk.problems(), [format!("{problem} ({SINCE}; its last good state stays in use)")]);
    assert!(desk.files.update().complete);
    // A broken pod says nothing of objects.
    desk.read("a", 3, "{apiVersion: v1, kind: Pod, spec: 1}");
    assert_eq!(objects(&desk), [] as [&str; 0]);
    // What cannot be read at all may have been either.
    desk.read("a", 4, CONFIG);
    desk.read("a", 5, "a: [");
    assert_eq!(objects(&desk), ["/m/a ConfigMap default/c 1"]);
}

#[test]
fn a_warning_is_told_and_the_pod_runs() {
    let desk = Desk::with("a", &pod("web").replace("spec:", "speck: 1, spec:"));
    assert_eq!(desk.pods(), ["web-n"]);
    assert_eq!(desk.problems(), [format!("/m/a: warning: speck: unknown field, ignored ({SINCE})")]);
    assert!(desk.files.update().complete);
}

#[test]
fn an_unchanged_pod_stays_the_same_object() {
    let mut desk = Desk::with("a", &format!("{}---\n{}", pod("web"), pod("db")));
    let old = desk.files.update();
    desk.pass(1);
    desk.read("a", 2, &format!("# a remark\n{}---\n{}", pod("web"), pod("cache")));
    let new = desk.files.update();
    assert!(Arc::ptr_eq(&old.pods[0].pod, &new.pods[0].pod));
    assert!(!says_the_same(&old, &new));
    desk.pass(1);
    desk.read("a", 3, &format!("# another remark\n{}---\n{}", pod("web"), pod("cache")));
    assert!(says_the_same(&new, &desk.files.update()));
}

#[test]
fn a_problem_is_as_old_as_its_first_appearance() {
    let mut desk = Desk::with("a", "x");
    let content = || {
        Content::Read(
            stamp(2),
            read_manifest(b"x", &Origin { source: SourceName::File, path: "", node_name: "", seen: "" }),
        )
    };
    desk.files.take(OsStr::new("a"), content(), Time::from_unix_nanos(5_000_000_000));
    assert_eq!(desk.files.update().problems[0].since, time());
}

#[test]
fn a_directory_that_cannot_be_listed_removes_nothing() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.files.unlisted("cannot be read: gone".to_owned(), time());
    assert_eq!(desk.pods(), ["web-n"]);
    assert_eq!(desk.problems(), [format!("/m: cannot be read: gone ({SINCE}; its last good state stays in use)")]);
    assert!(!desk.files.update().complete);
    desk.look();
    assert_eq!(desk.problems(), [] as [&str; 0]);
}

#[test]
fn a_directory_that_comes_back_empty_removes_nothing_also_when_it_looks_like_the_old_one() {
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
fn a_directory_that_is_empty_after_it_could_not_be_listed_is_believed_if_it_was_born_when_the_old_one_was() {
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
fn a_directory_that_is_empty_while_the_machine_starts_says_nothing_of_what_ran_before() {
    let mut desk = Desk::new();
    desk.files.boot_over = desk.now + Duration::from_secs(100);
    assert_eq!(desk.again(), Some(100_000));
    assert!(!desk.files.update().complete);
    // The card is mounted, and may still be being filled.
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
    // What goes later is gone.
    desk.remove("a");
    desk.look();
    desk.pass(50);
    desk.look();
    assert_eq!(desk.pods(), [] as [&str; 0]);
}

#[test]
fn what_is_removed_while_the_machine_starts_is_gone_at_once() {
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
fn an_empty_directory_in_the_place_of_another_removes_nothing_until_it_is_filled() {
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

    // Files come one by one: those that are still to come are not missed yet.
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

    // And everything is as ever again.
    desk.remove("b");
    desk.note("b", FileEvent::Gone);
    desk.pass(50);
    desk.look();
    assert_eq!(desk.pods(), [] as [&str; 0]);
}

#[test]
fn the_last_file_of_a_directory_that_stays_can_be_removed() {
    let mut desk = Desk::with("a", &pod("web"));
    desk.remove("a");
    desk.look();
    desk.pass(50);
    desk.look();
    assert_eq!((desk.pods(), desk.problems()), (Vec::new(), Vec::new()));
}

#[test]
fn a_file_that_is_there_and_cannot_be_looked_at_keeps_its_pods() {
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
