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
use std::time::Duration;

use crate::control::server::{LocalError, systemd};
use crate::kubelet::agent_update;
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
    match rt::block_on(serve(Rc::new(config), ProxySettings::from_environment(), ended)) {
        AgentEnd::Failed => ExitCode::FAILURE,
        AgentEnd::Terminated => ExitCode::SUCCESS,
        AgentEnd::Restart => {
            let error = agent_update::restart();
            log!(error, "failed to execute the installed program, exiting", error = ErrorChain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Why the agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentEnd {
    Failed,
    /// An update of the agent itself.
    Restart,
    Terminated,
}

/// Runs the agent until `ended`, without handling signals.
pub(crate) async fn serve(config: Rc<Config>, proxies: ProxySettings, ended: impl Future<Output = ()>) -> AgentEnd {
    log!(info, "starting", version = env!("CARGO_PKG_VERSION"), node = config.node.name);
    let agent = match Agent::open(config, proxies).await {
        Ok(agent) => agent,
        Err(error) => {
            error.log();
            return AgentEnd::Failed;
        }
    };
    let SpawnedAgent { sync_loop, background, restart } = agent.spawn();
    systemd::ready();
    let terminated = async {
        ended.await;
        (AgentEnd::Terminated, None)
    };
    let restarted = async {
        if restart.recv().await.is_err() {
            std::future::pending::<()>().await;
        }
        // The answer to the request for it comes first.
        rt::sleep(RESTART_DELAY).await;
        (AgentEnd::Restart, None)
    };
    let failed = async { (AgentEnd::Failed, Some(sync_loop.await)) };
    let (end, loop_end) = rt::either(terminated, rt::either(restarted, failed)).await;
    // The service goes on with a restart.
    if end != AgentEnd::Restart {
        systemd::stopping();
    }
    background.drain(loop_end).await;
    end
}

/// Between the request for a restart and the end.
const RESTART_DELAY: Duration = Duration::from_millis(300);

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
