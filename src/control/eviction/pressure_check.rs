//! One node pressure check: observes the node, reclaims resources, and selects a pod to evict.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::observations;
use crate::control::eviction::{
    Candidate, FilesystemPaths, Layout, Measure, MeasuredPod, Observations, PodUsage, Starved, ThresholdState,
    is_close, is_resolved, node_was_low, rank,
};
use crate::control::versions::HeldCheck;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::platform::cgroups::CgroupName;
use crate::platform::config::{Eviction, Threshold};
use crate::platform::rt;
use crate::state::pods::{NodeEvent, PodEviction, PressureObservation};
use crate::types::api::{EventKind, Pod, PodUid, Reason};
use crate::types::sorted::{SortOnce, SortedSet};

/// The grace period of immediate evictions.
pub(super) const IMMEDIATE_EVICTION_GRACE: Duration = Duration::from_secs(1);
/// Time limit for measuring all pods when a disk is full.
const POD_MEASURE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a walk may take to notice the end of its time.
const WALK_STOP_GRACE: Duration = Duration::from_millis(200);
/// Shortest time between two searches for unused images.
const RECLAIM_PERIOD: Duration = Duration::from_secs(60);

/// State kept between checks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    thresholds: ThresholdState,
    /// The resource being reclaimed, according to the last event.
    reported: Option<Starved>,
    reclaimed: Option<Instant>,
}

/// One observation of the node, and reclaiming before pods are evicted.
pub(super) struct PressureCheck {
    pub(super) settings: Rc<Eviction>,
    pub(super) memory: Rc<RefCell<Memory>>,
    pub(super) runtime: Rc<PodRuntime>,
    pub(super) candidates: Vec<Candidate>,
    /// Whether applications hold their pods.
    pub(super) held: Vec<(PodUid, HeldCheck)>,
    /// Dead containers of ended pods exist.
    pub(super) has_dead: bool,
    /// The pods of all sources; `None` while a source is not ready.
    pub(super) pods: Option<Vec<Arc<Pod>>>,
}

impl PressureCheck {
    pub(super) async fn run(mut self) -> PressureObservation {
        let (seen, layout) = observe(&self.runtime).await;
        let thresholds = layout.thresholds(&self.settings.thresholds);
        let now = rt::now();
        let verdict = self.memory.borrow_mut().thresholds.take(&thresholds, &seen, self.settings.transition, now);
        let mut look = PressureObservation {
            pressures: verdict.pressures,
            is_close: is_close(&thresholds, &seen),
            ..PressureObservation::default()
        };
        let Some(first) = verdict.starved.first() else {
            self.memory.borrow_mut().reported = None;
            return look;
        };
        let starved = Starved::of(first.signal);
        log!(debug, "node under pressure", signal = first.signal.as_str(), disks = format!("{layout:?}"));
        if self.memory.borrow_mut().reported.replace(starved) != Some(starved) {
            let message = format!("Attempting to reclaim {}", starved.as_str());
            look.events.push(NodeEvent::new(EventKind::Warning, Reason::EVICTION_THRESHOLD_MET, message));
        }
        look.wants_dead = self.has_dead && layout.reclaim_of(first.signal).dead_containers;
        // Dead containers are removed after the check: the next one sees what that frees, before a pod is evicted.
        if self.free_images_until_resolved(first, layout, &thresholds, now).await || look.wants_dead {
            return look;
        }
        // All at once: a file system may hang.
        let (pods, checks): (Vec<PodUid>, Vec<HeldCheck>) = std::mem::take(&mut self.held).into_iter().unzip();
        let checked = pods.into_iter().zip(rt::all(checks).await);
        let held = checked.filter_map(|(uid, is_held)| is_held.then_some(uid)).collect();
        look.evictions.extend(self.pod_to_evict(first, layout, &verdict.starved, (&seen, &held)).await);
        look
    }

