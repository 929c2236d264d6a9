//! A CSI driver like those written for the upstream kubelet. Its volumes are tmpfs mounts or a directory of the test.
//! It records calls that violate the order of the specification in [`Driver::faults`].

pub(crate) mod messages;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use prost::Message;
use tonic::service::Routes;
use tonic::{Code, Status};

use super::grpc_plugin::{Answerer, Name, Named, PluginInfo, Registration, RegistrationStatus, Served, serve};
use crate::wait::wait;
use messages::*;

pub(crate) const NAME: &str = "csi.example.com";
pub(crate) const STAGE_UNSTAGE_VOLUME: i32 = 1;
pub(crate) const GET_VOLUME_STATS: i32 = 2;
pub(crate) const EXPAND_VOLUME: i32 = 3;
pub(crate) const VOLUME_MOUNT_GROUP: i32 = 6;

pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    registry: PathBuf,
    /// The mount namespace to mount in, if not the test's own.
    namespace: Option<Arc<fs::File>>,
    served: Option<Served>,
}

/// The test's settings, and the recorded calls.
pub(crate) struct Shared {
    pub(crate) info: Mutex<NodeInfo>,
    capabilities: Vec<i32>,
    /// The directory, or device, to publish; `None` publishes a tmpfs.
    directory: Option<PathBuf>,
    calls: Mutex<Vec<Call>>,
    hanging: Mutex<Vec<&'static str>>,
    /// Methods answered only after the test releases them.
    waiting: Mutex<Vec<&'static str>>,
    failing: Mutex<Vec<(&'static str, Code)>>,
    /// Methods answered with malformed bytes.
    babbling: Mutex<Vec<&'static str>>,
    state: Mutex<State>,
    told: Mutex<Vec<RegistrationStatus>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Stage(Stage),
    Publish(Publish),
    Expand(Expand),
    Unpublish(Undo),
    Unstage(Undo),
    Usage(Ask),
    Other(String),
}

impl Call {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Stage(_) => "stage",
            Self::Publish(_) => "publish",
            Self::Expand(_) => "expand",
            Self::Unpublish(_) => "unpublish",
            Self::Unstage(_) => "unstage",
            Self::Usage(_) => "usage",
            Self::Other(_) => "other",
        }
    }
}

/// The volumes by handle, with their paths.
#[derive(Default)]
struct State {
    staged: Vec<(String, String)>,
    published: Vec<(String, String)>,
    faults: Vec<String>,
}

impl Driver {
    /// Starts a driver that registers in this plugin registry.
    pub(crate) fn start(registry: &Path, capabilities: &[i32]) -> Self {
        Self::new(registry, capabilities, None, None)
    }

    /// Starts a driver that mounts `directory` in the node's mount namespace.
    pub(crate) fn inside(registry: &Path, capabilities: &[i32], directory: PathBuf, namespace: fs::File) -> Self {
        Self::new(registry, capabilities, Some(directory), Some(Arc::new(namespace)))
    }

    fn new(
        registry: &Path,
        capabilities: &[i32],
        directory: Option<PathBuf>,
        namespace: Option<Arc<fs::File>>,
    ) -> Self {
        let shared = Shared {
            info: Mutex::new(NodeInfo { node_id: "node-7".to_owned(), ..NodeInfo::default() }),
            capabilities: capabilities.to_vec(),
            directory,
            calls: Mutex::default(),
            hanging: Mutex::default(),
            waiting: Mutex::default(),
            failing: Mutex::default(),
            babbling: Mutex::default(),
            state: Mutex::default(),
            told: Mutex::default(),
        };
        let mut driver = Self { shared: Arc::new(shared), registry: registry.to_owned(), namespace, served: None };
        driver.come_back();
        driver
    }

    fn socket(&self) -> PathBuf {
        self.registry.join(format!("{NAME}-reg.sock"))
    }

