//! The container runtime on the simulated network: real gRPC, the containers of the tests' fake runtime, and injected
//! faults. Checks every request against the wanted pods.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::fake_cri::in_process::{Runtime, Stop, stop_request};
use super::fake_cri::process::Process;
use super::jobs::JobRules;
use super::kernel_processes::SurvivingProcess;
use super::record::Record;
use super::wanted::{REVISION, WantedPods};
use crate::platform::cri::v1;
use crate::platform::host::clock;
use crate::platform::rpc::{Reply, Request, ServerLimits, Signal, handler, serve_connection};
use crate::platform::rt::{self, AsyncWriteExt as _, Line, UnixStream, World};
use crate::protocol::grpc::{Code, Status};
use crate::protocol::protobuf::{decode, encode};

pub(super) const SOCKET: &str = "/tmp/coracle-simulation/cri.sock";

/// How often calls fail, in parts per thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// The call has no effect and returns an error.
    pub(super) failed: u32,
    /// The call takes effect, and the connection is cut.
    pub(super) lost: u32,
    /// The call takes effect after `slow`, and there is no response.
    pub(super) hung: u32,
    /// Longest additional latency.
    pub(super) slow: Duration,
    /// Only calls that start or stop something fail.
    pub(super) changes_only: bool,
    /// The event streams stay open, and no event arrives.
    pub(super) mute: bool,
}

/// How one call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallFault {
    Fails,
    FailsAsUnavailable,
    Hangs,
    HangsAfterItsEffect,
    AnswersGarbage,
    SpeaksNoHttp,
    IsCutBeforeItsEffect,
    IsCutAfterItsEffect,
    IsCutInItsAnswer,
    /// The call waits until [`ContainerRuntime::release`]; by then its caller has been killed.
    IsHeld,
    /// The call waits until [`ContainerRuntime::release`] and is then answered.
    IsSlow,
}

/// The call that will fail.
struct Armed {
    method: &'static str,
    skip: u32,
    fault: CallFault,
}

pub(super) struct ContainerRuntime {
    pub(super) world: Rc<World>,
    pub(super) record: Rc<Record>,
    pub(super) wanted: Rc<RefCell<WantedPods>>,
    runtime: RefCell<Runtime>,
    faults: Cell<Faults>,
    /// [`Faults::mute`], for the listeners.
    mute: Arc<AtomicBool>,
    serving: RefCell<Option<rt::Task<()>>>,
    armed: RefCell<Option<Armed>>,
    /// A held call. It takes effect later, whatever happens to the caller.
    held: RefCell<Option<rt::Task<()>>>,
    /// A call was held or released, or the containers were listed.
    changed: Signal,
    /// The armed call is slow, and has begun.
    is_waited_for: Cell<bool>,
    /// The held or slow call may take effect.
    released: Cell<bool>,
    /// Each call that hangs has a clone, until the agent gives it up.
    hanging: Rc<()>,
    /// Number of mutating calls since [`ContainerRuntime::begin_episode`].
    changes: Cell<u64>,
    /// Calls that start or stop something since the containers of their pod were last listed: the pod's UID, the method
    /// and the request.
    pub(super) since_list: RefCell<BTreeSet<(String, String, Vec<u8>)>>,
    /// Number of times that the containers were listed.
    lists: Cell<u64>,
    /// Number of calls of each method.
    pub(super) calls: RefCell<BTreeMap<String, u64>>,
    /// Calls in the current minute, and when it started.
    pub(super) rate: Cell<(Duration, u32)>,
    /// The last grace period in seconds of each stopped container.
    pub(super) graces: RefCell<BTreeMap<String, i64>>,
    /// Number of starts of each revision's containers, by name.
    pub(super) starts: RefCell<BTreeMap<(String, String), u64>>,
    /// Number of containers of each revision that were created and could not be started.
    pub(super) failed_starts: RefCell<BTreeMap<String, u64>>,
    /// The sandbox of each job's first container.
    pub(super) job_sandboxes: RefCell<BTreeMap<String, String>>,
    /// The claims that the DRA driver has prepared.
    pub(super) prepared: Rc<RefCell<BTreeSet<String>>>,
    /// Of a node without a cluster.
    pub(super) jobs: RefCell<JobRules>,
    /// Processes of containers that have been reported as exited.
    pub(super) survivors: RefCell<Vec<SurvivingProcess>>,
}

const CHANGES: &[&str] = &[
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "PullImage",
    "UpdateContainerResources",
];

/// The label of a container's pod.
pub(super) const POD_UID: &str = "io.kubernetes.pod.uid";
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// Unix time in nanoseconds.
fn now() -> i64 {
    clock::timestamp().as_nanosecond()
}

