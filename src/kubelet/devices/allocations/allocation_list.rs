//! The allocations of all containers, in the order in which they were made. Pure.

use std::collections::BTreeMap;
use std::ops::Deref;

use super::DeviceAllocation;
use crate::types::api::PodUid;

/// Finds an allocation by its pod, container and resource.
#[derive(Debug, Default)]
pub(in crate::kubelet::devices) struct AllocationList {
    allocations: Vec<DeviceAllocation>,
    indices: BTreeMap<(PodUid, String, String), usize>,
}

impl Deref for AllocationList {
    type Target = [DeviceAllocation];

    fn deref(&self) -> &[DeviceAllocation] {
        &self.allocations
    }
}

impl AllocationList {
    fn index(&self, pod: &PodUid, container: &str, resource: &str) -> Option<usize> {
        self.indices.get(&(pod.clone(), container.to_owned(), resource.to_owned())).copied()
    }

    pub(super) fn of(&self, pod: &PodUid, container: &str, resource: &str) -> Option<&DeviceAllocation> {
        self.allocations.get(self.index(pod, container, resource)?)
    }

    pub(super) fn of_mut(&mut self, pod: &PodUid, container: &str, resource: &str) -> Option<&mut DeviceAllocation> {
        let index = self.index(pod, container, resource)?;
        self.allocations.get_mut(index)
    }

    /// The allocations of a container.
    pub(super) fn of_container<'a>(
        &'a self,
        pod: &'a PodUid,
        container: &'a str,
    ) -> impl Iterator<Item = &'a DeviceAllocation> {
        let from = (pod.clone(), container.to_owned(), String::new());
        let places = self.indices.range(from..);
        let of_this_container = places.take_while(move |((other, name, _), _)| other == pod && name == container);
        of_this_container.filter_map(|(_, index)| self.allocations.get(*index))
    }

    /// Adds an allocation, in place of another one for the same container and resource.
    pub(in crate::kubelet::devices) fn push(&mut self, allocation: DeviceAllocation) {
        let key = (allocation.pod.clone(), allocation.container.clone(), allocation.resource.clone());
        match self.indices.get(&key).and_then(|index| self.allocations.get_mut(*index)) {
            Some(other) => *other = allocation,
            None => {
                self.indices.insert(key, self.allocations.len());
                self.allocations.push(allocation);
            }
        }
    }

    /// Returns whether any was removed.
    pub(super) fn retain(&mut self, stays: impl Fn(&DeviceAllocation) -> bool) -> bool {
        let before = self.allocations.len();
        self.allocations.retain(stays);
        let is_shorter = self.allocations.len() != before;
        if is_shorter {
            let all = std::mem::take(self).allocations;
            all.into_iter().for_each(|allocation| self.push(allocation));
        }
        is_shorter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(pod: &str, container: &str, resource: &str, id: &str) -> DeviceAllocation {
        DeviceAllocation {
            pod: pod.into(),
            container: container.to_owned(),
            resource: resource.to_owned(),
            ids: [(-1, vec![id.to_owned()])].into_iter().collect(),
            response: None,
            is_confirmed: true,
        }
    }

    fn ids<'a>(list: impl IntoIterator<Item = &'a DeviceAllocation>) -> Vec<&'a str> {
        list.into_iter().flat_map(DeviceAllocation::ids).map(String::as_str).collect()
    }

    #[test]
    fn allocations_are_found_after_others_are_replaced_and_removed() {
        let mut list = AllocationList::default();
        for (pod, container, resource, id) in [
            ("1", "b", "x", "0"),
            ("1", "a", "y", "1"),
            ("1", "a", "x", "2"),
            ("2", "a", "x", "3"),
            ("1", "a", "y", "4"),
        ] {
            list.push(allocation(pod, container, resource, id));
        }
        assert_eq!(ids(list.iter()), ["0", "4", "2", "3"], "the last one is in the place of the second");
        assert_eq!(ids(list.of_container(&"1".into(), "a")), ["2", "4"]);
        assert!(!list.retain(|_| true));
        assert!(list.retain(|one| one.container != "b"));
        assert_eq!(ids(list.of(&"1".into(), "a", "y")), ["4"]);
        assert_eq!(ids(list.of_mut(&"2".into(), "a", "x").map(|one| &*one)), ["3"]);
        assert_eq!(ids(list.of(&"1".into(), "b", "x")), [""; 0]);
        assert_eq!(ids(list.of_container(&"1".into(), "")), [""; 0]);
    }
}
