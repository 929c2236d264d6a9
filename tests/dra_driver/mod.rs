//! A DRA driver like those written for the upstream kubelet, using tonic. Dropping the [`Driver`] ends it like a killed
//! process.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use prost::Message;
use tonic::Status;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::service::Routes;

use super::device_plugin::Method;
use super::device_plugin::codec::Prost;
use super::grpc_plugin::{Answerer, Name, Named, PluginInfo, Registration, RegistrationStatus, Served, serve};
use crate::wait::wait_for;

pub(crate) const NAME: &str = "gpu.example.com";
pub(crate) const PREPARE: &str = "NodePrepareResources";
pub(crate) const UNPREPARE: &str = "NodeUnprepareResources";

pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    registry: PathBuf,
    /// Distinguishes instances of the driver.
    instance: String,
    version: Version,
    served: Option<Served>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Version {
    V1,
    V1Beta1,
}

/// The test's settings, and the recorded calls.
#[derive(Default)]
pub(crate) struct Shared {
    /// Each method with the names of its claims.
    calls: Mutex<Vec<(String, Vec<String>)>>,
    /// The uids of the prepared claims.
    prepared: Mutex<Vec<String>>,
    /// Methods that answer only once they no longer hang.
    hanging: Mutex<Vec<&'static str>>,
    /// Methods that answer with this error: each claim, or that of this name.
    failing: Mutex<Vec<(&'static str, Option<&'static str>, String)>>,
    /// Methods that leave out their claims.
    skipping: Mutex<Vec<&'static str>>,
    told: Mutex<Vec<RegistrationStatus>>,
    /// The health of the devices; drivers without any do not serve `DRAResourceHealth`.
    health: Mutex<Option<HealthResponse>>,
    watchers: Mutex<Vec<async_channel::Sender<HealthResponse>>>,
}

#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct HealthResponse {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<DeviceHealth>,
}

#[derive(Clone, PartialEq, Message)]
struct DeviceHealth {
    #[prost(message, optional, tag = "1")]
    device: Option<DeviceIdentifier>,
    #[prost(int32, tag = "2")]
    health: i32,
    #[prost(int64, tag = "3")]
    last_updated_time: i64,
    #[prost(int64, tag = "4")]
    health_check_timeout_seconds: i64,
    #[prost(string, tag = "5")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct DeviceIdentifier {
    #[prost(string, tag = "1")]
    pool_name: String,
    #[prost(string, tag = "2")]
    device_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, Message)]
struct Claim {
    #[prost(string, tag = "1")]
    namespace: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct PrepareResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    claims: std::collections::BTreeMap<String, Prepared>,
}

#[derive(Clone, PartialEq, Message)]
struct Prepared {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<Device>,
    #[prost(string, tag = "2")]
    error: String,
}

#[derive(Clone, PartialEq, Message)]
struct Device {
    #[prost(string, repeated, tag = "1")]
    request_names: Vec<String>,
    #[prost(string, tag = "2")]
    pool_name: String,
    #[prost(string, tag = "3")]
    device_name: String,
    #[prost(string, repeated, tag = "4")]
    cdi_device_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct UnprepareResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    claims: std::collections::BTreeMap<String, Unprepared>,
}

#[derive(Clone, PartialEq, Message)]
struct Unprepared {
    #[prost(string, tag = "1")]
    error: String,
}

#[derive(Clone)]
struct V1;

impl Name for V1 {
    const NAME: &'static str = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin";
}

#[derive(Clone)]
struct V1Beta1;

impl Name for V1Beta1 {
    const NAME: &'static str = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin";
}

impl Driver {
    /// Starts a driver that registers in this plugin registry.
    pub(crate) fn start(registry: &Path) -> Self {
        Self::instance(registry, "a", Version::V1, Arc::default())
    }

    /// Starts one of several instances, which share what they have prepared.
    pub(crate) fn instance(registry: &Path, instance: &str, version: Version, shared: Arc<Shared>) -> Self {
        let (registry, instance) = (registry.to_owned(), instance.to_owned());
        let mut driver = Self { shared, registry, instance, version, served: None };
        driver.come_back();
        driver
    }

    /// A driver that registers when it comes back for the first time.
    pub(crate) fn unstarted(registry: &Path, version: Version) -> Self {
        let (registry, instance) = (registry.to_owned(), "a".to_owned());
        Self { shared: Arc::default(), registry, instance, version, served: None }
    }

