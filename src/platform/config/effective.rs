//! The effective configuration, as all other modules read it. Pure.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::check::{Problem, socket_path};
use super::configz::ConfiguredFields;
use super::coracle_file::SyncSettings;
use super::credential_providers::CredentialProvider;
use super::device_rules::DeviceRule;
use super::eviction::{self, Eviction};
use super::fields::Fields;
use super::flags::Given;
use super::identity::{self, Identity};
use super::images::{CredentialsVerification, ImageGc};
use super::managers::Managers;
use super::reporting::{self, Reporting};
use super::shutdown::{self, ShutdownPhase};
use super::static_pod_url::{self, PodUrl};
use crate::types::api::Map as Labels;
use crate::types::api::{Quantity, ResourceList};

/// What the flags and the configuration files come to. Where a value came from is not kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    // Places.
    pub(crate) root_dir: PathBuf,
    pub(crate) cert_dir: PathBuf,
    pub(crate) pod_logs_dir: PathBuf,
    /// Where `coracle status` and `coracle pods` reach this process.
    pub(crate) local_socket: PathBuf,
    /// Held while this process runs.
    pub(crate) lock_file: Option<PathBuf>,
    /// A hardware watchdog that this process pets.
    pub(crate) watchdog_device: Option<PathBuf>,
    /// The key for what is secret in the offline store, made where it is missing; `None`: no key from a file.
    pub(crate) offline_key_file: Option<PathBuf>,
    /// Archives whose images the runtime is to have.
    pub(crate) image_archives: PathBuf,
    /// Without a key it is stored in plain.
    pub(crate) offline_plain_secrets: bool,

    // The node.
    /// The host's name in lower case, or what `--hostname-override` says.
    pub(crate) node_name: String,
    /// As given; empty means: the address of the default route's interface.
    pub(crate) node_ips: Vec<IpAddr>,

    // The cluster.
    /// `None`: there is none, and the node has its own pods only.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// When it is asked and told.
    pub(crate) sync: SyncSettings,
    /// Devices that containers may have without a plugin.
    pub(crate) devices: Vec<DeviceRule>,

    // Sources of pods.
    /// A directory or a file; `None` where it was set to nothing.
    pub(crate) static_pod_path: Option<PathBuf>,
    pub(crate) file_check_frequency: Duration,
    /// Pods from a URL.
    pub(crate) pod_url: Option<PodUrl>,
    pub(crate) sync_frequency: Duration,

    // The runtime.
    /// The path of the socket, without `unix://`.
    pub(crate) runtime_endpoint: PathBuf,
    /// The same as `runtime_endpoint` where nothing else was said.
    pub(crate) image_endpoint: PathBuf,
    pub(crate) runtime_request_timeout: Duration,

    // Images.
    pub(crate) serialize_image_pulls: bool,
    /// `None`: no bound, where pulls are not serialized.
    pub(crate) max_parallel_image_pulls: Option<u32>,
    /// Pulls per second; 0 means no limit.
    pub(crate) registry_pull_qps: u32,
    pub(crate) registry_burst: u32,
    /// `Always` fails while the registry cannot be reached, whatever is present.
    pub(crate) strict_image_pull_policy: bool,
    pub(crate) kernel_parameters: KernelParameters,
    pub(crate) credential_providers: Vec<CredentialProvider>,
    /// Where the programs of the providers are.
    pub(crate) credential_provider_bin_dir: PathBuf,
    /// Which present images a pod may use only with credentials that have once brought them.
    pub(crate) credentials_verification: CredentialsVerification,
    pub(crate) image_gc: ImageGc,

    // Pods.
    pub(crate) max_pods: u32,
    pub(crate) pods_per_core: Option<u32>,
    /// Of a pod that has users of its own; a multiple of 65536.
    pub(crate) user_ids_per_pod: u32,
    /// Labels of the node, beside those that every node has.
    pub(crate) node_labels: Labels<String>,
    /// `None`: as many as the node has.
    pub(crate) pod_pids_limit: Option<i64>,
    pub(crate) seccomp_default: bool,
    /// Kernel parameters that pods may set beside the safe ones: names, or beginnings that end in `*`.
    pub(crate) allowed_unsafe_sysctls: Vec<String>,
    pub(crate) max_container_restart_period: Duration,
    pub(crate) cluster_dns: Vec<IpAddr>,
    pub(crate) cluster_domain: String,
    /// `None`: pods inherit no resolver settings from the host.
    pub(crate) resolv_conf: Option<PathBuf>,

    // Control groups.
    pub(crate) cgroup_driver: CgroupDriver,
    /// Empty: the root of the hierarchy.
    pub(crate) cgroup_root: String,
    pub(crate) cgroups_per_qos: bool,
    pub(crate) cpu_cfs_quota: bool,
    pub(crate) cpu_cfs_quota_period: Duration,
    /// `None`: as the hierarchy has it (v1: yes, v2: the whole container at once).
    pub(crate) single_process_oom_kill: Option<bool>,
    pub(crate) fail_swap_on: bool,
    pub(crate) swap: SwapBehavior,
    /// What pods do not get of the machine, for the system and for Kubernetes' own services.
    pub(crate) system_reserved: ResourceList,
    pub(crate) kube_reserved: ResourceList,
    /// The groups that these are in, where they are held to it.
    pub(crate) system_reserved_cgroup: String,
    pub(crate) kube_reserved_cgroup: String,
    pub(crate) enforced: Enforced,
    pub(crate) managers: Managers,

    // Eviction.
    pub(crate) eviction: Eviction,

    // A cluster.
    pub(crate) reporting: Reporting,
    pub(crate) identity: Identity,

    // Logs of containers.
    pub(crate) container_log_max_bytes: u64,
    pub(crate) container_log_max_files: u32,
    pub(crate) container_log_max_workers: u32,
    pub(crate) container_log_monitor_interval: Duration,

    // This process.
    /// `None`: no health endpoint.
    pub(crate) healthz: Option<SocketAddr>,
    /// `None`: no page to look at.
    pub(crate) status_page: Option<SocketAddr>,
    pub(crate) oom_score_adj: i32,
    /// In the order of their priorities; none: nothing is done when the node shuts down.
    pub(crate) shutdown_phases: Vec<ShutdownPhase>,
    pub(crate) verbosity: u8,
    /// What the fields were given as, to be shown.
    pub(crate) given: ConfiguredFields,
}

