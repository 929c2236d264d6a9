//! The feature gates of Kubernetes 1.36, and which of them Coracle can switch. Pure.

use serde_json::Value;

use super::check::{Problem, conflict};
use super::did_you_mean::nearest;
use super::fields::Fields;
use crate::types::sorted::SortedSet;

/// A gate whose feature Coracle turns off. All of these are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    ComponentFlagz,
    ComponentStatusz,
    ContainerCheckpoint,
    CpuManagerPolicyBetaOptions,
    CustomCpuCfsQuotaPeriod,
    DisableCpuQuotaWithExclusiveCpus,
    GracefulNodeShutdown,
    GracefulNodeShutdownBasedOnPodPriority,
    KubeletCrashLoopBackOffMax,
    KubeletEnsureSecretPulledImages,
    KubeletPodResourcesListUseActivePods,
    KubeletServiceAccountTokenForCredentialProviders,
    NodeDeclaredFeatures,
    ResourceHealthStatus,
    RotateKubeletServerCertificate,
}

/// `featureGates`: which features are turned off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeatureGates {
    off: SortedSet<Gate>,
}

/// One gate a line: the stage (`A`lpha, `B`eta, `G`A, `D`eprecated), the default (`+` or `-`), what may be done with
/// it, and its name. From pkg/features and the packages whose gates the kubelet registers.
///
/// - `L`: locked to its default, as upstream.
/// - `h`: has a [`Gate`].
/// - `=`: the kubelet reads it, and Coracle supports only the default.
/// - `.`: nothing here depends on it.
const GATES: &str = include_str!("feature_gates.txt");

const FEATURE_GATES_FIELD: &str = "featureGates";

impl FeatureGates {
    pub(crate) fn is_on(&self, gate: Gate) -> bool {
        !self.off.contains(&gate)
    }

    /// Reads the gates, and adds a warning for each that upstream will remove.
    pub(super) fn read(fields: &Fields<'_>, warnings: &mut Vec<String>) -> Result<Self, Problem> {
        let given = fields.at(FEATURE_GATES_FIELD).and_then(Value::as_object);
        let mut gates = Self::default();
        for (name, value) in given.into_iter().flatten() {
            gates.set(name, value.as_bool() == Some(true), warnings)?;
        }
        gates.check(fields)?;
        Ok(gates)
    }

    fn set(&mut self, name: &str, on: bool, warnings: &mut Vec<String>) -> Result<(), Problem> {
        let refused = |why: &str| Err(conflict(&format!("{FEATURE_GATES_FIELD}.{name}"), why.to_owned()));
        if let ("AllAlpha" | "AllBeta", wanted) = (name, on) {
            let is_default = name == "AllAlpha" && !wanted;
            return if is_default { Ok(()) } else { refused("not supported: name each gate instead") };
        }
        let Some((stage, is_on, standing)) = known(name) else {
            let names = || GATES.lines().filter_map(|line| line.get(4..));
            let meant = nearest(name, names()).map(|meant| format!(" (did you mean {meant}?)"));
            return Err(conflict(
                FEATURE_GATES_FIELD,
                format!("unrecognized feature gate: {name}{}", meant.unwrap_or_default()),
            ));
        };
        match standing {
            'L' if on != is_on => {
                return refused(&format!("cannot be set to {on}, as the feature is locked to {is_on}"));
            }
            '=' if on != is_on && is_on => return refused("cannot be turned off: the feature is always on in Coracle"),
            '=' if on != is_on => return refused("cannot be turned on: Coracle does not have the feature"),
            'h' if !on => self.off.extend(Gate::of(name)),
            _ => {}
        }
        match stage {
            'G' => warnings.push(format!("feature gate {name} is GA and will be removed in a future release")),
            'D' => warnings.push(format!("feature gate {name} is deprecated and will be removed in a future release")),
            _ => {}
        }
        Ok(())
    }

    /// Refuses fields of features that are turned off, as upstream's validation.
    fn check(&self, fields: &Fields<'_>) -> Result<(), Problem> {
        let is_set = |path: &str| match fields.at(path) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::String(text)) => !matches!(&**text, "" | "0" | "0s" | "false"),
            Some(Value::Bool(true) | Value::Number(_) | Value::Object(_)) => true,
        };
        for (path, gate) in FIELDS {
            if !self.is_on(gate) && is_set(path) && !is_default(path, fields) {
                return Err(conflict(path, format!("requires the feature gate {}", gate.name())));
            }
        }
        Ok(())
    }
}

