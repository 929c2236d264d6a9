//! Device files that rules of the node define as resources, updated as they appear and disappear.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::Devices;
use super::allocations::{DeviceAllocation, DeviceFile};
use super::attributes;
use super::v1beta1::{ContainerAllocateResponse, DeviceSpec};
use crate::platform::config::DeviceRule;
use crate::platform::host::file_watch::FileWatch;
use crate::platform::rt;
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

/// Limit per resource.
const MAX_RULE_DEVICES: usize = 256;
const SYS: &str = "/sys";
/// A device often has several files that appear one after the other.
const DEVICE_CHANGE_DELAY: Duration = Duration::from_millis(100);
/// Delay after a failed watch.
const DEVICE_REWATCH_DELAY: Duration = Duration::from_secs(60);

/// Watches the files of all rules; never returns.
pub(super) async fn follow(devices: Rc<Devices>) {
    if devices.rules.is_empty() {
        return;
    }
    loop {
        // Watched before the files are listed, so that no change in between is missed.
        let watch = watch(&devices.rules);
        devices.update_rule_devices().await;
        let changed = match &watch {
            Ok(watch) => watch.changed().await,
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        if let Err(error) = changed {
            log!(error, "failed to watch device files", error = error);
            rt::sleep(DEVICE_REWATCH_DELAY).await;
        }
        rt::sleep(DEVICE_CHANGE_DELAY).await;
    }
}

impl Devices {
    /// Updates the devices of all rules.
    pub(super) async fn update_rule_devices(&self) {
        if self.rules.is_empty() {
            return;
        }
        let rules = self.rules.clone();
        let device_files = rt::blocking(move || rules.iter().map(find).collect::<Vec<_>>()).await;
        for (rule, device_files) in self.rules.iter().zip(device_files) {
            if self.allocations.borrow_mut().set_rule_devices(&rule.resource, device_files) {
                log!(info, "device files changed", resource = rule.resource);
                self.changed.notify();
            }
        }
    }

    /// The Allocate response for devices of a rule; `None` for a plugin's devices.
    pub(super) fn of_rule(&self, allocation: &DeviceAllocation) -> Option<ContainerAllocateResponse> {
        let rule = self.rules.iter().find(|rule| rule.resource == allocation.resource)?;
        let spec = |id: &String| DeviceSpec {
            container_path: id.clone(),
            host_path: id.clone(),
            permissions: rule.permissions.clone(),
        };
        let devices = allocation.ids().map(spec).collect();
        Some(ContainerAllocateResponse { devices, ..ContainerAllocateResponse::default() })
    }
}

/// The device files of a rule; each device once, under its first name.
fn find(rule: &DeviceRule) -> Vec<DeviceFile> {
    let mut files_by_path: SortedMap<(bool, u64), DeviceFile> = SortedMap::new();
    let mut paths = Vec::new();
    for pattern in &rule.paths {
        expand(PathBuf::from("/"), pattern.trim_start_matches('/'), &mut paths, &mut SortedSet::new());
    }
    for path in paths {
        // Follows symlinks to the device.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        let kind = metadata.file_type();
        let Some(path) = path.to_str() else { continue };
        if (kind.is_char_device() || kind.is_block_device()) && files_by_path.len() < MAX_RULE_DEVICES {
            let (is_block, device) = (kind.is_block_device(), metadata.rdev());
            let file = || {
                let mut attributes = attributes::read(Path::new(SYS), is_block, device);
                attributes.extend(rule.attributes.iter().map(|(name, value)| (name.clone(), value.clone())));
                DeviceFile { path: path.to_owned(), attributes }
            };
            files_by_path.entry((is_block, device)).or_insert_with(file);
        }
    }
    files_by_path.into_values().collect()
}

/// Watches these directories for new and removed entries.
fn watch(rules: &[DeviceRule]) -> io::Result<FileWatch> {
    let mut directories = SortedSet::new();
    for pattern in rules.iter().flat_map(|rule| &rule.paths) {
        expand(PathBuf::from("/"), pattern.trim_start_matches('/'), &mut Vec::new(), &mut directories);
    }
    // Writes to devices are frequent and irrelevant.
    let directories: Vec<PathBuf> = directories.into_iter().collect();
    FileWatch::of_entries(&directories)
}

/// Collects the matching paths in order, and the directories where matching paths may appear.
fn expand(base: PathBuf, rest: &str, paths: &mut Vec<PathBuf>, directories: &mut SortedSet<PathBuf>) {
    let (name, below) = rest.split_once('/').map_or((rest, None), |(name, below)| (name, Some(below)));
    let is_pattern = name.contains(['*', '?']);
    let names = if is_pattern { names_in(&base, name) } else { vec![name.to_owned()] };
    if is_pattern || below.is_none() || !base.join(name).is_dir() {
        directories.insert(base.clone());
    }
    for name in names {
        let path = base.join(name);
        match below {
            None => paths.push(path),
            Some(below) if path.is_dir() => expand(path, below, paths, directories),
            Some(_) => {}
        }
    }
}

fn names_in(directory: &Path, pattern: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| fits(pattern.as_bytes(), name.as_bytes())).collect();
    names.sort_once();
    names
}

