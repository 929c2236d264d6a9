//! Reads and writes the managers' state files.

use std::io;
use std::path::Path;

use super::cpu_state::{self, SavedState};
use super::memory_policy::Blocks;
use super::memory_state;
use crate::platform::host::directories::set_aside;
use crate::platform::host::file;

pub(super) const CPU_STATE: &str = "cpu_manager_state";
pub(super) const MEMORY_STATE: &str = "memory_manager_state";
/// Size limit in bytes, more than any machine needs.
const MAX_STATE_FILE_BYTES: u64 = 16 << 20;

/// The content of a state file from an earlier run.
#[derive(Debug)]
pub(crate) enum State<T> {
    Nothing,
    Damaged,
    Whole(T),
}

#[derive(Debug)]
pub(crate) struct States {
    pub(crate) cpus: State<SavedState>,
    pub(crate) memory: State<(String, Blocks)>,
}

/// Reads both files; corrupt ones are set aside.
pub(crate) fn read_states(root_dir: &Path) -> States {
    States {
        cpus: read_state(&root_dir.join(CPU_STATE), cpu_state::parse),
        memory: read_state(&root_dir.join(MEMORY_STATE), memory_state::parse),
    }
}

fn read_state<T>(path: &Path, parse: fn(&[u8]) -> Option<T>) -> State<T> {
    let text = match file::read_all(path, MAX_STATE_FILE_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return State::Nothing,
        Err(error) => {
            log!(warn, "failed to read state file", file = path.display(), error = error);
            return State::Damaged;
        }
    };
    if let Some(saved) = parse(&text) {
        return State::Whole(saved);
    }
    log!(warn, "state file corrupt, rebuilding from running containers", file = path.display());
    if let Err(error) = set_aside(path) {
        log!(warn, "failed to set aside state file", file = path.display(), error = error);
    }
    State::Damaged
}

/// Writes the file if its content differs.
pub(crate) fn write_state(path: &Path, text: &str) -> io::Result<()> {
    match file::read_all(path, MAX_STATE_FILE_BYTES) {
        Ok(before) if before == text.as_bytes() => Ok(()),
        _ => file::replace_within(path, text.as_bytes(), MAX_STATE_FILE_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::state::pods::Assigned;
    use crate::types::cpu_set::CpuSet;

    #[test]
    fn corrupt_file_is_set_aside_and_unchanged_one_not_written() {
        use std::os::unix::fs::MetadataExt;

        let folder = std::env::temp_dir().join(format!("coracle-cpu-state-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(CPU_STATE);
        let read = || read_states(&folder).cpus;
        assert!(matches!(read(), State::Nothing));
        write_state(&path, "half").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        write_state(&path, "half").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        assert!(matches!(read(), State::Damaged));
        assert_eq!(fs::read_to_string(folder.join("cpu_manager_state.corrupt")).unwrap(), "half");
        write_state(&path, &cpu_state::text("static", &CpuSet::parse("0-3").unwrap(), &Assigned::new())).unwrap();
        assert!(matches!(read(), State::Whole(_)));
        fs::remove_dir_all(&folder).unwrap();
    }
}
