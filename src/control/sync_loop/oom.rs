//! OOM kills: matches them to containers, and records system OOM events.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use crate::control::pod_table::{Effect, PodTable};
use crate::kubelet::container_manager::ContainerManager;
use crate::platform::host::kernel_log::KernelLog;
use crate::platform::rt;
use crate::state::pods::{ContainerState, NodeEvent, ObservedContainer, ObservedPod, OomKill, SyncEvent};
use crate::types::api::{EventKind, Reason};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedSet;

/// The exit code after SIGKILL: 128 + 9.
const SIGKILL_EXIT_CODE: i32 = 137;
/// Maximum number of kills remembered until their containers are observed to have exited.
const MAX_REMEMBERED_KILLS: usize = 64;
/// Minimum pause between two reads of the kernel log, so that a noisy kernel does not keep waking the agent.
const MIN_KERNEL_LOG_READ_INTERVAL: Duration = Duration::from_secs(10);
/// Wait between the first record of a kill and the record that names its cgroup.
const KILL_RECORD_DELAY: Duration = Duration::from_millis(100);

/// Tracks which containers the kernel OOM-killed.
pub(super) struct OomWatcher {
    groups: Rc<ContainerManager>,
    /// The cgroups of the last kills.
    kills: VecDeque<String>,
    /// `None` if the kernel log cannot be read.
    kernel_log: Option<Rc<KernelLog>>,
    #[expect(dead_code, reason = "dropping the task ends it")]
    follower: Option<rt::Task<()>>,
}

impl OomWatcher {
    pub(super) fn new(groups: Rc<ContainerManager>, inbox: &Sender<SyncEvent>) -> Self {
        let kernel_log = open_kernel_log();
        let follow = |log| rt::spawn(follow_kernel_log(log, inbox.clone()));
        let follower = kernel_log.clone().map(follow);
        Self { groups, kills: VecDeque::new(), kernel_log, follower }
    }

    pub(super) fn on_oom_kill(&mut self, kill: OomKill) -> Vec<Effect> {
        let event = system_oom(&kill).map(Effect::RecordNode);
        if self.kills.len() == MAX_REMEMBERED_KILLS {
            self.kills.pop_front();
        }
        self.kills.push_back(kill.group);
        event.into_iter().collect()
    }

    /// Sets the reason of OOM-killed containers before the observation is stored.
    ///
    /// The runtime does not always know the cause: with systemd the container's cgroup is gone before the runtime reads
    /// it, and some runtimes count only kills in the container's own cgroup. The kernel log names the container's
    /// cgroup. If the log is unreadable or misses the kill, the OOM counter of the pod's cgroup decides: that cgroup
    /// outlives the container's.
    pub(super) fn on_observed(&mut self, pod: &mut ObservedPod, pods: &PodTable) -> Vec<Effect> {
        let is_known = pods.observed().pod(&pod.uid).is_some();
        if is_known && pod.containers.iter().all(|container| container.exit().is_none()) {
            return Vec::new();
        }
        // The kernel logs a kill before the runtime reports the exit.
        let unread = self.kernel_log.as_ref().and_then(|log| unread(log).ok()).unwrap_or_default();
        let effects = unread.kills.into_iter().flat_map(|kill| self.on_oom_kill(kill)).collect();
        let groups = Rc::clone(&self.groups);
        let uid = pod.uid.clone();
        self.set_reasons(pod, pods.observed().pod(&uid).map(|pod| &**pod), || groups.take_oom_kills(&uid));
        effects
    }

    /// `counted` takes the kills counted by the pod's cgroup.
    fn set_reasons(&mut self, pod: &mut ObservedPod, former: Option<&ObservedPod>, counted: impl Fn() -> bool) {
        let ended =
            former.iter().flat_map(|former_pod| &former_pod.containers).filter(|container| container.exit().is_some());
        let ended: SortedSet<&str> = ended.map(|container| container.id.as_str()).collect();
        let is_news =
            |container: &ObservedContainer| container.exit().is_some() && !ended.contains(container.id.as_str());
        let is_sigkill =
            |container: &ObservedContainer| container.exit().is_some_and(|exit| exit.code == SIGKILL_EXIT_CODE);
        if former.is_none() && !pod.containers.iter().any(is_sigkill) {
            // Kills from before the first observation are no cause of a later exit.
            counted();
        }
        let of_pod: Vec<String> = pod.containers.iter().map(|container| container.id.clone()).collect();
        let of = |id: &str, kill: &String| !id.is_empty() && kill.contains(id);
        let kills: Vec<String> = self.kills.iter().cloned().collect();
        let is_named = |id: &str| kills.iter().any(|kill| of(id, kill));
        for container in pod.containers.iter_mut().filter(|container| is_news(container)) {
            let ContainerState::Exited(exit) = &mut container.state else { continue };
            let by_runtime = exit.reason == Reason::OOM_KILLED.as_str();
            let named = is_named(&container.id);
            if !by_runtime && !named && exit.code != SIGKILL_EXIT_CODE {
                continue;
            }
            // Also consumes the count of a kill that the runtime has reported itself.
            let counted = counted();
            let others = of_pod.iter().any(|id| *id != container.id && is_named(id));
            // A container that exits with 0 ended by itself: the kill was of another process in it.
            if !by_runtime && exit.code != 0 && (named || counted && !others) {
                exit.reason = Reason::OOM_KILLED.as_str().to_owned();
            }
            self.kills.retain(|kill| !of(&container.id, kill));
        }
    }
}