/// `*` matches any part of a name, `?` one byte; a leading dot must match literally.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    // Position of the last star and the length that it matches: it grows by one byte on each mismatch.
    let (mut at, mut of, mut star) = (0, 0, None);
    while let Some(byte) = name.get(at) {
        match pattern.get(of) {
            Some(b'*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(b'?') => (at, of) = (at + 1, of + 1),
            Some(same) if same == byte => (at, of) = (at + 1, of + 1),
            _ => match &mut star {
                None => return false,
                Some((place, taken)) => {
                    *taken += 1;
                    (at, of) = (*taken, *place + 1);
                }
            },
        }
    }
    pattern.get(of..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_and_question_mark_match_parts_of_a_name() {
        for (pattern, name, expected) in [
            ("video*", "video0", true),
            ("video*", "video", true),
            ("video*", "avideo", false),
            ("tty[SU]*", "ttyS0", false),
            ("*", "a", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("i2c-?", "i2c-1", true),
            ("i2c-?", "i2c-10", false),
            ("i2c-?", "i2c-", false),
            ("null", "null", true),
            ("null", "nul", false),
            ("", "", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    fn found(paths: &[&str]) -> Vec<String> {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let rule = DeviceRule { resource: "a.b/c".to_owned(), paths, ..DeviceRule::default() };
        find(&rule).into_iter().map(|file| file.path).collect()
    }

    #[test]
    fn only_device_files_are_listed_once_each() {
        assert_eq!(found(&["/dev/null", "/dev/nul?", "/dev/zero"]), ["/dev/null", "/dev/zero"]);
        assert!(found(&["/etc/*", "/dev/nothing-of-this-name/*"]).is_empty());
        let folder = std::env::temp_dir().join(format!("coracle-device-nodes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink("/dev/null", folder.join("by-id")).unwrap();
        let by_id = folder.join("by-*").display().to_string();
        let ids = found(&[&by_id, "/dev/null"]);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(ids, [by_id.replace('*', "id")], "under its first name");
    }

    #[test]
    fn directories_of_possible_files_are_watched() {
        let watched = |pattern: &str| {
            let mut directories = SortedSet::new();
            expand(PathBuf::from("/"), pattern.trim_start_matches('/'), &mut Vec::new(), &mut directories);
            directories.into_iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(watched("/dev/video*"), ["/dev"]);
        assert_eq!(watched("/dev/null"), ["/dev"]);
        assert_eq!(watched("/dev/none-yet/a*"), ["/dev"]);
        assert_eq!(watched("/none-yet/a/b"), ["/"]);
    }
}
