//! Small maps and sets as sorted vectors. Pure.
//!
//! A node has tens of entries: a B-tree would allocate room for eleven entries per node and add a few kilobytes of code
//! per entry type. Lookup is a binary search; insertion moves the entries behind. What a pod's author may make tens of
//! thousands of is collected at once (`collect`, `extend`), or is a `BTreeMap`; [`Seen`] finds repeated entries among them.

mod seen;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::{fmt, mem, slice, vec};

pub(crate) use seen::Seen;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> SortedMap<K, V> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Iterates in key order, like all iterators here.
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator + Clone {
        self.0.iter().map(|(key, _)| key)
    }

    pub fn into_keys(self) -> impl DoubleEndedIterator<Item = K> + ExactSizeIterator {
        self.0.into_iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator + Clone {
        self.0.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> + ExactSizeIterator {
        self.0.iter_mut().map(|(_, value)| value)
    }

    pub fn into_values(self) -> impl DoubleEndedIterator<Item = V> + ExactSizeIterator {
        self.0.into_iter().map(|(_, value)| value)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(self.position(key).ok()?).map(|(_, value)| value)
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let position = self.position(key).ok()?;
        self.0.get_mut(position).map(|(_, value)| value)
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.position(key).is_ok()
    }

    /// Sets `key` to `value` and returns the previous value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.position(&key) {
            Ok(position) => self.0.get_mut(position).map(|(_, old)| mem::replace(old, value)),
            Err(position) => {
                #[cfg(test)]
                steps::add(self.0.len() - position);
                self.0.insert(position, (key, value));
                None
            }
        }
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let position = self.position(key).ok()?;
        #[cfg(test)]
        steps::add(self.0.len() - position);
        Some(self.0.remove(position).1)
    }

    pub fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        match self.position(&key) {
            Ok(position) => Entry { entries: &mut self.0, position, key: None },
            Err(position) => Entry { entries: &mut self.0, position, key: Some(key) },
        }
    }

    fn position<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(other, _)| other.borrow().cmp(key))
    }
}

/// The entry of a key, occupied or vacant.
#[derive(Debug)]
pub struct Entry<'a, K, V> {
    entries: &'a mut Vec<(K, V)>,
    position: usize,
    /// The key of a vacant entry.
    key: Option<K>,
}

impl<'a, K, V> Entry<'a, K, V> {
    pub fn and_modify(self, change: impl FnOnce(&mut V)) -> Self {
        if let (None, Some((_, value))) = (&self.key, self.entries.get_mut(self.position)) {
            change(value);
        }
        self
    }

    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    #[expect(clippy::indexing_slicing, reason = "the position was found in these entries, or has just been filled")]
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> &'a mut V {
        if let Some(key) = self.key {
            #[cfg(test)]
            steps::add(self.entries.len() - self.position);
            self.entries.insert(self.position, (key, value()));
        }
        &mut self.entries[self.position].1
    }

    pub fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

pub(crate) type Iter<'a, K, V> = std::iter::Map<slice::Iter<'a, (K, V)>, fn(&'a (K, V)) -> (&'a K, &'a V)>;
pub(crate) type IterMut<'a, K, V> =
    std::iter::Map<slice::IterMut<'a, (K, V)>, fn(&'a mut (K, V)) -> (&'a K, &'a mut V)>;

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

/// If a key occurs twice, the later entry wins.
impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        sort_and_deduplicate(&mut entries);
        entries.shrink_to_fit();
        Self(entries)
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for SortedMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

/// Moves the entries behind once, not once for each of many new ones.
impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        let mut entries = entries.into_iter();
        for (key, value) in entries.by_ref().take(MAX_SINGLE_INSERTS) {
            self.insert(key, value);
        }
        let former_length = self.0.len();
        self.0.extend(entries);
        if self.0.len() > former_length {
            sort_and_deduplicate(&mut self.0);
        }
    }
}

/// So many entries are inserted one by one.
const MAX_SINGLE_INSERTS: usize = 8;

/// Of equal keys the last one stays.
fn sort_and_deduplicate<K: Ord, V>(entries: &mut Vec<(K, V)>) {
    let mut by_key =
        Compared { entries: entries.as_mut_slice(), compare: |one: &(K, V), other: &(K, V)| one.0.cmp(&other.0) };
    sort(&mut by_key);
    let kept = put_last_of_equals_first(&mut by_key);
    entries.truncate(kept);
}

/// Stable sorts, of which only the comparison and the exchange are compiled for each type: a third of what those of slices
/// take. They take sorted runs as they are.
pub(crate) trait SortOnce<T> {
    fn sort_once_by(&mut self, compare: impl Fn(&T, &T) -> Ordering);

