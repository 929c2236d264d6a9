//! The objects, their versions and the watch history.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::resources::{Key, Target};

/// An immutable object at one version.
pub(crate) type Object = Arc<Value>;

#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub version: u64,
    pub key: Key,
    pub before: Option<Object>,
    /// `None` for a deletion.
    pub after: Option<Object>,
}

/// The stored objects, under one version counter.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    objects: BTreeMap<Key, Object>,
    /// The version of the last write.
    version: u64,
    history: VecDeque<Change>,
    /// The oldest version from which a watch can resume.
    oldest: u64,
    /// Number of changes to keep.
    limit: usize,
}

/// The requested version is older than the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub oldest: u64,
}

impl Store {
    pub(crate) fn new(limit: usize) -> Self {
        // A new server does not start at version 1 either.
        Self { objects: BTreeMap::new(), version: 200, history: VecDeque::new(), oldest: 200, limit }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    /// The objects of a target, sorted by namespace and name.
    pub(crate) fn list<'a>(&'a self, target: &Target) -> impl Iterator<Item = (&'a Key, &'a Object)> {
        self.objects.iter().filter(|(key, _)| target.covers(key))
    }

    /// The objects of a target at a version.
    pub(crate) fn list_at(&self, target: &Target, version: u64) -> Result<Vec<(Key, Object)>, Compacted> {
        let mut then: BTreeMap<Key, Object> =
            self.list(target).map(|(key, object)| (key.clone(), Arc::clone(object))).collect();
        for change in self.since(version)?.filter(|change| target.covers(&change.key)).rev() {
            match &change.before {
                Some(before) => then.insert(change.key.clone(), Arc::clone(before)),
                None => then.remove(&change.key),
            };
        }
        Ok(then.into_iter().collect())
    }

    /// The changes after `version`.
    pub(crate) fn since(&self, version: u64) -> Result<impl DoubleEndedIterator<Item = &Change>, Compacted> {
        if version < self.oldest {
            return Err(Compacted { oldest: self.oldest });
        }
        Ok(self.history.range(self.history.partition_point(|change| change.version <= version)..))
    }

    /// Creates or replaces an object.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Object {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        self.remember(Change { version: self.version, key, before, after: Some(Arc::clone(&object)) });
        object
    }

    /// Removes an object. Returns it with the version of its deletion.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Object> {
        let before = self.objects.remove(key)?;
        self.version += 1;
        let mut last = Value::clone(&before);
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.remember(Change { version: self.version, key: key.clone(), before: Some(before), after: None });
        Some(Arc::new(last))
    }

    /// Advances the version without a visible change.
    pub(crate) fn pass(&mut self, versions: u64) {
        self.version += versions;
    }

    /// Drops the history.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.oldest = self.version;
    }

    /// Restarts the versions after `version` with the same objects, like a restored backup.
    pub(crate) fn reset_versions(&mut self, version: u64) {
        self.version = version;
        for object in self.objects.values_mut() {
            self.version += 1;
            Arc::make_mut(object)["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
        self.compact();
    }

    /// Removes an object without any event.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.objects.remove(key);
    }

    fn remember(&mut self, change: Change) {
        self.history.push_back(change);
        while self.history.len() > self.limit {
            if let Some(forgotten) = self.history.pop_front() {
                self.oldest = forgotten.version;
            }
        }
    }
}