/// The socket of the agent, for commands on the node.
pub(crate) const LOCAL_SOCKET: &str = "/run/coracle/coracle.sock";

/// The cgroup manager, which determines how cgroups are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CgroupDriver {
    Cgroupfs,
    Systemd,
}

/// `memorySwap.swapBehavior`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SwapBehavior {
    #[default]
    NoSwap,
    /// Burstable pods may swap, in proportion to their memory requests.
    LimitedSwap,
}

/// `enforceNodeAllocatable`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Enforced {
    /// Limit all pods together to the node's allocatable resources.
    pub(crate) pods: bool,
    /// Limit the system and Kubernetes' services to what is reserved for them.
    pub(crate) system: bool,
    pub(crate) kube: bool,
    /// As above, for CPU only.
    pub(crate) system_compressible: bool,
    pub(crate) kube_compressible: bool,
}

impl Default for Config {
    /// The kubelet's defaults, except for the manifest directory, which the kubelet leaves unset.
    fn default() -> Self {
        Self {
            root_dir: PathBuf::from("/var/lib/kubelet"),
            cert_dir: PathBuf::from("/var/lib/kubelet/pki"),
            pod_logs_dir: PathBuf::from("/var/log/pods"),
            local_socket: PathBuf::from(LOCAL_SOCKET),
            lock_file: None,
            watchdog_device: None,
            offline_key_file: Some(PathBuf::from("/var/lib/kubelet/coracle/store-key")),
            image_archives: PathBuf::from("/var/lib/kubelet/coracle/images"),
            offline_plain_secrets: false,
            node_name: String::new(),
            node_ips: Vec::new(),
            kubeconfig: None,
            sync: SyncSettings::default(),
            devices: Vec::new(),
            static_pod_path: Some(PathBuf::from("/etc/kubernetes/manifests")),
            file_check_frequency: Duration::from_secs(20),
            pod_url: None,
            sync_frequency: Duration::from_secs(60),
            runtime_endpoint: PathBuf::from("/run/containerd/containerd.sock"),
            image_endpoint: PathBuf::from("/run/containerd/containerd.sock"),
            runtime_request_timeout: Duration::from_secs(120),
            serialize_image_pulls: true,
            max_parallel_image_pulls: None,
            registry_pull_qps: 5,
            registry_burst: 10,
            strict_image_pull_policy: false,
            kernel_parameters: KernelParameters::Set,
            credential_providers: Vec::new(),
            credential_provider_bin_dir: PathBuf::new(),
            credentials_verification: CredentialsVerification::default(),
            image_gc: ImageGc::default(),
            max_pods: 110,
            pods_per_core: None,
            user_ids_per_pod: 65536,
            node_labels: Labels::new(),
            pod_pids_limit: None,
            seccomp_default: false,
            allowed_unsafe_sysctls: Vec::new(),
            max_container_restart_period: Duration::from_secs(300),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: Some(PathBuf::from("/etc/resolv.conf")),
            cgroup_driver: CgroupDriver::Cgroupfs,
            cgroup_root: String::new(),
            cgroups_per_qos: true,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            single_process_oom_kill: None,
            fail_swap_on: true,
            swap: SwapBehavior::NoSwap,
            system_reserved: ResourceList::default(),
            kube_reserved: ResourceList::default(),
            system_reserved_cgroup: String::new(),
            kube_reserved_cgroup: String::new(),
            enforced: Enforced { pods: true, ..Enforced::default() },
            managers: Managers::default(),
            eviction: Eviction::default(),
            reporting: Reporting::default(),
            identity: Identity::default(),
            container_log_max_bytes: 10 << 20,
            container_log_max_files: 5,
            container_log_max_workers: 1,
            container_log_monitor_interval: Duration::from_secs(10),
            healthz: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10248)),
            status_page: None,
            oom_score_adj: -999,
            shutdown_phases: Vec::new(),
            verbosity: 0,
            given: ConfiguredFields::default(),
        }
    }
}

