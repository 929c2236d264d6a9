//! The book of the objects that pods refer to: ConfigMaps and Secrets, by namespace and name; services. Pure.
//!
//! Sources fill it; volumes and environments are made from it. What a pod has taken from an object it keeps, whatever
//! becomes of the object.

mod config_object;
mod references;
mod service;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::Time;

pub(crate) use config_object::{ConfigObject, ObjectKey, ObjectKind};
pub(crate) use references::{references, volumes_follow};
pub(crate) use service::Service;
#[cfg(test)]
pub(crate) use service::ServicePort;

/// An object, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct SourceObject {
    pub(crate) object: Arc<ConfigObject>,
    /// The manifest.
    pub(crate) origin: Arc<str>,
    /// When it was read first.
    pub(crate) since: Time,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    objects: BTreeMap<ObjectKey, SourceObject>,
    /// The services of a cluster; empty away from one.
    pub(crate) services: Vec<Service>,
}

/// What another set of objects has changed.
#[derive(Debug, Default)]
pub(crate) struct ObjectChanges {
    /// New, changed, gone.
    pub(crate) keys: BTreeSet<ObjectKey>,
    /// Objects that do not count, and why.
    pub(crate) refused: Vec<(SourceObject, String)>,
}

impl Objects {
    pub(crate) fn get(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<&ConfigObject> {
        let key = ObjectKey { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        self.objects.get(&key).map(|object| &*object.object)
    }

    /// Takes in everything that there is now. Of two objects with one name the one counts that counted before, else the
    /// first. One that is immutable stays as it is until it is gone.
    pub(crate) fn replace(&mut self, objects: &[SourceObject]) -> ObjectChanges {
        let mut changes = ObjectChanges::default();
        let mut next: BTreeMap<ObjectKey, SourceObject> = BTreeMap::new();
        let counted =
            |new: &&SourceObject| self.objects.get(&new.object.key).is_some_and(|old| old.origin == new.origin);
        let (old, new): (Vec<_>, Vec<_>) = objects.iter().partition(counted);
        for object in old.into_iter().chain(new) {
            match next.entry(object.object.key.clone()) {
                Entry::Vacant(place) => drop(place.insert(object.clone())),
                Entry::Occupied(other) => {
                    let why = format!("{} is ignored: {} has it already", object.object.key, other.get().origin);
                    changes.refused.push((object.clone(), why));
                }
            }
        }
        for (key, new) in &mut next {
            match self.objects.get(key) {
                Some(old) if *old.object == *new.object => new.object = Arc::clone(&old.object),
                Some(old) if old.object.immutable => {
                    changes.refused.push((new.clone(), format!("{key} is immutable: it stays as it was")));
                    *new = old.clone();
                }
                Some(_) | None => drop(changes.keys.insert(key.clone())),
            }
        }
        changes.keys.extend(self.objects.keys().filter(|key| !next.contains_key(key)).cloned());
        self.objects = next;
        changes
    }
}

#[cfg(test)]
mod tests;
