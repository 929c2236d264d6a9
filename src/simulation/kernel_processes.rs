//! The processes of the machine, whatever the runtime says of them: those of its containers, and those that have
//! survived the shim of theirs.

use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::container_runtime::{ContainerRuntime, POD_UID, short};
use super::fake_cri::Container;
use super::fake_cri::in_process::Runtime;
use super::fake_cri::process::Process;
use super::life::{Node, live};
use super::plan::{Episode, Plan, StepKind};
use super::record::Rule;
use super::wanted::Traits;
use super::{after, create, need_root};
use crate::platform::cri::v1;
use crate::platform::rt::{self, ProcessTable};

/// A process of a container or sandbox that the runtime has reported as exited.
pub(super) struct SurvivingProcess {
    id: String,
    /// `None`: of a sandbox.
    pub(super) container: Option<Container>,
    process: Process,
    ignores_sigterm: bool,
}

/// One container of a pod survives its monitor, then all of them their shim; the first pod's containers ignore SIGTERM. At
/// last a pod is deleted whose processes have survived while no agent ran.
#[test]
fn container_does_not_start_beside_a_process_of_its_predecessor() {
    need_root();
    let all = Traits { side: true, device: true, volume: true, ..Traits::default() };
    let dies = |which, whole| after(100, StepKind::ShimDies { which, whole });
    let away = after(100, StepKind::KillAgent { down: Duration::from_secs(20) });
    let pods = vec![
        create(Traits { stubborn: true, ..all }),
        create(all),
        create(Traits { job: true, side: true, ..Traits::default() }),
    ];
    let delete = after(1, StepKind::DeletePod { which: 0, grace: None });
    let last = vec![away, after(1, StepKind::ShimDies { which: 0, whole: true }), delete];
    let steps = [pods, vec![dies(0, false), dies(1, true), dies(0, true), dies(2, true)], last];
    let episodes: Vec<Episode> =
        steps.map(|steps| Episode { steps, quiet: Duration::from_secs(90), offline: false }).into();
    let mut ended = 0;
    for seed in 0..4 {
        let report = live(&Plan { seed, lease: Duration::from_secs(40), episodes: episodes.clone() });
        assert_eq!(report.violation, None, "seed {seed}:\n{}", report.lines.join("\n"));
        ended += report.counts.get("survivors that ended").copied().unwrap_or_default();
    }
    // Two containers and sometimes a sandbox of each shim.
    assert!(ended >= 24, "{ended} survivors have ended");
}

/// The kernel, as the agent asks it. It does not keep the runtime alive.
struct Kernel(Weak<ContainerRuntime>);

impl ProcessTable for Kernel {
    fn cgroups(&self) -> Vec<(u32, String)> {
        let Some(runtime) = self.0.upgrade() else { return Vec::new() };
        let mut all = runtime.look(Runtime::processes);
        all.extend(runtime.survivors.borrow().iter().map(|one| (one.id.clone(), one.process.pid())));
        all.into_iter().map(|(id, pid)| (pid, format!("0::/k8s.io/{id}\n"))).collect()
    }

    fn signal(&self, pid: u32, signal: Signal) {
        if let Some(runtime) = self.0.upgrade() {
            runtime.signal(pid, signal);
        }
    }
}

impl ContainerRuntime {
    /// Makes its processes those of the simulation.
    pub(super) fn show_processes(self: &Rc<Self>) {
        rt::set_process_table(Rc::new(Kernel(Rc::downgrade(self))));
    }

