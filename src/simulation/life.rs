//! Runs a node through a plan.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;

use super::api_server::{self, ADDRESS, ApiServer, NODE};
use super::container_runtime::{self, ContainerRuntime, SOCKET};
use super::csi_driver::CsiDriver;
use super::device_plugin::Cameras;
use super::fake_api::store::Store;
use super::machine::Machine;
use super::plan::{HeldCall, Plan, PluginKind, What};
use super::plugin::{self, Plugin};
use super::record::{Lines, Record, Rule, Violation};
use super::wanted::{Pod, SECRET_DATA, Source, Traits, Wanted, tells_secret};
use crate::node_agent;
use crate::platform::config;
use crate::platform::cri::v1;
use crate::platform::net::ProxySettings;
use crate::platform::rt::{self, Line, Resolver, World, simulate};
use crate::types::log::{self, Level};

/// The result of a simulation.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) violation: Option<Violation>,
    pub(super) lines: Vec<String>,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) digest: u64,
    pub(super) lasted: Duration,
    /// Longest time from the end of the last fault until convergence.
    pub(super) longest_recovery: Duration,
    pub(super) most: BTreeMap<&'static str, u64>,
}

/// Time limit for convergence after the last fault.
const RECOVERY: Duration = Duration::from_secs(300);
/// Longer than a readiness probe takes to run again after a restart.
const SETTLED: Duration = Duration::from_secs(15);
/// Everything an episode started has ended by then.
const SETTLES: Duration = Duration::from_secs(15 * 60);
/// Maximum traffic in an idle hour: 10 MB a day.
const BYTES_AT_REST: u64 = 420_000;
/// Maximum number of synced files in an idle hour: renewed tokens are stored.
const SYNCS_AT_REST: u64 = 30;
/// Minimum number of resource versions that a restore takes back.
const LEAST_HISTORY: u64 = 30;
/// The API server's name in the kubeconfig.
const API_NAME: &str = "api.cluster.test";
/// Within this time the agent makes every call that a step leads to.
const LATEST_CALL: Duration = Duration::from_secs(120);
/// Maximum number of pods.
const PODS: usize = 12;
/// Maximum number of log lines per minute.
const LOG_LINES: u32 = 600;

pub(super) fn live(plan: &Plan) -> Report {
    let (plan, lines) = (plan.clone(), Lines::default());
    let written = Lines::clone(&lines);
    let ended = simulate(plan.seed, move |world| async move {
        let mut node = Node::new(&world, &plan, written);
        node.live(&plan).await;
        node.report()
    });
    let mut report = ended.unwrap_or_else(|stuck| Report {
        violation: Some(Violation { at: stuck.at(), rule: Rule::Alive, what: stuck.to_string() }),
        ..Report::default()
    });
    report.lines.extend(lines.lock().unwrap().drain(..));
    report
}

pub(super) struct Node {
    pub(super) world: Rc<World>,
    pub(super) record: Rc<Record>,
    pub(super) machine: Machine,
    pub(super) wanted: Rc<RefCell<Wanted>>,
    pub(super) api: Rc<ApiServer>,
    pub(super) runtime: Rc<ContainerRuntime>,
    pub(super) csi: Rc<Plugin<CsiDriver>>,
    cameras: Rc<Plugin<Cameras>>,
    /// Duration of the node's lease, after which the cluster takes the node for dead.
    pub(super) lease: Duration,
    agent: Option<rt::Task<()>>,
    /// Faults and pauses that end later.
    pending: Vec<rt::Task<()>>,
    /// When the agent starts again.
    starts: Option<Duration>,
    names: u64,
    longest_recovery: Duration,
    /// The store of the API server, and the pods that were wanted of it at that time.
    backup: Option<(Store, BTreeMap<String, Pod>)>,
}