/// Fields, and the gates that they need.
const FIELDS: [(&str, Gate); 9] = [
    ("shutdownGracePeriod", Gate::GracefulNodeShutdown),
    ("shutdownGracePeriodCriticalPods", Gate::GracefulNodeShutdown),
    ("shutdownGracePeriodByPodPriority", Gate::GracefulNodeShutdownBasedOnPodPriority),
    ("serverTLSBootstrap", Gate::RotateKubeletServerCertificate),
    ("crashLoopBackOff.maxContainerRestartPeriod", Gate::KubeletCrashLoopBackOffMax),
    ("imagePullCredentialsVerificationPolicy", Gate::KubeletEnsureSecretPulledImages),
    ("preloadedImagesVerificationAllowlist", Gate::KubeletEnsureSecretPulledImages),
    ("cpuManagerPolicyOptions.distribute-cpus-across-numa", Gate::CpuManagerPolicyBetaOptions),
    ("cpuCFSQuotaPeriod", Gate::CustomCpuCfsQuotaPeriod),
];

fn is_default(path: &str, fields: &Fields<'_>) -> bool {
    path == "cpuCFSQuotaPeriod" && fields.text(path) == Some("100ms")
}

/// Stage, default and support of a gate.
fn known(name: &str) -> Option<(char, bool, char)> {
    GATES.lines().find_map(|line| {
        let (marks, found) = line.split_once(' ')?;
        let mut marks = marks.chars();
        let (stage, default, standing) = (marks.next()?, marks.next()?, marks.next()?);
        (found == name).then_some((stage, default == '+', standing))
    })
}

