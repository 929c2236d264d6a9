//! ConfigMaps and Secrets from the manifest directory, as files and variables of running containers.

use jiff::Timestamp;

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

/// A script that prints the file whenever its content changes.
fn follow(file: &str) -> String {
    format!(
        "trap exit TERM; last=; while :; do now=$(cat {file} 2>&1); [ \"$now\" = \"$last\" ] || echo \"$now\"; \
         last=$now; sleep 0.01 & wait $!; done"
    )
}

fn config_map(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {data}\n")
}

fn secret(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {data}\n")
}

/// A pod that mounts one volume at /v and runs a script.
fn with_volume(name: &str, script: &str, source: &str) -> Manifest {
    Manifest::new(name)
        .container_with("main", script, "volumeMounts: [{name: v, mountPath: /v}]")
        .spec(&format!("volumes: [{{name: v, {source}}}]"))
}

#[test]
fn mounted_file_follows_its_config_map_without_a_restart() {
    let node = Node::start();
    node.write_manifest("config", &config_map("c", "{key: one}"));
    node.apply(&with_volume("web", &follow("/v/key"), "configMap: {name: c}"));
    node.wait_for_output("web", "main", "one");
    let id = node.running_containers("web")[0].id.clone();
    for value in ["two", "three"] {
        let written = Timestamp::now();
        node.write_manifest("config", &config_map("c", &format!("{{key: {value}}}")));
        let seen = node.wait_for_output("web", "main", value);
        let delay = seen.duration_since(written);
        // The directory is re-listed only every 20 s and the pod synced only every minute.
        assert!(delay.as_secs() < 15, "{value} was seen after {delay:?}");
    }
    // A broken or removed ConfigMap leaves the mounted file unchanged.
    node.write_manifest("config", &config_map("c", "{key: [1]}"));
    wait_for("the mistake to be told", PATIENCE, || node.source_errors().contains("data.key").then_some(()));
    node.remove_manifest("config");
    wait_for("the removal to be told", PATIENCE, || {
        let line = "configmap \"c\" not found";
        node.agent_log().contains(line).then_some(())
    });
    node.write_manifest("config", &config_map("c", "{key: four}"));
    node.wait_for_output("web", "main", "four");
    let lines: Vec<String> = node.container_log("web", "main").into_iter().map(|line| line.text).collect();
    assert_eq!(lines, ["one", "two", "three", "four"]);
    assert_eq!(node.running_containers("web")[0].id, id);
    assert_eq!(node.pods().get("web").unwrap().container("main").restarts(), 0);
}

#[test]
fn mounted_files_show_changes_made_while_the_agent_was_down() {
    let mut node = Node::start();
    node.write_manifest("config", &config_map("c", "{key: one}"));
    node.apply(&with_volume("web", &follow("/v/key"), "configMap: {name: c}"));
    node.wait_for_output("web", "main", "one");
    // A runtime rolls back a start whose caller is killed before the answer, even if the container already runs.
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    node.kill_agent();
    node.write_manifest("config", &config_map("c", "{key: two}"));
    node.start_agent();
    node.wait_for_output("web", "main", "two");
    assert_eq!(node.pods().get("web").unwrap().container("main").restarts(), 0);
}

#[test]
fn secret_stays_in_memory_and_is_readable_by_the_pods_group() {
    let node = Node::start();
    let script =
        format!("id -u; stat -f -c %T /v; stat -L -c '%a %g %n' /v /v/key; cat /v/key; echo; touch /v/x 2>&1; {STAY}");
    let manifest = with_volume("web", &script, "secret: {secretName: s, defaultMode: 0400}")
        .spec("securityContext: {runAsUser: 1000, fsGroup: 2000}");
    node.write_manifest("web", &format!("{}---\n{}", secret("s", "{key: hush}"), manifest.text()));
    for line in ["1000", "tmpfs", "3777 2000 /v", "440 2000 /v/key", "hush", "touch: /v/x: Read-only file system"] {
        node.wait_for_output("web", "main", line);
    }
    let pods = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let folder = node.pod_folder(pods.get("web").unwrap().uid()).join("volumes/kubernetes.io~secret/v");
    // The tmpfs is mounted inside the test's namespaces; outside of them the directory is empty.
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "the secret is on the disk");
    assert!(!node.agent_log().contains("hush"));
}

#[test]
fn projected_volume_combines_objects_and_pod_fields() {
    let node = Node::start();
    let script = format!(
        "cd /v; find . -follow -type f ! -path './..*' | sort | while read f; do echo $f $(cat $f); done; {STAY}"
    );
    let source = "projected: {sources: [\
        {configMap: {name: c, items: [{key: a, path: conf/a}]}}, {secret: {name: s}}, \
        {secret: {name: none, optional: true}}, \
        {downwardAPI: {items: [{path: me/labels, fieldRef: {fieldPath: metadata.labels}}, \
            {path: me/memory, resourceFieldRef: {containerName: main, resource: limits.memory, divisor: 1Mi}}]}}]}";
    let pod = Manifest::new("web")
        .container_with(
            "main",
            &script,
            "volumeMounts: [{name: v, mountPath: /v}], resources: {limits: {memory: 33Mi}}",
        )
        .spec(&format!("volumes: [{{name: v, {source}}}]"))
        .text()
        .replace("metadata: {name: web}", "metadata: {name: web, labels: {app: web, tier: front}}");
    let objects = format!("{}---\n{}", config_map("c", "{a: one, b: two}"), secret("s", "{key: hush}"));
    node.write_manifest("web", &format!("{objects}---\n{pod}"));
    for line in ["./conf/a one", "./key hush", "./me/labels app=\"web\" tier=\"front\"", "./me/memory 33"] {
        node.wait_for_output("web", "main", line);
    }
    assert!(!node.container_log("web", "main").iter().any(|line| line.text.contains("two")));
}

