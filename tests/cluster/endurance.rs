//! Years of a node's life in short: repeated kills during changes, and long partitions.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle::platform::cri::v1::ContainerState;
use serde_json::{Value, json};

use super::joined::{Joined, LEASE};
use super::pods::{is_ready, pod};
use crate::fake_api::world::Network;

/// The promised amount in an endurance run, else the shorter one.
fn as_promised<T>(promised: T, shorter: T) -> T {
    if std::env::var_os("CORACLE_ENDURANCE").is_some() { promised } else { shorter }
}

/// The last kill of each round is checked without the API server.
const KILLS_OF_A_ROUND: u32 = 4;
const SHORT: &str = "nodeLeaseDurationSeconds: 4\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";

/// A deterministic pseudo-random sequence.
struct Chance(u32);

impl Chance {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % most
    }
}

/// The images that may run, by pod; `None` if the pod may be absent.
type Allowed = BTreeMap<String, Vec<Option<String>>>;

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

fn image(version: u32) -> String {
    format!("localhost/coracle/busybox:{version}")
}

fn with_image(mut pod: Value, version: u32) -> Value {
    pod["spec"]["containers"][0]["image"] = json!(image(version));
    pod
}

impl Joined {
    /// The running images, by pod.
    fn images(&self) -> BTreeMap<String, Vec<String>> {
        let mut images = BTreeMap::<String, Vec<String>>::new();
        for container in self.node.fake.containers() {
            if container.state == ContainerState::Running {
                let name = container.config.labels.get("io.kubernetes.pod.name").unwrap().to_owned();
                images
                    .entry(name)
                    .or_default()
                    .push(container.config.image.as_ref().unwrap().user_specified_image.clone());
            }
        }
        images
    }

    /// Whether each pod runs exactly once in an allowed version, and nothing else runs.
    fn runs_what_it_may(&self, allowed: &Allowed) -> bool {
        let images = self.images();
        images.keys().all(|name| allowed.contains_key(name))
            && allowed.iter().all(|(name, versions)| match images.get(name).map(Vec::as_slice) {
                None => versions.contains(&None),
                Some([one]) => versions.contains(&Some(one.clone())),
                Some(_) => false,
            })
    }

    /// Whether the journal's last record of each pod is an allowed version. One name may have had several pods.
    fn has_stored(&self, allowed: &Allowed) -> bool {
        let journal = std::fs::read(self.node.folder().join("pods/coracle/offline/journal")).unwrap_or_default();
        let journal = String::from_utf8_lossy(&journal).into_owned();
        let stored = |name: &String| {
            let mut last = BTreeMap::new();
            for line in journal.lines() {
                if let Some((_, rest)) = line.split_once(&format!("\"pod/default/{name}/")) {
                    last.insert(rest.split_once('"').unwrap_or_default().0, line);
                }
            }
            last.into_values().filter(|line| !line.contains("\"gone\":true")).collect::<Vec<_>>()
        };
        allowed.iter().all(|(name, versions)| match (versions.as_slice(), stored(name).as_slice()) {
            ([Some(image)], [one]) => one.contains(image),
            ([None], []) => true,
            _ => false,
        })
    }

    /// Creates, changes or removes a pod or an object it needs.
    fn change_something(&self, allowed: &mut Allowed, chance: &mut Chance) {
        let name = format!("pod-{}", chance.below(4));
        let version = 1 + chance.below(3);
        let versions = allowed.entry(name.clone()).or_insert_with(|| vec![None]);
        if let Some(now) = self.api.get(&path(&name)) {
            if chance.below(3) == 0 {
                self.api.delete_with_grace(&path(&name), 0);
                versions.push(None);
            } else {
                self.api.update(&with_image(now, version));
                versions.push(Some(image(version)));
            }
        } else {
            self.api.create(&with_image(pod(&name, &json!({})), version));
            versions.push(Some(image(version)));
        }
    }
}

#[test]
fn agent_killed_amid_changes_has_stored_the_old_or_the_new_version() {
    let mut joined = Joined::new();
    for version in 1..=3 {
        joined.node.fake.add_image(&image(version));
    }
    let mut chance = Chance(1);
    let mut allowed = Allowed::new();
    joined.start(SHORT, &[]);
    joined.api.create(&pod("stays", &json!({})));
    joined.api.wait(&path("stays"), "the pod to be ready", is_ready);
    for round in 0..as_promised(1000, 12) / KILLS_OF_A_ROUND {
        // While the API server is reachable, the store follows what runs.
        for (name, versions) in &mut allowed {
            let now = joined.api.get(&path(name));
            *versions = vec![now.map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned())];
        }
        allowed.insert("stays".to_owned(), vec![Some(image(1))]);
        joined.node.wait_until(&format!("it runs as it is to in round {round}"), |_| joined.runs_what_it_may(&allowed));
        joined.node.wait_until("the store has all of it", |_| joined.has_stored(&allowed));
        for kill in 1..=KILLS_OF_A_ROUND {
            joined.change_something(&mut allowed, &mut chance);
            // The kill falls at a random point of the change.
            std::thread::sleep(Duration::from_millis(chance.below(60).into()));
            joined.node.kill_agent();
            if kill < KILLS_OF_A_ROUND {
                joined.start(SHORT, &[]);
            }
        }
        joined.api.set_network(Network::Refused);
        joined.start(SHORT, &[]);
        joined.node.wait_until("the node goes by the store", |_| joined.node.status()["offline"]["inUse"] == true);
        joined.node.wait_until(&format!("old or new runs in round {round}: {allowed:?}"), |pods| {
            pods.0.iter().all(|pod| pod.is_ready()) && joined.runs_what_it_may(&allowed)
        });
        assert_eq!(joined.node.status()["offline"]["setAside"], 0, "the store was damaged in round {round}");
        joined.api.set_network(Network::Open);
    }
}

/// The lease and everything derived from it run ten times faster: three minutes stand for thirty.
#[test]
fn long_partition_stops_nothing_and_costs_few_writes_afterwards() {
    const COUNT: usize = 10;
    for network in [Network::Blackhole, Network::Refused] {
        let mut joined = Joined::new();
        joined.start(SHORT, &[]);
        let names: Vec<String> = (0..COUNT).map(|number| format!("pod-{number}")).collect();
        for name in &names {
            joined.api.create(&pod(name, &json!({})));
        }
        for name in &names {
            joined.api.wait(&path(name), "the pod to be ready", is_ready);
        }
        joined.api.wait_for("the last event to be told", |world| {
            world.requests.iter().filter(|request| request.body.windows(9).any(|part| part == b"\"Started\"")).count()
                == COUNT
        });
        let before = joined.running();
        joined.api.set_network(network);
        // The partition itself.
        std::thread::sleep(as_promised(Duration::from_secs(180), Duration::from_secs(6)));
        assert_eq!(joined.running(), before);
        let asked = joined.api.look(|world| world.requests.len());
        joined.api.set_network(Network::Open);
        let renewals = joined.api.count("patch", LEASE);
        joined.api.wait_for_requests("patch", LEASE, renewals + 4);
        let written = joined.api.look(|world| {
            let since = world.requests.iter().skip(asked);
            since.filter(|request| request.method != "GET").map(|request| request.path.clone()).collect::<Vec<_>>()
        });
        println!("{network:?}: {} writes after the partition, four renewals of the lease among them", written.len());
        assert!(written.len() <= 2 * COUNT, "{network:?}: {written:#?}");
        assert_eq!(joined.running(), before);
    }
}
