//! Joining, and the permissions of the node.

use std::fs;

use super::cluster::{Cluster, TOKEN, condition, mode};
use super::control_plane::{ADDRESS, Assets};
use super::node::{NODE_NAME, find_program};

#[test]
fn node_behind_a_proxy_joins() {
    let Some(assets) = Assets::find("node_behind_a_proxy_joins", &[]) else { return };
    let mut cluster = Cluster::new(assets);
    let folder = cluster.node.folder().to_owned();
    let settings = folder.join("tinyproxy.conf");
    let text = "Port 8888\nListen 127.0.0.1\nTimeout 600\nMaxClients 20\nConnectPort 6443\nBasicAuth board s3cret\n\
                LogLevel Connect\n";
    fs::write(&settings, text).unwrap();
    let log = folder.join("tinyproxy.log");
    let arguments = ["-d", "-c", settings.to_str().unwrap()];
    let _proxy = cluster.node.enclosure().start(&find_program("tinyproxy"), &arguments, &log);
    let bootstrap = folder.join("bootstrap.conf");
    let kubeconfig = fs::read_to_string(&bootstrap).unwrap();
    let server = format!("server: https://{ADDRESS}:6443\n");
    assert!(kubeconfig.contains(&server));
    let behind = format!("{server}    proxy-url: http://board:s3cret@127.0.0.1:8888\n");
    fs::write(&bootstrap, kubeconfig.replace(&server, &behind)).unwrap();

    cluster.node.start_agent();
    cluster.wait_until_ready();
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains(&format!("CONNECT {ADDRESS}:6443 HTTP/1.1")), "{log}");
    // The node's own kubeconfig names the proxy as well.
    assert!(fs::read_to_string(folder.join("kubelet.conf")).unwrap().contains("proxy-url"));
    assert!(!cluster.node.agent_log().contains("s3cret"));
}

#[test]
fn node_joins_with_a_token_and_has_only_node_permissions() {
    let Some(assets) = Assets::find("node_joins_with_a_token_and_has_only_node_permissions", &[]) else {
        return;
    };
    let cluster = Cluster::joined(assets);
    let node = cluster.wait_until_ready();
    assert_eq!(node["status"]["addresses"][0]["address"], "10.88.0.1");
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&node, kind)["status"], "False", "{kind}");
    }
    let requests = cluster.get(&["certificatesigningrequests"]);
    let requests = requests["items"].as_array().unwrap();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0]["spec"]["username"], "system:bootstrap:abcdef");
    let pki = cluster.node.folder().join("pods/pki/kubelet-client-current.pem");
    let kubeconfig = cluster.node.folder().join("kubelet.conf");
    assert_eq!((mode(&pki), mode(&kubeconfig)), (0o600, 0o600));
    assert!(!fs::read_to_string(&kubeconfig).unwrap().contains("token"));

    let lease = || cluster.get(&["--namespace=kube-node-lease", "lease", NODE_NAME]);
    let first = lease();
    assert_eq!(first["spec"]["holderIdentity"], NODE_NAME);
    assert_eq!(first["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    cluster
        .wait("the lease to be renewed", || (lease()["spec"]["renewTime"] != first["spec"]["renewTime"]).then_some(()));

    // The node has no further groups.
    let whoami = String::from_utf8(cluster.kubectl_of_node(&["auth", "whoami"]).stdout).unwrap();
    assert!(whoami.contains(&format!("system:node:{NODE_NAME}")) && whoami.contains("system:nodes"), "{whoami}");
    for refused in [
        &["get", "secrets", "--all-namespaces"][..],
        &["label", "node", NODE_NAME, "node-restriction.kubernetes.io/a=b"],
    ] {
        let done = cluster.kubectl_of_node(refused);
        assert!(!done.status.success() && String::from_utf8_lossy(&done.stderr).contains("orbidden"), "{refused:?}");
    }
    cluster.assert_that_nothing_was_forbidden();
    let log = cluster.node.agent_log();
    assert!(!log.contains(TOKEN.split_once('.').unwrap().1) && !log.contains("PRIVATE KEY"));

    let described = cluster.kubectl(&["describe", "node", NODE_NAME]);
    for text in ["KubeletReady", "RenewTime:", "containerd://"] {
        assert!(described.contains(text), "{described}");
    }
}

#[test]
fn restarted_agent_keeps_its_node_object_and_certificate() {
    let test = "restarted_agent_keeps_its_node_object_and_certificate";
    let Some(assets) = Assets::find(test, &[]) else { return };
    let mut cluster = Cluster::joined(assets);
    let before = cluster.wait_until_ready();
    cluster.node.kill_agent();
    // A status report within the same second would be identical.
    std::thread::sleep(std::time::Duration::from_secs(1));
    // Changes by others stay.
    cluster.kubectl(&["label", "node", NODE_NAME, "example.com/place=kitchen"]);
    cluster.kubectl(&["taint", "node", NODE_NAME, "example.com/hot=very:PreferNoSchedule"]);
    cluster.node.start_agent();
    let heartbeat = |node: &serde_json::Value| condition(node, "Ready")["lastHeartbeatTime"].clone();
    let after = cluster.wait("the node to be reported again", || {
        Some(cluster.wait_until_ready()).filter(|node| heartbeat(node) != heartbeat(&before))
    });
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["metadata"]["labels"]["example.com/place"], "kitchen");
    let taints = after["spec"]["taints"].as_array().unwrap();
    assert!(taints.iter().any(|taint| taint["key"] == "example.com/hot"), "{taints:?}");
    assert_eq!(cluster.get(&["certificatesigningrequests"])["items"].as_array().unwrap().len(), 1);
    cluster.assert_that_nothing_was_forbidden();
}
