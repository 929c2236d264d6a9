//! kubectl exec, attach and port-forward.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Output, Stdio};

use sha2::{Digest as _, Sha256};

use super::cluster::{CLUSTER_TIMEOUT, Cluster};
use super::control_plane::Assets;
use super::node::{STAY, page, wait_for};
use super::pods::run;

impl Cluster {
    fn exec(&self, script: &str) -> Output {
        self.kubectl_process(&["exec", "web", "--", "sh", "-c", script]).output().unwrap()
    }

    /// The agent's resident memory in KiB.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(Path::new("/proc").join(self.node.agent_pid().to_string()).join("status"));
        let line = status.unwrap().lines().find_map(|line| line.strip_prefix("VmRSS:").map(str::to_owned)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

const MEGABYTES: usize = 100;

#[test]
fn exec_passes_streams_and_exit_codes() {
    let Some(assets) = Assets::find("exec_passes_streams_and_exit_codes", &[]) else {
        return;
    };
    let cluster = Cluster::joined(assets);
    run(&cluster, "web", STAY);
    cluster.wait_until_pod_is_ready("web");

    let done = cluster.exec("echo out; echo err >&2; exit 7");
    assert_eq!((done.status.code(), &*done.stdout), (Some(7), &b"out\n"[..]));
    assert!(String::from_utf8_lossy(&done.stderr).starts_with("err\n"), "{done:?}");
    let missing = cluster.kubectl_process(&["exec", "web", "--container=none", "--", "true"]).output().unwrap();
    assert!(!missing.status.success());

    // All input is echoed.
    let mut command = cluster.kubectl_process(&["exec", "--stdin", "web", "--", "cat"]);
    let mut cat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
    let sent = std::thread::spawn(move || {
        let (mut hash, mut block) = (Sha256::new(), vec![0_u8; 1 << 20]);
        for round in 0..MEGABYTES {
            for (place, byte) in block.iter_mut().enumerate() {
                *byte = u8::try_from((place * 31 + round * 7 + place / 255) % 256).unwrap();
            }
            hash.update(&block);
            input.write_all(&block).unwrap();
        }
        hash.finalize()
    });
    let (mut hash, mut block, mut count) = (Sha256::new(), vec![0; 1 << 16], 0);
    loop {
        let read = output.read(&mut block).unwrap();
        if read == 0 {
            break;
        }
        hash.update(&block[..read]);
        count += read;
    }
    assert_eq!(count, MEGABYTES << 20);
    assert_eq!(hash.finalize(), sent.join().unwrap());
    assert!(cat.wait().unwrap().success());

    // Many concurrent commands take little memory, and a vanished client leaves nothing behind.
    let before = cluster.resident();
    let descriptors =
        || fs::read_dir(Path::new("/proc").join(cluster.node.agent_pid().to_string()).join("fd")).unwrap().count();
    let open_before = descriptors();
    let sleeping = |seconds: &str| {
        let mut command = cluster.kubectl_process(&["exec", "web", "--", "sleep", seconds]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut clients: Vec<_> = (0..50).map(|_| sleeping("1234")).collect();
    let sleepers = || {
        let ps = String::from_utf8(cluster.exec("ps").stdout).unwrap();
        ps.lines().filter(|line| line.contains("sleep 1234")).count()
    };
    wait_for("all commands to run", CLUSTER_TIMEOUT, || (sleepers() == 50).then_some(()));
    let grown = cluster.resident().saturating_sub(before);
    assert!(grown <= 4096, "{grown} KiB for 50 at once");
    // The processes started here only wait for those inside the namespaces.
    cluster.node.enclosure().run(&["pkill", "-KILL", "-x", "kubectl"]);
    for client in &mut clients {
        client.wait().unwrap();
    }
    // The API server keeps its own connections open for reuse.
    wait_for("their connections to end", CLUSTER_TIMEOUT, || (descriptors() <= open_before + 5).then_some(()));
    cluster.assert_that_nothing_was_forbidden();
}

#[test]
fn kubectl_forwards_ports_and_attaches_to_a_container() {
    let Some(assets) = Assets::find("kubectl_forwards_ports_and_attaches_to_a_container", &[]) else { return };
    let cluster = Cluster::joined(assets);
    run(&cluster, "web", "mkdir /www; echo through the tunnel >/www/index.html; exec httpd -f -p 8080 -h /www");
    cluster.wait_until_pod_is_ready("web");
    let mut forward =
        cluster.kubectl_process(&["port-forward", "pod/web", "18080:8080"]).stdout(Stdio::null()).spawn().unwrap();
    for _ in 0..3 {
        let page = wait_for("the page", CLUSTER_TIMEOUT, || cluster.node.fetch("127.0.0.1", 18080));
        assert!(page.ends_with("through the tunnel\n"), "{page}");
    }
    cluster.node.enclosure().run(&["pkill", "-KILL", "-x", "kubectl"]);
    forward.wait().unwrap();

    run(&cluster, "talker", "i=0; while :; do i=$((i+1)); echo word $i; sleep 0.2; done");
    cluster.wait_until_pod_is_ready("talker");
    let mut attached = cluster.kubectl_process(&["attach", "talker"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut heard = [0; 64];
    let read = attached.stdout.take().unwrap().read(&mut heard).unwrap();
    assert!(String::from_utf8_lossy(&heard[..read]).contains("word "), "{heard:?}");
    cluster.node.enclosure().run(&["pkill", "-KILL", "-x", "kubectl"]);
    attached.wait().unwrap();
    // The API server does not translate them, as the node declares that it does.
    let metrics = page(cluster.node.folder(), "/metrics");
    for subresource in ["attach", "portforward"] {
        let count = format!("kubelet_websocket_streaming_requests_total{{subresource=\"{subresource}\"}} ");
        assert!(metrics.contains(&count), "{count}: {metrics}");
    }
    cluster.assert_that_nothing_was_forbidden();
}
