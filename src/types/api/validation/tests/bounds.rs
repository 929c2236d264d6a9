//! A manifest of any size costs a bounded list of errors and no quadratic time.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::*;
use crate::types::api::validation::MAX_FAULTS;

#[test]
fn number_of_errors_is_bounded() {
    let containers = vec![json!({}); 1000];
    let faults = validate_pod(&pod(json!({"spec": {"containers": containers}})));
    assert_eq!(faults.len(), MAX_FAULTS);
    assert_eq!(faults[0].to_string(), "spec.containers[0].name: required");
}

#[test]
fn long_values_and_odd_keys_make_short_messages() {
    let long = "x".repeat(10_000);
    let faults = validate_pod(&pod(json!({
        "metadata": {"labels": {"a\nb": "c d"}}, "spec": {"hostname": long, "nodeSelector": {long.as_str(): "-"}},
    })));
    for fault in &faults {
        let line = fault.to_string();
        assert!(line.chars().count() < 700 && !line.contains('\n'), "{line}");
    }
    assert_eq!(faults.len(), 5);
}

/// Entries of each list: their square costs far more than all else, and they fit into a processor's cache.
const MANY: usize = 8000;
/// What four times the entries may take of the processor, as a multiple. A quadratic check takes sixteen times.
const GROWTH: u32 = 8;
/// For clocks and caches.
const NOISE: Duration = Duration::from_millis(20);

/// A valid pod whose lists have so many entries.
fn large_pod(many: usize) -> Pod {
    let mut pod = pod(json!({"spec": {
        "containers": [{
            "name": "c", "image": "i", "ports": [{"name": "p", "containerPort": 80, "hostPort": 80}],
            "env": [{"name": "A", "value": "b"}], "volumeMounts": [{"name": "v", "mountPath": "/m"}],
        }],
        "volumes": [{"name": "v"}],
        "securityContext": {"sysctls": [{"name": "kernel.sem", "value": "1"}]},
        "tolerations": [{"operator": "Exists"}],
    }}));
    let spec = &mut pod.spec;
    let container = spec.containers[0].clone();
    let port = container.ports[0].clone();
    let (mount, volume) = (container.volume_mounts[0].clone(), spec.volumes[0].clone());
    let first = &mut spec.containers[0];
    let numbers = || (0..many).map(|number| number.to_string());
    let variable = crate::types::api::EnvVar { name: "A".to_owned(), ..Default::default() };
    first.env = vec![variable; many].into_iter().collect();
    first.ports = (1..=i32::try_from(many).unwrap())
        .map(|number| {
            let mut port = port.clone();
            (port.name, port.container_port, port.host_port) = (format!("p{number}"), number, number);
            port
        })
        .collect();
    first.volume_mounts = numbers()
        .map(|number| {
            let mut mount = mount.clone();
            (mount.name, mount.mount_path) = (format!("v{number}"), number);
            mount
        })
        .collect();
    spec.volumes = numbers()
        .map(|number| {
            let mut volume = volume.clone();
            volume.name = format!("v{number}");
            volume
        })
        .collect();
    let mut small = container;
    small.ports.clear();
    small.volume_mounts.clear();
    spec.init_containers = numbers()
        .map(|number| {
            let mut container = small.clone();
            container.name = format!("c{number}");
            container
        })
        .collect();
    if let Some(context) = &mut spec.security_context {
        let sysctl = context.sysctls[0].clone();
        context.sysctls = numbers()
            .map(|number| {
                let mut sysctl = sysctl.clone();
                sysctl.name = format!("net.x{number}");
                sysctl
            })
            .collect();
    }
    spec.tolerations = vec![spec.tolerations[0].clone(); many];

    pod
}

/// The shortest processor time of this thread, of a few tries.
fn time_to_validate(pod: &Pod) -> Duration {
    let cpu = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let tries = (0..3).map(|_| {
        let begun = cpu();
        assert_eq!(validate_static_pod(pod), []);
        cpu() - begun
    });
    tries.min().unwrap()
}

#[test]
fn work_of_validation_grows_with_the_size_of_the_pod() {
    let [less, more] = [MANY / 4, MANY].map(|many| time_to_validate(&large_pod(many)));
    assert!(more < less * GROWTH + NOISE, "{less:?}, four times as many entries {more:?}");
}
