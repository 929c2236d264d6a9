use std::sync::Arc;

use super::*;
use crate::platform::host::mounts::unmount_below;
use crate::platform::rt::TestFolder;
use crate::types::sorted::SortedMap;

fn payload(files: &[(&str, &str)]) -> Payload {
    let file = |text: &str| PayloadFile { content: Arc::new(text.as_bytes().to_vec()), mode: 0o644, user: None };
    files.iter().map(|(path, text)| (PathBuf::from(path), file(text))).collect()
}

/// Everything in a directory: files with contents, symlinks with targets, directories.
fn tree(top: &Path) -> SortedMap<String, String> {
    let mut found = SortedMap::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let shown = if kind.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if kind.is_dir() {
                folders.push(path.clone());
                "/".to_owned()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            found.insert(path.strip_prefix(top).unwrap().display().to_string(), shown);
        }
    }
    found
}

#[track_caller]
fn check_tree(volume: &Path, expected: &[(&str, &str)]) {
    let expected = expected.iter().map(|(path, shown)| ((*path).to_owned(), (*shown).to_owned())).collect();
    assert_eq!(tree(volume), expected);
}

fn write_now(volume: &Path, files: &[(&str, &str)]) {
    write(volume, &payload(files), None).unwrap();
}

#[test]
fn files_are_switched_by_one_symlink() {
    let scratch = TestFolder::new("writer-switch");
    write_now(&scratch.0, &[("a", "1"), ("d/e/f", "2"), ("d/g", "3")]);
    check_tree(
        &scratch.0,
        &[
            ("..1", "/"),
            ("..1/a", "1"),
            ("..1/d", "/"),
            ("..1/d/e", "/"),
            ("..1/d/e/f", "2"),
            ("..1/d/g", "3"),
            ("..data", "-> ..1"),
            ("a", "-> ..data/a"),
            ("d", "-> ..data/d"),
        ],
    );
    write_now(&scratch.0, &[("a", "1"), ("b", "2")]);
    check_tree(
        &scratch.0,
        &[
            ("..2", "/"),
            ("..2/a", "1"),
            ("..2/b", "2"),
            ("..data", "-> ..2"),
            ("a", "-> ..data/a"),
            ("b", "-> ..data/b"),
        ],
    );
    write_now(&scratch.0, &[]);
    check_tree(&scratch.0, &[("..3", "/"), ("..data", "-> ..3")]);
}

#[test]
fn equal_files_are_not_written() {
    let scratch = TestFolder::new("writer-unchanged");
    let files = [("a", "1"), ("d/e", "2")];
    write_now(&scratch.0, &files);
    let changed = || {
        let mut paths: Vec<PathBuf> = tree(&scratch.0).keys().map(|path| scratch.0.join(path)).collect();
        paths.push(scratch.0.clone());
        paths
            .iter()
            .map(|path| fs::symlink_metadata(path).unwrap())
            .map(|it| (it.ctime(), it.ctime_nsec(), it.ino()))
            .collect::<Vec<_>>()
    };
    let before = changed();
    write_now(&scratch.0, &files);
    assert_eq!(changed(), before);
    assert!(has_content(&scratch.0));
}

#[test]
fn volume_of_another_kubelet_is_kept_while_equal() {
    let scratch = TestFolder::new("writer-upstream");
    let theirs = "..2026_11_20_20_05_33.3250621428";
    fs::create_dir(scratch.0.join(theirs)).unwrap();
    fs::write(scratch.0.join(theirs).join("a"), "1").unwrap();
    symlink(theirs, scratch.0.join(DATA)).unwrap();
    symlink("..data/a", scratch.0.join("a")).unwrap();
    write_now(&scratch.0, &[("a", "1")]);
    assert!(scratch.0.join(theirs).exists());
    write_now(&scratch.0, &[("a", "2")]);
    check_tree(&scratch.0, &[("..1", "/"), ("..1/a", "2"), ("..data", "-> ..1"), ("a", "-> ..data/a")]);
}

/// The steps of an update; a crash may happen between any two of them.
#[test]
fn next_write_completes_an_update_interrupted_at_any_step() {
    let old = [("a", "1"), ("gone", "x")];
    let new = [("a", "2"), ("b", "3")];
    for steps in 0..=7 {
        let scratch = TestFolder::new(&format!("crash-{steps}"));
        let volume = &scratch.0;
        write_now(volume, &old);
        let step: [&dyn Fn(); 7] = [
            &|| fs::create_dir(volume.join("..2")).unwrap(),
            &|| fs::write(volume.join("..2/a"), "").unwrap(),
            &|| write_files(&volume.join("..3"), &payload(&new), None).unwrap(),
            &|| symlink("..3", volume.join(NEW_DATA)).unwrap(),
            &|| fs::rename(volume.join(NEW_DATA), volume.join(DATA)).unwrap(),
            &|| symlink("..data/b", volume.join("b")).unwrap(),
            &|| fs::remove_file(volume.join("gone")).unwrap(),
        ];
        step.iter().take(steps).for_each(|step| step());
        let seen = fs::read_to_string(volume.join("a")).unwrap();
        assert_eq!(seen, if steps < 5 { "1" } else { "2" }, "step {steps}");
        write_now(volume, &new);
        let names: Vec<String> = tree(volume).into_keys().filter(|name| !name.contains('/')).collect();
        let data = fs::read_link(volume.join(DATA)).unwrap().display().to_string();
        assert_eq!(names, [&data, "..data", "a", "b"], "step {steps}");
        assert_eq!(fs::read_to_string(volume.join("b")).unwrap(), "3");
    }
}

