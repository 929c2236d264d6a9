//! Creates, updates and removes the cgroups of pods and the node, in blocking tasks.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::node_values::{self, Demand};
use super::pod_values::pod_values;
use super::resize_steps::ResizeSteps;
use super::settings::{Reserved, Settings};
use crate::platform::cgroups::{CLASSES, CgroupError, CgroupName, CpuMax, Groups, Limit, Values, is_pod, oom_kills};
use crate::platform::config::CgroupDriver;
use crate::platform::rt;
use crate::state::pods::{NodeEvent, Placements};
use crate::types::api::{EventKind, Pod, PodUid, QosClass, Reason, qos_class};
use crate::types::error::ErrorChain;
use crate::types::owned::{Owned, View};
use crate::types::sorted::{SortedMap, SortedSet};

#[derive(Debug)]
pub(crate) struct ContainerManager {
    groups: Groups,
    /// `None` if pods have no cgroups.
    settings: Option<Settings>,
    driver: Cell<CgroupDriver>,
    /// What the cgroups of the classes were last set for.
    demand: Cell<Demand>,
    /// The last result of enforcing node allocatable, so that each is reported once.
    enforcement: RefCell<String>,
    /// Pods whose cgroup this process has created.
    made: RefCell<SortedSet<PodUid>>,
    /// CPUs assigned exclusively.
    placements: View<Placements>,
    /// OOM kills already reported, by pod.
    kills: RefCell<SortedMap<PodUid, u64>>,
}

/// Upstream's message.
const ENFORCED: &str = "Updated Node Allocatable limit across pods";

impl ContainerManager {
    /// `hierarchy` is the mount point of cgroup v2.
    pub(crate) fn new(hierarchy: &Path, settings: Option<Settings>) -> Self {
        let driver = settings.as_ref().map_or(CgroupDriver::Cgroupfs, |settings| settings.driver);
        Self {
            groups: Groups::new(hierarchy),
            settings,
            driver: Cell::new(driver),
            demand: Cell::new(Demand::NONE),
            enforcement: RefCell::default(),
            made: RefCell::default(),
            placements: Owned::default().view(),
            kills: RefCell::default(),
        }
    }

    /// Uses these CPU and memory placements.
    pub(crate) fn with_placements(self, placements: View<Placements>) -> Self {
        Self { placements, ..self }
    }

    /// Whether the kernel limits swap by cgroup, as visible in the `kubepods` cgroup. With the cgroupfs driver that
    /// cgroup is created for the test. The root cgroup has no such file.
    pub(crate) fn limits_swap(&self) -> bool {
        let Some(settings) = &self.settings else { return false };
        let path = CgroupName::kubepods(&settings.root).path(settings.driver);
        if settings.driver == CgroupDriver::Cgroupfs {
            // A failure here is reported as an event by `ensure_node`.
            let _ = self.groups.tree.make(&path);
        }
        self.groups.tree.read(&path, "memory.swap.max").is_ok()
    }

    /// Switches to the driver that the runtime reports.
    pub(crate) fn use_driver(&self, driver: Option<CgroupDriver>) {
        if let Some(driver) = driver {
            self.driver.set(driver);
        }
    }

    /// Creates the cgroups above the pods and sets their values and those of the system's cgroups. Called at the
    /// start and periodically, in case others have changed them. Returns an event if the result changed.
    pub(crate) async fn ensure_node(&self) -> Option<NodeEvent> {
        let settings = self.settings.clone()?;
        let (groups, driver, demand) = (self.groups.clone(), self.driver.get(), self.demand.get());
        let done = on_pool(driver, None, move || {
            ensure_classes(&groups, driver, &settings, demand)?;
            enforce(&groups, driver, &settings)
        })
        .await;
        let (kind, reason, message) = match &done {
            Ok(()) => (EventKind::Normal, Reason::NODE_ALLOCATABLE_ENFORCED, ENFORCED.to_owned()),
            Err(error) => {
                let reason = Reason::FAILED_NODE_ALLOCATABLE_ENFORCEMENT;
                (EventKind::Warning, reason, ErrorChain(error).to_string())
            }
        };
        let before = self.enforcement.replace(message.clone());
        (before != message).then(|| NodeEvent::new(kind, reason, message))
    }