    /// Removes unused images and parts of images. True if that was enough.
    async fn free_images_until_resolved(
        &self,
        first: &Threshold,
        layout: Layout,
        thresholds: &[Threshold],
        now: Instant,
    ) -> bool {
        let lately = |last: Instant| now.saturating_duration_since(last) < RECLAIM_PERIOD;
        let reclaim = layout.reclaim_of(first.signal);
        let is_nothing = !reclaim.images && !reclaim.image_parts;
        if is_nothing || self.memory.borrow().reclaimed.is_some_and(lately) {
            return false;
        }
        let Some(pods) = &self.pods else { return false };
        self.memory.borrow_mut().reclaimed = Some(now);
        if !reclaim.images {
            let bytes = self.runtime.images.free_parts().await;
            log!(info, "removed parts of images under disk pressure", bytes = bytes);
            let (seen, _) = observe(&self.runtime).await;
            return is_resolved(thresholds, &seen);
        }
        match self.runtime.images.free_unused(pods).await {
            Ok(bytes) => log!(info, "removed unused images under disk pressure", bytes = bytes),
            Err(error) => log!(warn, "failed to remove unused images under disk pressure", error = error),
        }
        let (seen, _) = observe(&self.runtime).await;
        is_resolved(thresholds, &seen)
    }

    /// The pod to evict; `None` if none may be evicted.
    /// One at a time, as upstream: its end may be enough.
    async fn pod_to_evict(
        &self,
        first: &Threshold,
        layout: Layout,
        starved: &[Threshold],
        (observations, held): (&Observations, &SortedSet<PodUid>),
    ) -> Option<PodEviction> {
        let (measure, parts) = (measure(&self.runtime), layout.parts(first.signal));
        let resource = Starved::of(first.signal);
        let usages = match resource {
            Starved::Memory | Starved::Pids => {
                let mut usages = Vec::new();
                for candidate in &self.candidates {
                    usages.push(measure.memory(candidate).await);
                }
                usages
            }
            Starved::Storage | Starved::Inodes => {
                in_shares(&self.candidates, async |candidate, end| measure.disk(candidate, parts.layers, end).await)
                    .await
            }
        };
        // Pods on a hanging disk have no usage: evict one that was measured.
        let any = matches!(resource, Starved::Storage | Starved::Inodes) && usages.iter().any(Option::is_some);
        let measured = self.candidates.iter().zip(&usages).filter(|(_, usage)| usage.is_some() || !any);
        let mut pods: Vec<MeasuredPod<'_>> =
            measured.map(|(candidate, usage)| MeasuredPod { pod: &candidate.pod, usage: usage.as_ref() }).collect();
        rank(&mut pods, resource, parts);
        put_last(&mut pods, held, first.is_hard());
        let gone = pods.first()?;
        Some(PodEviction {
            uid: gone.pod.metadata.uid.clone(),
            signal: first.signal.as_str(),
            message: node_was_low(resource, starved, observations, gone),
            // An upper bound: upstream's soft thresholds override the pod's own period, which its source calls a bug.
            grace: if first.is_hard() { IMMEDIATE_EVICTION_GRACE } else { self.settings.max_pod_grace },
            is_disruption: true,
        })
    }
}

/// Pods that their applications hold are evicted last, and not for a soft threshold: only a hard one cannot wait.
fn put_last(pods: &mut Vec<MeasuredPod<'_>>, held: &SortedSet<PodUid>, is_hard: bool) {
    pods.retain(|pod| is_hard || !held.contains(&pod.pod.metadata.uid));
    pods.sort_once_by_key(|pod| held.contains(&pod.pod.metadata.uid));
}

/// Measures the pods one after the other, each until the end of its share of [`POD_MEASURE_TIMEOUT`]. A pod with a huge
/// tree leaves time to the others, and is ranked by what was found of it. `None`: its disk hangs.
async fn in_shares<F>(pods: &[Candidate], measure: F) -> Vec<Option<PodUsage>>
where
    F: AsyncFn(&Candidate, Instant) -> PodUsage,
{
    let end = rt::now() + POD_MEASURE_TIMEOUT;
    let mut usages = Vec::new();
    for (index, candidate) in pods.iter().enumerate() {
        let time_left = end.saturating_duration_since(rt::now());
        let share = time_left / u32::try_from(pods.len().saturating_sub(index)).unwrap_or(u32::MAX).max(1);
        usages.push(rt::deadline(share + WALK_STOP_GRACE, measure(candidate, rt::now() + share)).await.ok());
    }
    usages
}

