//! The kernel's view of a stuck thread.

use super::file::read_head;
use super::procfs::{Process, Procfs};
use crate::types::api::record;

record! {
    /// Fields are empty if the kernel does not reveal them.
    pub(crate) struct ThreadState {
        /// Such as `D (disk sleep)`.
        pub(crate) state: String,
        /// The kernel function that the thread waits in.
        pub(crate) wait_channel: String,
        /// Innermost function first.
        pub(crate) kernel_stack: Vec<String>,
    }
}

/// The state of this process's main thread; may be called from any thread.
pub(crate) fn of_main_thread() -> ThreadState {
    read(&Procfs::host().this_process().thread(std::process::id()))
}

fn read(thread: &Process) -> ThreadState {
    let text = |name: &str| {
        let bytes = read_head(&thread.directory().join(name), MAX_THREAD_FILE_BYTES).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let state = thread.status().map(|status| status.state).unwrap_or_default();
    let wait_channel = text("wchan");
    // 0 means that the thread waits in no function, or that access is denied.
    let wait_channel = if wait_channel.trim() == "0" { String::new() } else { wait_channel.trim().to_owned() };
    let kernel_stack = text("stack").lines().take(MAX_STACK_FRAMES).map(function).collect();
    ThreadState { state, wait_channel, kernel_stack }
}

/// Strips the address from `[<0>] pipe_write+0x12c/0x5b0`.
fn function(line: &str) -> String {
    line.split_once("] ").map_or(line, |(_, function)| function).to_owned()
}

const MAX_STACK_FRAMES: usize = 12;
const MAX_THREAD_FILE_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn state_place_and_stack_are_what_the_kernel_says() {
        let root = std::env::temp_dir().join(format!("coracle-thread-{}", std::process::id()));
        let folder = root.join("self/task/7");
        fs::create_dir_all(&folder).unwrap();
        let read = || read(&Procfs::at(&root).this_process().thread(7));
        let nothing = read();
        let status = include_str!("../../../tests/data/procfs/linux-6.18-x86_64/self/status");
        fs::write(folder.join("status"), status.replace("R (running)", "S (sleeping)")).unwrap();
        fs::write(folder.join("wchan"), "pipe_write").unwrap();
        fs::write(folder.join("stack"), "[<0>] pipe_write+0x12c/0x5b0\n[<0>] vfs_write+0x1/0x2\n").unwrap();
        let all = read();
        fs::write(folder.join("wchan"), "0").unwrap();
        let running = read();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(nothing, ThreadState::default());
        assert_eq!((all.state.as_str(), all.wait_channel.as_str()), ("S (sleeping)", "pipe_write"));
        assert_eq!(all.kernel_stack, ["pipe_write+0x12c/0x5b0", "vfs_write+0x1/0x2"]);
        assert_eq!(running.wait_channel, "");
    }

    #[test]
    fn main_thread_has_a_state() {
        assert!(!of_main_thread().state.is_empty());
    }
}
