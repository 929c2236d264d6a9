//! Reading files with a bound, and writing them whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The first `limit` bytes of a regular file. A link is not followed: the file may be a container's to write.
pub(crate) fn read_head(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let no_surprise = nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(no_surprise.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(u64::try_from(limit).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Puts `bytes` at `path`, all of them or none, even when the power goes. Only this user can read them.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let unfinished = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_its_folder_made() {
        let dir = std::env::temp_dir().join(format!("coracle-replace-{}", std::process::id()));
        let path = dir.join("inner/state.json");
        let results =
            [replace(&path, b"a longer text"), replace(&path, b"short"), replace(Path::new("/proc/x/y"), b"")];
        let text = fs::read_to_string(&path);
        let left = fs::read_dir(dir.join("inner")).map(Iterator::count);
        fs::remove_dir_all(&dir).expect("our own directory");
        assert!(matches!(results, [Ok(()), Ok(()), Err(_)]), "{results:?}");
        assert_eq!((text.expect("it is there"), left.expect("it is there")), ("short".to_owned(), 1));
    }

    #[test]
    fn only_the_head_of_a_regular_file_is_read() {
        let dir = std::env::temp_dir().join(format!("coracle-read-head-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory of our own");
        let file = dir.join("message");
        fs::write(&file, "0123456789").expect("a file of our own");
        let link = dir.join("link");
        std::os::unix::fs::symlink(&file, &link).expect("a link of our own");
        let results = (read_head(&file, 4), read_head(&link, 4), read_head(&dir, 4));
        fs::remove_dir_all(&dir).expect("our own directory");
        assert_eq!(results.0.expect("it is there"), b"0123");
        assert!(results.1.is_err(), "a link was followed");
        assert!(results.2.is_err(), "a directory was read");
    }
}
