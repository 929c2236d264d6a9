//! CSI volumes: driver registration, and the calls that stage, publish, unpublish and unstage volumes.
//!
//! Only unfinished calls are kept in memory. Which volumes are staged and published is read from the mount table and
//! from the files beside the mounts, also after a restart.

mod allocatable;
mod attachment;
mod drivers;
mod error;
mod expansion;
mod node_object;
mod paths;
mod republish;
mod usage;
pub mod v1;
mod vol_data;
mod volume;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Weak;

use async_channel::Sender;

use crate::platform::apiserver::Client;
use crate::platform::rpc::Signal;
use crate::platform::rt::{self, Semaphore};
use crate::state::objects::unique_name;
use crate::state::pods::SyncEvent;
use crate::types::sorted::{SortedMap, SortedSet};

use allocatable::PeriodicUpdate;
use attachment::AttachmentWait;
pub(crate) use attachment::UnattachedVolume;
use drivers::Driver;
pub(crate) use error::{CsiError, MissingObject, Phase, SetUpError, UnmountFailure};
use expansion::{ExpansionPoll, ExpansionState};
pub(crate) use node_object::CsiNodeRegistration;
pub(crate) use paths::target;
use republish::Republish;
pub(crate) use volume::{CsiVolume, FsGroupPending, MountLabel, PodTerminating, handle_of_inline};

pub(crate) struct Csi {
    /// By name; `None` for a driver that has deregistered: its entry leaves the CSINode, and that of a driver that
    /// has not registered yet stays.
    drivers: RefCell<SortedMap<String, Option<Rc<Driver>>>>,
    /// Notified when drivers change.
    changed: Signal,
    /// The directory of staged volumes.
    directory: PathBuf,
    node_name: String,
    /// Serializes the work on a volume, by driver and handle.
    volume_locks: RefCell<SortedMap<(String, String), Weak<Semaphore>>>,
    /// Calls that change a volume. Each has the lock of its volume, which bounds their number.
    calls: rt::UncancelledTasks,
    /// Paths whose last call did not succeed: their mounts may be incomplete.
    doubtful: Rc<RefCell<SortedSet<PathBuf>>>,
    /// Volumes whose group this process has set.
    owned: RefCell<SortedSet<PathBuf>>,
    /// Attachable volumes of pods: the unique volume name in the node status, by path.
    present: RefCell<SortedMap<PathBuf, String>>,
    recurrences: RefCell<Vec<PeriodicUpdate>>,
    waiting: RefCell<Vec<AttachmentWait>>,
    growths: RefCell<Vec<ExpansionPoll>>,
    republishes: RefCell<Vec<Republish>>,
    /// By the path of the volume.
    expansions: RefCell<Vec<(PathBuf, Rc<ExpansionState>)>>,
    /// `None` without a cluster.
    client: Option<Client>,
    /// The sync loop's inbox.
    inbox: Sender<SyncEvent>,
}

impl Csi {
    pub(crate) fn new(root: &Path, node_name: &str, inbox: Sender<SyncEvent>, client: Option<Client>) -> Rc<Self> {
        Rc::new(Self {
            drivers: RefCell::default(),
            changed: Signal::default(),
            directory: root.join("plugins/kubernetes.io/csi"),
            node_name: node_name.to_owned(),
            volume_locks: RefCell::default(),
            calls: rt::UncancelledTasks::default(),
            doubtful: Rc::default(),
            owned: RefCell::default(),
            present: RefCell::default(),
            recurrences: RefCell::default(),
            waiting: RefCell::default(),
            growths: RefCell::default(),
            republishes: RefCell::default(),
            expansions: RefCell::default(),
            client,
            inbox,
        })
    }

    /// Loads the volumes of pods from an earlier process.
    pub(crate) async fn find_present(&self, pods: &Path) {
        let pods = pods.to_owned();
        let volumes_on_disk = rt::blocking(move || vol_data::readable_volumes(&pods)).await;
        let persistent = volumes_on_disk.into_iter().filter(|(_, data)| !data.is_ephemeral);
        self.present
            .borrow_mut()
            .extend(persistent.map(|(path, data)| (path, unique_name(&data.driver, &data.handle))));
    }

    pub(crate) fn present(&self) -> Vec<String> {
        self.present.borrow().values().cloned().collect()
    }
}
