//! The thresholds that are met, their grace periods, and the node conditions. Pure: time is an argument.

use std::time::{Duration, Instant};

use super::signals::{Observation, Observations, Starved};
use crate::platform::config::Threshold;
use crate::state::pods::Pressure;
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

/// State from earlier checks.
#[derive(Debug, Default)]
pub(crate) struct ThresholdState {
    /// Thresholds met beyond their grace period; each stays met until its minimum reclaim is available.
    met: Vec<Threshold>,
    first_met: Vec<(Threshold, Instant)>,
    last_seen: SortedMap<Pressure, Instant>,
}

/// The result of a check.
#[derive(Debug, PartialEq)]
pub(crate) struct ThresholdCheck {
    /// The pressure conditions, including those seen within the transition period.
    pub(crate) pressures: SortedSet<Pressure>,
    /// Thresholds that require eviction now, most urgent first.
    pub(crate) starved: Vec<Threshold>,
}

impl ThresholdState {
    pub(crate) fn take(
        &mut self,
        thresholds: &[Threshold],
        observed: &Observations,
        transition: Duration,
        now: Instant,
    ) -> ThresholdCheck {
        let mut met: Vec<Threshold> = thresholds.iter().copied().filter(|t| is_met(t, observed, false)).collect();
        let unresolved = self.met.iter().copied().filter(|t| is_met(t, observed, true) && !met.contains(t));
        met.extend(unresolved.collect::<Vec<_>>());
        let first =
            |t: &Threshold| self.first_met.iter().find(|(threshold, _)| threshold == t).map_or(now, |(_, at)| *at);
        self.first_met = met.iter().map(|t| (*t, first(t))).collect();
        for threshold in &met {
            self.last_seen.insert(Starved::of(threshold.signal).pressure(), now);
        }
        // A condition seen now counts even with a transition period of zero.
        self.last_seen.retain(|_, at| *at == now || now.saturating_duration_since(*at) < transition);
        let over = self.first_met.iter().filter(|(t, at)| now.saturating_duration_since(*at) >= t.grace);
        let mut starved: Vec<Threshold> = over.map(|(t, _)| *t).collect();
        self.met.clone_from(&starved);
        // Memory first; the others keep the order of the configuration.
        starved.sort_once_by_key(|t| Starved::of(t.signal) != Starved::Memory);
        ThresholdCheck { pressures: self.last_seen.keys().copied().collect(), starved }
    }
}

/// Whether less is available than the threshold, or with `reclaim` than threshold plus minimum reclaim.
fn is_met(threshold: &Threshold, observed: &Observations, reclaim: bool) -> bool {
    let Some(Observation { available, capacity }) = observed.get(&threshold.signal) else { return false };
    let mut wanted = threshold.value.of(*capacity);
    if let Some(amount) = threshold.min_reclaim.filter(|_| reclaim) {
        wanted = wanted.plus(amount.of(*capacity));
    }
    // Some file systems have no fixed number of inodes.
    *capacity > 0 && wanted > Starved::of(threshold.signal).quantity(*available)
}

/// Whether every threshold is satisfied including its minimum reclaim.
pub(crate) fn is_resolved(thresholds: &[Threshold], observed: &Observations) -> bool {
    !thresholds.iter().any(|threshold| is_met(threshold, observed, true))
}

/// Bytes written between two relists at 64 MB/s.
const FAR_FROM_THRESHOLD_BYTES: u64 = 6 << 30;

