//! The effective configuration in the form of upstream's `/configz`: the given fields over the defaults. Pure.

use serde_json::{Map, Value, json};

use super::cgroups::CgroupDriver;
use super::duration;
use super::schema::{Field, KUBELET_CONFIGURATION, Kind};
use crate::types::text::without_credentials;

/// The fields given in files and by flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfiguredFields {
    /// As JSON: compact, and parsed only on request.
    fields: Box<str>,
    flags: Vec<(String, String)>,
}

impl ConfiguredFields {
    pub(super) fn new(fields: &Map<String, Value>, flags: Vec<(String, String)>) -> Self {
        // Only fails for maps with keys other than strings.
        Self { fields: serde_json::to_string(fields).unwrap_or_default().into(), flags }
    }

    /// The flags of the command line in their order, with secrets masked.
    pub(crate) fn flags(&self) -> &[(String, String)] {
        &self.flags
    }

    /// `{"kubeletconfig": {...}}`, with the runtime's cgroup driver and with secrets masked.
    pub(crate) fn page(&self, cgroup_driver: CgroupDriver) -> Vec<u8> {
        let configured: Map<String, Value> = serde_json::from_str(&self.fields).unwrap_or_default();
        let mut shown: Map<String, Value> = serde_json::from_str(DEFAULTS).unwrap_or_default();
        if configured.get("cgroupsPerQOS") == Some(&Value::Bool(false)) {
            shown.remove("enforceNodeAllocatable");
        }
        if configured.get("maxParallelImagePulls").and_then(Value::as_i64).is_some_and(|pulls| pulls > 1) {
            shown.insert("serializeImagePulls".to_owned(), Value::Bool(false));
        }
        lay_over(&mut shown, configured, KUBELET_CONFIGURATION);
        if let Some(Value::Object(headers)) = shown.get_mut("staticPodURLHeader") {
            headers.values_mut().for_each(|values| *values = json!(["<masked>"]));
        }
        if let Some(Value::String(url)) = shown.get_mut("staticPodURL") {
            *url = without_credentials(url);
        }
        let driver = match cgroup_driver {
            CgroupDriver::Cgroupfs => "cgroupfs",
            CgroupDriver::Systemd => "systemd",
        };
        shown.insert("cgroupDriver".to_owned(), json!(driver));
        json!({ "kubeletconfig": shown }).to_string().into_bytes()
    }
}

