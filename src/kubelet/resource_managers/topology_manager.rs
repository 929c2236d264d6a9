//! From which NUMA nodes the resources of a container, or of a pod, are to come. Pure.
//!
//! pkg/kubelet/cm/topologymanager. Who has resources to give tells, for each of them, from which sets of nodes it could; of
//! all combinations the one counts whose sets have the most in common.

use crate::platform::config::TopologyPolicy;
use crate::types::cpu_set::CpuSet;

/// One set of nodes that a resource could come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    /// `None`: it does not matter.
    pub(crate) nodes: Option<Nodes>,
    /// There is no smaller set on this machine that would do.
    pub(crate) preferred: bool,
}

/// The hints for one resource. None at all: it cannot be given from anywhere.
pub(crate) type Hints = Vec<Hint>;

/// A bit for each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes(u64);

impl FromIterator<u32> for Nodes {
    /// More nodes than it has bits for there are nowhere.
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> Self {
        Self(numbers.into_iter().filter_map(|number| 1u64.checked_shl(number)).fold(0, |mask, bit| mask | bit))
    }
}

impl Nodes {
    pub(crate) fn of(numbers: &CpuSet) -> Self {
        numbers.iter().collect()
    }

    pub(crate) fn numbers(self) -> CpuSet {
        (0..u64::BITS).filter(|number| self.0 >> number & 1 == 1).collect()
    }

