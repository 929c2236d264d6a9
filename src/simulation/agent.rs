//! The agent as a process of the simulated machine: its configuration, starts, kills and power cuts.

use std::future;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;

use super::api_server::NODE;
use super::container_runtime::SOCKET;
use super::life::{API_NAME, Node};
use super::plan::HeldCall;
use super::record::Rule;
use crate::node_agent;
use crate::platform::config;
use crate::platform::net::ProxySettings;
use crate::platform::rt;

/// Within this time the agent makes every call that a step leads to.
pub(super) const LATEST_CALL_TIME: Duration = Duration::from_secs(120);
/// Longest job on a healthy disk.
pub(super) const QUICK_DISK_TIME: Duration = Duration::from_millis(3);
/// After this time the signal thread ends the process.
const ORDERLY_END_TIME: Duration = Duration::from_secs(4);

impl Node {
    pub(super) fn configure(&mut self) {
        let path = |name: &str| self.machine.path(name);
        let configuration = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: {}\npodLogsDir: {}\n\
             resolvConf: {}\nfailSwapOn: false\ncgroupsPerQOS: false\nhealthzPort: 0\nenableServer: false\n\
             makeIPTablesUtilChains: false\n\
             imageGCHighThresholdPercent: 100\nevictionHard: {{}}\nmaxPods: {}\n\
             crashLoopBackOff: {{maxContainerRestartPeriod: 20s}}\nnodeLeaseDurationSeconds: {}\n",
            path("manifests"),
            path("logs"),
            path("resolv.conf"),
            // Upstream's default, which a hundred Jobs reach.
            if self.is_alone { 110 } else { 250 },
            self.lease.as_secs(),
        );
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{API_NAME}:6443")}}],
            "users": [{"name": "u", "user": {"token": "known"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(self.machine.disk.join("config.yaml"), configuration).unwrap();
        std::fs::write(self.machine.disk.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    }

    pub(super) fn start_agent(&mut self) {
        let known = self.api.look(|server| server.list("/api/v1/pods"));
        let known: Vec<&str> = known.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
        self.runtime.forget_graces_except(&known);
        let path = |name: &str| self.machine.path(name);
        let arguments = [
            ("--config", path("config.yaml")),
            ("--root-dir", path("pods")),
            ("--hostname-override", NODE.to_owned()),
            ("--local-socket", path("coracle.sock")),
            ("--container-runtime-endpoint", format!("unix://{SOCKET}")),
            ("--kubeconfig", path("kubeconfig")),
            ("--cert-dir", path("pods/pki")),
            ("--image-archives", path("archives")),
            ("--join-file", String::new()),
        ];
        let arguments = arguments.into_iter().filter(|(flag, _)| *flag != "--kubeconfig" || !self.is_alone);
        let arguments = arguments.flat_map(|(flag, value)| [flag.to_owned(), value]);
        let arguments: Vec<String> = std::iter::once("--leave-kernel-parameters".to_owned()).chain(arguments).collect();
        let Ok(config::Request::Run(config, _)) = config::load(&arguments) else {
            panic!("{:?}", config::load(&arguments));
        };
        self.record.line("the agent starts");
        let record = Rc::clone(&self.record);
        let (signal, signalled) = async_channel::bounded::<()>(1);
        self.signal = Some(signal);
        self.agent = Some(self.world.spawn_program(async move {
            let ended = async {
                if signalled.recv().await.is_err() {
                    future::pending::<()>().await;
                }
            };
            let end = node_agent::serve(Rc::new(*config), ProxySettings::default(), ended).await;
            // The sender is dropped once the signal was sent.
            if signalled.is_closed() {
                return;
            }
            record.violated(Rule::AgentRuns, format!("the agent ended by itself ({end:?})"));
        }));
        self.starts = None;
    }

    /// Kills the agent like `kill -9`.
    pub(super) async fn kill_agent(&mut self) {
        self.agent.take();
        self.signal.take();
        self.world.end_life();
        // The executor drops its tasks when it next runs.
        rt::sleep(Duration::from_millis(1)).await;
        self.record.line("the agent is gone");
    }

    /// Whether the disk or the machine is slow or fails.
    fn is_slow(&self) -> bool {
        let world = &self.world;
        world.disk.get() > QUICK_DISK_TIME || !world.longest_turn.get().is_zero() || world.files.failing.get() > 0
    }

    /// Ends the agent with SIGTERM. Its signal thread ends it by force if it does not do so itself.
    pub(super) async fn end_agent(&mut self) {
        let (Some(agent), Some(signal)) = (self.agent.take(), self.signal.take()) else { return };
        self.record.line("the agent gets SIGTERM");
        // The channel has room for the signal.
        let _ = signal.try_send(());
        drop(signal);
        let is_slow = self.is_slow();
        match rt::deadline(ORDERLY_END_TIME, agent).await {
            Err(rt::Elapsed) if is_slow => self.record.count("agents ended by force"),
            Err(rt::Elapsed) => {
                self.record.violated(Rule::Ends, format!("SIGTERM did not end it in {ORDERLY_END_TIME:?}"))
            }
            Ok(()) => {}
        }
        self.kill_agent().await;
    }

    pub(super) async fn kill_agent_in_call(&mut self, held: HeldCall) {
        if self.agent.is_none() {
            self.start_agent();
        }
        let call = rt::deadline(LATEST_CALL_TIME, self.runtime.until_held());
        if call.await.is_err() {
            return self.record.violated(Rule::Recovers, "the call to be held was never made".into());
        }
        self.record.count("agents killed in a call");
        self.kill_agent().await;
        if held == HeldCall::DoneUnseen {
            self.runtime.release().await;
        }
        self.start_agent();
        if held == HeldCall::DoneLate {
            self.runtime.until_listed().await;
            self.runtime.release().await;
        }
    }

    /// Cuts the power for this time. The agent does not start yet.
    pub(super) async fn cut_power(&mut self, down: Duration) {
        self.record.count("power cuts");
        self.kill_agent().await;
        self.runtime.stop();
        self.runtime.change(|runtime| runtime.end_pods());
        self.wanted.borrow_mut().locks.release_all();
        self.runtime.survivors.borrow_mut().clear();
        self.csi.stop();
        self.cameras.stop();
        self.dra.stop();
        self.machine.power_cut(&self.world);
        self.csi.service.forget_mounts();
        self.dra.service.forget();
        self.starts = None;
        rt::sleep(down).await;
        self.world.reboot();
        self.runtime.start();
        let (csi, cameras, dra) = (Rc::clone(&self.csi), Rc::clone(&self.cameras), Rc::clone(&self.dra));
        self.later(self.world.duration_below(Duration::from_secs(20)), move || {
            csi.start();
            cameras.start();
            dra.start();
        });
    }
}