/// Overwrites the shown values by the given ones, except for those that mean the default.
fn lay_over(shown: &mut Map<String, Value>, configured: Map<String, Value>, fields: &[Field]) {
    for (name, value) in configured {
        let Some(field) = fields.iter().find(|field| field.name == name) else { continue };
        match (&field.kind, value) {
            (_, Value::Null) => {}
            (Kind::Object(fields), Value::Object(configured)) => {
                let inner = shown.entry(name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(inner) = inner {
                    lay_over(inner, configured, fields);
                }
            }
            (_, value) if shown.contains_key(&name) && means_default(field, &value) => {}
            (kind, value) => drop(shown.insert(name, as_go(kind, value))),
        }
    }
}

/// Whether null, zero or an empty value means the default.
fn means_default(field: &Field, value: &Value) -> bool {
    match (&field.kind, value) {
        (Kind::Duration(..) | Kind::AnyDuration, Value::String(text)) => {
            duration::parse(text).is_some_and(|duration| duration.size.is_zero())
        }
        (Kind::Path, Value::String(text)) => text.is_empty() && !MAY_BE_NOTHING.contains(&field.name),
        (_, Value::String(text)) => text.is_empty(),
        (Kind::LogDuration, value) => value.as_i64() == Some(0),
        (Kind::Int(..), value) => value.as_i64() == Some(0) && !MAY_BE_ZERO.contains(&field.name),
        _ => false,
    }
}

/// Converts a value to the form in which Go's types are encoded.
fn as_go(kind: &Kind, value: Value) -> Value {
    match (kind, value) {
        (Kind::Duration(..) | Kind::AnyDuration | Kind::LogDuration, Value::String(text)) => {
            Value::String(duration::parse(&text).map_or(text, |duration| duration.to_string()))
        }
        (Kind::Quantity | Kind::Threshold, Value::Number(number)) => Value::String(number.to_string()),
        (Kind::List(kind), Value::Array(items)) => items.into_iter().map(|item| as_go(kind, item)).collect(),
        (Kind::Map(kind) | Kind::Keys(_, kind), Value::Object(values)) => {
            Value::Object(values.into_iter().map(|(name, value)| (name, as_go(kind, value))).collect())
        }
        (_, value) => value,
    }
}

/// Paths that may be set to empty.
const MAY_BE_NOTHING: &[&str] = &["staticPodPath", "resolvConf"];
/// Numbers for which zero is not the default.
const MAY_BE_ZERO: &[&str] = &[
    "eventRecordQPS",
    "healthzPort",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "maxPods",
    "nodeStatusMaxImages",
    "oomScoreAdj",
    "registryPullQPS",
    "verbosity",
];

/// Upstream's defaults, except for Coracle's own: the manifest path and the images in the node status.
const DEFAULTS: &str = r#"{
"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1","enableServer":true,
"staticPodPath":"/etc/kubernetes/manifests","podLogsDir":"/var/log/pods","syncFrequency":"1m0s",
"fileCheckFrequency":"20s","httpCheckFrequency":"20s","address":"0.0.0.0","port":10250,
"authentication":{"x509":{},"webhook":{"enabled":true,"cacheTTL":"2m0s"},"anonymous":{"enabled":false}},
"authorization":{"mode":"Webhook","webhook":{"cacheAuthorizedTTL":"5m0s","cacheUnauthorizedTTL":"30s"}},
"registryPullQPS":5,"registryBurst":10,"imagePullCredentialsVerificationPolicy":"NeverVerifyPreloadedImages",
"eventRecordQPS":50,"eventBurst":100,"enableDebuggingHandlers":true,"healthzPort":10248,
"healthzBindAddress":"127.0.0.1","oomScoreAdj":-999,"streamingConnectionIdleTimeout":"4h0m0s",
"nodeStatusUpdateFrequency":"10s","nodeStatusReportFrequency":"5m0s","nodeLeaseDurationSeconds":40,
"imageMinimumGCAge":"2m0s","imageMaximumGCAge":"0s","imageGCHighThresholdPercent":85,
"imageGCLowThresholdPercent":80,"volumeStatsAggPeriod":"1m0s","cgroupsPerQOS":true,"cpuManagerPolicy":"none",
"cpuManagerReconcilePeriod":"10s","memoryManagerPolicy":"None","topologyManagerPolicy":"none",
"topologyManagerScope":"container","runtimeRequestTimeout":"2m0s","hairpinMode":"promiscuous-bridge","maxPods":110,
"podPidsLimit":-1,"resolvConf":"/etc/resolv.conf","cpuCFSQuota":true,"cpuCFSQuotaPeriod":"100ms",
"nodeStatusMaxImages":0,"maxOpenFiles":1000000,"contentType":"application/vnd.kubernetes.protobuf","kubeAPIQPS":50,
"kubeAPIBurst":100,"serializeImagePulls":true,"evictionHard":{"imagefs.available":"15%","imagefs.inodesFree":"5%",
"memory.available":"100Mi","nodefs.available":"10%","nodefs.inodesFree":"5%"},
"evictionPressureTransitionPeriod":"5m0s","mergeDefaultEvictionSettings":false,"enableControllerAttachDetach":true,
"makeIPTablesUtilChains":true,"iptablesMasqueradeBit":14,"iptablesDropBit":15,"failSwapOn":true,"memorySwap":{},
"containerLogMaxSize":"10Mi","containerLogMaxFiles":5,"containerLogMaxWorkers":1,"containerLogMonitorInterval":"10s",
"configMapAndSecretChangeDetectionStrategy":"Watch","enforceNodeAllocatable":["pods"],
"volumePluginDir":"/usr/libexec/kubernetes/kubelet-plugins/volume/exec/","logging":{"format":"text",
"flushFrequency":"5s","verbosity":0,"options":{"text":{"infoBufferSize":"0"},"json":{"infoBufferSize":"0"}}},
"enableSystemLogHandler":true,"enableSystemLogQuery":false,"shutdownGracePeriod":"0s",
"shutdownGracePeriodCriticalPods":"0s","crashLoopBackOff":{"maxContainerRestartPeriod":"5m0s"},
"enableProfilingHandler":true,"enableDebugFlagsHandler":true,"seccompDefault":false,
"memoryReservationPolicy":"None","registerNode":true,"localStorageCapacityIsolation":true,
"containerRuntimeEndpoint":"unix:///run/containerd/containerd.sock","failCgroupV1":false}"#;
