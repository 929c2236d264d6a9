//! CPU and memory of the node in the last ten minutes, so that a new viewer sees what came before.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::platform::host::procfs::{CpuTimes, MemInfo, Procfs};
use crate::platform::rt;

/// The period of the readings, and how many are kept: ten minutes, less than a kilobyte.
const HISTORY_PERIOD: Duration = Duration::from_secs(15);
const MAX_HISTORY_POINTS: usize = 40;

#[derive(Debug, Default)]
pub(super) struct History {
    points: VecDeque<HistoryPoint>,
    /// The time and the CPU time of the last reading, in nanoseconds.
    last: Option<(Instant, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct HistoryPoint {
    at: Instant,
    millicores: u32,
    mebibytes: u32,
}

impl History {
    fn note(&mut self, now: Instant, times: CpuTimes, memory: MemInfo) {
        let cpu = times.user.saturating_add(times.system);
        let last = self.last.replace((now, cpu));
        let Some((before, cpu_before)) = last else { return };
        let millis = u64::try_from(now.saturating_duration_since(before).as_millis()).unwrap_or(u64::MAX).max(1);
        // Nanoseconds in a millisecond are millionths of a core.
        let millicores = cpu.saturating_sub(cpu_before) / millis / 1000;
        // The working set, as in /stats/summary.
        let used = memory.anon.saturating_add(memory.file).saturating_sub(memory.inactive_file);
        if self.points.len() == MAX_HISTORY_POINTS {
            self.points.pop_front();
        }
        self.points.push_back(HistoryPoint {
            at: now,
            millicores: u32::try_from(millicores).unwrap_or(u32::MAX),
            mebibytes: u32::try_from(used >> 20).unwrap_or(u32::MAX),
        });
    }

    /// A list of `[seconds ago, cores, bytes]`, oldest first.
    pub(super) fn json(&self, now: Instant) -> Vec<u8> {
        let point = |point: &HistoryPoint| {
            let HistoryPoint { at, millicores, mebibytes } = *point;
            let (ago, cores) = (now.saturating_duration_since(at).as_secs(), millicores / 1000);
            format!("[{ago},{cores}.{:03},{}]", millicores % 1000, u64::from(mebibytes) << 20)
        };
        format!("[{}]", self.points.iter().map(point).collect::<Vec<_>>().join(",")).into_bytes()
    }
}

/// Takes readings. Never returns.
pub(super) async fn record(history: Rc<RefCell<History>>) {
    let procfs = Procfs::host();
    loop {
        if let (Some(times), Some(memory)) = (procfs.cpu_times(), procfs.memory()) {
            history.borrow_mut().note(rt::now(), times, memory);
        }
        rt::sleep(HISTORY_PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_are_kept_in_constant_memory() {
        let begin = Instant::now();
        let mut history = History::default();
        let memory = MemInfo { anon: 30 << 20, file: 20 << 20, inactive_file: 10 << 20, ..MemInfo::default() };
        for round in 0..100u32 {
            // A quarter of a core.
            let times = CpuTimes { user: u64::from(round) * 15_000_000_000 / 4, system: 0 };
            history.note(begin + HISTORY_PERIOD * round, times, memory);
        }
        let text = String::from_utf8(history.json(begin + HISTORY_PERIOD * 99)).unwrap();
        let points: Vec<(u64, f64, u64)> = serde_json::from_str(&text).unwrap();
        assert_eq!(points.len(), MAX_HISTORY_POINTS);
        assert_eq!(points[0], (585, 0.25, 40 << 20));
        assert_eq!(points[39], (0, 0.25, 40 << 20));
        assert!(history.points.capacity() * size_of::<HistoryPoint>() <= 2048);
    }

    #[test]
    fn first_reading_alone_says_nothing() {
        let mut history = History::default();
        history.note(Instant::now(), CpuTimes::default(), MemInfo::default());
        assert_eq!(history.json(Instant::now()), b"[]");
    }
}
