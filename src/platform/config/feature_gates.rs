//! The feature gates of Kubernetes 1.36 and 1.37, and which of them Coracle can switch. Pure.

use serde_json::Value;

use super::check::{Problem, conflict};
use super::did_you_mean::nearest;
use super::fields::Fields;
use crate::protocol::gzip::unpacked_text;
use crate::types::sorted::{SortedMap, SortedSet};

macro_rules! gates {
    ($($gate:ident = $name:literal,)*) => {
        /// A gate that Coracle honours, whether it is on or off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Gate {
            $($gate,)*
        }

        impl Gate {
            const ALL: &[Self] = &[$(Self::$gate,)*];

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$gate => $name,)*
                }
            }
        }
    };
}

gates! {
    AllowDnsOnlyNodeCsr = "AllowDNSOnlyNodeCSR",
    ClusterTrustBundleProjection = "ClusterTrustBundleProjection",
    ComponentFlagz = "ComponentFlagz",
    ComponentStatusz = "ComponentStatusz",
    ContainerCheckpoint = "ContainerCheckpoint",
    ContainerRestartRules = "ContainerRestartRules",
    ContainerStopSignals = "ContainerStopSignals",
    CpuManagerPolicyBetaOptions = "CPUManagerPolicyBetaOptions",
    CustomCpuCfsQuotaPeriod = "CustomCPUCFSQuotaPeriod",
    DisableCpuQuotaWithExclusiveCpus = "DisableCPUQuotaWithExclusiveCPUs",
    DraExtendedResource = "DRAExtendedResource",
    EnvFiles = "EnvFiles",
    ExtendWebSocketsToKubelet = "ExtendWebSocketsToKubelet",
    GracefulNodeShutdown = "GracefulNodeShutdown",
    GracefulNodeShutdownBasedOnPodPriority = "GracefulNodeShutdownBasedOnPodPriority",
    HostnameOverride = "HostnameOverride",
    InPlacePodLevelResourcesVerticalScaling = "InPlacePodLevelResourcesVerticalScaling",
    InPlacePodVerticalScalingInitContainers = "InPlacePodVerticalScalingInitContainers",
    KubeletCrashLoopBackOffMax = "KubeletCrashLoopBackOffMax",
    KubeletEnsureSecretPulledImages = "KubeletEnsureSecretPulledImages",
    KubeletPodResourcesListUseActivePods = "KubeletPodResourcesListUseActivePods",
    KubeletServiceAccountTokenForCredentialProviders = "KubeletServiceAccountTokenForCredentialProviders",
    MemoryQos = "MemoryQoS",
    NodeDeclaredFeatures = "NodeDeclaredFeatures",
    PodCertificateRequest = "PodCertificateRequest",
    PodLevelResourceManagers = "PodLevelResourceManagers",
    PodLevelResources = "PodLevelResources",
    PodReadyToStartContainersCondition = "PodReadyToStartContainersCondition",
    ReduceDefaultCrashLoopBackOffDecay = "ReduceDefaultCrashLoopBackOffDecay",
    ResourceHealthStatus = "ResourceHealthStatus",
    ResourceHealthStatusMessage = "ResourceHealthStatusMessage",
    RestartAllContainersOnContainerExits = "RestartAllContainersOnContainerExits",
    RotateKubeletServerCertificate = "RotateKubeletServerCertificate",
    SidecarContainers = "SidecarContainers",
    TaintTolerationComparisonOperators = "TaintTolerationComparisonOperators",
}

/// `featureGates`: the gates that are not at their default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeatureGates {
    changed: SortedSet<Gate>,
}

/// One gate a line: the stage (`A`lpha, `B`eta, `G`A, `D`eprecated), the default (`+` or `-`), its [`Standing`], and
/// its name. From pkg/features and the packages whose gates the kubelet registers. The build packs them.
const PACKED_GATES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/feature_gates.gz"));

