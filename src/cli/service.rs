//! The systemd service of the agent.

use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Restarted,
    /// There is no systemd service; the agent is started in another way.
    None,
    /// One line.
    Failed(String),
}

const UNIT: &str = "coracle.service";

/// Enables and restarts the service, so that it reads its files again.
pub(super) fn restart() -> Service {
    if !Path::new("/run/systemd/system").is_dir() || systemctl(&["cat", UNIT]).is_err() {
        return Service::None;
    }
    match systemctl(&["enable", UNIT]).and_then(|()| systemctl(&["restart", UNIT])) {
        Ok(()) => Service::Restarted,
        Err(error) => Service::Failed(error),
    }
}

fn systemctl(arguments: &[&str]) -> Result<(), String> {
    let line = format!("systemctl {}", arguments.join(" "));
    let output = Command::new("systemctl").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{line}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            Err(format!("{line}: {}", stderr.lines().next().unwrap_or("it failed")))
        }
    }
}
