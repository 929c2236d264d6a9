//! Selects the NUMA nodes for the resources of a container or pod. Pure.
//!
//! As pkg/kubelet/cm/topologymanager. Providers give hints: the node sets that each resource could come from. The
//! combination whose sets have the most in common is chosen.

use crate::platform::config::TopologyPolicy;
use crate::types::cpu_set::CpuSet;
use crate::types::sorted::SortOnce;

/// A node set that a resource can be allocated from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    /// `None`: any nodes.
    pub(crate) nodes: Option<Nodes>,
    /// No smaller set on this machine would be enough.
    pub(crate) preferred: bool,
}

/// The hints for one resource. Empty: it cannot be allocated.
pub(crate) type Hints = Vec<Hint>;

/// A bit mask of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nodes(u64);

impl FromIterator<u32> for Nodes {
    /// Node numbers beyond the mask do not occur and are ignored.
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

    /// All non-empty subsets, by size and then by node numbers.
    pub(super) fn subsets(self) -> Vec<Self> {
        let mut subsets = Vec::new();
        // The next lower mask within these bits.
        let mut subset = self.0;
        while subset != 0 {
            subsets.push(Self(subset));
            subset = (subset - 1) & self.0;
        }
        subsets.sort_once_by_key(|nodes| nodes.rank());
        subsets
    }

    /// A narrower set has a lower rank.
    fn rank(self) -> (u32, u64) {
        (self.count(), self.0)
    }
}