impl Node {
    fn new(world: &Rc<World>, plan: &Plan, lines: Lines) -> Self {
        let record = Record::new(world, lines);
        let wanted: Rc<RefCell<Wanted>> = Rc::default();
        let api = ApiServer::new(world, &record, plan.seed);
        let runtime = ContainerRuntime::new(world, &record, &wanted);
        let machine = Machine::new();
        read_log(world, &record);
        api.change(|server| {
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}});
            server.create(&account);
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "code", "namespace": "default"},
                "data": {"code": SECRET_DATA},
            });
            server.create(&secret);
            server.create(&json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"},
                "data": {"version": "0"},
            }));
            CsiDriver::create_objects(server);
        });
        let socket = |name: &str| machine.disk.join("pods/plugins_registry").join(name);
        let driver = CsiDriver::new(&record, &runtime);
        let csi = Plugin::new(world, &record, socket("csi.sock"), driver);
        let cameras = Plugin::new(world, &record, socket("camera.sock"), Cameras::default());
        let (world, record) = (Rc::clone(world), record);
        let mut node = Self {
            world,
            record,
            machine,
            wanted,
            api,
            runtime,
            csi,
            cameras,
            lease: plan.lease,
            agent: None,
            pending: Vec::new(),
            starts: None,
            names: 0,
            longest_recovery: Duration::ZERO,
            backup: None,
        };
        node.configure();
        let address: SocketAddr = ADDRESS.parse().unwrap();
        node.world.network.add_name(API_NAME, address.ip());
        node.api.start();
        node.runtime.start();
        node.csi.start();
        node.cameras.start();
        node.start_agent();
        node
    }

    fn configure(&mut self) {
        let path = |name: &str| self.machine.path(name);
        let configuration = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: {}\npodLogsDir: {}\n\
             resolvConf: {}\nfailSwapOn: false\ncgroupsPerQOS: false\nhealthzPort: 0\nenableServer: false\n\
             imageGCHighThresholdPercent: 100\nevictionHard: {{}}\n\
             crashLoopBackOff: {{maxContainerRestartPeriod: 20s}}\nnodeLeaseDurationSeconds: {}\n",
            path("manifests"),
            path("logs"),
            path("resolv.conf"),
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

    fn start_agent(&mut self) {
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
        ];
        let arguments = arguments.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        let arguments: Vec<String> = std::iter::once("--leave-kernel-parameters".to_owned()).chain(arguments).collect();
        let Ok(config::Request::Run(config, _)) = config::load(&arguments) else {
            panic!("{:?}", config::load(&arguments));
        };
        self.record.line("the agent starts");
        let record = Rc::clone(&self.record);
        self.agent = Some(rt::spawn(async move {
            let end = node_agent::serve(Rc::new(*config), ProxySettings::default(), future::pending()).await;
            record.violated(
                Rule::AgentRuns,
                format!("the agent ended by itself ({})", if end == ExitCode::SUCCESS { "success" } else { "failure" }),
            );
        }));
        self.starts = None;
    }

    /// Kills the agent like `kill -9`.
    async fn kill_agent(&mut self) {
        self.agent.take();
        self.world.end_life();
        // Its tasks are dropped at their next turn.
        rt::sleep(Duration::from_millis(1)).await;
        self.record.line("the agent is gone");
    }

    async fn live(&mut self, plan: &Plan) {
        for episode in &plan.episodes {
            self.runtime.begin_episode();
            for step in &episode.steps {
                self.pass(step.after).await;
                if self.record.violation().is_some() {
                    return;
                }
                self.record.line(&format!("STEP    {:?}", step.what));
                self.take(&step.what).await;
            }
            self.heal();
            self.recover().await;
            if self.record.violation().is_some() {
                return;
            }
            self.rest(episode.quiet).await;
            // The node must stay converged.
            if let Err(what) = self.converged() {
                self.record.violated(Rule::StaysSo, format!("in the quiet: {what}"));
            }
            self.runtime.end_episode();
            self.check_counters();
            self.check_disk();
            if episode.offline && self.record.violation().is_none() {
                self.start_alone().await;
            }
            if self.record.violation().is_some() {
                return;
            }
        }
    }

    /// Lets time pass. The agent starts when it is due.
    async fn pass(&mut self, time: Duration) {
        let end = self.world.passed() + time;
        if let Some(starts) = self.starts.filter(|starts| *starts <= end) {
            rt::sleep(starts.saturating_sub(self.world.passed())).await;
            self.start_agent();
        }
        rt::sleep(end.saturating_sub(self.world.passed())).await;
        self.pending.retain(|task| !task.is_finished());
    }

    /// Lets time pass without any step, and checks that the agent is idle.
    async fn rest(&mut self, time: Duration) {
        let Some(measured) = time.checked_sub(SETTLES).filter(|measured| *measured >= SETTLES) else {
            return self.pass(time).await;
        };
        self.pass(SETTLES).await;
        let figures = |node: &Self| (node.world.network.bytes(ADDRESS), node.world.files.syncs.get());
        let (bytes, syncs) = figures(self);
        self.pass(measured).await;
        let (bytes, syncs) = (figures(self).0 - bytes, figures(self).1 - syncs);
        let an_hour = |count: u64| count * 3600 / measured.as_secs();
        self.record.see("bytes to and from the API server in an hour of rest", an_hour(bytes));
        self.record.see("files synced in an hour of rest", an_hour(syncs));
        if an_hour(bytes) > BYTES_AT_REST {
            self.record
                .violated(Rule::Rests, format!("{bytes} bytes to and from the API server in {measured:?} of rest"));
        }
        if an_hour(syncs) > SYNCS_AT_REST {
            self.record.violated(Rule::Rests, format!("{syncs} files synced in {measured:?} of rest"));
        }
    }

    /// Ends all faults.
    fn heal(&mut self) {
        self.record.line("STEP    all is well");
        self.pending.clear();
        self.api.faults.set(api_server::Faults::default());
        self.api.set_delay(Duration::from_micros(200));
        self.api.set_line(Line::Up);
        self.api.start();
        self.runtime.faults.set(container_runtime::Faults::default());
        self.runtime.set_line(Line::Up);
        self.runtime.start();
        for plugin in [PluginKind::Csi, PluginKind::Device] {
            self.set_plugin_faults(plugin, plugin::Faults::default());
            self.start_plugin(plugin);
        }
        self.world.disk.set(Duration::from_millis(3));
        self.world.turn.set(Duration::ZERO);
        self.world.files.failing.set(0);
        self.world.network.resolver.set(Resolver::default());
        Machine::free_disk(&self.machine.disk);
        if self.agent.is_none() {
            self.start_agent();
        }
    }

    /// Waits until the node has converged, and stays so for a while: an agent that has just started may not have
    /// relisted yet.
    async fn recover(&mut self) {
        let begun = self.world.passed();
        let mut since = None;
        while self.record.violation().is_none() {
            let now = self.world.passed();
            match (self.converged(), since) {
                (Ok(()), Some(since)) if now.saturating_sub(since) > SETTLED => {
                    let took = since.saturating_sub(begun);
                    self.longest_recovery = self.longest_recovery.max(took);
                    self.delete_ended();
                    let objects = self.api.look(|server| server.backup());
                    self.backup = Some((objects, self.wanted.borrow().of(Source::Api)));
                    return self.record.line(&format!("everything is as it should be, after {took:?}"));
                }
                (Ok(()), _) => since = since.or(Some(now)),
                (Err(what), _) if now.saturating_sub(begun) > RECOVERY => {
                    self.record.violated(Rule::Recovers, format!("{RECOVERY:?} after the last fault: {what}"));
                }
                (Err(_), _) => since = None,
            }
            rt::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Deletes, as their owners, pods that were restored but ended nevertheless, and pods that were rejected for lack
    /// of their device.
    fn delete_ended(&self) {
        let mut back = std::mem::take(&mut self.wanted.borrow_mut().back);
        let pods = self.wanted.borrow().of(Source::Api);
        back.extend(
            pods.into_iter().filter(|(_, pod)| pod.traits.device && !pod.traits.job).map(|(revision, _)| revision),
        );
        for revision in back.into_iter().filter(|revision| self.running_of(revision).is_none()) {
            let Some(pod) = self.wanted.borrow_mut().pods.remove(&revision) else { continue };
            self.api.change(|server| server.delete(&pod.path(), Some(0)));
        }
    }

    async fn take(&mut self, what: &What) {
        match what {
            What::CreatePod(traits) => self.create_pod(*traits),
            What::DeletePod { which, forced } => self.delete_pod(*which, *forced),
            What::WriteManifest(traits) => self.write_manifest(*traits),
            What::ChangeManifest(which) => {
                let Some((old, pod)) = self.wanted.borrow().pick(Source::Manifest, *which) else { return };
                self.wanted.borrow_mut().pods.remove(&old);
                let revision = self.wanted.borrow_mut().add(pod.clone());
                self.machine.write_manifest(&pod.name, &pod.object(&revision).to_string());
            }
            What::RemoveManifest(which) => {
                let Some((old, pod)) = self.wanted.borrow().pick(Source::Manifest, *which) else { return };
                self.wanted.borrow_mut().pods.remove(&old);
                self.machine.remove_manifest(&pod.name);
            }
            What::Exit { which, code } => {
                if let Some(id) = self.running(*which) {
                    self.record.count("containers ended");
                    self.runtime.change(|runtime| runtime.exit(&id, *code));
                }
            }
            What::SandboxDies(which) => self.sandbox_dies(*which),
            What::CallGoesWrong { method, skip, fault } => self.runtime.arm(method, *skip, *fault),
            What::KillAgentInCall(held) => self.kill_agent_in_call(*held).await,
            What::IgnoreSigterm(which) => {
                if let Some(id) = self.running(*which) {
                    self.runtime.change(|runtime| runtime.ignore_sigterm(&id));
                }
            }
            What::ChangeConfigMap => {
                self.names += 1;
                let patch = json!({"data": {"version": self.names.to_string()}});
                self.api.change(|server| server.patch("/api/v1/namespaces/default/configmaps/settings", &patch));
            }
            What::KillAgent { down } | What::EndAgent { down } => {
                self.record.count("agents killed");
                self.kill_agent().await;
                self.starts = Some(self.world.passed() + *down);
            }
            What::Reboot { down } => {
                self.cut_power(*down).await;
                self.starts = Some(self.world.passed() + self.world.duration_below(Duration::from_secs(5)));
            }
            _ => self.take_fault(what),
        }
    }

    async fn kill_agent_in_call(&mut self, held: HeldCall) {
        if self.agent.is_none() {
            self.start_agent();
        }
        let call = rt::deadline(LATEST_CALL, self.runtime.until_held());
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
    async fn cut_power(&mut self, down: Duration) {
        self.record.count("power cuts");
        self.kill_agent().await;
        self.runtime.stop();
        self.runtime.change(|runtime| runtime.end_pods());
        self.csi.stop();
        self.cameras.stop();
        self.machine.power_cut(&self.world);
        self.csi.service.forget_mounts();
        self.starts = None;
        rt::sleep(down).await;
        self.world.reboot();
        self.runtime.start();
        let (csi, cameras) = (Rc::clone(&self.csi), Rc::clone(&self.cameras));
        self.later(self.world.duration_below(Duration::from_secs(20)), move || {
            csi.start();
            cameras.start();
        });
    }

    fn start_plugin(&self, plugin: PluginKind) {
        match plugin {
            PluginKind::Csi => self.csi.start(),
            PluginKind::Device => self.cameras.start(),
        }
    }

    fn set_plugin_faults(&self, plugin: PluginKind, faults: plugin::Faults) {
        match plugin {
            PluginKind::Csi => self.csi.faults.set(faults),
            PluginKind::Device => self.cameras.faults.set(faults),
        }
    }

    /// After convergence, cuts the power while the API server is unreachable: running pods must start again without it.
    async fn start_alone(&mut self) {
        self.record.line("STEP    the power goes, and the API server is away");
        self.record.count("starts without the API server");
        self.api.stop();
        self.cut_power(Duration::from_secs(20)).await;
        self.start_agent();
        let begun = self.world.passed();
        while let Some(missing) = self.not_running() {
            if self.world.passed().saturating_sub(begun) > RECOVERY {
                self.record.violated(Rule::StartsAlone, format!("without the API server: pod {missing} does not run"));
            }
            if self.record.violation().is_some() {
                return;
            }
            rt::sleep(Duration::from_secs(1)).await;
        }
        self.heal();
        self.recover().await;
    }

    fn take_fault(&mut self, what: &What) {
        let api = Rc::clone(&self.api);
        let runtime = Rc::clone(&self.runtime);
        match what {
            What::ApiGone { lasts } => {
                self.record.count("API server gone");
                api.stop();
                self.later(*lasts, move || api.start());
            }
            What::ApiSilent { lasts } => {
                self.record.count("API server behind a black hole");
                api.set_line(Line::BlackHole);
                self.later(*lasts, move || api.set_line(Line::Up));
            }
            What::ApiFails { faults, lasts } => {
                api.faults.set(*faults);
                self.later(*lasts, move || api.faults.set(api_server::Faults::default()));
            }
            What::ApiCut => api.cut(),
            What::ApiDelay { delay, lasts } => {
                api.set_delay(*delay);
                self.later(*lasts, move || api.set_delay(Duration::from_micros(200)));
            }
            What::EndWatches => api.end_watches(),
            What::Compact => {
                api.change(|server| server.compact());
                api.end_watches();
            }
            What::Restore => self.restore(),
            What::FullDisk { lasts } => {
                self.record.count("full disks");
                self.machine.fill_disk();
                let disk = self.machine.disk.clone();
                self.later(*lasts, move || Machine::free_disk(&disk));
            }
            What::RuntimeGone { lasts } => {
                self.record.count("runtime gone");
                runtime.stop();
                self.later(*lasts, move || runtime.start());
            }
            What::RuntimeSilent { lasts } => {
                self.record.count("runtime silent");
                runtime.set_line(Line::BlackHole);
                self.later(*lasts, move || runtime.set_line(Line::Up));
            }
            What::RuntimeFails { faults, lasts } => {
                runtime.faults.set(*faults);
                self.later(*lasts, move || runtime.faults.set(container_runtime::Faults::default()));
            }
            What::ClockSteps(seconds) => {
                self.record.count("steps of the wall clock");
                self.world.step_wall_clock(*seconds);
            }
            What::SlowDisk { longest, lasts } => {
                self.world.disk.set(*longest);
                let world = Rc::clone(&self.world);
                self.later(*lasts, move || world.disk.set(Duration::from_millis(3)));
            }
            What::SlowMachine { longest, lasts } => {
                self.record.count("slow machines");
                self.world.turn.set(*longest);
                let world = Rc::clone(&self.world);
                self.later(*lasts, move || world.turn.set(Duration::ZERO));
            }
            What::DiskFails { rate, lasts } => {
                self.record.count("disks that failed");
                self.world.files.failing.set(*rate);
                let world = Rc::clone(&self.world);
                self.later(*lasts, move || world.files.failing.set(0));
            }
            What::NamesFail { resolver, lasts } => {
                self.record.count("name servers that failed");
                self.world.network.resolver.set(*resolver);
                let world = Rc::clone(&self.world);
                self.later(*lasts, move || world.network.resolver.set(Resolver::default()));
            }
            What::PluginGone { which, lasts } => {
                self.record.count("plugins that died");
                let (csi, cameras) = (Rc::clone(&self.csi), Rc::clone(&self.cameras));
                match which {
                    PluginKind::Csi => {
                        csi.stop();
                        self.later(*lasts, move || csi.start());
                    }
                    PluginKind::Device => {
                        cameras.stop();
                        self.later(*lasts, move || cameras.start());
                    }
                }
            }
            What::PluginFails { which, faults, lasts } => {
                self.set_plugin_faults(*which, *faults);
                let (csi, cameras) = (Rc::clone(&self.csi), Rc::clone(&self.cameras));
                let (none, which) = (plugin::Faults::default(), *which);
                self.later(*lasts, move || match which {
                    PluginKind::Csi => csi.faults.set(none),
                    PluginKind::Device => cameras.faults.set(none),
                });
            }
            _ => unreachable!("it is no fault: {what:?}"),
        }
    }

    /// Restores the API server from the backup: pods deleted since come back, pods created since disappear.
    fn restore(&mut self) {
        // If the new history overtakes the old one before the agent asks again, no client can tell them apart.
        let grown = |store: &Store| self.api.look(|server| server.version()) >= store.version() + LEAST_HISTORY;
        if !self.backup.as_ref().is_some_and(|(store, _)| grown(store)) {
            return;
        }
        let Some((store, pods)) = self.backup.take() else { return };
        self.record.count("API servers restored from a backup");
        self.api.stop();
        self.api.change(|server| server.restore(&store));
        let mut wanted = self.wanted.borrow_mut();
        let back = pods.keys().filter(|revision| !wanted.pods.contains_key(*revision)).cloned().collect();
        wanted.back = back;
        wanted.pods.retain(|_, pod| pod.source != Source::Api);
        for (revision, pod) in pods {
            if pod.traits.job {
                // Whether it ran is unknown.
                self.api.change(|server| server.delete(&pod.path(), Some(0)));
            } else {
                wanted.pods.insert(revision, pod);
            }
        }
        drop(wanted);
        let api = Rc::clone(&self.api);
        self.later(Duration::from_secs(10), move || api.start());
    }

    fn later(&mut self, after: Duration, end: impl FnOnce() + 'static) {
        self.pending.push(rt::spawn(async move {
            rt::sleep(after).await;
            end();
        }));
    }

    fn create_pod(&mut self, traits: Traits) {
        if self.wanted.borrow().count(Source::Api) >= PODS {
            return;
        }
        self.names += 1;
        // Names are reused, like those of a StatefulSet.
        let name = format!("web-{}", self.names % 20);
        let pod = Pod { name, source: Source::Api, traits };
        if self.api.look(|server| server.get(&pod.path())).is_some() {
            return;
        }
        let revision = self.wanted.borrow_mut().add(pod.clone());
        self.record.line(&format!("pod     {} revision {revision}", pod.name));
        self.api.change(|server| server.create(&pod.object(&revision)));
    }

    fn delete_pod(&mut self, which: u64, forced: bool) {
        let Some((revision, pod)) = self.wanted.borrow().pick(Source::Api, which) else { return };
        self.wanted.borrow_mut().pods.remove(&revision);
        self.record.line(&format!("pod     {} revision {revision} is deleted", pod.name));
        self.api.change(|server| server.delete(&pod.path(), forced.then_some(0)));
    }

    fn write_manifest(&mut self, traits: Traits) {
        if self.wanted.borrow().count(Source::Manifest) >= PODS / 2 {
            return;
        }
        self.names += 1;
        let pod = Pod { name: format!("static-{}", self.names), source: Source::Manifest, traits };
        let revision = self.wanted.borrow_mut().add(pod.clone());
        self.machine.write_manifest(&pod.name, &pod.object(&revision).to_string());
    }

    fn running(&self, which: u64) -> Option<String> {
        self.runtime.look(|runtime| {
            let running = runtime.world.containers.iter().filter(|one| one.state == v1::ContainerState::Running);
            let running: Vec<_> = running.map(|one| one.id.clone()).collect();
            let place = usize::try_from(which).ok()?.checked_rem(running.len())?;
            running.get(place).cloned()
        })
    }

    /// Ends the process that holds a pod's namespaces, and its containers with it.
    fn sandbox_dies(&mut self, which: u64) {
        let found = self.runtime.look(|runtime| {
            let ready = runtime.world.sandboxes.iter().filter(|one| one.is_ready());
            let ready: Vec<_> = ready.map(|one| one.id.clone()).collect();
            let place = usize::try_from(which).ok()?.checked_rem(ready.len())?;
            ready.get(place).cloned()
        });
        let Some(id) = found else { return };
        self.record.count("sandboxes that died");
        self.runtime.change(|runtime| {
            let request = crate::protocol::protobuf::encode(&v1::StopPodSandboxRequest { pod_sandbox_id: id });
            // The sandbox exists.
            let _ = runtime.answer("StopPodSandbox", &request);
        });
    }

    fn report(&self) -> Report {
        Report {
            violation: self.record.violation(),
            lines: Vec::new(),
            counts: self.record.counts(),
            digest: self.record.digest.get(),
            lasted: self.world.passed(),
            longest_recovery: self.longest_recovery,
            most: self.record.most(),
        }
    }
}

/// Adds the agent's log to the record, and checks its volume and that it contains no secrets.
fn read_log(world: &Rc<World>, record: &Rc<Record>) {
    let (world, record) = (Rc::clone(world), Rc::clone(record));
    let minute = std::cell::Cell::new((0, 0));
    log::read_by(move |level: Level, line: &str| {
        record.line(&format!("agent   {line}"));
        if tells_secret(line) {
            record.violated(Rule::Discreet, format!("the log tells a secret: {line}"));
        }
        let now = world.passed().as_secs() / 60;
        let (then, count) = minute.get();
        let count = if then == now { count + 1 } else { 1 };
        minute.set((now, count));
        if count == LOG_LINES && level <= Level::Info {
            record.violated(Rule::Modest, format!("{LOG_LINES} log lines in a minute"));
        }
    });
}
