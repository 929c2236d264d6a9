//! A DRA driver, whose prepared claims end with the machine's power, and the claims that it has allocated.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::{Value, json};

use super::container_runtime::{ContainerRuntime, short};
use super::fake_api::in_process::Server;
use super::plugin::Service;
use super::record::{Record, Rule};
use crate::platform::cri::v1;
use crate::platform::rpc::Reply;
use crate::protocol::grpc::{Code, Status};
use crate::protocol::protobuf::{decode, encode, message};

message! {
    /// `NodePrepareResourcesRequest` and `NodeUnprepareResourcesRequest`.
    struct Claims {
        1 => claims: Vec<Claim>,
    }

    struct Claim {
        1 => namespace: String,
        2 => uid: String,
        3 => name: String,
    }

    /// `NodePrepareResourcesResponse` and `NodeUnprepareResourcesResponse`.
    struct Answers {
        1 => claims: Vec<Answer>,
    }

    struct Answer {
        1 => uid: String,
        2 => result: Option<Devices>,
    }

    struct Devices {
        1 => devices: Vec<Device>,
    }

    struct Device {
        2 => pool_name: String,
        3 => device_name: String,
        4 => cdi_device_ids: Vec<String>,
    }
}

const NAME: &str = "gpu.example.com";
/// Number of claims. Pods of the same number share one.
const DRA_CLAIMS: u64 = 4;
/// The kind of the driver's CDI devices.
const CDI: &str = "example.com/gpu=";

pub(super) struct DraDriver {
    record: Rc<Record>,
    runtime: Rc<ContainerRuntime>,
    /// The prepared claims by name, which the runtime checks.
    prepared: Rc<RefCell<BTreeSet<String>>>,
}

impl DraDriver {
    pub(super) fn new(record: &Rc<Record>, runtime: &Rc<ContainerRuntime>) -> Self {
        let prepared = Rc::clone(&runtime.prepared);
        Self { record: Rc::clone(record), runtime: Rc::clone(runtime), prepared }
    }

    /// Creates the claims, each with a device.
    pub(super) fn create_objects(server: &mut Server) {
        for number in 0..DRA_CLAIMS {
            let name = claim(number);
            server.create(&json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
            }));
            let device = json!({"request": "gpu", "driver": NAME, "pool": "pool", "device": name});
            let allocation = json!({"devices": {"results": [device]}});
            server.patch(&status_of(&name), &json!({"status": {"allocation": allocation}}));
        }
    }

    /// Lets the created pod use its claim, beside the pods that still exist.
    pub(super) fn reserve(server: &mut Server, revision: &str, pod: &Value) {
        let name = claim(revision.parse().unwrap_or_default());
        let path = status_of(&name);
        let object = server.get(path.trim_end_matches("/status")).unwrap_or_default();
        let pods = server.list("/api/v1/pods");
        let exists = |user: &&Value| pods.iter().any(|pod| pod["metadata"]["uid"] == user["uid"]);
        let users = object["status"]["reservedFor"].as_array().into_iter().flatten().filter(exists);
        let metadata = &pod["metadata"];
        let new = json!({"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]});
        let users: Vec<Value> = users.filter(|user| user["uid"] != new["uid"]).cloned().chain([new.clone()]).collect();
        server.patch(&path, &json!({"status": {"reservedFor": users}}));
    }

    /// Loses everything, as after a power cut.
    pub(super) fn forget(&self) {
        self.prepared.take();
    }

    /// The names of the prepared claims.
    pub(super) fn prepared(&self) -> BTreeSet<String> {
        self.prepared.borrow().clone()
    }

    fn prepare(&self, claim: &Claim) -> Answer {
        self.prepared.borrow_mut().insert(claim.name.clone());
        let device = Device {
            pool_name: "pool".to_owned(),
            device_name: claim.name.clone(),
            cdi_device_ids: vec![format!("{CDI}{}", claim.name)],
        };
        Answer { uid: claim.uid.clone(), result: Some(Devices { devices: vec![device] }) }
    }

    fn unprepare(&self, claim: &Claim) -> Answer {
        let survivors = self.runtime.survivors.borrow();
        let user = self.runtime.look(|runtime| {
            let running = runtime.world.containers.iter().filter(|one| one.state == v1::ContainerState::Running);
            let mut users = running.chain(survivors.iter().filter_map(|one| one.container.as_ref()));
            users.find(|one| claim_of(&one.config).is_some_and(|name| name == claim.name)).map(|one| one.id.clone())
        });
        if let Some(container) = user {
            let what = format!("claim {} is unprepared, and container {} runs with it", claim.name, short(&container));
            self.record.violated(Rule::ClaimPrepared, what);
        }
        self.prepared.borrow_mut().remove(&claim.name);
        Answer { uid: claim.uid.clone(), result: Some(Devices::default()) }
    }
}

impl Service for DraDriver {
    const INFO: [&'static str; 3] = ["DRAPlugin", NAME, "v1.DRAPlugin"];

    fn handle(&self, method: &str, message: &[u8]) -> Result<Reply, Status> {
        let response = match method {
            "NodePrepareResources" => Self::prepare,
            "NodeUnprepareResources" => Self::unprepare,
            other => return Err(Status::new(Code::Unimplemented, other)),
        };
        let asked: Claims =
            decode(message).map_err(|_| Status::new(Code::InvalidArgument, "the request cannot be read"))?;
        let claims = asked.claims.iter().map(|claim| response(self, claim)).collect();
        Ok(Reply::Message(encode(&Answers { claims })))
    }
}

/// The claim of the pods with this revision.
pub(super) fn claim(revision: u64) -> String {
    format!("gpu-{}", revision % DRA_CLAIMS)
}

fn status_of(claim: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim}/status")
}

/// The claim whose device a container has.
pub(super) fn claim_of(config: &v1::ContainerConfig) -> Option<&str> {
    config.cdi_devices.iter().find_map(|device| device.name.strip_prefix(CDI))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::simulation::plan::{PluginKind, StepKind};
    use crate::simulation::plugin::Faults;
    use crate::simulation::wanted::Traits;
    use crate::simulation::{Start, after, create, live_through};

    /// The driver does not stop preparing when its call is cancelled.
    #[test]
    fn pod_that_ends_does_not_interrupt_the_preparation_of_its_claim() {
        let pod = Traits { claim: true, ..Traits::default() };
        let faults = Faults { slow: Duration::from_secs(40), ..Faults::default() };
        let slow = StepKind::PluginFails { which: PluginKind::Dra, faults, lasts: Duration::from_secs(20) };
        let delete = StepKind::DeletePod { which: 0, grace: Some(0) };
        let steps = vec![after(30, slow), create(pod), after(5, delete), after(60, StepKind::EndWatches)];
        live_through(&[(steps, Start::None)]);
    }
}
