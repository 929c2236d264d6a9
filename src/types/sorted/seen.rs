//! Finds what is repeated among many entries. Pure.

use crate::types::sorted::SortOnce as _;

/// The entries so far, in sorted runs that become shorter. Entries that come one by one in any order are merged into
/// longer runs, a few times each. A sorted vector would move all entries behind each new one; a B-tree has more code.
#[derive(Debug)]
pub(crate) struct Seen<T>(Vec<Vec<T>>);

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> Seen<T> {
    pub(crate) fn contains(&self, entry: &T) -> bool {
        self.0.iter().any(|run| run.binary_search(entry).is_ok())
    }

    /// Adds the entry. False if it was there before.
    pub(crate) fn insert(&mut self, entry: T) -> bool {
        if self.contains(&entry) {
            return false;
        }
        let mut run = vec![entry];
        let is_due = |runs: &[Vec<T>], length| runs.last().is_some_and(|last| last.len() <= length);
        while let Some(mut longer) = is_due(&self.0, run.len()).then(|| self.0.pop()).flatten() {
            longer.append(&mut run);
            longer.sort_once();
            run = longer;
        }
        self.0.push(run);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::types::sorted::steps;

    #[test]
    fn each_entry_is_new_once() {
        let (mut seen, mut tree) = (Seen::default(), BTreeSet::new());
        for entry in [5, 1, 9, 1, 7, 5, 3, 2, 8, 2, 9, 0, 5] {
            assert_eq!(seen.insert(entry), tree.insert(entry), "{entry}");
            assert!(seen.contains(&entry));
        }
        assert!(!seen.contains(&4));
    }

    #[test]
    fn work_grows_with_the_entries_in_any_order() {
        let orders: [fn(usize) -> usize; 3] =
            [|entry| entry, |entry| usize::MAX - entry, |entry| entry * 7919 % 65_536];
        for order in orders {
            let of = |count| {
                steps::of(|| {
                    drop((0..count).map(order).fold(Seen::default(), |mut seen, entry| {
                        assert!(seen.insert(entry));
                        seen
                    }))
                })
            };
            assert!(of(16_384) < 5 * of(4096), "{} and {}", of(4096), of(16_384));
        }
    }
}
