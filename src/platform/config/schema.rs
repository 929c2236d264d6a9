//! The schema of `kubelet.config.k8s.io/v1beta1`: types, bounds, and whether Coracle supports each field. Pure.

use std::time::Duration;

/// What a value must be.
#[derive(Debug)]
pub(super) enum Kind {
    Bool,
    /// The attribute of a device: a string, a whole number, a boolean, or a version.
    Attribute,
    /// A boolean as a string: `"true"`.
    BoolText,
    /// An integer with its minimum and maximum.
    Int(i64, i64),
    Number(f64, f64),
    Text,
    /// One of these words, or empty. The first one is the default behaviour.
    Word(&'static [&'static str]),
    /// A file or directory; relative to the file that names it.
    Path,
    /// An absolute and normalized path in ASCII, which means the same to the runtime.
    AbsolutePath,
    /// A TLS cipher suite that Go knows.
    CipherSuite,
    /// The socket of a runtime: `unix:///path`.
    Endpoint,
    Ip,
    /// CPU numbers such as `0-1,4`.
    Cpus,
    /// A namespaced sysctl, or a prefix of several followed by `*`.
    Sysctl,
    Duration(Duration, Duration),
    /// A duration that a negative value disables.
    AnyDuration,
    /// A duration, or a number of nanoseconds.
    LogDuration,
    Quantity,
    /// A quantity of any sign, or an empty string for the default.
    AnyQuantity,
    /// A quantity or a percentage.
    Threshold,
    Percent,
    List(&'static Kind),
    /// A mapping with arbitrary keys.
    Map(&'static Kind),
    /// A mapping with these keys.
    Keys(&'static [&'static str], &'static Kind),
    /// A mapping of named options, which the kubelet decodes as any mapping: a manager refuses unknown names later.
    Options(&'static [Field]),
    Object(&'static [Field]),
}

/// One field of a mapping.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) standing: FieldSupport,
}

/// How a field is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldSupport {
    InForce,
    /// Accepted and reported, but not supported yet.
    NotYet,
    /// Without effect in the kubelet too, or about a part that is built differently here. Reported as well.
    Moot,
    /// Only `true`, the default, is supported; `false` is reported.
    OnlyTrue,
    /// Refused, because ignoring it would be worse than not starting.
    Refused,
}

const fn used(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, standing: FieldSupport::InForce }
}

const fn later(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, standing: FieldSupport::NotYet }
}

const fn moot(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, standing: FieldSupport::Moot }
}

const fn only_true(name: &'static str) -> Field {
    Field { name, kind: Kind::Bool, standing: FieldSupport::OnlyTrue }
}

const fn refused(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, standing: FieldSupport::Refused }
}

/// Go's longest duration: upstream refuses what is longer.
const MAX_GO_DURATION: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());
const DURATION: Kind = Kind::Duration(Duration::ZERO, MAX_GO_DURATION);
const COUNT: Kind = Kind::Int(0, i32::MAX as i64);
const INT32: Kind = Kind::Int(i32::MIN as i64, i32::MAX as i64);
const PORT: Kind = Kind::Int(0, 65535);
const PERCENT: Kind = Kind::Int(0, 100);
const TEXTS: Kind = Kind::List(&Kind::Text);
const TEXT_MAP: Kind = Kind::Map(&Kind::Text);

pub(super) const TAINT_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The file of `--coracle-config`.
pub(super) const CORACLE_FILE: &[Field] = &[
    used("nameTemplate", Kind::Text),
    used("reenrolment", Kind::Object(&[used("secret", Kind::Text), used("tpm", Kind::Text)])),
    used("sync", Kind::Object(SYNC)),
    used("images", Kind::Object(IMAGE_FETCH)),
    used("devices", Kind::List(&Kind::Object(DEVICE_RULE))),
    used("apiEndpoint", Kind::Object(&[used("listen", Kind::Text), used("serviceAccounts", TEXTS)])),
    used("updates", Kind::Object(&[used("lockLimit", Kind::Duration(Duration::ZERO, MAX_UPDATE_LOCK_LIMIT))])),
];
/// As the largest limit of a pod.
pub(super) const MAX_UPDATE_LOCK_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// The file of `--join-file`.
pub(super) const JOIN_FILE: &[Field] = &[
    used("apiServerEndpoint", Kind::Text),
    used("token", Kind::Text),
    used("caCertHashes", TEXTS),
    used("unsafeSkipCAVerification", Kind::Bool),
    used("nodeName", Kind::Text),
    used("nameTemplate", Kind::Text),
    used("labels", TEXT_MAP),
    used("taints", Kind::List(&Kind::Object(TAINT))),
    used("kubernetesDir", Kind::Path),
];

const DEVICE_RULE: &[Field] = &[
    used("resource", Kind::Text),
    used("paths", TEXTS),
    used("permissions", Kind::Text),
    used("attributes", Kind::Map(&Kind::Attribute)),
];

