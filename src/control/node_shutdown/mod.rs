//! Graceful node shutdown: delays the shutdown until pods have terminated, lowest priority first.

mod logind;
mod manager;
mod progress;

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

pub(crate) use manager::NodeShutdown;

/// The inhibitor lock; logind delays the shutdown while it is held.
type Inhibitor = Rc<RefCell<Option<OwnedFd>>>;
