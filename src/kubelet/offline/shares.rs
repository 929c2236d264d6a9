//! How much of the store each namespace uses, and may use. Pure.

use std::collections::BTreeMap;

use super::names;

/// Bytes of the current records.
#[derive(Debug, Default)]
pub(super) struct Shares {
    all: u64,
    namespaces: BTreeMap<String, u64>,
}

/// Limit of all current records, in bytes.
pub(super) const MOST: u64 = 8 << 20;
/// Limit of a namespace's records, so that one tenant leaves room to the others.
const MOST_OF_NAMESPACE: u64 = MOST / 2;

impl Shares {
    /// `records`: names and lengths.
    pub(super) fn of<'a>(records: impl Iterator<Item = (&'a str, u64)>) -> Self {
        let mut shares = Self::default();
        for (name, length) in records {
            shares.all += length;
            *shares.namespaces.entry(names::namespace(name).to_owned()).or_default() += length;
        }
        shares
    }

    /// Replaces a record. False, and nothing changes, if the new one is larger and does not fit.
    pub(super) fn replace(&mut self, name: &str, old: u64, new: u64) -> bool {
        let namespace = names::namespace(name);
        let used = self.namespaces.entry(namespace.to_owned()).or_default();
        let (all, of_namespace) = (self.all.saturating_sub(old) + new, used.saturating_sub(old) + new);
        let fits = all <= MOST && (namespace.is_empty() || of_namespace <= MOST_OF_NAMESPACE);
        if new > old && !fits {
            return false;
        }
        self.all = all;
        *used = of_namespace;
        true
    }

    pub(super) fn all(&self) -> u64 {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_namespace_leaves_half_of_the_store_to_the_others() {
        let mut shares = Shares::of([("secret/greedy/a", MOST / 4)].into_iter());
        assert!(shares.replace("pod/greedy/b/uid", 0, MOST / 4));
        assert!(!shares.replace("configmap/greedy/c", 0, 1));
        assert!(shares.replace("configmap/honest/c", 0, MOST / 4));
        assert!(shares.replace("node", 0, MOST / 4) && !shares.replace("cluster", 0, 1));
        assert_eq!(shares.all(), MOST);
    }

    #[test]
    fn record_that_shrinks_always_fits() {
        let mut shares = Shares::of([("pod/ns/a/uid", MOST)].into_iter());
        assert!(!shares.replace("pod/ns/a/uid", MOST, MOST + 1));
        assert!(shares.replace("pod/ns/a/uid", MOST, MOST - 1));
        assert!(shares.replace("pod/ns/a/uid", MOST - 1, 0));
        assert_eq!(shares.all(), 0);
    }
}
