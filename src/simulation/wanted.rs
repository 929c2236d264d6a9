//! The pods that should run on the node.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::api_server::NODE;
use super::device_plugin::RESOURCE;
use super::update_locks::{self, HeldLocks};
use super::{csi_driver, dra_driver, trials};

/// The label that distinguishes a pod's containers from those of an earlier pod with the same name.
pub(super) const REVISION: &str = "revision";
/// A secret that only its pods may see.
pub(super) const SECRET: &str = "the-launch-code-is-00000000";
/// [`SECRET`] in base64, as in API objects.
pub(super) const SECRET_DATA: &str = "dGhlLWxhdW5jaC1jb2RlLWlzLTAwMDAwMDAw";

/// The image of a revision that the registry has, and the node has not.
pub(super) fn app(revision: &str) -> String {
    format!("registry.example/app:{revision}")
}

/// More than any node has.
pub(super) const TOO_MUCH: u64 = 1_000_000;

/// These thousandths of a CPU as a request, and twice as many as a limit.
pub(super) fn resources(cpu: u64) -> Value {
    let quantity = |cpu: u64| if cpu % 1000 == 0 { format!("{}", cpu / 1000) } else { format!("{cpu}m") };
    json!({ "requests": { "cpu": quantity(cpu) }, "limits": { "cpu": quantity(2 * cpu) } })
}

/// The cgroup's shares for a request in thousandths.
pub(super) fn shares(cpu: u64) -> i64 {
    i64::try_from(cpu * 1024 / 1000).unwrap_or(i64::MAX).clamp(2, 262_144)
}

pub(super) fn tells_secret(text: &str) -> bool {
    text.contains(SECRET) || text.contains(SECRET_DATA)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Manifest,
    Api,
}

/// A pod with one or two containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) traits: Traits,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    pub(super) secret: bool,
    pub(super) token: bool,
    pub(super) probe: bool,
    /// The pod is complete when its container has exited.
    pub(super) job: bool,
    /// The pod has a claim of the CSI driver.
    pub(super) volume: bool,
    /// The pod has a device of the plugin.
    pub(super) device: bool,
    /// The pod has a claim of the DRA driver.
    pub(super) claim: bool,
    /// The pod has a second container.
    pub(super) side: bool,
    /// The image of the pod's last container must be pulled.
    pub(super) pull: bool,
    /// The pod's containers ignore SIGTERM.
    pub(super) stubborn: bool,
    /// The CPU request of the pod's first container in thousandths, which resizes change; 0 for none.
    pub(super) cpu: u64,
    /// The pod has a ConfigMap and a Secret of its own.
    pub(super) own: bool,
    /// The pod asks for hundreds of ConfigMaps, which do not exist and are optional.
    pub(super) hostile: bool,
}

/// Number of ConfigMaps that a hostile pod asks for.
pub(super) const ASKED: usize = 300;

/// The path of a pod's own ConfigMap or Secret.
pub(super) fn own_path(resource: &str, revision: &str) -> String {
    format!("/api/v1/namespaces/default/{resource}/own-{revision}")
}

/// The wanted pods by revision.
#[derive(Debug, Default)]
pub(super) struct WantedPods {
    pub(super) pods: BTreeMap<String, Pod>,
    /// Pods that were deleted and then restored with the API server. The agent may terminate them if it has begun to.
    pub(super) back: BTreeSet<String>,
    /// Pods that were to have more than the node before the API server showed that they were admitted. The agent may
    /// refuse them.
    pub(super) too_large: BTreeSet<String>,
    /// Pods whose resources the checkpoint of allocations leaves out.
    pub(super) left_out: BTreeSet<String>,
    pub(super) locks: HeldLocks,
    revisions: u64,
}

impl WantedPods {
    pub(super) fn is_wanted(&self, revision: &str) -> bool {
        self.pods.contains_key(revision)
    }

    /// Adds a pod. Returns its revision.
    pub(super) fn add(&mut self, pod: Pod) -> String {
        self.revisions += 1;
        let revision = self.revisions.to_string();
        self.pods.insert(revision.clone(), pod);
        revision
    }

    /// Changes what the pod is to have. `is_admitted`: the API server shows what was allocated to it.
    pub(super) fn resize(&mut self, revision: &str, cpu: u64, is_admitted: bool) {
        if cpu == TOO_MUCH && !is_admitted {
            self.too_large.insert(revision.to_owned());
        }
        if let Some(pod) = self.pods.get_mut(revision) {
            pod.traits.cpu = cpu;
        }
    }

    /// A pod of the source, chosen by any number.
    pub(super) fn pick(&self, source: Source, number: u64) -> Option<(String, Pod)> {
        let pods: Vec<_> = self.pods.iter().filter(|(_, pod)| pod.source == source).collect();
        let index = usize::try_from(number).ok()?.checked_rem(pods.len())?;
        pods.get(index).map(|(revision, pod)| ((*revision).clone(), (*pod).clone()))
    }

