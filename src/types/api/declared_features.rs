//! The features that a node declares to the scheduler, and those that a pod needs. Pure.
//!
//! component-helpers/nodedeclaredfeatures.

use super::container::RestartRuleAction;
use super::pod::Pod;

/// The declared features of this node, sorted.
pub const DECLARED_FEATURES: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// The features that a node must declare to run the pod.
pub fn required_features(pod: &Pod) -> Vec<&'static str> {
    let spec = &pod.spec;
    let mut containers = spec.init_containers.iter().chain(&spec.containers);
    let restarts_all = containers.any(|container| {
        let mut actions = container.restart_policy_rules.iter().map(|rule| rule.action);
        actions.any(|action| action == RestartRuleAction::RestartAllContainers)
    });
    let shares_network = spec.host_network && spec.host_users == Some(false);
    [("RestartAllContainersOnContainerExits", restarts_all), ("UserNamespacesHostNetworkSupport", shares_network)]
        .into_iter()
        .filter_map(|(feature, is_needed)| is_needed.then_some(feature))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_namespace_in_the_hosts_network_needs_a_feature() {
        let mut pod = Pod::default();
        assert!(required_features(&pod).is_empty());
        pod.spec.host_network = true;
        pod.spec.host_users = Some(false);
        assert_eq!(required_features(&pod), ["UserNamespacesHostNetworkSupport"]);
    }
}
