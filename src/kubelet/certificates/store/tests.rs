use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::kubelet::certificates::pair::tests::pair;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> (Self, Store) {
        let path = std::env::temp_dir().join(format!("coracle-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        let store = Store::new(path.clone(), "kubelet-client");
        (Self(path), store)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn time_after(seconds: i64) -> Time {
    Time::from_unix_nanos(seconds * 1_000_000_000)
}

/// 2026-01-02T03:04:05Z
const MADE: i64 = 1_767_323_045;

#[test]
fn current_pair_has_upstreams_file_names() {
    let (dir, store) = Scratch::new("put");
    assert!(store.current().unwrap().is_none());
    let pair = pair("a", 0, 1);
    store.put(&pair, time_after(MADE)).unwrap();
    assert_eq!(store.current().unwrap().unwrap().to_pem(), pair.to_pem());
    assert_eq!(dir.names(), ["kubelet-client-2026-01-02-03-04-05.pem", "kubelet-client-current.pem"]);
    let target = fs::read_link(store.current_path()).unwrap();
    assert_eq!(target, dir.0.join("kubelet-client-2026-01-02-03-04-05.pem"));
    assert_eq!(fs::metadata(target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn previous_pair_stays_and_older_ones_are_removed() {
    let (dir, store) = Scratch::new("older");
    let pairs: Vec<Pair> = (0..4).map(|_| pair("a", 0, 1)).collect();
    for (pair, at) in pairs.iter().zip([MADE, MADE + 1, MADE + 2, MADE + 2]) {
        store.put(pair, time_after(at)).unwrap();
        assert_eq!(store.current().unwrap().unwrap().to_pem(), pair.to_pem());
    }
    // The last two were stored in the same second.
    assert_eq!(
        dir.names(),
        [
            "kubelet-client-2026-01-02-03-04-07-001.pem",
            "kubelet-client-2026-01-02-03-04-07.pem",
            "kubelet-client-current.pem"
        ]
    );
}

#[test]
fn clock_set_back_overwrites_nothing() {
    let (dir, store) = Scratch::new("back");
    let (one, other) = (pair("a", 0, 1), pair("a", 0, 1));
    store.put(&one, time_after(MADE)).unwrap();
    store.put(&other, time_after(0)).unwrap();
    assert_eq!(store.current().unwrap().unwrap().to_pem(), other.to_pem());
    assert_eq!(dir.names().len(), 3);
}

#[test]
fn truncated_file_is_set_aside_and_the_previous_pair_is_used() {
    let (dir, store) = Scratch::new("half");
    let (one, other) = (pair("a", 0, 1), pair("a", 0, 1));
    store.put(&one, time_after(MADE)).unwrap();
    store.put(&other, time_after(MADE + 1)).unwrap();
    let newest = dir.0.join("kubelet-client-2026-01-02-03-04-06.pem");
    for length in [0, 1, 700] {
        fs::write(&newest, &other.to_pem().as_bytes()[..length]).unwrap();
        let _ = fs::remove_file(store.current_path());
        symlink(&newest, store.current_path()).unwrap();
        assert_eq!(store.current().unwrap().unwrap().to_pem(), one.to_pem(), "{length}");
        assert!(dir.names().contains(&"kubelet-client-2026-01-02-03-04-06.pem.corrupt".to_owned()));
        assert!(!newest.exists());
    }
}

#[test]
fn interrupted_update_is_completed() {
    let (_dir, store) = Scratch::new("interrupted");
    let (one, other) = (pair("a", 0, 1), pair("a", 0, 1));
    store.put(&one, time_after(MADE)).unwrap();
    store.put(&other, time_after(MADE - 60)).unwrap();
    // The upstream kubelet removes the old symlink before it renames the new one.
    fs::rename(store.current_path(), store.updated_path()).unwrap();
    assert_eq!(store.current().unwrap().unwrap().to_pem(), other.to_pem());
    // A dangling symlink, then no symlink.
    fs::remove_file(store.current_path()).unwrap();
    symlink("/nowhere/at/all", store.current_path()).unwrap();
    assert_eq!(store.current().unwrap().unwrap().to_pem(), one.to_pem());
    fs::remove_file(store.current_path()).unwrap();
    assert!(store.current().unwrap().is_some());
}

#[test]
fn key_survives_a_restart_until_forgotten() {
    let (dir, store) = Scratch::new("key");
    let key = store.key().unwrap();
    assert_eq!(store.key().unwrap().public_key(), key.public_key());
    let path = dir.0.join("kubelet-client.key.tmp");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    store.forget_key().unwrap();
    store.forget_key().unwrap();
    assert_ne!(store.key().unwrap().public_key(), key.public_key());
    fs::write(&path, "half a k").unwrap();
    assert!(store.key().is_ok());
    assert_eq!(dir.names(), ["kubelet-client.key.tmp", "kubelet-client.key.tmp.corrupt"]);
}

#[test]
fn store_lists_only_its_own_files() {
    let (dir, store) = Scratch::new("files");
    store.put(&pair("a", 0, 1), time_after(MADE)).unwrap();
    store.key().unwrap();
    for other in ["kubelet.crt", "kubelet.key", "kubelet-server-current.pem", "ca.crt"] {
        fs::write(dir.0.join(other), "").unwrap();
    }
    let files: Vec<PathBuf> = store.files().unwrap();
    let expected = ["kubelet-client-2026-01-02-03-04-05.pem", "kubelet-client-current.pem", "kubelet-client.key.tmp"];
    assert_eq!(files, expected.map(|name| dir.0.join(name)));
}

#[test]
fn failed_write_leaves_the_current_pair() {
    let (dir, store) = Scratch::new("full");
    let one = pair("a", 0, 1);
    store.put(&one, time_after(MADE)).unwrap();
    // Blocks the file's temporary name.
    fs::create_dir(dir.0.join("kubelet-client-2026-01-02-03-05-05.new")).unwrap();
    let error = store.put(&pair("a", 0, 1), time_after(MADE + 60)).unwrap_err();
    assert!(error.to_string().starts_with("write /"), "{error}");
    assert_eq!(store.current().unwrap().unwrap().to_pem(), one.to_pem());
}
