//! `coracle support` beside a real containerd: what is in the archive, and what is not.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;

use super::node::{Manifest, Node, STAY, coracle};

/// The files of a new archive, and its size.
fn archive(node: &Node, name: &str, flags: &[String]) -> (BTreeMap<String, String>, u64) {
    let path = node.folder().join(name);
    let mut command: Command = node.enclosure().command(coracle());
    command.args(["support", "-o"]).arg(&path).arg("--local-socket").arg(node.folder().join("coracle.sock"));
    let output = command.arg("--").args(flags).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let place = node.folder().join(format!("{name}.d"));
    fs::create_dir(&place).unwrap();
    assert!(Command::new("tar").arg("-xzf").arg(&path).arg("-C").arg(&place).status().unwrap().success());
    let list = Command::new("find").arg(&place).args(["-type", "f"]).output().unwrap();
    let names = String::from_utf8(list.stdout).unwrap();
    let read = |path: &str| {
        let name = path.rsplit_once("coracle-support/").unwrap().1.to_owned();
        (name, String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned())
    };
    (names.lines().map(read).collect(), fs::metadata(&path).unwrap().len())
}

#[test]
fn archive_has_what_helps_and_no_secret_also_while_the_agent_is_down() {
    let mut node = Node::start();
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: HUNTER}\n---\n";
    let pod = Manifest::new("web").container_with(
        "main",
        &format!("echo listening; echo password=HUNTER; {STAY}"),
        "env: [{name: A, value: HUNTER}, {name: B, valueFrom: {secretKeyRef: {name: s, key: key}}}]",
    );
    node.write_manifest("web", &format!("{secret}{}", pod.text()));
    node.wait_for_output("web", "main", "password=HUNTER");
    let check = |files: &BTreeMap<String, String>, size: u64| {
        for (name, text) in files {
            assert!(!text.contains("HUNTER") && !text.contains("SFVOVEVS"), "{name}: {text}");
        }
        for name in ["README.txt", "doctor.txt", "missing.txt", "manifests/web.yaml", "config/config.yaml"] {
            assert!(files.contains_key(name), "{name}: {:?}", files.keys());
        }
        assert!(files["manifests/web.yaml"].contains("name: s"), "{}", files["manifests/web.yaml"]);
        let log = files.iter().find(|(name, _)| name.starts_with("logs/pods/") && name.contains("main")).unwrap().1;
        assert!(log.contains("listening") && log.contains("password=REDACTED"), "{log}");
        assert!(size < 4 << 20, "{size} bytes");
    };
    let (files, size) = archive(&node, "up.tar.gz", &[]);
    check(&files, size);
    assert!(files["status.json"].contains("\"version\""), "{}", files["status.json"]);
    assert!(files["pods.json"].contains("web-node-a") && files["events.json"].contains("Started"));
    let flags: Vec<String> = files["config/flags.txt"].lines().map(str::to_owned).collect();
    assert!(flags.iter().any(|flag| flag == "--root-dir"), "{flags:?}");

    node.stop_agent(Signal::SIGKILL);
    let (files, size) = archive(&node, "down.tar.gz", &flags);
    check(&files, size);
    assert!(files["missing.txt"].contains("status.json: not running"), "{}", files["missing.txt"]);
    assert!(!files.contains_key("status.json"));
}
