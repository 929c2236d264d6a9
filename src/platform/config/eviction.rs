//! Eviction thresholds and settings. Pure.

use std::time::Duration;

use serde_json::Value;

use super::check::{Problem, conflict};
use super::duration;
use super::fields::Fields;
use crate::types::api::{EPHEMERAL_STORAGE, Format, MEMORY, Quantity, ResourceList};
use crate::types::decimal::parse_decimal;

/// Eviction signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    MemoryAvailable,
    /// Of the limit of all pods together.
    AllocatableMemoryAvailable,
    NodeFsAvailable,
    NodeFsInodesFree,
    ImageFsAvailable,
    ImageFsInodesFree,
    ContainerFsAvailable,
    ContainerFsInodesFree,
    PidAvailable,
}

/// A threshold's value: absolute, or relative to the capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Amount {
    Quantity(Quantity),
    /// A fraction of the capacity from 0 to 1, with upstream's precision.
    Share(f32),
}

/// An eviction threshold: the node is under pressure below it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Threshold {
    pub(crate) signal: Signal,
    pub(crate) value: Amount,
    /// How long the signal must stay below it before pods are evicted; zero for a hard threshold.
    pub(crate) grace: Duration,
    /// The amount above the value at which the threshold is no longer met.
    pub(crate) min_reclaim: Option<Amount>,
}

/// The eviction settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Eviction {
    pub(crate) thresholds: Vec<Threshold>,
    /// Upper bound on the grace period of pods evicted for a soft threshold.
    pub(crate) max_pod_grace: Duration,
    /// How long a pressure condition lasts after its signal recovered.
    pub(crate) transition: Duration,
    /// Whether to enforce limits of local ephemeral storage.
    pub(crate) local_storage: bool,
    /// Whether static pods may be evicted and rejected as well.
    pub(crate) static_pods: bool,
}

impl Signal {
    pub(crate) const ALL: [Self; 9] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::ContainerFsAvailable,
        Self::ContainerFsInodesFree,
        Self::PidAvailable,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }
}

impl Amount {
    /// Parses `10%` or a quantity.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            // Upstream counts in f32.
            #[expect(clippy::cast_possible_truncation, reason = "f32 is exact enough for a share")]
            Some(percent) => parse_decimal(percent).map(|percent| Self::Share(percent as f32 / 100.0)),
            None => text.parse().ok().map(Self::Quantity),
        }
    }

    /// The amount for this capacity. A fraction is rounded and formatted as upstream does.
    pub(crate) fn of(self, capacity: u64) -> Quantity {
        match self {
            Self::Quantity(quantity) => quantity,
            Self::Share(share) => Quantity::new(part(capacity, share), Format::BinarySi),
        }
    }
}

/// Upstream computes with a 32-bit float, whose rounding is visible in its messages.
#[expect(clippy::cast_possible_truncation, reason = "a float that is too large becomes the largest integer")]
fn part(capacity: u64, share: f32) -> i64 {
    #[expect(clippy::cast_precision_loss, reason = "upstream rounds it as well")]
    let capacity = capacity as f64;
    (capacity * f64::from(share)) as i64
}

impl Threshold {
    pub(crate) fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }
}

/// The defaults on Linux. `imagefs` equals `nodefs` unless images have a file system of their own.
const HARD_DEFAULTS: &[(&str, &str)] = &[
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

/// Reads the settings; `enforced` states whether the pods' cgroup has a limit.
pub(super) fn read(fields: &Fields<'_>, enforced: bool, static_pods: bool) -> Result<Eviction, Problem> {
    let mut hard = amounts(fields, "evictionHard", SmallestAmount::AboveZero)?;
    // An empty map disables eviction.
    let is_given = fields.at("evictionHard").is_some_and(Value::is_object);
    if !is_given || fields.bool("mergeDefaultEvictionSettings") == Some(true) {
        let missing =
            hard_defaults().filter(|(signal, _)| hard.iter().all(|(configured_signal, _)| configured_signal != signal));
        hard.extend(missing.collect::<Vec<_>>());
    }
    let reclaims = amounts(fields, "evictionMinimumReclaim", SmallestAmount::Zero)?;
    let threshold = |signal: Signal, value, grace| {
        let reclaim = reclaims.iter().find(|(of, _)| *of == signal).map(|(_, amount)| *amount);
        Threshold { signal, value, grace, min_reclaim: reclaim }
    };
    let mut thresholds: Vec<_> =
        hard.into_iter().map(|(signal, value)| threshold(signal, value, Duration::ZERO)).collect();
    for (signal, value) in amounts(fields, "evictionSoft", SmallestAmount::AboveZero)? {
        let periods = fields.at("evictionSoftGracePeriod");
        let grace = periods.and_then(|periods| duration::parse(periods.get(signal.as_str())?.as_str()?));
        let Some(grace) = grace else {
            let fault = format!("required for the soft threshold of {}", signal.as_str());
            return Err(conflict("evictionSoftGracePeriod", fault));
        };
        thresholds.push(threshold(signal, value, grace.size));
    }
    // Upstream ignores thresholds of 0% and 100%.
    thresholds.retain(|threshold| !matches!(threshold.value, Amount::Share(share) if share <= 0.0 || share >= 1.0));
    let mut eviction = Eviction { thresholds, static_pods, ..Eviction::default() };
    if enforced {
        eviction.watch_allocatable();
    }
    let seconds = fields.int("evictionMaxPodGracePeriod").unwrap_or(0);
    eviction.max_pod_grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    fields.replace("evictionPressureTransitionPeriod", Fields::duration, &mut eviction.transition);
    fields.replace("localStorageCapacityIsolation", Fields::bool, &mut eviction.local_storage);
    Ok(eviction)
}

fn hard_defaults() -> impl Iterator<Item = (Signal, Amount)> {
    HARD_DEFAULTS.iter().filter_map(|(name, value)| Some((Signal::named(name)?, Amount::parse(value)?)))
}

/// The lower bound of an amount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SmallestAmount {
    Zero,
    AboveZero,
}

