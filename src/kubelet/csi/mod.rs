//! Volumes of CSI drivers: who has registered, and the calls that bring a volume to a pod and take it away.
//!
//! Nothing about a volume is remembered but which calls have not ended well: what is staged and published is read from the
//! kernel's table of mounts and from the files beside the mounts, so that it is found again after a restart.

mod allocatable;
mod attachment;
mod drivers;
mod error;
mod expansion;
mod node_object;
mod paths;
mod usage;
mod v1;
mod vol_data;
mod volume;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use async_channel::Sender;

use crate::platform::apiserver::Client;
use crate::platform::rpc::Signal;
use crate::platform::rt::{self, Semaphore};
use crate::state::objects::unique_name;
use crate::state::pods::SyncEvent;
use crate::types::sorted::{SortedMap, SortedSet};

use allocatable::Recurrence;
pub(crate) use attachment::Unattached;
use attachment::Waiting;
use drivers::Driver;
pub(crate) use error::{CsiError, Missing, Phase, SetUpError, Unmounted};
use expansion::{Growth, Seen};
pub(crate) use node_object::CsiNodeRegistration;
pub(crate) use paths::target;
pub(crate) use volume::{CsiVolume, Ends, OwnershipIsDue, handle_of_inline};

/// One for the whole process.
pub(crate) struct Csi {
    /// By name; nothing for one that has left.
    drivers: RefCell<SortedMap<String, Option<Rc<Driver>>>>,
    /// Of them.
    changed: Signal,
    /// Where volumes are staged.
    directory: PathBuf,
    node_name: String,
    /// Who may act on a volume, by driver and handle: one pod at a time.
    turns: RefCell<SortedMap<(String, String), Weak<Semaphore>>>,
    /// Places whose last call has not ended well: what is mounted there may be half of what it should be.
    doubtful: RefCell<SortedSet<PathBuf>>,
    /// Volumes that this process has given to their pods' groups.
    owned: RefCell<SortedSet<PathBuf>>,
    /// What pods have that may have been attached to the node, by the places where it is: by the names in the node's status.
    present: RefCell<SortedMap<PathBuf, String>>,
    recurrences: RefCell<Vec<Recurrence>>,
    waiting: RefCell<Vec<Waiting>>,
    growths: RefCell<Vec<Growth>>,
    /// By the places of the volumes.
    seen: RefCell<Vec<(PathBuf, Rc<Seen>)>>,
    /// `None` without a cluster.
    client: Option<Client>,
    /// The sync loop's.
    inbox: Sender<SyncEvent>,
}

impl Csi {
    pub(crate) fn new(root: &Path, node_name: &str, inbox: Sender<SyncEvent>, client: Option<Client>) -> Rc<Self> {
        Rc::new(Self {
            drivers: RefCell::default(),
            changed: Signal::default(),
            directory: root.join("plugins/kubernetes.io/csi"),
            node_name: node_name.to_owned(),
            turns: RefCell::default(),
            doubtful: RefCell::default(),
            owned: RefCell::default(),
            present: RefCell::default(),
            recurrences: RefCell::default(),
            waiting: RefCell::default(),
            growths: RefCell::default(),
            seen: RefCell::default(),
            client,
            inbox,
        })
    }

    /// Takes in what pods have from an earlier process.
    pub(crate) async fn find_present(&self, pods: &Path) {
        let pods = pods.to_owned();
        // What cannot be read now is told of when it is to be taken away.
        let found = rt::blocking(move || vol_data::all_volumes(&pods).unwrap_or_default()).await;
        let known = found.into_iter().filter(|(_, data)| !data.is_ephemeral);
        self.present.borrow_mut().extend(known.map(|(path, data)| (path, unique_name(&data.driver, &data.handle))));
    }

    pub(crate) fn present(&self) -> Vec<String> {
        self.present.borrow().values().cloned().collect()
    }
}
