//! Ends processes of containers that do not run by the runtime's account.
//!
//! A runtime whose shim or monitor was killed reports the exit of containers whose processes live. Their cgroups tell.
//! A container is not started beside them, and a pod has not ended before they have.

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::kubelet::kuberuntime::cancel::unless_cancelled;
use crate::kubelet::kuberuntime::error::KillError;
use crate::kubelet::kuberuntime::kill::ContainerKill;
use crate::kubelet::kuberuntime::survivor_plan::{
    Scope, Survivor, SurvivorKind, SurvivorSearch, message, possible_ids, stop_signal, survivors,
};
use crate::kubelet::kuberuntime::{CancelWatch, PodRuntime};
use crate::platform::cgroups::{CLASSES, CgroupName, anywhere, below, signal_process_of};
use crate::platform::host::procfs::Procfs;
use crate::platform::host::{pidfd, process};
use crate::platform::rt;
use crate::types::api::{EventKind, Reason, qos_class};
use crate::types::time::Backoff;

/// How long processes may still exit after the runtime has reported that their container has.
const EXIT_REPORT_LEAD: Duration = Duration::from_secs(2);
/// How long killed processes may take to exit.
const KILLED_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_SURVIVOR_LOOK_DELAY: Duration = Duration::from_millis(20);
const MAX_SURVIVOR_LOOK_DELAY: Duration = Duration::from_millis(500);

impl PodRuntime {
    /// Returns when no process of these containers is left, or when cancelled. Without a predecessor this
    /// costs nothing, without survivors a look at the pod's cgroup, or at every process where pods have none.
    pub(super) async fn end_survivors(&self, search: SurvivorSearch<'_>) -> Result<(), KillError> {
        match self.look(search).await {
            Ok(survivors) if survivors.is_empty() => Ok(()),
            Ok(_) => Box::pin(self.end_found(search)).await,
            Err(error) => Err(KillError::Look(error)),
        }
    }

    async fn end_found(&self, search: SurvivorSearch<'_>) -> Result<(), KillError> {
        let survivors = self.look_until(search, EXIT_REPORT_LEAD).await?;
        if survivors.is_empty() {
            return Ok(());
        }
        if let (Scope::NewSandbox, Some(unlisted)) =
            (search.scope, survivors.iter().find(|found_survivor| found_survivor.is_young(process::age)))
        {
            return Err(KillError::Unlisted { id: unlisted.id.clone() });
        }
        let specs = search.pod.map(|pod| pod.spec.containers_by_name()).unwrap_or_default();
        let kills = survivors.iter().map(|survivor| {
            let grace = search.grace.filter(|_| survivor.kind != SurvivorKind::Sandbox).unwrap_or(survivor.grace);
            let kill = match survivor.container {
                Some(container) => {
                    let spec = specs.get(container.name.as_str()).copied();
                    let message = message(survivor, spec, grace);
                    let kill = self.kill_of(spec, search.observed, container, grace, message);
                    ContainerKill { runs: true, survivor: Some(survivor), ..kill }
                }
                None => Self::kill_of_unknown(search.observed, survivor, grace),
            };
            ContainerKill { cancel: search.cancel, ..kill }
        });
        self.kill_in_turn(search.pod, kills.collect()).await?;
        if search.cancel.is_some_and(CancelWatch::is_cancelled) {
            return Ok(());
        }
        match self.look_until(search, KILLED_EXIT_TIMEOUT).await?.first() {
            None => Ok(()),
            Some(remaining) => {
                Err(KillError::Survives { container: remaining.name().to_owned(), pid: remaining.first_pid() })
            }
        }
    }

