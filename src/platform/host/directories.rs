//! Creates directories, even if a file is in the way.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::platform::host::remove_tree::remove_tree;

/// Creates `path` and its missing parents; `mode` applies to the last one if it is new.
pub(crate) fn make(path: &Path, mode: u32) -> io::Result<()> {
    make_all(path, mode, &|_| Err(io::ErrorKind::AlreadyExists.into()))
}

/// As [`make`], for the kubelet's own directories. A file in the place of a directory is file system damage: it is
/// moved aside.
pub(crate) fn make_own(path: &Path, mode: u32) -> io::Result<()> {
    make_all(path, mode, &set_aside)
}

/// Renames `path` to `path.corrupt`, replacing an earlier one.
pub(crate) fn set_aside(path: &Path) -> io::Result<()> {
    let mut aside = OsString::from(path);
    aside.push(".corrupt");
    let aside = PathBuf::from(aside);
    remove_tree(&aside)?;
    fs::rename(path, &aside)?;
    log!(warn, "moved corrupt file aside", path = path.display(), to = aside.display());
    Ok(())
}

/// Calls `clear` for a file that is in the way.
fn make_all(path: &Path, mode: u32, clear: &dyn Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    match make_one(path, mode, clear) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            if let Some(parent) = path.parent() {
                make_all(parent, 0o755, clear)?;
            }
            make_one(path, mode, clear)
        }
        result => result,
    }
}

/// Runs a test again in a process with the umask of the service. True in that process, which does the work.
#[cfg(test)]
pub(crate) fn is_under_service_umask(test: &str) -> bool {
    const MARK: &str = "CORACLE_SERVICE_UMASK";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut again = std::process::Command::new("sh");
    again.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(std::env::current_exe().expect("this test"));
    let ended = again.args(["--exact", test]).env(MARK, "1").output().expect("a shell");
    let output = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && output.contains("1 passed"), "{output}");
    false
}

/// Ignores the umask. An existing directory keeps its mode.
fn make_one(path: &Path, mode: u32, clear: &dyn Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let create = || {
        DirBuilder::new().mode(mode).create(path)?;
        fs::set_permissions(path, Permissions::from_mode(mode))
    };
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let metadata = fs::metadata(path)?;
            if metadata.is_dir() {
                return Ok(());
            }
            if !metadata.is_file() {
                return Err(error);
            }
            clear(path)?;
            create()
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("coracle-directories-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory of our own");
        path
    }

    #[test]
    fn files_in_the_way_of_own_directories_are_moved_aside() {
        let top = scratch("own");
        let (upper, lower) = (top.join("pods"), top.join("pods/u1/volumes"));
        let mut results = Vec::new();
        for text in ["first", "second"] {
            remove_tree(&upper).expect("our own");
            fs::write(&upper, text).expect("our own");
            results.push(make_own(&lower, 0o750).is_ok());
        }
        fs::remove_dir(&lower).expect("it was made");
        fs::write(&lower, "x").expect("our own");
        results.push(make_own(&lower, 0o750).is_ok() && lower.is_dir());
        let aside = fs::read_to_string(top.join("pods.corrupt")).unwrap_or_default();
        let mode = fs::metadata(&lower).map_or(0, |found| found.permissions().mode() & 0o7777);
        remove_tree(&top).expect("our own");
        assert_eq!((results, aside.as_str(), mode), (vec![true; 3], "second", 0o750));
    }

    #[test]
    fn files_in_the_way_of_other_directories_stay() {
        let top = scratch("other");
        fs::write(top.join("data"), "kept").expect("our own");
        let results = [make(&top.join("data"), 0o755).is_err(), make(&top.join("data/inner"), 0o755).is_err()];
        let text = fs::read_to_string(top.join("data")).unwrap_or_default();
        remove_tree(&top).expect("our own");
        assert_eq!((results, text.as_str()), ([true; 2], "kept"));
    }

    #[test]
    fn links_are_followed_and_never_moved_aside() {
        let top = scratch("link");
        fs::create_dir(top.join("elsewhere")).expect("our own");
        std::os::unix::fs::symlink(top.join("elsewhere"), top.join("pods")).expect("our own");
        std::os::unix::fs::symlink(top.join("nowhere"), top.join("logs")).expect("our own");
        let results = (make_own(&top.join("pods/u1"), 0o750).is_ok(), make_own(&top.join("logs"), 0o755).is_err());
        let made = top.join("elsewhere/u1").is_dir();
        remove_tree(&top).expect("our own");
        assert_eq!((results, made), ((true, true), true));
    }
}
