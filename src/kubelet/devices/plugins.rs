//! Device plugins: registration and ListAndWatch.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Component, Path};
use std::rc::Rc;
use std::time::Duration;

use super::Devices;
use super::allocations::Registration;
use super::error::DeviceError;
use super::v1beta1::{DEVICE_PLUGIN_VERSION, DevicePluginOptions, Empty, ListAndWatchResponse, RegisterRequest};
use crate::platform::host::directories;
use crate::platform::plugin_manager::{PluginHandler, PluginInfo};
use crate::platform::rpc::{self, Client, Reply, Request, Server, handler};
use crate::platform::rt;
use crate::protocol::grpc::{Code, Status};
use crate::protocol::protobuf::{Message, decode, encode};
use crate::types::api::is_extended_resource;
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count};
use crate::types::time::Backoff;

/// The plugin of a resource.
pub(super) struct Plugin {
    pub(super) client: Client,
    socket: String,
    registration: Registration,
    #[expect(dead_code, reason = "dropping the task ends it")]
    listener: rt::Task<()>,
}

/// Expands to the path of a method.
macro_rules! method {
    ($method:literal) => {
        concat!("/v1beta1.DevicePlugin/", $method)
    };
}
pub(super) use method;

const DEVICE_PLUGIN_SOCKET: &str = "kubelet.sock";
/// Timeout of GetDevicePluginOptions.
const PLUGIN_OPTIONS_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeouts of the first list of ListAndWatch, the first and the longest one. Then ListAndWatch is called again.
/// Upstream waits without a limit: a plugin that hangs in this call has no devices until it registers again.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(180);
/// Limit of the number of resources.
const MAX_PLUGIN_RESOURCES: usize = 256;
/// Limits of a device list: its devices, and the NUMA nodes of each.
const MAX_PLUGIN_DEVICES: usize = 65_536;
const MAX_DEVICE_NUMA_NODES: usize = 64;

/// Serves registrations of plugins.
pub(super) async fn serve(devices: Rc<Devices>) {
    let path = devices.directory.join(DEVICE_PLUGIN_SOCKET);
    let directory = devices.directory.clone();
    let response = {
        let devices = Rc::clone(&devices);
        handler(move |request| handle(Rc::clone(&devices), request))
    };
    let prepare = move || directories::make(&directory, 0o750).and_then(|()| remove_sockets(&directory));
    let server = Server::bind_prepared(&path, prepare).await;
    server.serve(response).await;
}

