//! The memory of a test that has a process of its own.

use std::process::Command;

use super::need_root;

/// Set in the process of the test.
const OWN_PROCESS: &str = "CORACLE_TEST_HAS_OWN_PROCESS";

/// Whether the test `name` has a process of its own, whose memory no other test takes. Otherwise runs it in one.
pub(super) fn has_own_process(name: &str) -> bool {
    need_root();
    if std::env::var_os(OWN_PROCESS).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(OWN_PROCESS, "1");
    // glibc would keep freed memory.
    command
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_MMAP_THRESHOLD_", "131072")
        .env("MALLOC_TRIM_THRESHOLD_", "131072");
    let ended = command.output().unwrap();
    let [shown, errors] = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    println!("{shown}{errors}");
    assert!(ended.status.success() && shown.contains("1 passed"), "{name} failed in its process");
    false
}

/// The growth of the process's memory since its begin.
pub(super) struct PeakMemory {
    before: usize,
}

impl PeakMemory {
    pub(super) fn begin() -> Self {
        // The peak becomes what the process has now.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        Self { before: memory("VmRSS:") }
    }

    /// Bytes at most.
    pub(super) fn growth(&self) -> usize {
        memory("VmHWM:").saturating_sub(self.before)
    }
}

fn memory(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn peak_is_that_since_the_begin() {
    if !has_own_process("simulation::peak_memory::peak_is_that_since_the_begin") {
        return;
    }
    let take = |bytes: usize| {
        let taken = PeakMemory::begin();
        std::hint::black_box(vec![1_u8; bytes]);
        taken.growth()
    };
    assert!((30 << 20..40 << 20).contains(&take(32 << 20)));
    assert!(take(1 << 20) < 8 << 20);
}
