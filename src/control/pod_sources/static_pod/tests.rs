use std::fs;
use std::path::Path;

use serde_json::json;

use super::*;

const ORIGIN: Origin<'_> = Origin {
    source: SourceName::File,
    path: "/etc/kubernetes/manifests/x.yaml",
    node_name: "Node1",
    config_seen: "2026-11-20T20:03:54.626664676Z",
    board_key: None,
};

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: b}]}}";

fn read(text: &str) -> Vec<ManifestObject> {
    read_manifest(text.as_bytes(), &ORIGIN).unwrap()
}

#[track_caller]
fn pod(text: &str) -> Pod {
    let mut objects = read(text);
    assert_eq!(objects.len(), 1);
    pod_of(objects.remove(0))
}

#[track_caller]
fn pod_of(object: ManifestObject) -> Pod {
    match object.object.unwrap() {
        Object::Pod(pod) => *pod,
        other => panic!("{other:?}"),
    }
}

/// Checks the objects, each as its name or its problem.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let objects = read(text);
    let found: Vec<String> = objects
        .iter()
        .map(|object| match &object.object {
            Ok(Object::Agent(agent)) => agent.version.clone(),
            Ok(Object::Config(config)) => config.key.to_string(),
            Ok(Object::Pod(pod)) => pod.metadata.name.clone(),
            Ok(Object::Workload(workload)) => workload.name.clone(),
            Err(_) => object.problem().unwrap(),
        })
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn version_of_the_agent_is_for_the_manifests_of_a_url() {
    let agent = "apiVersion: coracle.dev/v1\nkind: Agent\nspec: {version: 0.9.1, url: 'https://f/c'}\n";
    check(agent, &[ONLY_FROM_A_URL]);
    let of_url = Origin { source: SourceName::Http, ..ORIGIN };
    let read = |text: &str| {
        let object = read_manifest(text.as_bytes(), &of_url).unwrap().remove(0);
        let warnings: Vec<String> = object.warning_lines().collect();
        (object.problem().unwrap_or_default(), warnings)
    };
    assert_eq!(read(agent), (String::new(), Vec::new()));
    let digest = "a".repeat(64);
    for (from, to, problem) in [
        ("0.9.1", "''", "spec.version: required"),
        ("https:", "ftp:", "spec.url: \"ftp://f/c\": must be an http, https or oci URL"),
        ("coracle.dev/v1", "v1", "apiVersion: expected \"coracle.dev/v1\", found \"v1\""),
        ("f/c'", "f/c', sha256: {amd64: A}", "must be 64 hexadecimal digits in lower case"),
        ("f/c'", &format!("f/c', sha256: {{x86_64: {digest}}}"), "spec.sha256.x86_64: must be one of 386, amd64, arm"),
        ("f/c'", "f/c', withinSeconds: 0", "spec.withinSeconds: 0: must be between 1 and 86400"),
    ] {
        let found = read(&agent.replace(from, to)).0;
        assert!(found.contains(problem), "{found}");
    }
    let (problem, warnings) = read(&agent.replace("f/c'", "f/c', windows: x"));
    assert_eq!((&*problem, &*warnings), ("", &["spec.windows: unknown field, ignored".to_owned()][..]));
}

#[test]
fn static_pod_gets_the_kubelets_defaults() {
    let pod = pod(POD);
    assert_eq!(pod.metadata.name, "web-node1");
    assert_eq!(pod.metadata.namespace, "default");
    assert_eq!(pod.spec.node_name, "Node1");
    assert_eq!(pod.status, PodStatus::default());
    let uid = pod.metadata.uid.as_str();
    assert_eq!(
        encode(&pod.metadata.annotations),
        json!({
            "kubernetes.io/config.hash": uid,
            "kubernetes.io/config.seen": "2026-11-20T20:03:54.626664676Z",
            "kubernetes.io/config.source": "file",
        })
    );
    assert_eq!(encode(&pod.spec.tolerations), json!([{"operator": "Exists", "effect": "NoExecute"}]));
    assert!(pod.is_static());
}

#[test]
fn manifest_values_are_kept() {
    let pod = pod("
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: kube-system, uid: mine, annotations: {a: b}}
spec:
  tolerations: [{operator: Exists, effect: NoExecute}]
  containers: [{name: a, image: b}]
status: {phase: Running, podIP: 10.0.0.1}
");
    assert_eq!((pod.metadata.namespace.as_str(), pod.metadata.uid.as_str()), ("kube-system", "mine"));
    assert_eq!(pod.annotation(annotations::CONFIG_HASH), Some("mine"));
    assert_eq!(pod.annotation("a"), Some("b"));
    assert_eq!(pod.spec.tolerations.len(), 1);
    assert_eq!(pod.status, PodStatus::default());
}

