//! The inside of a container: volumes, host names, users and limits.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

#[test]
fn container_has_its_host_names_resolver_and_variables() {
    let node = Node::start();
    let script = format!(
        "cat /etc/hosts /etc/resolv.conf | tr '\\t' ' '; echo host $(hostname) ip $IP of $NAME on $NODE limit $LIMIT; {STAY}"
    );
    let field = |name: &str, path: &str| format!("{{name: {name}, valueFrom: {{fieldRef: {{fieldPath: {path}}}}}}}");
    let fields =
        [field("IP", "status.podIP"), field("NAME", "metadata.name"), field("NODE", "spec.nodeName")].join(", ");
    let limit = "{name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}";
    let more = format!("env: [{fields}, {limit}], resources: {{limits: {{memory: 33Mi}}}}");
    let manifest = Manifest::new("web")
        .container_with("main", &script, &more)
        .spec("subdomain: fleet")
        .spec("dnsConfig: {searches: [example], options: [{name: ndots, value: '2'}]}")
        .spec("hostAliases: [{ip: 192.0.2.7, hostnames: [one, two]}]");
    node.apply(&manifest);
    let pods = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let ip = pods.get("web").unwrap().ip();
    for line in [
        "# Kubernetes-managed hosts file.",
        "fe00::2 ip6-allrouters",
        &format!("{ip} web-node-a.fleet.default.svc. web-node-a"),
        "192.0.2.7 one two",
        "nameserver 192.0.2.53",
        "search example",
        "options ndots:2",
        &format!("host web-node-a ip {ip} of web-node-a on node-a limit 33"),
    ] {
        node.wait_for_output("web", "main", line);
    }
}

#[test]
fn all_volumes_but_host_paths_are_removed_with_the_pod() {
    let node = Node::start();
    let host = node.folder().join("host");
    fs::create_dir(&host).unwrap();
    fs::set_permissions(&host, fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "id -u; id -G; df -m /memory | awk 'NR == 2 {{ print $1, $2 }}'; stat -c '%a %g' /disk /memory; \
         echo kept >/part/file; cat /disk/a/b/file; touch /read/x 2>/dev/null || echo refused; \
         echo here >/host/file; mkdir -p /disk/d/e; ln -s /host /disk/link; echo last words >/dev/termination-log; {STAY}"
    );
    let mounts = "volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}, \
                  {name: disk, mountPath: /part, subPath: a/b}, {name: host, mountPath: /host}, \
                  {name: host, mountPath: /read, readOnly: true}]";
    let manifest = Manifest::new("web")
        .container_with("main", &script, mounts)
        .spec("securityContext: {runAsUser: 1000, runAsGroup: 1001, fsGroup: 2000, supplementalGroups: [3000]}")
        .spec("volumes:")
        .spec("- {name: disk, emptyDir: {}}")
        .spec("- {name: memory, emptyDir: {medium: Memory, sizeLimit: 16Mi}}")
        .spec(&format!("- {{name: host, hostPath: {{path: {}, type: Directory}}}}", host.display()));
    node.apply(&manifest);
    for line in ["1000", "1001 2000 3000", "tmpfs 16", "2777 2000", "3777 2000", "kept", "refused"] {
        node.wait_for_output("web", "main", line);
    }
    let pods = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let folder = node.pod_folder(pods.get("web").unwrap().uid());
    let hosts = fs::metadata(folder.join("etc-hosts")).unwrap();
    assert_eq!((hosts.mode() & 0o777, hosts.uid()), (0o644, 0));

    node.remove_manifest("web");
    node.wait_until_gone("web");
    wait_for("the pod's directory to go", PATIENCE, || (!folder.exists()).then_some(()));
    assert_eq!(fs::read_to_string(host.join("file")).unwrap(), "here\n");
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", node.agent_pid())).unwrap();
    // The machine may have mounts of another kubelet.
    let own = folder.parent().unwrap().display().to_string();
    let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&own)).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn pod_waits_for_its_host_path() {
    let node = Node::start();
    let host = node.folder().join("late");
    let manifest = Manifest::new("web")
        .container_with("main", &format!("ls /host; {STAY}"), "volumeMounts: [{name: host, mountPath: /host}]")
        .spec(&format!("volumes: [{{name: host, hostPath: {{path: {}, type: Directory}}}}]", host.display()));
    node.apply(&manifest);
    wait_for("the reason to be told", PATIENCE, || {
        let reason = format!("hostPath type check failed: {} is not a directory", host.display());
        node.agent_log().contains(&reason).then_some(())
    });
    assert_eq!(node.running_containers("web"), []);
    fs::create_dir(&host).unwrap();
    fs::write(host.join("arrived"), "").unwrap();
    node.wait_for_output("web", "main", "arrived");
}