/// What Coracle does with a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// `h`: honours it. It has a [`Gate`].
    Honoured,
    /// `L`: refuses another value than the default, as upstream.
    Locked,
    /// `a`: the feature is always on.
    AlwaysOn,
    /// `n`: Coracle does not have the feature, and turning it on is refused.
    Missing,
    /// `e`: switches nothing, as in this version of the kubelet, or unlike it: docs/configuration.md has the reasons.
    Empty,
    /// `s`: of the API server, the scheduler and the controllers.
    OtherComponent,
    /// `c`: of Go's client, logging and metrics libraries.
    GoLibrary,
    /// `w`: of nodes with Windows.
    Windows,
}

/// A line of [`PACKED_GATES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownGate<'a> {
    name: &'a str,
    stage: char,
    default: bool,
    standing: Standing,
}

pub(super) const FEATURE_GATES_FIELD: &str = "featureGates";

impl FeatureGates {
    pub(crate) fn is_on(&self, gate: Gate) -> bool {
        gate.is_on_by_default() != self.changed.contains(&gate)
    }

    /// The reason to refuse what needs a gate that is off.
    pub(crate) fn require(&self, gate: Gate) -> Result<(), String> {
        self.is_on(gate).then_some(()).ok_or_else(|| format!("the feature gate {} is off", gate.name()))
    }

    /// Whether the node has a feature that nodes declare to the scheduler.
    pub(crate) fn has_feature(&self, feature: &str) -> bool {
        Gate::of(feature).is_none_or(|gate| self.is_on(gate))
    }

    #[cfg(test)]
    pub(crate) fn with(mut self, gate: Gate, on: bool) -> Self {
        self.set(gate, on);
        self
    }

    /// Reads the gates. Warns of each that upstream will remove, and of settings without effect.
    pub(super) fn read(fields: &Fields<'_>, warnings: &mut Vec<String>) -> Result<Self, Problem> {
        let configured_gates = fields.at(FEATURE_GATES_FIELD).and_then(Value::as_object);
        let table = configured_gates.map(|_| unpacked_text(PACKED_GATES)).unwrap_or_default();
        let configured_gates =
            || configured_gates.into_iter().flatten().map(|(name, value)| (&**name, value.as_bool() == Some(true)));
        let mut gates = Self::default();
        let mut ineffective: SortedMap<Standing, Vec<String>> = SortedMap::new();
        for (stage, on) in configured_gates().filter_map(|(name, on)| Some((stage_of_all(name)?, on))) {
            let gates_of_stage =
                known_gates(&table).filter(|gate| gate.stage == stage && gate.standing == Standing::Honoured);
            gates_of_stage.filter_map(|known_gate| Gate::of(known_gate.name)).for_each(|gate| gates.set(gate, on));
        }
        for (name, on) in configured_gates().filter(|(name, _)| stage_of_all(name).is_none()) {
            let known_gate = known_gates(&table).find(|known_gate| known_gate.name == name);
            let known_gate = known_gate.ok_or_else(|| unknown(name, &table))?;
            known_gate.check(on)?;
            if let Some(gate) = Gate::of(name) {
                gates.set(gate, on);
            } else if !known_gate.has_effect(on) {
                ineffective.entry(known_gate.standing).or_default().push(format!("{name}={on}"));
            }
            warnings.extend(known_gate.removal().map(|why| format!("feature gate {name} {why}")));
        }
        let lines = ineffective.iter().map(|(standing, gates)| format!("{}: {}", standing.why(), gates.join(", ")));
        warnings.extend(lines);
        gates.check(fields)?;
        Ok(gates)
    }

