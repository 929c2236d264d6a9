//! The objects, their versions, and what has happened to them lately.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::resources::{Key, Target};

/// An object as it was at one version; nobody changes it.
pub(crate) type Object = Arc<Value>;

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub version: u64,
    pub key: Key,
    pub before: Option<Object>,
    /// `None` when it was deleted.
    pub after: Option<Object>,
}

/// What is stored, under one counter of versions for everything.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    objects: BTreeMap<Key, Object>,
    /// The version of the last write.
    version: u64,
    history: VecDeque<Change>,
    /// The oldest version that a watch can go on from.
    oldest: u64,
    /// How many changes are remembered.
    limit: usize,
}

/// What is asked about lies before the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compacted {
    pub oldest: u64,
}

impl Store {
    pub(crate) fn new(limit: usize) -> Self {
        // A server that has just begun is not at version 1 either.
        Self { objects: BTreeMap::new(), version: 200, history: VecDeque::new(), oldest: 200, limit }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Object> {
        self.objects.get(key)
    }

    /// What a path names, in the order of namespaces and names.
    pub(crate) fn list<'a>(&'a self, target: &Target) -> impl Iterator<Item = (&'a Key, &'a Object)> {
        self.objects.iter().filter(|(key, _)| target.covers(key))
    }

    /// The same as it was at a version.
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

    /// What has happened after `version`.
    pub(crate) fn since(&self, version: u64) -> Result<impl DoubleEndedIterator<Item = &Change>, Compacted> {
        if version < self.oldest {
            return Err(Compacted { oldest: self.oldest });
        }
        Ok(self.history.range(self.history.partition_point(|change| change.version <= version)..))
    }

    /// Stores an object, new or not.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Object {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        self.remember(Change { version: self.version, key, before, after: Some(Arc::clone(&object)) });
        object
    }

    /// The object as its deletion is told of, if there was one.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Object> {
        let before = self.objects.remove(key)?;
        self.version += 1;
        let mut last = Value::clone(&before);
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.remember(Change { version: self.version, key: key.clone(), before: Some(before), after: None });
        Some(Arc::new(last))
    }

    /// Versions pass with nothing that anybody sees, as when others write what is not served here.
    pub(crate) fn pass(&mut self, versions: u64) {
        self.version += versions;
    }

    /// Forgets what has happened: only what is to come can be watched.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.oldest = self.version;
    }

    /// The same objects in another history, as when a backup was restored: their versions begin after `version`.
    pub(crate) fn begin_anew(&mut self, version: u64) {
        self.version = version;
        for object in self.objects.values_mut() {
            self.version += 1;
            Arc::make_mut(object)["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
        self.compact();
    }

    /// As if this object had never been, and nobody is told.
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