/// A process whose exit the agent can wait for.
fn process() -> Process {
    let process = rt::SimulatedProcess::start();
    Process::Simulated(process.pid(), Box::new(process))
}

impl ContainerRuntime {
    pub(super) fn new(world: &Rc<World>, record: &Rc<Record>, wanted: &Rc<RefCell<WantedPods>>) -> Rc<Self> {
        let mut runtime = Runtime::new(now, process);
        for image in ["registry.k8s.io/pause:3.10", "busybox"] {
            runtime.add_image(image);
        }
        if world.chance(700) {
            runtime.enable_events();
        }
        if world.chance(300) {
            runtime.hide_pids();
        }
        let runtime = Rc::new(Self {
            world: Rc::clone(world),
            record: Rc::clone(record),
            wanted: Rc::clone(wanted),
            runtime: RefCell::new(runtime),
            faults: Cell::default(),
            mute: Arc::default(),
            serving: RefCell::default(),
            armed: RefCell::default(),
            held: RefCell::default(),
            changed: Signal::default(),
            is_waited_for: Cell::default(),
            released: Cell::default(),
            hanging: Rc::default(),
            changes: Cell::default(),
            since_list: RefCell::default(),
            lists: Cell::default(),
            calls: RefCell::default(),
            rate: Cell::default(),
            graces: RefCell::default(),
            starts: RefCell::default(),
            failed_starts: RefCell::default(),
            job_sandboxes: RefCell::default(),
            prepared: Rc::default(),
            jobs: RefCell::default(),
            survivors: RefCell::default(),
        });
        runtime.show_processes();
        runtime
    }

    /// Starts the server, unless it runs: connections and calls under way stay.
    pub(super) fn start(self: &Rc<Self>) {
        if self.serving.borrow().is_some() {
            return;
        }
        let connections = self.world.network.host(SOCKET).listen();
        // The agent watches for it.
        drop(UnixListener::bind(SOCKET).unwrap());
        let runtime = Rc::clone(self);
        let task = rt::spawn(async move {
            let mut open: Vec<rt::Task<()>> = Vec::new();
            while let Ok(pipe) = connections.recv().await {
                open.retain(|connection| !connection.is_finished());
                let runtime = Rc::clone(&runtime);
                let response = handler(move |request| Rc::clone(&runtime).handle(request));
                open.push(rt::spawn(async move {
                    // The connection may be cut at any time.
                    let _ = serve_connection(UnixStream::Simulated(pipe), response, ServerLimits::large()).await;
                }));
            }
        });
        self.serving.replace(Some(task));
    }

    /// Stops the server. Containers keep running.
    pub(super) fn stop(&self) {
        self.world.network.host(SOCKET).close();
        self.serving.take();
        // It may not have been running.
        let _ = fs::remove_file(SOCKET);
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.faults.set(faults);
        self.mute.store(faults.mute, Ordering::Relaxed);
    }

