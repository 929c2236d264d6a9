//! Processes that the kernel kills for want of memory: whose they were, and what is told of it.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use crate::control::sync_loop::SyncLoop;
use crate::control::sync_loop::effect::Effect;
use crate::platform::host::kernel_log::KernelLog;
use crate::platform::rt;
use crate::state::pods::{ContainerState, NodeEvent, ObservedContainer, ObservedPod, OomKill, SyncEvent};
use crate::types::api::{EventKind, Reason};
use crate::types::error::ErrorChain;

/// 128 and the number of SIGKILL.
const KILLED: i32 = 137;
/// Kills that are remembered until the container is seen to have ended.
const REMEMBERED: usize = 64;
/// A kernel that has much to say wakes the agent no more often.
const REST: Duration = Duration::from_secs(10);
/// Between the first record of a kill and the one that tells whose it was.
const SOON: Duration = Duration::from_millis(100);

impl SyncLoop {
    pub(super) fn on_oom_kill(&mut self, kill: OomKill, now: Instant) {
        if kill.is_systems {
            let message = format!("System OOM encountered, victim process: {}, pid: {}", kill.process, kill.pid);
            let event = NodeEvent::new(EventKind::Warning, Reason::SYSTEM_OOM, message);
            self.pods.apply([Effect::RecordNode(event)], now);
        }
        if self.kills.len() == REMEMBERED {
            self.kills.pop_front();
        }
        self.kills.push_back(kill.group);
    }

    /// The runtime does not always see why a container was killed: with systemd the group is gone before it looks, and
    /// some look only at what happens in the container's own group. The kernel's log names the container's group; where
    /// that cannot be read, or has left a kill out, the pod's group has counted it, and outlives the container's.
    pub(super) fn note_oom_kills(&mut self, pod: &mut ObservedPod) {
        if pod.containers.iter().all(|container| container.exit().is_none()) {
            return;
        }
        // The kernel writes of a kill before anybody can see what has ended by it.
        let unread = self.kernel_log.as_ref().and_then(|log| unread(log).ok()).unwrap_or_default();
        unread.kills.into_iter().for_each(|kill| self.on_oom_kill(kill, rt::now()));
        let seen = self.pods.observed();
        let known = seen.pod(&pod.uid);
        let is_news = |container: &ObservedContainer| {
            let before = known.and_then(|pod| pod.containers.iter().find(|known| known.id == container.id));
            container.exit().is_some() && before.is_none_or(|before| before.exit().is_none())
        };
        let of_pod: Vec<String> = pod.containers.iter().map(|container| container.id.clone()).collect();
        let of = |id: &str, kill: &String| !id.is_empty() && kill.contains(id);
        let is_named = |kills: &[String], id: &str| kills.iter().any(|kill| of(id, kill));
        let kills: Vec<String> = self.kills.iter().cloned().collect();
        for container in pod.containers.iter_mut().filter(|container| is_news(container)) {
            let ContainerState::Exited(exit) = &mut container.state else { continue };
            let told = exit.reason == Reason::OOM_KILLED.as_str();
            let named = is_named(&kills, &container.id);
            if !told && !named && exit.code != KILLED {
                continue;
            }
            // What has been told of is accounted for, too.
            let counted = self.groups.take_oom_kills(&pod.uid);
            let others = of_pod.iter().any(|id| *id != container.id && is_named(&kills, id));
            if !told && exit.code != 0 && (named || counted && !others) {
                exit.reason = Reason::OOM_KILLED.as_str().to_owned();
            }
            self.kills.retain(|kill| !of(&container.id, kill));
        }
    }
}

pub(super) fn open_kernel_log() -> Option<Rc<KernelLog>> {
    let told = |error: &io::Error| {
        log!(info, "the kernel's log cannot be read: SystemOOM is not told", error = ErrorChain(error));
    };
    KernelLog::open().inspect_err(told).ok().map(Rc::new)
}

/// Follows the kernel's log for as long as it can be read.
pub(super) async fn follow_kernel_log(log: Rc<KernelLog>, inbox: Sender<SyncEvent>) {
    loop {
        let Unread { kills, begun } = match log.written().await.and_then(|()| unread(&log)) {
            Ok(unread) => unread,
            Err(error) => {
                log!(warn, "the kernel's log cannot be read any more", error = ErrorChain(&error));
                return;
            }
        };
        let rest = if begun && kills.is_empty() { SOON } else { REST };
        for kill in kills {
            if inbox.send(SyncEvent::OomKilled(kill)).await.is_err() {
                return;
            }
        }
        rt::sleep(rest).await;
    }
}

/// What the kernel has written since it was read last.
#[derive(Default)]
struct Unread {
    kills: Vec<OomKill>,
    /// It has begun to write of one.
    begun: bool,
}

fn unread(log: &KernelLog) -> io::Result<Unread> {
    let mut unread = Unread::default();
    log.read(|record| {
        unread.begun |= record.contains(" invoked oom-killer: ");
        unread.kills.extend(OomKill::read(record));
    })?;
    Ok(unread)
}
