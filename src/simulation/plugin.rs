//! A plugin on the simulated network: a socket in the registry, and injected faults. As with grpc-go, a call that the
//! agent cancels goes on, and its answer is dropped.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::record::Record;
use crate::platform::rpc::{Reply, Request, ServerLimits, handler, serve_connection};
use crate::platform::rt::{self, UnixStream, World};
use crate::protocol::grpc::{Code, Status};
use crate::protocol::protobuf::{encode, message};

message! {
    pub(super) struct Empty {}

    struct PluginInfo {
        1 => kind: String,
        2 => name: String,
        3 => endpoint: String,
        4 => supported_versions: Vec<String>,
    }
}

/// How often calls fail, in parts per thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// The call has no effect and returns an error.
    pub(super) failed: u32,
    /// The call takes effect, and there is no response.
    pub(super) hung: u32,
    /// Longest additional latency.
    pub(super) slow: Duration,
    /// The call opens a stream, and no message follows.
    pub(super) silent: u32,
}

/// The service of a plugin.
pub(super) trait Service {
    /// Kind, name and version for the registration.
    const INFO: [&'static str; 3];

    /// A call has arrived. The result lives until its handler has returned.
    fn begin(&self, _method: &str, _message: &[u8]) -> Option<Box<dyn Any>> {
        None
    }

    fn handle(&self, method: &str, message: &[u8]) -> Result<Reply, Status>;
}

pub(super) struct Plugin<S> {
    world: Rc<World>,
    record: Rc<Record>,
    socket: PathBuf,
    pub(super) service: S,
    pub(super) faults: Cell<Faults>,
    serving: RefCell<Option<rt::Task<()>>>,
}

impl<S: Service + 'static> Plugin<S> {
    pub(super) fn new(world: &Rc<World>, record: &Rc<Record>, socket: PathBuf, service: S) -> Rc<Self> {
        Rc::new(Self {
            world: Rc::clone(world),
            record: Rc::clone(record),
            socket,
            service,
            faults: Cell::default(),
            serving: RefCell::default(),
        })
    }

    fn address(&self) -> String {
        self.socket.display().to_string()
    }

    /// Starts the process, unless it runs.
    pub(super) fn start(self: &Rc<Self>) {
        if self.serving.borrow().is_some() {
            return;
        }
        let connections = self.world.network.host(&self.address()).listen();
        // The two directories above it may be missing on a new disk.
        self.socket.parent().map_or(Ok(()), fs::create_dir_all).unwrap();
        drop(UnixListener::bind(&self.socket).unwrap());
        let plugin = Rc::clone(self);
        let task = rt::spawn(async move {
            let mut open: Vec<rt::Task<()>> = Vec::new();
            while let Ok(pipe) = connections.recv().await {
                open.retain(|connection| !connection.is_finished());
                let plugin = Rc::clone(&plugin);
                let calls = Rc::new(RefCell::new(Vec::new()));
                let handlers = Rc::clone(&calls);
                let response = handler(move |request| Rc::clone(&plugin).answer(request, &calls));
                open.push(rt::spawn(async move {
                    // The handlers end with the connection: the agent cannot know of calls of a former process.
                    let _handlers = EndsHandlers(handlers);
                    // The connection may be cut at any time.
                    let _ = serve_connection(UnixStream::Simulated(pipe), response, ServerLimits::large()).await;
                }));
            }
        });
        self.serving.replace(Some(task));
    }

    /// Ends the process and removes its socket.
    pub(super) fn stop(&self) {
        self.world.network.host(&self.address()).close();
        self.serving.take();
        // It may not have been running.
        let _ = fs::remove_file(&self.socket);
    }

    /// Starts the handler of a call, which goes on if the agent cancels the call.
    fn answer(
        self: Rc<Self>,
        request: Request,
        calls: &RefCell<Vec<rt::Task<()>>>,
    ) -> impl Future<Output = Result<Reply, Status>> + use<S> {
        let (sender, receiver) = async_channel::bounded(1);
        let mut calls = calls.borrow_mut();
        calls.retain(|call| !call.is_finished());
        calls.push(rt::spawn(async move {
            let method = request.method.rsplit('/').next().unwrap_or_default();
            let begun = self.service.begin(method, &request.message);
            // A handler that hangs returns when the context of its call ends.
            let limit = request.timeout.map(|timeout| timeout.saturating_sub(HANDLER_LEAD));
            let ended = async {
                match limit {
                    Some(limit) => rt::sleep(limit).await,
                    None => std::future::pending().await,
                }
                None
            };
            let response = rt::either(async { Some(Rc::clone(&self).serve(&request).await) }, ended).await;
            drop(begun);
            match response {
                // The agent may have cancelled the call.
                Some(response) => drop(sender.try_send(response)),
                // The agent's own timer ends the call.
                None => std::future::pending().await,
            }
        }));
        async move {
            match receiver.recv().await {
                Ok(response) => response,
                // The handlers end with the plugin.
                Err(_) => std::future::pending().await,
            }
        }
    }

    async fn serve(self: Rc<Self>, request: &Request) -> Result<Reply, Status> {
        let [kind, name, version] = S::INFO;
        let method = request.method.rsplit('/').next().unwrap_or_default();
        let (world, faults) = (&self.world, self.faults.get());
        self.record.count("plugin calls");
        rt::sleep(world.duration_below(Duration::from_millis(20)) + world.duration_below(faults.slow)).await;
        if world.chance(faults.failed) {
            self.record.count("plugin calls that failed");
            return Err(Status::new(Code::Unavailable, "injected failure"));
        }
        let response = match method {
            "GetInfo" => Ok(Reply::Message(encode(&PluginInfo {
                kind: kind.to_owned(),
                name: name.to_owned(),
                endpoint: String::new(),
                supported_versions: vec![version.to_owned()],
            }))),
            "NotifyRegistrationStatus" => Ok(Reply::Message(encode(&Empty {}))),
            _ => self.service.handle(method, &request.message),
        };
        self.record.line(&format!(
            "plugin  {name} {method} {}",
            response.as_ref().map_or_else(Status::to_string, |_| "ok".to_owned())
        ));
        let is_silent = faults.silent > 0 && matches!(response, Ok(Reply::Stream(_))) && world.chance(faults.silent);
        if is_silent || world.chance(faults.hung) {
            self.record.count("plugin calls that hung");
            return std::future::pending().await;
        }
        response
    }
}

/// Drops the handlers of a connection. Dropping the list would not: the connection's handler holds it.
struct EndsHandlers(Rc<RefCell<Vec<rt::Task<()>>>>);

impl Drop for EndsHandlers {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// How much earlier than the agent's timer a handler that hangs returns: the request was on its way for less.
const HANDLER_LEAD: Duration = Duration::from_secs(1);
