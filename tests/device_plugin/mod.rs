//! A device plugin like those written for the upstream kubelet, using tonic for gRPC. Dropping the [`Plugin`] ends it
//! like a killed process.

pub(crate) mod codec;
pub(crate) mod messages;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use prost::Message as _;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::grpc_plugin::{Named, Registration, Served, serve};
use crate::wait::{wait, wait_for};
use codec::Prost;
use messages::*;

pub(crate) struct Plugin {
    pub(crate) shared: Arc<Shared>,
    socket: PathBuf,
    served: Option<Served>,
}

/// The test's settings, and the recorded calls.
#[derive(Default)]
pub(crate) struct Shared {
    devices: Mutex<Vec<Device>>,
    watchers: Mutex<Vec<async_channel::Sender<ListAndWatchResponse>>>,
    pub(crate) options: Mutex<DevicePluginOptions>,
    /// Each called method with its device ids.
    calls: Mutex<Vec<(String, Vec<String>)>>,
    /// Methods that never answer.
    hanging: Mutex<Vec<&'static str>>,
    /// Methods that answer with malformed bytes.
    garbled: Mutex<Vec<&'static str>>,
    /// Methods that answer with an error.
    failing: Mutex<Vec<(&'static str, String)>>,
    pub(crate) preferred: Mutex<Vec<String>>,
    pub(crate) info: Mutex<PluginInfo>,
    pub(crate) told: Mutex<Vec<RegistrationStatus>>,
}

impl Plugin {
    /// Serves these healthy devices at the socket.
    pub(crate) fn start(socket: &Path, ids: &[&str]) -> Self {
        let shared = Arc::new(Shared::default());
        let plugin = Self::serving(socket, shared);
        plugin.set(&ids.iter().map(|id| (*id, true)).collect::<Vec<_>>());
        plugin
    }

    fn serving(socket: &Path, shared: Arc<Shared>) -> Self {
        let registration = {
            let shared = Arc::clone(&shared);
            Named::<Registration>::new(Arc::new(move |method, request| {
                let shared = Arc::clone(&shared);
                Box::pin(async move { shared.registration(&method, &request).await })
            }))
        };
        let routes = Routes::new(DevicePlugin(Arc::clone(&shared))).add_service(registration);
        let served = serve(socket, routes, || {});
        Self { shared, socket: socket.to_owned(), served: Some(served) }
    }

    /// Ends the plugin like `kill -9`; the socket file remains.
    pub(crate) fn kill(&mut self) {
        self.served = None;
        self.shared.watchers.lock().unwrap().clear();
    }

    /// Starts a new process of the same plugin, which has to register again.
    pub(crate) fn restart(&mut self) {
        self.kill();
        *self = Self::serving(&self.socket, Arc::clone(&self.shared));
    }

    /// Registers with the kubelet at this socket, and retries until it succeeds.
    pub(crate) fn register(&self, kubelet: &Path, resource: &str) {
        wait(|| self.try_register(kubelet, resource, "v1beta1"));
    }

    pub(crate) fn try_register(&self, kubelet: &Path, resource: &str, version: &str) -> Result<(), String> {
        let request = RegisterRequest {
            version: version.to_owned(),
            endpoint: self.socket.file_name().unwrap().to_string_lossy().into_owned(),
            resource_name: resource.to_owned(),
            options: Some(self.shared.options.lock().unwrap().clone()),
        };
        let _: Empty = ask(kubelet, "/v1beta1.Registration/Register", request)?;
        Ok(())
    }

    /// Reports these devices from now on, each with its health.
    pub(crate) fn set(&self, devices: &[(&str, bool)]) {
        let health = |healthy: bool| if healthy { "Healthy" } else { "Unhealthy" }.to_owned();
        let device =
            |(id, healthy): &(&str, bool)| Device { id: (*id).to_owned(), health: health(*healthy), topology: None };
        self.tell(devices.iter().map(device).collect());
    }

    /// Reports healthy devices with their NUMA nodes.
    pub(crate) fn set_near(&self, devices: &[(&str, i64)]) {
        let device = |(id, node): &(&str, i64)| Device {
            id: (*id).to_owned(),
            health: "Healthy".to_owned(),
            topology: Some(Topology::near(*node)),
        };
        self.tell(devices.iter().map(device).collect());
    }

    fn tell(&self, devices: Vec<Device>) {
        self.shared.devices.lock().unwrap().clone_from(&devices);
        for watcher in &*self.shared.watchers.lock().unwrap() {
            let _ = watcher.try_send(ListAndWatchResponse { devices: devices.clone() });
        }
    }

    pub(crate) fn hang(&self, method: &'static str) {
        self.shared.hanging.lock().unwrap().push(method);
    }

    pub(crate) fn fail(&self, method: &'static str, why: &str) {
        self.shared.failing.lock().unwrap().push((method, why.to_owned()));
    }

    pub(crate) fn garble(&self, method: &'static str) {
        self.shared.garbled.lock().unwrap().push(method);
    }

    pub(crate) fn mend(&self) {
        self.shared.hanging.lock().unwrap().clear();
        self.shared.garbled.lock().unwrap().clear();
        self.shared.failing.lock().unwrap().clear();
    }

    /// The device ids of each call of this method.
    pub(crate) fn calls(&self, method: &str) -> Vec<Vec<String>> {
        let calls = self.shared.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == method).map(|(_, ids)| ids.clone()).collect()
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, method: &str) {
        wait_for(method, || !self.calls(method).is_empty());
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.kill();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Makes one call to a server on a socket.
pub(crate) fn ask<Q, A>(socket: &Path, method: &'static str, request: Q) -> Result<A, String>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let endpoint = tonic::transport::Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    runtime().block_on(async {
        let channel = endpoint.connect().await.map_err(|error| error.to_string())?;
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.map_err(|error| error.to_string())?;
        let path = http::uri::PathAndQuery::from_static(method);
        let codec = Prost::<Q, A>::default();
        let answer = client.unary(Request::new(request), path, codec).await;
        answer.map(Response::into_inner).map_err(|status| format!("{:?}: {}", status.code(), status.message()))
    })
}

