//! Opens every part of the agent, runs them, and waits for the end.

mod cluster;
mod drain;
mod handles;
mod node;
mod open;
mod plugins;
mod runtime;
mod servers;
mod sources;
mod spawn;

use std::future::Future;
use std::process::ExitCode;
use std::rc::Rc;

use crate::control::server::{LocalError, systemd};
use crate::platform::config::Config;
use crate::platform::host::signals;
use crate::platform::net::ProxySettings;
use crate::platform::rt;
use crate::types::error::ErrorChain;

use open::Agent;
use spawn::SpawnedAgent;

/// Runs the node agent until it is asked to end. Pods keep running.
pub(crate) fn run(config: Config) -> ExitCode {
    let ended = match signals::termination() {
        Ok(ended) => ended,
        Err(error) => {
            log!(error, "not started", tried = "wait for signals", error = ErrorChain(&error));
            return ExitCode::FAILURE;
        }
    };
    rt::block_on(serve(Rc::new(config), ProxySettings::from_environment(), ended))
}

/// Runs the agent until `ended`, without handling signals.
pub(crate) async fn serve(config: Rc<Config>, proxies: ProxySettings, ended: impl Future<Output = ()>) -> ExitCode {
    log!(info, "starting", version = env!("CARGO_PKG_VERSION"), node = config.node.name);
    let agent = match Agent::open(config, proxies).await {
        Ok(agent) => agent,
        Err(error) => {
            error.log();
            return ExitCode::FAILURE;
        }
    };
    let SpawnedAgent { sync_loop, background } = agent.spawn();
    systemd::ready();
    let terminated = async {
        ended.await;
        None
    };
    let end = rt::either(terminated, async { Some(sync_loop.await) }).await;
    systemd::stopping();
    background.drain(end).await
}

/// Why the agent does not start.
enum StartError {
    LocalSocket(LocalError),
    /// One line that names the setting that does not fit this machine.
    Settings(String),
}

impl StartError {
    fn log(&self) {
        match self {
            Self::LocalSocket(error) => {
                log!(error, "not started", tried = "open the local socket", error = ErrorChain(error));
            }
            Self::Settings(fault) => log!(error, "not started", error = fault),
        }
    }
}