/// How to treat the kernel parameters that pods rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelParameters {
    /// Check them, and refuse to start if one differs.
    Check,
    Leave,
    Set,
}

impl Config {
    /// Combines the checked `fields` of files and flags with the settings that exist only as flags.
    ///
    /// As in the kubelet, zero or an empty string means the default wherever it has no other meaning.
    pub(super) fn new(given: Given, fields: &Map<String, Value>, node_name: String) -> Result<Self, Problem> {
        let fields = Fields(fields);
        let reporting = reporting::read(&fields, &given)?;
        let identity = identity::read(&fields, &given)?;
        let page_address = given.page_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let pod_url = static_pod_url::read(&fields, &given)?;
        let mut config = Self {
            node_name,
            node_ips: given.node_ips,
            kubeconfig: given.kubeconfig,
            node_labels: given.node_labels,
            reporting,
            identity,
            pod_url,
            lock_file: given.lock_file,
            watchdog_device: given.watchdog_device,
            status_page: (given.page_port > 0).then(|| SocketAddr::new(page_address, given.page_port)),
            offline_plain_secrets: given.offline_plain_secrets,
            strict_image_pull_policy: given.strict_image_pull_policy,
            kernel_parameters: match given.leave_kernel_parameters {
                true => KernelParameters::Leave,
                false => KernelParameters::Set,
            },
            credential_provider_bin_dir: given.credential_provider_bin_dir.unwrap_or_default(),
            ..Self::default()
        };
        if let Some(path) = given.root_dir {
            config.root_dir = path;
        }
        if let Some(path) = given.local_socket {
            config.local_socket = path;
        }
        let key_file = given.offline_key_file.unwrap_or_else(|| config.root_dir.join("coracle/store-key"));
        config.offline_key_file = (!key_file.as_os_str().is_empty()).then_some(key_file);
        config.image_archives = given.image_archives.unwrap_or_else(|| config.root_dir.join("coracle/images"));
        config.cert_dir = given.cert_dir.unwrap_or_else(|| config.root_dir.join("pki"));
        config.take_places(&fields);
        config.take_images(&fields)?;
        config.take_image_gc(&fields)?;
        config.take_credentials_verification(&fields)?;
        config.take_pods(&fields)?;
        config.take_cgroups(&fields)?;
        config.take_managers(&fields)?;
        config.eviction = eviction::read(&fields, config.enforced.pods, given.evict_static_pods)?;
        config.take_logs(&fields);
        config.take_process(&fields)?;
        Ok(config)
    }

