//! The table of all flags. Pure.

use super::schema::Kind;

/// The effect of a flag.
#[derive(Debug)]
pub(super) enum FlagEffect {
    /// Sets the configuration field at this path. Overrides every file.
    Field(&'static str),
    /// A setting that exists only as a flag.
    Own(FlagOnly),
    /// Accepted and reported, but not supported yet.
    NotYet(Kind),
    /// Accepted for old command lines with a warning: the setting no longer exists.
    Gone(Kind, &'static str),
    /// Refused, because ignoring it would be worse than not starting.
    Refused(Kind),
}

/// Settings that exist only as flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlagOnly {
    BootstrapKubeconfig,
    CertDir,
    CloudProvider,
    Config,
    ConfigDir,
    CoracleConfig,
    EvictStaticPods,
    Help,
    HostnameOverride,
    ImageArchives,
    ImageCredentialProviderBinDir,
    ImageCredentialProviderConfig,
    Kubeconfig,
    LeaveKernelParameters,
    LocalSocket,
    LockFile,
    ManifestPlainSignatures,
    ManifestPublicKey,
    ManifestUrlCaFile,
    ManifestUrlHeader,
    NodeIp,
    NodeLabels,
    OfflineKeyFile,
    OfflinePlainSecrets,
    PageAddress,
    PagePort,
    RegisterSchedulable,
    RegisterWithTaints,
    ReservedMemory,
    RootDir,
    StrictImagePullPolicy,
    Version,
    WatchdogDevice,
}

impl FlagOnly {
    pub(super) const fn kind(self) -> &'static Kind {
        match self {
            Self::EvictStaticPods
            | Self::Help
            | Self::LeaveKernelParameters
            | Self::ManifestPlainSignatures
            | Self::OfflinePlainSecrets
            | Self::RegisterSchedulable
            | Self::StrictImagePullPolicy
            | Self::Version => &Kind::Bool,
            Self::NodeIp => &Kind::List(&Kind::Ip),
            Self::PageAddress => &Kind::Ip,
            Self::PagePort => &Kind::Int(0, 65535),
            Self::CloudProvider => &Kind::Word(&["external"]),
            Self::HostnameOverride
            | Self::ManifestUrlHeader
            | Self::NodeLabels
            | Self::RegisterWithTaints
            | Self::ReservedMemory => &Kind::Text,
            Self::BootstrapKubeconfig
            | Self::CertDir
            | Self::Config
            | Self::ConfigDir
            | Self::CoracleConfig
            | Self::ImageArchives
            | Self::ImageCredentialProviderBinDir
            | Self::ImageCredentialProviderConfig
            | Self::Kubeconfig
            | Self::LocalSocket
            | Self::LockFile
            | Self::ManifestPublicKey
            | Self::ManifestUrlCaFile
            | Self::OfflineKeyFile
            | Self::RootDir
            | Self::WatchdogDevice => &Kind::Path,
        }
    }
}

