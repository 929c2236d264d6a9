//! The effective configuration, as all other modules read it. Pure.

use core::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::api_endpoint::ApiEndpointSettings;
use super::cgroups::{self, CgroupSettings};
use super::check::Problem;
use super::cluster::{self, ClusterSettings};
use super::configz::ConfiguredFields;
use super::device_rules::DeviceRule;
use super::dns::{self, DnsSettings};
use super::eviction::{self, Eviction};
use super::feature_gates::FeatureGates;
use super::fields::Fields;
use super::flag_values::FlagValues;
use super::health::{self, HealthSettings};
use super::identity::{self, Identity};
use super::images::{self, ImageSettings};
use super::logs::{self, LogSettings};
use super::managers::{self, Managers};
use super::name_template::NameTemplate;
use super::offline::{self, OfflineSettings};
use super::pods::{self, PodSettings};
use super::process::{self, ProcessSettings};
use super::reserved::{self, Reservations};
use super::runtime::{self, RuntimeSettings};
use super::schema::MAX_UPDATE_LOCK_LIMIT;
use super::shutdown::{self, ShutdownPhase};
use super::static_pods::{self, StaticPods};
use super::tracing::{self, TracingSettings};
use crate::types::api::Map as Labels;

/// Flags and configuration files merged, by subject. Where a value came from is not kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// `--root-dir`.
    pub(crate) root_dir: PathBuf,
    /// Directory of the claims of manifests.
    pub(crate) claims_dir: PathBuf,
    pub(crate) process: ProcessSettings,
    pub(crate) health: HealthSettings,
    pub(crate) node: NodeIdentity,
    pub(crate) cluster: ClusterSettings,
    pub(crate) identity: Identity,
    pub(crate) offline: OfflineSettings,
    pub(crate) static_pods: StaticPods,
    pub(crate) runtime: RuntimeSettings,
    pub(crate) images: ImageSettings,
    pub(crate) pods: PodSettings,
    pub(crate) dns: DnsSettings,
    pub(crate) logs: LogSettings,
    pub(crate) cgroups: CgroupSettings,
    pub(crate) reserved: Reservations,
    pub(crate) managers: Managers,
    pub(crate) eviction: Eviction,
    /// In the order of their priorities; empty: the node does not delay a shutdown.
    pub(crate) shutdown_phases: Vec<ShutdownPhase>,
    /// `devices` of Coracle's own file: what containers may have without a plugin.
    pub(crate) devices: Vec<DeviceRule>,
    /// How long a pod may keep the node from stopping it at most: `updates.lockLimit`.
    pub(crate) update_lock_limit: Duration,
    /// `apiEndpoint`; `None`: off.
    pub(crate) api_endpoint: Option<ApiEndpointSettings>,
    pub(crate) gates: FeatureGates,
    /// `None`: off.
    pub(crate) tracing: Option<TracingSettings>,
    /// The fields as they were configured, for `/configz`.
    pub(crate) configured: ConfiguredFields,
}

/// The node's name, addresses and labels: `--hostname-override`, `--node-ip` and `--node-labels`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeIdentity {
    /// The host's name in lower case, or what `--hostname-override` or a template says.
    pub(crate) name: String,
    /// The template that has given the name.
    pub(crate) template: Option<NameTemplate>,
    /// As given; empty means: the address of the default route's interface.
    pub(crate) ips: Vec<IpAddr>,
    /// Labels of the node, beside those that every node has.
    pub(crate) labels: Labels<String>,
}

impl Default for Config {
    /// The kubelet's defaults, except for the manifest directory, which the kubelet leaves unset.
    fn default() -> Self {
        Self {
            root_dir: PathBuf::from(DEFAULT_ROOT_DIR),
            claims_dir: PathBuf::from(DEFAULT_CLAIMS_DIR),
            process: ProcessSettings::default(),
            health: HealthSettings::default(),
            node: NodeIdentity::default(),
            cluster: ClusterSettings::default(),
            identity: Identity::default(),
            offline: OfflineSettings::default(),
            static_pods: StaticPods::default(),
            runtime: RuntimeSettings::default(),
            images: ImageSettings::default(),
            pods: PodSettings::default(),
            dns: DnsSettings::default(),
            logs: LogSettings::default(),
            cgroups: CgroupSettings::default(),
            reserved: Reservations::default(),
            managers: Managers::default(),
            eviction: Eviction::default(),
            shutdown_phases: Vec::new(),
            devices: Vec::new(),
            update_lock_limit: MAX_UPDATE_LOCK_LIMIT,
            api_endpoint: None,
            gates: FeatureGates::default(),
            tracing: None,
            configured: ConfiguredFields::default(),
        }
    }
}

/// That of local-path-provisioner.
pub(crate) const DEFAULT_CLAIMS_DIR: &str = "/opt/local-path-provisioner";
pub(super) const DEFAULT_ROOT_DIR: &str = "/var/lib/kubelet";

impl Config {
    /// Combines the checked `fields` of files and flags with the settings that exist only as flags.
    ///
    /// As in the kubelet, a zero or an empty string means "the default" wherever it can mean nothing else.
    pub(super) fn new(flags: &FlagValues, fields: &Map<String, Value>, node_name: String) -> Result<Self, Problem> {
        let fields = &Fields(fields);
        let root_dir = flags.root_dir.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_ROOT_DIR));
        let cluster = cluster::read(fields, flags)?;
        let identity = identity::read(fields, flags, &root_dir)?;
        let static_pods = static_pods::read(fields, flags)?;
        let images = images::read(fields, flags, &root_dir)?;
        let pods = pods::read(fields)?;
        let cgroups = cgroups::read(fields, flags)?;
        let mut reserved = reserved::read(fields, cgroups.per_qos)?;
        let managers = managers::read(fields, &mut reserved)?;
        Ok(Self {
            process: process::read(fields, flags),
            health: health::read(fields, flags),
            node: NodeIdentity {
                name: node_name,
                template: None,
                ips: flags.node_ips.clone(),
                labels: flags.node_labels.clone(),
            },
            cluster,
            identity,
            offline: offline::read(flags, &root_dir),
            static_pods,
            runtime: runtime::read(fields, flags),
            images,
            pods,
            dns: dns::read(fields),
            logs: logs::read(fields),
            eviction: eviction::read(fields, reserved.enforced.pods, flags.evict_static_pods)?,
            cgroups,
            reserved,
            managers,
            shutdown_phases: shutdown::read(fields)?,
            devices: Vec::new(),
            update_lock_limit: MAX_UPDATE_LOCK_LIMIT,
            api_endpoint: None,
            gates: FeatureGates::default(),
            tracing: tracing::read(fields)?,
            configured: ConfiguredFields::default(),
            root_dir,
            claims_dir: flags.local_path_dir.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_CLAIMS_DIR)),
        })
    }
}