#[test]
fn downward_api_file_follows_the_labels_of_the_manifest() {
    let node = Node::start();
    let item = "{path: app, fieldRef: {fieldPath: \"metadata.labels['app']\"}}";
    let manifest = with_volume("web", &follow("/v/app"), &format!("downwardAPI: {{items: [{item}]}}")).text();
    let labelled = |value: &str| {
        let meta = format!("metadata: {{name: web, uid: mine, labels: {{app: {value}}}}}");
        manifest.replace("metadata: {name: web}", &meta)
    };
    node.write_manifest("web", &labelled("blue"));
    node.wait_for_output("web", "main", "blue");
    node.write_manifest("web", &labelled("green"));
    node.wait_for_output("web", "main", "green");
    assert_eq!(node.pods().get("web").unwrap().container("main").restarts(), 0);
}

#[test]
fn container_waits_for_the_objects_of_its_variables() {
    let node = Node::start();
    let env = "env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: a}}}, \
               {name: NONE, valueFrom: {secretKeyRef: {name: none, key: x, optional: true}}}], \
               envFrom: [{prefix: S_, secretRef: {name: s}}, {configMapRef: {name: none, optional: true}}]";
    node.apply(&Manifest::new("web").container_with("main", &format!("echo $A $S_key $NONE.; {STAY}"), env));
    let waiting = |message: &str| {
        node.wait_until(&format!("it waits: {message}"), |pods| {
            pods.has("web", |pod| {
                let main = pod.container("main");
                main.is_waiting_for("CreateContainerConfigError") && main.waiting_message() == message
            })
        });
    };
    waiting("secret \"s\" not found");
    node.write_manifest("secret", &secret("s", "{key: hush}"));
    waiting("configmap \"c\" not found");
    node.write_manifest("config", &config_map("c", "{b: two}"));
    waiting("couldn't find key a in ConfigMap default/c");
    node.write_manifest("config", &config_map("c", "{a: one}"));
    node.wait_for_output("web", "main", "one hush .");
}

#[test]
fn pod_waits_for_the_objects_of_its_volumes() {
    let node = Node::start();
    node.apply(&with_volume("web", &format!("cat /v/key; echo; {STAY}"), "secret: {secretName: s}"));
    wait_for("the reason to be told", PATIENCE, || {
        let reason = "MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found";
        node.agent_log().contains(reason).then_some(())
    });
    node.wait_until("it waits", |pods| {
        pods.has("web", |pod| pod.container("main").is_waiting_for("ContainerCreating"))
    });
    assert_eq!(node.tasks_of("web"), []);
    node.write_manifest("secret", &secret("s", "{key: hush}"));
    node.wait_for_output("web", "main", "hush");
}

#[test]
fn objects_of_another_namespace_are_not_found() {
    let node = Node::start();
    let foreign = config_map("c", "{key: one}").replace("name: c", "name: c, namespace: other");
    node.write_manifest("config", &foreign);
    node.apply(&with_volume("web", STAY, "configMap: {name: c}"));
    wait_for("the reason to be told", PATIENCE, || {
        node.agent_log().contains("configmap \"c\" not found").then_some(())
    });
    assert_eq!(node.tasks_of("web"), []);
}

#[test]
fn change_of_an_immutable_config_map_is_rejected_and_reported() {
    let node = Node::start();
    let immutable = |value: &str| format!("{}immutable: true\n", config_map("c", &format!("{{key: {value}}}")));
    node.write_manifest("config", &immutable("one"));
    node.write_manifest("other", &config_map("d", "{key: a}"));
    let mounts = "volumeMounts: [{name: c, mountPath: /c}, {name: d, mountPath: /d}]";
    node.apply(
        &Manifest::new("web")
            .container_with("main", &follow("/c/key /d/key"), mounts)
            .spec("volumes: [{name: c, configMap: {name: c}}, {name: d, configMap: {name: d}}]"),
    );
    node.wait_for_output("web", "main", "onea");
    node.write_manifest("config", &immutable("two"));
    wait_for("the refusal to be told", PATIENCE, || {
        node.source_errors().contains("ConfigMap default/c is immutable").then_some(())
    });
    node.write_manifest("other", &config_map("d", "{key: b}"));
    node.wait_for_output("web", "main", "oneb");
}

#[test]
fn full_disk_keeps_the_pod_pending_without_partly_written_files() {
    let mut node = Node::with_runtime();
    let root = node.folder().join("pods");
    node.enclosure().run(&["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", &root.display().to_string()]);
    let large = "x".repeat(600 * 1024);
    node.write_manifest("config", &config_map("c", &format!("{{first: small, key: {large}}}")));
    node.enclosure().run(&["dd", "if=/dev/zero", &format!("of={}/ballast", root.display()), "bs=1k", "count=500"]);
    node.start_agent();
    node.apply(&with_volume("web", &format!("wc -c </v/key; {STAY}"), "configMap: {name: c}"));
    wait_for("the reason to be told", PATIENCE, || {
        let log = node.agent_log();
        (log.contains("MountVolume.SetUp failed for volume \"v\" : write ") && log.contains("No space left"))
            .then_some(())
    });
    let volume = node.enclosure().path(&root.join("pods"));
    let uid = std::fs::read_dir(&volume).unwrap().next().unwrap().unwrap().path();
    let left = std::fs::read_dir(uid.join("volumes/kubernetes.io~configmap/v")).unwrap().count();
    assert_eq!(left, 0, "something was left half written");
    assert_eq!(node.tasks_of("web"), []);
    node.enclosure().run(&["rm", &format!("{}/ballast", root.display())]);
    node.wait_for_output("web", "main", "614400");
}
