//! Claims are unprepared after all containers and the sandbox of their last pod have stopped, whatever is killed.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::dra::{SHORT, all, claiming};
use super::joined::Joined;
use super::pods::{WEB, pod};
use crate::dra_driver::{Driver, UNPREPARE};
use crate::fake_cri::World;

const OTHER: &str = "/api/v1/namespaces/default/pods/other";
/// The runtime is called again within this time after a call that did not answer.
const WHILE: Duration = Duration::from_millis(500);

impl Joined {
    fn restart_agent(&mut self) {
        self.node.kill_agent();
        self.start(SHORT, &[]);
    }

    /// Waits for another call of a method that the runtime holds, while no claim is unprepared.
    #[track_caller]
    fn see_nothing_unprepared_before(&self, method: &str, driver: &Driver) {
        let calls = self.node.fake.look(|world| world.calls_of(method));
        self.node.fake.wait_for_calls(method, calls + 1);
        thread::sleep(WHILE);
        assert_eq!(driver.calls(UNPREPARE), [[""; 0]; 0], "{method} has not returned");
    }
}

fn ready_sandboxes(world: &World) -> usize {
    world.sandboxes.iter().filter(|sandbox| sandbox.is_ready()).count()
}

#[test]
fn claim_is_unprepared_after_the_sandbox_of_its_last_pod_whatever_is_killed() {
    let (mut joined, driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    let other = joined.create_claiming(&claiming("other", "c", &all()), "c", &[]);
    joined.wait_for_running(1);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[&other]);
    joined.wait_until_web_is_ready();
    joined.api.delete(OTHER);
    joined.api.wait_gone(OTHER);

    joined.node.fake.on("StopContainer").hold();
    joined.api.delete(WEB);
    joined.see_nothing_unprepared_before("StopContainer", &driver);
    joined.restart_agent();
    joined.see_nothing_unprepared_before("StopContainer", &driver);

    joined.node.fake.clear_faults();
    joined.node.fake.on("StopPodSandbox").hold();
    joined.node.fake.release("StopContainer");
    joined.see_nothing_unprepared_before("StopPodSandbox", &driver);
    joined.restart_agent();
    joined.see_nothing_unprepared_before("StopPodSandbox", &driver);
    assert_eq!((joined.running().len(), joined.node.fake.look(ready_sandboxes)), (0, 1));

    driver.hang(UNPREPARE);
    joined.node.fake.clear_faults();
    joined.node.fake.release("StopPodSandbox");
    driver.wait_for(UNPREPARE);
    assert_eq!(joined.node.fake.look(ready_sandboxes), 0);
    joined.restart_agent();
    driver.wait("another call", |_| driver.calls(UNPREPARE).len() > 1);
    assert!(joined.api.get(WEB).is_some(), "the claim is still prepared");
    driver.release();
    joined.api.wait_gone(WEB);
    assert_eq!((driver.prepared().len(), joined.checkpoint().len()), (0, 0));
}

#[test]
fn claims_of_a_pod_deleted_by_force_wait_for_its_containers() {
    let (mut joined, driver) = Joined::with_dra_driver();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    joined.wait_until_web_is_ready();
    joined.node.kill_agent();
    joined.api.delete_with_grace(WEB, 0);
    joined.node.fake.on("StopContainer").hold();
    joined.start(SHORT, &[]);
    joined.see_nothing_unprepared_before("StopContainer", &driver);
    joined.node.fake.clear_faults();
    joined.node.fake.release("StopContainer");
    driver.wait_for(UNPREPARE);
    assert_eq!((joined.running().len(), joined.node.fake.look(ready_sandboxes)), (0, 0));
    joined.node.wait_until("the checkpoint is empty", |_| joined.checkpoint().is_empty());
}

/// A pod with these claims.
fn claiming_all(name: &str, claims: &[&str]) -> Value {
    let entry = |claim: &&str| json!({"name": claim, "resourceClaimName": claim});
    let container = json!({
        "name": "main", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "IfNotPresent",
        "resources": {"claims": claims.iter().map(|claim| json!({"name": claim})).collect::<Vec<_>>()},
    });
    let entries: Vec<Value> = claims.iter().map(entry).collect();
    pod(name, &json!({"containers": [container], "resourceClaims": entries}))
}

#[test]
fn pod_takes_back_a_claim_that_became_its_own_while_it_ended() {
    let (joined, driver) = Joined::with_dra_driver();
    for claim in ["own", "shared"] {
        joined.create_resource_claim(claim, None);
    }
    let other = joined.create_claiming(&claiming_all("other", &["shared"]), "shared", &[]);
    joined.wait_for_running(1);
    let web = joined.create_claiming(&claiming_all("web", &["own", "shared"]), "shared", &[&other]);
    joined.patch_claim("own", &json!({"reservedFor": [{"resource": "pods", "name": "web", "uid": web}]}));
    joined.wait_until_web_is_ready();

    driver.hang(UNPREPARE);
    joined.api.delete(WEB);
    driver.wait_for(UNPREPARE);
    joined.api.delete(OTHER);
    joined.api.wait_gone(OTHER);
    driver.fail_claim(UNPREPARE, "shared", "in use");
    driver.release();
    driver.wait("two tries", |_| driver.calls(UNPREPARE).iter().filter(|claims| *claims == &["shared"]).count() > 1);
    assert!(joined.api.get(WEB).is_some(), "its shared claim is still prepared");
    driver.mend();
    joined.api.wait_gone(WEB);
    assert_eq!((driver.prepared().len(), joined.checkpoint().len()), (0, 0));
}
