//! Measures the node's remaining memory, disk space and pids.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::image_layout::Layout;
use super::signals::{Observation, Observations};
use crate::platform::cgroups::{Depth, HIERARCHY, UsageReader};
use crate::platform::config::Signal;
use crate::platform::host::file_system::{inodes, room};
use crate::platform::host::process::tasks;
use crate::platform::host::procfs::Procfs;

/// The paths and cgroups to measure.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilesystemPaths {
    /// Memory is counted by cgroup v2.
    pub(crate) cgroup_v2: bool,
    /// The `kubepods` cgroup, if there is one.
    pub(crate) kubepods: Option<String>,
    /// The kubelet's root directory.
    pub(crate) node: PathBuf,
    /// The runtime's image directory; `None` until it is known.
    pub(crate) images: Option<PathBuf>,
    /// The directory of writable layers, if it is on another file system.
    pub(crate) layers: Option<PathBuf>,
}

/// May block for long: a file system may hang. Signals that cannot be measured are left out.
pub(crate) fn observe(file_systems: &FilesystemPaths) -> (Observations, Layout) {
    let mut seen = Observations::new();
    let mut reader = UsageReader::new(Path::new(HIERARCHY));
    if let Some(memory) = memory(file_systems, &mut reader) {
        seen.insert(Signal::MemoryAvailable, memory);
    }
    if let Some(memory) = file_systems.kubepods.as_ref().and_then(|group| allocatable(group, &mut reader)) {
        seen.insert(Signal::AllocatableMemoryAvailable, memory);
    }
    let layout = layout(file_systems);
    let images = file_systems.images.as_ref().unwrap_or(&file_systems.node);
    let layers = if layout == Layout::ImagesApart { images } else { &file_systems.node };
    for (path, bytes, files) in [
        (&file_systems.node, Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        (images, Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
        (layers, Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree),
    ] {
        if let Ok(room) = room(path) {
            seen.insert(bytes, Observation { available: room.available, capacity: room.capacity });
        }
        if let Ok(inodes) = inodes(path) {
            seen.insert(files, Observation { available: inodes.available, capacity: inodes.capacity });
        }
    }
    if let Some(pids) = pids() {
        seen.insert(Signal::PidAvailable, pids);
    }
    (seen, layout)
}

/// Threads count as processes.
fn pids() -> Option<Observation> {
    let (running, capacity) = tasks()?;
    Some(Observation { available: capacity.saturating_sub(running), capacity })
}

/// With cgroup v2 as upstream: the capacity minus the root cgroup's working set. Otherwise the kernel's own estimate.
fn memory(file_systems: &FilesystemPaths, reader: &mut UsageReader) -> Option<Observation> {
    let info = Procfs::host().memory()?;
    let used = file_systems.cgroup_v2.then(|| reader.read("", Depth::Memory).ok()?.memory).flatten();
    let used = used.map(|used| used.anon.saturating_add(used.file).saturating_sub(used.inactive_file));
    let available = used.map_or(info.available, |used| info.total.saturating_sub(used));
    Some(Observation { available, capacity: info.total })
}

/// The memory available below the limit of `kubepods`; `None` without a limit.
fn allocatable(group: &str, reader: &mut UsageReader) -> Option<Observation> {
    let limit = Path::new(HIERARCHY).join(group.trim_start_matches('/')).join("memory.max");
    let capacity: u64 = fs::read_to_string(limit).ok()?.trim().parse().ok()?;
    let used = reader.read(group, Depth::Memory).ok()?.working_set()?;
    Some(Observation { available: capacity.saturating_sub(used), capacity })
}

fn layout(file_systems: &FilesystemPaths) -> Layout {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let node = device(&file_systems.node);
    let apart = |path: &Option<PathBuf>| {
        path.as_deref().and_then(device).zip(node).is_some_and(|(device, node)| device != node)
    };
    match (apart(&file_systems.images), &file_systems.layers) {
        (false, _) => Layout::Shared,
        (true, Some(_)) if !apart(&file_systems.layers) => Layout::Split,
        (true, _) => Layout::ImagesApart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_machine_has_resources_left() {
        // The test binary's file system is in use; a temporary directory may be on an empty one.
        let node = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let places = FilesystemPaths { node, ..FilesystemPaths::default() };
        let (seen, layout) = observe(&places);
        assert_eq!(layout, Layout::Shared);
        for signal in [Signal::MemoryAvailable, Signal::NodeFsAvailable, Signal::PidAvailable] {
            let Observation { available, capacity } = seen[&signal];
            assert!(0 < available && available < capacity, "{signal:?}: {available} of {capacity}");
        }
        assert!(!seen.contains_key(&Signal::AllocatableMemoryAvailable));
    }

    #[test]
    fn images_on_another_device_are_apart() {
        let apart = FilesystemPaths {
            node: PathBuf::from("/"),
            images: Some(PathBuf::from("/proc")),
            ..FilesystemPaths::default()
        };
        assert_eq!(layout(&apart), Layout::ImagesApart);
        let split = FilesystemPaths { layers: Some(PathBuf::from("/")), ..apart.clone() };
        assert_eq!(layout(&split), Layout::Split);
        let away = FilesystemPaths { images: Some(PathBuf::from("/nowhere/at/all")), ..apart };
        assert_eq!(layout(&away), Layout::Shared);
    }
}