    fn take_places(&mut self, fields: &Fields<'_>) {
        if let Some(path) = fields.text("podLogsDir") {
            self.pod_logs_dir = PathBuf::from(path);
        }
        if let Some(Value::String(path)) = fields.at("staticPodPath") {
            self.static_pod_path = (!path.is_empty()).then(|| PathBuf::from(path));
        }
        if let Some(Value::String(path)) = fields.at("resolvConf") {
            self.resolv_conf = (!path.is_empty()).then(|| PathBuf::from(path));
        }
        if let Some(path) = fields.text("containerRuntimeEndpoint").and_then(socket_path) {
            self.runtime_endpoint = PathBuf::from(path);
        }
        self.image_endpoint = match fields.text("imageServiceEndpoint").and_then(socket_path) {
            Some(path) => PathBuf::from(path),
            None => self.runtime_endpoint.clone(),
        };
        fields.replace("fileCheckFrequency", Fields::period, &mut self.file_check_frequency);
        fields.replace("syncFrequency", Fields::period, &mut self.sync_frequency);
        fields.replace("runtimeRequestTimeout", Fields::period, &mut self.runtime_request_timeout);
    }

    fn take_images(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        self.max_parallel_image_pulls = fields.count("maxParallelImagePulls");
        let parallel = self.max_parallel_image_pulls.filter(|pulls| *pulls > 1);
        self.serialize_image_pulls = fields.bool("serializeImagePulls").unwrap_or(parallel.is_none());
        fields.replace("registryPullQPS", Fields::count, &mut self.registry_pull_qps);
        fields.replace("registryBurst", Fields::positive, &mut self.registry_burst);
        match parallel {
            Some(pulls) if self.serialize_image_pulls => Err(conflict(
                "serializeImagePulls",
                format!("expected false with maxParallelImagePulls {pulls}, found true"),
            )),
            _ => Ok(()),
        }
    }

    fn take_image_gc(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        let percent = |path: &str| fields.int(path).and_then(|percent| u8::try_from(percent).ok());
        let gc = &mut self.image_gc;
        gc.high = percent("imageGCHighThresholdPercent").unwrap_or(gc.high);
        gc.low = percent("imageGCLowThresholdPercent").unwrap_or(gc.low);
        fields.replace("imageMinimumGCAge", Fields::duration, &mut gc.min_age);
        fields.replace("imageMaximumGCAge", Fields::duration, &mut gc.max_age);
        if gc.low >= gc.high {
            let fault = format!("expected less than imageGCHighThresholdPercent {}, found {}", gc.high, gc.low);
            return Err(conflict("imageGCLowThresholdPercent", fault));
        }
        if !gc.max_age.is_zero() && gc.max_age <= gc.min_age {
            return Err(conflict("imageMaximumGCAge", "expected more than imageMinimumGCAge".to_owned()));
        }
        Ok(())
    }

