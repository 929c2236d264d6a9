//! What the checks know about the machine. Pure.

use crate::types::sorted::SortedMap;

/// Whether the kernel has a feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Feature {
    Present,
    Missing,
    /// The kernel shows neither its configuration nor its modules.
    #[default]
    Unknown,
}

#[derive(Clone, Debug, Default)]
pub(super) struct KernelFacts {
    /// Such as `6.1.0-18-arm64`.
    pub(super) release: String,
    /// Such as `aarch64`.
    pub(super) machine: String,
    /// By the names of [`super::kernel::FEATURES`].
    pub(super) features: SortedMap<&'static str, Feature>,
    /// `user.max_user_namespaces`.
    pub(super) most_user_namespaces: Option<u64>,
    /// The cgroup v2 controllers of the root; `None`: no cgroup v2 at /sys/fs/cgroup.
    pub(super) controllers: Option<Vec<String>>,
    pub(super) swap_area: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ClockFacts {
    /// Unix seconds, as are the others.
    pub(super) now: i64,
    pub(super) built: Option<i64>,
    /// The latest time that the agent has seen on this node.
    pub(super) latest: Option<i64>,
    /// A clock with a battery.
    pub(super) has_rtc: bool,
    /// The program that sets the clock from the network.
    pub(super) time_service: Option<String>,
    /// `None`: unknown, as without systemd.
    pub(super) is_synchronised: Option<bool>,
}

/// The file system of a directory, or of the nearest one above it that exists.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskFacts {
    /// What it is for, such as `state`.
    pub(super) purpose: &'static str,
    pub(super) path: String,
    pub(super) capacity: u64,
    pub(super) available: u64,
    pub(super) inodes: u64,
    pub(super) inodes_free: u64,
    pub(super) is_read_only: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct WatchdogFacts {
    /// `--watchdog-device`.
    pub(super) configured: Option<String>,
    /// The configured device exists.
    pub(super) exists: bool,
    /// Devices of the machine with their timeouts in seconds, such as `watchdog0`.
    pub(super) devices: Vec<(String, Option<u64>)>,
}

/// One port of the agent.
#[derive(Clone, Debug, Default)]
pub(super) struct PortFacts {
    pub(super) port: u16,
    /// Such as `kubelet API`.
    pub(super) purpose: &'static str,
    /// The process that listens on it: its pid, 0 if unknown, and its name.
    pub(super) holder: Option<(u32, String)>,
    /// The holder is the agent that answers on the local socket.
    pub(super) is_own: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct CertificateFacts {
    /// `client`, `serving` or `client CA`.
    pub(super) name: &'static str,
    pub(super) path: String,
    /// Unix seconds; the error is one line.
    pub(super) not_after: Option<Result<i64, String>>,
}

/// The pod network.
#[derive(Clone, Debug, Default)]
pub(super) struct CniFacts {
    pub(super) config_directory: String,
    /// The first configuration in the directory: its name, and the types of its plugins or why it cannot be read.
    pub(super) config: Option<(String, Result<Vec<String>, String>)>,
    pub(super) plugin_directories: Vec<String>,
    /// Programs in the plugin directories.
    pub(super) plugins: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RuntimeFacts {
    /// The socket.
    pub(super) endpoint: String,
    pub(super) response: Option<Result<RuntimeAnswer, RuntimeError>>,
    /// Sockets of runtimes at their usual places.
    pub(super) other_sockets: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RuntimeAnswer {
    pub(super) name: String,
    pub(super) version: String,
    /// `None`: it does not say.
    pub(super) ready: Option<bool>,
    pub(super) message: String,
    /// `None`: it does not say.
    pub(super) network_ready: Option<bool>,
    pub(super) network_message: String,
    /// The pause image by the runtime's configuration.
    pub(super) pause_image: Option<String>,
    /// Whether the runtime has the pause image; without a name of it, any pinned image.
    pub(super) has_pause_image: Option<bool>,
    pub(super) cni_config_directory: Option<String>,
    pub(super) cni_plugin_directories: Vec<String>,
    pub(super) passes_groups: Option<bool>,
}

/// What the lean profile needs of the runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct LeanFacts {
    /// `--runtime-profile=lean`.
    pub(super) is_asked_for: bool,
    /// containerd passes the annotation of groups to its shim; `None`: unknown, or another runtime.
    pub(super) passes_groups: Option<bool>,
    /// `NAME=VALUE` of the runtime's process; `None`: unknown.
    pub(super) environment: Option<Vec<String>>,
    pub(super) memory_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuntimeError {
    NoSocket,
    /// The socket does not have the CRI.
    NoCri,
    Other(String),
}