    pub(super) fn set_line(&self, line: Line) {
        self.world.network.host(SOCKET).set_line(line);
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Runtime) -> T) -> T {
        look(&self.runtime.borrow())
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Runtime) -> T) -> T {
        change(&mut self.runtime.borrow_mut())
    }

    async fn handle(self: Rc<Self>, request: Request) -> Result<Reply, Status> {
        let method = request.method.rsplit('/').next().unwrap_or_default().to_owned();
        let (world, mut faults) = (&self.world, self.faults.get());
        if faults.changes_only && !CHANGES.contains(&&*method) {
            faults = Faults::default();
        }
        self.record.count("CRI calls");
        *self.calls.borrow_mut().entry(method.clone()).or_default() += 1;
        self.count_call();
        if CHANGES.contains(&&*method) {
            self.changes.set(self.changes.get() + 1);
            self.check_repeated(&method, &request.message);
        }
        if method == "RunPodSandbox" {
            self.check_allocation(&request.message);
        }
        self.on_resources(&method, &request.message);
        let begun = rt::now();
        // Some pulls are slow.
        let pull = if method == "PullImage" && world.chance(200) { MINUTE } else { Duration::ZERO };
        rt::sleep(world.duration_below(usual(&method) + pull) + world.duration_below(faults.slow)).await;
        let line =
            |text: &str| self.record.line(&format!("cri     {method}{} {text}", self.about(&method, &request.message)));
        if world.chance(faults.failed) {
            self.record.count("CRI calls that failed");
            line("fails");
            return Err(Status::new(Code::Unknown, "injected failure"));
        }
        if method == "ListContainers" {
            self.lists.set(self.lists.get() + 1);
            let listed: v1::ListContainersRequest = decode(&request.message).unwrap_or_default();
            let uid = listed.filter.and_then(|filter| filter.label_selector.get(POD_UID).cloned());
            self.since_list.borrow_mut().retain(|(other, ..)| uid.as_ref().is_some_and(|uid| uid != other));
            self.changed.notify();
        }
        if let Some(fault) = self.armed_fault(&method) {
            line(&format!("{fault:?}"));
            return self.respond_wrongly(fault, &method, &request).await;
        }
        let response = self.act(&method, &request.message).await;
        if !method.starts_with("List") && !method.ends_with("Status") {
            line(&format!(
                "{:?} {}",
                rt::elapsed(begun),
                response.as_ref().map_or_else(Status::to_string, |_| "ok".to_owned())
            ));
        }
        if ["Run", "Create", "Start", "Stop", "Remove"].iter().any(|verb| method.starts_with(verb)) {
            self.check();
        }
        if world.chance(faults.lost) {
            self.record.count("CRI answers lost");
            line("answer lost");
            request.wire.cut_after(0);
        } else if world.chance(faults.hung) {
            self.record.count("CRI calls that hung");
            line("hangs");
            // The event stream has no deadline; the agent lists without it.
            let _hanging = (method != "GetContainerEvents").then(|| Rc::clone(&self.hanging));
            return std::future::pending().await;
        }
        response
    }

    /// Whether a call that [`Faults::hung`] hit still waits for its response. It may outlast the faults, up to its
    /// deadline.
    pub(super) fn has_hanging_calls(&self) -> bool {
        Rc::strong_count(&self.hanging) > 1
    }

    /// Makes the call of `method` after `skip` others fail.
    pub(super) fn arm(&self, method: &'static str, skip: u32, fault: CallFault) {
        self.armed.replace(Some(Armed { method, skip, fault }));
        self.held.take();
        self.is_waited_for.set(false);
        self.released.set(false);
    }

    fn armed_fault(&self, method: &str) -> Option<CallFault> {
        let mut armed = self.armed.borrow_mut();
        let one = armed.as_mut().filter(|one| one.method == method)?;
        if one.skip > 0 {
            one.skip -= 1;
            return None;
        }
        let fault = one.fault;
        *armed = None;
        self.record.count("calls that went wrong by name");
        Some(fault)
    }

    async fn respond_wrongly(
        self: &Rc<Self>,
        fault: CallFault,
        method: &str,
        request: &Request,
    ) -> Result<Reply, Status> {
        let (wire, message) = (&request.wire, &request.message);
        match fault {
            CallFault::Fails => return Err(Status::new(Code::Unknown, "injected failure")),
            CallFault::FailsAsUnavailable => return Err(Status::new(Code::Unavailable, "transport is closing")),
            CallFault::AnswersGarbage => return Ok(Reply::Message(b"\x0a\xff\xff\xff\xff".to_vec())),
            CallFault::Hangs => {}
            CallFault::HangsAfterItsEffect => drop(self.act(method, message).await),
            CallFault::SpeaksNoHttp => {
                // The agent may have disconnected.
                let _ = wire.stream().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                wire.cut_after(0);
            }
            CallFault::IsCutBeforeItsEffect => wire.cut_after(0),
            CallFault::IsCutAfterItsEffect => {
                let response = self.act(method, message).await;
                wire.cut_after(0);
                return response;
            }
            CallFault::IsCutInItsAnswer => {
                let response = self.act(method, message).await;
                wire.cut_after(20);
                return response;
            }
            CallFault::IsHeld => {
                let (runtime, method, message) = (Rc::clone(self), method.to_owned(), message.clone());
                self.held.replace(Some(rt::spawn(async move {
                    runtime.until(|runtime| runtime.released.get()).await;
                    // The response has no receiver.
                    let _ = runtime.act(&method, &message).await;
                })));
                self.changed.notify();
            }
            CallFault::IsSlow => {
                self.is_waited_for.set(true);
                self.changed.notify();
                self.until(|runtime| runtime.released.get()).await;
                return self.act(method, message).await;
            }
        }
        std::future::pending().await
    }

    /// Resets the count of mutating calls.
    pub(super) fn begin_episode(&self) {
        self.changes.set(0);
    }

    pub(super) fn end_episode(&self) {
        self.record.see("changing CRI calls in an episode", self.changes.get());
    }

    /// Waits until the armed call is held.
    pub(super) async fn until_held(&self) {
        self.until(|runtime| runtime.held.borrow().is_some()).await;
    }

    /// Waits until the armed slow call has begun.
    pub(super) async fn until_slow(&self) {
        self.until(|runtime| runtime.is_waited_for.get()).await;
    }

    /// Waits until the containers are listed once more.
    pub(super) async fn until_listed(&self) {
        let before = self.lists.get();
        self.until(|runtime| runtime.lists.get() > before).await;
    }

    /// Lets the held call take effect.
    pub(super) async fn release(&self) {
        self.released.set(true);
        self.changed.notify();
        let held = self.held.take();
        if let Some(held) = held {
            held.await;
        }
    }

    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let seen = self.changed.changes();
            if holds(self) {
                return;
            }
            self.changed.beyond(seen).await;
        }
    }

    async fn act(&self, method: &str, message: &[u8]) -> Result<Reply, Status> {
        if CHANGES.contains(&method) {
            self.look_for_ended_jobs();
        }
        match method {
            "GetContainerEvents" => {
                let (sender, receiver) = async_channel::bounded(1000);
                let mute = Arc::clone(&self.mute);
                let listens = self.change(|runtime| {
                    runtime.listen(Box::new(move |event| {
                        mute.load(Ordering::Relaxed) || sender.try_send(Ok(event.to_vec())).is_ok()
                    }))
                });
                if listens {
                    return Ok(Reply::Stream(receiver));
                }
            }
            "StopContainer" => {
                let request = stop_request(message);
                self.on_stop(&request.container_id);
                self.on_grace(&request.container_id, request.timeout);
                if let Stop::Waits(grace) = self.change(|runtime| runtime.begin_stop(&request))? {
                    rt::sleep(grace).await;
                    let now = v1::StopContainerRequest { timeout: 0, ..request };
                    self.change(|runtime| runtime.begin_stop(&now))?;
                }
                return Ok(Reply::Message(encode(&v1::StopContainerResponse {})));
            }
            "StopPodSandbox" | "RemovePodSandbox" => {
                let request: v1::StopPodSandboxRequest = decode(message).unwrap_or_default();
                let inside: Vec<String> = self.look(|runtime| {
                    let containers = runtime.world.containers.iter();
                    let inside = containers.filter(|one| one.sandbox_id == request.pod_sandbox_id);
                    inside.map(|one| one.id.clone()).collect()
                });
                inside.iter().for_each(|container| self.on_stop(container));
            }
            _ => {}
        }
        let response = self.change(|runtime| runtime.answer(method, message)).map(Reply::Message);
        match (method, &response) {
            ("StartContainer", Ok(_)) => self.on_started(message),
            ("StartContainer", Err(_)) => self.on_start_failed(message),
            _ => {}
        }
        response
    }

    /// Number of starts of a revision's container.
    pub(super) fn starts(&self, revision: &str, container: &str) -> u64 {
        self.starts.borrow().get(&(revision.to_owned(), container.to_owned())).copied().unwrap_or_default()
    }

    /// The container or pod of a call.
    pub(super) fn about(&self, method: &str, message: &[u8]) -> String {
        let container = |id: &str| {
            self.look(|runtime| {
                let container = runtime.world.containers.iter().find(|one| one.id == id)?;
                let pod = runtime.world.sandboxes.iter().find(|one| one.id == container.sandbox_id)?;
                Some(format!(" {}/{} {}", pod.name(), container.name(), short(id)))
            })
        };
        let sandbox = |id: &str| {
            self.look(|runtime| {
                let pod = runtime.world.sandboxes.iter().find(|one| one.id == id)?;
                Some(format!(" {} {}", pod.name(), short(id)))
            })
        };
        let found = match method {
            "RunPodSandbox" => decode(message)
                .ok()
                .and_then(|request: v1::RunPodSandboxRequest| Some(format!(" {}", request.config?.metadata?.name))),
            "CreateContainer" => decode(message).ok().and_then(|request: v1::CreateContainerRequest| {
                Some(format!("{}/{}", sandbox(&request.pod_sandbox_id)?, request.config?.metadata?.name))
            }),
            "StopPodSandbox" | "RemovePodSandbox" => {
                decode(message).ok().and_then(|request: v1::StopPodSandboxRequest| sandbox(&request.pod_sandbox_id))
            }
            "StopContainer" | "StartContainer" | "RemoveContainer" | "UpdateContainerResources" => {
                decode(message).ok().and_then(|request: v1::StartContainerRequest| container(&request.container_id))
            }
            _ => None,
        };
        found.unwrap_or_default()
    }
}

/// The revision of a container's pod.
pub(super) fn revision(
    labels: &crate::types::sorted::SortedMap<String, String>,
    pod: &super::fake_cri::Sandbox,
) -> String {
    let of = |labels: &crate::types::sorted::SortedMap<String, String>| labels.get(REVISION).cloned();
    of(labels).or_else(|| of(&pod.config.labels)).unwrap_or_default()
}

pub(super) fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// Longest usual latency of a call.
fn usual(method: &str) -> Duration {
    Duration::from_millis(match method {
        "RunPodSandbox" => 400,
        "StopPodSandbox" | "StartContainer" | "StopContainer" => 200,
        "CreateContainer" | "RemoveContainer" | "RemovePodSandbox" => 80,
        _ => 4,
    })
}