    fn set(&mut self, gate: Gate, on: bool) {
        if on == gate.is_on_by_default() {
            self.changed.remove(&gate);
        } else {
            self.changed.insert(gate);
        }
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
const FIELDS: [(&str, Gate); 10] = [
    ("shutdownGracePeriod", Gate::GracefulNodeShutdown),
    ("shutdownGracePeriodCriticalPods", Gate::GracefulNodeShutdown),
    ("shutdownGracePeriodByPodPriority", Gate::GracefulNodeShutdownBasedOnPodPriority),
    ("serverTLSBootstrap", Gate::RotateKubeletServerCertificate),
    ("crashLoopBackOff.maxContainerRestartPeriod", Gate::KubeletCrashLoopBackOffMax),
    ("imagePullCredentialsVerificationPolicy", Gate::KubeletEnsureSecretPulledImages),
    ("preloadedImagesVerificationAllowlist", Gate::KubeletEnsureSecretPulledImages),
    ("cpuManagerPolicyOptions.distribute-cpus-across-numa", Gate::CpuManagerPolicyBetaOptions),
    ("cpuCFSQuotaPeriod", Gate::CustomCpuCfsQuotaPeriod),
    ("memoryReservationPolicy", Gate::MemoryQos),
];

fn is_default(path: &str, fields: &Fields<'_>) -> bool {
    let default = match path {
        "cpuCFSQuotaPeriod" => "100ms",
        "memoryReservationPolicy" => "None",
        _ => return false,
    };
    fields.text(path) == Some(default)
}

fn known_gates(table: &str) -> impl Iterator<Item = KnownGate<'_>> {
    table.lines().filter_map(|line| {
        let (marks, name) = line.split_once(' ')?;
        let mut marks = marks.chars();
        let (stage, default, standing) = (marks.next()?, marks.next()?, marks.next()?);
        Some(KnownGate { name, stage, default: default == '+', standing: Standing::of(standing)? })
    })
}

/// The stage of the gates that this one sets.
fn stage_of_all(name: &str) -> Option<char> {
    match name {
        "AllAlpha" => Some('A'),
        "AllBeta" => Some('B'),
        _ => None,
    }
}

fn unknown(name: &str, table: &str) -> Problem {
    let suggestion = nearest(name, known_gates(table).map(|gate| gate.name));
    let suggestion = suggestion.map(|suggestion| format!(" (did you mean {suggestion}?)"));
    conflict(FEATURE_GATES_FIELD, format!("unrecognized feature gate: {name}{}", suggestion.unwrap_or_default()))
}

impl KnownGate<'_> {
    fn check(&self, on: bool) -> Result<(), Problem> {
        if on == self.default {
            return Ok(());
        }
        let why = match self.standing {
            Standing::Locked => format!("cannot be set to {on}, as the feature is locked to {}", self.default),
            Standing::Missing if on => "cannot be set to true, as Coracle does not have the feature".to_owned(),
            _ => return Ok(()),
        };
        Err(conflict(&format!("{FEATURE_GATES_FIELD}.{}", self.name), why))
    }

    /// Whether the node is as the setting asks, or as it would be without the setting.
    fn has_effect(&self, on: bool) -> bool {
        match self.standing {
            Standing::Honoured | Standing::Locked | Standing::Missing => true,
            Standing::AlwaysOn => on || !self.default,
            Standing::Empty | Standing::OtherComponent | Standing::GoLibrary | Standing::Windows => on == self.default,
        }
    }

    fn removal(&self) -> Option<&'static str> {
        match self.stage {
            'G' => Some("is GA and will be removed in a future release"),
            'D' => Some("is deprecated and will be removed in a future release"),
            _ => None,
        }
    }
}

impl Standing {
    fn of(mark: char) -> Option<Self> {
        Some(match mark {
            'h' => Self::Honoured,
            'L' => Self::Locked,
            'a' => Self::AlwaysOn,
            'n' => Self::Missing,
            'e' => Self::Empty,
            's' => Self::OtherComponent,
            'c' => Self::GoLibrary,
            'w' => Self::Windows,
            _ => return None,
        })
    }

    /// Why a setting has no effect.
    fn why(self) -> &'static str {
        match self {
            Self::Honoured | Self::Locked | Self::Missing => "feature gates",
            Self::AlwaysOn => "feature gates without effect, Coracle always has the feature",
            Self::Empty => "feature gates without effect, they switch nothing in Coracle",
            Self::OtherComponent => "feature gates without effect here, they are of other components",
            Self::GoLibrary => "feature gates without effect, they are of libraries that Coracle does not contain",
            Self::Windows => "feature gates without effect here, they are of Windows",
        }
    }
}