#[test]
fn uid_depends_only_on_content_path_and_node() {
    let uid = |text: &str, origin: &Origin<'_>| {
        pod_of(read_manifest(text.as_bytes(), origin).unwrap().remove(0)).metadata.uid.as_str().to_owned()
    };
    let first = uid(POD, &ORIGIN);
    // Must not change between versions: running nodes would get new uids for their pods.
    assert_eq!(first, "f875c20427faa12dfe918e0a2b34e68b");
    assert_eq!(uid(&format!("# remark\n---\n{POD}"), &Origin { config_seen: "later", ..ORIGIN }), first);
    assert_ne!(uid(&POD.replace("image: b", "image: c"), &ORIGIN), first);
    assert_ne!(uid(POD, &Origin { path: "/y.yaml", ..ORIGIN }), first);
    assert_ne!(uid(POD, &Origin { node_name: "other", ..ORIGIN }), first);
}

#[test]
fn uid_ignores_resizable_amounts_and_nothing_else() {
    let uid = |resources: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n  - {{name: a, image: b, resources: {resources}}}\n"
        );
        pod(&text).metadata.uid.as_str().to_owned()
    };
    let first = uid("{requests: {cpu: 100m, memory: 16Mi}, limits: {memory: 32Mi}}");
    assert_eq!(uid("{requests: {cpu: 200m, memory: 8Mi}, limits: {memory: 64Mi}}"), first);
    for other in [
        "{requests: {cpu: 100m, memory: 16Mi}}",
        "{requests: {cpu: 100m, memory: 16Mi}, limits: {memory: 32Mi, cpu: 1}}",
        "{requests: {cpu: 100m, memory: 16Mi, ephemeral-storage: 1Gi}, limits: {memory: 32Mi}}",
        "{}",
    ] {
        assert_ne!(uid(other), first, "{other}");
    }
    let guaranteed = uid("{requests: {cpu: 1, memory: 16Mi}, limits: {cpu: 1, memory: 16Mi}}");
    assert_eq!(uid("{requests: {cpu: 2, memory: 8Mi}, limits: {cpu: 2, memory: 8Mi}}"), guaranteed);
    assert_ne!(
        uid("{requests: {cpu: 1, memory: 8Mi}, limits: {cpu: 2, memory: 8Mi}}"),
        guaranteed,
        "its class changes"
    );
}

#[test]
fn own_uid_is_recognized() {
    assert!(is_own_uid(pod(POD).metadata.uid.as_str()));
    for other in
        ["", "022a85689514a47d3e31e06a7411f0e9", "a450d22a-0fcd-4f0f-96d7-c1407dcdf6c8", "mine", "üüüüüüüüüüüüüüüü"]
    {
        assert!(!is_own_uid(other), "{other}");
    }
}

#[test]
fn hash_is_fnv_128a() {
    let hash = |text: &[u8]| {
        let mut hash = Fnv128a::new();
        hash.write(text);
        hash.0
    };
    assert_eq!(hash(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    assert_eq!(hash(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    assert_eq!(hash(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
}

#[test]
fn documents_and_lists_give_several_pods() {
    check(&format!("{POD}\n---\n{}\n", POD.replace("web", "db")), &["web-node1", "db-node1"]);
    check(
        &format!("apiVersion: v1\nkind: List\nitems:\n- {POD}\n- {}", POD.replace("web", "db")),
        &["web-node1", "db-node1"],
    );
    let bare = "{metadata: {name: web}, spec: {containers: [{name: a, image: b}]}}";
    check(&format!("apiVersion: v1\nkind: PodList\nitems: [{bare}]"), &["web-node1"]);
    check("apiVersion: v1\nkind: List\nitems: []", &[]);
    check("apiVersion: v1\nkind: PodList", &[]);
}

#[test]
fn pod_whose_log_directory_has_too_long_a_name_is_refused() {
    let named = |length: usize| {
        let name = "n".repeat(length);
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: a, image: b}}]}}}}"
        )
    };
    let wrong = "metadata.name: too long: the log directory default_NAME_UID of pod \"";
    let found = |length| read(&named(length)).remove(0).problem();
    assert_eq!(found(208), None);
    let problem = found(209).unwrap();
    assert!(problem.starts_with(wrong), "{problem}");
    assert!(problem.ends_with("\" has 256 bytes, and a file name may have 255"), "{problem}");
    // A name that is invalid anyway has one error.
    assert!(!found(260).unwrap().contains("log directory"));
}

