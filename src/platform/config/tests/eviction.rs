//! Reserved resources and eviction.

use super::*;

#[test]
fn reserved_resources_are_read() {
    let (config, warnings) = file_loaded(
        r#""systemReserved":{"cpu":"100m","memory":"64Mi","pid":"100"},"kubeReserved":{"memory":33554432},
           "systemReservedCgroup":"/system.slice","kubeReservedCgroup":"/kube","memorySwap":{"swapBehavior":"LimitedSwap"},
           "enforceNodeAllocatable":["pods","system-reserved","kube-reserved-compressible"]"#,
    );
    let list =
        |given: &[(&'static str, &str)]| given.iter().map(|(name, value)| (*name, value.parse().unwrap())).collect();
    let expected = defaults_with(|config| {
        config.reserved.system = list(&[("cpu", "100m"), ("memory", "64Mi"), ("pid", "100")]);
        config.reserved.kube = list(&[("memory", "32Mi")]);
        config.reserved.system_cgroup = "/system.slice".to_owned();
        config.reserved.kube_cgroup = "/kube".to_owned();
        config.reserved.enforced =
            EnforcedLimits { pods: true, system: true, kube_compressible: true, ..EnforcedLimits::default() };
        config.cgroups.swap = SwapBehavior::LimitedSwap;
    });
    assert_eq!((config, warnings), (expected, vec![]));
    let (config, _) = file_loaded(r#""enforceNodeAllocatable":["none"]"#);
    assert_eq!(config.reserved.enforced, EnforcedLimits::default());
    let (config, _) = loaded(&["--system-reserved=memory=64Mi,pid=10", "--enforce-node-allocatable="]);
    assert_eq!(config.reserved.system, list(&[("memory", "64Mi"), ("pid", "10")]));
    assert_eq!(config.reserved.enforced, EnforcedLimits::default());
}

#[test]
fn ambiguous_reservations_are_refused() {
    for (line, fault) in [
        (vec!["--enforce-node-allocatable=pods,none"], "enforceNodeAllocatable: none excludes all other values"),
        (
            vec!["--enforce-node-allocatable=pods", "--cgroups-per-qos=false"],
            "enforceNodeAllocatable: expected none where cgroupsPerQOS is false",
        ),
        (
            vec!["--enforce-node-allocatable=system-reserved"],
            "systemReservedCgroup: required where enforceNodeAllocatable has system-reserved or \
             system-reserved-compressible",
        ),
        (
            vec!["--enforce-node-allocatable=kube-reserved,kube-reserved-compressible", "--kube-reserved-cgroup=/k"],
            "enforceNodeAllocatable: expected kube-reserved or kube-reserved-compressible, found both",
        ),
        (vec!["--cgroup-root=/a/../b"], "cgroupRoot: expected a path without . and .., found \"/a/../b\""),
        (vec!["--system-reserved-cgroup=.."], "systemReservedCgroup: expected a path without . and .., found \"..\""),
    ] {
        assert_eq!(refused(&line), fault, "{line:?}");
    }
}

#[test]
fn configured_thresholds_replace_the_defaults() {
    let shown = |fields: &str| {
        let (config, warnings) = file_loaded(fields);
        assert!(warnings.is_empty(), "{warnings:?}");
        let shown = |t: &Threshold| {
            let reclaim = t.min_reclaim.map(|amount| format!(" + {}", amount.of(1000))).unwrap_or_default();
            format!("{} {}{reclaim} {:?}", t.signal.as_str(), t.value.of(1000), t.grace)
        };
        config.eviction.thresholds.iter().map(shown).collect::<Vec<_>>()
    };
    let hard = r#""enforceNodeAllocatable":["none"],"evictionHard":{"memory.available":"1Gi","pid.available":"0%"}"#;
    assert_eq!(shown(hard), ["memory.available 1Gi 0ns"]);
    let merged = format!(r#"{hard},"mergeDefaultEvictionSettings":true"#);
    let expected = [
        "memory.available 1Gi 0ns",
        "nodefs.available 100 0ns",
        "nodefs.inodesFree 50 0ns",
        "imagefs.available 150 0ns",
        "imagefs.inodesFree 50 0ns",
    ];
    assert_eq!(shown(&merged), expected);
    let soft = format!(
        r#"{hard},"evictionSoft":{{"nodefs.available":"20%"}},"evictionSoftGracePeriod":{{"nodefs.available":"1m"}},
           "evictionMinimumReclaim":{{"nodefs.available":"5"}}"#
    );
    assert_eq!(shown(&soft), ["memory.available 1Gi 0ns", "nodefs.available 200 + 5 60s"]);
    let none: [&str; 0] = [];
    assert_eq!(shown(r#""evictionHard":{},"evictionMinimumReclaim":{"pid.available":"0"}"#), none);
    let enforced = r#""evictionHard":{"memory.available":"1Gi"}"#;
    assert_eq!(shown(enforced), ["memory.available 1Gi 0ns", "allocatableMemory.available 1Gi 0ns"]);
}

#[test]
fn other_eviction_settings_are_read() {
    let (config, _) = file_loaded(
        r#""evictionMaxPodGracePeriod":7,"evictionPressureTransitionPeriod":"30s","kernelMemcgNotification":true,
           "localStorageCapacityIsolation":false"#,
    );
    let Eviction { max_pod_grace, transition, local_storage, static_pods, .. } = config.eviction;
    assert_eq!((max_pod_grace.as_secs(), transition.as_secs()), (7, 30));
    assert!(!local_storage && !static_pods);
    assert!(loaded(&["--evict-static-pods"]).0.eviction.static_pods);
}
