//! Usual mistakes: what `coracle pods` and `coracle status` say of each pod, and `coracle status` of each manifest. The
//! page says the same: `browser` has these tables as its input.

use std::process::Command;
use std::time::{Duration, Instant};

use super::node::{BUSYBOX, Node, STAY, coracle, wait_for};

/// Name, spec (YAML in one line; IMAGE is the image, STAY a command that keeps running), and the sentence about it.
pub(crate) const MISTAKES: [(&str, &str, &str); 25] = [
    (
        "secret",
        "containers: [{name: main, image: IMAGE, command: STAY, env: [{name: A, valueFrom: {secretKeyRef: {name: gone, key: a}}}]}]",
        "CreateContainerConfigError: container main: secret \"gone\" not found",
    ),
    (
        "map-volume",
        "containers: [{name: main, image: IMAGE, command: STAY, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, configMap: {name: gone}}]",
        "FailedMount: volume \"v\" : configmap \"gone\" not found",
    ),
    (
        "host-path",
        "containers: [{name: main, image: IMAGE, command: STAY, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, hostPath: {path: /no/such, type: Directory}}]",
        "FailedMount: volume \"v\" : hostPath type check failed: /no/such is not a directory",
    ),
    (
        "command",
        "containers: [{name: main, image: IMAGE, command: [/bin/absent]}]",
        "container main: its command is not in the image",
    ),
    (
        "not-executable",
        "containers: [{name: main, image: IMAGE, command: [/etc]}]",
        "container main: its command may not be executed",
    ),
    (
        "crash",
        "containers: [{name: main, image: IMAGE, command: [sh, -c, 'exit 3']}]",
        "CrashLoopBackOff: container main exits with code 3 (",
    ),
    (
        "shell-typo",
        "containers: [{name: main, image: IMAGE, command: [sh, -c, abcent]}]",
        "CrashLoopBackOff: container main exits with code 127 (",
    ),
    (
        "ends",
        "containers: [{name: main, image: IMAGE, command: ['true']}]",
        "CrashLoopBackOff: container main ends with success and is started again (",
    ),
    (
        "memory",
        "containers: [{name: main, image: IMAGE, command: [sh, -c, 'x=a; while true; do x=$x$x; done'], resources: {limits: {memory: 8Mi}}}]",
        "container main is killed because it uses more memory than it may (OOMKilled)",
    ),
    (
        "init",
        "initContainers: [{name: first, image: IMAGE, command: [sh, -c, 'exit 4']}], containers: [{name: main, image: IMAGE, command: STAY}]",
        "CrashLoopBackOff: init container first exits with code 4 (",
    ),
    (
        "once",
        "restartPolicy: Never, containers: [{name: main, image: IMAGE, command: [sh, -c, 'exit 5']}]",
        "Error: container main exits with code 5",
    ),
    (
        "port-a",
        "containers: [{name: main, image: IMAGE, command: STAY, ports: [{containerPort: 80, hostPort: 21480}]}]",
        "",
    ),
    (
        "port-b",
        "containers: [{name: main, image: IMAGE, command: STAY, ports: [{containerPort: 80, hostPort: 21480}]}]",
        "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: TCP port 21480 \
         is used by default/port-a-node-a",
    ),
    (
        "hungry",
        "containers: [{name: main, image: IMAGE, command: STAY, resources: {requests: {memory: 900Gi}}}]",
        "OutOfmemory: Node didn't have enough resource: memory, requested: 966367641600",
    ),
    (
        "selector",
        "nodeSelector: {place: mast}, containers: [{name: main, image: IMAGE, command: STAY}]",
        "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    ),
    (
        "absent-image",
        "containers: [{name: main, image: 'localhost/absent:1', imagePullPolicy: Never, command: STAY}]",
        "ErrImageNeverPull: container main: image localhost/absent:1 is not on the node, and imagePullPolicy is Never",
    ),
    (
        "no-registry",
        "containers: [{name: main, image: '127.0.0.1:9/absent:1', command: STAY}]",
        "container main: image 127.0.0.1:9/absent:1 cannot be pulled: the registry cannot be reached",
    ),
    (
        "root",
        "containers: [{name: main, image: IMAGE, command: STAY, securityContext: {runAsNonRoot: true}}]",
        "CreateContainerConfigError: container main: container has runAsNonRoot and image will run as root",
    ),
    (
        "liveness",
        "containers: [{name: main, image: IMAGE, command: STAY, livenessProbe: {exec: {command: ['false']}, periodSeconds: 1, failureThreshold: 1}}], \
         terminationGracePeriodSeconds: 0",
        "CrashLoopBackOff: container main is restarted because its liveness probe fails (",
    ),
    (
        "readiness",
        "containers: [{name: main, image: IMAGE, command: STAY, readinessProbe: {exec: {command: ['false']}, periodSeconds: 1}}]",
        "NotReady: container main is not ready: its readiness probe does not succeed",
    ),
    (
        "hook",
        "containers: [{name: main, image: IMAGE, command: STAY, lifecycle: {postStart: {exec: {command: ['false']}}}}], \
         terminationGracePeriodSeconds: 0",
        "CrashLoopBackOff: container main is restarted because its postStart hook fails (",
    ),
    (
        "file-on-directory",
        "containers: [{name: main, image: IMAGE, command: STAY, volumeMounts: [{name: v, mountPath: /etc}]}], \
         volumes: [{name: v, hostPath: {path: /etc/passwd, type: File}}]",
        "container main: a mount's source and target are a file and a directory",
    ),
    (
        "tiny",
        "containers: [{name: main, image: IMAGE, command: STAY, resources: {limits: {memory: 1Mi}}}]",
        "container main: its memory limit is too low to start it",
    ),
    (
        "probe-port",
        "containers: [{name: main, image: IMAGE, command: STAY, ports: [{name: http, containerPort: 80}], livenessProbe: {httpGet: {port: htpp}}}]",
        "Unhealthy: container main: its liveness probe does not run: no port of the container is named \"htpp\"",
    ),
    (
        "device",
        "containers: [{name: main, image: IMAGE, command: STAY, resources: {limits: {example.com/gpu: 1}}}]",
        "FailedSync: the pod waits for its devices: no device plugin has registered example.com/gpu",
    ),
];

/// Name, manifest, and the sentence about a manifest that is refused.
pub(crate) const REFUSED: [(&str, &str, &str); 22] = [
    ("bad-empty", "", "there is nothing in the file; to remove its pods, delete it"),
    (
        "bad-tab",
        "apiVersion: v1\nkind: Pod\nmetadata:\n\tname: a\n",
        "line 4, column 1: not YAML: while scanning for the next token, found a tab character",
    ),
    ("bad-indent", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n spec: {}\n", "line 5, column 2: not YAML"),
    ("bad-case", "{apiVersion: v1, kind: pod, metadata: {name: a}}", "kind pod: did you mean Pod?"),
    (
        "bad-kind",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}",
        "spec.selector: required: the labels of the template",
    ),
    (
        "bad-no-name",
        "{apiVersion: v1, kind: Pod, spec: {containers: [{name: main, image: a}]}}",
        "metadata.name: required",
    ),
    (
        "bad-name",
        "{apiVersion: v1, kind: Pod, metadata: {name: My_Pod}, spec: {containers: [{name: main, image: a}]}}",
        "must be a DNS subdomain (RFC 1123): at most 253 lower case letters, digits, '-' or '.'",
    ),
    (
        "bad-containers",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {container: []}}",
        "spec.containers: required",
    ),
    (
        "bad-image",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, imgae: a}]}}",
        "spec.containers[0].image: required",
    ),
    (
        "bad-port",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a, ports: [{containerPort: 80000}]}]}}",
        "spec.containers[0].ports[0].containerPort: 80000: must be from 1 to 65535",
    ),
    (
        "bad-quotes",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a, ports: [{containerPort: '80'}]}]}}",
        "spec.containers[0].ports[0].containerPort: expected a number, found a string: remove the quotes",
    ),
    (
        "bad-template",
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Values.name }}\n",
        "line 4, column 10: a list or an object cannot be a key: put a text that begins with a bracket in quotes",
    ),
    (
        "bad-value",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a, env: [{name: A, value: 1}]}]}}",
        "spec.containers[0].env[0].value: expected a string, found a number: put it in quotes",
    ),
    (
        "bad-variables",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a, env: {A: b}}]}}",
        "spec.containers[0].env: expected a list, found an object: begin each entry with a dash",
    ),
    (
        "bad-memory",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a, resources: {limits: {memory: 64MB}}}]}}",
        "expected a quantity that ends in n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or e<number>, found \"64MB\"",
    ),
    (
        "bad-request",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a, resources: {requests: {memory: 2Mi}, limits: {memory: 1Mi}}}]}}",
        "spec.containers[0].resources.requests.memory: \"2Mi\": must be at most the limit, 1Mi",
    ),
    (
        "bad-mount",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a, volumeMounts: [{name: v, mountPath: /v}]}]}}",
        "spec.containers[0].volumeMounts[0].name: \"v\": no volume has this name",
    ),
    (
        "bad-restart",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {restartPolicy: always, containers: [{name: main, image: a}]}}",
        "spec.restartPolicy: expected \"Always\", \"Never\" or \"OnFailure\", found \"always\"",
    ),
    (
        "bad-same",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a}, {name: main, image: b}]}}",
        "spec.containers[1].name: \"main\": duplicate",
    ),
    (
        "bad-host-port",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {hostNetwork: true, containers: [{name: main, image: a, ports: [{containerPort: 80, hostPort: 81}]}]}}",
        "hostPort: 81: must be the containerPort when hostNetwork is true",
    ),
    (
        "bad-claim",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a}], volumes: [{name: v, ephemeral: {}}]}}",
        "spec.volumes[0].ephemeral: static pods may not reference persistentvolumeclaims (via ephemeral volumes)",
    ),
    (
        "bad-probe",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main, image: a, livenessProbe: {periodSeconds: 3}}]}}",
        "spec.containers[0].livenessProbe: one of exec, grpc, httpGet or tcpSocket is required",
    ),
];

