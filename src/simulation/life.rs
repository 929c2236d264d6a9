//! Runs a node through a plan.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;

use super::agent::QUICK_DISK_TIME;
use super::api_server::{self, ADDRESS, ApiServer};
use super::container_runtime::{self, ContainerRuntime};
use super::coverage::Coverage;
use super::csi_driver::CsiDriver;
use super::device_plugin::Cameras;
use super::dra_driver::DraDriver;
use super::fake_api::store::Store;
use super::full_size::neighbour;
use super::lease;
use super::machine::Machine;
use super::plan::{Plan, PluginKind};
use super::plugin::{self, Plugin};
use super::record::{Lines, Log, Record, Rule, Violation};
use super::steps::MAX_STEP_PODS;
use super::wanted::{Pod, SECRET_DATA, Source, WantedPods, tells_secret};
use crate::platform::rt::{self, Line, Resolver, WakesBy, World, simulate};
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
    pub(super) coverage: Coverage,
}

/// Time limit for convergence after the last fault.
const RECOVERY_TIME: Duration = Duration::from_secs(300);
/// The same on a node with Jobs, whose back-off and deadlines take their time.
const JOBS_RECOVERY_TIME: Duration = Duration::from_secs(15 * 60);
/// Longer than a readiness probe takes to run again after a restart.
const SETTLED_TIME: Duration = Duration::from_secs(15);
/// Everything an episode started has ended by then.
const EPISODE_END_TIME: Duration = Duration::from_secs(15 * 60);
/// What is periodic at rest repeats within this time: tokens are renewed together, every 48 minutes.
const MEASURED_TIME: Duration = Duration::from_secs(60 * 60);
/// Maximum traffic in an idle hour: 10 MB a day.
const BYTES_AT_REST: u64 = 420_000;
/// What a pod's own ConfigMap, Secret and token add: the server ends a watch every five to ten minutes, and its renewal
/// costs 760 bytes.
const BYTES_OF_OWN_OBJECTS: u64 = 20_000;
/// What hundreds of ConfigMaps of one pod add: 64 watches, and the shared reads of the others.
const BYTES_OF_MANY_OBJECTS: u64 = 64 * 6_200 + 216_000;
/// Maximum number of synced files in an idle hour: renewed tokens are stored.
const SYNCS_AT_REST: u64 = 30;
/// Records of the CronJob and of its Job, the end of the pod, the removal of an old Job, and the pod's allocation.
const SYNCS_OF_A_JOB_POD: u64 = 10;
/// The API server's name in the kubeconfig.
pub(super) const API_NAME: &str = "api.cluster.test";
/// Maximum number of log lines per minute.
const LOG_LINES_PER_MINUTE: u32 = 600;
/// What each Job of a full directory adds: its Job and its pod are created, its container is started and stopped.
const LOG_LINES_OF_A_JOB: u32 = 8;

pub(super) fn live(plan: &Plan) -> Report {
    let (plan, lines) = (plan.clone(), Lines::default());
    let written = Lines::clone(&lines);
    let simulated = move || {
        simulate(plan.seed, move |world| async move {
            let mut node = Node::new(&world, &plan, written);
            node.live(&plan).await;
            node.report()
        })
    };
    // Everything that both sides use has been dropped or is whole.
    let ended = catch_unwind(AssertUnwindSafe(simulated));
    let Log { lines, at } = std::mem::take(&mut *lines.lock().unwrap());
    let violated = |at, rule, detail| Report { violation: Some(Violation { at, rule, detail }), ..Report::default() };
    let mut report = match ended {
        Ok(Ok(report)) => report,
        Ok(Err(stuck)) => violated(stuck.at(), Rule::Alive, stuck.to_string()),
        Err(panic) => violated(at, Rule::Asserts, message(&*panic)),
    };
    report.lines.extend(lines);
    report
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}

/// The agent's usage.
struct AgentUsage {
    /// To and from the API server.
    bytes: u64,
    syncs: u64,
    wakes: u64,
    wakes_by: WakesBy,
    /// CRI calls by method.
    calls: BTreeMap<String, u64>,
}