    /// The shim of a sandbox's containers dies, or the monitor of one of them: their exits are reported, and their
    /// processes live.
    fn lose_processes(&self, sandbox: &str, with_sandbox: bool) {
        let running = self.look(|runtime| {
            let containers = runtime.world.containers.iter().filter(|one| one.sandbox_id == sandbox);
            containers.filter(|one| one.state == v1::ContainerState::Running).cloned().collect::<Vec<_>>()
        });
        for container in running.into_iter().take(if with_sandbox { usize::MAX } else { 1 }) {
            let id = container.id.clone();
            let lost = self.change(|runtime| runtime.lose_container(&id));
            if let Some((process, ignores_sigterm)) = lost {
                let container = Some(container);
                self.survivors.borrow_mut().push(SurvivingProcess { id, container, process, ignores_sigterm });
            }
        }
        if let Some(process) = self.change(|runtime| if with_sandbox { runtime.lose_sandbox(sandbox) } else { None }) {
            let (id, ignores_sigterm) = (sandbox.to_owned(), false);
            self.survivors.borrow_mut().push(SurvivingProcess { id, container: None, process, ignores_sigterm });
        }
    }

    fn signal(&self, pid: u32, signal: Signal) {
        let mut survivors = self.survivors.borrow_mut();
        if let Some(index) = survivors.iter().position(|one| one.process.pid() == pid) {
            let dies = survivors.get(index).is_some_and(|one| signal == Signal::SIGKILL || !one.ignores_sigterm);
            if dies {
                self.record.line(&format!("kernel  {signal} ends surviving process {pid}"));
                self.record.count("survivors that ended");
                survivors.remove(index);
            }
            return;
        }
        drop(survivors);
        let of_container = self.look(|runtime| runtime.processes().into_iter().find(|(_, one)| *one == pid));
        if let Some((id, _)) = of_container {
            self.record.line(&format!("kernel  {signal} to {}", short(&id)));
            self.on_stop(&id);
            self.change(|runtime| runtime.exit(&id, 137));
        }
    }

    /// No container and no sandbox starts beside a process of its predecessor.
    pub(super) fn check_survivors(&self) {
        let survivors = self.survivors.borrow();
        let containers = survivors.iter().filter_map(|one| one.container.as_ref());
        let uid = |container: &Container| container.config.labels.get(POD_UID).cloned().unwrap_or_default();
        let names: BTreeSet<(String, &str)> = containers.clone().map(|one| (uid(one), one.name())).collect();
        let twice = self.look(|runtime| {
            let mut running = runtime.world.containers.iter().filter(|one| one.state == v1::ContainerState::Running);
            if let Some(twice) = running.find(|one| names.contains(&(uid(one), one.name()))) {
                return Some(format!("container {} runs beside a process of its predecessor", twice.name()));
            }
            let mut ready = runtime.world.sandboxes.iter().filter(|one| one.is_ready());
            let has_former = |sandbox: &&super::fake_cri::Sandbox| {
                let own = sandbox.config.labels.get(POD_UID).cloned().unwrap_or_default();
                containers.clone().any(|one| uid(one) == own && one.sandbox_id != sandbox.id)
            };
            ready
                .find(has_former)
                .map(|new| format!("{} has a new sandbox while a process of its former lives", new.name()))
        });
        if let Some(twice) = twice {
            self.record.violated(Rule::Once, twice);
        }
    }
}

impl Node {
    /// The shim of a pod dies, or the monitor of one of its containers.
    pub(super) fn shim_dies(&self, which: u64, whole: bool) {
        let Some(id) = self.ready_sandbox(which) else { return };
        self.record.count("shims that died");
        self.record.line(&format!("shim    of {} dies", short(&id)));
        self.runtime.lose_processes(&id, whole);
    }

    /// Processes live only of pods that go on: a job's container does not start again.
    pub(super) fn no_survivors(&self) -> Result<(), String> {
        let survivors = self.runtime.survivors.borrow();
        let goes_on = |container: &Container| {
            self.runtime.look(|runtime| {
                runtime.world.sandboxes.iter().any(|one| one.id == container.sandbox_id && one.is_ready())
            })
        };
        let left = survivors.iter().find(|one| !one.container.as_ref().is_some_and(goes_on));
        left.map_or(Ok(()), |one| Err(format!("a process of {} lives", short(&one.id))))
    }
}
