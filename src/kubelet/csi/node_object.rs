//! Reports the node's drivers: the CSINode object, and labels and annotations of the node.

use std::rc::Rc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Csi;
use super::drivers::Driver;
use crate::kubelet::node::StatusInputs;
use crate::platform::apiserver::{ApiError, Client, Patch, Rank, Request};
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;
use crate::types::time::{Backoff, jitter};

pub(crate) struct CsiNodeRegistration {
    pub(crate) client: Client,
    pub(crate) csi: Rc<Csi>,
    pub(crate) status_inputs: Rc<StatusInputs>,
}

type Drivers = SortedMap<String, Option<Rc<Driver>>>;

const FIRST_CSI_NODE_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_CSI_NODE_RETRY_DELAY: Duration = Duration::from_secs(120);
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";

impl CsiNodeRegistration {
    /// Updates the objects whenever drivers change, and when the node has another Node object or the API server was
    /// restored from a backup; never returns.
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::new(FIRST_CSI_NODE_RETRY_DELAY, MAX_CSI_NODE_RETRY_DELAY);
        // Nothing is reported before the first driver.
        self.csi.changed.beyond(0).await;
        loop {
            self.status_inputs.admission_is_possible().await;
            let (drivers_seen, uid_seen) = (self.csi.changed.changes(), self.status_inputs.uid_changed.changes());
            let history = self.client.histories().changes();
            match self.update_csi_node().await {
                Ok(()) => {
                    backoff.reset();
                    let uid_changed = self.status_inputs.uid_changed.beyond(uid_seen);
                    let is_lost = rt::either(uid_changed, self.client.histories().beyond(history));
                    rt::either(self.csi.changed.beyond(drivers_seen), is_lost).await;
                }
                Err(error) => {
                    log!(warn, "failed to update CSINode, retrying", error = ErrorChain(&error));
                    rt::sleep(jitter(backoff.next_wait(), 0.5, rt::random())).await;
                }
            }
        }
    }

    async fn update_csi_node(&self) -> Result<(), ApiError> {
        let name = &self.csi.node_name;
        let drivers = self.csi.drivers.borrow().clone();
        let path = format!("/api/v1/nodes/{name}");
        let node = self.send(&Request::get(path.as_str())).await?;
        if let Some(patch) = node_patch(&node, &drivers) {
            self.send(&Request::patch(path + "/status", Patch::StrategicMerge, &patch)).await?;
        }
        let collection_path = "/apis/storage.k8s.io/v1/csinodes";
        let path = format!("{collection_path}/{name}");
        let csi_node = match self.send(&Request::get(path.as_str())).await {
            Err(error) if error.is_not_found() => Value::Null,
            csi_node => csi_node?,
        };
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.pointer("/metadata/uid")});
        if csi_node.is_null() {
            let object = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"drivers": drivers_of(&[], &drivers)},
            });
            self.send(&Request::post(collection_path, &object)).await?;
        } else if let Some(patch) = csi_node_patch(&csi_node, &owner, &drivers) {
            self.send(&Request::patch(path, Patch::Merge, &patch)).await?;
        }
        Ok(())
    }

    async fn send(&self, request: &Request) -> Result<Value, ApiError> {
        self.client.send(&request.clone().ranked(Rank::Node)).await?.json()
    }
}

/// The merge patch with the drivers, and with the owner if it is a former Node object; `None` if nothing changes.
fn csi_node_patch(csi_node: &Value, owner: &Value, drivers: &Drivers) -> Option<Value> {
    let registered_drivers = csi_node.pointer("/spec/drivers").and_then(Value::as_array);
    let wanted = drivers_of(registered_drivers.map_or(&[], Vec::as_slice), drivers);
    let mut owners = csi_node.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let is_owned = owners.any(|reference| reference.get("uid") == owner.get("uid"));
    if is_owned && registered_drivers == Some(&wanted) {
        return None;
    }
    // A merge patch replaces the whole list: with the version, the change of another client is not lost.
    let version = csi_node.pointer("/metadata/resourceVersion");
    let metadata = match is_owned {
        true => json!({"resourceVersion": version}),
        // The garbage collector removes what belongs to a former Node object.
        false => json!({"resourceVersion": version, "ownerReferences": [owner]}),
    };
    Some(json!({"metadata": metadata, "spec": {"drivers": wanted}}))
}

/// Entries of drivers that have not registered with this process stay: the drivers may still come.
fn drivers_of(entries: &[Value], drivers: &Drivers) -> Vec<Value> {
    let name_of = |entry: &Value| entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let others = entries.iter().filter(|entry| !drivers.contains_key(&name_of(entry)));
    let own_entries = drivers.iter().filter_map(|(name, driver)| {
        let driver = driver.as_ref()?;
        let keys: Vec<&String> = driver.topology.keys().collect();
        let entry_of_driver = json!({"name": name, "nodeID": driver.node_id, "topologyKeys": keys});
        let count = driver.max_volumes.min(i32::MAX.into());
        let limited =
            || json!({"name": name, "nodeID": driver.node_id, "topologyKeys": keys, "allocatable": {"count": count}});
        Some(if count > 0 { limited() } else { entry_of_driver })
    });
    others.cloned().chain(own_entries).collect()
}

