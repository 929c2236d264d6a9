//! The order in which a pod's containers are stopped. Pure.

use crate::types::api::PodSpec;
use crate::types::sorted::SortedMap;

/// For each running container, by its index in `running`: the containers that must stop before it.
///
/// Sidecars stop after the main containers, in reverse order of their start (kubelet: `newTerminationOrdering`).
pub(super) fn waits_for(spec: Option<&PodSpec>, running: &[&str]) -> Vec<Vec<usize>> {
    let sidecars = spec.map(sidecar_ranks).unwrap_or_default();
    // Other containers stop at once.
    let ranks: Vec<usize> = running.iter().map(|name| sidecars.get(name).copied().unwrap_or(0)).collect();
    let before =
        |own: usize| (0..ranks.len()).filter(|other| ranks.get(*other).is_some_and(|rank| *rank < own)).collect();
    ranks.iter().map(|rank| before(*rank)).collect()
}

/// Higher for sidecars that were started earlier.
fn sidecar_ranks(spec: &PodSpec) -> SortedMap<&str, usize> {
    let init = spec.init_containers.iter().rev().zip(1..);
    init.filter(|(container, _)| container.is_sidecar())
        .map(|(container, rank)| (container.name.as_str(), rank))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{Container, RestartPolicy};

    #[test]
    fn sidecars_stop_after_main_containers_in_reverse_order() {
        let named =
            |name: &str, restart_policy| Container { name: name.to_owned(), restart_policy, ..Container::default() };
        let always = Some(RestartPolicy::Always);
        let spec = PodSpec {
            init_containers: vec![named("one", always), named("init", None), named("two", always)],
            containers: vec![named("main", None), named("other", None)],
            ..PodSpec::default()
        };
        let running = ["main", "one", "two", "other", "stranger"];
        assert_eq!(waits_for(Some(&spec), &running), [vec![], vec![0, 2, 3, 4], vec![0, 3, 4], vec![], vec![]]);
        assert_eq!(waits_for(Some(&spec), &["one"]), [Vec::<usize>::new()]);
        assert_eq!(waits_for(None, &running), vec![Vec::<usize>::new(); 5]);
    }
}