    /// Updates the CPU weight and the protected memory of the cgroups above these pods; `None` if they are unchanged.
    pub(crate) fn update_demand<'a>(self: &Rc<Self>, pods: impl Iterator<Item = &'a Pod>) -> Option<rt::Task<()>> {
        let settings = self.settings.as_ref()?;
        let demand = Demand::of(pods, settings);
        if self.demand.replace(demand) == demand {
            return None;
        }
        let (groups, driver, settings) = (self.groups.clone(), self.driver.get(), settings.clone());
        Some(rt::spawn(async move {
            let set = on_pool(driver, None, move || ensure_classes(&groups, driver, &settings, demand)).await;
            if let Err(error) = set {
                log!(warn, "failed to set cgroups of QoS classes", error = ErrorChain(&error));
            }
        }))
    }

    /// Creates the pod's cgroup, or updates it to the pod's spec. Returns whether it is new.
    pub(crate) async fn ensure_pod(&self, pod: &Pod) -> Result<bool, CgroupError> {
        let Some(settings) = &self.settings else { return Ok(false) };
        let name = CgroupName::pod(&settings.root, qos_class(pod), &pod.metadata.uid);
        // Before the cgroup exists, so that `remove_orphaned` does not take it for a stray.
        self.made.borrow_mut().insert(pod.metadata.uid.clone());
        let (groups, driver, values) = (self.groups.clone(), self.driver.get(), self.values_of(pod, settings));
        on_pool(driver, Some(&pod.metadata.uid), move || {
            let is_new = !groups.tree.exists(&name.path(driver));
            groups.ensure(&name, driver, &values)?;
            Ok(is_new)
        })
        .await
    }

    /// The pods whose cgroup does not exist.
    pub(crate) async fn pods_without_cgroup(&self, pods: Vec<Arc<Pod>>) -> Vec<PodUid> {
        let Some(settings) = &self.settings else { return Vec::new() };
        let (groups, driver, root) = (self.groups.clone(), self.driver.get(), settings.root.clone());
        rt::blocking(move || {
            let is_there = |pod: &Pod| {
                let name = CgroupName::pod(&root, qos_class(pod), &pod.metadata.uid);
                groups.tree.exists(&name.path(driver))
            };
            pods.iter().filter(|pod| !is_there(pod)).map(|pod| pod.metadata.uid.clone()).collect()
        })
        .await
    }

    /// The values of the pod's cgroup during a resize; `None` if pods have no cgroups.
    pub(crate) async fn resize_steps(&self, pod: &Pod) -> Option<ResizeSteps> {
        let settings = self.settings.as_ref()?;
        let name = CgroupName::pod(&settings.root, qos_class(pod), &pod.metadata.uid);
        let (groups, driver, values) = (self.groups.clone(), self.driver.get(), self.values_of(pod, settings));
        Some(
            rt::blocking_for(pod.metadata.uid.as_str(), move || ResizeSteps::new(groups.limits(&name, driver), values))
                .await,
        )
    }

    /// Raises the limits of the pod's cgroup so that both its old and its new resources fit.
    pub(crate) async fn widen_pod(&self, pod: &Pod) -> Result<(), CgroupError> {
        let Some(settings) = &self.settings else { return Ok(()) };
        let name = CgroupName::pod(&settings.root, qos_class(pod), &pod.metadata.uid);
        let (groups, driver, values) = (self.groups.clone(), self.driver.get(), self.values_of(pod, settings));
        on_pool(driver, Some(&pod.metadata.uid), move || groups.widen(&name, driver, values)).await
    }

    fn values_of(&self, pod: &Pod, settings: &Settings) -> Values {
        let mut values = pod_values(pod, settings);
        if self.placements.read().lifts_pod_quota(&pod.metadata.uid) {
            values.cpu_max = values.cpu_max.map(|max| CpuMax { quota: Limit::Max, ..max });
        }
        values
    }

    /// Removes the cgroup of a terminated pod and kills the processes left in it.
    pub(crate) async fn remove_pod(&self, uid: &PodUid) -> Result<(), CgroupError> {
        self.kills.borrow_mut().remove(uid);
        let Some(settings) = &self.settings else { return Ok(()) };
        // The QoS class is only known from the spec, which may be gone.
        let names = CLASSES.map(|class| CgroupName::pod(&settings.root, class, uid));
        let (groups, driver) = (self.groups.clone(), self.driver.get());
        let removed = move || names.iter().try_fold(0, |sum, name| Ok(sum + groups.remove(name, driver)?));
        let killed = rt::slow_for(uid.as_str(), removed).await?;
        self.made.borrow_mut().remove(uid);
        if killed > 0 {
            log!(warn, "killed processes left in pod cgroup", uid = uid, processes = killed);
        }
        Ok(())
    }

    /// Removes orphaned pod cgroups: those of pods not in `pods`.
    pub(crate) async fn remove_orphaned(&self, pods: &[PodUid]) {
        let Some(settings) = &self.settings else { return };
        let (groups, driver, root) = (self.groups.clone(), self.driver.get(), settings.root.clone());
        let mut strays = rt::blocking(move || pod_groups(&groups, driver, &root)).await;
        // Pods that arrived in the meantime are in `made`.
        let made = self.made.borrow().iter().cloned().collect::<Vec<_>>();
        for uid in pods.iter().chain(&made) {
            let kept = CLASSES.map(|class| CgroupName::pod(&settings.root, class, uid).path(driver));
            strays.retain(|path| !kept.contains(path));
        }
        for path in strays {
            let (groups, group) = (self.groups.clone(), path.clone());
            match rt::slow(move || groups.remove_at(&group, driver)).await {
                Ok(0) => log!(info, "removed orphaned pod cgroup", group = path),
                Ok(killed) => log!(warn, "removed orphaned pod cgroup", group = path, killed = killed),
                Err(error) => log!(warn, "failed to remove orphaned pod cgroup", error = ErrorChain(&error)),
            }
        }
    }

    /// Whether the kernel has OOM-killed a process of the pod since the last call.
    pub(crate) fn take_oom_kills(&self, uid: &PodUid) -> bool {
        let Some(settings) = &self.settings else { return false };
        let driver = self.driver.get();
        // As in `remove_pod`, the spec that has the QoS class may be gone.
        let counted = CLASSES.iter().find_map(|class| {
            let path = CgroupName::pod(&settings.root, *class, uid).path(driver);
            oom_kills(&self.groups.tree.read(&path, "memory.events").ok()?)
        });
        let Some(counted) = counted else { return false };
        self.kills.borrow_mut().insert(uid.clone(), counted).unwrap_or(0) < counted
    }
}

