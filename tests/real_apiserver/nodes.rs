//! Joining, and the permissions of the node.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use serde_json::json;

use super::certificates::Validity;
use super::cluster::{Cluster, TOKEN, condition, mode};
use super::control_plane::{ADDRESS, Assets, base64};
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

    // A renewal before the node had credentials failed, and its retry may come after the node is ready.
    let lease = || cluster.try_get(&["--namespace=kube-node-lease", "lease", NODE_NAME]);
    let first = cluster.wait("the lease", lease);
    assert_eq!(first["spec"]["holderIdentity"], NODE_NAME);
    assert_eq!(first["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    cluster.wait("the lease to be renewed", || {
        lease().filter(|now| now["spec"]["renewTime"] != first["spec"]["renewTime"])
    });

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

/// A script of the examples, with kubectl as administrator.
fn script(cluster: &Cluster, assets: &Path, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/reenrolment").join(name);
    let mut command = cluster.plane.command(&cluster.node, "/bin/sh");
    let programs = format!("{}:{}", assets.display(), std::env::var("PATH").unwrap());
    let output = command.arg(path).env("PATH", programs).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn board_whose_certificate_expired_while_away_comes_back_and_stolen_one_does_not() {
    let test = "board_whose_certificate_expired_while_away_comes_back_and_stolen_one_does_not";
    let Some(assets) = Assets::find(test, &[]) else { return };
    let programs = assets.program("kubectl").parent().unwrap().to_owned();
    let mut cluster = Cluster::new(assets);
    let example = |name: &str| format!("{}/examples/reenrolment/{name}", env!("CARGO_MANIFEST_DIR"));
    cluster.kubectl(&["apply", "-f", &example("reenrolment.yaml")]);
    if !cluster.plane.has_controllers() {
        // A controller would put the token into the Secret.
        let create = ["--namespace=kube-system", "create", "token", "coracle-reenrolment", "--duration=24h"];
        let token = cluster.kubectl(&create);
        let patch = json!({"data": {"token": base64(token.trim())}}).to_string();
        cluster.kubectl(&[
            "--namespace=kube-system",
            "patch",
            "secret",
            "coracle-reenrolment",
            "--type=merge",
            "-p",
            &patch,
        ]);
    }
    let folder = cluster.node.folder().to_owned();
    let settings = folder.join("coracle.yaml");
    fs::write(&settings, "reenrolment: {secret: kube-system/coracle-reenrolment}\n").unwrap();
    cluster.node.add_arguments(&["--coracle-config", settings.to_str().unwrap()]);
    cluster.node.start_agent();
    cluster.wait_until_ready();
    let kubeconfig = folder.join("pods/coracle/reenrolment/kubeconfig");
    cluster.wait("the node to have key and token", || {
        let node = cluster.get(&["node", NODE_NAME]);
        let key = node["metadata"]["annotations"]["coracle.dev/reenrolment-key"].as_str()?;
        (!key.is_empty() && kubeconfig.exists()).then_some(())
    });
    assert_eq!(script(&cluster, &programs, "approve.sh"), "");

    // The token of the join has ended, and the board is away until its certificate has expired.
    cluster.node.kill_agent();
    cluster.kubectl(&["--namespace=kube-system", "delete", "secret", "bootstrap-token-abcdef"]);
    cluster.expire_certificate(NODE_NAME, &folder.join("pods"));
    cluster.node.start_agent();
    let account = "system:serviceaccount:kube-system:coracle-reenrolment";
    let request = cluster.wait("a request of the account", || {
        let requests = cluster.get(&["certificatesigningrequests"]);
        let requests = requests["items"].as_array().unwrap();
        requests.iter().find(|request| request["spec"]["username"] == account).cloned()
    });
    let name = request["metadata"]["name"].as_str().unwrap();

    // A request of the same account with a forged signature, or for another node, is not approved.
    for (forged, change) in [("forged", "c2lnbmF0dXJl"), ("unsigned", "")] {
        let mut other = request.clone();
        other["metadata"] = json!({"name": forged, "annotations": {"coracle.dev/reenrolment-signature": change}});
        other.as_object_mut().unwrap().remove("status");
        cluster.kubectl_with(&["--kubeconfig", kubeconfig.to_str().unwrap(), "create", "-f", "-"], &other.to_string());
    }
    let said = script(&cluster, &programs, "approve.sh");
    assert_eq!(said, format!("approved {name} for node {NODE_NAME}\n"));
    cluster.sign_approved(Validity::a_day(Timestamp::now()));
    let lease = || cluster.get(&["--namespace=kube-node-lease", "lease", NODE_NAME])["spec"]["renewTime"].clone();
    let before = lease();
    cluster.wait("the lease to be renewed", || (lease() != before).then_some(()));
    let node = cluster.get(&["node", NODE_NAME]);
    assert_eq!(condition(&node, "Ready")["status"], "True");

    // One step shuts a stolen board out, whose certificate is still valid.
    cluster.kubectl(&["apply", "-f", &example("stolen-boards.yaml")]);
    let listed = json!({"data": {NODE_NAME: "stolen"}}).to_string();
    let patch =
        ["--namespace=kube-system", "patch", "configmap", "coracle-stolen-boards", "--type=merge", "-p", &listed];
    cluster.kubectl(&patch);
    let refused = cluster.wait("the policy to be in force", || {
        let done = cluster.kubectl_of_node(&["annotate", "--overwrite", "node", NODE_NAME, "example.com/a=b"]);
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        error.contains("coracle-stolen-boards").then_some(error)
    });
    cluster.kubectl(&["delete", "node", NODE_NAME]);
    assert!(refused.contains("this board is listed"), "{refused}");
    cluster.node.kill_agent();
    cluster.node.start_agent();
    cluster.wait("the registration to be refused", || {
        cluster.node.agent_log().contains("this board is listed in the ConfigMap").then_some(())
    });
    assert!(cluster.try_get(&["node", NODE_NAME]).is_none());
    assert_eq!(script(&cluster, &programs, "approve.sh"), "");
}