    /// The pods of a source.
    pub(super) fn of(&self, source: Source) -> BTreeMap<String, Pod> {
        let pods = self.pods.iter().filter(|(_, pod)| pod.source == source);
        pods.map(|(revision, pod)| (revision.clone(), pod.clone())).collect()
    }

    pub(super) fn count(&self, source: Source) -> usize {
        self.pods.values().filter(|pod| pod.source == source).count()
    }
}

fn has_liveness_probe(revision: &str) -> bool {
    revision.parse::<u64>().is_ok_and(|number| number % 3 == 0)
}

impl Pod {
    pub(super) fn object(&self, revision: &str) -> Value {
        let Traits { secret, token, probe, job, volume, device, claim, side, pull, stubborn: _, cpu, own, hostile } =
            self.traits;
        let image = |pulled: bool| if pulled { app(revision) } else { "busybox".to_owned() };
        let mut container = json!({
            "name": "main", "image": image(pull && !side), "imagePullPolicy": "IfNotPresent",
            "command": ["sleep", "infinity"],
        });
        let mut volumes = Vec::new();
        if secret {
            volumes.push(json!({ "name": "code", "secret": { "secretName": "code" } }));
            volumes.push(json!({ "name": "settings", "configMap": { "name": "settings" } }));
        }
        if token {
            let sources = json!([{ "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } }]);
            volumes.push(json!({ "name": "token", "projected": { "sources": sources } }));
        }
        if own {
            let name = format!("own-{revision}");
            volumes.push(json!({ "name": "code", "secret": { "secretName": name } }));
            volumes.push(json!({ "name": "settings", "configMap": { "name": name } }));
        }
        if hostile {
            let source = |number| json!({ "configMap": { "name": format!("{revision}-{number}"), "optional": true } });
            let sources: Vec<Value> = (0..ASKED).map(source).collect();
            volumes.push(json!({ "name": "asked", "projected": { "sources": sources } }));
        }
        if volume {
            let number = revision.parse().unwrap_or_default();
            volumes
                .push(json!({ "name": "data", "persistentVolumeClaim": { "claimName": csi_driver::claim(number) } }));
        }
        let mut metadata = json!({ "name": self.name, "namespace": "default", "labels": { REVISION: revision } });
        if self.is_tried(revision) {
            trials::put_on_trial(&mut metadata);
        }
        if self.source == Source::Manifest && update_locks::has_lock(revision) {
            update_locks::add_lock(&mut metadata, &mut volumes);
        }
        let mounts = volumes.iter().map(|volume| json!({ "name": volume["name"], "mountPath": format!("/{}", volume["name"].as_str().unwrap_or_default()) }));
        container["volumeMounts"] = mounts.collect();
        if cpu > 0 {
            container["resources"] = resources(cpu);
        }
        if device {
            container["resources"]["limits"][RESOURCE] = json!("1");
        }
        if claim {
            container["resources"]["claims"] = json!([{ "name": "card" }]);
        }
        if probe {
            container["readinessProbe"] = json!({ "exec": { "command": ["true"] }, "periodSeconds": 30 });
            if has_liveness_probe(revision) {
                // It never fails: a fault of the runtime that counted as a failure would stop the container.
                let never_fails =
                    json!({ "exec": { "command": ["true"] }, "periodSeconds": 60, "failureThreshold": 1 });
                container["livenessProbe"] = never_fails;
            }
        }
        let mut containers = vec![container];
        if side {
            containers.push(json!({ "name": "side", "image": image(pull), "imagePullPolicy": "IfNotPresent" }));
        }
        let mut spec = json!({
            "containers": containers, "volumes": volumes, "terminationGracePeriodSeconds": 10,
            "automountServiceAccountToken": false, "enableServiceLinks": false,
            "restartPolicy": if job { "Never" } else { "Always" },
        });
        if claim {
            let name = dra_driver::claim(revision.parse().unwrap_or_default());
            spec["resourceClaims"] = json!([{ "name": "card", "resourceClaimName": name }]);
        }
        if self.source == Source::Api {
            spec["nodeName"] = json!(NODE);
            spec["serviceAccountName"] = json!("default");
        }
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
    }

    /// Whether the node judges the pod for the API server.
    pub(super) fn is_tried(&self, revision: &str) -> bool {
        let Traits { own, hostile, .. } = self.traits;
        self.source == Source::Api && !own && !hostile && trials::is_tried(revision)
    }

    /// The pod's path on the API server, or that of its mirror pod.
    pub(super) fn path(&self) -> String {
        match self.source {
            Source::Api => format!("/api/v1/namespaces/default/pods/{}", self.name),
            Source::Manifest => format!("/api/v1/namespaces/default/pods/{}-{NODE}", self.name),
        }
    }
}
