//! Pods as the agent serves them.

use serde_json::Value;

/// The agent's pods at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods(pub(crate) Vec<Pod>);

impl Pods {
    /// The page `/pods` of the local socket.
    pub(crate) fn parse(page: &str) -> Self {
        let page: Value = serde_json::from_str(page).expect("the page is JSON");
        let mut pods: Vec<Pod> =
            page["pods"].as_array().into_iter().flatten().map(|entry| Pod(entry["pod"].clone())).collect();
        pods.sort_by(|one, other| one.name().cmp(other.name()));
        Self(pods)
    }

    /// The pod of the manifest called `name`. The pod's own name ends with the node's.
    pub(crate) fn get(&self, name: &str) -> Option<&Pod> {
        self.0.iter().find(|pod| pod.name().strip_suffix(NODE_SUFFIX) == Some(name))
    }

    /// Whether the pod exists and the claim holds for it.
    pub(crate) fn has(&self, name: &str, claim: impl Fn(&Pod) -> bool) -> bool {
        self.get(name).is_some_and(claim)
    }
}

pub(crate) const NODE_NAME: &str = "node-a";
const NODE_SUFFIX: &str = "-node-a";

#[derive(Clone, Debug)]
pub(crate) struct Pod(Value);

impl Pod {
    pub(crate) fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn json(&self) -> &Value {
        &self.0
    }

    pub(crate) fn uid(&self) -> &str {
        self.0["metadata"]["uid"].as_str().unwrap_or_default()
    }

    pub(crate) fn phase(&self) -> &str {
        self.0["status"]["phase"].as_str().unwrap_or_default()
    }

    pub(crate) fn ip(&self) -> &str {
        self.0["status"]["podIP"].as_str().unwrap_or_default()
    }

    /// Whether the pod is running with every container ready.
    pub(crate) fn is_ready(&self) -> bool {
        let conditions = self.0["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    }

    /// The status of a container or an init container.
    pub(crate) fn container(&self, name: &str) -> Container<'_> {
        let status = &self.0["status"];
        let lists = [&status["containerStatuses"], &status["initContainerStatuses"]];
        let mut all = lists.into_iter().flat_map(|list| list.as_array().into_iter().flatten());
        Container(all.find(|container| container["name"] == name).unwrap_or(&Value::Null))
    }
}

/// A container's status. Without a status every claim is false.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Container<'a>(&'a Value);

impl Container<'_> {
    /// The container id without the runtime's prefix.
    pub(crate) fn id(&self) -> String {
        let id = self.0["containerID"].as_str().unwrap_or_default();
        id.split_once("://").map_or(id, |(_, id)| id).to_owned()
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.0["restartCount"].as_u64().unwrap_or_default()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.0["state"]["running"].is_object()
    }

    pub(crate) fn is_waiting_for(&self, reason: &str) -> bool {
        self.0["state"]["waiting"]["reason"] == reason
    }

    pub(crate) fn waiting_message(&self) -> &str {
        self.0["state"]["waiting"]["message"].as_str().unwrap_or_default()
    }

    pub(crate) fn exit_code(&self) -> Option<i64> {
        self.0["state"]["terminated"]["exitCode"].as_i64()
    }

    pub(crate) fn last_exit_code(&self) -> Option<i64> {
        self.0["lastState"]["terminated"]["exitCode"].as_i64()
    }
}