/// Upstream's node event, for a kill that was not caused by a container's own limit.
fn system_oom(kill: &OomKill) -> Option<NodeEvent> {
    let message = format!("System OOM encountered, victim process: {}, pid: {}", kill.process, kill.pid);
    kill.is_systems.then(|| NodeEvent::new(EventKind::Warning, Reason::SYSTEM_OOM, message))
}

fn open_kernel_log() -> Option<Rc<KernelLog>> {
    let log_failure = |error: &io::Error| {
        log!(info, "failed to open the kernel log, not recording SystemOOM", error = ErrorChain(error));
    };
    KernelLog::open().inspect_err(log_failure).ok().map(Rc::new)
}

/// Follows the kernel log until it can no longer be read.
async fn follow_kernel_log(log: Rc<KernelLog>, inbox: Sender<SyncEvent>) {
    loop {
        let KernelMessages { kills, begun } = match log.written().await.and_then(|()| unread(&log)) {
            Ok(unread) => unread,
            Err(error) => {
                log!(warn, "failed to read the kernel log", error = ErrorChain(&error));
                return;
            }
        };
        let pause = if begun && kills.is_empty() { KILL_RECORD_DELAY } else { MIN_KERNEL_LOG_READ_INTERVAL };
        for kill in kills {
            if inbox.send(SyncEvent::OomKilled(kill)).await.is_err() {
                return;
            }
        }
        rt::sleep(pause).await;
    }
}

/// The OOM kills in the kernel messages since the last read.
#[derive(Default)]
struct KernelMessages {
    kills: Vec<OomKill>,
    /// A kill report has started and is not complete.
    begun: bool,
}

fn unread(log: &KernelLog) -> io::Result<KernelMessages> {
    let mut unread = KernelMessages::default();
    log.read(|record| {
        unread.begun |= record.contains(" invoked oom-killer: ");
        unread.kills.extend(OomKill::read(record));
    })?;
    Ok(unread)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use super::*;
    use crate::state::pods::Exit;

    fn watcher() -> OomWatcher {
        let groups = Rc::new(ContainerManager::new(Path::new("/nowhere"), None));
        OomWatcher { groups, kills: VecDeque::new(), kernel_log: None, follower: None }
    }

    fn kill(group: &str, is_systems: bool) -> OomKill {
        OomKill { group: group.to_owned(), process: "sh".to_owned(), pid: 7, is_systems }
    }

    fn exited(code: i32) -> ObservedPod {
        let mut pod = ObservedPod::new("uid".into(), "default", "a");
        let exit = Exit { code, ..Exit::default() };
        pod.containers.push(ObservedContainer::seen("id", "c", "s", ContainerState::Exited(Box::new(exit))));
        pod
    }

    fn reason(pod: &ObservedPod) -> &str {
        pod.containers.first().and_then(ObservedContainer::exit).map_or("", |exit| &exit.reason)
    }

    #[test]
    fn only_a_system_oom_kill_is_a_node_event() {
        let mut watcher = watcher();
        assert_eq!(watcher.on_oom_kill(kill("/kubepods/id", false)), []);
        let effects = watcher.on_oom_kill(kill("/system", true));
        assert!(matches!(effects.as_slice(), [Effect::RecordNode(event)] if event.reason == Reason::SYSTEM_OOM));
    }

    #[test]
    fn kill_matches_its_container_by_cgroup_once() {
        let mut watcher = watcher();
        watcher.on_oom_kill(kill("/kubepods/pod/id", false));
        let mut pod = exited(1);
        watcher.set_reasons(&mut pod, None, || false);
        assert_eq!(reason(&pod), Reason::OOM_KILLED.as_str());
        assert!(watcher.kills.is_empty());
    }

    #[test]
    fn sigkill_is_an_oom_kill_if_the_cgroup_counted_one() {
        for (counted, expected) in [(true, Reason::OOM_KILLED.as_str()), (false, "")] {
            let mut pod = exited(SIGKILL_EXIT_CODE);
            watcher().set_reasons(&mut pod, None, || counted);
            assert_eq!(reason(&pod), expected);
        }
    }

    #[test]
    fn kill_counted_before_the_pod_was_observed_explains_no_later_exit() {
        let mut running = ObservedPod::new("uid".into(), "default", "a");
        running.containers.push(ObservedContainer::seen("id", "c", "s", ContainerState::Running { started_at: 1 }));
        let reason_after = |kills_later: u64| {
            // As the manager of the cgroups, which has reported none of three kills.
            let (kills, reported) = (Cell::new(3), Cell::new(0));
            let counted = || reported.replace(kills.get()) < kills.get();
            let mut watcher = watcher();
            watcher.set_reasons(&mut running.clone(), None, counted);
            kills.set(3 + kills_later);
            let mut pod = exited(SIGKILL_EXIT_CODE);
            watcher.set_reasons(&mut pod, Some(&running), counted);
            reason(&pod).to_owned()
        };
        assert_eq!(reason_after(0), "");
        assert_eq!(reason_after(1), Reason::OOM_KILLED.as_str());
    }

    #[test]
    fn previously_observed_exit_keeps_its_reason() {
        let (mut pod, before) = (exited(SIGKILL_EXIT_CODE), exited(SIGKILL_EXIT_CODE));
        watcher().set_reasons(&mut pod, Some(&before), || true);
        assert_eq!(reason(&pod), "");
    }
}