    /// Computes each key once.
    fn sort_once_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);

    fn sort_once_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        self.sort_once_by(|one, other| key(one).cmp(&key(other)));
    }

    fn sort_once(&mut self)
    where
        T: Ord,
    {
        self.sort_once_by(T::cmp);
    }
}

impl<T> SortOnce<T> for [T] {
    fn sort_once_by(&mut self, compare: impl Fn(&T, &T) -> Ordering) {
        sort(&mut Compared { entries: self, compare });
    }

    fn sort_once_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K) {
        let keys = self.iter().map(key).collect();
        sort(&mut Keyed { entries: self, keys });
    }
}

/// What an algorithm needs of its entries, so that it is compiled once for all types.
trait Entries {
    fn len(&self) -> usize;
    fn compare(&self, one: usize, other: usize) -> Ordering;
    fn swap(&mut self, one: usize, other: usize);
}

struct Compared<'a, T, C> {
    entries: &'a mut [T],
    compare: C,
}

#[expect(clippy::indexing_slicing, reason = "the algorithms stay below the length")]
impl<T, C: Fn(&T, &T) -> Ordering> Entries for Compared<'_, T, C> {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn compare(&self, one: usize, other: usize) -> Ordering {
        #[cfg(test)]
        steps::add(1);
        (self.compare)(&self.entries[one], &self.entries[other])
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.entries.swap(one, other);
    }
}

struct Keyed<'a, T, K> {
    entries: &'a mut [T],
    keys: Vec<K>,
}

#[expect(clippy::indexing_slicing, reason = "the algorithms stay below the length")]
impl<T, K: Ord> Entries for Keyed<'_, T, K> {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn compare(&self, one: usize, other: usize) -> Ordering {
        self.keys[one].cmp(&self.keys[other])
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.entries.swap(one, other);
        self.keys.swap(one, other);
    }
}

/// Equal entries keep their order.
#[expect(clippy::indexing_slicing, reason = "the order has its own indices")]
fn sort(entries: &mut dyn Entries) {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    // Takes sorted runs as they are.
    order.sort_by(|one, other| entries.compare(*one, *other));
    // Follows each cycle of the permutation: an index that has its entry points at itself.
    for start in 0..order.len() {
        let mut at = start;
        while order[at] != start {
            let next = mem::replace(&mut order[at], at);
            entries.swap(at, next);
            at = next;
        }
        order[at] = at;
    }
}

/// Moves the last of each row of equal entries to the front, in order, and returns how many these are.
fn put_last_of_equals_first(entries: &mut dyn Entries) -> usize {
    let mut kept = 0_usize;
    for next in 1..entries.len() {
        if entries.compare(kept, next) != Ordering::Equal {
            kept = kept.saturating_add(1);
        }
        if kept != next {
            entries.swap(kept, next);
        }
    }
    kept.saturating_add(1).min(entries.len())
}

/// In tests only: how many entries maps of this thread compare when they sort, and move when they insert and remove.
#[cfg(test)]
pub(crate) mod steps {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn add(steps: usize) {
        STEPS.set(STEPS.get() + steps);
    }

    /// The steps of this thread so far.
    pub(crate) fn all() -> usize {
        STEPS.get()
    }

    /// The steps of this work.
    pub(crate) fn of(work: impl FnOnce()) -> usize {
        let before = all();
        work();
        all() - before
    }
}

/// In tests only: shipped code must handle a missing key.
#[cfg(test)]
impl<K: Borrow<Q> + Ord, V, Q: Ord + ?Sized> std::ops::Index<&Q> for SortedMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).unwrap()
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a SortedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut SortedMap<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SortedSet<T>(SortedMap<T, ()>);

impl<T> SortedSet<T> {
    pub const fn new() -> Self {
        Self(SortedMap::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn iter(&self) -> SetIter<'_, T> {
        self.into_iter()
    }

    pub fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    pub fn pop_first(&mut self) -> Option<T> {
        (!self.is_empty()).then(|| self.0.0.remove(0).0)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.0.retain(|value, ()| keep(value));
    }
}

impl<T: Ord> SortedSet<T> {
    pub fn contains<Q: Ord + ?Sized>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.contains_key(value)
    }

    /// Whether the value was new.
    pub fn insert(&mut self, value: T) -> bool {
        self.0.insert(value, ()).is_none()
    }

    /// Whether the value was present.
    pub fn remove<Q: Ord + ?Sized>(&mut self, value: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.remove(value).is_some()
    }

    /// The values of `self` that `other` does not have.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> {
        self.iter().filter(|value| !other.contains(*value))
    }
}

