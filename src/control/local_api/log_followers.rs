//! Log followers of running containers: notified when their container stops.

use std::cell::RefCell;
use std::rc::Rc;

use async_channel::{Receiver, Sender, bounded};

use crate::state::pods::ObservedPod;
use crate::types::api::PodUid;

/// One entry per follower, until the container stops or the follower disconnects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Followers(Rc<RefCell<Vec<Follower>>>);

#[derive(Debug)]
struct Follower {
    pod: PodUid,
    /// The container's id.
    container: String,
    /// Never sends. Dropping it tells the follower that the container has stopped.
    running: Sender<()>,
}

impl Followers {
    /// A channel that closes as soon as the container is no longer observed running.
    pub(super) fn add(&self, pod: &ObservedPod, container: &str) -> Receiver<()> {
        self.forget_gone();
        let (running, ended) = bounded(1);
        if runs(pod, container) {
            self.0.borrow_mut().push(Follower { pod: pod.uid.clone(), container: container.to_owned(), running });
        }
        ended
    }

    /// Drops the followers of stopped containers. `None`: the runtime no longer has the pod.
    pub(crate) fn on_observation(&self, uid: &PodUid, pod: Option<&ObservedPod>) {
        let goes_on = |container: &str| pod.is_some_and(|pod| runs(pod, container));
        self.0.borrow_mut().retain(|follower| follower.pod != *uid || goes_on(&follower.container));
        self.forget_gone();
    }

    /// Drops followers that have disconnected.
    fn forget_gone(&self) {
        self.0.borrow_mut().retain(|follower| !follower.running.is_closed());
    }
}

/// Whether this container instance can still write.
fn runs(pod: &ObservedPod, container: &str) -> bool {
    pod.containers.iter().any(|run| run.id == container && run.exit().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pods::{ContainerState, ObservedContainer};

    /// A pod with two containers, `a` and `b`, each running or exited.
    fn pod(name: &str, runs: [bool; 2]) -> ObservedPod {
        let mut pod = ObservedPod::new(PodUid::from(name), "default", name);
        let containers = ["a", "b"].into_iter().zip(runs).map(|(id, runs)| {
            let running = ContainerState::Running { started_at: 0 };
            let state = if runs { running } else { ContainerState::Exited(Box::default()) };
            ObservedContainer::seen(id, id, "s", state)
        });
        pod.containers = containers.collect();
        pod
    }

    #[test]
    fn follower_is_notified_only_when_its_own_container_stops() {
        let followers = Followers::default();
        let (one, other) = (pod("one", [true, true]), pod("other", [true, true]));
        let [a, b] = ["a", "b"].map(|id| followers.add(&one, id));
        followers.on_observation(&other.uid, None);
        followers.on_observation(&one.uid, Some(&one));
        assert!(!a.is_closed() && !b.is_closed());
        followers.on_observation(&one.uid, Some(&pod("one", [false, true])));
        assert!(a.is_closed() && !b.is_closed());
        followers.on_observation(&one.uid, None);
        assert!(b.is_closed());
    }

    #[test]
    fn follower_of_an_exited_container_is_notified_at_once() {
        let followers = Followers::default();
        let ended = pod("one", [false, false]);
        assert!(followers.add(&ended, "a").is_closed() && followers.add(&ended, "c").is_closed());
        assert!(followers.0.borrow().is_empty());
    }

    #[test]
    fn disconnected_follower_is_dropped() {
        let followers = Followers::default();
        let running = pod("one", [true, true]);
        drop(followers.add(&running, "a"));
        let b = followers.add(&running, "b");
        assert_eq!(followers.0.borrow().len(), 1);
        drop(b);
        followers.on_observation(&running.uid, Some(&running));
        assert!(followers.0.borrow().is_empty());
    }
}