const IMAGE_FETCH: &[Field] = &[
    used("fetch", Kind::Word(&["runtime", "resumable"])),
    used("hostsDirectory", Kind::Path),
    used("windows", TEXTS),
    used("bytesPerDay", Kind::Quantity),
    used("bytesPerSecond", Kind::Quantity),
    used("share", Kind::Bool),
    used("peers", TEXTS),
    used("signaturePolicy", Kind::Path),
    used("runtimeVerifiers", Kind::Path),
];

const SYNC: &[Field] = &[
    used("mode", Kind::Word(&["watch", "poll", "windows", "manual"])),
    used("every", Kind::Duration(Duration::from_secs(1), Duration::from_secs(30 * 24 * 3600))),
    used("windows", TEXTS),
    used("whileInterface", Kind::Text),
    used("lease", Kind::Object(&[used("duration", LEASE)])),
    used("bytesPerDay", Kind::Quantity),
    used("includesImages", Kind::Bool),
];
/// Renewed four times per duration; an int32 in the API.
const LEASE: Kind = Kind::Duration(Duration::from_secs(4), Duration::from_secs(i32::MAX.unsigned_abs() as u64));

/// The top level, in the order of the API type.
pub(super) const KUBELET_CONFIGURATION: &[Field] = &[
    used("kind", Kind::Text),
    used("apiVersion", Kind::Text),
    used("enableServer", Kind::Bool),
    used("staticPodPath", Kind::Path),
    used("podLogsDir", Kind::AbsolutePath),
    used("syncFrequency", DURATION),
    used("fileCheckFrequency", DURATION),
    used("httpCheckFrequency", DURATION),
    used("staticPodURL", Kind::Text),
    used("staticPodURLHeader", Kind::Map(&TEXTS)),
    used("address", Kind::Ip),
    used("port", PORT),
    used("readOnlyPort", PORT),
    used("tlsCertFile", Kind::Path),
    used("tlsPrivateKeyFile", Kind::Path),
    used("tlsCipherSuites", Kind::List(&Kind::CipherSuite)),
    used("tlsCurvePreferences", Kind::List(&INT32)),
    used("tlsMinVersion", Kind::Word(&["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"])),
    used("rotateCertificates", Kind::Bool),
    used("serverTLSBootstrap", Kind::Bool),
    used("authentication", Kind::Object(AUTHENTICATION)),
    used("authorization", Kind::Object(AUTHORIZATION)),
    used("registryPullQPS", COUNT),
    used("registryBurst", COUNT),
    used("imagePullCredentialsVerificationPolicy", Kind::Word(CREDENTIALS_VERIFICATION)),
    used("preloadedImagesVerificationAllowlist", TEXTS),
    used("eventRecordQPS", COUNT),
    used("eventBurst", COUNT),
    used("enableDebuggingHandlers", Kind::Bool),
    later("enableContentionProfiling", Kind::Bool),
    used("healthzPort", PORT),
    used("healthzBindAddress", Kind::Ip),
    used("oomScoreAdj", Kind::Int(-1000, 1000)),
    used("clusterDomain", Kind::Text),
    used("clusterDNS", TEXTS),
    moot("streamingConnectionIdleTimeout", Kind::AnyDuration),
    moot("nodeStatusUpdateFrequency", DURATION),
    used("nodeStatusReportFrequency", DURATION),
    used("nodeLeaseDurationSeconds", COUNT),
    used("imageMinimumGCAge", DURATION),
    used("imageMaximumGCAge", DURATION),
    used("imageGCHighThresholdPercent", PERCENT),
    used("imageGCLowThresholdPercent", PERCENT),
    later("volumeStatsAggPeriod", Kind::AnyDuration),
    later("kubeletCgroups", Kind::Text),
    used("systemCgroups", Kind::Text),
    used("cgroupRoot", Kind::Text),
    used("cgroupsPerQOS", Kind::Bool),
    used("cgroupDriver", Kind::Word(&["cgroupfs", "systemd"])),
    used("cpuManagerPolicy", Kind::Word(&["none", "static"])),
    used("singleProcessOOMKill", Kind::Bool),
    used("cpuManagerPolicyOptions", Kind::Options(CPU_MANAGER_OPTIONS)),
    moot("cpuManagerReconcilePeriod", DURATION),
    used("memoryManagerPolicy", Kind::Word(&["None", "Static"])),
    used("topologyManagerPolicy", Kind::Word(&["none", "best-effort", "restricted", "single-numa-node"])),
    used("topologyManagerScope", Kind::Word(&["container", "pod"])),
    used("topologyManagerPolicyOptions", Kind::Options(TOPOLOGY_MANAGER_OPTIONS)),
    later("qosReserved", Kind::Keys(&["memory"], &Kind::Percent)),
    used("runtimeRequestTimeout", DURATION),
    moot("hairpinMode", Kind::Word(&["promiscuous-bridge", "hairpin-veth", "none"])),
    used("maxPods", COUNT),
    later("podCIDR", Kind::Text),
    used("podPidsLimit", Kind::Int(-1, i64::MAX)),
    used("resolvConf", Kind::Path),
    refused("runOnce", Kind::Bool),
    used("cpuCFSQuota", Kind::Bool),
    used("cpuCFSQuotaPeriod", Kind::Duration(Duration::from_millis(1), Duration::from_secs(1))),
    used("nodeStatusMaxImages", Kind::Int(-1, i32::MAX as i64)),
    moot("maxOpenFiles", Kind::Int(0, i64::MAX)),
    later("contentType", Kind::Text),
    later("kubeAPIQPS", COUNT),
    later("kubeAPIBurst", COUNT),
    used("serializeImagePulls", Kind::Bool),
    used("maxParallelImagePulls", Kind::Int(1, i32::MAX as i64)),
    used("evictionHard", Kind::Keys(SIGNALS, &Kind::Threshold)),
    used("evictionSoft", Kind::Keys(SIGNALS, &Kind::Threshold)),
    used("evictionSoftGracePeriod", Kind::Keys(SIGNALS, &DURATION)),
    used("evictionPressureTransitionPeriod", DURATION),
    used("evictionMaxPodGracePeriod", INT32),
    used("evictionMinimumReclaim", Kind::Keys(SIGNALS, &Kind::Threshold)),
    used("mergeDefaultEvictionSettings", Kind::Bool),
    used("podsPerCore", COUNT),
    only_true("enableControllerAttachDetach"),
    used("protectKernelDefaults", Kind::Bool),
    used("makeIPTablesUtilChains", Kind::Bool),
    moot("iptablesMasqueradeBit", INT32),
    moot("iptablesDropBit", INT32),
    used("featureGates", Kind::Map(&Kind::Bool)),
    used("failSwapOn", Kind::Bool),
    used("memorySwap", Kind::Object(MEMORY_SWAP)),
    used("containerLogMaxSize", Kind::AnyQuantity),
    used("containerLogMaxFiles", Kind::Int(2, i32::MAX as i64)),
    used("containerLogMaxWorkers", Kind::Int(1, i32::MAX as i64)),
    used("containerLogMonitorInterval", Kind::Duration(Duration::from_secs(3), MAX_GO_DURATION)),
    later("configMapAndSecretChangeDetectionStrategy", Kind::Word(&["Watch", "Cache", "Get"])),
    used("systemReserved", Kind::Keys(RESERVABLE, &Kind::Quantity)),
    used("kubeReserved", Kind::Keys(RESERVABLE, &Kind::Quantity)),
    used("reservedSystemCPUs", Kind::Cpus),
    later("showHiddenMetricsForVersion", Kind::Text),
    used("systemReservedCgroup", Kind::Text),
    used("kubeReservedCgroup", Kind::Text),
    used("enforceNodeAllocatable", Kind::List(&Kind::Word(ENFORCEABLE))),
    used("allowedUnsafeSysctls", Kind::List(&Kind::Sysctl)),
    later("defaultPodSysctls", TEXT_MAP),
    later("volumePluginDir", Kind::Path),
    used("providerID", Kind::Text),
    moot("kernelMemcgNotification", Kind::Bool),
    used("logging", Kind::Object(LOGGING)),
    used("enableSystemLogHandler", Kind::Bool),
    used("enableSystemLogQuery", Kind::Bool),
    used("shutdownGracePeriod", DURATION),
    used("shutdownGracePeriodCriticalPods", DURATION),
    used("shutdownGracePeriodByPodPriority", Kind::List(&Kind::Object(SHUTDOWN_BY_PRIORITY))),
    used("crashLoopBackOff", Kind::Object(CRASH_LOOP_BACK_OFF)),
    used("reservedMemory", Kind::List(&Kind::Object(RESERVED_MEMORY))),
    used("enableProfilingHandler", Kind::Bool),
    used("enableDebugFlagsHandler", Kind::Bool),
    used("seccompDefault", Kind::Bool),
    used("memoryThrottlingFactor", Kind::Number(0.0, 1.0)),
    used("memoryReservationPolicy", Kind::Word(&["None", "TieredReservation"])),
    used("registerWithTaints", Kind::List(&Kind::Object(TAINT))),
    used("registerNode", Kind::Bool),
    used("tracing", Kind::Object(TRACING)),
    used("localStorageCapacityIsolation", Kind::Bool),
    used("containerRuntimeEndpoint", Kind::Endpoint),
    used("imageServiceEndpoint", Kind::Endpoint),
    used("failCgroupV1", Kind::Bool),
    used("userNamespaces", Kind::Object(USER_NAMESPACES)),
];