/// Quantities and percentages by signal.
fn amounts(fields: &Fields<'_>, path: &str, least: SmallestAmount) -> Result<Vec<(Signal, Amount)>, Problem> {
    let mut amounts = Vec::new();
    for (name, value) in fields.at(path).and_then(Value::as_object).into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let (Some(signal), Some(amount)) = (Signal::named(name), Amount::parse(&text)) else { continue };
        if least == SmallestAmount::AboveZero && amount == Amount::Quantity(Quantity::ZERO) {
            return Err(conflict(&format!("{path}[{name}]"), "expected more than 0, found 0".to_owned()));
        }
        amounts.push((signal, amount));
    }
    Ok(amounts)
}

impl Default for Eviction {
    fn default() -> Self {
        let hard = |(signal, value)| Threshold { signal, value, grace: Duration::ZERO, min_reclaim: None };
        let mut eviction = Self {
            thresholds: hard_defaults().map(hard).collect(),
            max_pod_grace: Duration::ZERO,
            transition: Duration::from_secs(5 * 60),
            local_storage: true,
            static_pods: false,
        };
        eviction.watch_allocatable();
        eviction
    }
}

impl Signal {
    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == name)
    }
}

impl Eviction {
    /// The memory and storage that hard thresholds reserve on a machine of this size.
    pub(crate) fn kept(&self, memory_bytes: u64, storage_bytes: u64) -> ResourceList {
        let hard = |signal| self.thresholds.iter().find(|t| t.signal == signal && t.is_hard());
        let kept = |(name, signal, capacity)| Some((name, hard(signal)?.value.of(capacity)));
        let memory = (MEMORY, Signal::MemoryAvailable, memory_bytes);
        let storage = (EPHEMERAL_STORAGE, Signal::NodeFsAvailable, storage_bytes);
        [memory, storage].into_iter().filter_map(kept).collect()
    }

    /// If the pods' cgroup has a limit, the hard memory threshold also applies below that limit.
    fn watch_allocatable(&mut self) {
        let memory = self.thresholds.iter().find(|t| t.signal == Signal::MemoryAvailable && t.is_hard());
        if let Some(memory) = memory.copied() {
            self.thresholds.push(Threshold { signal: Signal::AllocatableMemoryAvailable, ..memory });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_as_upstream() {
        let shown = |text: &str, capacity| Amount::parse(text).unwrap().of(capacity).to_string();
        assert_eq!(shown("100Mi", 1 << 30), "100Mi");
        assert_eq!(shown("50%", 1 << 30), "512Mi");
        // float64(float32(0.1)) * 1000000000
        assert_eq!(shown("10%", 1_000_000_000), "100000001");
        assert_eq!(shown("10%", 0), "0");
    }

    #[test]
    fn hard_thresholds_reduce_allocatable() {
        let kept = Eviction::default().kept(1 << 30, 1 << 30);
        let shown = [MEMORY, EPHEMERAL_STORAGE].map(|name| kept.get(name).unwrap().value());
        assert_eq!(shown, [100 << 20, 107_374_184]);
        let none = Eviction { thresholds: Vec::new(), ..Eviction::default() };
        assert!(none.kept(1 << 30, 1 << 30).iter().next().is_none());
    }

    #[test]
    fn signals_round_trip_by_name() {
        for signal in Signal::ALL {
            assert_eq!(Signal::named(signal.as_str()), Some(signal));
        }
        assert_eq!(Signal::named("memory.free"), None);
    }

    #[test]
    fn defaults_are_those_of_a_linux_node() {
        let names: Vec<&str> = Eviction::default().thresholds.iter().map(|t| t.signal.as_str()).collect();
        let expected = [
            "memory.available",
            "nodefs.available",
            "nodefs.inodesFree",
            "imagefs.available",
            "imagefs.inodesFree",
            "allocatableMemory.available",
        ];
        assert_eq!(names, expected);
    }
}