impl Shared {
    async fn called(&self, method: &'static str, ids: Vec<String>) -> Result<(), Status> {
        self.calls.lock().unwrap().push((method.to_owned(), ids));
        if self.hanging.lock().unwrap().contains(&method) {
            std::future::pending::<()>().await;
        }
        let failing = self.failing.lock().unwrap();
        match failing.iter().find(|(failing, _)| *failing == method) {
            Some((_, why)) => Err(Status::unknown(why.clone())),
            None => Ok(()),
        }
    }

    async fn registration(&self, method: &str, request: &[u8]) -> Result<Vec<u8>, Status> {
        if method == "GetInfo" {
            self.called("GetInfo", Vec::new()).await?;
            return Ok(self.info.lock().unwrap().encode_to_vec());
        }
        self.told.lock().unwrap().push(RegistrationStatus::decode(request).unwrap());
        Ok(Vec::new())
    }

    fn watch(&self) -> async_channel::Receiver<ListAndWatchResponse> {
        let (sender, receiver) = async_channel::bounded(100);
        let devices = self.devices.lock().unwrap().clone();
        sender.try_send(ListAndWatchResponse { devices }).unwrap();
        self.watchers.lock().unwrap().push(sender);
        receiver
    }
}

/// An allocation with one item of each kind.
fn allocated(ids: &[String]) -> ContainerAllocateResponse {
    let pair = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into_iter().collect();
    ContainerAllocateResponse {
        envs: pair("DEVICES", &ids.join(",")),
        mounts: vec![Mount { container_path: "/firmware".into(), host_path: "/lib/firmware".into(), read_only: true }],
        devices: ids
            .iter()
            .map(|id| DeviceSpec {
                container_path: format!("/dev/{id}"),
                host_path: "/dev/null".into(),
                permissions: "rw".into(),
            })
            .collect(),
        annotations: pair("example.com/devices", &ids.join(",")),
        cdi_devices: vec![CdiDevice { name: "example.com/camera=all".into() }],
    }
}

#[derive(Clone)]
struct DevicePlugin(Arc<Shared>);

impl NamedService for DevicePlugin {
    const NAME: &'static str = "v1beta1.DevicePlugin";
}

type Body = tonic::body::Body;

impl Service<http::Request<Body>> for DevicePlugin {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let method = request.uri().path().rsplit('/').next().unwrap().to_owned();
            let is_garbled = shared.garbled.lock().unwrap().contains(&method.as_str());
            Ok(match method.as_str() {
                "GetDevicePluginOptions" => {
                    let answer = move |_: Empty| {
                        let shared = Arc::clone(&shared);
                        async move {
                            shared.called("GetDevicePluginOptions", Vec::new()).await?;
                            let options = shared.options.lock().unwrap().clone();
                            Ok(options)
                        }
                    };
                    tonic::server::Grpc::new(Prost::new(is_garbled)).unary(Method(answer), request).await
                }
                "ListAndWatch" => {
                    let answer = move |_: Empty| {
                        let shared = Arc::clone(&shared);
                        async move {
                            shared.called("ListAndWatch", Vec::new()).await?;
                            Ok(Box::pin(smol::stream::StreamExt::map(shared.watch(), Ok::<_, Status>)))
                        }
                    };
                    tonic::server::Grpc::new(Prost::new(is_garbled)).server_streaming(Method(answer), request).await
                }
                "Allocate" => {
                    let answer = move |asked: ForContainers| {
                        let shared = Arc::clone(&shared);
                        async move {
                            let ids = asked.container_requests[0].ids.clone();
                            shared.called("Allocate", ids.clone()).await?;
                            Ok(AllocateResponse { container_responses: vec![allocated(&ids)] })
                        }
                    };
                    tonic::server::Grpc::new(Prost::new(is_garbled)).unary(Method(answer), request).await
                }
                "GetPreferredAllocation" => {
                    let answer = move |asked: ForContainers| {
                        let shared = Arc::clone(&shared);
                        async move {
                            shared.called("GetPreferredAllocation", asked.container_requests[0].ids.clone()).await?;
                            let ids = shared.preferred.lock().unwrap().clone();
                            Ok(ForContainers { container_requests: vec![Ids { ids, ..Ids::default() }] })
                        }
                    };
                    tonic::server::Grpc::new(Prost::new(is_garbled)).unary(Method(answer), request).await
                }
                "PreStartContainer" => {
                    let answer = move |asked: Ids| {
                        let shared = Arc::clone(&shared);
                        async move {
                            shared.called("PreStartContainer", asked.ids).await?;
                            Ok(Empty {})
                        }
                    };
                    tonic::server::Grpc::new(Prost::new(is_garbled)).unary(Method(answer), request).await
                }
                other => Status::unimplemented(other).into_http(),
            })
        })
    }
}

/// A function that answers one method.
pub(crate) struct Method<F>(pub(crate) F);

impl<F, Q, A, Answered> Service<Request<Q>> for Method<F>
where
    F: Fn(Q) -> Answered,
    Answered: Future<Output = Result<A, Status>> + Send + 'static,
{
    type Response = Response<A>;
    type Error = Status;
    type Future = BoxFuture<Response<A>, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answered = (self.0)(request.into_inner());
        Box::pin(async move { answered.await.map(Response::new) })
    }
}