/// Runs work on the cgroup of `pod`, or on the node's, in the pool for its driver: systemd may be slow.
async fn on_pool<T, W>(driver: CgroupDriver, pod: Option<&PodUid>, work: W) -> T
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    match (driver, pod) {
        (CgroupDriver::Cgroupfs, None) => rt::blocking(work).await,
        (CgroupDriver::Cgroupfs, Some(uid)) => rt::blocking_for(uid.as_str(), work).await,
        (CgroupDriver::Systemd, None) => rt::slow(work).await,
        (CgroupDriver::Systemd, Some(uid)) => rt::slow_for(uid.as_str(), work).await,
    }
}

fn ensure_classes(
    groups: &Groups,
    driver: CgroupDriver,
    settings: &Settings,
    demand: Demand,
) -> Result<(), CgroupError> {
    groups.ensure(&CgroupName::kubepods(&settings.root), driver, &node_values::kubepods(settings, demand))?;
    for class in [QosClass::Burstable, QosClass::BestEffort] {
        let name = CgroupName::class(&settings.root, class);
        groups.ensure(&name, driver, &node_values::class(settings, class, demand))?;
    }
    Ok(())
}

/// The configured cgroups of the system and of Kubernetes' services must exist.
fn enforce(groups: &Groups, driver: CgroupDriver, settings: &Settings) -> Result<(), CgroupError> {
    let enforced = settings.enforced;
    let set = |reserved: &Reserved, all: bool, compressible: bool| {
        if !all && !compressible {
            return Ok(());
        }
        let name = CgroupName::configured(&reserved.group, driver);
        let path: Values = node_values::reserved(reserved, !all, settings.memory_qos.is_some());
        groups.set(&name, driver, &path)
    };
    set(&settings.system, enforced.system, enforced.system_compressible)?;
    set(&settings.kube, enforced.kube, enforced.kube_compressible)
}

