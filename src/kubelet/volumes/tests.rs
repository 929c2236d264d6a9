use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::env_values::file_values;
use super::*;
use crate::kubelet::kuberuntime::golden;
use crate::platform::host::file::bytes_read_by_thread;
use crate::platform::host::mounts::{is_mount_point, unmount_below};
use crate::platform::host::removals::Removals;
use crate::platform::host::remove_tree::remove_tree;
use crate::platform::rt::{block_on, simulate};
use crate::state::objects::SourceObject;
use crate::state::pods::ObservedPod;
use crate::types::api::{PodUid, decode};
use crate::types::error::ErrorChain;

/// A temporary root directory; everything mounted in it is unmounted on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> (Self, PodDirs) {
        let path = std::env::temp_dir().join(format!("coracle-volumes-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let dirs = PodDirs::new(&path.join("kubelet"), &path.join("logs"));
        (Self(path), dirs)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = unmount_below(&self.0).and_then(|()| remove_tree(&self.0));
    }
}

fn no_drivers() -> Rc<Csi> {
    Csi::new(Path::new("/nowhere"), "n", async_channel::bounded(1).0, None)
}

fn pod(uid: &str, mounts: Value, volumes: Value) -> Pod {
    let containers = json!([{"name": "main", "volumeMounts": mounts}]);
    let meta = json!({"name": "web", "namespace": "ns", "uid": uid});
    decode(json!({"metadata": meta, "spec": {"containers": containers, "volumes": volumes}})).unwrap().value
}

fn with_volume(uid: &str, source: Value) -> Pod {
    let mut volume = source;
    volume["name"] = "v".into();
    pod(uid, json!([{"name": "v", "mountPath": "/v"}]), json!([volume]))
}

fn set_up_with(pod: &Pod, dirs: &PodDirs, objects: &Objects) -> Result<PodVolumes, String> {
    let node = golden::node_with_memory(64 << 20);
    block_on(set_up(pod, SetUpInputs { dirs, node: &node, objects }, &no_drivers(), Box::pin(std::future::pending())))
        .map_err(|error| ErrorChain(&error).to_string())
}

fn set_up_now(pod: &Pod, dirs: &PodDirs) -> Result<PodVolumes, String> {
    set_up_with(pod, dirs, &Objects::default())
}

fn mounts_now(pod: &Pod, dirs: &PodDirs) -> Result<Vec<Mount>, String> {
    let volumes = set_up_now(pod, dirs)?;
    block_on(mounts_of(&volumes, pod, Box::pin(std::future::pending()))).map_err(|error| ErrorChain(&error).to_string())
}

