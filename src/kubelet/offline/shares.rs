//! How much of the store each namespace uses, and may use. Pure.

use super::names;
use crate::types::sorted::SortedMap;

/// Bytes of the current records.
#[derive(Debug, Default)]
pub(super) struct Shares {
    total: u64,
    /// Those of pods that ran here.
    namespaces: SortedMap<String, u64>,
}

/// Limit of all current records, in bytes.
pub(super) const MAX_STORE_BYTES: u64 = 8 << 20;
/// Limit of a namespace's records, so that one tenant leaves room to the others.
const MAX_NAMESPACE_BYTES: u64 = MAX_STORE_BYTES / 2;

impl Shares {
    /// `records`: names and lengths.
    pub(super) fn of<'a>(records: impl Iterator<Item = (&'a str, u64)>) -> Self {
        let mut shares = Self::default();
        for (name, length) in records {
            shares.total += length;
            *shares.namespaces.entry(names::namespace(name).to_owned()).or_default() += length;
        }
        shares
    }

    /// Replaces a record. False, and nothing changes, if the new one is larger and does not fit.
    pub(super) fn replace(&mut self, name: &str, old: u64, new: u64) -> bool {
        let namespace = names::namespace(name);
        let used = self.namespaces.entry(namespace.to_owned()).or_default();
        let (new_total, new_of_namespace) = (self.total.saturating_sub(old) + new, used.saturating_sub(old) + new);
        let fits = new_total <= MAX_STORE_BYTES && (namespace.is_empty() || new_of_namespace <= MAX_NAMESPACE_BYTES);
        if new > old && !fits {
            return false;
        }
        self.total = new_total;
        *used = new_of_namespace;
        true
    }

    pub(super) fn all(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_namespace_leaves_half_of_the_store_to_the_others() {
        let mut shares = Shares::of([("secret/greedy/a", MAX_STORE_BYTES / 4)].into_iter());
        assert!(shares.replace("pod/greedy/b/uid", 0, MAX_STORE_BYTES / 4));
        assert!(!shares.replace("configmap/greedy/c", 0, 1));
        assert!(shares.replace("configmap/honest/c", 0, MAX_STORE_BYTES / 4));
        assert!(shares.replace("node", 0, MAX_STORE_BYTES / 4) && !shares.replace("cluster", 0, 1));
        assert_eq!(shares.all(), MAX_STORE_BYTES);
    }

    #[test]
    fn record_that_shrinks_always_fits() {
        let mut shares = Shares::of([("pod/ns/a/uid", MAX_STORE_BYTES)].into_iter());
        assert!(!shares.replace("pod/ns/a/uid", MAX_STORE_BYTES, MAX_STORE_BYTES + 1));
        assert!(shares.replace("pod/ns/a/uid", MAX_STORE_BYTES, MAX_STORE_BYTES - 1));
        assert!(shares.replace("pod/ns/a/uid", MAX_STORE_BYTES - 1, 0));
        assert_eq!(shares.all(), 0);
    }
}
