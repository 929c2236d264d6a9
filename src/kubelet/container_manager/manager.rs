//! Keeps the groups as they should be: each step is some writes to small files, done beside the other work.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::node_values::{self, BEST_EFFORT_SHARES, burstable_shares};
use super::pod_values::pod_values;
use super::settings::{Reserved, Settings};
use crate::platform::cgroups::{CgroupError, CgroupName, CpuMax, Groups, Limit, Values, is_pod, oom_kills};
use crate::platform::config::CgroupDriver;
use crate::platform::rt;
use crate::state::pods::{NodeEvent, Placements};
use crate::types::api::{EventKind, Pod, PodUid, QosClass, Reason, qos_class};
use crate::types::error::ErrorChain;
use crate::types::sorted::{SortedMap, SortedSet};

/// One for the whole process.
#[derive(Debug)]
pub(crate) struct ContainerManager {
    groups: Groups,
    /// `None` where no groups are made.
    settings: Option<Settings>,
    driver: Cell<CgroupDriver>,
    /// The shares that the group of burstable pods has been given.
    burstable: Cell<i64>,
    /// The last word on what is kept for pods and for the system, which is said once.
    enforcement: RefCell<String>,
    /// Pods that this process has given a group.
    made: RefCell<SortedSet<PodUid>>,
    /// Who has processors for himself.
    placements: Rc<RefCell<Placements>>,
    /// The kernel's kills in each pod that are accounted for.
    kills: RefCell<SortedMap<PodUid, u64>>,
}

/// As the upstream kubelet says it.
const ENFORCED: &str = "Updated Node Allocatable limit across pods";

/// The classes that have pods, and so all the groups that pods are in.
const CLASSES: [QosClass; 3] = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];

impl ContainerManager {
    /// `hierarchy` is where cgroup v2 is mounted.
    pub(crate) fn new(hierarchy: &Path, settings: Option<Settings>) -> Self {
        let driver = settings.as_ref().map_or(CgroupDriver::Cgroupfs, |settings| settings.driver);
        Self {
            groups: Groups::new(hierarchy),
            settings,
            driver: Cell::new(driver),
            burstable: Cell::new(BEST_EFFORT_SHARES),
            enforcement: RefCell::default(),
            made: RefCell::default(),
            placements: Rc::default(),
            kills: RefCell::default(),
        }
    }

    /// With somebody who says where containers are to run.
    pub(crate) fn with_placements(self, placements: Rc<RefCell<Placements>>) -> Self {
        Self { placements, ..self }
    }

    /// Whether the kernel limits swap by group, as the group of all pods shows it. Where nobody else makes groups it is
    /// made for that.
    pub(crate) fn limits_swap(&self) -> bool {
        let Some(settings) = &self.settings else { return false };
        let path = CgroupName::kubepods(&settings.root).path(settings.driver);
        if settings.driver == CgroupDriver::Cgroupfs {
            // If it cannot be made now, there will be an event to say so.
            let _ = self.groups.tree.make(&path);
        }
        self.groups.tree.read(&path, "memory.swap.max").is_ok()
    }

    /// The runtime has told which driver it has.
    pub(crate) fn use_driver(&self, driver: Option<CgroupDriver>) {
        if let Some(driver) = driver {
            self.driver.set(driver);
        }
    }

