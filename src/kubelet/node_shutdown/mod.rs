//! Graceful node shutdown: delays the shutdown until pods have terminated, lowest priority first.

mod logind;
mod progress;

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

pub(crate) use logind::follow;
pub(crate) use progress::{DuePhase, Progress};

/// The inhibitor lock; logind delays the shutdown while it is held.
pub(crate) type Inhibitor = Rc<RefCell<Option<OwnedFd>>>;