impl AgentUsage {
    fn since(&self, before: &Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            syncs: self.syncs - before.syncs,
            wakes: self.wakes - before.wakes,
            wakes_by: less(&self.wakes_by, &before.wakes_by),
            calls: less(&self.calls, &before.calls),
        }
    }

    /// The places that woke the world most often.
    fn most_wakes(&self) -> String {
        let mut places: Vec<_> = self.wakes_by.iter().map(|((file, line), count)| (count, file, line)).collect();
        places.sort_unstable_by(|one, other| other.cmp(one));
        let shown = places.iter().take(12).map(|(count, file, line)| format!("{count} at {file}:{line}"));
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// What was counted since `before`.
pub(super) fn less<K: Ord + Clone>(now: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let since = now.iter().map(|(key, count)| (key.clone(), count - before.get(key).copied().unwrap_or_default()));
    since.filter(|(_, count)| *count > 0).collect()
}

pub(super) struct Node {
    pub(super) world: Rc<World>,
    pub(super) record: Rc<Record>,
    pub(super) machine: Machine,
    pub(super) wanted: Rc<RefCell<WantedPods>>,
    pub(super) api: Rc<ApiServer>,
    pub(super) runtime: Rc<ContainerRuntime>,
    pub(super) csi: Rc<Plugin<CsiDriver>>,
    pub(super) cameras: Rc<Plugin<Cameras>>,
    pub(super) dra: Rc<Plugin<DraDriver>>,
    /// Duration of the node's lease, after which the cluster considers the node dead.
    pub(super) lease: Duration,
    pub(super) agent: Option<rt::Task<()>>,
    /// Sends SIGTERM to the agent.
    pub(super) signal: Option<async_channel::Sender<()>>,
    /// Faults and pauses that end later.
    pub(super) pending: Vec<rt::Task<()>>,
    /// When the agent starts again.
    pub(super) starts: Option<Duration>,
    pub(super) names: u64,
    /// Maximum number of pods of the API server.
    pub(super) most_pods: usize,
    longest_recovery: Duration,
    /// The store of the API server, and the cluster pods wanted at that time.
    pub(super) backup: Option<(Store, BTreeMap<String, Pod>)>,
    pub(super) coverage: Coverage,
    /// The node has no cluster.
    pub(super) is_alone: bool,
    /// Ends the containers of Jobs.
    _exits: rt::Task<()>,
    /// Another node of the cluster, beside one of full size.
    neighbour: Option<rt::Task<()>>,
}

impl Node {
    pub(super) fn new(world: &Rc<World>, plan: &Plan, lines: Lines) -> Self {
        let record = Record::new(world, lines);
        let wanted: Rc<RefCell<WantedPods>> = Rc::default();
        let api = ApiServer::new(world, &record, plan);
        let runtime = ContainerRuntime::new(world, &record, &wanted);
        let machine = Machine::new();
        world.watch_disk(&machine.disk).unwrap();
        read_log(world, &record, LOG_LINES_PER_MINUTE + LOG_LINES_OF_A_JOB * plan.full_jobs());
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
            DraDriver::create_objects(server);
        });
        let socket = |name: &str| machine.disk.join("pods/plugins_registry").join(name);
        let driver = CsiDriver::new(&record, &runtime);
        let csi = Plugin::new(world, &record, socket("csi.sock"), driver);
        let cameras = Plugin::new(world, &record, socket("camera.sock"), Cameras::default());
        let dra = Plugin::new(world, &record, socket("gpu.sock"), DraDriver::new(&record, &runtime));
        let exits = runtime.end_job_containers(plan.seed);
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
            dra,
            lease: plan.lease,
            agent: None,
            signal: None,
            pending: Vec::new(),
            starts: None,
            names: 0,
            most_pods: MAX_STEP_PODS + plan.own_pods(),
            longest_recovery: Duration::ZERO,
            backup: None,
            coverage: Coverage::default(),
            is_alone: plan.has_jobs(),
            _exits: exits,
            neighbour: None,
        };
        node.configure();
        let address: SocketAddr = ADDRESS.parse().unwrap();
        node.world.network.add_name(API_NAME, address.ip());
        node.api.start();
        node.runtime.start();
        node.csi.start();
        node.cameras.start();
        node.dra.start();
        node.start_agent();
        if !node.is_alone {
            node.api.lease.settle();
        }
        if plan.own_pods() > 0 {
            node.neighbour = Some(neighbour(&node.api));
        }
        node
    }

    async fn live(&mut self, plan: &Plan) {
        for episode in &plan.episodes {
            self.runtime.begin_episode();
            for step in &episode.steps {
                self.pass(step.after).await;
                if self.record.violation().is_some() {
                    return;
                }
                self.record.line(&format!("STEP    {:?}", step.kind));
                self.cover(&step.kind);
                if lease::is_disturbed_by(&step.kind) {
                    self.api.lease.disturb();
                }
                self.take(&step.kind).await;
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
            self.api.lease.check();
            self.check_counters();
            self.check_disk();
            self.check_leftovers(episode.quiet);
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
        let Some(measured) = time.checked_sub(EPISODE_END_TIME).filter(|measured| *measured >= MEASURED_TIME) else {
            return self.pass(time).await;
        };
        self.pass(EPISODE_END_TIME).await;
        let (before, starts) = (self.figures(), self.runtime.jobs.borrow().starts());
        self.pass(measured).await;
        let passed = self.figures().since(&before);
        let an_hour = |count: u64| count * 3600 / measured.as_secs();
        let AgentUsage { bytes, syncs, wakes, ref calls, .. } = passed;
        let pods = u64::try_from(self.wanted.borrow().pods.len()).unwrap_or_default();
        self.record.line(&format!(
            "rest    {wakes} wake-ups, {bytes} bytes, calls {calls:?} in {measured:?} with {pods} pods"
        ));
        self.record.line(&format!("woken by {}", passed.most_wakes()));
        self.record.see("bytes to and from the API server in an hour of rest", an_hour(bytes));
        self.record.see("files synced in an hour of rest", an_hour(syncs));
        self.record.see("wake-ups in an hour of rest", an_hour(wakes));
        self.record.see("CRI calls in an hour of rest", an_hour(calls.values().sum()));
        if an_hour(bytes) > self.max_bytes_at_rest() {
            self.record
                .violated(Rule::Rests, format!("{bytes} bytes to and from the API server in {measured:?} of rest"));
        }
        let of_jobs = SYNCS_OF_A_JOB_POD * (self.runtime.jobs.borrow().starts() - starts);
        if an_hour(syncs.saturating_sub(of_jobs)) > SYNCS_AT_REST {
            self.record.violated(Rule::Rests, format!("{syncs} files synced in {measured:?} of rest"));
        }
    }

    /// Maximum traffic in an idle hour with the wanted pods.
    fn max_bytes_at_rest(&self) -> u64 {
        let pods = &self.wanted.borrow().pods;
        let own: u64 = pods.values().filter(|pod| pod.traits.own).map(|_| BYTES_OF_OWN_OBJECTS).sum();
        let many: u64 = pods.values().filter(|pod| pod.traits.hostile).map(|_| BYTES_OF_MANY_OBJECTS).sum();
        BYTES_AT_REST + own + many
    }

    fn figures(&self) -> AgentUsage {
        AgentUsage {
            bytes: self.world.network.bytes(ADDRESS),
            syncs: self.world.files.syncs.get(),
            wakes: self.world.wakes.get(),
            wakes_by: self.world.wakes_by.borrow().clone(),
            calls: self.runtime.calls.borrow().clone(),
        }
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        self.record.line("STEP    all faults end");
        self.pending.clear();
        self.wanted.borrow_mut().locks.release_all();
        self.coverage.heal();
        self.api.faults.set(api_server::Faults::default());
        self.api.set_delay(Duration::from_micros(200));
        self.api.set_line(Line::Up);
        self.api.start();
        self.runtime.set_faults(container_runtime::Faults::default());
        self.runtime.set_line(Line::Up);
        self.runtime.start();
        for plugin in [PluginKind::Csi, PluginKind::Device, PluginKind::Dra] {
            self.set_plugin_faults(plugin, plugin::Faults::default());
            self.start_plugin(plugin);
        }
        self.world.disk.set(QUICK_DISK_TIME);
        self.world.longest_turn.set(Duration::ZERO);
        self.world.files.failing.set(0);
        self.world.network.resolver.set(Resolver::default());
        Machine::free_disk(&self.machine.disk);
        if self.agent.is_none() {
            self.start_agent();
        }
        self.runtime.jobs.borrow_mut().disturb(self.world.passed());
        if !self.is_alone {
            self.api.lease.settle();
        }
    }

    /// Waits until the node has converged, and stays so for a while: an agent that has just started may not have
    /// relisted yet.
    pub(super) async fn recover(&mut self) {
        let begun = self.world.passed();
        let limit = if self.is_alone { JOBS_RECOVERY_TIME } else { RECOVERY_TIME };
        let mut since = None;
        while self.record.violation().is_none() {
            let now = self.world.passed();
            self.api.lease.check();
            match (self.converged(), since) {
                (Ok(()), Some(since)) if now.saturating_sub(since) > SETTLED_TIME => {
                    let took = since.saturating_sub(begun);
                    self.longest_recovery = self.longest_recovery.max(took);
                    self.runtime.jobs.borrow_mut().settle(now);
                    self.record.has_converged();
                    self.delete_ended();
                    let objects = self.api.look(|server| server.backup());
                    self.backup = Some((objects, self.wanted.borrow().of(Source::Api)));
                    return self.record.line(&format!("converged after {took:?}"));
                }
                (Ok(()), _) => since = since.or(Some(now)),
                (Err(what), _) if now.saturating_sub(begun) > limit => {
                    self.record.violated(Rule::Recovers, format!("{limit:?} after the last fault: {what}"));
                }
                (Err(_), _) => since = None,
            }
            rt::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Deletes, as their owners, pods that were restored but ended nevertheless, and pods that were rejected for lack
    /// of their device. Restored pods that are being stopped, or whose stop may hang before its first call for a
    /// container, are deleted after the next convergence.
    fn delete_ended(&self) {
        let mut back = std::mem::take(&mut self.wanted.borrow_mut().back);
        let hangs = self.runtime.has_hanging_calls();
        let is_stopping = |revision: &String| {
            self.running_of(revision).is_some_and(|(id, _)| hangs || self.runtime.graces.borrow().contains_key(&id))
        };
        let stopping = back.iter().filter(|revision| is_stopping(revision)).cloned().collect();
        self.wanted.borrow_mut().back = stopping;
        let pods = self.wanted.borrow().of(Source::Api);
        back.extend(
            pods.into_iter().filter(|(_, pod)| pod.traits.device && !pod.traits.job).map(|(revision, _)| revision),
        );
        for revision in back.into_iter().filter(|revision| self.running_of(revision).is_none()) {
            let Some(pod) = self.wanted.borrow_mut().pods.remove(&revision) else { continue };
            self.api.change(|server| server.delete(&pod.path(), Some(0)));
        }
    }

    /// After convergence, cuts the power while the API server is unreachable: running pods must start again without it.
    async fn start_alone(&mut self) {
        self.record.line("STEP    the power is cut, and the API server is unreachable");
        self.record.count("starts without the API server");
        self.api.lease.disturb();
        self.api.stop();
        self.cut_power(Duration::from_secs(20)).await;
        self.start_agent();
        let begun = self.world.passed();
        while let Some(missing) = self.not_running() {
            if self.world.passed().saturating_sub(begun) > RECOVERY_TIME {
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

    fn report(&self) -> Report {
        Report {
            violation: self.record.violation(),
            lines: Vec::new(),
            counts: self.record.counts(),
            digest: self.record.digest.get(),
            lasted: self.world.passed(),
            longest_recovery: self.longest_recovery,
            most: self.record.most(),
            coverage: self.coverage.clone(),
        }
    }
}

/// Adds the agent's log to the record, and checks its volume and that it contains no secrets.
fn read_log(world: &Rc<World>, record: &Rc<Record>, limit: u32) {
    let (world, record) = (Rc::clone(world), Rc::clone(record));
    let minute = std::cell::Cell::new((0, 0));
    log::read_by(move |level: Level, line: &str| {
        record.line(&format!("agent   {line}"));
        if tells_secret(line) {
            record.violated(Rule::Discreet, format!("the log contains a secret: {line}"));
        }
        let now = world.passed().as_secs() / 60;
        let (then, count) = minute.get();
        let count = if then == now { count + 1 } else { 1 };
        minute.set((now, count));
        if count == limit && level <= Level::Info {
            record.violated(Rule::Modest, format!("{limit} log lines in a minute"));
        }
    });
}