#[test]
fn sub_path_expands_variables_and_stays_inside_the_volume() {
    let node = Node::start();
    let host = node.folder().join("host");
    fs::create_dir(&host).unwrap();
    fs::set_permissions(&host, fs::Permissions::from_mode(0o777)).unwrap();
    let env = "env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: UP, value: '..'}, \
               {name: EMPTY, value: ''}]";
    let pod = |name: &str, expr: &str, script: &str| {
        let mount = format!("{env}, volumeMounts: [{{name: h, mountPath: /h, subPathExpr: '{expr}'}}]");
        Manifest::new(name)
            .container_with("main", &format!("{script}; {STAY}"), &mount)
            .spec(&format!("volumes: [{{name: h, hostPath: {{path: {}}}}}]", host.display()))
    };
    node.apply(&pod("web", "logs/$(POD)", "echo here >/h/file; echo done"));
    node.wait_for_output("web", "main", "done");
    assert_eq!(fs::read_to_string(host.join("logs/web-node-a/file")).unwrap(), "here\n");
    // The container creates a link that leads out of the volume; the next pod tries to use it.
    node.apply(&pod("link", "logs", "ln -s /etc /h/out; echo done"));
    node.wait_for_output("link", "main", "done");
    for (name, expr, message) in [
        ("up", "$(UP)/x", "unable to provision SubPath `../x`: must not contain '..'"),
        ("none", "$(EMPTY)$(NONE)", "missing value for EMPTY, NONE"),
        ("out", "logs/out/$(POD)", "failed to prepare subPath for volumeMount \"h\" of container \"main\""),
    ] {
        node.apply(&pod(name, expr, ""));
        node.wait_until(message, |pods| {
            pods.has(name, |pod| {
                let main = pod.container("main");
                main.is_waiting_for("CreateContainerConfigError") && main.waiting_message().starts_with(message)
            })
        });
        assert!(node.running_containers(name).is_empty());
    }
    assert!(!std::path::Path::new("/etc/out-node-a").exists());
}

#[test]
fn variable_can_come_from_a_file_of_an_init_container() {
    let node = Node::start();
    let key = |name: &str, key: &str, optional: bool| {
        let from = format!("{{volumeName: v, path: conf/env, key: {key}, optional: {optional}}}");
        format!("{{name: {name}, valueFrom: {{fileKeyRef: {from}}}}}")
    };
    let env = format!("env: [{}, {}]", key("A", "KEY", false), key("B", "NONE", true));
    let text = Manifest::new("web")
        .init_container("first", "mkdir /v/conf; printf \"# made here\\nKEY='a b'\\n\" >/v/conf/env")
        .container_with("main", &format!("echo \"<$A><$B>\"; {STAY}"), &env)
        .spec("volumes: [{name: v, emptyDir: {}}]")
        .text();
    let mounted = text.replace("{name: first,", "{name: first, volumeMounts: [{name: v, mountPath: /v}],");
    node.write_manifest("web", &mounted);
    node.wait_for_output("web", "main", "<a b><>");
    node.write_manifest("other", &mounted.replace("name: web", "name: other").replace("key: KEY", "key: OTHER"));
    node.wait_until("it waits", |pods| {
        pods.has("other", |pod| {
            let message = "environment variable key \"OTHER\" not found in file ";
            pod.container("main").waiting_message().starts_with(message)
        })
    });
}

#[test]
fn image_volumes_need_runtime_support() {
    let node = Node::start();
    let manifest = Manifest::new("web")
        .container_with("main", STAY, "volumeMounts: [{name: v, mountPath: /v}]")
        .spec("volumes: [{name: v, image: {reference: localhost/coracle/busybox:1, pullPolicy: Never}}]");
    node.apply(&manifest);
    let pods = node.wait_until("it waits or runs", |pods| {
        pods.has("web", |pod| pod.is_ready() || pod.container("main").is_waiting_for("CreateContainerError"))
    });
    let pod = pods.get("web").unwrap();
    assert!(pod.is_ready() || pod.container("main").waiting_message().contains("mkdir"), "{pod:?}");
}