    fn socket(&self) -> PathBuf {
        self.registry.join(format!("{NAME}-{}-reg.sock", self.instance))
    }

    /// Ends the driver like `kill -9`, and removes its socket like a deleted pod.
    pub(crate) fn kill(&mut self) {
        self.end_process();
        let _ = fs::remove_file(self.socket());
    }

    /// Ends the driver like `kill -9`. Its socket file stays.
    pub(crate) fn end_process(&mut self) {
        self.served = None;
        self.shared.watchers.lock().unwrap().clear();
    }

    /// Starts a new process of the same driver.
    pub(crate) fn come_back(&mut self) {
        self.end_process();
        fs::create_dir_all(&self.registry).unwrap();
        let plugin = |shared: Arc<Shared>| -> Answerer {
            Arc::new(move |method, request| {
                let shared = Arc::clone(&shared);
                Box::pin(async move { shared.answer(&method, &request).await })
            })
        };
        let registration: Answerer = {
            let (shared, version) = (Arc::clone(&self.shared), self.version);
            Arc::new(move |method, request| shared.registration(&method, &request, version))
        };
        let routes = Routes::new(Named::<Registration>::new(registration));
        let routes = match self.version {
            Version::V1 => routes.add_service(Named::<V1>::new(plugin(Arc::clone(&self.shared)))),
            Version::V1Beta1 => routes.add_service(Named::<V1Beta1>::new(plugin(Arc::clone(&self.shared)))),
        };
        let reports_health = self.shared.health.lock().unwrap().is_some();
        let routes = match (reports_health, self.version) {
            (true, Version::V1) => routes.add_service(Health::<false>(Arc::clone(&self.shared))),
            (true, Version::V1Beta1) => routes.add_service(Health::<true>(Arc::clone(&self.shared))),
            (false, _) => routes,
        };
        // Renames the socket into place once it listens.
        let hidden = self.registry.join(format!(".{}.sock", self.instance));
        self.served = Some(serve(&hidden, routes, || {}));
        fs::rename(hidden, self.socket()).unwrap();
    }

    #[track_caller]
    pub(crate) fn wait_until_registered(&self) {
        self.wait("the driver to be registered", |shared| {
            shared.told.lock().unwrap().iter().any(|told| told.plugin_registered)
        });
    }

    pub(crate) fn hang(&self, method: &'static str) {
        self.shared.hanging.lock().unwrap().push(method);
    }

    pub(crate) fn fail(&self, method: &'static str, why: &str) {
        self.shared.failing.lock().unwrap().push((method, None, why.to_owned()));
    }

    pub(crate) fn fail_claim(&self, method: &'static str, claim: &'static str, why: &str) {
        self.shared.failing.lock().unwrap().push((method, Some(claim), why.to_owned()));
    }

    /// Answers calls that hang.
    pub(crate) fn release(&self) {
        self.shared.hanging.lock().unwrap().clear();
    }

    /// Reports the health of devices of pool `node-a`, now and to later watchers: 1 is healthy, 2 is unhealthy.
    pub(crate) fn report_health(&self, devices: &[(&str, i32, &str)]) {
        let report = |(device, health, message): &(&str, i32, &str)| DeviceHealth {
            device: Some(DeviceIdentifier { pool_name: "node-a".to_owned(), device_name: (*device).to_owned() }),
            health: *health,
            message: (*message).to_owned(),
            ..DeviceHealth::default()
        };
        let reports = HealthResponse { devices: devices.iter().map(report).collect() };
        *self.shared.health.lock().unwrap() = Some(reports.clone());
        self.shared.watchers.lock().unwrap().retain(|watcher| watcher.try_send(reports.clone()).is_ok());
    }

    pub(crate) fn skip(&self, method: &'static str) {
        self.shared.skipping.lock().unwrap().push(method);
    }

    pub(crate) fn mend(&self) {
        self.shared.hanging.lock().unwrap().clear();
        self.shared.failing.lock().unwrap().clear();
        self.shared.skipping.lock().unwrap().clear();
    }

