//! The machine goes down: logind is asked to wait until the pods have ended, those of the lowest priority first.

mod logind;
mod progress;

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

pub(crate) use logind::follow;
pub(crate) use progress::{End, Progress};

/// While it holds something, logind waits.
pub(crate) type Inhibitor = Rc<RefCell<Option<OwnedFd>>>;