#[test]
fn torn_files_are_written_again() {
    let scratch = TestFolder::new("writer-torn");
    for tear in [
        |volume: &Path| fs::write(volume.join("..1/a"), "").unwrap(),
        |volume: &Path| fs::write(volume.join("..1/a"), "2").unwrap(),
        |volume: &Path| fs::remove_file(volume.join("..1/a")).unwrap(),
        |volume: &Path| fs::write(volume.join("..1/more"), "").unwrap(),
        |volume: &Path| fs::remove_dir_all(volume.join("..1")).unwrap(),
        |volume: &Path| fs::remove_file(volume.join("a")).unwrap(),
        |volume: &Path| {
            fs::remove_file(volume.join("a")).unwrap();
            fs::write(volume.join("a"), "torn").unwrap();
        },
        |volume: &Path| {
            fs::remove_file(volume.join(DATA)).unwrap();
            fs::create_dir_all(volume.join(DATA).join("deep")).unwrap();
        },
        |volume: &Path| {
            fs::remove_file(volume.join(DATA)).unwrap();
            fs::write(volume.join(DATA), "torn").unwrap();
        },
        |volume: &Path| fs::set_permissions(volume.join("..1/a"), Permissions::from_mode(0o600)).unwrap(),
    ] {
        let volume = scratch.0.join("v");
        fs::create_dir(&volume).unwrap();
        write_now(&volume, &[("a", "1")]);
        tear(&volume);
        write_now(&volume, &[("a", "1")]);
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "1");
        assert_eq!(tree(&volume).len(), 4, "{:?}", tree(&volume));
        remove_tree(&volume).unwrap();
    }
}

#[test]
fn foreign_entries_stay() {
    let scratch = TestFolder::new("writer-foreign");
    fs::create_dir(scratch.0.join("point")).unwrap();
    symlink("/etc/hostname", scratch.0.join("link")).unwrap();
    write_now(&scratch.0, &[("a", "1"), ("point", "never seen")]);
    write_now(&scratch.0, &[]);
    check_tree(&scratch.0, &[("..2", "/"), ("..data", "-> ..2"), ("link", "-> /etc/hostname"), ("point", "/")]);
}

#[test]
fn symlink_out_of_the_volume_is_not_followed() {
    let scratch = TestFolder::new("writer-outside");
    let (volume, outside) = (scratch.0.join("v"), scratch.0.join("outside"));
    fs::create_dir(&volume).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "x").unwrap();
    for target in ["../outside", "..", "../v/../outside", "/tmp"] {
        symlink(target, volume.join(DATA)).unwrap();
        assert!(!has_content(&volume));
        write_now(&volume, &[("a", "1")]);
        assert!(outside.join("kept").exists());
        remove_tree(&volume).unwrap();
        fs::create_dir(&volume).unwrap();
    }
}

#[test]
fn group_may_read_and_modes_are_kept() {
    let scratch = TestFolder::new("writer-group");
    let mut files = payload(&[("open", "x"), ("d/closed", "y")]);
    files.get_mut(Path::new("d/closed")).unwrap().mode = 0o400;
    write(&scratch.0, &files, Some(2000)).unwrap();
    let shown = |path: &str| {
        let found = fs::metadata(scratch.0.join("..data").join(path)).unwrap();
        (found.mode() & 0o7777, found.gid())
    };
    assert_eq!(shown(""), (0o2755, 2000));
    assert_eq!(shown("open"), (0o644, 2000));
    assert_eq!(shown("d"), (0o2755, 2000));
    assert_eq!(shown("d/closed"), (0o440, 2000));
    // Without a group no permissions are added.
    write(&scratch.0, &files, None).unwrap();
    assert_eq!(shown("d/closed").0, 0o400);
}

#[test]
fn full_disk_leaves_the_old_files() {
    let scratch = TestFolder::new("writer-full");
    let volume = scratch.0.join("v");
    fs::create_dir(&volume).unwrap();
    let options = Some("size=64k");
    nix::mount::mount(Some("tmpfs"), &volume, Some("tmpfs"), nix::mount::MsFlags::empty(), options).unwrap();
    write_now(&volume, &[("a", "old")]);
    let before = tree(&volume);
    let large = "x".repeat(1 << 20);
    let error = write(&volume, &payload(&[("a", "new"), ("b", &large)]), None).unwrap_err();
    assert_eq!(error.to_string(), format!("write {}", volume.join("..2/b").display()));
    assert_eq!(tree(&volume), before);
    // There is room again.
    write_now(&volume, &[("a", "new"), ("b", "small")]);
    assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "new");
}

#[test]
fn what_cannot_be_removed_does_not_keep_new_files_out() {
    use nix::mount::{MsFlags, mount};
    let scratch = TestFolder::new("writer-stuck");
    let volume = &scratch.0;
    write_now(volume, &[("a", "1")]);
    // A mount point stands for a directory that cannot be removed.
    for stuck in ["..1/stuck", "..2"] {
        fs::create_dir(volume.join(stuck)).unwrap();
        mount(Some("tmpfs"), &volume.join(stuck), Some("tmpfs"), MsFlags::empty(), Some("size=4k")).unwrap();
    }
    for text in ["2", "3"] {
        write_now(volume, &[("a", text)]);
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), text);
    }
    unmount_below(volume).unwrap();
    write_now(volume, &[("a", "4")]);
    assert_eq!(fs::read_dir(volume).unwrap().count(), 3, "{:?}", tree(volume));
}
