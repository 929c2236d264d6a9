//! A container runtime in memory that behaves as containerd 1.6 does, for tests of what speaks CRI.
//!
//! It listens on a Unix socket of its own, on threads of its own, and everything of it ends with the [`FakeCri`].
//! Its containers are real processes that do nothing, so that a pidfd on one works; a test ends them with an exit
//! code of its choice. Every call is recorded, and faults are scripted call by call:
//!
//! ```ignore
//! let fake = FakeCri::start();
//! fake.add_image("busybox");
//! fake.on("RunPodSandbox").fail(Code::Unknown, "no address left").times(1);
//! fake.on("CreateContainer").about("web").cut_after_effect().times(1);
//! // ... start what is to be tested with fake.endpoint() ...
//! fake.wait_for("web to run", |world| world.running("web").is_some());
//! fake.exit("web", 1);
//! ```

mod answers;
mod connection;
mod containers;
mod faults;
mod images;
pub(crate) mod in_process;
mod process;
mod sandboxes;
mod world;

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use coracle::platform::cri::v1::{CgroupDriver, ContainerStats, ExecSyncResponse, RuntimeHandler};
use coracle::protocol::protobuf::{Message, decode};

pub(crate) use containers::Container;
pub(crate) use sandboxes::Sandbox;
pub(crate) use world::{Call, World};

use connection::Wire;
use faults::On;

/// Long enough for a busy machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The runtime, seen from the test. Dropping it ends everything that it runs.
pub(crate) struct FakeCri {
    dir: PathBuf,
    shared: Arc<Shared>,
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    world: Mutex<World>,
    /// Whenever the world has changed.
    changed: Condvar,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    /// The listener whose connections count; `None` when the runtime is down.
    listener: Option<u32>,
    listeners: u32,
    wires: Vec<Weak<Wire>>,
}

/// What becomes of sandboxes and containers when the runtime is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Kept,
    Lost,
    /// They are known, and none of them runs: the machine was off.
    Ended,
}

/// The runtime's life.
impl FakeCri {
    pub(crate) fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("fake-cri-{}-{number}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let shared = Shared::default();
        let fake = Self { dir, shared: Arc::new(shared) };
        fake.start_again();
        fake
    }

    /// The address that clients are given.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The runtime is gone: its socket too, and every connection is cut. The containers go on.
    pub(crate) fn stop(&self) {
        let wires = {
            let mut connections = lock(&self.shared.connections);
            connections.listener = None;
            std::mem::take(&mut connections.wires)
        };
        // The listening thread looks up when somebody comes.
        drop(UnixStream::connect(self.socket()));
        fs::remove_file(self.socket()).unwrap();
        for wire in wires.iter().filter_map(Weak::upgrade) {
            wire.cut();
        }
    }

    pub(crate) fn start_again(&self) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        let number = {
            let mut connections = lock(&self.shared.connections);
            connections.listeners += 1;
            connections.listener = Some(connections.listeners);
            connections.listeners
        };
        let shared = Arc::downgrade(&self.shared);
        thread::spawn(move || listen(&listener, number, &shared));
    }

    pub(crate) fn restart(&self, state: State) {
        self.stop();
        match state {
            State::Kept => {}
            State::Lost => self.change(World::forget_pods),
            State::Ended => self.change(World::end_pods),
        }
        self.start_again();
    }

    /// Cuts every connection; the socket stays.
    pub(crate) fn cut_connections(&self) {
        let wires = std::mem::take(&mut lock(&self.shared.connections).wires);
        for wire in wires.iter().filter_map(Weak::upgrade) {
            wire.cut();
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("cri.sock")
    }
}

