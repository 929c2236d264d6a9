//! Handles shared by most parts of the agent.

use std::cell::RefCell;
use std::rc::Rc;

use async_channel::Sender;

use crate::control::local_api::{Followers, RecentErrors};
use crate::control::server::SyncHealth;
use crate::kubelet::certificates::CertificateStatuses;
use crate::kubelet::enrolment::JoinLine;
use crate::kubelet::node::StatusInputs;
use crate::platform::config::Config;
use crate::platform::rpc::Signal;
use crate::state::pods::{EventRing, SyncEvent};

pub(super) struct Handles {
    pub(super) config: Rc<Config>,
    /// The sync loop's inbox.
    pub(super) inbox: Sender<SyncEvent>,
    pub(super) health: SyncHealth,
    pub(super) events: Rc<RefCell<EventRing>>,
    /// Tells of new events to send.
    pub(super) noted_events: Rc<Signal>,
    /// Of the local API.
    pub(super) errors: RecentErrors,
    pub(super) followers: Followers,
    pub(super) status_inputs: Rc<StatusInputs>,
    pub(super) certificates: Rc<CertificateStatuses>,
    /// Of the file that names a cluster to join.
    pub(super) join_line: Rc<JoinLine>,
}
