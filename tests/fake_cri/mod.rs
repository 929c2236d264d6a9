//! A container runtime in memory with the behaviour of containerd 1.6, for tests of CRI clients.
//!
//! It listens on its own Unix socket with its own threads. Dropping the [`FakeCri`] ends all of it. Its containers are
//! real idle processes, so pidfds work; a test ends them with an exit code of its choice. It records every call, and
//! tests script faults per call:
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
pub(crate) mod process;
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

/// Long enough for a busy machine. A test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The test's handle of the runtime. Dropping it ends everything that it runs.
pub(crate) struct FakeCri {
    dir: PathBuf,
    shared: Arc<Shared>,
}

/// State shared by the threads.
#[derive(Default)]
struct Shared {
    world: Mutex<World>,
    /// Notified when the world changes.
    changed: Condvar,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    /// The current listener; `None` while the runtime is down.
    listener: Option<u32>,
    listeners: u32,
    wires: Vec<Weak<Wire>>,
}

/// The state of sandboxes and containers after a restart of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Kept,
    Lost,
    /// They are known but exited, as after a reboot.
    Ended,
}

/// Life cycle.
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

    /// The endpoint for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Stops the runtime: removes its socket and cuts every connection. Containers keep running.
    pub(crate) fn stop(&self) {
        let wires = {
            let mut connections = lock(&self.shared.connections);
            connections.listener = None;
            std::mem::take(&mut connections.wires)
        };
        // Wakes the listening thread.
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
        // A failure here has no one to report to.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Changes to the world.
impl FakeCri {
    /// Adds a present image.
    pub(crate) fn add_image(&self, reference: &str) {
        self.change(|world| world.images.add(reference));
    }

    /// Adds an image that can be pulled.
    pub(crate) fn publish_image(&self, reference: &str) {
        self.change(|world| world.images.publish(reference));
    }

    /// Ends a running container, named by its id, `container` or `pod/container`.
    #[track_caller]
    pub(crate) fn exit(&self, container: &str, code: i32) {
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.exit_for(container, code, reason);
    }

    /// Ends a running container with a reason such as `OOMKilled`.
    #[track_caller]
    pub(crate) fn exit_for(&self, container: &str, code: i32, reason: &str) {
        let ended = self.change(|world| {
            let id = world.running(container)?.id.clone();
            world.container_exited(&id, code, reason);
            Some(())
        });
        assert!(ended.is_some(), "no container {container} runs");
    }

    /// Adds a second pod of this name with the same containers and another UID, as if another agent had created it.
    pub(crate) fn double(&self, pod: &str, uid: &str) {
        self.change(|world| world.double(pod, uid));
    }

    /// Changes the UID of the pods of this name, as if another agent had created them.
    pub(crate) fn set_uid(&self, pod: &str, uid: &str) {
        self.change(|world| world.set_uid(pod, uid));
    }

    /// Makes the processes of this container and of its successors ignore SIGTERM.
    pub(crate) fn ignore_sigterm(&self, container: &str) {
        self.change(|world| world.ignoring_sigterm.push(container.to_owned()));
    }

    /// Sets the answer of ExecSync.
    pub(crate) fn set_exec(&self, exit_code: i32, stdout: &str) {
        let answer = ExecSyncResponse { exit_code, stdout: stdout.as_bytes().to_vec(), stderr: Vec::new() };
        self.change(|world| world.exec = answer);
    }

    /// Sets the usage that ContainerStats reports beside a container's attributes.
    pub(crate) fn set_stats(&self, stats: ContainerStats) {
        self.change(|world| world.stats = stats);
    }

    /// Omits the PID from the verbose status.
    pub(crate) fn hide_pids(&self) {
        self.change(|world| world.pids_hidden = true);
    }

    /// New sandboxes get an IPv6 address beside the IPv4 one.
    pub(crate) fn set_dual_stack(&self) {
        self.set_ips(|number| vec![world::ipv4(number), format!("fd00:88::{number}")]);
    }

    /// Sets the addresses of new sandboxes, by the number of the sandbox.
    pub(crate) fn set_ips(&self, ips: fn(usize) -> Vec<String>) {
        self.change(|world| world.ips = ips);
    }

    /// Changes the name that the runtime reports.
    pub(crate) fn set_name(&self, name: &'static str) {
        self.change(|world| world.name = name);
    }

    pub(crate) fn set_network_ready(&self, ready: bool) {
        self.change(|world| world.network_ready = ready);
    }

    /// Sets the runtime handlers and their features. The default handler has an empty name.
    pub(crate) fn set_handlers(&self, handlers: Vec<RuntimeHandler>) {
        self.change(|world| world.handlers = handlers);
    }

    /// Enables RuntimeConfig, which containerd 1.6 lacks.
    pub(crate) fn set_cgroup_driver(&self, driver: CgroupDriver) {
        self.change(|world| world.cgroup_driver = Some(driver));
    }

    /// Enables GetContainerEvents, which containerd 1.6 lacks.
    pub(crate) fn enable_events(&self) {
        self.change(|world| world.events = Some(Vec::new()));
    }
}

/// Faults. The first matching rule that is not used up applies.
impl FakeCri {
    /// Begins a fault for a method such as `RunPodSandbox`, or for every method (`*`).
    pub(crate) fn on(&self, method: &'static str) -> On<'_> {
        On::new(self, method)
    }

    pub(crate) fn clear_faults(&self) {
        self.change(|world| world.rules.clear());
    }

    /// Releases the calls that `hold` blocks now.
    pub(crate) fn release(&self, method: &'static str) {
        self.change(|world| *world.released.entry(method).or_default() += 1);
    }
}

/// Observations.
impl FakeCri {
    pub(crate) fn sandboxes(&self) -> Vec<Sandbox> {
        self.look(|world| world.sandboxes.clone())
    }

    pub(crate) fn containers(&self) -> Vec<Container> {
        self.look(|world| world.containers.clone())
    }

    /// Every call so far, in order of arrival.
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

    /// Waits until `done` holds, and fails the test after a timeout.
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

/// Accepts connections until the runtime stops.
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

/// Locks even a poisoned mutex, so that one failed test does not fail twice.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
