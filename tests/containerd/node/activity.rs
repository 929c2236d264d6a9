//! Resource usage of a process from procfs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Counters per thread: an exiting thread takes its counters out of procfs, so a process-wide sum could decrease.
#[derive(Default)]
pub(crate) struct Activity {
    threads: BTreeMap<OsString, Thread>,
    written: u64,
}

#[derive(Clone, Copy, Default)]
struct Thread {
    wakes: u64,
    cpu: Duration,
}

/// Usage between two readings, without threads that started and exited in between.
#[derive(Debug, PartialEq)]
pub(crate) struct Done {
    /// Number of times any thread went to sleep and was woken.
    pub(crate) wakes: u64,
    pub(crate) cpu: Duration,
    /// Bytes written, or still to be written, to a disk.
    pub(crate) written: u64,
}

impl Activity {
    pub(crate) fn of(pid: u32) -> Self {
        Self::at(Path::new(&format!("/proc/{pid}")))
    }

    /// Of the process with this directory in procfs.
    pub(crate) fn at(process: &Path) -> Self {
        let threads = fs::read_dir(process.join("task")).unwrap().flatten().map(|thread| {
            let read = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let wakes = number_after(&read("status"), "\nvoluntary_ctxt_switches:");
            // Nanoseconds on a CPU, then nanoseconds in the run queue.
            let cpu = Duration::from_nanos(number_after(&read("schedstat"), ""));
            (thread.file_name(), Thread { wakes, cpu })
        });
        let written = number_after(&fs::read_to_string(process.join("io")).unwrap(), "\nwrite_bytes:");
        Self { threads: threads.collect(), written }
    }

    pub(crate) fn since(&self, before: &Self) -> Done {
        let (mut wakes, mut cpu) = (0, Duration::ZERO);
        for (thread, now) in &self.threads {
            let then = before.threads.get(thread).copied().unwrap_or_default();
            wakes += now.wakes.saturating_sub(then.wakes);
            cpu += now.cpu.saturating_sub(then.cpu);
        }
        Done { wakes, cpu, written: self.written - before.written }
    }
}

/// Memory in KiB.
pub(crate) struct Memory {
    pub(crate) rss: u64,
    pub(crate) pss: u64,
    /// Memory that is not backed by a file.
    pub(crate) anonymous: u64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        Self {
            rss: number_after(&text, "\nRss:"),
            pss: number_after(&text, "\nPss:"),
            anonymous: number_after(&text, "\nAnonymous:"),
        }
    }
}

/// The number after `key`; 0 if the key is missing.
fn number_after(text: &str, key: &str) -> u64 {
    let found = text.split_once(key).map_or("", |(_, rest)| rest);
    found.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
}