    /// Ends the driver like `kill -9`, and removes its socket like a deleted pod.
    pub(crate) fn kill(&mut self) {
        self.served = None;
        let _ = fs::remove_file(self.socket());
    }

    /// Starts a new process of the same driver.
    pub(crate) fn come_back(&mut self) {
        self.kill();
        fs::create_dir_all(&self.registry).unwrap();
        let of = |shared: &Arc<Shared>, answer: fn(Arc<Shared>, String, Vec<u8>) -> Answered| -> Answerer {
            let shared = Arc::clone(shared);
            Arc::new(move |method, request| answer(Arc::clone(&shared), method, request))
        };
        let registration = Named::<Registration>::new(of(&self.shared, registration));
        let node = Named::<Node>::new(of(&self.shared, |shared, method, request| {
            Box::pin(async move { shared.answer(&method, &request).await })
        }));
        // Renames the socket into place once it listens.
        let hidden = self.registry.join(".csi.sock");
        let namespace = self.namespace.clone();
        let enter = move || {
            if let Some(namespace) = namespace {
                // A thread that shares its file system attributes cannot change its mount namespace.
                unshare(CloneFlags::CLONE_FS).unwrap();
                setns(&*namespace, CloneFlags::CLONE_NEWNS).unwrap();
            }
        };
        self.served = Some(serve(&hidden, Routes::new(registration).add_service(node), enter));
        fs::rename(hidden, self.socket()).unwrap();
    }

    pub(crate) fn hang(&self, method: &'static str) {
        self.shared.hanging.lock().unwrap().push(method);
    }

    pub(crate) fn let_wait(&self, method: &'static str) {
        self.shared.waiting.lock().unwrap().push(method);
    }

    pub(crate) fn fail(&self, method: &'static str) {
        self.refuse(method, Code::Internal);
    }

    pub(crate) fn refuse(&self, method: &'static str, code: Code) {
        self.shared.failing.lock().unwrap().push((method, code));
    }

    pub(crate) fn babble(&self, method: &'static str) {
        self.shared.babbling.lock().unwrap().push(method);
    }

    pub(crate) fn mend(&self) {
        self.shared.hanging.lock().unwrap().clear();
        self.shared.waiting.lock().unwrap().clear();
        self.shared.failing.lock().unwrap().clear();
        self.shared.babbling.lock().unwrap().clear();
    }

    /// The calls about volumes, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let calls = self.shared.calls.lock().unwrap();
        calls.iter().filter(|call| !matches!(call, Call::Other(_))).cloned().collect()
    }

    /// Number of calls of a method that concerns no volume.
    pub(crate) fn asked(&self, method: &str) -> usize {
        let calls = self.shared.calls.lock().unwrap();
        calls.iter().filter(|call| matches!(call, Call::Other(called) if called == method)).count()
    }

    pub(crate) fn has_room_for(&self, volumes: i64) {
        self.shared.info.lock().unwrap().max_volumes_per_node = volumes;
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.calls().iter().map(Call::name).collect()
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().faults.clone()
    }

    /// Asserts that every volume was unpublished and unstaged, in order.
    #[track_caller]
    pub(crate) fn wait_until_all_is_given_back(&self) {
        self.wait_for("everything to be given back", |state| state == (0, 0));
        assert_eq!(self.faults(), [""; 0], "{:?}", self.names());
    }

    /// The numbers of staged and published volumes.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, claim: impl Fn((usize, usize)) -> bool) {
        wait(|| {
            let state = {
                let state = self.shared.state.lock().unwrap();
                (state.staged.len(), state.published.len())
            };
            if claim(state) { Ok(()) } else { Err(format!("{what}: {state:?} {:?}", self.names())) }
        });
    }

    #[track_caller]
    pub(crate) fn wait_for_call(&self, name: &str, count: usize) {
        wait(|| {
            let names = self.names();
            let called = names.iter().filter(|called| **called == name).count();
            if called < count { Err(format!("no {name}: {names:?}")) } else { Ok(()) }
        });
    }

    pub(crate) fn told(&self) -> Vec<RegistrationStatus> {
        self.shared.told.lock().unwrap().clone()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
        let state = self.shared.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (_, place) in state.published.iter().chain(&state.staged) {
            let _ = umount2(place.as_str(), MntFlags::MNT_DETACH);
        }
    }
}

