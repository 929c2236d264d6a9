//! Settings of the agent's own process. Pure.

use std::path::PathBuf;

use super::fields::Fields;
use super::flag_values::FlagValues;

/// The agent's process and its host: `oomScoreAdj`, `logging.verbosity`, `failSwapOn`,
/// `makeIPTablesUtilChains` and `protectKernelDefaults`; `--lock-file`, `--local-socket` and `--leave-kernel-parameters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessSettings {
    /// Where `coracle status` and `coracle pods` reach this process.
    pub(crate) local_socket: PathBuf,
    /// The file of `--config`.
    pub(crate) config_file: Option<PathBuf>,
    /// Held while this process runs.
    pub(crate) lock_file: Option<PathBuf>,
    pub(crate) oom_score_adj: i32,
    pub(crate) verbosity: u8,
    pub(crate) fail_swap_on: bool,
    pub(crate) kernel_parameters: KernelParameters,
    /// Create the chains that show the node's variant of iptables.
    pub(crate) iptables_chains: bool,
}

/// What the agent does with the kernel parameters that pods rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelParameters {
    /// Compares them, and does not start if one differs.
    Check,
    Leave,
    Set,
}

/// Where the command line looks for the agent of this node.
pub(crate) const LOCAL_SOCKET: &str = "/run/coracle/coracle.sock";

impl Default for ProcessSettings {
    fn default() -> Self {
        Self {
            local_socket: PathBuf::from(LOCAL_SOCKET),
            config_file: None,
            lock_file: None,
            oom_score_adj: -999,
            verbosity: 0,
            fail_swap_on: true,
            kernel_parameters: KernelParameters::Set,
            iptables_chains: true,
        }
    }
}

pub(super) fn read(fields: &Fields<'_>, flags: &FlagValues) -> ProcessSettings {
    let mut process = ProcessSettings {
        config_file: flags.config.clone(),
        lock_file: flags.lock_file.clone(),
        verbosity: fields.int("logging.verbosity").map_or(0, |level| u8::try_from(level).unwrap_or(u8::MAX)),
        ..ProcessSettings::default()
    };
    if let Some(path) = &flags.local_socket {
        process.local_socket.clone_from(path);
    }
    if let Some(score) = fields.int("oomScoreAdj").and_then(|score| i32::try_from(score).ok()) {
        process.oom_score_adj = score;
    }
    fields.replace("failSwapOn", Fields::bool, &mut process.fail_swap_on);
    fields.replace("makeIPTablesUtilChains", Fields::bool, &mut process.iptables_chains);
    if flags.leave_kernel_parameters {
        process.kernel_parameters = KernelParameters::Leave;
    } else if fields.bool("protectKernelDefaults") == Some(true) {
        process.kernel_parameters = KernelParameters::Check;
    }
    process
}
