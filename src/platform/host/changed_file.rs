//! A file that is written when its content changes.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use crate::platform::host::file;
use crate::platform::rt;

#[derive(Debug)]
pub(crate) struct ChangedFile {
    path: PathBuf,
    /// The longest content that is read again.
    limit: u64,
    /// The content of the file. `None` after a write that failed: it may have replaced the file.
    content: RefCell<Option<String>>,
}

impl ChangedFile {
    /// `content`: what the file has. Longer content than `limit` is not written, because it could not be read again.
    pub(crate) fn new(path: PathBuf, limit: u64, content: String) -> Self {
        Self { path, limit, content: RefCell::new(Some(content)) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file was read only now.
    pub(crate) fn was_read(&self, content: String) {
        self.content.replace(Some(content));
    }

    /// Returns when the file has this content, durably. One caller at a time.
    pub(crate) async fn write(&self, content: String) -> io::Result<()> {
        if self.content.borrow().as_ref() == Some(&content) {
            return Ok(());
        }
        self.content.take();
        let (path, limit, bytes) = (self.path.clone(), self.limit, content.clone().into_bytes());
        rt::blocking(move || file::replace_within(&path, &bytes, limit)).await?;
        self.content.replace(Some(content));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn file_is_written_when_it_may_have_other_content() {
        let folder = std::env::temp_dir().join(format!("coracle-changed-file-{}", std::process::id()));
        let path = folder.join("state.json");
        fs::create_dir_all(&folder).unwrap();
        let seen = rt::simulate(1, |world| {
            let (path, file) = (path.clone(), ChangedFile::new(path.clone(), 3, "old".to_owned()));
            async move {
                file.write("old".to_owned()).await.unwrap();
                let unchanged = path.exists();
                // The failed write may have replaced the file, although it does not show here.
                world.files.failing.set(1000);
                file.write("new".to_owned()).await.unwrap_err();
                world.files.failing.set(0);
                file.write("long".to_owned()).await.unwrap_err();
                file.write("old".to_owned()).await.unwrap();
                (unchanged, fs::read_to_string(&path).unwrap())
            }
        });
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(seen, Ok((false, "old".to_owned())));
    }
}
