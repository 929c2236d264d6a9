//! `/var/log/containers`: a symlink to each container's log, under the name that log collectors parse.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::platform::host::directories;

/// The symlink's name, `<pod>_<namespace>_<container>-<id>.log`, truncated like upstream (`logSymlink`).
pub(crate) fn link_name(namespace: &str, pod: &str, container: &str, id: &str) -> String {
    let mut name = format!("{pod}_{namespace}_{container}-{id}").replace(['/', '\0'], "~");
    let end = (0..=MAX_FILE_NAME_BYTES - SUFFIX.len()).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.truncate(end);
    name + SUFFIX
}

/// Creates the symlink if it does not exist.
pub(super) fn link(link: &Path, log: &Path) -> io::Result<()> {
    match fs::read_link(link) {
        Ok(there) if there == log => return Ok(()),
        Ok(_) => fs::remove_file(link)?,
        Err(_) => {}
    }
    if let Some(folder) = link.parent() {
        directories::make(folder, 0o755)?;
    }
    match symlink(log, link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes the symlinks in `folder` whose log has no files left. During a rotation the current file may be missing
/// for a moment, but rotated ones exist.
pub(crate) fn remove_dead_links(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|end| end != "log") {
            continue;
        }
        let Ok(target) = fs::read_link(&path) else { continue };
        let is_there = super::files::list(&target).is_ok_and(|files| !files.is_empty());
        if !is_there {
            // Retried at the next call.
            let _ = fs::remove_file(&path);
        }
    }
}

/// `NAME_MAX` of the usual file systems.
const MAX_FILE_NAME_BYTES: usize = 255;
const SUFFIX: &str = ".log";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn link_name_is_upstreams_and_fits_the_file_system() {
        assert_eq!(link_name("default", "web-n", "main", "abc"), "web-n_default_main-abc.log");
        let name = link_name("n", &"é".repeat(200), "c", "i");
        assert!(name.len() <= 255 && name.ends_with(".log"), "{name}");
        assert_eq!(link_name("..", "/", "c", "i"), "~_.._c-i.log");
    }

    #[test]
    fn folder_of_links_can_be_read_by_everyone_whatever_the_umask() {
        let own = "kubelet::logs::links::tests::folder_of_links_can_be_read_by_everyone_whatever_the_umask";
        if !directories::is_under_service_umask(own) {
            return;
        }
        let dir = std::env::temp_dir().join(format!("coracle-links-mode-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let linked = link(&dir.join("containers/0.log"), &dir.join("0.log"));
        let mode = fs::metadata(dir.join("containers")).map(|found| found.permissions().mode() & 0o777);
        fs::remove_dir_all(&dir).unwrap();
        linked.unwrap();
        assert_eq!(mode.unwrap(), 0o755);
    }

    #[test]
    fn dead_link_is_removed_unless_its_log_is_being_rotated() {
        let dir = std::env::temp_dir().join(format!("coracle-links-{}", std::process::id()));
        let (logs, links) = (dir.join("logs"), dir.join("links"));
        fs::create_dir_all(&logs).unwrap();
        for name in ["0.log", "1.log.20260102-030405"] {
            fs::write(logs.join(name), "x").unwrap();
        }
        for run in ["0", "1", "2"] {
            link(&links.join(format!("{run}.log")), &logs.join(format!("{run}.log"))).unwrap();
        }
        link(&links.join("0.log"), &logs.join("0.log")).unwrap();
        fs::write(links.join("other"), "x").unwrap();
        remove_dead_links(&links);
        let mut left: Vec<_> = fs::read_dir(&links).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(left, ["0.log", "1.log", "other"]);
    }
}
