//! Reads what the runtime of this machine is, and how it is configured.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::board::{Board, is_new_crun, parse_version};
use crate::cli::command_table::RuntimeConfig;
use crate::cli::doctor::{agent_settings, settings};
use crate::cli::outputs::{CgroupDriverName, RuntimeName};
use crate::platform::config::{CgroupDriver, Config};
use crate::platform::cri::{RuntimeService, v1};
use crate::platform::{rpc, rt};
use crate::protocol::grpc;

/// For all questions together.
const RUNTIME_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of the running agent, or else of its service.
pub(super) fn agent_config(command: &RuntimeConfig) -> Box<Config> {
    let running = agent_settings::running(&command.local_socket);
    let flags = running.map_or_else(|| agent_settings::of_service(Path::new("/")).0, |(_, flags)| flags);
    settings(&flags).map(|(config, _)| config).unwrap_or_default()
}

/// The options come first, then what the running runtime says, then its program and the settings of the agent.
pub(super) fn read(command: &RuntimeConfig) -> Board {
    let config = agent_config(command);
    let mut board = Board {
        version: None,
        driver: config.cgroups.driver,
        pause_image: None,
        snapshotter: None,
        cni_config_directory: None,
        cni_plugin_directories: Vec::new(),
        registry_hosts_directory: None,
        crun: crun(command.crun.as_deref()),
        shim: command.shim.as_ref().map(|path| path.display().to_string()),
    };
    if config.runtime.endpoint.exists() {
        // Without an answer, the rest is still true.
        let _ = rt::block_on(rt::deadline(RUNTIME_ANSWER_TIMEOUT, ask(&config, command.runtime, &mut board)));
    }
    if let Some(version) = &command.runtime_version {
        board.version = parse_version(version);
    }
    let program = command.runtime.program();
    board.version = board.version.or_else(|| parse_version(&output_of(program)?));
    board.driver = command.cgroup_driver.map_or(board.driver, driver);
    board.pause_image = command.pause_image.clone().or(board.pause_image);
    if let Some(directory) = &command.cni_bin_dir {
        board.cni_plugin_directories = vec![directory.display().to_string()];
    }
    board
}

async fn ask(config: &Config, wanted: RuntimeName, board: &mut Board) {
    let client = rpc::Client::with_limit(&config.runtime.endpoint.to_string_lossy(), grpc::MAX_MESSAGE_BYTES);
    let runtime = RuntimeService::new(client, RUNTIME_ANSWER_TIMEOUT);
    let Ok(version) = runtime.version().await else { return };
    if version.runtime_name != wanted.cri_name() {
        return;
    }
    board.version = parse_version(&version.runtime_version);
    if let Ok(status) = runtime.status(true).await {
        board.pause_image = status.sandbox_image();
        board.take_over(status.info.get("config").map_or("", String::as_str));
    }
    // Runtimes older than CRI API 0.28 cannot tell. The agent then uses its own setting, which has to be the same.
    if let Ok(Some(driver)) = runtime.cgroup_driver().await {
        board.driver = match driver {
            v1::CgroupDriver::Systemd => CgroupDriver::Systemd,
            v1::CgroupDriver::Cgroupfs | v1::CgroupDriver::Unrecognized(_) => CgroupDriver::Cgroupfs,
        };
    }
}

fn driver(name: CgroupDriverName) -> CgroupDriver {
    match name {
        CgroupDriverName::Cgroupfs => CgroupDriver::Cgroupfs,
        CgroupDriverName::Systemd => CgroupDriver::Systemd,
    }
}

/// The path of crun, if it is new enough: that of this machine, or one with the `given` version elsewhere.
fn crun(known_version: Option<&str>) -> Option<String> {
    let path = "/usr/bin/crun";
    let version = known_version.map_or_else(|| output_of(path), |known_version| Some(known_version.to_owned()))?;
    is_new_crun(&version).then(|| path.to_owned())
}

/// What `PROGRAM --version` prints; `None` if there is no such program.
fn output_of(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
