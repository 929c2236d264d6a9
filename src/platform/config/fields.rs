//! Access to a checked document by dotted paths. Pure.

use std::time::Duration;

use serde_json::{Map, Value};

use super::duration;
use crate::types::api::{CPU, EPHEMERAL_STORAGE, MEMORY, Quantity, ResourceList};

/// The least budget of a day.
pub(super) const MIN_DAY_BUDGET_BYTES: u64 = 64 << 10;

/// A checked document.
pub(super) struct Fields<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// The bytes of a quantity.
    pub(super) fn bytes(&self, path: &str) -> Option<u64> {
        let quantity: Quantity = match self.at(path)? {
            Value::String(text) => text.parse().ok()?,
            value => value.to_string().parse().ok()?,
        };
        Some(u64::try_from(quantity.value()).unwrap_or_default())
    }

    pub(super) fn at(&self, path: &str) -> Option<&'a Value> {
        let mut names = path.split('.');
        let first = self.0.get(names.next()?)?;
        names.try_fold(first, |value, name| value.get(name))
    }

    /// A string, unless it is empty.
    pub(super) fn text(&self, path: &str) -> Option<&'a str> {
        self.at(path)?.as_str().filter(|text| !text.is_empty())
    }

    pub(super) fn bool(&self, path: &str) -> Option<bool> {
        self.at(path)?.as_bool()
    }

    pub(super) fn int(&self, path: &str) -> Option<i64> {
        self.at(path)?.as_i64()
    }

    pub(super) fn count(&self, path: &str) -> Option<u32> {
        self.int(path).and_then(|count| u32::try_from(count).ok())
    }

    pub(super) fn positive(&self, path: &str) -> Option<u32> {
        self.count(path).filter(|count| *count > 0)
    }

    /// A duration, unless it is zero or negative.
    pub(super) fn duration(&self, path: &str) -> Option<Duration> {
        let duration = duration::parse(self.at(path)?.as_str()?)?;
        (!duration.negative && !duration.size.is_zero()).then_some(duration.size)
    }

    /// A period of at least a second.
    pub(super) fn period(&self, path: &str) -> Option<Duration> {
        self.duration(path).map(|period| period.max(MIN_CONFIGURED_PERIOD))
    }

    /// Quantities of reservable resources; numbers are read as their text.
    pub(super) fn reserved(&self, path: &str) -> ResourceList {
        let quantity = |name| {
            let value = self.at(path)?.get(name)?;
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((name, text.parse().ok()?))
        };
        [CPU, MEMORY, EPHEMERAL_STORAGE, "pid"].into_iter().filter_map(quantity).collect()
    }

    pub(super) fn replace<T>(&self, path: &str, read: impl Fn(&Self, &str) -> Option<T>, setting: &mut T) {
        if let Some(value) = read(self, path) {
            *setting = value;
        }
    }
}

/// A shorter period would keep the CPU busy.
const MIN_CONFIGURED_PERIOD: Duration = Duration::from_secs(1);
