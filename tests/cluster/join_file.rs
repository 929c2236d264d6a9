//! The file that names a cluster to join, which the agent takes by itself.

use std::fs;

use nix::mount::{MsFlags, mount, umount};

use super::joined::{LEASE, NODE};
use super::joining::{Fleet, TOKEN};
use super::node::{Manifest, NODE_NAME, Node};
use crate::fake_api::world::Network;
use crate::wait::{wait, wait_for};

/// The agent of a machine without a cluster, and its join file.
impl Fleet {
    fn start_alone(&mut self) {
        let join_file = self.path("join.yaml");
        self.node.start_agent_with(|command| {
            command.arg("--join-file").arg(join_file);
        });
    }

    fn join_file(&self, token: &str) -> String {
        format!(
            "apiServerEndpoint: {}\ntoken: {token}\ncaCertHashes: ['{}']\nnodeName: {NODE_NAME}\nkubernetesDir: {}\n\
             labels: {{site: berlin}}\ntaints: [{{key: edge, effect: NoSchedule}}]\n",
            self.api.address(),
            self.pin(),
            self.path("etc").display()
        )
    }

    fn put_join_file(&self, text: &str) {
        fs::write(self.path("join.yaml"), text).unwrap();
    }

    fn wait_for_fault(&self, words: &str) {
        wait(|| {
            let status = self.node.status();
            let join = status["join"].as_str().unwrap_or_default();
            if join.contains(words) { Ok(()) } else { Err(format!("{words}: {join:?}")) }
        });
    }
}

#[test]
fn file_that_appears_joins_the_machine_and_is_removed() {
    let mut fleet = Fleet::new();
    fleet.node.apply(&Manifest::new("own").container("main", "sleep 100000"));
    fleet.start_alone();
    fleet.node.wait_until_ready("own");
    fleet.put_join_file("tokn: x\n");
    fleet.wait_for_fault("join.yaml: tokn: unknown field (did you mean token?)");
    fleet.put_join_file(&fleet.join_file("aaaaaa.0123456789abcdef"));
    fleet.wait_for_fault("the cluster does not know token \"aaaaaa\"");
    assert_eq!(fleet.written(), Vec::<String>::new());

    let pid = fleet.node.agent_pid();
    fleet.put_join_file(&fleet.join_file(TOKEN));
    fleet.api.wait(LEASE, "the lease", |lease| lease["spec"]["holderIdentity"] == NODE_NAME);
    wait_for("the token to be removed", || {
        !fleet.path("join.yaml").exists() && !fleet.path("etc/bootstrap-kubelet.conf").exists()
    });
    wait_for("the record to be removed", || !fleet.path("pods/coracle/join-file").exists());
    assert_eq!(fleet.node.agent_pid(), pid);
    let node = fleet.api.get(NODE).unwrap();
    assert_eq!(node["metadata"]["labels"]["site"], "berlin");
    assert_eq!(node["spec"]["taints"][0]["key"], "edge");
    assert!(fleet.node.status()["join"].is_null());
    // The static pod has not noticed.
    fleet.node.wait_until_ready("own");
    assert!(fleet.node.seen("own").is_exactly(&[("main", 0)]));
    assert!(!fleet.node.log().contains("0123456789abcdef"));

    // A second file does not move the node to another cluster.
    fleet.put_join_file(&fleet.join_file(TOKEN));
    fleet.wait_for_fault("this node has joined a cluster already (coracle leave)");
}

#[test]
fn join_file_is_tried_until_the_cluster_is_reached_and_certificate_is_signed() {
    let mut fleet = Fleet::new();
    fleet.api.set_network(Network::Refused);
    fleet.put_join_file(&fleet.join_file(TOKEN));
    fleet.start_alone();
    fleet.wait_for_fault("connect to the API server");
    // The next try is soon after the first ones.
    fleet.api.set_network(Network::Open);
    fleet.api.wait(LEASE, "the lease", |lease| lease["spec"]["holderIdentity"] == NODE_NAME);
    wait_for("the token to be removed", || !fleet.path("join.yaml").exists());
}

#[test]
fn used_file_that_cannot_be_removed_joins_only_once() {
    let mut fleet = Fleet::new();
    let card = fleet.path("card");
    fs::create_dir(&card).unwrap();
    fs::write(card.join("join.yaml"), fleet.join_file(TOKEN)).unwrap();
    // Root may write to any directory, but cannot remove a file that something is mounted on.
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let file = card.join("join.yaml");
    let bound = MsFlags::MS_BIND;
    mount(Some(&file), &file, None::<&str>, bound, None::<&str>).unwrap();
    let start = |node: &mut Node| {
        node.start_agent_with(|command| {
            command.arg("--join-file").arg(&file);
        });
    };
    start(&mut fleet.node);
    fleet.api.wait(LEASE, "the lease", |lease| lease["spec"]["holderIdentity"] == NODE_NAME);
    let record = fleet.path("pods/coracle/join-file");
    wait_for("the file to be remembered", || fs::read_to_string(&record).is_ok_and(|text| text.contains("used ")));
    assert!(!fleet.path("etc/bootstrap-kubelet.conf").exists());
    assert!(fleet.node.status()["join"].is_null());
    fleet.node.kill_agent();
    assert_eq!(fleet.run(&["leave", "--no-restart"]).code, 0);
    start(&mut fleet.node);
    fleet.wait_for_fault("this node has joined a cluster with this file before");
    fleet.node.kill_agent();
    umount(&file).unwrap();
}