impl Gate {
    const ALL: [Self; 15] = [
        Self::ComponentFlagz,
        Self::ComponentStatusz,
        Self::ContainerCheckpoint,
        Self::CpuManagerPolicyBetaOptions,
        Self::CustomCpuCfsQuotaPeriod,
        Self::DisableCpuQuotaWithExclusiveCpus,
        Self::GracefulNodeShutdown,
        Self::GracefulNodeShutdownBasedOnPodPriority,
        Self::KubeletCrashLoopBackOffMax,
        Self::KubeletEnsureSecretPulledImages,
        Self::KubeletPodResourcesListUseActivePods,
        Self::KubeletServiceAccountTokenForCredentialProviders,
        Self::NodeDeclaredFeatures,
        Self::ResourceHealthStatus,
        Self::RotateKubeletServerCertificate,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ComponentFlagz => "ComponentFlagz",
            Self::ComponentStatusz => "ComponentStatusz",
            Self::ContainerCheckpoint => "ContainerCheckpoint",
            Self::CpuManagerPolicyBetaOptions => "CPUManagerPolicyBetaOptions",
            Self::CustomCpuCfsQuotaPeriod => "CustomCPUCFSQuotaPeriod",
            Self::DisableCpuQuotaWithExclusiveCpus => "DisableCPUQuotaWithExclusiveCPUs",
            Self::GracefulNodeShutdown => "GracefulNodeShutdown",
            Self::GracefulNodeShutdownBasedOnPodPriority => "GracefulNodeShutdownBasedOnPodPriority",
            Self::KubeletCrashLoopBackOffMax => "KubeletCrashLoopBackOffMax",
            Self::KubeletEnsureSecretPulledImages => "KubeletEnsureSecretPulledImages",
            Self::KubeletPodResourcesListUseActivePods => "KubeletPodResourcesListUseActivePods",
            Self::KubeletServiceAccountTokenForCredentialProviders => {
                "KubeletServiceAccountTokenForCredentialProviders"
            }
            Self::NodeDeclaredFeatures => "NodeDeclaredFeatures",
            Self::ResourceHealthStatus => "ResourceHealthStatus",
            Self::RotateKubeletServerCertificate => "RotateKubeletServerCertificate",
        }
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|gate| gate.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: &Value) -> Result<(FeatureGates, Vec<String>), String> {
        let mut warnings = Vec::new();
        let gates = FeatureGates::read(&Fields(fields.as_object().unwrap()), &mut warnings);
        gates.map(|gates| (gates, warnings)).map_err(|problem| problem.to_string())
    }

    #[track_caller]
    fn check_refused(name: &str, on: bool, expected: &str) {
        assert_eq!(read(&json!({"featureGates": {name: on}})).unwrap_err(), expected);
    }

    #[test]
    fn each_gate_is_listed_once_and_has_the_standing_of_its_kind() {
        let mut names: Vec<&str> = GATES.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        let sorted = names.clone();
        names.dedup();
        assert_eq!((names.len(), sorted.is_sorted()), (239, true));
        for line in GATES.lines() {
            let (marks, name) = line.split_once(' ').unwrap();
            let [stage, default, standing] = marks.as_bytes() else { panic!("{line}") };
            assert!(b"ABGD".contains(stage) && b"+-".contains(default) && b"Lh=.".contains(standing), "{line}");
            assert_eq!(marks.ends_with("+h"), Gate::of(name).is_some(), "{line}");
        }
    }

    #[test]
    fn gate_that_is_off_turns_its_feature_off_and_no_other() {
        let (gates, warnings) = read(&json!({"featureGates": {"ContainerCheckpoint": false}})).unwrap();
        assert!(!gates.is_on(Gate::ContainerCheckpoint) && gates.is_on(Gate::ComponentStatusz));
        assert!(warnings.is_empty());
        let (gates, _) = read(&json!({"featureGates": {"ContainerCheckpoint": true, "AllAlpha": false}})).unwrap();
        assert_eq!(gates, FeatureGates::default());
    }

    #[test]
    fn unknown_locked_and_missing_features_are_refused() {
        let expected = "featureGates: unrecognized feature gate: NodeSwapp (did you mean NodeSwap?)";
        check_refused("NodeSwapp", true, expected);
        let locked = "featureGates.NodeSwap: cannot be set to false, as the feature is locked to true";
        check_refused("NodeSwap", false, locked);
        let missing = "featureGates.PodLevelResourceManagers: cannot be turned on: Coracle does not have the feature";
        check_refused("PodLevelResourceManagers", true, missing);
        for name in
            ["PodsAPI", "PodCertificateRequest", "DRAWorkloadResourceClaims", "TaintTolerationComparisonOperators"]
        {
            let missing = format!("featureGates.{name}: cannot be turned on: Coracle does not have the feature");
            check_refused(name, true, &missing);
        }
        let always = "featureGates.PodLevelResources: cannot be turned off: the feature is always on in Coracle";
        check_refused("PodLevelResources", false, always);
        check_refused("AllBeta", false, "featureGates.AllBeta: not supported: name each gate instead");
    }

    #[test]
    fn defaults_and_gates_of_other_components_are_accepted() {
        for (name, on) in [("NodeSwap", true), ("PodLevelResources", true), ("PodLevelResourceManagers", false)] {
            assert_eq!(read(&json!({"featureGates": {name: on}})).unwrap().0, FeatureGates::default(), "{name}");
        }
        for on in [false, true] {
            assert!(read(&json!({"featureGates": {"JobBackoffLimitPerIndex": true, "WatchList": on}})).is_ok());
        }
        let (_, warnings) = read(&json!({"featureGates": {"NodeSwap": true}})).unwrap();
        assert_eq!(warnings, ["feature gate NodeSwap is GA and will be removed in a future release"]);
    }

    #[test]
    fn field_of_a_feature_that_is_off_is_refused() {
        for (path, gate) in FIELDS {
            let value = match path {
                "serverTLSBootstrap" => json!(true),
                "shutdownGracePeriodByPodPriority" => json!([{"priority": 0, "shutdownGracePeriodSeconds": 5}]),
                "cpuCFSQuotaPeriod" => json!("50ms"),
                _ => json!("30s"),
            };
            let mut fields = json!({"featureGates": {gate.name(): false}});
            match path.split_once('.') {
                Some((outer, inner)) => fields[outer] = json!({inner: value}),
                None => fields[path] = value,
            }
            let expected = format!("{path}: requires the feature gate {}", gate.name());
            assert_eq!(read(&fields).unwrap_err(), expected);
            fields["featureGates"] = json!({});
            assert!(read(&fields).is_ok(), "{path}");
        }
        let usual = json!({"featureGates": {"CustomCPUCFSQuotaPeriod": false}, "cpuCFSQuotaPeriod": "100ms"});
        assert!(read(&usual).is_ok());
    }
}