#[test]
fn kind_that_manifests_do_not_have_is_answered_with_what_to_do() {
    for (kind, problem) in [
        ("pod", "kind pod: did you mean Pod?"),
        ("Configmap", "kind Configmap: did you mean ConfigMap?"),
        ("deployment", "kind deployment: did you mean Deployment?"),
        ("ReplicaSet", "kind ReplicaSet: a manifest has its Deployment"),
        ("Ingress", "kind Ingress: a manifest has Pods, ConfigMaps, Secrets, Services, claims and workloads"),
    ] {
        check(&format!("apiVersion: v1\nkind: {kind}\n"), &[problem]);
    }
}

#[test]
fn claim_is_read_with_the_uid_of_its_directory() {
    let claim = |more: &str| {
        format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: data}}, \
             spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 10Mi}}}}{more}}}}}"
        )
    };
    let object = |text: &str| match read(text).remove(0).object {
        Ok(Object::Config(config)) => config,
        other => panic!("{other:?}"),
    };
    let read_claim = object(&claim(""));
    assert_eq!(
        (read_claim.key.to_string().as_str(), read_claim.storage),
        ("PersistentVolumeClaim default/data", Some(10 << 20))
    );
    assert_eq!(read_claim.uid, object(&claim("").replace("10Mi", "20Mi")).uid, "another size is the same directory");
    assert_ne!(read_claim.uid, object(&claim("").replace("{name: data}", "{name: other}")).uid);
    // One that was exported from a cluster keeps its directory.
    assert_eq!(object(&claim("").replace("{name: data}", "{name: data, uid: u-1}")).uid, "u-1");
    let volume = "spec.volumeName: has no meaning on one node: a claim is a new directory";
    check(&claim(", volumeName: v"), &[volume]);
    check(
        &claim(", volumeMode: Block"),
        &["spec.volumeMode: Block has no meaning on one node: a claim is a directory"],
    );
    check(
        &claim("").replace("storage: 10Mi", "storage: 0"),
        &["spec.resources.requests.storage: required: the space that the node has to have free"],
    );
    check(&claim("").replace("[ReadWriteOnce]", "[]"), &["spec.accessModes: required"]);
    let bad = claim("").replace("{name: data}", "{name: data, uid: ../x}");
    assert!(read(&bad)[0].problem().unwrap().starts_with("metadata.uid: \"../x\""));
    let named = |length: usize| claim("").replace("{name: data}", &format!("{{name: {}}}", "n".repeat(length)));
    assert_eq!(read(&named(205))[0].problem(), None);
    let problem = read(&named(206))[0].problem().unwrap();
    assert!(
        problem.starts_with("metadata.name: too long: the directory .pvc-UID_default_NAME of claim \"n"),
        "{problem}"
    );
    assert!(problem.ends_with("\" has 256 bytes, and a file name may have 255"), "{problem}");
    let warnings: Vec<String> = read(&claim(", storageClassName: fast"))[0].warning_lines().collect();
    assert_eq!(warnings, ["spec.storageClassName: no effect on one node: a claim is a directory of the node"]);
    assert_eq!(read(&claim(", storageClassName: local-path"))[0].warning_lines().count(), 0);
}

#[test]
fn deletion_of_an_exported_pod_has_no_effect() {
    let deletion = "deletionTimestamp: '2026-11-20T20:03:54Z', deletionGracePeriodSeconds: 30";
    let object = read(&POD.replace("{name: web}", &format!("{{name: web, {deletion}}}"))).remove(0);
    let why = "no effect on one node: a static pod ends when its manifest is removed";
    assert_eq!(
        object.warning_lines().collect::<Vec<_>>(),
        ["metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds"].map(|path| format!("{path}: {why}"))
    );
    assert_eq!(pod_of(object), pod(POD));
}

