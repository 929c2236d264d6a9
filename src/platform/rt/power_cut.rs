//! Simulated power cuts: synced data survives, other data only partly.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::virtual_time::{World, world};

/// What is known to be on the disk.
#[derive(Default)]
pub(crate) struct Disk {
    /// File content at its last sync, by inode.
    content: RefCell<BTreeMap<u64, Vec<u8>>>,
    /// The names and inodes in each folder at its last sync.
    folders: RefCell<BTreeMap<PathBuf, BTreeMap<PathBuf, u64>>>,
    /// Share of failing reads, writes and syncs, in parts per thousand.
    pub(crate) failing: Cell<u32>,
    /// Number of file syncs since the simulation began.
    pub(crate) syncs: Cell<u64>,
}

/// A read, write or sync, which may fail with EIO.
pub(crate) fn disk_access() -> io::Result<()> {
    match world() {
        Some(world) if world.chance(world.files.failing.get()) => Err(Errno::EIO.into()),
        _ => Ok(()),
    }
}

/// Records that the file's content is on the disk.
pub(crate) fn synced_file(path: &Path) {
    let Some(world) = world() else { return };
    world.files.syncs.set(world.files.syncs.get() + 1);
    if let (Ok(bytes), Ok(metadata)) = (fs::read(path), fs::metadata(path)) {
        world.files.content.borrow_mut().insert(metadata.ino(), bytes);
    }
}

/// Records that the names in the folder are on the disk.
pub(crate) fn synced_folder(path: &Path) {
    let Some(world) = world() else { return };
    if let Ok(names) = names(path) {
        world.files.folders.borrow_mut().insert(path.to_owned(), names);
    }
}

fn names(folder: &Path) -> io::Result<BTreeMap<PathBuf, u64>> {
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.insert(entry.path(), entry.metadata()?.ino());
        }
    }
    Ok(names)
}

impl World {
    /// Cuts the power. In folders that were ever synced, unsynced names and content may be lost independently; appended
    /// data may survive in part.
    pub(crate) fn cut_power(&self) -> io::Result<()> {
        let folders = self.files.folders.take();
        for (folder, synced) in folders {
            let Ok(now) = names(&folder) else { continue };
            let kept =
                |path: &Path| -> BTreeMap<PathBuf, u64> { if path.exists() { now.clone() } else { BTreeMap::new() } };
            // The names are written all together or not at all.
            let names = if synced == now || self.chance(500) { kept(&folder) } else { synced };
            let contents: Vec<(PathBuf, Vec<u8>)> = names
                .iter()
                .map(|(path, inode)| {
                    let there = now.iter().find(|(_, other)| *other == inode);
                    let current = there.and_then(|(path, _)| fs::read(path).ok());
                    (path.clone(), self.what_is_left(*inode, current))
                })
                .collect();
            for path in now.keys().filter(|path| !names.contains_key(*path)) {
                fs::remove_file(path)?;
            }
            for (path, bytes) in contents {
                if fs::read(&path).ok().as_ref() != Some(&bytes) {
                    fs::write(&path, bytes)?;
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
                }
                synced_file(&path);
            }
            synced_folder(&folder);
        }
        Ok(())
    }

    fn what_is_left(&self, inode: u64, current: Option<Vec<u8>>) -> Vec<u8> {
        let synced = self.files.content.borrow().get(&inode).cloned().unwrap_or_default();
        let Some(current) = current.filter(|current| *current != synced) else { return synced };
        match current.strip_prefix(&*synced) {
            // Part of the appended data.
            Some(rest) => {
                let length = usize::try_from(self.below(rest.len() as u64 + 1)).unwrap_or_default();
                [&*synced, rest.get(..length).unwrap_or_default()].concat()
            }
            None if self.chance(500) => current,
            None => synced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulate;
    use super::*;

    /// What a power cut leaves of a file that was written, synced and appended to.
    fn left(seed: u64) -> String {
        let folder = std::env::temp_dir().join(format!("coracle-power-cut-{}-{seed}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (inside, file) = (folder.clone(), folder.join("a"));
        let cut = simulate(seed, |world| async move {
            fs::write(&file, "synced").unwrap();
            synced_file(&file);
            synced_folder(&inside);
            fs::write(&file, "synced, and more").unwrap();
            fs::write(inside.join("b"), "new").unwrap();
            world.cut_power().unwrap();
            fs::read_to_string(&file).unwrap()
        });
        fs::remove_dir_all(folder).unwrap();
        cut.unwrap()
    }

    #[test]
    fn synced_data_survives_a_power_cut() {
        let left: Vec<String> = (0..30).map(left).collect();
        assert!(left.iter().all(|text| "synced, and more".starts_with(text.as_str()) && text.starts_with("synced")));
        assert!(left.iter().any(|text| text != &left[0]), "{left:?}");
    }
}
