//! Removes the fields of pods whose feature gate is off, as the API server does. Pure.

use std::sync::Arc;

use crate::platform::config::{FeatureGates, Gate};
use crate::types::api::{Container, EnvVarSource, Pod, PodSpec, ValueFrom};

/// The gates that are off, of those that have fields in the pod.
#[derive(Debug, Default)]
pub(crate) struct DisabledFields {
    gates: Vec<Gate>,
}

/// The gates with fields that [`remove`] removes.
const GATES_WITH_FIELDS: [Gate; 5] = [
    Gate::ContainerRestartRules,
    Gate::ContainerStopSignals,
    Gate::EnvFiles,
    Gate::HostnameOverride,
    Gate::PodLevelResources,
];

impl DisabledFields {
    pub(crate) fn new(gates: &FeatureGates) -> Self {
        Self { gates: GATES_WITH_FIELDS.into_iter().filter(|gate| !gates.is_on(*gate)).collect() }
    }

    /// Removes the fields. Returns the gates of those that the pod had.
    pub(crate) fn remove(&self, pod: &mut Arc<Pod>) -> Vec<Gate> {
        let used: Vec<Gate> = self.gates.iter().filter(|gate| uses(&pod.spec, **gate)).copied().collect();
        if !used.is_empty() {
            let spec = &mut Arc::make_mut(pod).spec;
            used.iter().for_each(|gate| remove(spec, *gate));
        }
        used
    }
}

fn uses(spec: &PodSpec, gate: Gate) -> bool {
    let mut all = spec.init_containers.iter().chain(&spec.containers);
    match gate {
        Gate::ContainerRestartRules => {
            spec.init_containers.iter().any(has_init_rules) || spec.containers.iter().any(has_rules)
        }
        Gate::ContainerStopSignals => {
            all.any(|container| container.lifecycle.as_ref().is_some_and(|own| own.stop_signal.is_some()))
        }
        Gate::EnvFiles => {
            let mut sources = all.flat_map(|container| container.env.iter().filter_map(|variable| variable.value_from));
            sources.any(is_file_key)
        }
        Gate::HostnameOverride => spec.hostname_override.is_some(),
        Gate::PodLevelResources => spec.resources.is_some(),
        _ => false,
    }
}

fn remove(spec: &mut PodSpec, gate: Gate) {
    let all = spec.init_containers.iter_mut().chain(&mut spec.containers);
    match gate {
        Gate::ContainerRestartRules => {
            spec.init_containers.iter_mut().filter(|container| !container.is_sidecar()).for_each(drop_policy);
            spec.containers.iter_mut().for_each(drop_policy);
            spec.init_containers.iter_mut().for_each(|container| container.restart_policy_rules.clear());
        }
        Gate::ContainerStopSignals => {
            all.filter_map(|container| container.lifecycle.as_mut()).for_each(|own| own.stop_signal = None);
        }
        Gate::EnvFiles => {
            // Without its source a variable is empty, as upstream.
            all.for_each(|container| container.env.retain_sources(|from| !is_file_key(from)));
        }
        Gate::HostnameOverride => spec.hostname_override = None,
        Gate::PodLevelResources => spec.resources = None,
        _ => {}
    }
}

fn drop_policy(container: &mut Container) {
    container.restart_policy = None;
    container.restart_policy_rules.clear();
}

/// Whether a variable is read from a file in a volume.
fn is_file_key(from: &ValueFrom) -> bool {
    matches!(from.source, EnvVarSource::FileKey(_))
}

fn has_rules(container: &Container) -> bool {
    container.restart_policy.is_some() || !container.restart_policy_rules.is_empty()
}

/// The policy Always makes an init container a sidecar, which has another gate.
fn has_init_rules(container: &Container) -> bool {
    has_rules(container) && (!container.is_sidecar() || !container.restart_policy_rules.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    fn pod() -> Arc<Pod> {
        let spec = json!({
            "hostnameOverride": "web", "resources": {"limits": {"cpu": "1"}},
            "initContainers": [
                {"name": "sidecar", "restartPolicy": "Always"},
                {"name": "first", "restartPolicy": "Never", "lifecycle": {"stopSignal": "SIGUSR1"}},
            ],
            "containers": [{
                "name": "main", "restartPolicy": "OnFailure",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}],
                "env": [
                    {"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}},
                    {"name": "B", "value": "b"},
                ],
                "lifecycle": {"stopSignal": "SIGINT", "preStop": {"sleep": {"seconds": 1}}},
            }],
        });
        Arc::new(decode(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap().value)
    }

    #[test]
    fn pod_without_such_fields_stays_as_it_is() {
        let off = GATES_WITH_FIELDS.into_iter().fold(FeatureGates::default(), |gates, gate| gates.with(gate, false));
        let plain = json!({"initContainers": [{"name": "sidecar", "restartPolicy": "Always"}]});
        let mut plain: Arc<Pod> = Arc::new(decode(json!({"spec": plain})).unwrap().value);
        let before = Arc::clone(&plain);
        assert!(DisabledFields::new(&off).remove(&mut plain).is_empty());
        assert!(Arc::ptr_eq(&plain, &before));
    }

    #[test]
    fn each_gate_removes_its_fields_and_no_others() {
        let on = GATES_WITH_FIELDS.into_iter().fold(FeatureGates::default(), |gates, gate| gates.with(gate, true));
        for gate in GATES_WITH_FIELDS {
            let mut changed = pod();
            let gates = DisabledFields::new(&on.clone().with(gate, false)).remove(&mut changed);
            assert_eq!(gates, [gate]);
            let mut expected = Pod::clone(&pod());
            let spec = &mut expected.spec;
            match gate {
                Gate::ContainerRestartRules => {
                    spec.init_containers[1].restart_policy = None;
                    spec.containers[0].restart_policy = None;
                    spec.containers[0].restart_policy_rules.clear();
                }
                Gate::ContainerStopSignals => {
                    spec.init_containers[1].lifecycle.as_mut().unwrap().stop_signal = None;
                    spec.containers[0].lifecycle.as_mut().unwrap().stop_signal = None;
                }
                Gate::EnvFiles => spec.containers[0].env.retain_sources(|_| false),
                Gate::HostnameOverride => spec.hostname_override = None,
                _ => spec.resources = None,
            }
            assert_eq!(*changed, expected, "{gate:?}");
        }
        let mut kept = pod();
        assert!(DisabledFields::new(&on).remove(&mut kept).is_empty());
    }
}