#[test]
fn invalid_object_does_not_affect_the_others() {
    check(
        &format!("{POD}\n---\napiVersion: v1\nkind: Ingress\n---\napiVersion: v1\nkind: Pod\nspec: []\n---\n- 1\n"),
        &[
            "web-node1",
            "document 2 (line 2): kind Ingress: a manifest has Pods, ConfigMaps, Secrets, Services, claims and workloads",
            "document 3 (line 5): spec: expected an object, found a list; metadata.name: required",
            "document 4 (line 9): expected an object with apiVersion and kind",
        ],
    );
    check(
        &format!(
            "apiVersion: v1\nkind: List\nitems:\n- {POD}\n- 1\n- {{kind: Ingress}}\n- {{kind: Pod}}\n- {{kind: List}}\n- {{}}"
        ),
        &[
            "web-node1",
            "items[1]: expected an object with apiVersion and kind",
            "items[2]: kind Ingress: a manifest has Pods, ConfigMaps, Secrets, Services, claims and workloads",
            "items[3]: apiVersion: required",
            "items[4]: kind List: a manifest has Pods, ConfigMaps, Secrets, Services, claims and workloads",
            "items[5]: kind: required",
        ],
    );
    check("apiVersion: v1\nkind: List\nitems: {}", &["items: expected a list"]);
    check(
        "apiVersion: v2\nkind: Pod",
        &["apiVersion: expected \"v1\", found \"v2\"; metadata.name: required; spec.containers: required"],
    );
    check("apiVersion: v1\nkind: 3", &["kind: expected the name of a kind, such as Pod"]);
    check("just text", &["expected an object with apiVersion and kind"]);
}

#[test]
fn only_possible_pods_and_configs_keep_their_predecessors() {
    let may_be = |text| {
        let object = read(text).remove(0);
        assert!(object.object.is_err());
        (object.kind.may_be_pod(), object.kind.may_be_config())
    };
    assert_eq!(may_be("{apiVersion: v1, kind: Ingress}"), (false, false));
    assert_eq!(may_be("{apiVersion: v1, kind: ConfigMap}"), (false, true));
    assert_eq!(may_be("{apiVersion: v1, kind: Secret, data: 1}"), (false, true));
    assert_eq!(may_be("{apiVersion: v1, kind: Pod, spec: 1}"), (true, false));
    assert_eq!(may_be("{apiVersion: v1, knid: Pod}"), (true, true));
    assert_eq!(may_be("text"), (true, true));
}

#[test]
fn services_are_read_and_what_needs_a_cluster_is_a_warning() {
    let service = |spec: &str| format!("{{apiVersion: v1, kind: Service, metadata: {{name: db}}, spec: {spec}}}");
    check(&service("{selector: {app: db}, ports: [{port: 5432}]}"), &["Service default/db"]);
    let lines = |spec: &str| -> Vec<String> {
        read(&service(spec)).iter().flat_map(|object| object.warning_lines().collect::<Vec<_>>()).collect()
    };
    assert_eq!(lines("{selector: {app: db}, ports: [{name: sql, port: 5432, targetPort: 5432}]}"), [""; 0]);
    assert_eq!(
        lines("{selector: {app: db}, type: NodePort, sessionAffinity: None, ports: [{port: 80, targetPort: web}]}"),
        [
            "spec.sessionAffinity: no effect on one node: it needs a cluster",
            "spec.type: no effect on one node: NodePort opens no port here: use hostPort in the pod",
            "spec.ports[0].port: no effect on one node: clients reach the pods themselves, at the port that the pod calls \
             web, not at 80",
        ]
    );
    check(
        &service("{type: ExternalName, externalName: example.com}"),
        &["spec.type: ExternalName needs a DNS server: on one node, names lead to addresses of pods"],
    );
    check(
        &service("{ports: [{port: 80}]}"),
        &["spec.selector: required: the labels of the pods that the name leads to"],
    );
}