/// The node's free resources, and the layout of its disks.
pub(super) async fn observe(runtime: &PodRuntime) -> (Observations, Layout) {
    let node = &runtime.node;
    let disks = runtime.images.disks().await;
    let (images, layers) = disks.map_or((None, None), |(images, layers)| (Some(images), layers));
    let driver = runtime.cgroup_driver();
    let kubepods = node
        .pod_cgroups
        .as_ref()
        .map(|groups| CgroupName::kubepods(&groups.root).path(driver.unwrap_or(groups.driver)));
    let places = FilesystemPaths { cgroup_v2: node.cgroup_v2, kubepods, node: node.root_dir.clone(), images, layers };
    rt::blocking(move || observations::observe(&places)).await
}

pub(super) fn measure(runtime: &PodRuntime) -> Measure {
    let driver = runtime.cgroup_driver();
    let groups = runtime.node.pod_cgroups.as_ref();
    let groups = groups.map(|groups| (driver.unwrap_or(groups.driver), groups.root.clone()));
    Measure { cri: runtime.cri(), dirs: runtime.dirs.clone(), groups }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::state::pods::ObservedPod;

    #[test]
    fn held_pods_are_evicted_last_and_only_for_a_hard_threshold() {
        let candidates = candidates();
        let held: SortedSet<PodUid> = ["a", "c"].map(PodUid::from).into_iter().collect();
        let order = |is_hard| {
            let measured = candidates.iter().map(|candidate| MeasuredPod { pod: &candidate.pod, usage: None });
            let mut pods: Vec<_> = measured.collect();
            put_last(&mut pods, &held, is_hard);
            pods.iter().map(|pod| pod.pod.metadata.uid.to_string()).collect::<String>()
        };
        assert_eq!((order(true).as_str(), order(false).as_str()), ("bdeac", "bde"));
    }

    fn candidates() -> Vec<Candidate> {
        let of = |uid: &str| {
            let mut pod = Pod::default();
            pod.metadata.uid = uid.into();
            Candidate {
                pod: Arc::new(pod),
                observed: Rc::new(ObservedPod::new(uid.into(), "ns", uid)),
                claims: Vec::new(),
            }
        };
        ["a", "b", "c", "d", "e"].map(of).into()
    }

    #[test]
    fn pod_on_a_hanging_disk_takes_only_its_share_of_the_time() {
        let found = rt::simulate(1, |world| async move {
            let measure = async |pod: &Candidate, _: Instant| match pod.pod.metadata.uid.as_str() {
                "a" | "c" => std::future::pending().await,
                _ => PodUsage::default(),
            };
            let found = in_shares(&candidates(), measure).await;
            (found.iter().map(Option::is_some).collect::<Vec<_>>(), world.passed())
        });
        let (found, took) = found.unwrap();
        assert_eq!(found, [false, true, false, true, true]);
        assert!(took < POD_MEASURE_TIMEOUT, "{took:?}");
    }

    #[test]
    fn walks_that_use_up_their_time_leave_the_others_theirs() {
        let shares = rt::simulate(1, |_| async move {
            let shares = RefCell::new(Vec::new());
            let measure = async |_: &Candidate, end: Instant| {
                let share = end.saturating_duration_since(rt::now());
                shares.borrow_mut().push(share);
                rt::sleep(share).await;
                PodUsage::default()
            };
            let found = in_shares(&candidates(), measure).await;
            assert!(found.iter().all(Option::is_some));
            shares.into_inner()
        });
        let shares = shares.unwrap();
        assert!(
            shares.iter().all(|share| *share > POD_MEASURE_TIMEOUT / 6 && *share < POD_MEASURE_TIMEOUT / 4),
            "{shares:?}"
        );
    }
}