pub(crate) type SetIter<'a, T> = std::iter::Map<slice::Iter<'a, (T, ())>, fn(&'a (T, ())) -> &'a T>;

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for SortedSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}

impl<T: Ord> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().map(|value| (value, ())).collect())
    }
}

impl<T: Ord, const N: usize> From<[T; N]> for SortedSet<T> {
    fn from(values: [T; N]) -> Self {
        values.into_iter().collect()
    }
}

impl<T: Ord> Extend<T> for SortedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        self.0.extend(values.into_iter().map(|value| (value, ())));
    }
}

impl<T> IntoIterator for SortedSet<T> {
    type Item = T;
    type IntoIter = std::iter::Map<vec::IntoIter<(T, ())>, fn((T, ())) -> T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(|(value, ())| value)
    }
}

impl<'a, T> IntoIterator for &'a SortedSet<T> {
    type Item = &'a T;
    type IntoIter = SetIter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.0.iter().map(|(value, ())| value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn cached_keys_sort_stably_and_are_computed_once() {
        let mut words = ["pear", "fig", "apple", "date", "kiwi"];
        let mut computed = 0;
        words.sort_once_by_cached_key(|word| {
            computed += 1;
            word.len()
        });
        assert_eq!((words, computed), (["fig", "pear", "date", "kiwi", "apple"], 5));
    }

    #[test]
    fn map_behaves_like_btreemap() {
        let mut ours = SortedMap::new();
        let mut tree = BTreeMap::new();
        let mut state = 1_u32;
        for round in 0..5000_u32 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (state >> 16) % 40;
            match (state >> 8) % 6 {
                0 | 1 => assert_eq!(ours.insert(key, round), tree.insert(key, round)),
                2 => assert_eq!(ours.remove(&key), tree.remove(&key)),
                3 => assert_eq!(ours.entry(key).or_insert(round), tree.entry(key).or_insert(round)),
                4 => {
                    *ours.entry(key).and_modify(|value| *value /= 2).or_default() += 1;
                    *tree.entry(key).and_modify(|value| *value /= 2).or_default() += 1;
                }
                _ if round % 50 == 0 => {
                    ours.retain(|key, value| (*key ^ *value) % 3 != 0);
                    tree.retain(|key, value| (*key ^ *value) % 3 != 0);
                }
                _ => assert_eq!(ours.get_mut(&key), tree.get_mut(&key)),
            }
            assert!(ours.iter().eq(&tree));
            assert_eq!((ours.len(), ours.contains_key(&key)), (tree.len(), tree.contains_key(&key)));
        }
    }

    #[test]
    fn collected_map_behaves_like_btreemap() {
        let mut state = 1_u32;
        for length in 0..200 {
            let entries: Vec<(u32, String)> = (0..length)
                .map(|number: u32| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    ((state >> 16) % (length / 2 + 1), number.to_string())
                })
                .collect();
            let (ours, tree): (SortedMap<_, _>, BTreeMap<_, _>) =
                (entries.iter().cloned().collect(), entries.into_iter().collect());
            assert!(ours.iter().eq(&tree), "{ours:?}");
        }
    }

    #[test]
    fn last_of_duplicate_keys_wins() {
        let entries = [(2, "b"), (1, "a"), (2, "c"), (1, "d"), (2, "e")];
        assert!(SortedMap::from(entries).into_iter().eq(BTreeMap::from(entries)));
    }

    #[test]
    fn entries_that_are_added_together_replace_earlier_ones() {
        let mut ours = SortedMap::from([(5, "old"), (1, "old")]);
        ours.extend([(9, "a"), (5, "b"), (0, "c"), (9, "d")]);
        assert!(ours.iter().eq([(&0, &"c"), (&1, &"old"), (&5, &"b"), (&9, &"d")]));
        ours.extend((0..20).rev().map(|key| (key, "new")).chain([(7, "last")]));
        assert!(ours.keys().eq(&(0..20).collect::<Vec<_>>()));
        assert_eq!((ours[&5], ours[&7]), ("new", "last"));
    }

    #[test]
    fn set_behaves_like_btreeset() {
        let (mut ours, mut tree) = (SortedSet::from([3, 1, 3]), BTreeSet::from([3, 1, 3]));
        for value in [2, 3, 0, 9, 2] {
            assert_eq!(ours.insert(value), tree.insert(value));
        }
        for value in [3, 4] {
            assert_eq!(ours.remove(&value), tree.remove(&value));
        }
        assert!(ours.iter().eq(&tree));
        assert!(ours.difference(&SortedSet::from([1, 9])).eq(&[0, 2]));
        assert_eq!((ours.pop_first(), ours.first(), ours.contains(&9)), (Some(0), Some(&1), true));
    }
}