fn mounts_of(
    volumes: &PodVolumes,
    pod: &Pod,
    ends: PodTerminating,
) -> impl Future<Output = Result<Vec<Mount>, Error>> + use<> {
    volumes.container_mounts(&pod.spec.containers[0], &|text| Ok(text.to_owned()), false, ends)
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn uid(uid: &str) -> PodUid {
    PodUid::from(uid)
}

#[test]
fn directories_have_upstreams_modes() {
    let (scratch, dirs) = Scratch::new("modes");
    set_up_now(&with_volume("u1", json!({"emptyDir": {}})), &dirs).unwrap();
    for (path, expected) in [
        ("kubelet", 0o755),
        ("kubelet/pods", 0o750),
        ("kubelet/pods/u1", 0o750),
        ("kubelet/pods/u1/plugins", 0o750),
        ("kubelet/pods/u1/plugins/kubernetes.io~empty-dir", 0o750),
        ("kubelet/pods/u1/plugins/kubernetes.io~empty-dir/v", 0o750),
        ("kubelet/pods/u1/plugins/kubernetes.io~empty-dir/v/ready", 0o644),
        ("kubelet/pods/u1/volumes", 0o750),
        ("kubelet/pods/u1/volumes/kubernetes.io~empty-dir", 0o755),
        ("kubelet/pods/u1/volumes/kubernetes.io~empty-dir/v", 0o777),
        ("logs/ns_web_u1/main", 0o755),
    ] {
        assert_eq!(mode(scratch.0.join(path)), expected, "{path}");
    }
}

#[test]
fn empty_dir_keeps_its_content_across_set_ups() {
    let (_scratch, dirs) = Scratch::new("again");
    let pod = with_volume("u1", json!({"emptyDir": {}}));
    let place = PathBuf::from(&mounts_now(&pod, &dirs).unwrap()[0].host_path);
    fs::write(place.join("kept"), "x").unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
    set_up_now(&pod, &dirs).unwrap();
    assert_eq!(mode(&place), 0o700, "the pod's change of the mode was reverted");
    fs::remove_dir_all(&place).unwrap();
    set_up_now(&pod, &dirs).unwrap();
    assert_eq!(mode(&place), 0o777);
}

#[test]
fn interrupted_empty_dir_is_completed() {
    let (_scratch, dirs) = Scratch::new("half-made");
    let pod = with_volume("u1", json!({"emptyDir": {}}));
    let place = PathBuf::from(&mounts_now(&pod, &dirs).unwrap()[0].host_path);
    let marker = dirs.plugin(&pod.metadata.uid, "kubernetes.io/empty-dir", "v");
    // Created under a umask, and neither opened nor marked.
    fs::remove_dir_all(&marker).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
    set_up_now(&pod, &dirs).unwrap();
    assert_eq!((mode(&place), mode(marker.join("ready"))), (0o777, 0o644));
    // A repaired file system may have files in place of directories.
    fs::remove_dir_all(&place).unwrap();
    fs::write(&place, "").unwrap();
    fs::remove_file(marker.join("ready")).unwrap();
    fs::create_dir(marker.join("ready")).unwrap();
    set_up_now(&pod, &dirs).unwrap();
    assert_eq!((mode(&place), mode(marker.join("ready"))), (0o777, 0o644));
    assert!(place.with_extension("corrupt").is_file() && marker.join("ready.corrupt").is_dir());
}

#[test]
fn memory_medium_is_mounted_once_and_again_after_a_reboot() {
    let (_scratch, dirs) = Scratch::new("memory");
    let pod = with_volume("u1", json!({"emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}));
    let place = PathBuf::from(&mounts_now(&pod, &dirs).unwrap()[0].host_path);
    fs::write(place.join("kept"), "x").unwrap();
    set_up_now(&pod, &dirs).unwrap();
    assert!(place.join("kept").exists());
    let size = rustix::fs::statvfs(&place).unwrap();
    assert_eq!(size.f_blocks * size.f_frsize, 16 << 20);
    // Simulates a reboot.
    unmount_below(dirs.pods()).unwrap();
    assert!(!is_mount_point(&place).unwrap());
    set_up_now(&pod, &dirs).unwrap();
    assert!(is_mount_point(&place).unwrap());
    assert!(!place.join("kept").exists());
}

#[test]
fn volume_belongs_to_the_fs_group() {
    let (_scratch, dirs) = Scratch::new("group");
    for (pod_uid, medium, expected) in [("disk", "", 0o2777), ("memory", "Memory", 0o3777)] {
        let mut pod = with_volume(pod_uid, json!({"emptyDir": {"medium": medium}}));
        pod.spec.security_context = decode(json!({"fsGroup": 2000})).unwrap().value;
        let place = PathBuf::from(&mounts_now(&pod, &dirs).unwrap()[0].host_path);
        assert_eq!((mode(&place), fs::metadata(&place).unwrap().gid()), (expected, 2000), "{medium:?}");
    }
}

#[track_caller]
fn check_host_path(dirs: &PodDirs, path: &Path, kind: &str, expected: Result<(), &str>) {
    let result = set_up_now(&with_volume("u1", json!({"hostPath": {"path": path, "type": kind}})), dirs);
    let expected = expected.map_err(|end| {
        let path = path.display();
        format!("MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: {path} is not a {end}")
    });
    assert_eq!(result.map(drop), expected, "{} as {kind:?}", path.display());
}

#[test]
fn host_path_must_have_its_type() {
    let (scratch, dirs) = Scratch::new("types");
    let (directory, file, socket) = (scratch.0.join("d"), scratch.0.join("f"), scratch.0.join("s"));
    let missing = scratch.0.join("missing");
    let block = scratch.0.join("b");
    fs::create_dir(&directory).unwrap();
    fs::write(&file, "").unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let device = nix::sys::stat::makedev(7, 200);
    nix::sys::stat::mknod(&block, nix::sys::stat::SFlag::S_IFBLK, nix::sys::stat::Mode::S_IRUSR, device).unwrap();
    let char_device = Path::new("/dev/null");
    assert!(fs::metadata(char_device).unwrap().file_type().is_char_device());

    let words = [
        ("Directory", "directory", [true, false, false, false, false, false]),
        ("File", "file", [false, true, true, true, true, false]),
        ("Socket", "socket file", [false, false, true, false, false, false]),
        ("CharDevice", "character device", [false, false, false, true, false, false]),
        ("BlockDevice", "block device", [false, false, false, false, true, false]),
        ("", "", [true; 6]),
    ];
    for (kind, noun, fits) in words {
        let paths = [&directory, &file, &socket, &char_device.to_owned(), &block, &missing];
        for (path, fits) in paths.into_iter().zip(fits) {
            check_host_path(&dirs, path, kind, if fits { Ok(()) } else { Err(noun) });
        }
    }
    check_host_path(&dirs, &file, "DirectoryOrCreate", Err("directory"));
    check_host_path(&dirs, &directory, "FileOrCreate", Err("file"));
    assert!(!missing.exists());
    check_host_path(&dirs, &missing.join("deep"), "DirectoryOrCreate", Ok(()));
    assert_eq!((mode(&missing), mode(missing.join("deep"))), (0o755, 0o755));
    check_host_path(&dirs, &missing.join("new"), "FileOrCreate", Ok(()));
    assert_eq!(mode(missing.join("new")), 0o644);
}

#[test]
fn host_path_without_a_type_is_not_accessed() {
    let (scratch, dirs) = Scratch::new("untyped");
    // Every access to this path fails.
    let path = scratch.0.join("n".repeat(300));
    assert!(fs::metadata(&path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound));
    check_host_path(&dirs, &path, "", Ok(()));
}

#[test]
fn environment_files_are_read_up_to_their_bound() {
    let (scratch, _dirs) = Scratch::new("env-bound");
    let key = |path: &str, key: &str| {
        let (path, key) = (path.to_owned(), key.to_owned());
        (Some(scratch.0.clone()), FileKeySelector { path, key, ..FileKeySelector::default() })
    };
    fs::write(scratch.0.join("long"), "A='x'\n").unwrap();
    fs::File::options().write(true).open(scratch.0.join("long")).unwrap().set_len(64 << 20).unwrap();
    let before = bytes_read_by_thread();
    let found = file_values(vec![key("long", "A"), key("long", "B")]);
    let read = bytes_read_by_thread() - before;
    assert!(matches!(found[0].value, Ok(Some(_))) && found[1].value.is_err(), "{found:?}");
    assert!(read < 3 << 20, "{read} bytes were read");

    fs::write(scratch.0.join("large"), format!("A='{}'\n", "x".repeat(900_000))).unwrap();
    let found = file_values(vec![key("large", "A"), key("large", "A"), key("large", "A")]);
    let is_good: Vec<bool> = found.iter().map(|found| found.value.is_ok()).collect();
    assert_eq!(is_good, [true, true, false], "the third one is beyond the bound of all values");
}

#[test]
fn environment_file_is_read_once_for_all_its_variables() {
    let (scratch, _dirs) = Scratch::new("env-once");
    let text: String = (0..5000).map(|number| format!("K{number}='{number}'\n")).collect();
    for name in ["a", "b"] {
        fs::write(scratch.0.join(name), [&text, "BAD\nK0='x'\nLATE='y'\n"].concat()).unwrap();
    }
    let variable = |path: &str, key: &str| {
        let (path, key) = (path.to_owned(), key.to_owned());
        (Some(scratch.0.clone()), FileKeySelector { path, key, ..FileKeySelector::default() })
    };
    // The files alternate, and the last keys come first.
    let keys = (0..5000).rev().map(|number| variable(["a", "b"][number % 2], &format!("K{number}")));
    let before = bytes_read_by_thread();
    let found = file_values(keys.chain([variable("a", "LATE"), variable("b", "LATE")]).collect());
    let read = bytes_read_by_thread() - before;
    assert!(read < 3 * u64::try_from(text.len()).unwrap(), "{read} bytes were read");
    for (number, found) in (0..5000).rev().zip(&found) {
        assert_eq!(found.value.as_ref().unwrap().as_deref(), Some(number.to_string().as_str()));
        assert_eq!(found.file, scratch.0.join(["a", "b"][number % 2]).display().to_string());
    }
    for late in &found[5000..] {
        assert_eq!(late.value.as_ref().unwrap_err().to_string(), "line 5001: no '='");
    }
}

#[test]
fn environment_files_of_a_container_have_a_bound_together() {
    let (scratch, _dirs) = Scratch::new("env-many");
    // No text, so that no value is found.
    fs::write(scratch.0.join("0"), [0xff; 900_000]).unwrap();
    (1..100).for_each(|number| fs::hard_link(scratch.0.join("0"), scratch.0.join(number.to_string())).unwrap());
    let variables = (0..100).map(|number: usize| {
        let key = FileKeySelector { path: number.to_string(), key: "A".to_owned(), ..FileKeySelector::default() };
        (Some(scratch.0.clone()), key)
    });
    let before = bytes_read_by_thread();
    let found = file_values(variables.collect());
    let read = bytes_read_by_thread() - before;
    assert!(read < 20 << 20, "{read} bytes were read");
    let errors = found.iter().map(|found| found.value.as_ref().unwrap_err().to_string());
    let refused = errors.filter(|error| error == "the environment files have more than 16777216 bytes").count();
    assert_eq!(refused, 84);
}

#[test]
fn environment_file_that_is_no_regular_file_is_never_opened() {
    let (scratch, _dirs) = Scratch::new("env-socket");
    let _listener = std::os::unix::net::UnixListener::bind(scratch.0.join("socket")).unwrap();
    symlink("/socket", scratch.0.join("link")).unwrap();
    for path in ["socket", "link"] {
        let key = FileKeySelector { path: path.to_owned(), key: "A".to_owned(), ..FileKeySelector::default() };
        let found = file_values(vec![(Some(scratch.0.clone()), key)]);
        let error = ErrorChain(found[0].value.as_ref().unwrap_err()).to_string();
        // Opening a socket fails with "No such device or address".
        assert!(error.ends_with("not a regular file"), "{error}");
    }
}

#[test]
fn device_files_in_a_volume_in_memory_cannot_be_opened() {
    let (_scratch, dirs) = Scratch::new("nodev");
    let in_memory = with_volume("u1", json!({"emptyDir": {"medium": "Memory"}}));
    let path = PathBuf::from(&mounts_now(&in_memory, &dirs).unwrap()[0].host_path);
    assert!(rustix::fs::statvfs(&path).unwrap().f_flag.contains(rustix::fs::StatVfsMountFlags::NODEV));
    let device = path.join("null");
    let (kind, mode) = (nix::sys::stat::SFlag::S_IFCHR, nix::sys::stat::Mode::S_IRWXU);
    nix::sys::stat::mknod(&device, kind, mode, nix::sys::stat::makedev(1, 3)).unwrap();
    assert_eq!(fs::File::open(&device).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn subpath_is_bound_and_stays_bound() {
    let (_scratch, dirs) = Scratch::new("parts");
    let mounts = json!([{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/sub", "subPath": "a/b"}]);
    let pod = pod("u1", mounts, json!([{"name": "v", "emptyDir": {}}]));
    let made = mounts_now(&pod, &dirs).unwrap();
    let (whole, part) = (PathBuf::from(&made[0].host_path), PathBuf::from(&made[1].host_path));
    assert_eq!(part, dirs.subpaths(&uid("u1")).join("v/main/1"));
    assert_eq!((mode(whole.join("a")), mode(whole.join("a/b"))), (0o777, 0o777));
    fs::write(part.join("file"), "x").unwrap();
    assert_eq!(fs::read_to_string(whole.join("a/b/file")).unwrap(), "x");
    assert_eq!(mounts_now(&pod, &dirs).unwrap(), made);
    // The pod replaces the directory.
    fs::rename(whole.join("a/b"), whole.join("old")).unwrap();
    mounts_now(&pod, &dirs).unwrap();
    assert!(!part.join("file").exists());
    assert!(whole.join("old/file").exists());
    let modes = ["", "v", "v/main"].map(|path| mode(dirs.subpaths(&uid("u1")).join(path)));
    assert_eq!(modes, [0o750; 3]);
}

#[test]
fn subpath_may_be_a_file_and_symlinks_stay_inside_the_volume() {
    let (scratch, dirs) = Scratch::new("links");
    let outside = scratch.0.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "x").unwrap();
    let volume = scratch.0.join("volume");
    fs::create_dir_all(volume.join("data")).unwrap();
    fs::write(volume.join("data/file"), "inside").unwrap();
    symlink("data/file", volume.join("link")).unwrap();
    symlink("../outside", volume.join("relative")).unwrap();
    symlink(&outside, volume.join("absolute")).unwrap();
    let at = |pod_uid: &str, path: &str| {
        let mounts = json!([{"name": "v", "mountPath": "/v", "subPath": path}]);
        let volume = json!([{"name": "v", "hostPath": {"path": volume}}]);
        mounts_now(&pod(pod_uid, mounts, volume), &dirs)
    };
    let file = at("file", "link").unwrap();
    assert_eq!(fs::read_to_string(&file[0].host_path).unwrap(), "inside");
    for path in ["relative", "relative/secret", "absolute", "absolute/new", "relative/new"] {
        let error = at("out", path).unwrap_err();
        assert!(
            error.starts_with("failed to prepare subPath for volumeMount \"v\" of container \"main\": "),
            "{error}"
        );
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "a file was created outside of the volume");
}

#[test]
fn tear_down_keeps_termination_messages_and_host_paths() {
    let (scratch, dirs) = Scratch::new("tear-down");
    let host = scratch.0.join("host");
    fs::create_dir_all(host.join("sub")).unwrap();
    fs::write(host.join("sub/file"), "x").unwrap();
    let mounts = json!([{"name": "m", "mountPath": "/m"}, {"name": "d", "mountPath": "/d"},
        {"name": "h", "mountPath": "/h", "subPath": "sub"}]);
    let volumes = json!([{"name": "m", "emptyDir": {"medium": "Memory"}}, {"name": "d", "emptyDir": {}},
        {"name": "h", "hostPath": {"path": host}}]);
    let pod = pod("u1", mounts, volumes);
    let made = mounts_now(&pod, &dirs).unwrap();
    symlink(&host, Path::new(&made[1].host_path).join("link")).unwrap();
    let words = dirs.container(&uid("u1"), "main");
    fs::create_dir_all(&words).unwrap();
    fs::write(words.join("12345678"), "bye").unwrap();

    for _ in 0..2 {
        block_on(tear_down(&dirs, &uid("u1"), &no_drivers(), &Removals::default())).unwrap();
        assert!(!dirs.volumes(&uid("u1")).exists() && !dirs.subpaths(&uid("u1")).exists());
        assert_eq!(fs::read_to_string(words.join("12345678")).unwrap(), "bye");
    }
    // A pod that is needed after all is set up again.
    mounts_now(&pod, &dirs).unwrap();
    for _ in 0..2 {
        block_on(remove(&dirs, &ObservedPod::new(uid("u1"), "ns", "web"), &no_drivers(), &Removals::default()))
            .unwrap();
        assert!(!dirs.pod(&uid("u1")).exists() && !dirs.logs("ns", "web", &uid("u1")).exists());
    }
    assert_eq!(fs::read_to_string(host.join("sub/file")).unwrap(), "x");
}

#[test]
fn orphaned_directories_are_removed_and_others_stay() {
    let (scratch, dirs) = Scratch::new("strays");
    for pod_uid in ["known", "stray"] {
        set_up_now(&with_volume(pod_uid, json!({"emptyDir": {"medium": "Memory"}})), &dirs).unwrap();
    }
    fs::create_dir(dirs.all_logs().join("ns_web_my_plc")).unwrap();
    fs::write(dirs.pods().join("file"), "").unwrap();
    fs::create_dir(dirs.all_logs().join("somebody's")).unwrap();
    let found = block_on(find_pods(&dirs)).unwrap();
    // Added between the listing and the removal.
    set_up_now(&with_volume("new", json!({"emptyDir": {}})), &dirs).unwrap();
    assert!(block_on(found.remove_orphaned(&|uid| uid == "known", &no_drivers(), &Removals::default())).is_empty());
    let names = |path: &Path| {
        let mut names: Vec<String> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(dirs.pods()), ["file", "known", "new"]);
    assert_eq!(names(dirs.all_logs()), ["ns_web_known", "ns_web_new", "somebody's"]);
    assert!(is_mount_point(&dirs.volume(&uid("known"), "kubernetes.io/empty-dir", "v")).unwrap());
    drop(scratch);
    block_on(async {
        find_pods(&dirs).await.unwrap().remove_orphaned(&|_| false, &no_drivers(), &Removals::default()).await
    });
}

#[test]
fn removal_that_hangs_keeps_neither_the_pod_from_ending_nor_its_logs_from_being_removed() {
    let (_scratch, dirs) = Scratch::new("hangs");
    set_up_now(&with_volume("u1", json!({"emptyDir": {}})), &dirs).unwrap();
    let observed = ObservedPod::new(uid("u1"), "ns", "web");
    let (release, released) = std::sync::mpsc::channel::<()>();
    let left = block_on(async {
        let removals = Removals::default();
        let hangs = move || {
            released.recv().ok();
            Ok(())
        };
        assert!(removals.run(&dirs.pod(&uid("u1")), None, rt::now(), hangs).await.is_err());
        remove(&dirs, &observed, &no_drivers(), &removals).await
    });
    release.send(()).unwrap();
    assert_eq!(left.unwrap().len(), 1);
    assert!(dirs.pod(&uid("u1")).exists() && !dirs.logs("ns", "web", &uid("u1")).exists());
}

#[test]
fn what_cannot_be_removed_is_reported_and_everything_else_is_removed() {
    let (scratch, dirs) = Scratch::new("stuck");
    // A mount point in a log directory stands for a file that cannot be removed: only those of the pod are unmounted.
    let stick = |pod_uid: &str| {
        set_up_now(&with_volume(pod_uid, json!({"emptyDir": {}})), &dirs).unwrap();
        let stuck = dirs.logs("ns", "web", &uid(pod_uid)).join("stuck");
        fs::create_dir(&stuck).unwrap();
        let (nothing, flags) = (None::<&str>, nix::mount::MsFlags::empty());
        nix::mount::mount(Some("tmpfs"), &stuck, Some("tmpfs"), flags, nothing).unwrap();
        fs::write(stuck.with_file_name("0.log"), "x").unwrap();
    };
    ["u1", "u2", "u3"].iter().for_each(|pod_uid| stick(pod_uid));
    let shown = |errors: Vec<Error>| errors.iter().map(|error| ErrorChain(error).to_string()).collect::<Vec<_>>();
    let stuck = |pod_uid: &str| format!("remove {}: ", dirs.logs("ns", "web", &uid(pod_uid)).display());
    let ended = ObservedPod::new(uid("u1"), "ns", "web");
    let left = shown(block_on(remove(&dirs, &ended, &no_drivers(), &Removals::default())).unwrap());
    assert!(left.len() == 1 && left[0].starts_with(&stuck("u1")), "{left:?}");
    assert!(!dirs.pod(&uid("u1")).exists() && !dirs.logs("ns", "web", &uid("u1")).join("0.log").exists());
    // Each directory has its own error.
    let found = block_on(find_pods(&dirs)).unwrap();
    let mut left = shown(block_on(found.remove_orphaned(&|_| false, &no_drivers(), &Removals::default())));
    left.sort();
    assert_eq!(left.len(), 3, "{left:?}");
    for (error, pod_uid) in left.iter().zip(["u1", "u2", "u3"]) {
        assert!(error.starts_with(&stuck(pod_uid)), "{error}");
    }
    unmount_below(&scratch.0).unwrap();
    assert_eq!(
        shown(block_on(remove(&dirs, &ended, &no_drivers(), &Removals::default())).unwrap()),
        Vec::<String>::new()
    );
    // The log directory of such a pod cannot exist.
    let long = ObservedPod::new(uid("u4"), "ns", &"n".repeat(250));
    assert_eq!(
        shown(block_on(remove(&dirs, &long, &no_drivers(), &Removals::default())).unwrap()),
        Vec::<String>::new()
    );
}

#[test]
fn mounts_match_the_recorded_ones() {
    let recording = include_str!("../../../tests/data/golden/volumes.json");
    let mut recording: Value = serde_json::from_str(recording).unwrap();
    let pod: Pod = decode(recording["pod"].take()).unwrap().value;
    let dirs = PodDirs::new(Path::new("/var/lib/kubelet"), Path::new("/var/log/pods"));
    let with = SetUpInputs { dirs: &dirs, node: &golden::node(), objects: &Objects::default() };
    let plan = Plan::new(&pod, with).unwrap();
    let places = plan.volumes.iter().map(|planned| (planned.name.clone(), planned.prepared(false))).collect();
    let given = MountInputs {
        prepared: &places,
        subpaths: &dirs.subpaths(&pod.metadata.uid),
        recursive_read_only: false,
        expand: &|text| Ok(text.to_owned()),
    };
    let (mounts, _) = mounts::container_mounts(&pod.spec.containers[0], &given).unwrap();
    let made: Vec<Value> = mounts.iter().map(crate::protocol::protobuf::Message::json).collect();
    // The hosts file and the termination log come after these.
    let recorded = recording["containers"][0]["mounts"].as_array().unwrap();
    assert_eq!(made, recorded[..recorded.len() - 2]);
}

#[test]
fn volumes_written_by_the_node_are_relabelled_on_a_host_with_selinux() {
    let volumes = json!([
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "down", "downwardAPI": {"items": []}},
        {"name": "all", "projected": {"sources": [{}]}},
        {"name": "host", "hostPath": {"path": "/srv"}},
        {"name": "share", "nfs": {"server": "s", "path": "/x"}},
        {"name": "image", "image": {"reference": "r.io/a:1"}},
    ]);
    let names = volumes.as_array().unwrap().iter().map(|volume| volume["name"].clone());
    let mounts = names.map(|name| json!({"name": name, "mountPath": format!("/{}", name.as_str().unwrap())}));
    let pod = pod("labels", mounts.collect(), volumes);
    let dirs = PodDirs::new(Path::new("/var/lib/kubelet"), Path::new("/var/log/pods"));
    let with = SetUpInputs { dirs: &dirs, node: &golden::node(), objects: &Objects::default() };
    let plan = Plan::new(&pod, with).unwrap();
    let relabelled = |selinux: bool| {
        let labelled = plan.volumes.iter().filter(|planned| planned.prepared(selinux).relabel);
        labelled.map(|planned| planned.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(relabelled(true), ["disk", "memory", "config", "secret", "down", "all"]);
    assert!(relabelled(false).is_empty());
}

fn objects(text: &str) -> Objects {
    let origin = crate::control::pod_sources::static_pod::Origin {
        source: crate::state::pods::SourceName::File,
        path: "/m/c.yaml",
        node_name: "n",
        config_seen: "",
        board_key: None,
    };
    let read = crate::control::pod_sources::static_pod::read_manifest(text.as_bytes(), &origin).unwrap();
    let configs = read.into_iter().filter_map(|object| match object.object {
        Ok(crate::control::pod_sources::static_pod::Object::Config(config)) => Some(config),
        _ => None,
    });
    let configs: Vec<SourceObject> = configs
        .map(|object| SourceObject {
            object: Arc::new(object),
            origin: "/m/c.yaml".into(),
            since: crate::types::api::Time::from_timestamp(crate::types::timestamp::Timestamp::UNIX_EPOCH),
        })
        .collect();
    let mut objects = Objects::default();
    objects.replace(&configs);
    objects
}

fn config_map(data: &str) -> Objects {
    objects(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c, namespace: ns}}\ndata: {data}"))
}

/// Whether all volumes were refreshed, and the errors.
fn refresh_with(pod: &Pod, dirs: &PodDirs, objects: &Objects) -> (bool, Vec<String>) {
    let node = golden::node_with_memory(64 << 20);
    let inputs = SetUpInputs { dirs, node: &node, objects };
    let Refreshed { all_refreshed, errors } = block_on(refresh(pod, inputs, &no_drivers()));
    (all_refreshed, errors.iter().map(|error| ErrorChain(error).to_string()).collect())
}

#[test]
fn missing_object_is_an_error_unless_the_volume_was_set_up() {
    let (_scratch, dirs) = Scratch::new("missing");
    let pod = with_volume("u1", json!({"configMap": {"name": "c"}}));
    let volume = dirs.volume(&uid("u1"), "kubernetes.io/configmap", "v");
    let error = set_up_now(&pod, &dirs).unwrap_err();
    assert_eq!(error, "MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found");
    assert!(!volume.exists());
    set_up_with(&pod, &dirs, &config_map("{k: one}")).unwrap();
    for gone in [Objects::default(), config_map("{}")] {
        let is_gone =
            gone.get(&pod, crate::state::objects::ObjectKind::ConfigMap, "c") == crate::state::objects::Lookup::Missing;
        assert_eq!(set_up_with(&pod, &dirs, &gone).unwrap().stale_errors.is_empty(), !is_gone);
        let errors = if is_gone { vec![error.clone()] } else { Vec::new() };
        assert_eq!(refresh_with(&pod, &dirs, &gone), (true, errors));
        assert_eq!(volume.join("k").exists(), is_gone, "an empty object differs from a missing one");
    }
    assert_eq!(refresh_with(&pod, &dirs, &config_map("{k: two}")), (true, Vec::new()));
    assert_eq!(fs::read_to_string(volume.join("k")).unwrap(), "two");
    block_on(tear_down(&dirs, &uid("u1"), &no_drivers(), &Removals::default())).unwrap();
    assert!(set_up_now(&pod, &dirs).is_err(), "content of another pod's volume was used");
}

#[test]
fn refresh_leaves_other_volumes_alone() {
    let (scratch, dirs) = Scratch::new("refresh");
    let late = scratch.0.join("late");
    let mounts = json!([{"name": "c", "mountPath": "/c"}, {"name": "e", "mountPath": "/e"},
        {"name": "h", "mountPath": "/h"}]);
    let volumes = json!([{"name": "c", "configMap": {"name": "c"}}, {"name": "e", "emptyDir": {}},
        {"name": "h", "hostPath": {"path": late, "type": "Directory"}}]);
    let pod = pod("u1", mounts, volumes);
    assert_eq!(refresh_with(&pod, &dirs, &config_map("{k: one}")), (true, Vec::new()));
    assert!(!dirs.volume(&uid("u1"), "kubernetes.io/empty-dir", "e").exists());
    assert!(dirs.volume(&uid("u1"), "kubernetes.io/configmap", "c").join("k").exists());
}

#[test]
fn volume_that_cannot_be_refreshed_keeps_no_other_volume_from_it() {
    let (_scratch, dirs) = Scratch::new("refresh-each");
    let names = ["claimed", "full", "written"];
    let mounts = names.map(|name| json!({"name": name, "mountPath": format!("/{name}")}));
    let of_claim = json!({"name": "claimed", "persistentVolumeClaim": {"claimName": "gone"}});
    let of_map = |name: &str| json!({"name": name, "configMap": {"name": "c"}});
    let [full, written] = ["full", "written"].map(|name| dirs.volume(&uid("u1"), "kubernetes.io/configmap", name));
    let first = pod("u1", json!(mounts[1..]), json!([of_map("full"), of_map("written")]));
    set_up_with(&first, &dirs, &config_map("{k: one}")).unwrap();
    let flags = nix::mount::MsFlags::MS_RDONLY;
    nix::mount::mount(Some("tmpfs"), &full, Some("tmpfs"), flags, None::<&str>).unwrap();
    let pod = pod("u1", json!(mounts), json!([of_claim, of_map("full"), of_map("written")]));
    let (all_refreshed, errors) = refresh_with(&pod, &dirs, &config_map("{k: two}"));
    assert_eq!(fs::read_to_string(written.join("k")).unwrap(), "two");
    assert!(!all_refreshed, "it is not tried again");
    let [claim, read_only] = &errors[..] else { panic!("{errors:?}") };
    assert!(claim.contains("error processing PVC gone"), "{claim}");
    assert!(read_only.contains("\"full\"") && read_only.contains("Read-only file system"), "{read_only}");
}

#[test]
fn mount_points_are_created_in_a_read_only_volume() {
    let (_scratch, dirs) = Scratch::new("nested");
    let mounts = json!([{"name": "c", "mountPath": "/c"}, {"name": "e", "mountPath": "/c/d/e"}]);
    let volumes = json!([{"name": "c", "configMap": {"name": "c"}}, {"name": "e", "emptyDir": {}}]);
    let pod = pod("u1", mounts, volumes);
    for data in ["{k: one}", "{k: two}"] {
        set_up_with(&pod, &dirs, &config_map(data)).unwrap();
        assert!(dirs.volume(&uid("u1"), "kubernetes.io/configmap", "c").join("d/e").is_dir());
    }
}

/// A line of `ls -la`: mode, owners, size, name and target. Sizes of directories depend on the file system, and the
/// directory behind `..data` has a different name each time.
fn listed(path: &Path, name: &str) -> String {
    let found = fs::symlink_metadata(path).unwrap();
    let kind = found.file_type();
    let letter = if kind.is_dir() {
        'd'
    } else if kind.is_symlink() {
        'l'
    } else {
        '-'
    };
    let mut mode: Vec<char> =
        (0..9).map(|bit| if found.mode() >> (8 - bit) & 1 == 1 { ['r', 'w', 'x'][bit % 3] } else { '-' }).collect();
    for (bit, place, set, unset) in [(0o2000, 5, 's', 'S'), (0o1000, 8, 't', 'T')] {
        if found.mode() & bit != 0 {
            mode[place] = if mode[place] == 'x' { set } else { unset };
        }
    }
    let owner = |id: u32| if id == 0 { "root".to_owned() } else { id.to_string() };
    let size = if kind.is_file() { found.size().to_string() } else { String::new() };
    let target =
        fs::read_link(path).map_or(String::new(), |target| format!(" -> {}", hidden(&target.to_string_lossy())));
    let mode: String = mode.into_iter().collect();
    let (user, group) = (owner(found.uid()), owner(found.gid()));
    format!("{letter}{mode} {user} {group} {size} {}{target}", hidden(name))
}

fn hidden(name: &str) -> String {
    if name.starts_with("..") && !name.starts_with("..data") && name != ".." {
        "..N".to_owned()
    } else {
        name.to_owned()
    }
}

/// A recorded line in the same form; `None` if it is not compared.
fn recorded(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [mode, _, user, group, size, _, _, _, name, rest @ ..] = words.as_slice() else { return None };
    if *name == ".." || *name == "token" {
        return None;
    }
    let size = if mode.starts_with('-') { size } else { "" };
    let target = rest.get(1).map_or(String::new(), |target| format!(" -> {}", hidden(target)));
    Some(format!("{mode} {user} {group} {size} {}{target}", hidden(name)))
}

#[test]
fn files_match_those_in_an_upstream_container() {
    let (scratch, dirs) = Scratch::new("inside");
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let text = fs::read(manifests.join("manifests/13-volumes.yaml")).unwrap();
    let mut value = crate::types::api::yaml::parse(&text).unwrap().remove(0).value;
    value["metadata"]["uid"] = "u1".into();
    // Service account tokens need a cluster.
    value["spec"]["volumes"][6]["projected"]["sources"].as_array_mut().unwrap().remove(0);
    value["spec"]["volumes"][2]["hostPath"]["path"] = scratch.0.to_str().unwrap().into();
    let mut pod: Pod = decode(value).unwrap().value;
    crate::types::api::defaults::apply(&mut pod);
    let objects = objects(&fs::read_to_string(manifests.join("manifests/00-objects.yaml")).unwrap());
    let volumes = set_up_with(&pod, &dirs, &objects).unwrap();
    let mounts = block_on(mounts_of(&volumes, &pod, Box::pin(std::future::pending()))).unwrap();

    let text = fs::read_to_string(manifests.join("golden/inside/volumes-ls.txt")).unwrap();
    let mut compared = 0;
    for section in text.split("\n\n") {
        let (folder, lines) = section.split_once(":\n").unwrap_or(("", section));
        let mut expected: Vec<String> = lines.lines().filter_map(recorded).collect();
        let Some(mount) = mounts.iter().find(|mount| {
            folder.strip_prefix(&mount.container_path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }) else {
            let one = mounts.iter().find(|mount| mount.container_path == "/one").unwrap();
            assert_eq!(expected, [listed(Path::new(&one.host_path), "/one")]);
            continue;
        };
        let below = folder.strip_prefix(&mount.container_path).unwrap().trim_start_matches('/');
        let mut path = PathBuf::from(&mount.host_path);
        for (index, part) in below.split('/').filter(|part| !part.is_empty()).enumerate() {
            path.push(if index == 0 && part.starts_with("..") { "..data" } else { part });
        }
        let path = fs::canonicalize(path).unwrap();
        let mut found: Vec<String> = fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| listed(&entry.path(), &entry.file_name().to_string_lossy()))
            .collect();
        found.push(listed(&path, "."));
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{folder}");
        compared += 1;
    }
    assert_eq!(compared, 10);
}

#[test]
fn pod_that_terminates_does_not_wait_for_a_host_path_that_hangs() {
    const HANGS: Duration = Duration::from_secs(3600);
    let (_scratch, dirs) = Scratch::new("hangs");
    let pod = with_volume("u-hangs", json!({"hostPath": {"path": "/", "type": "Directory"}}));
    let mut given_up = 0;
    for seed in 0..20 {
        let (pod, dirs) = (pod.clone(), dirs.clone());
        let took = simulate(seed, |world| async move {
            let node = golden::node_with_memory(64 << 20);
            let objects = Objects::default();
            let inputs = SetUpInputs { dirs: &dirs, node: &node, objects: &objects };
            // The pod's own directories are made by then.
            let ends = Box::pin(rt::sleep_until(rt::now() + HANGS));
            world.disk.set(HANGS);
            let result = set_up(&pod, inputs, &no_drivers(), ends).await;
            (result.map(drop).map_err(|error| error.to_string()), world.passed())
        });
        let (result, passed) = took.unwrap();
        assert!(passed <= HANGS + Duration::from_secs(1), "it waited {passed:?}");
        given_up += u32::from(result == Err("the pod is terminating".to_owned()));
    }
    assert!(given_up > 0);
}
