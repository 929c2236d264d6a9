//! The example that forwards logs and metrics to a server: what it needs of the node, and Fluent Bit itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::node::{BUSYBOX, Manifest, Node, STAY, coracle, wait_for};

const COLLECTOR_PORT: u16 = 9880;
/// An HTTP server that appends what is posted to a file.
const COLLECT: &str = "#!/bin/sh\nlength=0\nwhile read -r line; do line=${line%?}; [ -n \"$line\" ] || break\n\
    case $line in [Cc]ontent-[Ll]ength:*) length=${line#*: };; esac; done\nhead -c $length >>/collected/lines\n\
    printf 'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n'\n";

/// The example with the node's folders, this image, and what follows its first container's image.
fn example(node: &Node, command: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/log-forwarder.yaml");
    let text = fs::read_to_string(path).unwrap();
    let folder = node.folder().display();
    let text = text
        .replace("docker.io/fluent/fluent-bit:5.1", BUSYBOX)
        .replace("[/fluent-bit/bin/fluent-bit, -c, /config/fluent-bit.conf]", command)
        // The links point there.
        .replace("/var/log/pods", &format!("{folder}/logs"))
        .replace("/var/lib/log-forwarder", &format!("{folder}/buffer"));
    assert!(text.contains(BUSYBOX) && text.contains(command), "{text}");
    text
}

/// A node that serves its metrics, with a pod that prints a line.
fn node_with_talker() -> Node {
    let mut node = Node::with_runtime();
    node.configure_agent("readOnlyPort: 10255\n");
    node.start_agent();
    node.apply(&Manifest::new("talker").container("main", &format!("echo first line; {STAY}")));
    node.wait_for_output("talker", "main", "first line");
    node
}

#[test]
fn log_forwarder_can_read_logs_and_metrics_and_write_its_buffer() {
    let node = node_with_talker();
    node.write_manifest("log-forwarder", &example(&node, &format!("[sh, -c, {STAY:?}]")));
    node.wait_until("the forwarder runs", |pods| pods.has("log-forwarder", |pod| pod.is_ready()));
    let inside = |script: &str| {
        let mut exec = Command::new(coracle());
        exec.args(["exec", "--local-socket"]).arg(node.folder().join("coracle.sock"));
        let done = exec.args(["log-forwarder", "--", "sh", "-c", script]).output().unwrap();
        String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap()
    };
    let logs = inside("cat /var/log/containers/talker-*.log");
    assert!(logs.ends_with(" stdout F first line\n"), "{logs}");
    let metrics = inside("wget -qO- http://127.0.0.1:10255/metrics/resource");
    assert!(metrics.contains("pod_memory_working_set_bytes{") && metrics.contains("talker"), "{metrics}");
    assert_eq!(inside("echo kept >/buffer/file && cat /buffer/file && echo $NODE_NAME"), "kept\nnode-a\n");
    assert_eq!(fs::read_to_string(node.folder().join("buffer/file")).unwrap(), "kept\n");
    assert!(inside("cat /config/fluent-bit.conf").contains("multiline.parser cri\n"));
    assert_eq!(inside("touch /var/log/containers/x 2>/dev/null || echo refused"), "refused\n");
}

/// `CORACLE_FLUENT_BIT` names the program, which may use the machine's libraries.
#[test]
fn lines_of_an_outage_reach_the_server_once_each_although_the_forwarder_restarts() {
    let Some(program) = std::env::var_os("CORACLE_FLUENT_BIT").map(PathBuf::from) else {
        println!("skipped: CORACLE_FLUENT_BIT names no Fluent Bit");
        return;
    };
    let node = node_with_talker();
    let mounts = ["/usr/lib", "/lib", "/lib64"].map(|path| (path, path)).into_iter();
    let program = program.display().to_string();
    let mounts = mounts.chain([(program.as_str(), "/fluent-bit/bin/fluent-bit")]).enumerate();
    let (mut inside, mut volumes) = (String::new(), String::new());
    for (number, (path, place)) in mounts {
        inside += &format!("        - {{name: real-{number}, mountPath: {place}, readOnly: true}}\n");
        volumes += &format!("    - {{name: real-{number}, hostPath: {{path: {path}}}}}\n");
    }
    let text = example(&node, "[/fluent-bit/bin/fluent-bit, -c, /config/fluent-bit.conf]")
        .replace("      volumeMounts:\n", &format!("      volumeMounts:\n{inside}"))
        .replace("  volumes:\n", &format!("  volumes:\n{volumes}"))
        .replace("logs.example.com", "127.0.0.1")
        .replace("443", &COLLECTOR_PORT.to_string())
        .replace("flush                     30", "flush                     1")
        .replace("scheduler.cap             600", "scheduler.cap             2")
        .replace("tls                      on", "tls                      off")
        .replace("compress                 gzip\n", "workers                  1\n")
        .replace("refresh_interval 60", "refresh_interval 1");
    node.write_manifest("log-forwarder", &text);
    node.wait_until("the forwarder runs", |pods| pods.has("log-forwarder", |pod| pod.is_ready()));
    let chunks = node.folder().join("buffer/chunks/tail.0");
    let is_buffered = |line: &str| {
        let files = fs::read_dir(&chunks).into_iter().flatten().flatten();
        files
            .map(|file| fs::read(file.path()).unwrap_or_default())
            .any(|bytes| bytes.windows(line.len()).any(|window| window == line.as_bytes()))
    };
    wait_for("the line is on the disk", Duration::from_secs(60), || is_buffered("first line").then_some(()));
    node.kill_container("log-forwarder", "fluent-bit");
    node.wait_until("the forwarder runs again", |pods| {
        pods.has("log-forwarder", |pod| pod.is_ready() && pod.container("fluent-bit").restarts() == 1)
    });
    node.apply(&Manifest::new("talker-2").container("main", &format!("echo second line; {STAY}")));
    wait_for("the other line is on the disk", Duration::from_secs(60), || is_buffered("second line").then_some(()));

    // The server is there.
    let collected = node.folder().join("collected");
    fs::create_dir(&collected).unwrap();
    fs::write(collected.join("collect"), COLLECT).unwrap();
    let serve = format!("chmod +x /collected/collect; exec nc -ll -p {COLLECTOR_PORT} -e /collected/collect");
    let folder = "volumeMounts: [{name: collected, mountPath: /collected}]";
    let collector = Manifest::new("collector")
        .spec("hostNetwork: true")
        .spec(&format!("volumes: [{{name: collected, hostPath: {{path: {}}}}}]", collected.display()))
        .container_with("main", &serve, folder);
    node.apply(&collector);
    let lines = || fs::read(collected.join("lines")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = wait_for("both lines arrive", Duration::from_secs(120), || {
        lines().ok().filter(|text| text.contains("first line") && text.contains("second line"))
    });
    for line in ["first line", "second line"] {
        assert_eq!(text.matches(line).count(), 1, "{line}: {text}");
    }
    assert!(text.contains("\"node\":\"node-a\"") && text.contains("/talker-2-node-a_default_main-"), "{text}");
}
