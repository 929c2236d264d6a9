//! Who follows the log of a container that runs, and is told when it does not run any more.

use async_channel::{Receiver, Sender, bounded};

use crate::state::pods::ObservedPod;
use crate::types::api::PodUid;

/// One entry for each follower, for as long as the container runs and somebody reads.
#[derive(Debug, Default)]
pub(super) struct Followers(Vec<Follower>);

#[derive(Debug)]
struct Follower {
    pod: PodUid,
    /// The instance.
    container: String,
    /// Nothing is ever sent: it is dropped when the container has ended.
    running: Sender<()>,
}

impl Followers {
    /// A channel that is closed as soon as the container is not seen to run.
    pub(super) fn add(&mut self, pod: &ObservedPod, container: &str) -> Receiver<()> {
        self.forget_gone();
        let (running, ended) = bounded(1);
        if runs(pod, container) {
            self.0.push(Follower { pod: pod.uid.clone(), container: container.to_owned(), running });
        }
        ended
    }

    /// What is seen of the pod now; `None` if there is nothing of it any more.
    pub(super) fn see(&mut self, uid: &PodUid, pod: Option<&ObservedPod>) {
        let goes_on = |container: &str| pod.is_some_and(|pod| runs(pod, container));
        self.0.retain(|follower| follower.pod != *uid || goes_on(&follower.container));
        self.forget_gone();
    }

    /// Who reads no more has closed the channel from the other end.
    fn forget_gone(&mut self) {
        self.0.retain(|follower| !follower.running.is_closed());
    }
}

/// Whether more may be written by this instance.
fn runs(pod: &ObservedPod, container: &str) -> bool {
    pod.containers.iter().any(|run| run.id == container && run.exit().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pods::{ContainerState, ObservedContainer};

    /// A pod whose containers `a` and `b` run or have ended.
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
    fn a_follower_is_told_of_the_end_of_its_own_container_and_of_no_other() {
        let mut followers = Followers::default();
        let (one, other) = (pod("one", [true, true]), pod("other", [true, true]));
        let [a, b] = ["a", "b"].map(|id| followers.add(&one, id));
        followers.see(&other.uid, None);
        followers.see(&one.uid, Some(&one));
        assert!(!a.is_closed() && !b.is_closed());
        followers.see(&one.uid, Some(&pod("one", [false, true])));
        assert!(a.is_closed() && !b.is_closed());
        followers.see(&one.uid, None);
        assert!(b.is_closed());
    }

    #[test]
    fn what_does_not_run_has_ended_from_the_beginning() {
        let mut followers = Followers::default();
        let ended = pod("one", [false, false]);
        assert!(followers.add(&ended, "a").is_closed() && followers.add(&ended, "c").is_closed());
        assert!(followers.0.is_empty());
    }

    #[test]
    fn who_reads_no_more_is_forgotten() {
        let mut followers = Followers::default();
        let running = pod("one", [true, true]);
        drop(followers.add(&running, "a"));
        let b = followers.add(&running, "b");
        assert_eq!(followers.0.len(), 1);
        drop(b);
        followers.see(&running.uid, Some(&running));
        assert!(followers.0.is_empty());
    }
}
