//! A manifest of any size costs a bounded list, and not the square of its length.

use std::time::{Duration, Instant};

use super::*;
use crate::types::api::validation::FAULT_LIMIT;

#[test]
fn no_more_than_the_limit_of_faults_are_told() {
    let containers = vec![json!({}); 1000];
    let faults = validate_pod(&pod(json!({"spec": {"containers": containers}})));
    assert_eq!(faults.len(), FAULT_LIMIT);
    assert_eq!(faults[0].to_string(), "spec.containers[0].name: required");
}

#[test]
fn a_long_value_and_a_strange_key_make_a_short_line() {
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

/// The square of this is ten thousand million: a check that is quadratic would take minutes.
const MANY: usize = 100_000;

#[test]
fn a_hundred_thousand_of_everything_takes_seconds_and_not_minutes() {
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
    let numbers = || (0..MANY).map(|number| number.to_string());
    first.env = vec![container.env[0].clone(); MANY];
    first.ports = (1..=60_000)
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
    spec.tolerations = vec![spec.tolerations[0].clone(); MANY];

    let begin = Instant::now();
    assert_eq!(validate_static_pod(&pod), []);
    let took = begin.elapsed();
    // A second here, and three quarters of a minute on an emulated board; all with all would take a day.
    assert!(took < Duration::from_secs(120), "{took:?}");
}