#[test]
fn config_maps_and_secrets_are_read_and_validated() {
    let config_map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: x}, binaryData: {b: AAEC}}";
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: boats}, \
                  data: {a: b25l, b: b25l}, stringData: {b: two}, immutable: true}";
    let list = format!("apiVersion: v1\nkind: List\nitems:\n- {config_map}\n- {secret}\n- {POD}");
    check(&list, &["ConfigMap default/c", "Secret boats/s", "web-node1"]);
    let configs: Vec<ConfigObject> = read(&list)
        .into_iter()
        .filter_map(|object| match object.object.unwrap() {
            Object::Config(config) => Some(config),
            Object::Agent(_) | Object::Pod(_) | Object::Workload(_) => None,
        })
        .collect();
    let files = |config: &ConfigObject| -> Vec<(String, Vec<u8>)> {
        config.files().map(|(key, value)| (key.to_owned(), value.to_vec())).collect()
    };
    assert_eq!(files(&configs[0]), [("a".to_owned(), b"x".to_vec()), ("b".to_owned(), vec![0, 1, 2])]);
    assert_eq!((configs[0].variables().count(), configs[0].immutable), (1, false));
    assert_eq!(files(&configs[1]), [("a".to_owned(), b"one".to_vec()), ("b".to_owned(), b"two".to_vec())]);
    assert_eq!((configs[1].variables().count(), configs[1].immutable), (2, true));
    assert_eq!(format!("{configs:?}"), "[ConfigObject(ConfigMap default/c), ConfigObject(Secret boats/s)]");

    let wrong = |fields: &str| format!("{{apiVersion: v1, {fields}}}");
    for (fields, problem) in [
        (
            "kind: ConfigMap, metadata: {name: c}, data: {a: 1}",
            "data.a: expected a string, found a number: put it in quotes",
        ),
        ("kind: Secret, metadata: {name: s}, data: {a: '%'}", "data.a: expected base64, with padding"),
        ("kind: ConfigMap", "metadata.name: required"),
        (
            "kind: Secret, metadata: {name: s}, type: kubernetes.io/tls, data: {tls.crt: ''}",
            "data[\"tls.key\"]: required",
        ),
    ] {
        check(&wrong(fields), &[problem]);
    }
}

#[test]
fn unknown_fields_and_duplicate_keys_are_warnings() {
    let object = read(
        "
apiVersion: v1
kind: Pod
metadata: {name: web, lables: {}}
spec:
  containers: [{name: a, image: b, image: c}]
  hostNetwrok: true
",
    )
    .remove(0);
    assert_eq!(
        object.warning_lines().collect::<Vec<_>>(),
        [
            "metadata.lables: unknown field, ignored (did you mean labels?)",
            "spec.hostNetwrok: unknown field, ignored (did you mean hostNetwork?)",
            "spec.containers[0].image is given twice (line 6); the later one counts",
        ]
    );
    assert_eq!(pod_of(object).spec.containers[0].image, "c");
}

fn manifests() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/manifests");
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())).collect()
}

#[test]
fn recorded_manifests_that_need_other_api_objects_are_refused() {
    let mut refused = Vec::new();
    for (name, text) in manifests() {
        for object in read_manifest(&text, &ORIGIN).unwrap() {
            assert!(object.warnings.is_empty(), "{name}: {:?}", object.warnings);
            match object.object {
                Ok(_) => {}
                Err(ObjectError::Unsupported { kind }) => refused.push(kind),
                Err(ObjectError::Invalid(errors)) => {
                    assert!(errors.iter().any(|error| error.to_string().contains("static pods may not reference")));
                    refused.push(name.clone());
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
    refused.sort();
    assert_eq!(refused, ["13-volumes", "Namespace"]);
}

#[test]
fn static_pods_match_the_upstream_kubelets() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let text = fs::read(data.join("manifests/static-one.yaml")).unwrap();
    let recorded = fs::read(data.join("upstream-1.36/pods/static-one-node1.json")).unwrap();
    let recorded: Value = serde_json::from_slice(&recorded).unwrap();
    let mut spec = recorded["spec"].clone();
    for from_the_api_server in ["preemptionPolicy", "priority"] {
        spec.as_object_mut().unwrap().remove(from_the_api_server).unwrap();
    }

    let origin = Origin { node_name: "node1", ..ORIGIN };
    let pod = encode(&pod_of(read_manifest(&text, &origin).unwrap().remove(0)));
    assert_eq!(pod["spec"], spec);
    for same in ["name", "namespace", "labels"] {
        assert_eq!(pod["metadata"][same], recorded["metadata"][same]);
    }
    let keys = |pod: &Value| {
        let annotations = pod["metadata"]["annotations"].as_object().unwrap();
        annotations.keys().filter(|key| *key != annotations::CONFIG_MIRROR).cloned().collect::<Vec<_>>()
    };
    assert_eq!(keys(&pod), keys(&recorded));
}

#[test]
fn truncated_or_corrupt_manifests_do_not_panic_the_reader() {
    for (_, text) in manifests() {
        for end in (0..text.len()).step_by(7) {
            check_manifest(&text[..end]);
            check_manifest(&text[end..]);
            let mut broken = text.clone();
            let nasty = b"{}[]:-&*!|>'\"%@`#,? \n\t\0\xff~<0.";
            broken[end] = nasty[end / 7 % nasty.len()];
            check_manifest(&broken);
        }
    }
}
