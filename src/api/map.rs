//! A small map from names to values, sorted by name: labels, annotations, resource lists. Pure.

use std::fmt;

/// A tenth of the memory of a tree for the handful of entries that it has; a large one still searches in log n.
#[derive(Clone, PartialEq, Eq)]
pub struct Map<V>(Vec<(Box<str>, V)>);

impl<V> Map<V> {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, key: &str) -> Option<&V> {
        self.0.get(self.position(key).ok()?).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        let position = self.position(key).ok()?;
        self.0.get_mut(position).map(|(_, value)| value)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_ok()
    }

    /// Sets `key` to `value`; the value it had before is given back.
    pub fn insert(&mut self, key: &str, value: V) -> Option<V> {
        match self.position(key) {
            Ok(position) => self.0.get_mut(position).map(|(_, old)| std::mem::replace(old, value)),
            Err(position) => {
                self.0.insert(position, (key.into(), value));
                None
            }
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<V> {
        let position = self.position(key).ok()?;
        Some(self.0.remove(position).1)
    }

    /// The entries in the order of their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &V)> + Clone {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    fn position(&self, key: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(key))
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
    /// Of two entries with the same key the later one stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(Box<str>, V)> = entries.into_iter().map(|(key, value)| (key.into(), value)).collect();
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        entries.shrink_to_fit();
        Self(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_the_order_of_their_keys_and_the_later_of_two_stays() {
        let map: Map<i32> = [("b", 1), ("a", 2), ("b", 3), ("b", 4)].into_iter().collect();
        assert_eq!(map.iter().collect::<Vec<_>>(), [("a", &2), ("b", &4)]);
    }

    #[test]
    fn what_is_inserted_is_found_until_it_is_removed() {
        let mut map = Map::new();
        assert_eq!(map.insert("x", 1), None);
        assert_eq!(map.insert("x", 2), Some(1));
        assert_eq!(map.insert("a", 0), None);
        assert_eq!((map.get("x"), map.get("a"), map.get("z"), map.len()), (Some(&2), Some(&0), None, 2));
        assert_eq!(map.remove("x"), Some(2));
        assert!(!map.contains_key("x"));
    }
}