    pub(crate) fn count(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn has_all(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// All sets of some of these nodes, the smaller ones first, and of one size those with the lower numbers.
    pub(super) fn subsets(self) -> Vec<Self> {
        let mut subsets = Vec::new();
        // The next lower number with bits of these alone.
        let mut subset = self.0;
        while subset != 0 {
            subsets.push(Self(subset));
            subset = (subset - 1) & self.0;
        }
        subsets.sort_by_key(|nodes| nodes.rank());
        subsets
    }

    /// The narrower set is less.
    fn rank(self) -> (u32, u64) {
        (self.count(), self.0)
    }
}

/// All sets of these nodes that something can come from. Preferred are the narrowest: as wide as those that it could come
/// from if nobody had any of it.
pub(crate) fn hints(all: Nodes, could: &dyn Fn(Nodes) -> bool, can: &dyn Fn(Nodes) -> bool) -> Hints {
    let mut least = all.count();
    let mut hints = Hints::new();
    for nodes in all.subsets() {
        if could(nodes) {
            least = least.min(nodes.count());
        }
        if can(nodes) {
            hints.push(Hint { nodes: Some(nodes), preferred: false });
        }
    }
    for hint in &mut hints {
        hint.preferred = hint.nodes.is_some_and(|nodes| nodes.count() == least);
    }
    hints
}

/// The nodes that all can come from; `None` if the policy does not take that. `all` are the nodes of the machine.
pub(crate) fn merge(policy: TopologyPolicy, all: Nodes, resources: &[Hints]) -> Option<Option<Nodes>> {
    let impossible = Hint { nodes: None, preferred: false };
    let given = |hints: &Hints| if hints.is_empty() { vec![impossible] } else { hints.clone() };
    let mut resources: Vec<Hints> = resources.iter().map(given).collect();
    if policy == TopologyPolicy::SingleNumaNode {
        for hints in &mut resources {
            hints.retain(|hint| hint.preferred && hint.nodes.is_none_or(|nodes| nodes.count() == 1));
        }
    }
    let least = |hints: &Hints| hints.iter().filter_map(|hint| hint.nodes).map(Nodes::count).min();
    let merging = Merging { all, enough: resources.iter().filter_map(least).max().unwrap_or(0) };
    let mut best = None;
    merging.combine(&resources, Hint { nodes: None, preferred: true }, None, &mut best);
    let best = best.unwrap_or(Hint { nodes: Some(all), preferred: false });
    if policy != TopologyPolicy::BestEffort && !best.preferred {
        return None;
    }
    Some(best.nodes.filter(|nodes| policy != TopologyPolicy::SingleNumaNode || *nodes != all))
}

struct Merging {
    all: Nodes,
    /// So many nodes the resource takes that takes the most.
    enough: u32,
}

impl Merging {
    /// Goes through all ways to take one hint of each resource. `merged` is what those so far have in common, and
    /// `first` the nodes of the first of them that names any.
    fn combine(&self, resources: &[Hints], merged: Hint, first: Option<Nodes>, best: &mut Option<Hint>) {
        let Some((hints, rest)) = resources.split_first() else {
            let merged = Hint { nodes: Some(merged.nodes.unwrap_or(self.all)), ..merged };
            if merged.nodes.is_some_and(|nodes| nodes.count() > 0) {
                *best = Some(best.map_or(merged, |best| self.better(best, merged)));
            }
            return;
        };
        for hint in hints {
            let Some(nodes) = hint.nodes else {
                self.combine(rest, Hint { preferred: merged.preferred && hint.preferred, ..merged }, first, best);
                continue;
            };
            let is_same = first.is_none_or(|first| first == nodes);
            let common = Nodes(merged.nodes.unwrap_or(self.all).0 & nodes.0);
            let merged = Hint { nodes: Some(common), preferred: merged.preferred && hint.preferred && is_same };
            self.combine(rest, merged, first.or(Some(nodes)), best);
        }
    }

    /// Preferred ones are better; of those the narrower. Of the others that which comes nearest to what is enough.
    fn better(&self, best: Hint, other: Hint) -> Hint {
        let (Some(has), Some(offers)) = (best.nodes, other.nodes) else { return best };
        let narrower = if offers.rank() < has.rank() { other } else { best };
        match (best.preferred, other.preferred) {
            (false, true) => return other,
            (true, false) => return best,
            (true, true) => return narrower,
            (false, false) => {}
        }
        let (has, offers) = (has.count(), offers.count());
        if has > self.enough || offers == has {
            narrower
        } else if has == self.enough || offers > self.enough || offers < has {
            best
        } else {
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TopologyPolicy::{BestEffort, Restricted, SingleNumaNode};

    fn nodes(text: &str) -> Nodes {
        Nodes::of(&CpuSet::parse(text).unwrap())
    }

    /// Hints as `0`, `0-1`, or `any`; with a `+` if they are preferred.
    fn hints(written: &[&str]) -> Hints {
        let hint = |text: &&str| {
            let bare = text.trim_end_matches('+');
            Hint { nodes: (bare != "any").then(|| nodes(bare)), preferred: bare.len() < text.len() }
        };
        written.iter().map(hint).collect()
    }

    /// The nodes, `any`, or `refused`, on a machine with two nodes.
    #[track_caller]
    fn check(resources: &[&[&str]], expected: [&str; 3]) {
        let resources: Vec<Hints> = resources.iter().map(|written| hints(written)).collect();
        let found =
            [BestEffort, Restricted, SingleNumaNode].map(|policy| match merge(policy, nodes("0-1"), &resources) {
                None => "refused".to_owned(),
                Some(None) => "any".to_owned(),
                Some(Some(nodes)) => nodes.numbers().to_string(),
            });
        assert_eq!(found, expected);
    }

    #[test]
    fn who_asks_for_nothing_may_be_anywhere() {
        check(&[], ["0-1", "0-1", "any"]);
        check(&[&["any+"]], ["0-1", "0-1", "any"]);
    }

    #[test]
    fn resources_come_from_the_narrowest_set_that_all_prefer() {
        check(&[&["0+", "1+", "0-1"]], ["0", "0", "0"]);
        check(&[&["0+", "1+", "0-1"], &["1+", "0-1"]], ["1", "1", "1"]);
        check(&[&["0+", "1+", "0-1"], &["any+"], &["1+"]], ["1", "1", "1"]);
    }

    #[test]
    fn what_is_not_near_is_refused_by_all_but_the_best_effort() {
        // Each has a node for itself, and they are not the same.
        check(&[&["0+", "0-1"], &["1+", "0-1"]], ["0", "refused", "refused"]);
        // It is free in both together, while one would do on this machine.
        check(&[&["0-1"]], ["0-1", "refused", "refused"]);
        check(&[&["any"]], ["0-1", "refused", "refused"]);
    }

    #[test]
    fn what_is_larger_than_a_node_is_refused_by_the_one_that_wants_one() {
        check(&[&["0-1+"]], ["0-1", "0-1", "refused"]);
        check(&[&["0-1+"], &["0+", "1+", "0-1"]], ["0-1", "refused", "refused"]);
    }

    #[test]
    fn what_cannot_be_given_at_all_is_near_nothing() {
        check(&[&[]], ["0-1", "refused", "refused"]);
        check(&[&["0+"], &[]], ["0", "refused", "refused"]);
    }

    #[test]
    fn all_sets_of_nodes_are_gone_through_the_narrow_ones_first() {
        let all: Vec<String> = nodes("0,2-3").subsets().iter().map(|nodes| nodes.numbers().to_string()).collect();
        assert_eq!(all, ["0", "2", "3", "0,2", "0,3", "2-3", "0,2-3"]);
    }
}
