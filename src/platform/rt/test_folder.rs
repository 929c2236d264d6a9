//! A directory of one test, which is removed with it, and what the test has mounted there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::mount::{MntFlags, umount2};

pub(crate) struct TestFolder(pub(crate) PathBuf);

impl TestFolder {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("coracle-{name}-{}-{number}", std::process::id()));
        // Of a killed process with the same pid.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts.lines().rev().filter_map(|mount| mount.split(' ').nth(4)).map(Path::new);
        for point in points.filter(|point| point.starts_with(&self.0)) {
            let _ = umount2(point, MntFlags::MNT_DETACH);
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}
