//! Reads what a rollout decides on, and makes the requests that change a board.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::decide::{Decision, Sight, decide};
use super::plan::{DaemonSetName, Plan, Subject};
use super::sights::{DaemonPod, DaemonPods, sights};
use super::state::{Phase, State};
use super::store::{ApiWrite, Obstacle};
use crate::cli::fleet::{Board, Operator, boards, text};
use crate::kubelet::node::{CONFIG_ANNOTATION, UPGRADE_ANNOTATION};
use crate::platform::host::clock;

/// The boards at one moment.
pub(super) struct Picture {
    pub(super) boards: Vec<Board>,
    pub(super) pods: DaemonPods,
    pub(super) sights: Vec<Sight>,
    /// Why the rollout must not go on.
    objection: Option<String>,
}

/// The DaemonSet as it is now.
#[derive(Debug)]
pub(super) struct DaemonSet {
    uid: String,
    /// `labelSelector` of its pods; empty if it has expressions.
    selector: String,
    pub(super) revision: String,
}

impl Picture {
    pub(super) async fn take(
        operator: &mut Operator,
        name: &str,
        plan: &Plan,
        state: &State,
    ) -> Result<Self, Obstacle> {
        let (mut pods, mut objection) = (DaemonPods::new(), None);
        if let Subject::DaemonSet(set) = &plan.subject {
            let present = DaemonSet::read(operator, &set.namespace, &set.name).await?;
            if present.revision != set.revision {
                objection =
                    Some("the template of the DaemonSet has changed: abort this rollout and start another".to_owned());
            }
            pods = present.pods(operator, &set.namespace).await?;
        }
        let listed = boards(operator, &plan.selector).await;
        let boards = listed.map_err(|error| Obstacle::of("list nodes", &error))?;
        let sights = sights(name, plan, state, &boards, &pods, clock::now().unix_seconds());
        Ok(Self { boards, pods, sights, objection })
    }

    pub(super) fn decide(&self, plan: &Plan, state: &State) -> Decision {
        let mut state = state.clone();
        if let (Some(objection), Phase::Running) = (&self.objection, state.phase) {
            (state.phase, state.reason) = (Phase::Stopped, objection.clone());
        }
        decide(plan, &state, &self.sights, clock::now().unix_seconds())
    }

    /// The requests that give these boards their change.
    pub(super) fn writes(&self, plan: &Plan, names: &[String]) -> Vec<ApiWrite> {
        let by_name: HashMap<&str, &Board> = self.boards.iter().map(|board| (board.name.as_str(), board)).collect();
        let write = |name: &String| match &plan.subject {
            Subject::DaemonSet(set) => self.pods.get(name).map(|pod| deletion(set, pod)),
            Subject::Agent(url) => by_name.get(name.as_str()).map(|board| annotation(board, UPGRADE_ANNOTATION, url)),
            Subject::Config(url) => by_name.get(name.as_str()).map(|board| annotation(board, CONFIG_ANNOTATION, url)),
        };
        names.iter().filter_map(write).collect()
    }
}

/// Another pod of this name stays.
fn deletion(set: &DaemonSetName, pod: &DaemonPod) -> ApiWrite {
    let path = format!("/api/v1/namespaces/{}/pods/{}", set.namespace, pod.name);
    ApiWrite::delete(path, json!({ "preconditions": { "uid": pod.uid } }))
}

/// Only if the node is as it was seen.
fn annotation(board: &Board, name: &str, url: &str) -> ApiWrite {
    let metadata = json!({ "resourceVersion": board.resource_version, "annotations": { name: url } });
    ApiWrite::patch(format!("/api/v1/nodes/{}", board.name), json!({ "metadata": metadata }))
}

impl DaemonSet {
    /// Fails for one that replaces its pods by itself, and while the controller has not seen its template.
    pub(super) async fn read(operator: &mut Operator, namespace: &str, name: &str) -> Result<Self, Obstacle> {
        let daemon_set = format!("daemonset {namespace}/{name}");
        let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}");
        let set = operator.get(&path).await.map_err(|error| Obstacle::of(&format!("get {daemon_set}"), &error))?;
        let strategy = text(&set, "/spec/updateStrategy/type").unwrap_or_default();
        if strategy != "OnDelete" {
            let line = format!(
                "{daemon_set}: updateStrategy: expected OnDelete, found {strategy:?}: its controller replaces the pods"
            );
            return Err(Obstacle::lasting(line));
        }
        let generation = |pointer: &str| set.pointer(pointer).and_then(Value::as_i64);
        if generation("/status/observedGeneration") < generation("/metadata/generation") {
            return Err(Obstacle {
                line: format!("{daemon_set}: its controller has not seen the template yet"),
                passes: true,
            });
        }
        let uid = text(&set, "/metadata/uid").unwrap_or_default().to_owned();
        let selector = selector_of(&set);
        // Unlike that of a StatefulSet, the status of a DaemonSet does not name its revision.
        let mut newest: Option<(i64, String)> = None;
        let mut each = |revision: Option<&Value>| {
            let Some(revision) = revision else { return newest = None };
            let owners = revision.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let is_own = owners.into_iter().flatten().any(|one| one.get("uid").is_some_and(|owner| *owner == *uid));
            let number = revision.get("revision").and_then(Value::as_i64).unwrap_or_default();
            let hash = text(revision, "/metadata/labels/controller-revision-hash");
            if let (true, Some(hash), true) = (is_own, hash, newest.as_ref().is_none_or(|(newest, _)| number > *newest))
            {
                newest = Some((number, hash.to_owned()));
            }
        };
        let path = format!("/apis/apps/v1/namespaces/{namespace}/controllerrevisions");
        let listed = operator.list(&path, &selector, &mut each).await;
        listed.map_err(|error| Obstacle::of(&format!("list controllerrevisions in {namespace}"), &error))?;
        let Some((_, revision)) = newest else {
            return Err(Obstacle {
                line: format!("{daemon_set}: its controller has made no revision yet"),
                passes: true,
            });
        };
        Ok(Self { uid, selector, revision })
    }

    async fn pods(&self, operator: &mut Operator, namespace: &str) -> Result<DaemonPods, Obstacle> {
        let mut pods = DaemonPods::new();
        let mut each = |pod: Option<&Value>| match pod {
            Some(pod) => {
                if let Some((node, pod)) = DaemonPod::of_pod(pod, &self.uid) {
                    // Beside a pod that ends, the next one counts.
                    let is_newer = pods.get(&node).is_none_or(|other| other.is_terminating);
                    if is_newer {
                        pods.insert(node, pod);
                    }
                }
            }
            None => pods.clear(),
        };
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let listed = operator.list(&path, &self.selector, &mut each).await;
        listed.map_err(|error| Obstacle::of(&format!("list pods in {namespace}"), &error))?;
        Ok(pods)
    }
}

/// With expressions, all are listed: the owner tells which count.
fn selector_of(set: &Value) -> String {
    if set.pointer("/spec/selector/matchExpressions").is_some() {
        return String::new();
    }
    let labels = set.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    labels.collect::<Vec<_>>().join(",")
}
