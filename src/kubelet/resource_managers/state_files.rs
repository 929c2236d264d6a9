//! What was decided, as it was found on the disk, and as it gets there.

use std::io;
use std::path::Path;

use super::cpu_state::{self, Saved};
use super::memory_policy::Blocks;
use super::memory_state;
use crate::platform::host::directories::set_aside;
use crate::platform::host::file;

pub(super) const CPU_STATE: &str = "cpu_manager_state";
pub(super) const MEMORY_STATE: &str = "memory_manager_state";
/// More than the processors of any machine take.
const STATE_LIMIT: u64 = 1 << 20;

/// What was found of the last time.
#[derive(Debug)]
pub(crate) enum State<T> {
    Nothing,
    Damaged,
    Whole(T),
}

/// All that was found.
#[derive(Debug)]
pub(crate) struct States {
    pub(crate) cpus: State<Saved>,
    pub(crate) memory: State<(String, Blocks)>,
}

/// Reads it; what is damaged is set aside.
pub(crate) fn read_states(root_dir: &Path) -> States {
    States {
        cpus: read_state(&root_dir.join(CPU_STATE), cpu_state::parse),
        memory: read_state(&root_dir.join(MEMORY_STATE), memory_state::parse),
    }
}

fn read_state<T>(path: &Path, parse: fn(&[u8]) -> Option<T>) -> State<T> {
    let text = match file::read_all(path, STATE_LIMIT) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return State::Nothing,
        Err(error) => {
            log!(warn, "not read", file = path.display(), error = error);
            return State::Damaged;
        }
    };
    if let Some(saved) = parse(&text) {
        return State::Whole(saved);
    }
    log!(warn, "damaged: what runs tells who has what", file = path.display());
    if let Err(error) = set_aside(path) {
        log!(warn, "not set aside", file = path.display(), error = error);
    }
    State::Damaged
}

/// The file has this text afterwards; nothing is written if it has it already.
pub(crate) fn write_state(path: &Path, text: &str) -> io::Result<()> {
    match file::read_all(path, STATE_LIMIT) {
        Ok(before) if before == text.as_bytes() => Ok(()),
        _ => file::replace(path, text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::state::pods::Assigned;
    use crate::types::cpu_set::CpuSet;

    #[test]
    fn a_damaged_file_is_set_aside_and_one_that_says_it_already_is_not_written() {
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
