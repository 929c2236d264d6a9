//! The order in which a pod's containers are stopped: sidecars after the main containers, in reverse order of their
//! start (kubelet: `newTerminationOrdering`).

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use async_channel::{Receiver, Sender};

use crate::types::api::PodSpec;
use crate::types::sorted::SortedMap;

/// A container's turn in the order of termination. Dropping it after the container has stopped lets others stop.
#[derive(Debug, Default)]
pub(super) struct TerminationTurn {
    /// Closed when all containers before this one have stopped.
    before: Option<Receiver<Infallible>>,
    rank: Option<(Rc<RefCell<Ranks>>, usize)>,
}

/// Containers of one rank stop together, after all of lower ranks. A list of the containers before each one would take
/// memory with the square of their number.
#[derive(Debug, Default)]
struct Ranks {
    ranks: Vec<Rank>,
    /// The first rank with a container that has not stopped.
    first: usize,
}

#[derive(Debug, Default)]
struct Rank {
    /// Containers that have not stopped.
    running: usize,
    /// Dropped when it is this rank's turn.
    starts: Option<Sender<Infallible>>,
}

/// The turns of these running containers of the pod.
pub(super) fn stop_order(spec: Option<&PodSpec>, running: &[&str]) -> Vec<TerminationTurn> {
    let sidecars = spec.map(sidecar_ranks).unwrap_or_default();
    // Other containers stop at once.
    let ranks = running.iter().map(|name| sidecars.get(name).copied().unwrap_or(0));
    let ranks: Vec<usize> = ranks.collect();
    let mut order = Ranks::default();
    order.ranks.resize_with(ranks.iter().max().map_or(0, |last| last + 1), Rank::default);
    for rank in &ranks {
        if let Some(rank) = order.ranks.get_mut(*rank) {
            rank.running += 1;
        }
    }
    let before: Vec<Receiver<Infallible>> = order.ranks.iter_mut().map(Rank::wait).collect();
    order.advance();
    let order = Rc::new(RefCell::new(order));
    let turn = |rank: usize| TerminationTurn {
        before: before.get(rank).filter(|before| !before.is_closed()).cloned(),
        rank: Some((Rc::clone(&order), rank)),
    };
    ranks.into_iter().map(turn).collect()
}

impl TerminationTurn {
    /// Waits until all containers before this one have stopped.
    pub(super) async fn wait(&self) {
        let Some(before) = &self.before else { return };
        // Nothing is ever sent; the channel only closes.
        let _ = before.recv().await;
    }
}

impl Drop for TerminationTurn {
    fn drop(&mut self) {
        let Some((order, rank)) = self.rank.take() else { return };
        let mut order = order.borrow_mut();
        if let Some(rank) = order.ranks.get_mut(rank) {
            rank.running = rank.running.saturating_sub(1);
        }
        order.advance();
    }
}

impl Ranks {
    /// Goes on to the next rank with a container that has not stopped.
    fn advance(&mut self) {
        while let Some(rank) = self.ranks.get_mut(self.first) {
            rank.starts.take();
            if rank.running > 0 {
                return;
            }
            self.first += 1;
        }
    }
}

impl Rank {
    fn wait(&mut self) -> Receiver<Infallible> {
        let (starts, wait) = async_channel::bounded(1);
        self.starts = Some(starts);
        wait
    }
}

/// Higher for sidecars that were started earlier.
fn sidecar_ranks(spec: &PodSpec) -> SortedMap<&str, usize> {
    let init = spec.init_containers.iter().rev().filter(|container| container.is_sidecar());
    init.zip(1..).map(|(container, rank)| (container.name.as_str(), rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{Container, RestartPolicy};

    fn sidecars(names: &[&str]) -> PodSpec {
        let named = |name: &&str| Container {
            name: (*name).to_owned(),
            restart_policy: Some(RestartPolicy::Always),
            ..Container::default()
        };
        PodSpec { init_containers: names.iter().map(named).collect(), ..PodSpec::default() }
    }

    /// The containers that may stop now.
    fn may_stop(turns: &[Option<TerminationTurn>]) -> Vec<usize> {
        let may_stop = |turn: &TerminationTurn| turn.before.as_ref().is_none_or(Receiver::is_closed);
        let all = turns.iter().enumerate();
        all.filter(|(_, turn)| turn.as_ref().is_some_and(may_stop)).map(|(index, _)| index).collect()
    }

    #[test]
    fn sidecars_stop_after_main_containers_in_reverse_order() {
        let mut spec = sidecars(&["one", "init", "two"]);
        spec.init_containers[1].restart_policy = None;
        let running = ["main", "one", "two", "other", "stranger"];
        let mut turns: Vec<_> = stop_order(Some(&spec), &running).into_iter().map(Some).collect();
        for (stops, then) in [(3, vec![0, 4]), (0, vec![4]), (4, vec![2]), (2, vec![1]), (1, vec![])] {
            assert!(may_stop(&turns).contains(&stops), "{stops}");
            turns[stops] = None;
            assert_eq!(may_stop(&turns), then);
        }
    }

    #[test]
    fn sidecar_that_did_not_wait_releases_only_those_after_it() {
        let mut turns: Vec<_> =
            stop_order(Some(&sidecars(&["one", "two"])), &["one", "two", "main"]).into_iter().map(Some).collect();
        // Its grace period was over.
        turns[1] = None;
        assert_eq!(may_stop(&turns), [2]);
        turns[2] = None;
        assert_eq!(may_stop(&turns), [0]);
    }

    #[test]
    fn containers_without_others_stop_at_once() {
        let stop = |spec: Option<&PodSpec>, running: &[&str]| {
            may_stop(&stop_order(spec, running).into_iter().map(Some).collect::<Vec<_>>())
        };
        assert_eq!(stop(Some(&sidecars(&["one", "two"])), &["one"]), [0]);
        assert_eq!(stop(None, &["main", "one"]), [0, 1]);
        assert!(stop_order(None, &[]).is_empty());
    }
}