#[derive(Clone)]
struct Node;

impl Name for Node {
    const NAME: &'static str = "csi.v1.Node";
}

type Answered = tonic::codegen::BoxFuture<Vec<u8>, Status>;

fn registration(shared: Arc<Shared>, method: String, request: Vec<u8>) -> Answered {
    Box::pin(async move {
        if method == "GetInfo" {
            let (kind, name) = ("CSIPlugin".to_owned(), NAME.to_owned());
            let supported_versions = vec!["1.0.0".to_owned()];
            return Ok(PluginInfo { kind, name, endpoint: String::new(), supported_versions }.encode_to_vec());
        }
        shared.told.lock().unwrap().push(RegistrationStatus::decode(&*request).unwrap());
        Ok(Vec::new())
    })
}

impl Shared {
    async fn answer(&self, method: &str, request: &[u8]) -> Result<Vec<u8>, Status> {
        let call = match method {
            "NodeStageVolume" => Call::Stage(Stage::decode(request).unwrap()),
            "NodePublishVolume" => Call::Publish(Publish::decode(request).unwrap()),
            "NodeExpandVolume" => Call::Expand(Expand::decode(request).unwrap()),
            "NodeUnpublishVolume" => Call::Unpublish(Undo::decode(request).unwrap()),
            "NodeUnstageVolume" => Call::Unstage(Undo::decode(request).unwrap()),
            "NodeGetVolumeStats" => Call::Usage(Ask::decode(request).unwrap()),
            other => Call::Other(other.to_owned()),
        };
        self.calls.lock().unwrap().push(call.clone());
        let is_one = |list: &Mutex<Vec<&'static str>>| list.lock().unwrap().contains(&method);
        if is_one(&self.hanging) {
            std::future::pending::<()>().await;
        }
        while is_one(&self.waiting) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let refused = self.failing.lock().unwrap().iter().find(|(failing, _)| *failing == method).copied();
        if let Some((_, code)) = refused {
            return Err(Status::new(code, "no disk"));
        }
        let answer = match call {
            Call::Stage(asked) => self.stage(&asked),
            Call::Publish(asked) => self.publish(&asked),
            Call::Expand(asked) => self.expand(&asked),
            Call::Unpublish(asked) => self.unpublish(&asked),
            Call::Unstage(asked) => self.unstage(&asked),
            Call::Usage(asked) => self.usage(&asked),
            Call::Other(method) if method == "NodeGetInfo" => self.info.lock().unwrap().encode_to_vec(),
            Call::Other(method) if method == "NodeGetCapabilities" => {
                let all = self.capabilities.iter().map(|kind| Capability { rpc: Some(Rpc { kind: *kind }) });
                Capabilities { capabilities: all.collect() }.encode_to_vec()
            }
            Call::Other(method) => return Err(Status::unimplemented(method)),
        };
        Ok(if is_one(&self.babbling) { b"\xff\xff\xff".to_vec() } else { answer })
    }

    fn stages(&self) -> bool {
        self.capabilities.contains(&STAGE_UNSTAGE_VOLUME)
    }

    fn stage(&self, asked: &Stage) -> Vec<u8> {
        let mut state = self.state.lock().unwrap();
        let place = (asked.volume_id.clone(), asked.staging_target_path.clone());
        if !Path::new(&place.1).is_dir() {
            state.faults.push(format!("{} is not there to stage at", place.1));
        }
        if !state.staged.contains(&place) {
            // A block device has no staging path before it is published.
            if !is_block(asked.volume_capability.as_ref()) {
                self.mount(&place.1);
            }
            state.staged.push(place);
        }
        Vec::new()
    }