/// The patch with topology labels and driver node ids; `None` if nothing changes.
fn node_patch(node: &Value, drivers: &Drivers) -> Option<Value> {
    let label = |key: &str| node.pointer("/metadata/labels").and_then(|labels| labels.get(key));
    let mut labels = Map::new();
    let ids =
        node.pointer("/metadata/annotations").and_then(|annotations| annotations.get(NODE_IDS)).and_then(Value::as_str);
    let before: Map<String, Value> = ids.and_then(|ids| serde_json::from_str(ids).ok()).unwrap_or_default();
    let mut after = before.clone();
    for (name, driver) in drivers {
        let Some(driver) = driver else {
            after.remove(name);
            continue;
        };
        after.insert(name.clone(), driver.node_id.clone().into());
        for (key, value) in &driver.topology {
            match label(key) {
                None => drop(labels.insert(key.clone(), value.clone().into())),
                Some(node_value) if node_value != value => {
                    log!(error, "CSI driver topology conflicts with node label", driver = name, label = key);
                }
                Some(_) => {}
            }
        }
    }
    let mut metadata = Map::new();
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), labels.into());
    }
    if after != before {
        let ids = if after.is_empty() { Value::Null } else { Value::Object(after).to_string().into() };
        metadata.insert("annotations".to_owned(), json!({NODE_IDS: ids}));
    }
    (!metadata.is_empty()).then(|| json!({"metadata": metadata}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drivers() -> Drivers {
        let disk = Driver::named("node-7", &[("topology.disk/zone", "a"), ("topology.disk/rack", "r")], 16);
        let drivers = [("disk", Some(disk)), ("gone", None), ("net", Some(Driver::named("n", &[], 0)))];
        drivers.into_iter().map(|(name, driver)| (name.to_owned(), driver.map(Rc::new))).collect()
    }

    #[test]
    fn entries_of_drivers_not_yet_registered_are_kept() {
        let known = [json!({"name": "gone", "nodeID": "x"}), json!({"name": "other", "nodeID": "y"})];
        let expected = json!([
            {"name": "other", "nodeID": "y"},
            {
                "name": "disk", "nodeID": "node-7", "topologyKeys": ["topology.disk/rack", "topology.disk/zone"],
                "allocatable": {"count": 16},
            },
            {"name": "net", "nodeID": "n", "topologyKeys": []},
        ]);
        let told = drivers_of(&known, &drivers());
        assert_eq!(json!(told), expected);
        assert_eq!(drivers_of(&told, &drivers()), told);
    }

    #[test]
    fn csi_node_of_a_former_node_object_gets_the_new_owner() {
        let drivers: Drivers = drivers();
        let owner = |uid: &str| json!({"kind": "Node", "name": "n", "uid": uid});
        let object = |entries: &[Value]| {
            let metadata = json!({"resourceVersion": "7", "ownerReferences": [owner("one")]});
            json!({"metadata": metadata, "spec": {"drivers": entries}})
        };
        let entries = drivers_of(&[], &drivers);
        let kept = object(&entries);
        assert_eq!(csi_node_patch(&kept, &owner("one"), &drivers), None);
        let metadata = json!({"resourceVersion": "7", "ownerReferences": [owner("two")]});
        let expected = json!({"metadata": metadata, "spec": {"drivers": entries}});
        assert_eq!(csi_node_patch(&kept, &owner("two"), &drivers), Some(expected));
        let expected = json!({"metadata": {"resourceVersion": "7"}, "spec": {"drivers": entries}});
        assert_eq!(csi_node_patch(&object(&[]), &owner("one"), &drivers), Some(expected));
    }

    #[test]
    fn missing_topology_labels_are_added_and_existing_ones_kept() {
        let ids = r#"{"disk":"node-7","net":"n"}"#;
        let labels = json!({"topology.disk/zone": "b"});
        let node = json!({"metadata": {"labels": labels, "annotations": {NODE_IDS: r#"{"gone":"x"}"#}}});
        let expected = json!({"metadata": {"labels": {"topology.disk/rack": "r"}, "annotations": {NODE_IDS: ids}}});
        assert_eq!(node_patch(&node, &drivers()), Some(expected));
        let labels = json!({"topology.disk/zone": "a", "topology.disk/rack": "r"});
        let node = json!({"metadata": {"labels": labels, "annotations": {NODE_IDS: ids}}});
        assert_eq!(node_patch(&node, &drivers()), None);
        let gone = [("disk".to_owned(), None), ("net".to_owned(), None)].into_iter().collect();
        assert_eq!(node_patch(&node, &gone), Some(json!({"metadata": {"annotations": {NODE_IDS: null}}})));
    }
}
