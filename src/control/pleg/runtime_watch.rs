//! Watches the runtime's availability. Relists everything when the runtime becomes available, and then rarely.

use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use crate::control::pleg::observations::Observations;
use crate::control::pleg::{Observer, runtime_events};
use crate::platform::host::clock;
use crate::platform::{cri, rpc, rt};
use crate::state::pods::{RuntimeState, SyncEvent};
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Timed};
use crate::types::time::{Backoff, jitter};

/// Wait between checks while the runtime or its network is not ready.
const NOT_READY_INTERVAL: Duration = Duration::from_secs(5);

/// Longest wait after a call that found no runtime. It delays noticing a runtime that is back.
const MAX_ABSENT_WAIT: Duration = Duration::from_secs(1);

/// A connection that breaks sooner than this after a relist may have been broken by the relist.
const STABLE_CONNECTION_AGE: Duration = Duration::from_secs(1);

/// State that is valid while the runtime is connected.
#[derive(Default)]
struct ConnectionState {
    /// Reads the runtime's events.
    events: Option<rt::Task<()>>,
    /// The runtime has reported its cgroup driver, or cannot.
    cgroup_driver: bool,
    /// The last complete relist.
    relisted: Option<Instant>,
}

/// `period` is the relist period when nothing happens: the safety net below the watches.
pub(super) async fn run(
    observer: Observer,
    observations: Rc<Observations>,
    period: Duration,
    inbox: Sender<SyncEvent>,
) {
    let mut retry = Backoff::new(Duration::from_millis(100), NOT_READY_INTERVAL);
    let mut absent = Backoff::new(Duration::from_millis(100), MAX_ABSENT_WAIT);
    let mut last = RuntimeState::default();
    let mut incomplete = Backoff::new(NOT_READY_INTERVAL, period);
    let mut broken = Backoff::new(Duration::from_millis(100), NOT_READY_INTERVAL);
    let mut reopen = Backoff::new(Duration::from_secs(1), period);
    let mut connected = ConnectionState::default();
    loop {
        let mut connection = observer.runtime.connection();
        let looked = relist(&observer, &observations, &inbox, &mut connected).await;
        let away = looked.as_ref().is_err_and(cri::Error::is_away);
        let (state, complete) = looked.unwrap_or_else(|error| {
            (RuntimeState { message: ErrorChain(&error).to_string(), ..RuntimeState::default() }, false)
        });
        log_changes(&last, &state);
        let reached = !state.name.is_empty();
        if state != last && inbox.send(SyncEvent::Runtime(state.clone())).await.is_err() {
            return;
        }
        let ready = state.ready && state.network_ready;
        last = state;
        if reached {
            retry.reset();
            absent.reset();
        } else {
            // A different runtime may come back.
            connected = ConnectionState::default();
            reopen.reset();
        }
        if away {
            // The next call waits for a socket to connect to, unless connecting fails at once.
            rt::sleep(absent.next_wait()).await;
            continue;
        }
        if complete {
            incomplete.reset();
        }
        let wait = match (reached, ready) {
            (false, _) => retry.next_wait(),
            (true, false) => NOT_READY_INTERVAL,
            (true, true) if !complete => incomplete.next_wait(),
            (true, true) => jitter(period, 0.5, rt::random()),
        };
        let looked = rt::now();
        // A broken connection means that the runtime restarts.
        let lost = lost(&mut connection);
        // When the event stream ends, relist and subscribe again.
        let ended = async {
            match &mut connected.events {
                Some(events) => events.await,
                None => std::future::pending().await,
            }
            rt::sleep(reopen.next_wait()).await;
        };
        rt::either(rt::sleep(wait), rt::either(lost, ended)).await;
        connected.events = connected.events.filter(|events| !events.is_finished());
        if rt::elapsed(looked) < STABLE_CONNECTION_AGE {
            rt::sleep(broken.next_wait()).await;
        } else {
            broken.reset();
        }
    }
}

/// The runtime's state, and whether everything was observed.
async fn relist(
    observer: &Observer,
    observations: &Rc<Observations>,
    inbox: &Sender<SyncEvent>,
    connected: &mut ConnectionState,
) -> Result<(RuntimeState, bool), cri::Error> {
    let Observer { runtime, observed } = observer;
    let state = runtime.state().await?;
    if !connected.cgroup_driver {
        connected.cgroup_driver = runtime.query_cgroup_driver().await;
    }
    // Subscribe before the relist, so that no event between the two is lost.
    let reads = || rt::spawn(runtime_events::run(observer.clone(), Rc::clone(observations)));
    connected.events.get_or_insert_with(reads);
    let begun = rt::now();
    let relist = runtime.relist(observed).await?;
    metrics::took(Timed::PlegRelists, &[], rt::elapsed(begun));
    if let Some(last) = connected.relisted.replace(begun) {
        metrics::took(Timed::PlegIntervals, &[], begun.saturating_duration_since(last));
    }
    metrics::relisted(clock::now().unix_seconds());
    let complete = relist.unseen.is_empty() && connected.cgroup_driver;
    // The loop is gone only when the process ends.
    let _ = inbox.send(SyncEvent::Relisted(relist)).await;
    Ok((state, complete))
}

async fn lost(connection: &mut rpc::Watch) {
    while connection.changed().await {}
}

fn log_changes(last: &RuntimeState, state: &RuntimeState) {
    if last == state {
        return;
    }
    if state.name.is_empty() {
        log!(warn, "waiting for the container runtime", error = state.message);
    } else if !state.ready || !state.network_ready {
        log!(warn, "container runtime is not ready", runtime = state.name, message = state.message);
    } else {
        log!(info, "container runtime is ready", runtime = state.name, version = state.version);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::kubelet::images::Images;
    use crate::kubelet::kuberuntime::PodRuntime;
    use crate::kubelet::node::{NodeInfo, NodeSettings};
    use crate::platform::config::Config;
    use crate::platform::cri::{ImageService, RuntimeService};
    use crate::types::owned::Owned;

    #[test]
    fn absent_runtime_is_not_polled_without_a_pause() {
        let ended = rt::simulate(1, |_| async {
            let (config, (inbox, _events)) = (Config::default(), async_channel::unbounded());
            let client = rpc::Client::new("/run/simulated/absent.sock");
            let instant = Duration::from_nanos(1);
            let images = Images::new(ImageService::new(client.clone(), instant), &config, inbox.clone());
            let node = NodeSettings::new(&config, &NodeInfo::read(Path::new("/")));
            let cri = RuntimeService::new(client, instant);
            let runtime = Rc::new(PodRuntime::new(cri, images, node, inbox.clone()));
            let observer = Observer { runtime, observed: Owned::default().view() };
            // Without a pause this would be 60 million rounds.
            let observations = Rc::new(Observations::new(observer.clone(), inbox.clone()));
            rt::deadline(Duration::from_millis(60), run(observer, observations, Duration::from_secs(60), inbox)).await
        });
        assert_eq!(ended, Ok(Err(rt::Elapsed)));
    }
}