/// All flags by name, without the dashes.
pub(super) const FLAGS: &[(&str, FlagEffect)] = &[
    ("address", FlagEffect::Field("address")),
    ("allowed-unsafe-sysctls", FlagEffect::Field("allowedUnsafeSysctls")),
    ("anonymous-auth", FlagEffect::Field("authentication.anonymous.enabled")),
    ("authentication-token-webhook", FlagEffect::Field("authentication.webhook.enabled")),
    ("authentication-token-webhook-cache-ttl", FlagEffect::Field("authentication.webhook.cacheTTL")),
    ("authorization-mode", FlagEffect::Field("authorization.mode")),
    ("authorization-webhook-cache-authorized-ttl", FlagEffect::Field("authorization.webhook.cacheAuthorizedTTL")),
    ("authorization-webhook-cache-unauthorized-ttl", FlagEffect::Field("authorization.webhook.cacheUnauthorizedTTL")),
    ("bootstrap-kubeconfig", FlagEffect::Own(FlagOnly::BootstrapKubeconfig)),
    ("cert-dir", FlagEffect::Own(FlagOnly::CertDir)),
    ("cgroup-driver", FlagEffect::Field("cgroupDriver")),
    ("cgroup-root", FlagEffect::Field("cgroupRoot")),
    ("cgroups-per-qos", FlagEffect::Field("cgroupsPerQOS")),
    ("client-ca-file", FlagEffect::Field("authentication.x509.clientCAFile")),
    ("cloud-config", FlagEffect::NotYet(Kind::Path)),
    ("cloud-provider", FlagEffect::Own(FlagOnly::CloudProvider)),
    ("cluster-dns", FlagEffect::Field("clusterDNS")),
    ("cluster-domain", FlagEffect::Field("clusterDomain")),
    ("config", FlagEffect::Own(FlagOnly::Config)),
    ("config-dir", FlagEffect::Own(FlagOnly::ConfigDir)),
    ("container-log-max-files", FlagEffect::Field("containerLogMaxFiles")),
    ("container-log-max-size", FlagEffect::Field("containerLogMaxSize")),
    ("container-runtime-endpoint", FlagEffect::Field("containerRuntimeEndpoint")),
    ("contention-profiling", FlagEffect::Field("enableContentionProfiling")),
    ("coracle-config", FlagEffect::Own(FlagOnly::CoracleConfig)),
    ("cpu-cfs-quota", FlagEffect::Field("cpuCFSQuota")),
    ("cpu-cfs-quota-period", FlagEffect::Field("cpuCFSQuotaPeriod")),
    ("cpu-manager-policy", FlagEffect::Field("cpuManagerPolicy")),
    ("cpu-manager-policy-options", FlagEffect::Field("cpuManagerPolicyOptions")),
    ("cpu-manager-reconcile-period", FlagEffect::Field("cpuManagerReconcilePeriod")),
    ("enable-controller-attach-detach", FlagEffect::Field("enableControllerAttachDetach")),
    ("enable-debugging-handlers", FlagEffect::Field("enableDebuggingHandlers")),
    ("enable-server", FlagEffect::Field("enableServer")),
    ("enforce-node-allocatable", FlagEffect::Field("enforceNodeAllocatable")),
    ("event-burst", FlagEffect::Field("eventBurst")),
    ("event-qps", FlagEffect::Field("eventRecordQPS")),
    ("evict-static-pods", FlagEffect::Own(FlagOnly::EvictStaticPods)),
    ("eviction-hard", FlagEffect::Field("evictionHard")),
    ("eviction-max-pod-grace-period", FlagEffect::Field("evictionMaxPodGracePeriod")),
    ("eviction-minimum-reclaim", FlagEffect::Field("evictionMinimumReclaim")),
    ("eviction-pressure-transition-period", FlagEffect::Field("evictionPressureTransitionPeriod")),
    ("eviction-soft", FlagEffect::Field("evictionSoft")),
    ("eviction-soft-grace-period", FlagEffect::Field("evictionSoftGracePeriod")),
    // A successor that waits for the lock would wait forever.
    ("exit-on-lock-contention", FlagEffect::Refused(Kind::Bool)),
    ("experimental-allocatable-ignore-eviction", FlagEffect::NotYet(Kind::Bool)),
    ("experimental-mounter-path", FlagEffect::NotYet(Kind::Path)),
    ("fail-cgroupv1", FlagEffect::Field("failCgroupV1")),
    ("fail-swap-on", FlagEffect::Field("failSwapOn")),
    ("feature-gates", FlagEffect::Field("featureGates")),
    ("file-check-frequency", FlagEffect::Field("fileCheckFrequency")),
    ("hairpin-mode", FlagEffect::Field("hairpinMode")),
    ("healthz-bind-address", FlagEffect::Field("healthzBindAddress")),
    ("healthz-port", FlagEffect::Field("healthzPort")),
    ("help", FlagEffect::Own(FlagOnly::Help)),
    ("hostname-override", FlagEffect::Own(FlagOnly::HostnameOverride)),
    ("http-check-frequency", FlagEffect::Field("httpCheckFrequency")),
    ("image-archives", FlagEffect::Own(FlagOnly::ImageArchives)),
    ("image-credential-provider-bin-dir", FlagEffect::Own(FlagOnly::ImageCredentialProviderBinDir)),
    ("image-credential-provider-config", FlagEffect::Own(FlagOnly::ImageCredentialProviderConfig)),
    ("image-gc-high-threshold", FlagEffect::Field("imageGCHighThresholdPercent")),
    ("image-gc-low-threshold", FlagEffect::Field("imageGCLowThresholdPercent")),
    ("image-service-endpoint", FlagEffect::Field("imageServiceEndpoint")),
    ("iptables-drop-bit", FlagEffect::Field("iptablesDropBit")),
    ("iptables-masquerade-bit", FlagEffect::Field("iptablesMasqueradeBit")),
    ("keep-terminated-pod-volumes", FlagEffect::NotYet(Kind::Bool)),
    ("kernel-memcg-notification", FlagEffect::Field("kernelMemcgNotification")),
    ("kube-api-burst", FlagEffect::Field("kubeAPIBurst")),
    ("kube-api-content-type", FlagEffect::Field("contentType")),
    ("kube-api-qps", FlagEffect::Field("kubeAPIQPS")),
    ("kube-reserved", FlagEffect::Field("kubeReserved")),
    ("kube-reserved-cgroup", FlagEffect::Field("kubeReservedCgroup")),
    ("kubeconfig", FlagEffect::Own(FlagOnly::Kubeconfig)),
    ("kubelet-cgroups", FlagEffect::Field("kubeletCgroups")),
    ("leave-kernel-parameters", FlagEffect::Own(FlagOnly::LeaveKernelParameters)),
    ("local-socket", FlagEffect::Own(FlagOnly::LocalSocket)),
    ("local-storage-capacity-isolation", FlagEffect::Field("localStorageCapacityIsolation")),
    ("lock-file", FlagEffect::Own(FlagOnly::LockFile)),
    ("log-flush-frequency", FlagEffect::Field("logging.flushFrequency")),
    ("log-json-info-buffer-size", FlagEffect::Field("logging.options.json.infoBufferSize")),
    ("log-json-split-stream", FlagEffect::Field("logging.options.json.splitStream")),
    ("log-text-info-buffer-size", FlagEffect::Field("logging.options.text.infoBufferSize")),
    ("log-text-split-stream", FlagEffect::Field("logging.options.text.splitStream")),
    ("logging-format", FlagEffect::Field("logging.format")),
    ("make-iptables-util-chains", FlagEffect::Field("makeIPTablesUtilChains")),
    ("manifest-plain-signatures", FlagEffect::Own(FlagOnly::ManifestPlainSignatures)),
    ("manifest-public-key", FlagEffect::Own(FlagOnly::ManifestPublicKey)),
    ("manifest-url", FlagEffect::Field("staticPodURL")),
    ("manifest-url-ca-file", FlagEffect::Own(FlagOnly::ManifestUrlCaFile)),
    ("manifest-url-header", FlagEffect::Own(FlagOnly::ManifestUrlHeader)),
    ("max-open-files", FlagEffect::Field("maxOpenFiles")),
    ("max-pods", FlagEffect::Field("maxPods")),
    ("maximum-dead-containers", FlagEffect::NotYet(INTEGER)),
    ("maximum-dead-containers-per-container", FlagEffect::NotYet(INTEGER)),
    ("memory-manager-policy", FlagEffect::Field("memoryManagerPolicy")),
    ("minimum-container-ttl-duration", FlagEffect::NotYet(Kind::AnyDuration)),
    ("minimum-image-ttl-duration", FlagEffect::Field("imageMinimumGCAge")),
    ("node-ip", FlagEffect::Own(FlagOnly::NodeIp)),
    ("node-labels", FlagEffect::Own(FlagOnly::NodeLabels)),
    ("node-status-max-images", FlagEffect::Field("nodeStatusMaxImages")),
    ("node-status-update-frequency", FlagEffect::Field("nodeStatusUpdateFrequency")),
    ("offline-key-file", FlagEffect::Own(FlagOnly::OfflineKeyFile)),
    ("offline-plain-secrets", FlagEffect::Own(FlagOnly::OfflinePlainSecrets)),
    ("oom-score-adj", FlagEffect::Field("oomScoreAdj")),
    ("page-address", FlagEffect::Own(FlagOnly::PageAddress)),
    ("page-port", FlagEffect::Own(FlagOnly::PagePort)),
    ("pod-cidr", FlagEffect::Field("podCIDR")),
    ("pod-infra-container-image", FlagEffect::Gone(Kind::Text, "the runtime chooses the sandbox's image")),
    ("pod-manifest-path", FlagEffect::Field("staticPodPath")),
    ("pod-max-pids", FlagEffect::Field("podPidsLimit")),
    ("pods-per-core", FlagEffect::Field("podsPerCore")),
    ("port", FlagEffect::Field("port")),
    ("protect-kernel-defaults", FlagEffect::Field("protectKernelDefaults")),
    ("provider-id", FlagEffect::Field("providerID")),
    ("qos-reserved", FlagEffect::Field("qosReserved")),
    ("read-only-port", FlagEffect::Field("readOnlyPort")),
    ("register-node", FlagEffect::Field("registerNode")),
    ("register-schedulable", FlagEffect::Own(FlagOnly::RegisterSchedulable)),
    ("register-with-taints", FlagEffect::Own(FlagOnly::RegisterWithTaints)),
    ("registry-burst", FlagEffect::Field("registryBurst")),
    ("registry-qps", FlagEffect::Field("registryPullQPS")),
    ("reserved-cpus", FlagEffect::Field("reservedSystemCPUs")),
    ("reserved-memory", FlagEffect::Own(FlagOnly::ReservedMemory)),
    ("resolv-conf", FlagEffect::Field("resolvConf")),
    ("root-dir", FlagEffect::Own(FlagOnly::RootDir)),
    ("rotate-certificates", FlagEffect::Field("rotateCertificates")),
    ("rotate-server-certificates", FlagEffect::Field("serverTLSBootstrap")),
    ("runonce", FlagEffect::Field("runOnce")),
    ("runtime-cgroups", FlagEffect::NotYet(Kind::Text)),
    ("runtime-request-timeout", FlagEffect::Field("runtimeRequestTimeout")),
    ("seccomp-default", FlagEffect::Field("seccompDefault")),
    ("serialize-image-pulls", FlagEffect::Field("serializeImagePulls")),
    ("streaming-connection-idle-timeout", FlagEffect::Field("streamingConnectionIdleTimeout")),
    ("strict-image-pull-policy", FlagEffect::Own(FlagOnly::StrictImagePullPolicy)),
    ("sync-frequency", FlagEffect::Field("syncFrequency")),
    ("system-cgroups", FlagEffect::Field("systemCgroups")),
    ("system-reserved", FlagEffect::Field("systemReserved")),
    ("system-reserved-cgroup", FlagEffect::Field("systemReservedCgroup")),
    ("tls-cert-file", FlagEffect::Field("tlsCertFile")),
    ("tls-cipher-suites", FlagEffect::Field("tlsCipherSuites")),
    ("tls-curve-preferences", FlagEffect::Field("tlsCurvePreferences")),
    ("tls-min-version", FlagEffect::Field("tlsMinVersion")),
    ("tls-private-key-file", FlagEffect::Field("tlsPrivateKeyFile")),
    ("topology-manager-policy", FlagEffect::Field("topologyManagerPolicy")),
    ("topology-manager-policy-options", FlagEffect::Field("topologyManagerPolicyOptions")),
    ("topology-manager-scope", FlagEffect::Field("topologyManagerScope")),
    ("v", FlagEffect::Field("logging.verbosity")),
    ("version", FlagEffect::Own(FlagOnly::Version)),
    ("vmodule", FlagEffect::NotYet(Kind::Text)),
    ("volume-plugin-dir", FlagEffect::Field("volumePluginDir")),
    ("volume-stats-agg-period", FlagEffect::Field("volumeStatsAggPeriod")),
    ("watchdog-device", FlagEffect::Own(FlagOnly::WatchdogDevice)),
];

const INTEGER: Kind = Kind::Int(i32::MIN as i64, i32::MAX as i64);

#[cfg(test)]
mod tests {
    use super::super::check::field;
    use super::*;

    #[test]
    fn flags_set_only_fields_of_the_schema() {
        for (flag, meaning) in FLAGS {
            if let FlagEffect::Field(path) = meaning {
                assert!(field(path).is_some(), "--{flag} sets {path}");
            }
        }
    }

    #[test]
    fn flags_are_sorted_and_unique() {
        assert!(FLAGS.is_sorted_by(|(left, _), (right, _)| left < right));
    }
}
