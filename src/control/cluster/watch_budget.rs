//! How many topics are watched, and those of which pods. Pure.

use crate::types::api::PodUid;
use crate::types::sorted::SortedMap;

/// Watches that may still begin.
#[derive(Debug)]
pub(super) struct WatchBudget {
    left_to_node: usize,
    left_to_pods: usize,
    of_pods: SortedMap<PodUid, usize>,
}

/// A watch costs a stream of a connection and some kilobytes. Objects beyond the limits are requested again from time
/// to time.
const MAX_WATCHES: usize = 1000;
const MAX_WATCHES_OF_POD: usize = 64;

impl WatchBudget {
    /// `max_streams`: how many watches the connections carry. `of_node`: how many of them the node needs for itself,
    /// before its pods.
    pub(super) fn new(max_streams: usize, of_node: usize) -> Self {
        let watches = MAX_WATCHES.min(max_streams);
        let left_to_node = of_node.min(watches);
        Self { left_to_node, left_to_pods: watches - left_to_node, of_pods: SortedMap::new() }
    }

    /// Takes a watch of the pod's share; the empty uid is the node's own. False if there is none.
    pub(super) fn take(&mut self, pod: &PodUid) -> bool {
        let (left, used) = match *pod == PodUid::default() {
            true => (&mut self.left_to_node, None),
            false => (&mut self.left_to_pods, Some(self.of_pods.entry(pod.clone()).or_default())),
        };
        if *left == 0 || used.as_ref().is_some_and(|used| **used >= MAX_WATCHES_OF_POD) {
            return false;
        }
        *left -= 1;
        if let Some(used) = used {
            *used += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pod_leaves_watches_to_the_others() {
        let mut budget = WatchBudget::new(5000, 100);
        assert_eq!((0..300).filter(|_| budget.take(&"greedy".into())).count(), MAX_WATCHES_OF_POD);
        assert!(budget.take(&"honest".into()));
        assert_eq!((0..300).filter(|_| budget.take(&PodUid::default())).count(), 100);
    }

    #[test]
    fn all_pods_together_use_no_more_than_the_connections_carry() {
        let mut budget = WatchBudget::new(80, 10);
        let taken = (0..100).filter(|number| budget.take(&format!("pod-{number}").as_str().into())).count();
        assert_eq!(taken, 70);
        assert_eq!((0..100).filter(|_| budget.take(&PodUid::default())).count(), 10);
    }
}