/// Whether a signal is so close to its threshold that the next check must come soon. A quarter of the capacity is far
/// enough: small disks are slow, and a shortage of memory is noticed by other means.
pub(crate) fn is_close(thresholds: &[Threshold], observed: &Observations) -> bool {
    thresholds.iter().any(|threshold| {
        let Some(Observation { available, capacity }) = observed.get(&threshold.signal) else { return false };
        let near = threshold
            .value
            .of(*capacity)
            .plus(Starved::of(threshold.signal).quantity(FAR_FROM_THRESHOLD_BYTES.min(capacity / 4)));
        *capacity > 0 && near > Starved::of(threshold.signal).quantity(*available)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::config::{Amount, Signal};

    const MINUTE: Duration = Duration::from_secs(60);

    fn quantity(text: &str) -> Amount {
        Amount::Quantity(text.parse().unwrap())
    }

    fn hard(signal: Signal, text: &str) -> Threshold {
        Threshold { signal, value: quantity(text), grace: Duration::ZERO, min_reclaim: None }
    }

    fn observed(all: &[(Signal, u64)]) -> Observations {
        let entry =
            |(signal, available): &(Signal, u64)| (*signal, Observation { available: *available, capacity: 1000 });
        all.iter().map(entry).collect()
    }

    struct Run {
        state: ThresholdState,
        thresholds: Vec<Threshold>,
        start: Instant,
    }

    impl Run {
        fn new(thresholds: &[Threshold]) -> Self {
            Self { state: ThresholdState::default(), thresholds: thresholds.to_vec(), start: Instant::now() }
        }

        fn at(&mut self, seconds: u64, all: &[(Signal, u64)]) -> (Vec<Pressure>, Vec<Signal>) {
            let now = self.start + Duration::from_secs(seconds);
            let verdict = self.state.take(&self.thresholds, &observed(all), MINUTE, now);
            let starved = verdict.starved.iter().map(|t| t.signal).collect();
            (verdict.pressures.into_iter().collect(), starved)
        }
    }

    #[test]
    fn hard_threshold_acts_at_once_and_its_condition_outlasts_it() {
        let memory = Signal::MemoryAvailable;
        let mut run = Run::new(&[hard(memory, "100")]);
        assert_eq!(run.at(0, &[(memory, 100)]), (vec![], vec![]), "equal to the threshold");
        assert_eq!(run.at(1, &[(memory, 99)]), (vec![Pressure::Memory], vec![memory]));
        assert_eq!(run.at(2, &[(memory, 500)]), (vec![Pressure::Memory], vec![]));
        assert_eq!(run.at(60, &[(memory, 500)]), (vec![Pressure::Memory], vec![]));
        assert_eq!(run.at(61, &[(memory, 500)]), (vec![], vec![]));
    }

    #[test]
    fn soft_threshold_acts_after_its_grace_period() {
        let disk = Signal::NodeFsAvailable;
        let mut run = Run::new(&[Threshold { grace: Duration::from_secs(10), ..hard(disk, "100") }]);
        let short = |run: &mut Run, at| run.at(at, &[(disk, 50)]);
        assert_eq!(short(&mut run, 0), (vec![Pressure::Disk], vec![]));
        assert_eq!(short(&mut run, 9), (vec![Pressure::Disk], vec![]));
        assert_eq!(run.at(10, &[(disk, 100)]), (vec![Pressure::Disk], vec![]));
        assert_eq!(short(&mut run, 11), (vec![Pressure::Disk], vec![]), "the grace period restarts");
        assert_eq!(short(&mut run, 21), (vec![Pressure::Disk], vec![disk]));
    }

    #[test]
    fn minimum_reclaim_counts_once_the_threshold_was_met() {
        let memory = Signal::MemoryAvailable;
        let mut run = Run::new(&[Threshold { min_reclaim: Some(quantity("50")), ..hard(memory, "100") }]);
        assert_eq!(run.at(0, &[(memory, 120)]).1, []);
        assert_eq!(run.at(1, &[(memory, 90)]).1, [memory]);
        assert_eq!(run.at(2, &[(memory, 149)]).1, [memory]);
        assert_eq!(run.at(3, &[(memory, 150)]).1, []);
        assert_eq!(run.at(4, &[(memory, 120)]).1, []);
    }

    #[test]
    fn memory_is_reclaimed_first() {
        let (disk, memory, pids) = (Signal::NodeFsAvailable, Signal::AllocatableMemoryAvailable, Signal::PidAvailable);
        let mut run = Run::new(&[hard(disk, "100"), hard(pids, "100"), hard(memory, "100")]);
        let (pressures, starved) = run.at(0, &[(disk, 1), (pids, 1), (memory, 1)]);
        assert_eq!(starved, [memory, disk, pids]);
        assert_eq!(pressures, [Pressure::Disk, Pressure::Memory, Pressure::Pid]);
    }

    #[test]
    fn unknown_signal_meets_no_threshold() {
        let inodes = Signal::NodeFsInodesFree;
        let mut run = Run::new(&[hard(inodes, "100"), hard(Signal::PidAvailable, "100")]);
        assert_eq!(run.at(0, &[]), (vec![], vec![]));
        let none = Observations::from([(inodes, Observation { available: 0, capacity: 0 })]);
        assert!(!is_met(&hard(inodes, "100"), &none, false));
    }

    #[test]
    fn quarter_of_the_capacity_above_the_threshold_is_not_close() {
        let (memory, disk) = (Signal::MemoryAvailable, Signal::NodeFsAvailable);
        let thresholds = [hard(memory, "100"), hard(disk, "100")];
        assert!(!is_close(&thresholds, &observed(&[(memory, 350), (disk, 350)])));
        assert!(is_close(&thresholds, &observed(&[(memory, 350), (disk, 349)])));
        assert!(!is_close(&thresholds, &Observations::new()));
        assert!(is_resolved(&thresholds, &observed(&[(memory, 100)])));
        assert!(!is_resolved(&thresholds, &observed(&[(memory, 99)])));
    }
}