    /// Reports the runtime's mistake.
    pub(super) fn record_survivor(&self, kill: &ContainerKill<'_>, survivor: &Survivor<'_>) {
        let (pod, reason) = (kill.pod.uid, Reason::CONTAINER_SURVIVED);
        match survivor.container {
            Some(container) => {
                self.recorder.record_event(pod, &container.name, EventKind::Warning, reason, &kill.message)
            }
            None => self.recorder.record_pod_event(pod, EventKind::Warning, reason, kill.message.as_str()),
        }
    }

    /// Sends the stop signal to the first process, waits, and kills what is left. The first process alone gets the
    /// signal, as from a runtime's StopContainer.
    pub(super) async fn end_processes(&self, kill: &ContainerKill<'_>, survivor: &Survivor<'_>, grace: Duration) {
        let (pod, pid) = (kill.pod.uid, survivor.first_pid());
        signal_process_of(&survivor.id, pid, stop_signal(kill.spec));
        if unless_cancelled(kill.cancel, rt::deadline(grace, exited(pid))).await.is_none() {
            return;
        }
        if let Some(group) = survivor.group.clone() {
            let tree = self.cgroup_tree.clone();
            if let Err(error) = rt::slow_for(pod.as_str(), move || tree.remove(&group)).await {
                log!(warn, "failed to kill processes", pod = pod, container = kill.name, error = error);
            }
        } else {
            // Those that have exited meanwhile need no signal, and their pids may have been reused.
            let ids = std::iter::once(survivor.id.clone()).collect();
            let remaining = rt::blocking_for(pod.as_str(), move || anywhere(&Procfs::host(), &ids)).await;
            let remaining = remaining.unwrap_or_default();
            for found_container in &remaining {
                found_container
                    .pids
                    .iter()
                    .for_each(|pid| signal_process_of(&found_container.id, *pid, Signal::SIGKILL));
            }
        }
        log!(info, "ended surviving processes", pod = pod, container = kill.name, id = survivor.id, pid = pid);
    }

    /// Looks until there are no survivors, or `limit` has passed.
    async fn look_until<'a>(
        &self,
        search: SurvivorSearch<'a>,
        limit: Duration,
    ) -> Result<Vec<Survivor<'a>>, KillError> {
        let mut pause = Backoff::new(FIRST_SURVIVOR_LOOK_DELAY, MAX_SURVIVOR_LOOK_DELAY);
        let began = rt::now();
        loop {
            let survivors = self.look(search).await.map_err(KillError::Look)?;
            if survivors.is_empty() || rt::elapsed(began) >= limit {
                return Ok(survivors);
            }
            rt::sleep(pause.next_wait()).await;
        }
    }

    async fn look<'a>(&self, search: SurvivorSearch<'a>) -> io::Result<Vec<Survivor<'a>>> {
        let SurvivorSearch { pod, observed, scope, .. } = search;
        let ids = possible_ids(observed, scope);
        let only_listed = self.node.pod_cgroups.is_none() || matches!(scope, Scope::Container(_));
        if only_listed && ids.is_empty() {
            return Ok(Vec::new());
        }
        let processes = match &self.node.pod_cgroups {
            Some(cgroups) => {
                let driver = self.cgroup_driver.get().unwrap_or(cgroups.driver);
                let classes = pod.map_or_else(|| CLASSES.to_vec(), |pod| vec![qos_class(pod)]);
                let group = |class| CgroupName::pod(&cgroups.root, class, &observed.uid).path(driver);
                let groups: Vec<String> = classes.into_iter().map(group).collect();
                below(&self.cgroup_tree, &groups, |id| !only_listed || ids.contains(id))?
            }
            None => rt::blocking_for(observed.uid.as_str(), move || anywhere(&Procfs::host(), &ids)).await?,
        };
        Ok(survivors(processes, observed, scope))
    }
}

/// Returns when the process has exited.
async fn exited(pid: u32) {
    if pidfd::exited(pid).await.is_err() {
        // An old kernel.
        while process::age(pid).is_some() {
            rt::sleep(MAX_SURVIVOR_LOOK_DELAY).await;
        }
    }
}
