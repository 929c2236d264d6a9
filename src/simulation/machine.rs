//! The machine: each simulation's own disk, in a mount namespace that ends with its thread.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::platform::host::mounts;
use crate::platform::rt::World;

/// The disk of every simulation, visible only to its own thread.
const DISK: &str = "/tmp/coracle-simulation";

const LOG_LINKS: &str = "/var/log/containers";
const FILL: &str = "too-much";

pub(super) struct Machine {
    pub(super) disk: PathBuf,
}

impl Machine {
    /// Needs root. The calling thread gets its own `/tmp`.
    pub(super) fn new() -> Self {
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).expect("a mount namespace: simulations run as root");
        let nothing = None::<&str>;
        mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
        mount(Some("tmpfs"), "/tmp", Some("tmpfs"), MsFlags::empty(), Some("size=64m")).unwrap();
        let disk = PathBuf::from(DISK);
        for directory in ["manifests", "pods", "logs", "containers", "archives"] {
            fs::create_dir_all(disk.join(directory)).unwrap();
        }
        // The links to logs have a fixed place.
        fs::create_dir_all(LOG_LINKS).unwrap();
        mount(Some(&disk.join("containers")), LOG_LINKS, nothing, MsFlags::MS_BIND, nothing).unwrap();
        fs::write(disk.join("resolv.conf"), "nameserver 192.0.2.53\n").unwrap();
        Self { disk }
    }

    /// Loses everything in memory: mounts, sockets, and unsynced data.
    pub(super) fn power_cut(&self, world: &World) {
        Self::free_disk(&self.disk);
        mounts::unmount_below(&self.disk).unwrap();
        world.cut_power().unwrap();
        // No process listens on it any more.
        let _ = fs::remove_file(self.disk.join("coracle.sock"));
    }

    /// Fills the disk completely.
    pub(super) fn fill_disk(&self) {
        let mut file = fs::File::create(self.disk.join(FILL)).unwrap();
        let block = vec![0; 1 << 16];
        while file.write_all(&block).is_ok() {}
    }

    pub(super) fn free_disk(disk: &Path) {
        // The disk may not have been full.
        let _ = fs::remove_file(disk.join(FILL));
    }

    pub(super) fn write_manifest(&self, name: &str, text: &str) {
        Self::free_disk(&self.disk);
        let unfinished = self.disk.join(name);
        fs::write(&unfinished, text).unwrap();
        fs::rename(unfinished, self.manifest(name)).unwrap();
    }

    pub(super) fn remove_manifest(&self, name: &str) {
        fs::remove_file(self.manifest(name)).unwrap();
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.disk.join("manifests").join(format!("{name}.json"))
    }

    pub(super) fn path(&self, name: &str) -> String {
        let path: &Path = &self.disk.join(name);
        path.display().to_string()
    }
}
