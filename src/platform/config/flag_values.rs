//! The values of a command line, as its flags give them. Pure.

use core::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::check::Ineffective;
use super::name_template::NameTemplate;
use super::runtime_profile::RuntimeProfile;
use crate::types::api::Map as Labels;

#[derive(Debug, Default, PartialEq)]
pub(super) struct FlagValues {
    /// Each flag as it was given, with secrets masked.
    pub(super) flags: Vec<(String, String)>,
    pub(super) help: bool,
    pub(super) version: bool,
    pub(super) config: Option<PathBuf>,
    pub(super) config_dir: Option<PathBuf>,
    pub(super) coracle_config: Option<PathBuf>,
    pub(super) hostname_override: Option<String>,
    pub(super) name_template: Option<NameTemplate>,
    /// `Some(None)`: no such file is read.
    pub(super) join_file: Option<Option<PathBuf>>,
    pub(super) node_ips: Vec<IpAddr>,
    pub(super) node_labels: Labels<String>,
    pub(super) page_address: Option<IpAddr>,
    /// 0: no status page.
    pub(super) page_port: u16,
    pub(super) root_dir: Option<PathBuf>,
    pub(super) local_path_dir: Option<PathBuf>,
    pub(super) runtime_cgroups: String,
    pub(super) runtime_profile: RuntimeProfile,
    pub(super) cert_dir: Option<PathBuf>,
    pub(super) local_socket: Option<PathBuf>,
    pub(super) lock_file: Option<PathBuf>,
    pub(super) watchdog_device: Option<PathBuf>,
    pub(super) offline_key_file: Option<PathBuf>,
    pub(super) offline_plain_secrets: bool,
    pub(super) credential_provider_bin_dir: Option<PathBuf>,
    pub(super) credential_provider_config: Option<PathBuf>,
    pub(super) image_archives: Option<PathBuf>,
    pub(super) manifest_plain_signatures: bool,
    pub(super) manifest_public_key: Option<PathBuf>,
    pub(super) manifest_url_ca_file: Option<PathBuf>,
    pub(super) strict_image_pull_policy: bool,
    pub(super) leave_kernel_parameters: bool,
    pub(super) evict_static_pods: bool,
    pub(super) external_cloud: bool,
    pub(super) unschedulable: bool,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) bootstrap_kubeconfig: Option<PathBuf>,
    /// The fields of `KubeletConfiguration` that flags set.
    pub(super) fields: Map<String, Value>,
    /// Flags without an effect.
    pub(super) ineffective: Ineffective,
    pub(super) warnings: Vec<String>,
}