    /// The claims of each call of this method.
    pub(crate) fn calls(&self, method: &str) -> Vec<Vec<String>> {
        let calls = self.shared.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == method).map(|(_, claims)| claims.clone()).collect()
    }

    /// The uids of the prepared claims.
    pub(crate) fn prepared(&self) -> Vec<String> {
        self.shared.prepared.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, method: &'static str) {
        self.wait(method, |shared| shared.calls.lock().unwrap().iter().any(|(called, _)| called == method));
    }

    #[track_caller]
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&Shared) -> bool) {
        wait_for(what, || is_so(&self.shared));
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Shared {
    fn registration(&self, method: &str, request: &[u8], version: Version) -> BoxFuture<Vec<u8>, Status> {
        let answer = match method {
            "GetInfo" => PluginInfo {
                kind: "DRAPlugin".to_owned(),
                name: NAME.to_owned(),
                endpoint: String::new(),
                supported_versions: vec![
                    if version == Version::V1 { "v1.DRAPlugin" } else { "v1beta1.DRAPlugin" }.to_owned(),
                ],
            }
            .encode_to_vec(),
            _ => {
                self.told.lock().unwrap().push(RegistrationStatus::decode(request).unwrap());
                Vec::new()
            }
        };
        Box::pin(async move { Ok(answer) })
    }

    async fn answer(&self, method: &str, request: &[u8]) -> Result<Vec<u8>, Status> {
        let claims = Request::decode(request).unwrap().claims;
        let names = claims.iter().map(|claim| claim.name.clone()).collect();
        self.calls.lock().unwrap().push((method.to_owned(), names));
        while self.hanging.lock().unwrap().contains(&method) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let failing = self.failing.lock().unwrap();
        let error = |claim: &Claim| {
            let is_meant = |name: &Option<&str>| name.is_none_or(|name| name == claim.name);
            let mut failing = failing.iter().filter(|(failing, name, _)| *failing == method && is_meant(name));
            failing.next().map(|(.., why)| why.clone())
        };
        let skips = self.skipping.lock().unwrap().contains(&method);
        let claims: Vec<Claim> = if skips { Vec::new() } else { claims };
        let mut prepared = self.prepared.lock().unwrap();
        let done: Vec<&Claim> = claims.iter().filter(|claim| error(claim).is_none()).collect();
        if method == PREPARE {
            prepared.extend(done.iter().map(|claim| claim.uid.clone()));
            prepared.sort();
            prepared.dedup();
            let entry = |claim: &Claim| (claim.uid.clone(), prepare(claim, error(claim)));
            return Ok(PrepareResponse { claims: claims.iter().map(entry).collect() }.encode_to_vec());
        }
        prepared.retain(|uid| !done.iter().any(|claim| claim.uid == *uid));
        let entry = |claim: &Claim| (claim.uid.clone(), Unprepared { error: error(claim).unwrap_or_default() });
        Ok(UnprepareResponse { claims: claims.iter().map(entry).collect() }.encode_to_vec())
    }

    fn watch_health(&self) -> async_channel::Receiver<HealthResponse> {
        let (sender, receiver) = async_channel::bounded(100);
        let health = self.health.lock().unwrap().clone().unwrap_or_default();
        sender.try_send(health).unwrap();
        self.watchers.lock().unwrap().push(sender);
        receiver
    }
}

/// Each claim has a device for its request `gpu`, and one for all requests.
fn prepare(claim: &Claim, error: Option<String>) -> Prepared {
    let device = |name: &str, requests: &[&str]| Device {
        request_names: requests.iter().map(|request| (*request).to_owned()).collect(),
        pool_name: "node-a".to_owned(),
        device_name: name.to_owned(),
        cdi_device_ids: vec![format!("example.com/gpu={}-{name}", claim.name)],
    };
    match error {
        Some(error) => Prepared { devices: Vec::new(), error },
        None => Prepared { devices: vec![device("card", &["gpu"]), device("link", &[])], error: String::new() },
    }
}

/// The health service of 1.37, or the one before it.
#[derive(Clone)]
struct Health<const IS_OLD: bool>(Arc<Shared>);

impl NamedService for Health<false> {
    const NAME: &'static str = "v1.DRAResourceHealth";
}

impl NamedService for Health<true> {
    const NAME: &'static str = "v1alpha1.DRAResourceHealth";
}

type Body = tonic::body::Body;

impl<const IS_OLD: bool> Service<http::Request<Body>> for Health<IS_OLD> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let answer = move |_: Empty| {
                let reports = shared.watch_health();
                async move { Ok(Box::pin(smol::stream::StreamExt::map(reports, Ok::<_, Status>))) }
            };
            Ok(tonic::server::Grpc::new(Prost::new(false)).server_streaming(Method(answer), request).await)
        })
    }
}