    fn publish(&self, asked: &Publish) -> Vec<u8> {
        let mut state = self.state.lock().unwrap();
        let place = (asked.volume_id.clone(), asked.target_path.clone());
        let staged = (asked.volume_id.clone(), asked.staging_target_path.clone());
        let is_ephemeral = asked.volume_id.starts_with("csi-");
        if self.stages() && !is_ephemeral && !state.staged.contains(&staged) {
            state.faults.push(format!("{} is published and not staged", place.0));
        }
        if !state.published.contains(&place) {
            // The kubelet creates the parent directory.
            if is_block(asked.volume_capability.as_ref()) {
                self.make_device(&place.1);
            } else if let Err(error) = fs::create_dir(&place.1) {
                panic!("{}: {error}", place.1);
            } else if self.stages() && !is_ephemeral {
                bind(Path::new(&staged.1), &place.1);
            } else {
                self.mount(&place.1);
            }
            state.published.push(place);
        }
        Vec::new()
    }

    fn expand(&self, asked: &Expand) -> Vec<u8> {
        let mut state = self.state.lock().unwrap();
        if !state.published.contains(&(asked.volume_id.clone(), asked.volume_path.clone())) {
            state.faults.push(format!("{} is made larger where it is not published", asked.volume_id));
        }
        Vec::new()
    }

    fn unpublish(&self, asked: &Undo) -> Vec<u8> {
        let mut state = self.state.lock().unwrap();
        let place = (asked.volume_id.clone(), asked.path.clone());
        if state.published.contains(&place) {
            match fs::remove_file(&asked.path) {
                Ok(()) => {}
                Err(_) => {
                    umount2(asked.path.as_str(), MntFlags::MNT_DETACH).unwrap();
                    let _ = fs::remove_dir(&asked.path);
                }
            }
        }
        state.published.retain(|known| *known != place);
        Vec::new()
    }

    fn unstage(&self, asked: &Undo) -> Vec<u8> {
        let mut state = self.state.lock().unwrap();
        if state.published.iter().any(|(volume, _)| *volume == asked.volume_id) {
            state.faults.push(format!("{} is unstaged and still published", asked.volume_id));
        }
        let place = (asked.volume_id.clone(), asked.path.clone());
        if state.staged.contains(&place) {
            // A block device has no mount.
            let _ = umount2(asked.path.as_str(), MntFlags::MNT_DETACH);
        }
        state.staged.retain(|known| *known != place);
        Vec::new()
    }

    /// A capacity larger than that of any other volume of the test.
    fn usage(&self, asked: &Ask) -> Vec<u8> {
        let mut state = self.state.lock().unwrap();
        if !state.published.contains(&(asked.volume_id.clone(), asked.volume_path.clone())) {
            state.faults.push(format!("{} is asked about where it is not published", asked.volume_id));
        }
        let bytes = Usage { available: 600, total: 1 << 50, used: 400, unit: 1 };
        let inodes = Usage { available: 60, total: 100, used: 40, unit: 2 };
        Usages { usage: vec![bytes, inodes] }.encode_to_vec()
    }

    /// Creates a node of the test's device, or of a device that does not exist.
    fn make_device(&self, at: &str) {
        let number = self.directory.as_ref().map_or(makedev(7, 250), |device| fs::metadata(device).unwrap().rdev());
        mknod(at, SFlag::S_IFBLK, Mode::S_IRUSR | Mode::S_IWUSR, number).unwrap();
    }

    fn mount(&self, at: &str) {
        match &self.directory {
            Some(directory) => bind(directory, at),
            None => mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap(),
        }
    }
}

fn is_block(capability: Option<&VolumeCapability>) -> bool {
    matches!(capability, Some(VolumeCapability { access_type: Some(AccessType::Block(_)), .. }))
}

fn bind(from: &Path, at: &str) {
    mount(Some(from), at, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}
