//! Local persistent volumes: directories and disks of the node.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::{Value, json};

use super::csi::{Loop, create_volume};
use super::endurance::{joined, path, pod};
use super::node::{Node, STAY};

/// An unprivileged pod that mounts the claim `data` at /v.
fn user(name: &str, group: u32, script: &str) -> Value {
    let mut user = pod(name, &format!("{script}; {STAY}"));
    user["spec"]["securityContext"] = json!({"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": group});
    user["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    user["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    user
}

/// Number of mounts below the pod directories.
fn mounts(node: &Node) -> usize {
    let mounted = node.enclosure().run(&["cat", "/proc/self/mountinfo"]);
    mounted.lines().filter(|line| line.contains("local-volume/data")).count()
}

#[test]
fn local_directory_gets_the_fs_group_of_its_first_pod() {
    let (node, api) = joined();
    let directory = node.folder().join("data");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("from-host"), "hello\n").unwrap();
    create_volume(&api, "data", &json!({"local": {"path": directory}, "mountOptions": ["noexec"]}));
    api.create(&user("first", 2000, "grep ' /v ' /proc/mounts; echo back >>/v/from-pod && echo written"));
    node.wait_for_output("first", "main", "written");
    let mounted = node.container_log("first", "main").into_iter().next().unwrap().text;
    assert!(mounted.contains("noexec"), "{mounted}");
    assert_eq!(fs::metadata(&directory).unwrap().gid(), 2000);
    assert_eq!(fs::metadata(directory.join("from-host")).unwrap().gid(), 2000);
    api.create(&user("second", 3000, "cat /v/from-pod; id -G; echo end"));
    node.wait_for_output("second", "main", "end");
    assert_eq!(fs::metadata(&directory).unwrap().gid(), 2000, "the first pod still has it");
    assert_eq!(mounts(&node), 2);

    for name in ["first", "second"] {
        api.delete(&path(name));
        api.wait_gone(&path(name));
    }
    assert_eq!(mounts(&node), 0);
    assert_eq!(fs::read_to_string(directory.join("from-pod")).unwrap(), "back\n");
    api.create(&user("third", 3000, "echo more >>/v/from-pod && echo written"));
    node.wait_for_output("third", "main", "written");
    assert_eq!(fs::metadata(directory.join("from-pod")).unwrap().gid(), 3000);
}

#[test]
fn local_disk_is_formatted_once_and_mounted_per_pod() {
    let (mut node, api) = joined();
    let file = node.folder().join("disk");
    fs::File::create(&file).unwrap().set_len(32 << 20).unwrap();
    let disk = Loop::of(&file);
    create_volume(&api, "data", &json!({"local": {"path": disk.0}, "mountOptions": ["noatime"]}));
    api.create(&user("first", 2000, "echo one >>/v/file && grep ' /v ' /proc/mounts && echo written"));
    node.wait_for_output("first", "main", "written");
    let mounted = node.container_log("first", "main").into_iter().next().unwrap().text;
    assert!(mounted.contains("ext4") && mounted.contains("noatime"), "{mounted}");
    // Running pods are not disturbed, not even by an agent restart.
    node.kill_agent();
    node.start_agent();
    api.create(&user("second", 2000, "echo two >>/v/file && echo written"));
    node.wait_for_output("second", "main", "written");
    for name in ["first", "second"] {
        api.delete(&path(name));
        api.wait_gone(&path(name));
    }
    assert_eq!(mounts(&node), 0);
    api.create(&user("third", 2000, "cat /v/file; echo end"));
    node.wait_for_output("third", "main", "end");
    let lines: Vec<String> = node.container_log("third", "main").into_iter().map(|line| line.text).collect();
    assert_eq!(lines, ["one", "two", "end"], "it was formatted once");
    assert_eq!(node.agent_log().matches("formatting empty disk").count(), 1);
    api.delete(&path("third"));
    api.wait_gone(&path("third"));
}

#[test]
fn disk_with_foreign_data_is_not_formatted() {
    let (node, api) = joined();
    let file = node.folder().join("disk");
    let mut content = vec![0; 4 << 20];
    // An empty partition table.
    content[510..512].copy_from_slice(&[0x55, 0xaa]);
    content[446..462].copy_from_slice(&[0, 1, 1, 0, 0x83, 1, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
    fs::write(&file, &content).unwrap();
    let disk = Loop::of(&file);
    let told = |words: &str| {
        api.wait_for(words, |world| {
            let says = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains(words));
            world.list("/api/v1/events").iter().any(|event| says(event))
        });
    };
    create_volume(&api, "data", &json!({"local": {"path": disk.0}}));
    api.create(&user("first", 2000, "true"));
    told("mount: exit status: 32");
    assert!(fs::read(&file).unwrap() == content, "it was written to");
    create_volume(&api, "file", &json!({"local": {"path": file}}));
    let mut other = user("other", 2000, "true");
    other["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = json!("file");
    api.create(&other);
    told("is not a directory or block device");
    for name in ["first", "other"] {
        api.delete(&path(name));
        api.wait_gone(&path(name));
    }
}
