//! `coracle runtime-config`: a configuration of the container runtime for boards with little memory.
//!
//! ```text
//!   apply.rs                         a file on trial
//!   board_reader.rs                  reads the facts of this machine
//!   board.rs                         the facts                        pure
//!   containerd.rs  crio.rs  unit.rs  the files                        pure
//! ```

mod apply;
mod board;
mod board_reader;
mod containerd;
mod crio;
mod unit;

use std::process::ExitCode;

use super::command_table::RuntimeConfig;
use super::local_api::change;
use super::outputs::RuntimeName;
use super::{failed, print};

pub(super) fn run(command: &RuntimeConfig) -> ExitCode {
    if let Some(file) = &command.apply {
        let result = apply::apply(command, file);
        // An agent that does not run finds the verdict at its start.
        let _ = change(&command.local_socket, "POST", "/agent?what=runtime-verdict", &[]);
        return result.map_or_else(|line| failed(&line), |line| print(&format!("{line}\n")));
    }
    if command.unit {
        return print(&unit::drop_in(command.runtime));
    }
    let board = board_reader::read(command);
    let text = match command.runtime {
        RuntimeName::Containerd => containerd::configuration(&board),
        RuntimeName::Crio => Ok(crio::configuration(&board)),
    };
    match text {
        Ok(text) => print(&text),
        Err(error) => failed(&error),
    }
}