    fn take_credentials_verification(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        let allowlist = fields.at("preloadedImagesVerificationAllowlist").and_then(Value::as_array);
        let allowlist: Vec<String> =
            allowlist.into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect();
        let policy = fields.text("imagePullCredentialsVerificationPolicy").unwrap_or("NeverVerifyPreloadedImages");
        if !allowlist.is_empty() && policy != "NeverVerifyAllowlistedImages" {
            let fault = "requires imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages".to_owned();
            return Err(conflict("preloadedImagesVerificationAllowlist", fault));
        }
        if let Some((index, pattern)) = allowlist.iter().enumerate().find(|(_, pattern)| !is_image_pattern(pattern)) {
            let fault = format!(
                "expected the name of an image without tag and digest, or its beginning and /*, found {pattern:?}"
            );
            return Err(conflict(&format!("preloadedImagesVerificationAllowlist[{index}]"), fault));
        }
        self.credentials_verification = match policy {
            "NeverVerify" => CredentialsVerification::Never,
            "NeverVerifyAllowlistedImages" => CredentialsVerification::NeverFor(allowlist),
            "AlwaysVerify" => CredentialsVerification::Always,
            _ => CredentialsVerification::NeverForPreloaded,
        };
        Ok(())
    }

    fn take_pods(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        fields.replace("maxPods", Fields::positive, &mut self.max_pods);
        self.pods_per_core = fields.positive("podsPerCore");
        self.pod_pids_limit = fields.int("podPidsLimit").filter(|limit| *limit > 0);
        fields.replace("seccompDefault", Fields::bool, &mut self.seccomp_default);
        if let Some(Value::Array(names)) = fields.at("allowedUnsafeSysctls") {
            self.allowed_unsafe_sysctls = names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect();
        }
        let period = "crashLoopBackOff.maxContainerRestartPeriod";
        fields.replace(period, Fields::duration, &mut self.max_container_restart_period);
        if let Some(Value::Array(servers)) = fields.at("clusterDNS") {
            self.cluster_dns = servers.iter().filter_map(|server| server.as_str()?.parse().ok()).collect();
        }
        self.cluster_domain = fields.text("clusterDomain").unwrap_or_default().to_owned();
        let ids = "userNamespaces.idsPerPod";
        fields.replace(ids, Fields::positive, &mut self.user_ids_per_pod);
        if self.user_ids_per_pod % 65536 != 0 {
            return Err(conflict(ids, format!("expected a multiple of 65536, found {}", self.user_ids_per_pod)));
        }
        Ok(())
    }

    fn take_cgroups(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        if fields.text("cgroupDriver") == Some("systemd") {
            self.cgroup_driver = CgroupDriver::Systemd;
        }
        self.cgroup_root = fields.text("cgroupRoot").unwrap_or_default().to_owned();
        fields.replace("cgroupsPerQOS", Fields::bool, &mut self.cgroups_per_qos);
        fields.replace("cpuCFSQuota", Fields::bool, &mut self.cpu_cfs_quota);
        fields.replace("cpuCFSQuotaPeriod", Fields::duration, &mut self.cpu_cfs_quota_period);
        self.single_process_oom_kill = fields.bool("singleProcessOOMKill");
        fields.replace("failSwapOn", Fields::bool, &mut self.fail_swap_on);
        let protects = fields.bool("protectKernelDefaults") == Some(true);
        if protects && self.kernel_parameters == KernelParameters::Set {
            self.kernel_parameters = KernelParameters::Check;
        }
        if fields.text("memorySwap.swapBehavior") == Some("LimitedSwap") {
            self.swap = SwapBehavior::LimitedSwap;
        }
        self.system_reserved = fields.reserved("systemReserved");
        self.kube_reserved = fields.reserved("kubeReserved");
        self.system_reserved_cgroup = fields.text("systemReservedCgroup").unwrap_or_default().to_owned();
        self.kube_reserved_cgroup = fields.text("kubeReservedCgroup").unwrap_or_default().to_owned();
        for (path, group) in [
            ("cgroupRoot", &self.cgroup_root),
            ("systemReservedCgroup", &self.system_reserved_cgroup),
            ("kubeReservedCgroup", &self.kube_reserved_cgroup),
        ] {
            if group.split('/').any(|part| matches!(part, "." | "..")) {
                return Err(conflict(path, format!("expected a path without . and .., found {group:?}")));
            }
        }
        self.take_enforced(fields)
    }

