//! Sets of CPUs or memory nodes in the kernel's list format: `0-3,8`. Pure.

use std::fmt::{self, Write as _};

use crate::types::sorted::SortOnce;

/// Sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuSet(Vec<u32>);

/// The kernel's `NR_CPUS` is at most 8192.
const MAX_CPU: u32 = 8191;

impl CpuSet {
    pub(crate) const EMPTY: Self = Self(Vec::new());

    /// `None` if the text is not a list. An empty text is an empty list.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::EMPTY);
        }
        let mut set = Self::EMPTY;
        for range in text.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last > MAX_CPU {
                return None;
            }
            set.0.extend(first..=last);
        }
        Some(set.sorted())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = u32> + Clone {
        self.0.iter().copied()
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.0.binary_search(&number).is_ok()
    }

    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.iter().all(|number| other.contains(number))
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.iter().any(|number| other.contains(number))
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
        *self = std::mem::take(self).sorted();
    }

    pub(crate) fn remove(&mut self, other: &Self) {
        self.0.retain(|number| !other.contains(*number));
    }

    pub(crate) fn with(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }

    pub(crate) fn without(mut self, other: &Self) -> Self {
        self.remove(other);
        self
    }

    /// The intersection.
    pub(crate) fn common(&self, other: &Self) -> Self {
        Self(self.iter().filter(|number| other.contains(*number)).collect())
    }

    fn sorted(mut self) -> Self {
        self.0.sort_once();
        self.0.dedup();
        self
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect()).sorted()
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().peekable();
        let mut is_first = true;
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|next| *next == last + 1) {
                last = next;
            }
            if !std::mem::take(&mut is_first) {
                f.write_char(',')?;
            }
            write!(f, "{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    #[test]
    fn lists_have_the_kernels_format() {
        for (given, written) in [("", ""), ("0", "0"), ("3,1,2,0", "0-3"), ("0-1,1-2,8", "0-2,8"), ("0,2,4", "0,2,4")] {
            assert_eq!(set(given).to_string(), written);
        }
    }

    #[test]
    fn invalid_lists_are_refused_without_allocating() {
        for text in ["a", "1-", "-1", "3-1", "1,,2", " 1", "1.3", "0-4294967295", "8192", ","] {
            assert_eq!(CpuSet::parse(text), None, "{text}");
        }
        assert_eq!(set("0-8191").len(), 8192);
    }

    #[test]
    fn union_difference_and_intersection() {
        let (one, other) = (set("0-3"), set("2-5"));
        assert_eq!(one.clone().with(&other), set("0-5"));
        assert_eq!(one.clone().without(&other), set("0-1"));
        assert_eq!(one.common(&other), set("2-3"));
        assert!(one.overlaps(&other) && !one.is_within(&other) && set("2").is_within(&one));
        assert!(CpuSet::EMPTY.is_within(&one) && !CpuSet::EMPTY.overlaps(&one));
    }
}
