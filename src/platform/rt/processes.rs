//! The processes of a simulation: pids that no real process has, and tasks that wait for an exit.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use async_channel::{Receiver, Sender};
use nix::sys::signal::Signal;

use super::virtual_time::world;

/// No kernel gives a pid beyond this (PID_MAX_LIMIT).
const MAX_PID: u32 = 1 << 22;

#[derive(Default)]
pub(super) struct Processes {
    started: Cell<u32>,
    /// By pid. The channel is closed when the process has exited.
    running: RefCell<BTreeMap<u32, Receiver<()>>>,
    /// What a simulation knows of its processes.
    table: RefCell<Option<Rc<dyn ProcessTable>>>,
}

/// The processes of a simulated machine, as the kernel shows them.
pub(crate) trait ProcessTable {
    /// Each process with the text of its `cgroup` file.
    fn cgroups(&self) -> Vec<(u32, String)>;
    fn signal(&self, pid: u32, signal: Signal);
}

/// Makes these the processes of this thread's simulation.
pub(crate) fn set_process_table(table: Rc<dyn ProcessTable>) {
    if let Some(world) = world() {
        world.processes.table.replace(Some(table));
    }
}

/// The simulated processes; `None` without a simulation.
pub(crate) fn simulated_cgroups() -> Option<Vec<(u32, String)>> {
    let world = world()?;
    let table = world.processes.table.borrow().clone();
    Some(table.map(|table| table.cgroups()).unwrap_or_default())
}

/// True in a simulation, where this is the whole signal.
pub(crate) fn simulated_signal(pid: u32, signal: Signal) -> bool {
    let Some(world) = world() else { return false };
    let table = world.processes.table.borrow().clone();
    if let Some(table) = table {
        table.signal(pid, signal);
    }
    true
}

/// A process that exits when this is dropped.
pub(crate) struct SimulatedProcess {
    pid: u32,
    #[expect(dead_code, reason = "dropping it tells the exit")]
    runs: Sender<()>,
}

impl SimulatedProcess {
    /// Starts one in this thread's simulation. Without a simulation it has no pid, and nobody waits for it.
    pub(crate) fn start() -> Self {
        let (runs, exit) = async_channel::bounded(1);
        let Some(world) = world() else { return Self { pid: 0, runs } };
        let processes = &world.processes;
        processes.started.set(processes.started.get() + 1);
        let pid = MAX_PID + processes.started.get();
        let mut running = processes.running.borrow_mut();
        running.retain(|_, exit| !exit.is_closed());
        running.insert(pid, exit);
        Self { pid, runs }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }
}

/// Returns when the simulated process has exited, or at once if it does not exist. `None` without a simulation.
pub(crate) async fn simulated_exit(pid: u32) -> Option<()> {
    let exit = world()?.processes.running.borrow().get(&pid).cloned();
    if let Some(exit) = exit {
        // Nothing is sent.
        let _ = exit.recv().await;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Elapsed, deadline, simulate};
    use super::*;

    #[test]
    fn simulated_exit_is_noticed_once_the_process_is_dropped() {
        let waited = simulate(1, |_| async {
            let process = SimulatedProcess::start();
            let pid = process.pid();
            let before = deadline(Duration::from_secs(3600), simulated_exit(pid)).await;
            drop(process);
            (before, simulated_exit(pid).await)
        });
        assert_eq!(waited, Ok((Err(Elapsed), Some(()))));
    }
}
