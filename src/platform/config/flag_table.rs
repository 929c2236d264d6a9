//! The table of all flags. Pure.

use super::schema::Kind;

/// The effect of a flag.
#[derive(Debug)]
pub(super) enum Meaning {
    /// Sets the configuration field at this path. Overrides every file.
    Field(&'static str),
    /// A setting that exists only as a flag.
    Own(Own),
    /// Accepted and reported, but not supported yet.
    NotYet(Kind),
    /// Accepted for old command lines with a warning: the setting no longer exists.
    Gone(Kind, &'static str),
    /// Refused, because ignoring it would be worse than not starting.
    Refused(Kind),
}

/// Settings that exist only as flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
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

impl Own {
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
pub(super) const FLAGS: &[(&str, Meaning)] = &[
    ("address", Meaning::Field("address")),
    ("allowed-unsafe-sysctls", Meaning::Field("allowedUnsafeSysctls")),
    ("anonymous-auth", Meaning::Field("authentication.anonymous.enabled")),
    ("authentication-token-webhook", Meaning::Field("authentication.webhook.enabled")),
    ("authentication-token-webhook-cache-ttl", Meaning::Field("authentication.webhook.cacheTTL")),
    ("authorization-mode", Meaning::Field("authorization.mode")),
    ("authorization-webhook-cache-authorized-ttl", Meaning::Field("authorization.webhook.cacheAuthorizedTTL")),
    ("authorization-webhook-cache-unauthorized-ttl", Meaning::Field("authorization.webhook.cacheUnauthorizedTTL")),
    ("bootstrap-kubeconfig", Meaning::Own(Own::BootstrapKubeconfig)),
    ("cert-dir", Meaning::Own(Own::CertDir)),
    ("cgroup-driver", Meaning::Field("cgroupDriver")),
    ("cgroup-root", Meaning::Field("cgroupRoot")),
    ("cgroups-per-qos", Meaning::Field("cgroupsPerQOS")),
    ("client-ca-file", Meaning::Field("authentication.x509.clientCAFile")),
    ("cloud-config", Meaning::NotYet(Kind::Path)),
    ("cloud-provider", Meaning::Own(Own::CloudProvider)),
    ("cluster-dns", Meaning::Field("clusterDNS")),
    ("cluster-domain", Meaning::Field("clusterDomain")),
    ("config", Meaning::Own(Own::Config)),
    ("config-dir", Meaning::Own(Own::ConfigDir)),
    ("container-log-max-files", Meaning::Field("containerLogMaxFiles")),
    ("container-log-max-size", Meaning::Field("containerLogMaxSize")),
    ("container-runtime-endpoint", Meaning::Field("containerRuntimeEndpoint")),
    ("contention-profiling", Meaning::Field("enableContentionProfiling")),
    ("coracle-config", Meaning::Own(Own::CoracleConfig)),
    ("cpu-cfs-quota", Meaning::Field("cpuCFSQuota")),
    ("cpu-cfs-quota-period", Meaning::Field("cpuCFSQuotaPeriod")),
    ("cpu-manager-policy", Meaning::Field("cpuManagerPolicy")),
    ("cpu-manager-policy-options", Meaning::Field("cpuManagerPolicyOptions")),
    ("cpu-manager-reconcile-period", Meaning::Field("cpuManagerReconcilePeriod")),
    ("enable-controller-attach-detach", Meaning::Field("enableControllerAttachDetach")),
    ("enable-debugging-handlers", Meaning::Field("enableDebuggingHandlers")),
    ("enable-server", Meaning::Field("enableServer")),
    ("enforce-node-allocatable", Meaning::Field("enforceNodeAllocatable")),
    ("event-burst", Meaning::Field("eventBurst")),
    ("event-qps", Meaning::Field("eventRecordQPS")),
    ("evict-static-pods", Meaning::Own(Own::EvictStaticPods)),
    ("eviction-hard", Meaning::Field("evictionHard")),
    ("eviction-max-pod-grace-period", Meaning::Field("evictionMaxPodGracePeriod")),
    ("eviction-minimum-reclaim", Meaning::Field("evictionMinimumReclaim")),
    ("eviction-pressure-transition-period", Meaning::Field("evictionPressureTransitionPeriod")),
    ("eviction-soft", Meaning::Field("evictionSoft")),
    ("eviction-soft-grace-period", Meaning::Field("evictionSoftGracePeriod")),
    // A successor that waits for the lock would wait forever.
    ("exit-on-lock-contention", Meaning::Refused(Kind::Bool)),
    ("experimental-allocatable-ignore-eviction", Meaning::NotYet(Kind::Bool)),
    ("experimental-mounter-path", Meaning::NotYet(Kind::Path)),
    ("fail-cgroupv1", Meaning::Field("failCgroupV1")),
    ("fail-swap-on", Meaning::Field("failSwapOn")),
    ("feature-gates", Meaning::Field("featureGates")),
    ("file-check-frequency", Meaning::Field("fileCheckFrequency")),
    ("hairpin-mode", Meaning::Field("hairpinMode")),
    ("healthz-bind-address", Meaning::Field("healthzBindAddress")),
    ("healthz-port", Meaning::Field("healthzPort")),
    ("help", Meaning::Own(Own::Help)),
    ("hostname-override", Meaning::Own(Own::HostnameOverride)),
    ("http-check-frequency", Meaning::Field("httpCheckFrequency")),
    ("image-archives", Meaning::Own(Own::ImageArchives)),
    ("image-credential-provider-bin-dir", Meaning::Own(Own::ImageCredentialProviderBinDir)),
    ("image-credential-provider-config", Meaning::Own(Own::ImageCredentialProviderConfig)),
    ("image-gc-high-threshold", Meaning::Field("imageGCHighThresholdPercent")),
    ("image-gc-low-threshold", Meaning::Field("imageGCLowThresholdPercent")),
    ("image-service-endpoint", Meaning::Field("imageServiceEndpoint")),
    ("iptables-drop-bit", Meaning::Field("iptablesDropBit")),
    ("iptables-masquerade-bit", Meaning::Field("iptablesMasqueradeBit")),
    ("keep-terminated-pod-volumes", Meaning::NotYet(Kind::Bool)),
    ("kernel-memcg-notification", Meaning::Field("kernelMemcgNotification")),
    ("kube-api-burst", Meaning::Field("kubeAPIBurst")),
    ("kube-api-content-type", Meaning::Field("contentType")),
    ("kube-api-qps", Meaning::Field("kubeAPIQPS")),
    ("kube-reserved", Meaning::Field("kubeReserved")),
    ("kube-reserved-cgroup", Meaning::Field("kubeReservedCgroup")),
    ("kubeconfig", Meaning::Own(Own::Kubeconfig)),
    ("kubelet-cgroups", Meaning::Field("kubeletCgroups")),
    ("leave-kernel-parameters", Meaning::Own(Own::LeaveKernelParameters)),
    ("local-socket", Meaning::Own(Own::LocalSocket)),
    ("local-storage-capacity-isolation", Meaning::Field("localStorageCapacityIsolation")),
    ("lock-file", Meaning::Own(Own::LockFile)),
    ("log-flush-frequency", Meaning::Field("logging.flushFrequency")),
    ("log-json-info-buffer-size", Meaning::Field("logging.options.json.infoBufferSize")),
    ("log-json-split-stream", Meaning::Field("logging.options.json.splitStream")),
    ("log-text-info-buffer-size", Meaning::Field("logging.options.text.infoBufferSize")),
    ("log-text-split-stream", Meaning::Field("logging.options.text.splitStream")),
    ("logging-format", Meaning::Field("logging.format")),
    ("make-iptables-util-chains", Meaning::Field("makeIPTablesUtilChains")),
    ("manifest-plain-signatures", Meaning::Own(Own::ManifestPlainSignatures)),
    ("manifest-public-key", Meaning::Own(Own::ManifestPublicKey)),
    ("manifest-url", Meaning::Field("staticPodURL")),
    ("manifest-url-ca-file", Meaning::Own(Own::ManifestUrlCaFile)),
    ("manifest-url-header", Meaning::Own(Own::ManifestUrlHeader)),
    ("max-open-files", Meaning::Field("maxOpenFiles")),
    ("max-pods", Meaning::Field("maxPods")),
    ("maximum-dead-containers", Meaning::NotYet(INTEGER)),
    ("maximum-dead-containers-per-container", Meaning::NotYet(INTEGER)),
    ("memory-manager-policy", Meaning::Field("memoryManagerPolicy")),
    ("minimum-container-ttl-duration", Meaning::NotYet(Kind::AnyDuration)),
    ("minimum-image-ttl-duration", Meaning::Field("imageMinimumGCAge")),
    ("node-ip", Meaning::Own(Own::NodeIp)),
    ("node-labels", Meaning::Own(Own::NodeLabels)),
    ("node-status-max-images", Meaning::Field("nodeStatusMaxImages")),
    ("node-status-update-frequency", Meaning::Field("nodeStatusUpdateFrequency")),
    ("offline-key-file", Meaning::Own(Own::OfflineKeyFile)),
    ("offline-plain-secrets", Meaning::Own(Own::OfflinePlainSecrets)),
    ("oom-score-adj", Meaning::Field("oomScoreAdj")),
    ("page-address", Meaning::Own(Own::PageAddress)),
    ("page-port", Meaning::Own(Own::PagePort)),
    ("pod-cidr", Meaning::Field("podCIDR")),
    ("pod-infra-container-image", Meaning::Gone(Kind::Text, "the runtime chooses the sandbox's image")),
    ("pod-manifest-path", Meaning::Field("staticPodPath")),
    ("pod-max-pids", Meaning::Field("podPidsLimit")),
    ("pods-per-core", Meaning::Field("podsPerCore")),
    ("port", Meaning::Field("port")),
    ("protect-kernel-defaults", Meaning::Field("protectKernelDefaults")),
    ("provider-id", Meaning::Field("providerID")),
    ("qos-reserved", Meaning::Field("qosReserved")),
    ("read-only-port", Meaning::Field("readOnlyPort")),
    ("register-node", Meaning::Field("registerNode")),
    ("register-schedulable", Meaning::Own(Own::RegisterSchedulable)),
    ("register-with-taints", Meaning::Own(Own::RegisterWithTaints)),
    ("registry-burst", Meaning::Field("registryBurst")),
    ("registry-qps", Meaning::Field("registryPullQPS")),
    ("reserved-cpus", Meaning::Field("reservedSystemCPUs")),
    ("reserved-memory", Meaning::Own(Own::ReservedMemory)),
    ("resolv-conf", Meaning::Field("resolvConf")),
    ("root-dir", Meaning::Own(Own::RootDir)),
    ("rotate-certificates", Meaning::Field("rotateCertificates")),
    ("rotate-server-certificates", Meaning::Field("serverTLSBootstrap")),
    ("runonce", Meaning::Field("runOnce")),
    ("runtime-cgroups", Meaning::NotYet(Kind::Text)),
    ("runtime-request-timeout", Meaning::Field("runtimeRequestTimeout")),
    ("seccomp-default", Meaning::Field("seccompDefault")),
    ("serialize-image-pulls", Meaning::Field("serializeImagePulls")),
    ("streaming-connection-idle-timeout", Meaning::Field("streamingConnectionIdleTimeout")),
    ("strict-image-pull-policy", Meaning::Own(Own::StrictImagePullPolicy)),
    ("sync-frequency", Meaning::Field("syncFrequency")),
    ("system-cgroups", Meaning::Field("systemCgroups")),
    ("system-reserved", Meaning::Field("systemReserved")),
    ("system-reserved-cgroup", Meaning::Field("systemReservedCgroup")),
    ("tls-cert-file", Meaning::Field("tlsCertFile")),
    ("tls-cipher-suites", Meaning::Field("tlsCipherSuites")),
    ("tls-curve-preferences", Meaning::Field("tlsCurvePreferences")),
    ("tls-min-version", Meaning::Field("tlsMinVersion")),
    ("tls-private-key-file", Meaning::Field("tlsPrivateKeyFile")),
    ("topology-manager-policy", Meaning::Field("topologyManagerPolicy")),
    ("topology-manager-policy-options", Meaning::Field("topologyManagerPolicyOptions")),
    ("topology-manager-scope", Meaning::Field("topologyManagerScope")),
    ("v", Meaning::Field("logging.verbosity")),
    ("version", Meaning::Own(Own::Version)),
    ("vmodule", Meaning::NotYet(Kind::Text)),
    ("volume-plugin-dir", Meaning::Field("volumePluginDir")),
    ("volume-stats-agg-period", Meaning::Field("volumeStatsAggPeriod")),
    ("watchdog-device", Meaning::Own(Own::WatchdogDevice)),
];

const INTEGER: Kind = Kind::Int(i32::MIN as i64, i32::MAX as i64);

#[cfg(test)]
mod tests {
    use super::super::check::field;
    use super::*;

    #[test]
    fn flags_set_only_fields_of_the_schema() {
        for (flag, meaning) in FLAGS {
            if let Meaning::Field(path) = meaning {
                assert!(field(path).is_some(), "--{flag} sets {path}");
            }
        }
    }

    #[test]
    fn flags_are_sorted_and_unique() {
        assert!(FLAGS.is_sorted_by(|(left, _), (right, _)| left < right));
    }
}
