//! A small map from names to values, sorted by name: labels, annotations, resource lists. Pure.

use std::fmt;

use crate::types::sorted::SortedMap;

#[derive(Clone, PartialEq, Eq)]
pub struct Map<V>(SortedMap<Box<str>, V>);

impl<V> Map<V> {
    pub const fn new() -> Self {
        Self(SortedMap::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, key: &str) -> Option<&V> {
        self.0.get(key)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Sets `key` to `value` and returns the previous value.
    pub fn insert(&mut self, key: &str, value: V) -> Option<V> {
        self.0.insert(key.into(), value)
    }

    pub fn remove(&mut self, key: &str) -> Option<V> {
        self.0.remove(key)
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &V)> + Clone {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&str, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&**key, value))
    }
}

impl<V> IntoIterator for Map<V> {
    type Item = (Box<str>, V);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<V> Default for Map<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: fmt::Debug> fmt::Debug for Map<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Into<Box<str>>, V> FromIterator<(K, V)> for Map<V> {
    /// If a key occurs twice, the later entry wins.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_and_later_duplicates_win() {
        let map: Map<i32> = [("b", 1), ("a", 2), ("b", 3), ("b", 4)].into_iter().collect();
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", &2), ("b", &4)]);
    }

    #[test]
    fn inserted_entry_stays_until_removed() {
        let mut map = Map::new();
        assert_eq!(map.insert("x", 1), None);
        assert_eq!(map.insert("x", 2), Some(1));
        assert_eq!(map.insert("a", 0), None);
        assert_eq!((map.get("x"), map.get("a"), map.get("z"), map.len()), (Some(&2), Some(&0), None, 2));
        assert_eq!(map.remove("x"), Some(2));
        assert!(!map.contains_key("x"));
    }
}