impl Drop for FakeCri {
    fn drop(&mut self) {
        if lock(&self.shared.connections).listener.is_some() {
            self.stop();
        }
        self.change(World::end);
        // Nobody is left to tell if it fails.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What happens in it.
impl FakeCri {
    /// An image that is there already.
    pub(crate) fn add_image(&self, reference: &str) {
        self.change(|world| world.images.add(reference));
    }

    /// An image that can be pulled.
    pub(crate) fn publish_image(&self, reference: &str) {
        self.change(|world| world.images.publish(reference));
    }

    /// Ends a running container; it is named by its id, as `container` or as `pod/container`.
    #[track_caller]
    pub(crate) fn exit(&self, container: &str, code: i32) {
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.exit_for(container, code, reason);
    }

    /// Ends a running container for a reason such as `OOMKilled`.
    #[track_caller]
    pub(crate) fn exit_for(&self, container: &str, code: i32, reason: &str) {
        let ended = self.change(|world| {
            let id = world.running(container)?.id.clone();
            world.container_exited(&id, code, reason);
            Some(())
        });
        assert!(ended.is_some(), "no container {container} runs");
    }

    /// A second pod of this name, with the same containers and another uid, as if another agent had made it.
    pub(crate) fn double(&self, pod: &str, uid: &str) {
        self.change(|world| world.double(pod, uid));
    }

    /// The pods of this name have this uid, as if another agent had made them.
    pub(crate) fn set_uid(&self, pod: &str, uid: &str) {
        self.change(|world| world.set_uid(pod, uid));
    }

    /// The processes of this container, and of those that replace it, take no notice of SIGTERM.
    pub(crate) fn ignore_sigterm(&self, container: &str) {
        self.change(|world| world.ignoring_sigterm.push(container.to_owned()));
    }

    /// What ExecSync answers from now on.
    pub(crate) fn set_exec(&self, exit_code: i32, stdout: &str) {
        let answer = ExecSyncResponse { exit_code, stdout: stdout.as_bytes().to_vec(), stderr: Vec::new() };
        self.change(|world| world.exec = answer);
    }

    /// What is told of a container's use, beside its attributes.
    pub(crate) fn set_stats(&self, stats: ContainerStats) {
        self.change(|world| world.stats = stats);
    }

    /// The verbose status of what runs does not tell its process.
    pub(crate) fn hide_pids(&self) {
        self.change(|world| world.pids_hidden = true);
    }

    pub(crate) fn set_network_ready(&self, ready: bool) {
        self.change(|world| world.network_ready = ready);
    }

    /// The runtime's handlers and what they can do; the default one has no name.
    pub(crate) fn set_handlers(&self, handlers: Vec<RuntimeHandler>) {
        self.change(|world| world.handlers = handlers);
    }

    /// Answers RuntimeConfig, which containerd 1.6 does not know.
    pub(crate) fn set_cgroup_driver(&self, driver: CgroupDriver) {
        self.change(|world| world.cgroup_driver = Some(driver));
    }

    /// Answers GetContainerEvents, which containerd 1.6 does not know.
    pub(crate) fn enable_events(&self) {
        self.change(|world| world.events = Some(Vec::new()));
    }
}

/// Faults. The first that fits a call and is not used up counts.
impl FakeCri {
    /// What is to go wrong with a method such as `RunPodSandbox`, or with every method (`*`).
    pub(crate) fn on(&self, method: &'static str) -> On<'_> {
        On::new(self, method)
    }

    /// Nothing goes wrong from now on.
    pub(crate) fn clear_faults(&self) {
        self.change(|world| world.rules.clear());
    }

    /// Lets the calls go on that `hold` keeps now.
    pub(crate) fn release(&self, method: &'static str) {
        self.change(|world| *world.released.entry(method).or_default() += 1);
    }
}

/// What has happened in it.
impl FakeCri {
    pub(crate) fn sandboxes(&self) -> Vec<Sandbox> {
        self.look(|world| world.sandboxes.clone())
    }

    pub(crate) fn containers(&self) -> Vec<Container> {
        self.look(|world| world.containers.clone())
    }

    /// Every call so far, in the order of arrival.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.look(|world| world.calls.clone())
    }

    /// The requests of one method so far.
    #[track_caller]
    pub(crate) fn requests<M: Message + Default>(&self, method: &str) -> Vec<M> {
        let calls = self.calls();
        let requests = calls.iter().filter(|call| call.method == method);
        requests.map(|call| decode(&call.request).expect("a request that can be read")).collect()
    }

    /// Waits until `done` holds; fails the test when it does not come to hold.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, mut done: impl FnMut(&World) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut world = lock(&self.shared.world);
        while !done(&world) {
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                panic!("waited in vain for {what}; there is {world:#?}");
            };
            let waited = self.shared.changed.wait_timeout(world, left);
            world = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the `count`th call of a method.
    #[track_caller]
    pub(crate) fn wait_for_calls(&self, method: &str, count: usize) {
        self.wait_for(&format!("{count} calls of {method}"), |world| world.calls_of(method) >= count);
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&lock(&self.shared.world))
    }

    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        self.shared.change(change)
    }
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let changed = change(&mut lock(&self.world));
        self.changed.notify_all();
        changed
    }
}

/// Takes connections until the runtime is stopped.
fn listen(listener: &UnixListener, number: u32, shared: &Weak<Shared>) {
    for stream in listener.incoming() {
        let (Ok(stream), Some(shared)) = (stream, shared.upgrade()) else { return };
        let wire = Arc::new(Wire::new(stream));
        {
            let mut connections = lock(&shared.connections);
            if connections.listener != Some(number) {
                return;
            }
            connections.wires.push(Arc::downgrade(&wire));
        }
        thread::spawn(move || connection::serve(&wire, &shared));
    }
}

/// A test that fails elsewhere must not fail here a second time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
