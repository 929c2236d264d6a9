//! The order in which a pod's containers are stopped. Pure.

use crate::types::api::PodSpec;

/// For each running container, by its index in `running`: the containers that must stop before it.
///
/// Sidecars stop after the main containers, in reverse order of their start (kubelet: `newTerminationOrdering`).
pub(super) fn waits_for(spec: Option<&PodSpec>, running: &[&str]) -> Vec<Vec<usize>> {
    let rank = |name: &str| spec.map_or(0, |spec| rank(spec, name));
    let ranks: Vec<usize> = running.iter().map(|name| rank(name)).collect();
    let before =
        |own: usize| (0..ranks.len()).filter(|other| ranks.get(*other).is_some_and(|rank| *rank < own)).collect();
    ranks.iter().map(|rank| before(*rank)).collect()
}

/// 0 for containers that stop at once; higher for sidecars that were started earlier.
fn rank(spec: &PodSpec, name: &str) -> usize {
    let init = &spec.init_containers;
    let place = init.iter().position(|container| container.name == name && container.is_sidecar());
    place.map_or(0, |place| init.len() - place)
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
