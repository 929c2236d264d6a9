//! The result of taking an application's update lock.

use std::fs::File;

/// Who holds an update lock.
#[derive(Debug)]
pub(crate) enum UpdateLock {
    /// The node, until the file is closed; `None`: there is no file, and so no lock.
    Taken(Option<File>),
    /// The application.
    Held,
}
