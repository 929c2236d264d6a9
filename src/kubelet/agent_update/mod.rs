//! Updates of the agent itself and of its configuration: slots beside the installed program, and trials of them.
//!
//! ```text
//! ROOT_DIR/coracle/agent/record.json             what runs, what is on trial
//! ROOT_DIR/coracle/agent/slots/SHA256/coracle    a program
//! ROOT_DIR/coracle/agent/config/SHA256           a configuration
//! ROOT_DIR/coracle/agent/runtime/                a trial of the runtime's configuration
//! ```
//!
//! The installed program is never written. It reads the record at its start and executes a slot in its place
//! ([`launch`]), so that a start needs nothing that an update has changed.

/// The key of programs, unless the command line names one, or the URL of manifests has one.
pub(crate) const UPGRADE_KEY: &str = "/etc/coracle/upgrade.pub";

mod elf;
mod launch;
mod record;
mod runtime_trial;
mod slots;
mod verdict;
mod wish;

pub(crate) use elf::foreign_program;
pub(crate) use launch::{SLOT_VARIABLE, end_alarm, launch, restart};
pub(crate) use record::{Record, Slot, Subject, Trial, Wanted, is_newer};
pub(crate) use runtime_trial::RuntimeTrial;
pub(crate) use slots::{AgentUpdates, Place, is_damage};
pub(crate) use verdict::{Before, Fault, Judge, NodeNow, RunBefore, SeenRun, Verdict, fault};
pub(crate) use wish::{ConfigWish, Wish};