impl Gate {
    const fn is_on_by_default(self) -> bool {
        !matches!(
            self,
            Self::AllowDnsOnlyNodeCsr
                | Self::ContainerStopSignals
                | Self::ReduceDefaultCrashLoopBackOffDecay
                | Self::TaintTolerationComparisonOperators
        )
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|gate| gate.name() == name)
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
    fn every_gate_of_upstream_is_honoured_or_declared() {
        let upstream = include_str!("../../../tests/data/upstream-1.36/gates.txt");
        let newer = include_str!("../../../tests/data/upstream-1.37/gates.txt");
        let newer_names: Vec<_> = newer.lines().map(|line| line.split(' ').next().unwrap()).collect();
        let is_as_before = |line: &&str| !newer_names.contains(&line.split(' ').next().unwrap());
        let upstream = upstream.lines().filter(is_as_before).chain(newer.lines());
        let stages = [('A', "Alpha"), ('B', "Beta"), ('D', "Deprecated"), ('G', "GA")];
        let recorded = upstream.map(|line| {
            let mut words = line.split(' ');
            let (name, stage, default) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            let stage = stages.iter().find(|(_, word)| *word == stage).unwrap().0;
            (name, stage, default == "default=true", words.next() == Some("locked"))
        });
        let table = unpacked_text(PACKED_GATES);
        fn of_known(known: KnownGate<'_>) -> (&str, char, bool, bool) {
            (known.name, known.stage, known.default, known.standing == Standing::Locked)
        }
        let recorded: Vec<_> = recorded.collect();
        let all: Vec<_> = known_gates(&table).map(of_known).collect();
        assert!(recorded.len() > 200);
        let unknown: Vec<_> = recorded.iter().filter(|gate| !all.contains(gate)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert_eq!((all.len(), all.is_sorted()), (table.lines().count(), true));
        // The list has the gates of pkg/features; the kubelet registers those of its libraries, too.
        for known in known_gates(&table).filter(|known| !recorded.contains(&of_known(*known))) {
            assert!(matches!(known.standing, Standing::GoLibrary | Standing::Locked), "{known:?}");
        }
        for known in known_gates(&table) {
            let gate = Gate::of(known.name);
            assert_eq!(known.standing == Standing::Honoured, gate.is_some(), "{known:?}");
            assert!(gate.is_none_or(|gate| gate.is_on_by_default() == known.default), "{known:?}");
        }
        assert!(Gate::ALL.iter().all(|gate| known_gates(&table).any(|known| known.name == gate.name())));
    }

    #[test]
    fn every_gate_may_have_both_values_unless_it_is_locked_or_missing() {
        let table = unpacked_text(PACKED_GATES);
        for known in known_gates(&table) {
            for on in [false, true] {
                let read = read(&json!({"featureGates": {known.name: on}}));
                if known.standing == Standing::Locked && on != known.default {
                    let locked = format!("cannot be set to {on}, as the feature is locked to {}", known.default);
                    assert_eq!(read.unwrap_err(), format!("featureGates.{}: {locked}", known.name));
                    continue;
                }
                if known.standing == Standing::Missing && on {
                    let missing = "cannot be set to true, as Coracle does not have the feature";
                    assert_eq!(read.unwrap_err(), format!("featureGates.{}: {missing}", known.name));
                    continue;
                }
                let (gates, warnings) = read.unwrap();
                let is_named = warnings.iter().any(|line| line.ends_with(&format!(": {}={on}", known.name)));
                assert_eq!(is_named, !known.has_effect(on), "{known:?} {warnings:?}");
                if let Some(gate) = Gate::of(known.name) {
                    assert_eq!(gates.is_on(gate), on, "{known:?}");
                }
            }
        }
    }

    #[test]
    fn gate_that_is_off_turns_its_feature_off_and_no_other() {
        let (gates, warnings) = read(&json!({"featureGates": {"ContainerCheckpoint": false}})).unwrap();
        assert!(!gates.is_on(Gate::ContainerCheckpoint) && gates.is_on(Gate::ComponentStatusz));
        assert!(!gates.is_on(Gate::ContainerStopSignals));
        assert!(warnings.is_empty());
        let (gates, _) = read(&json!({"featureGates": {"ContainerCheckpoint": true, "AllAlpha": false}})).unwrap();
        assert_eq!(gates, FeatureGates::default());
    }

    #[test]
    fn all_gates_of_a_stage_are_set_unless_they_are_named() {
        let fields = json!({"featureGates": {"AllAlpha": true, "AllBeta": false, "ComponentFlagz": true}});
        let (gates, warnings) = read(&fields).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let on: Vec<&Gate> = Gate::ALL.iter().filter(|gate| gates.is_on(**gate)).collect();
        let expected = [
            Gate::ClusterTrustBundleProjection,
            Gate::ComponentFlagz,
            Gate::ContainerStopSignals,
            Gate::CustomCpuCfsQuotaPeriod,
            Gate::DisableCpuQuotaWithExclusiveCpus,
            Gate::DraExtendedResource,
            Gate::EnvFiles,
            Gate::HostnameOverride,
            Gate::KubeletPodResourcesListUseActivePods,
            Gate::NodeDeclaredFeatures,
            Gate::PodCertificateRequest,
            Gate::PodLevelResources,
            Gate::PodReadyToStartContainersCondition,
            Gate::ReduceDefaultCrashLoopBackOffDecay,
            Gate::TaintTolerationComparisonOperators,
        ];
        assert_eq!(on, expected.iter().collect::<Vec<_>>());
    }

    #[test]
    fn unknown_and_locked_gates_are_refused() {
        let expected = "featureGates: unrecognized feature gate: NodeSwapp (did you mean NodeSwap?)";
        check_refused("NodeSwapp", true, expected);
        let locked = "featureGates.NodeSwap: cannot be set to false, as the feature is locked to true";
        check_refused("NodeSwap", false, locked);
        let missing = "featureGates.PodsAPI: cannot be set to true, as Coracle does not have the feature";
        check_refused("PodsAPI", true, missing);
    }

    #[test]
    fn settings_without_effect_are_named_with_the_reason() {
        let fields = json!({"featureGates": {
            "NodeSwap": true, "WatchList": false, "JobBackoffLimitPerIndex": true,
            "PreventStaticPodAPIReferences": false, "WatchListClient": false, "EventedPLEG": true,
            "PLEGOnDemandRelist": false,
        }});
        let (gates, mut warnings) = read(&fields).unwrap();
        assert_eq!(gates, FeatureGates::default());
        warnings.sort();
        let removed = "is GA and will be removed in a future release";
        assert_eq!(
            warnings,
            [
                &format!("feature gate JobBackoffLimitPerIndex {removed}"),
                &format!("feature gate NodeSwap {removed}"),
                "feature gates without effect here, they are of other components: WatchList=false",
                "feature gates without effect, Coracle always has the feature: PLEGOnDemandRelist=false",
                "feature gates without effect, they are of libraries that Coracle does not contain: \
                 WatchListClient=false",
                "feature gates without effect, they switch nothing in Coracle: \
                 PreventStaticPodAPIReferences=false",
            ]
        );
    }

    #[test]
    fn field_of_a_feature_that_is_off_is_refused() {
        for (path, gate) in FIELDS {
            let value = match path {
                "serverTLSBootstrap" => json!(true),
                "shutdownGracePeriodByPodPriority" => json!([{"priority": 0, "shutdownGracePeriodSeconds": 5}]),
                "cpuCFSQuotaPeriod" => json!("50ms"),
                "memoryReservationPolicy" => json!("TieredReservation"),
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