    /// Makes the groups above the pods, and sets them and those of the system: at the start, and again and again, as
    /// somebody else may have changed them. Gives what is news of it.
    pub(crate) async fn ensure_node(&self) -> Option<NodeEvent> {
        let settings = self.settings.clone()?;
        let (groups, driver, burstable) = (self.groups.clone(), self.driver.get(), self.burstable.get());
        let done = on_pool(driver, move || {
            ensure_classes(&groups, driver, &settings, burstable)?;
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

    /// Gives the group of burstable pods the weight of those that there are now; nothing happens if it has it.
    pub(crate) fn weigh<'a>(self: &Rc<Self>, pods: impl Iterator<Item = &'a Pod>) -> Option<rt::Task<()>> {
        let settings = self.settings.as_ref()?;
        let shares = burstable_shares(pods);
        if self.burstable.replace(shares) == shares {
            return None;
        }
        let name = CgroupName::class(&settings.root, QosClass::Burstable);
        let (groups, driver, values) = (self.groups.clone(), self.driver.get(), node_values::class(settings, shares));
        Some(rt::spawn(async move {
            let weighed = on_pool(driver, move || groups.ensure(&name, driver, &values)).await;
            if let Err(error) = weighed {
                log!(warn, "weight of burstable pods not set", error = ErrorChain(&error));
            }
        }))
    }

    /// The pod's group is there afterwards, as its spec wants it.
    pub(crate) async fn ensure_pod(&self, pod: &Pod) -> Result<(), CgroupError> {
        let Some(settings) = &self.settings else { return Ok(()) };
        let name = CgroupName::pod(&settings.root, qos_class(pod), &pod.metadata.uid);
        self.made.borrow_mut().insert(pod.metadata.uid.clone());
        let (groups, driver, values) = (self.groups.clone(), self.driver.get(), self.values_of(pod, settings));
        on_pool(driver, move || groups.ensure(&name, driver, &values)).await
    }

    /// Those of the pods whose group is not there.
    pub(crate) async fn without_group(&self, pods: Vec<Arc<Pod>>) -> Vec<PodUid> {
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

    /// The pod's group is wide enough for what it had and for what it shall have.
    pub(crate) async fn widen_pod(&self, pod: &Pod) -> Result<(), CgroupError> {
        let Some(settings) = &self.settings else { return Ok(()) };
        let name = CgroupName::pod(&settings.root, qos_class(pod), &pod.metadata.uid);
        let (groups, driver, values) = (self.groups.clone(), self.driver.get(), self.values_of(pod, settings));
        on_pool(driver, move || groups.widen(&name, driver, values)).await
    }

    fn values_of(&self, pod: &Pod, settings: &Settings) -> Values {
        let mut values = pod_values(pod, settings);
        if self.placements.borrow().pod_has_own_cpus(&pod.metadata.uid) {
            values.cpu_max = values.cpu_max.map(|max| CpuMax { quota: Limit::Max, ..max });
        }
        values
    }

    /// Removes the group of a pod that has ended, and ends what has outlived its containers there.
    pub(crate) async fn remove_pod(&self, uid: &PodUid) -> Result<(), CgroupError> {
        self.kills.borrow_mut().remove(uid);
        let Some(settings) = &self.settings else { return Ok(()) };
        // Its class is known from its spec only, which may be gone.
        let names = CLASSES.map(|class| CgroupName::pod(&settings.root, class, uid));
        let (groups, driver) = (self.groups.clone(), self.driver.get());
        let killed =
            rt::slow(move || names.iter().try_fold(0, |sum, name| Ok(sum + groups.remove(name, driver)?))).await?;
        self.made.borrow_mut().remove(uid);
        if killed > 0 {
            log!(warn, "processes had outlived their pod's containers and were killed", uid = uid, processes = killed);
        }
        Ok(())
    }

    /// Removes the groups of pods that are not in `known`: left when this process did not run, or could not finish.
    pub(crate) async fn remove_strays(&self, known: &[PodUid]) {
        let Some(settings) = &self.settings else { return };
        let (groups, driver, root) = (self.groups.clone(), self.driver.get(), settings.root.clone());
        let mut strays = rt::blocking(move || pod_groups(&groups, driver, &root)).await;
        // Pods that have come since then are among those that have been given a group.
        let made = self.made.borrow().iter().cloned().collect::<Vec<_>>();
        for uid in known.iter().chain(&made) {
            let kept = CLASSES.map(|class| CgroupName::pod(&settings.root, class, uid).path(driver));
            strays.retain(|path| !kept.contains(path));
        }
        for path in strays {
            let (groups, group) = (self.groups.clone(), path.clone());
            match rt::slow(move || groups.remove_at(&group, driver)).await {
                Ok(0) => log!(info, "group of a former pod removed", group = path),
                Ok(killed) => log!(warn, "group of a former pod removed", group = path, killed = killed),
                Err(error) => log!(warn, "group of a former pod not removed", error = ErrorChain(&error)),
            }
        }
    }

    /// Whether the kernel has killed a process of the pod for want of memory, of which nobody has heard yet. True is
    /// the answer once for all of the kills until now.
    pub(crate) fn take_oom_kills(&self, uid: &PodUid) -> bool {
        let Some(settings) = &self.settings else { return false };
        let driver = self.driver.get();
        let counted = CLASSES.iter().find_map(|class| {
            let path = CgroupName::pod(&settings.root, *class, uid).path(driver);
            oom_kills(&self.groups.tree.read(&path, "memory.events").ok()?)
        });
        let Some(counted) = counted else { return false };
        self.kills.borrow_mut().insert(uid.clone(), counted).unwrap_or(0) < counted
    }
}

/// Runs work on control groups where it may take its time: systemd may not answer.
async fn on_pool<T: Send + 'static>(driver: CgroupDriver, work: impl FnOnce() -> T + Send + 'static) -> T {
    match driver {
        CgroupDriver::Cgroupfs => rt::blocking(work).await,
        CgroupDriver::Systemd => rt::slow(work).await,
    }
}

fn ensure_classes(
    groups: &Groups,
    driver: CgroupDriver,
    settings: &Settings,
    burstable: i64,
) -> Result<(), CgroupError> {
    groups.ensure(&CgroupName::kubepods(&settings.root), driver, &node_values::kubepods(settings))?;
    for (class, shares) in [(QosClass::Burstable, burstable), (QosClass::BestEffort, BEST_EFFORT_SHARES)] {
        let name = CgroupName::class(&settings.root, class);
        groups.ensure(&name, driver, &node_values::class(settings, shares))?;
    }
    Ok(())
}

/// The groups of the system and of Kubernetes' services are there already, or the configuration is wrong.
fn enforce(groups: &Groups, driver: CgroupDriver, settings: &Settings) -> Result<(), CgroupError> {
    let enforced = settings.enforced;
    let set = |reserved: &Reserved, all: bool, compressible: bool| {
        if !all && !compressible {
            return Ok(());
        }
        let name = CgroupName::configured(&reserved.group, driver);
        let path: Values = node_values::reserved(reserved, !all);
        groups.set(&name, driver, &path)
    };
    set(&settings.system, enforced.system, enforced.system_compressible)?;
    set(&settings.kube, enforced.kube, enforced.kube_compressible)
}

/// The paths of all groups of pods. What cannot be listed now is found another time.
fn pod_groups(groups: &Groups, driver: CgroupDriver, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    for class in CLASSES.map(|class| CgroupName::class(root, class)) {
        let above = class.path(driver);
        let inner = groups.tree.children(&above).unwrap_or_default().into_iter();
        let pods = inner.filter(|directory| is_pod(&class, driver, directory));
        found.extend(pods.map(|directory| format!("{above}/{directory}")));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::settings::tests::settings;
    use super::*;
    use crate::types::api::Container;

    /// Folders that look like groups, with the files that a kernel makes in each.
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
    fn the_groups_above_the_pods_and_those_of_the_system_are_set() {
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
    fn burstable_pods_are_weighed_when_that_changes() {
        let hierarchy = Hierarchy::new("weigh", &NODE);
        let manager = hierarchy.manager(settings());
        rt::block_on(async {
            let pods = [pod("1", "500m"), pod("2", "500m")];
            manager.weigh(pods.iter()).expect("it has changed").await;
            assert!(manager.weigh(pods.iter()).is_none());
        });
        assert_eq!(hierarchy.read("kubepods/burstable/cpu.weight"), "39");
    }

    #[test]
    fn only_groups_of_pods_that_nobody_knows_are_strays() {
        let hierarchy = Hierarchy::new("strays", &NODE);
        let pods = ["pod1", "burstable/pod2", "besteffort/pod3", "burstable/pod4", "burstable/pod5", "other"];
        for pod in pods {
            fs::create_dir_all(hierarchy.0.join("kubepods").join(pod).join("container")).unwrap();
        }
        let manager = hierarchy.manager(settings());
        rt::block_on(async {
            // It came while the strays were looked for.
            manager.made.borrow_mut().insert("4".into());
            manager.remove_strays(&["1".into(), "2".into()]).await;
        });
        let left = pods.map(|pod| hierarchy.0.join("kubepods").join(pod).exists());
        assert_eq!(left, [true, true, false, true, false, true]);
    }

    #[test]
    fn a_kill_for_want_of_memory_is_heard_of_once() {
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
    fn where_no_groups_are_made_nothing_is_touched() {
        let manager = Rc::new(ContainerManager::new(Path::new("/nonexistent"), None));
        rt::block_on(async {
            assert_eq!(manager.ensure_node().await, None);
            assert!(manager.ensure_pod(&pod("1", "1")).await.is_ok());
            assert!(manager.remove_pod(&"1".into()).await.is_ok());
        });
        assert!(manager.weigh([pod("1", "1")].iter()).is_none());
    }
}