/// The top level of `CredentialProviderConfig` in `kubelet.config.k8s.io/v1`.
pub(super) const CREDENTIAL_PROVIDER_CONFIG: &[Field] = &[
    used("kind", Kind::Text),
    used("apiVersion", Kind::Text),
    used("providers", Kind::List(&Kind::Object(CREDENTIAL_PROVIDER))),
];

const CREDENTIAL_PROVIDER: &[Field] = &[
    used("name", Kind::Text),
    used("matchImages", TEXTS),
    used("defaultCacheDuration", DURATION),
    used("apiVersion", Kind::Word(PROVIDER_VERSIONS)),
    used("args", TEXTS),
    used("env", Kind::List(&Kind::Object(&[used("name", Kind::Text), used("value", Kind::Text)]))),
    used("tokenAttributes", Kind::Object(TOKEN_ATTRIBUTES)),
];

const TOKEN_ATTRIBUTES: &[Field] = &[
    used("serviceAccountTokenAudience", Kind::Text),
    used("cacheType", Kind::Word(&["ServiceAccount", "Token"])),
    used("requireServiceAccount", Kind::Bool),
    used("requiredServiceAccountAnnotationKeys", TEXTS),
    used("optionalServiceAccountAnnotationKeys", TEXTS),
];

/// The versions of plugin requests and responses.
pub(super) const PROVIDER_VERSIONS: &[&str] = &[
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

const AUTHENTICATION: &[Field] = &[
    used("x509", Kind::Object(&[used("clientCAFile", Kind::Path)])),
    used("webhook", Kind::Object(&[used("enabled", Kind::Bool), used("cacheTTL", DURATION)])),
    used("anonymous", Kind::Object(&[used("enabled", Kind::Bool)])),
];

const AUTHORIZATION: &[Field] = &[
    used("mode", Kind::Word(&["Webhook", "AlwaysAllow"])),
    used("webhook", Kind::Object(&[used("cacheAuthorizedTTL", DURATION), used("cacheUnauthorizedTTL", DURATION)])),
];

const CPU_MANAGER_OPTIONS: &[Field] = &[
    used("full-pcpus-only", Kind::BoolText),
    used("strict-cpu-reservation", Kind::BoolText),
    used("distribute-cpus-across-numa", Kind::BoolText),
    used("prefer-align-cpus-by-uncorecache", Kind::BoolText),
    // Behind feature gates that are off upstream.
    refused("align-by-socket", Kind::BoolText),
    refused("distribute-cpus-across-cores", Kind::BoolText),
];

const TOPOLOGY_MANAGER_OPTIONS: &[Field] =
    &[used("prefer-closest-numa-nodes", Kind::BoolText), used("max-allowable-numa-nodes", Kind::Text)];

const MEMORY_SWAP: &[Field] = &[used("swapBehavior", Kind::Word(&["NoSwap", "LimitedSwap"]))];

const LOGGING: &[Field] = &[
    later("format", Kind::Word(&["text", "json"])),
    moot("flushFrequency", Kind::LogDuration),
    used("verbosity", COUNT),
    later("vmodule", Kind::List(&Kind::Object(&[later("filePattern", Kind::Text), later("verbosity", COUNT)]))),
    later("options", Kind::Object(&[later("text", Kind::Object(LOG_BUFFER)), later("json", Kind::Object(LOG_BUFFER))])),
];

const LOG_BUFFER: &[Field] = &[later("splitStream", Kind::Bool), later("infoBufferSize", Kind::Quantity)];

const SHUTDOWN_BY_PRIORITY: &[Field] =
    &[used("priority", INT32), used("shutdownGracePeriodSeconds", Kind::Int(0, i64::MAX))];

const CRASH_LOOP_BACK_OFF: &[Field] =
    &[used("maxContainerRestartPeriod", Kind::Duration(Duration::from_secs(1), Duration::from_secs(300)))];

const RESERVED_MEMORY: &[Field] = &[used("numaNode", COUNT), used("limits", Kind::Map(&Kind::Quantity))];

const TAINT: &[Field] = &[
    used("key", Kind::Text),
    used("value", Kind::Text),
    used("effect", Kind::Word(&TAINT_EFFECTS)),
    used("timeAdded", Kind::Text),
];

const TRACING: &[Field] = &[used("endpoint", Kind::Text), used("samplingRatePerMillion", Kind::Int(0, 1_000_000))];

const USER_NAMESPACES: &[Field] = &[used("idsPerPod", Kind::Int(65536, u32::MAX as i64))];

const CREDENTIALS_VERIFICATION: &[&str] =
    &["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"];

/// Eviction signals.
const SIGNALS: &[&str] = &[
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

const ENFORCEABLE: &[&str] =
    &["none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible"];