/// Longer than the 30 s after which a failed mount or an unready container is a problem, and than the back-off of the
/// first restarts.
pub(crate) const FIRST_MINUTES: Duration = Duration::from_secs(150);

#[test]
fn each_mistake_is_named_by_pods_and_status() {
    let node = Node::start();
    write_mistakes(&node);
    node.write_manifest("typo", "apiVersion: v1\nkind: Pod\nmetadata: {name: typo}\nspec: {container: []}\n");
    wait_until_all_are_named(&node);
    let status = node.ask(&["status"]).unwrap();
    assert!(status.contains("manifest: ") && status.contains("typo.yaml"), "{status}");
    assert!(status.contains("Health:   degraded, "), "{status}");
    assert_eq!(exit_status(&node), Some(3));
    for (name, ..) in MISTAKES.iter().filter(|(name, ..)| *name != "port-a") {
        node.remove_manifest(name);
    }
    node.remove_manifest("typo");
    wait_for("the other pods to end", FIRST_MINUTES, || {
        node.ask(&["status"])?.contains("Pods:     1 (1 running)\n").then_some(())
    });
    let status = node.ask(&["status"]).unwrap();
    assert!(status.contains("Health:   ok\n"), "{status}");
    assert_eq!(exit_status(&node), Some(0));
}