/// The paths of all pod cgroups. Directories that cannot be listed are skipped.
fn pod_groups(groups: &Groups, driver: CgroupDriver, root: &str) -> Vec<String> {
    let mut pod_cgroups = Vec::new();
    for class in CLASSES.map(|class| CgroupName::class(root, class)) {
        let above = class.path(driver);
        let inner = groups.tree.children(&above).unwrap_or_default().into_iter();
        let pods = inner.filter(|directory| is_pod(&class, driver, directory));
        pod_cgroups.extend(pods.map(|directory| format!("{above}/{directory}")));
    }
    pod_cgroups
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::settings::tests::settings;
    use super::*;
    use crate::types::api::Container;

    /// Directories that look like cgroups, with the files that a kernel creates.
    struct Hierarchy(PathBuf);

    impl Hierarchy {
        fn new(name: &str, groups: &[&str]) -> Self {
            let root = std::env::temp_dir().join(format!("coracle-container-manager-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            for group in [""].iter().chain(groups) {
                let group = root.join(group);
                fs::create_dir_all(&group).unwrap();
                for file in ["cgroup.controllers", "cgroup.subtree_control", "cpu.weight", "memory.max", "pids.max"] {
                    fs::write(group.join(file), "").unwrap();
                }
            }
            Self(root)
        }

        fn read(&self, file: &str) -> String {
            fs::read_to_string(self.0.join(file)).unwrap()
        }

        fn manager(&self, settings: Settings) -> Rc<ContainerManager> {
            Rc::new(ContainerManager::new(&self.0, Some(settings)))
        }
    }

    impl Drop for Hierarchy {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const NODE: [&str; 4] = ["kubepods", "kubepods/burstable", "kubepods/besteffort", "system"];

    fn pod(uid: &str, cpu: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = uid.into();
        let mut container = Container::default();
        container.resources.requests.insert("cpu", cpu.parse().unwrap());
        pod.spec.containers = vec![container];
        pod
    }

    #[test]
    fn cgroups_above_pods_and_of_the_system_are_set() {
        let hierarchy = Hierarchy::new("node", &NODE);
        let mut settings = settings();
        settings.enforced.system_compressible = true;
        let manager = hierarchy.manager(settings);
        let news = [rt::block_on(manager.ensure_node()), rt::block_on(manager.ensure_node())];
        assert_eq!(news, [Some(NodeEvent::new(EventKind::Normal, Reason::NODE_ALLOCATABLE_ENFORCED, ENFORCED)), None]);
        assert_eq!(hierarchy.read("kubepods/cpu.weight"), "137");
        assert_eq!(hierarchy.read("kubepods/memory.max"), ((1u64 << 30) - (96 << 20)).to_string());
        assert_eq!(hierarchy.read("kubepods/burstable/cpu.weight"), "1");
        assert_eq!(
            (hierarchy.read("system/cpu.weight"), hierarchy.read("system/memory.max")),
            ("10".into(), "".into())
        );
    }

    #[test]
    fn burstable_weight_follows_the_pods() {
        let hierarchy = Hierarchy::new("weigh", &NODE);
        let manager = hierarchy.manager(settings());
        rt::block_on(async {
            let pods = [pod("1", "500m"), pod("2", "500m")];
            manager.update_demand(pods.iter()).expect("it has changed").await;
            assert!(manager.update_demand(pods.iter()).is_none());
        });
        assert_eq!(hierarchy.read("kubepods/burstable/cpu.weight"), "39");
    }

    #[test]
    fn pods_cgroup_is_new_once() {
        let hierarchy = Hierarchy::new("pod", &NODE);
        let manager = hierarchy.manager(settings());
        let ensured = || rt::block_on(manager.ensure_pod(&pod("1", "500m"))).unwrap();
        assert_eq!([ensured(), ensured()], [true, false]);
    }

    #[test]
    fn only_cgroups_of_unknown_pods_are_removed() {
        let hierarchy = Hierarchy::new("strays", &NODE);
        let pods = ["pod1", "burstable/pod2", "besteffort/pod3", "burstable/pod4", "burstable/pod5", "other"];
        for pod in pods {
            fs::create_dir_all(hierarchy.0.join("kubepods").join(pod).join("container")).unwrap();
        }
        let manager = hierarchy.manager(settings());
        rt::block_on(async {
            // A pod that arrives during the search.
            manager.made.borrow_mut().insert("4".into());
            manager.remove_orphaned(&["1".into(), "2".into()]).await;
        });
        let left = pods.map(|pod| hierarchy.0.join("kubepods").join(pod).exists());
        assert_eq!(left, [true, true, false, true, false, true]);
    }

    #[test]
    fn each_oom_kill_is_reported_once() {
        let hierarchy = Hierarchy::new("kills", &["kubepods/burstable/pod1"]);
        let events = hierarchy.0.join("kubepods/burstable/pod1/memory.events");
        let manager = hierarchy.manager(settings());
        let uid = PodUid::from("1");
        let mut heard = vec![manager.take_oom_kills(&uid)];
        for kills in [0, 1, 1, 3] {
            fs::write(&events, format!("max 9\noom {kills}\noom_kill {kills}\n")).unwrap();
            heard.push(manager.take_oom_kills(&uid));
        }
        assert_eq!(heard, [false, false, true, false, true]);
    }

    #[test]
    fn without_cgroups_nothing_is_touched() {
        let manager = Rc::new(ContainerManager::new(Path::new("/nonexistent"), None));
        rt::block_on(async {
            assert_eq!(manager.ensure_node().await, None);
            assert!(!manager.ensure_pod(&pod("1", "1")).await.unwrap());
            assert!(manager.remove_pod(&"1".into()).await.is_ok());
        });
        assert!(manager.update_demand([pod("1", "1")].iter()).is_none());
    }
}