/// The hints of a resource: the sets for which `can` holds. Those are preferred that have the width of the
/// narrowest set for which `could` holds on an unused machine.
pub(crate) fn hints(all_nodes: Nodes, could: &dyn Fn(Nodes) -> bool, can: &dyn Fn(Nodes) -> bool) -> Hints {
    let mut least = all_nodes.count();
    let mut hints = Hints::new();
    for nodes in all_nodes.subsets() {
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

/// The distances of each NUMA node to the others, by their numbers. Empty: nodes are not compared by distance.
pub(crate) type Distances = [(u32, Vec<u32>)];

/// The merged affinity; `None` if the policy rejects it. `all`: the nodes of the machine.
pub(crate) fn merge(
    policy: TopologyPolicy,
    all_nodes: Nodes,
    distances: &Distances,
    resources: &[Hints],
) -> Option<Option<Nodes>> {
    let impossible = Hint { nodes: None, preferred: false };
    let provider_hints = |hints: &Hints| if hints.is_empty() { vec![impossible] } else { hints.clone() };
    let mut resources: Vec<Hints> = resources.iter().map(provider_hints).collect();
    if policy == TopologyPolicy::SingleNumaNode {
        for hints in &mut resources {
            hints.retain(|hint| hint.preferred && hint.nodes.is_none_or(|nodes| nodes.count() == 1));
        }
    }
    let least = |hints: &Hints| hints.iter().filter_map(|hint| hint.nodes).map(Nodes::count).min();
    let distances: &Distances = if policy == TopologyPolicy::SingleNumaNode { &[] } else { distances };
    let merging = HintMerger { all_nodes, distances, enough: resources.iter().filter_map(least).max().unwrap_or(0) };
    let mut best = None;
    merging.combine(&resources, Hint { nodes: None, preferred: true }, None, &mut best);
    let best = best.unwrap_or(Hint { nodes: Some(all_nodes), preferred: false });
    if policy != TopologyPolicy::BestEffort && !best.preferred {
        return None;
    }
    Some(best.nodes.filter(|nodes| policy != TopologyPolicy::SingleNumaNode || *nodes != all_nodes))
}

struct HintMerger<'a> {
    all_nodes: Nodes,
    /// With `prefer-closest-numa-nodes`.
    distances: &'a Distances,
    /// The largest number of nodes that any resource needs.
    enough: u32,
}

/// The sum of the distances of all pairs of these nodes, each with itself included. Of sets of one size, it compares as
/// upstream's average does.
fn distance(distances: &Distances, nodes: Nodes) -> u64 {
    let numbers = nodes.numbers();
    let rows = distances.iter().filter(|(node, _)| numbers.contains(*node));
    // A row has the distances to the nodes in their order; the numbers may have gaps.
    let others = || distances.iter().map(|(node, _)| *node);
    let of_row = |row: &Vec<u32>| -> u64 {
        let near = row.iter().zip(others()).filter(|(_, other)| numbers.contains(*other));
        near.map(|(distance, _)| u64::from(*distance)).sum()
    };
    rows.map(|(_, row)| of_row(row)).sum()
}

impl HintMerger<'_> {
    /// Tries all combinations of one hint per resource. `merged` is their intersection so far, `first` the nodes of
    /// the first hint with nodes.
    fn combine(&self, resources: &[Hints], merged: Hint, first: Option<Nodes>, best: &mut Option<Hint>) {
        let Some((hints, rest)) = resources.split_first() else {
            let merged = Hint { nodes: Some(merged.nodes.unwrap_or(self.all_nodes)), ..merged };
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
            let common = Nodes(merged.nodes.unwrap_or(self.all_nodes).0 & nodes.0);
            let merged = Hint { nodes: Some(common), preferred: merged.preferred && hint.preferred && is_same };
            self.combine(rest, merged, first.or(Some(nodes)), best);
        }
    }

    /// Preferred hints win, then narrower ones, or closer ones of the same width. Among hints that are not preferred, the one closest to `enough` wins.
    fn better(&self, best: Hint, other: Hint) -> Hint {
        let (Some(has), Some(offers)) = (best.nodes, other.nodes) else { return best };
        let rank = |nodes: Nodes| (nodes.count(), distance(self.distances, nodes), nodes.bits());
        let narrower = if rank(offers) < rank(has) { other } else { best };
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

    /// Hints as `0`, `0-1` or `any`, with a `+` if preferred.
    fn hints(written: &[&str]) -> Hints {
        let hint = |text: &&str| {
            let bare = text.trim_end_matches('+');
            Hint { nodes: (bare != "any").then(|| nodes(bare)), preferred: bare.len() < text.len() }
        };
        written.iter().map(hint).collect()
    }

    /// The nodes, `any` or `refused`, on a machine with two nodes.
    #[track_caller]
    fn check(resources: &[&[&str]], expected: [&str; 3]) {
        let resources: Vec<Hints> = resources.iter().map(|written| hints(written)).collect();
        let found =
            [BestEffort, Restricted, SingleNumaNode].map(|policy| match merge(policy, nodes("0-1"), &[], &resources) {
                None => "refused".to_owned(),
                Some(None) => "any".to_owned(),
                Some(Some(nodes)) => nodes.numbers().to_string(),
            });
        assert_eq!(found, expected);
    }

    #[test]
    fn no_hints_allow_any_nodes() {
        check(&[], ["0-1", "0-1", "any"]);
        check(&[&["any+"]], ["0-1", "0-1", "any"]);
    }

    #[test]
    fn narrowest_set_preferred_by_all_is_chosen() {
        check(&[&["0+", "1+", "0-1"]], ["0", "0", "0"]);
        check(&[&["0+", "1+", "0-1"], &["1+", "0-1"]], ["1", "1", "1"]);
        check(&[&["0+", "1+", "0-1"], &["any+"], &["1+"]], ["1", "1", "1"]);
    }

    #[test]
    fn unaligned_resources_are_refused_except_by_best_effort() {
        // Both prefer a single node, but different ones.
        check(&[&["0+", "0-1"], &["1+", "0-1"]], ["0", "refused", "refused"]);
        // Free only on both nodes together, while one node would be enough on an unused machine.
        check(&[&["0-1"]], ["0-1", "refused", "refused"]);
        check(&[&["any"]], ["0-1", "refused", "refused"]);
    }

    #[test]
    fn resource_larger_than_a_node_is_refused_by_single_numa_node() {
        check(&[&["0-1+"]], ["0-1", "0-1", "refused"]);
        check(&[&["0-1+"], &["0+", "1+", "0-1"]], ["0-1", "refused", "refused"]);
    }

    #[test]
    fn resource_without_hints_has_no_affinity() {
        check(&[&[]], ["0-1", "refused", "refused"]);
        check(&[&["0+"], &[]], ["0", "refused", "refused"]);
    }

    #[test]
    fn subsets_are_sorted_by_size() {
        let all: Vec<String> = nodes("0,2-3").subsets().iter().map(|nodes| nodes.numbers().to_string()).collect();
        assert_eq!(all, ["0", "2", "3", "0,2", "0,3", "2-3", "0,2-3"]);
    }

    /// Distances are from the upstream kubelet's tests.
    #[test]
    fn closest_nodes_of_the_same_width_are_chosen_where_configured() {
        let far = [
            (0, vec![10, 11, 12, 12]),
            (1, vec![11, 10, 12, 12]),
            (2, vec![12, 12, 10, 11]),
            (3, vec![12, 12, 11, 10]),
        ];
        let same = [0, 1, 2, 3].map(|node| (node, vec![10; 4]));
        let chosen = |policy, distances: &Distances, written: &[&str]| {
            let merged = merge(policy, nodes("0-3"), distances, &[hints(written)]).unwrap();
            merged.unwrap().numbers().to_string()
        };
        for policy in [BestEffort, Restricted] {
            assert_eq!(chosen(policy, &far, &["0,2+", "2-3+"]), "2-3");
            assert_eq!(chosen(policy, &far, &["0,3+", "0-1+"]), "0-1");
            assert_eq!(chosen(policy, &far, &["0,2+", "3+"]), "3", "narrower is better than closer");
            assert_eq!(chosen(policy, &same, &["0,3+", "0,2+"]), "0,2");
            assert_eq!(chosen(policy, &[], &["0,2+", "2-3+"]), "0,2");
        }
        assert_eq!(chosen(BestEffort, &far, &["0,2", "2-3"]), "2-3");
        assert_eq!((distance(&far, nodes("0,2")), distance(&far, nodes("0,2-3"))), (4 * 11, 100));
    }
}