#[test]
fn each_refused_manifest_is_named_by_status() {
    let node = Node::start();
    for (name, manifest, _) in REFUSED {
        node.write_manifest(name, manifest);
    }
    let mut unseen = REFUSED.to_vec();
    wait_for("all manifests to be named", FIRST_MINUTES, || {
        let status = node.ask(&["status"])?;
        unseen.retain(|(name, _, sentence)| {
            let file = format!("{name}.yaml");
            !status.lines().any(|line| line.contains(&file) && line.contains(sentence))
        });
        unseen.is_empty().then_some(())
    });
    assert_eq!(exit_status(&node), Some(3));
}

pub(crate) fn write_mistakes(node: &Node) {
    for (name, spec, _) in MISTAKES {
        let spec = spec.replace("IMAGE", BUSYBOX).replace("STAY", &format!("[sh, -c, {STAY:?}]"));
        node.write_manifest(
            name,
            &format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{spec}}}}}\n"),
        );
        // The order decides who gets a port.
        if name == "port-a" {
            node.wait_until("port-a runs", |pods| pods.has("port-a", |pod| pod.is_ready()));
        }
    }
}

/// A crash loop is named while it waits, not while its container runs, so each sentence counts once it was seen.
#[track_caller]
fn wait_until_all_are_named(node: &Node) {
    let mut unseen: Vec<_> = MISTAKES.iter().filter(|(.., sentence)| !sentence.is_empty()).collect();
    let until = Instant::now() + FIRST_MINUTES;
    while !unseen.is_empty() {
        let (pods, status) = (node.ask(&["pods"]).unwrap_or_default(), node.ask(&["status"]).unwrap_or_default());
        unseen.retain(|(name, _, sentence)| {
            let subject = format!("pod default/{name}-node-a: ");
            let is_named = |text: &str| text.lines().any(|line| line.contains(&subject) && line.contains(sentence));
            !(is_named(&pods) && is_named(&status))
        });
        let names: Vec<&str> = unseen.iter().map(|(name, ..)| *name).collect();
        assert!(Instant::now() < until, "not named: {names:?}; status: {status}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn exit_status(node: &Node) -> Option<i32> {
    let socket = node.folder().join("coracle.sock");
    Command::new(coracle()).arg("status").arg("--local-socket").arg(socket).output().unwrap().status.code()
}