    fn take_enforced(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        const PATH: &str = "enforceNodeAllocatable";
        let levels: Vec<&str> = match fields.at(PATH).and_then(Value::as_array) {
            Some(levels) => levels.iter().filter_map(Value::as_str).filter(|level| !level.is_empty()).collect(),
            None if self.cgroups_per_qos => vec!["pods"],
            None => Vec::new(),
        };
        let has = |level| levels.contains(&level);
        let others = levels.iter().any(|level| *level != "none");
        if others && !self.cgroups_per_qos {
            return Err(conflict(PATH, "expected none where cgroupsPerQOS is false".to_owned()));
        }
        if others && has("none") {
            return Err(conflict(PATH, "none excludes all other values".to_owned()));
        }
        for (whole, compressible, group, named) in [
            ("system-reserved", "system-reserved-compressible", "systemReservedCgroup", &self.system_reserved_cgroup),
            ("kube-reserved", "kube-reserved-compressible", "kubeReservedCgroup", &self.kube_reserved_cgroup),
        ] {
            if has(whole) && has(compressible) {
                return Err(conflict(PATH, format!("expected {whole} or {compressible}, found both")));
            }
            if (has(whole) || has(compressible)) && named.is_empty() {
                return Err(conflict(group, format!("required where {PATH} has {whole} or {compressible}")));
            }
        }
        self.enforced = Enforced {
            pods: has("pods"),
            system: has("system-reserved"),
            kube: has("kube-reserved"),
            system_compressible: has("system-reserved-compressible"),
            kube_compressible: has("kube-reserved-compressible"),
        };
        Ok(())
    }

    fn take_logs(&mut self, fields: &Fields<'_>) {
        let size = fields.text("containerLogMaxSize").and_then(|size| size.parse::<Quantity>().ok());
        if let Some(bytes) = size.and_then(|size| u64::try_from(size.value()).ok()).filter(|bytes| *bytes > 0) {
            self.container_log_max_bytes = bytes;
        }
        fields.replace("containerLogMaxFiles", Fields::positive, &mut self.container_log_max_files);
        fields.replace("containerLogMaxWorkers", Fields::positive, &mut self.container_log_max_workers);
        fields.replace("containerLogMonitorInterval", Fields::period, &mut self.container_log_monitor_interval);
    }

    fn take_process(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        if let (Some(address), Some(port)) = (&mut self.healthz, fields.int("healthzPort")) {
            address.set_port(u16::try_from(port).unwrap_or_default());
        }
        if let (Some(address), Some(ip)) = (&mut self.healthz, fields.text("healthzBindAddress")) {
            if let Ok(ip) = ip.parse() {
                address.set_ip(ip);
            }
        }
        self.healthz = self.healthz.filter(|address| address.port() != 0);
        if let Some(score) = fields.int("oomScoreAdj").and_then(|score| i32::try_from(score).ok()) {
            self.oom_score_adj = score;
        }
        self.shutdown_phases = shutdown::read(fields)?;
        self.verbosity = fields.int("logging.verbosity").map_or(0, |level| u8::try_from(level).unwrap_or(u8::MAX));
        Ok(())
    }
}

/// `registry.example.com/team/app`, or a prefix followed by `/*`.
fn is_image_pattern(pattern: &str) -> bool {
    let name = pattern.strip_suffix("/*").unwrap_or(pattern);
    let last = name.rsplit('/').next().unwrap_or_default();
    let is_registry = !name.contains('/') && name.len() < pattern.len();
    !name.is_empty() && !name.contains(['*', '@', ' ']) && !name.ends_with('/') && (is_registry || !last.contains(':'))
}

/// A setting that conflicts with another.
pub(super) fn conflict(path: &str, fault: String) -> Problem {
    Problem { path: path.to_owned(), fault }
}