/// Plugins register again when their socket is removed.
fn remove_sockets(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_socket() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

async fn handle(devices: Rc<Devices>, request: Request) -> Result<Reply, Status> {
    if request.method != "/v1beta1.Registration/Register" {
        return Err(Status::new(Code::Unimplemented, format!("unknown method {}", request.method)));
    }
    let watch: RegisterRequest =
        decode(&request.message).map_err(|error| Status::new(Code::Internal, error.to_string()))?;
    let registered = register(&devices, &watch).await;
    if let Err(error) = &registered {
        log!(warn, "device plugin refused", resource = watch.resource_name, error = ErrorChain(error));
    }
    let refused = |error: DeviceError| Status::new(Code::Unknown, ErrorChain(&error).to_string());
    registered.map(|()| Reply::Message(encode(&Empty {}))).map_err(refused)
}

async fn register(devices: &Rc<Devices>, watch: &RegisterRequest) -> Result<(), DeviceError> {
    let RegisterRequest { version, endpoint, resource_name, .. } = watch;
    if version != DEVICE_PLUGIN_VERSION {
        return Err(DeviceError::Version { version: version.clone() });
    }
    let is_inside = Path::new(endpoint).components().all(|part| matches!(part, Component::Normal(_)));
    if endpoint.is_empty() || !is_inside {
        return Err(DeviceError::Endpoint { endpoint: endpoint.clone(), directory: devices.directory.clone() });
    }
    check_name(resource_name)?;
    metrics::count(Count::DevicePluginRegistrations, &[resource_name]);
    devices.connect(resource_name, &devices.directory.join(endpoint)).await
}

fn check(plugin: &PluginInfo) -> Result<(), DeviceError> {
    if !plugin.supported_versions.iter().any(|version| version == DEVICE_PLUGIN_VERSION) {
        return Err(DeviceError::Versions { versions: plugin.supported_versions.clone() });
    }
    check_name(&plugin.name).map_err(DeviceError::during("invalid name of device plugin socket"))
}

fn check_name(resource: &str) -> Result<(), DeviceError> {
    let bad = || DeviceError::BadName { resource: resource.to_owned() };
    if is_extended_resource(resource) { Ok(()) } else { Err(bad()) }
}

impl Devices {
    /// Connects to the plugin at the socket, reads its options, and starts ListAndWatch.
    pub(super) async fn connect(self: &Rc<Self>, resource: &str, socket: &Path) -> Result<(), DeviceError> {
        if self.rules.iter().any(|rule| rule.resource == resource) {
            return Err(DeviceError::ByRule { resource: resource.to_owned() });
        }
        let is_new = !self.plugins.borrow().contains_key(resource);
        if is_new && self.plugins.borrow().len() >= MAX_PLUGIN_RESOURCES {
            return Err(DeviceError::TooMany { most: MAX_PLUGIN_RESOURCES });
        }
        let socket = socket.display().to_string();
        let client = Client::new(&socket);
        // As in upstream's `PluginConnected`: a plugin that the plugin watcher has found sends no options by itself.
        let options = call(&client, method!("GetDevicePluginOptions"), &Empty {}, PLUGIN_OPTIONS_TIMEOUT).await;
        let options: DevicePluginOptions =
            options.map_err(DeviceError::from).map_err(DeviceError::during("failed to get device plugin options"))?;
        let registration = self.allocations.borrow_mut().register(resource, options);
        log!(info, "device plugin registered", resource = resource, socket = socket);
        let listener = rt::spawn(listen(Rc::clone(self), client.clone(), resource.to_owned(), registration));
        let plugin = Plugin { client, socket, registration, listener };
        self.plugins.borrow_mut().insert(resource.to_owned(), plugin);
        self.changed.notify();
        Ok(())
    }

    /// The plugin watcher's handler for device plugins.
    pub(crate) fn plugin_handler(self: &Rc<Self>) -> PluginHandler {
        let (registering, deregistering) = (Rc::clone(self), Rc::clone(self));
        PluginHandler {
            kind: "DevicePlugin",
            register: Box::new(move |plugin| {
                let devices = Rc::clone(&registering);
                Box::pin(async move {
                    check(&plugin).map_err(DeviceError::during("plugin validation failed with err"))?;
                    let connected = devices.connect(&plugin.name, Path::new(&plugin.endpoint)).await;
                    Ok(connected.map_err(DeviceError::during("plugin registration failed with err"))?)
                })
            }),
            deregister: Box::new(move |plugin| deregistering.disconnect(&plugin.name, &plugin.endpoint)),
        }
    }

    /// The plugin's socket was removed.
    fn disconnect(&self, resource: &str, socket: &str) {
        let mut plugins = self.plugins.borrow_mut();
        let Some(plugin) = plugins.get(resource).filter(|plugin| plugin.socket == socket) else { return };
        let registration = plugin.registration;
        plugins.remove(resource);
        drop(plugins);
        self.stopped(resource, registration);
    }

    /// ListAndWatch has ended.
    fn stopped(&self, resource: &str, registration: Registration) {
        if self.allocations.borrow_mut().stop(resource, registration, rt::now()) {
            self.changed.notify();
        }
    }
}

async fn listen(devices: Rc<Devices>, client: Client, resource: String, registration: Registration) {
    let ended = list_and_watch(&devices, &client, &resource, registration).await;
    let why =
        ended.err().map_or_else(|| "the plugin ended ListAndWatch".to_owned(), |error| ErrorChain(&error).to_string());
    log!(warn, "device plugin stopped", resource = resource, error = why);
    devices.stopped(&resource, registration);
}

async fn list_and_watch(
    devices: &Devices,
    client: &Client,
    resource: &str,
    registration: Registration,
) -> Result<(), rpc::Error> {
    let mut wait = Backoff::new(FIRST_LIST_TIMEOUT, MAX_FIRST_LIST_TIMEOUT);
    let (mut lists, mut next) = loop {
        let watch = client.server_streaming(method!("ListAndWatch"), encode(&Empty {}));
        let mut lists =
            rt::deadline(PLUGIN_OPTIONS_TIMEOUT, watch).await.unwrap_or(Err(rpc::Error::DeadlineExceeded))?;
        match rt::deadline(wait.next_wait(), lists.next()).await {
            Ok(first) => break (lists, first?),
            Err(rt::Elapsed) => log!(warn, "device plugin sent no devices, asking again", resource = resource),
        }
    };
    while let Some(message) = next {
        let list: ListAndWatchResponse = decode(&message).map_err(|_| rpc::Error::Protocol("malformed device list"))?;
        check_list(&list).map_err(rpc::Error::Protocol)?;
        if devices.allocations.borrow_mut().set_devices(resource, registration, list.devices) {
            devices.changed.notify();
        }
        next = lists.next().await?;
    }
    Ok(())
}

fn check_list(list: &ListAndWatchResponse) -> Result<(), &'static str> {
    if list.devices.len() > MAX_PLUGIN_DEVICES {
        return Err("device list is too long");
    }
    let nodes = list.devices.iter().filter_map(|device| device.topology.as_ref()).map(|topology| topology.nodes.len());
    if nodes.max() > Some(MAX_DEVICE_NUMA_NODES) { Err("a device has too many NUMA nodes") } else { Ok(()) }
}

pub(super) async fn call<M: Message + Default>(
    client: &Client,
    path: &'static str,
    request: &dyn Message,
    limit: Duration,
) -> Result<M, rpc::Error> {
    let response = client.unary(path, encode(request), limit).await?;
    decode(&response).map_err(|_| rpc::Error::Protocol("malformed answer"))
}

#[cfg(test)]
mod tests {
    use super::super::v1beta1::{Device, NumaNode, TopologyInfo};
    use super::*;

    #[test]
    fn device_lists_are_bounded() {
        let list = |devices: usize, nodes: usize| {
            let topology = Some(TopologyInfo { nodes: vec![NumaNode::default(); nodes] });
            let device = Device { id: "a".to_owned(), health: String::new(), topology };
            ListAndWatchResponse { devices: vec![device; devices] }
        };
        assert_eq!(check_list(&list(0, 0)), Ok(()));
        assert_eq!(check_list(&list(MAX_PLUGIN_DEVICES, 1)), Ok(()));
        assert_eq!(check_list(&list(1, MAX_DEVICE_NUMA_NODES)), Ok(()));
        assert!(check_list(&list(MAX_PLUGIN_DEVICES + 1, 0)).is_err());
        assert!(check_list(&list(1, MAX_DEVICE_NUMA_NODES + 1)).is_err());
    }
}
