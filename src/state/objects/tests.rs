use serde_json::{Value, json};

use super::*;
use crate::types::api::{ConfigMap, Pod, Secret, decode};

fn config_map(name: &str, data: Value, immutable: bool) -> ConfigObject {
    let object = json!({"metadata": {"namespace": "ns", "name": name}, "data": data, "immutable": immutable});
    decode::<ConfigMap>(object).unwrap().value.into()
}

fn from(origin: &str, object: ConfigObject) -> SourceObject {
    SourceObject {
        object: Arc::new(object),
        origin: origin.into(),
        since: Time::from_timestamp(crate::types::timestamp::Timestamp::UNIX_EPOCH),
    }
}

fn a(text: &str) -> SourceObject {
    from("/m/a", config_map("a", json!({"k": text}), false))
}

/// Keys of changed objects, and the reasons for ignored ones.
fn replace(store: &mut Objects, objects: &[SourceObject]) -> (Vec<String>, Vec<String>) {
    let changes = store.replace(objects);
    let refused = changes.refused.into_iter().map(|(object, why)| format!("{}: {why}", object.origin));
    (changes.keys.iter().map(ToString::to_string).collect(), refused.collect())
}

fn pod_in(namespace: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = namespace.to_owned();
    pod
}

fn value(store: &Objects, name: &str) -> Option<String> {
    let Lookup::Found(object) = store.get(&pod_in("ns"), ObjectKind::ConfigMap, name) else { return None };
    Some(String::from_utf8(object.variable("k")?.to_vec()).unwrap())
}

const NONE: [String; 0] = [];

#[test]
fn added_changed_and_removed_objects_are_reported() {
    let mut store = Objects::default();
    assert_eq!(replace(&mut store, &[a("1")]), (vec!["ConfigMap ns/a".to_owned()], NONE.to_vec()));
    assert_eq!(replace(&mut store, &[a("1")]), (NONE.to_vec(), NONE.to_vec()));
    assert_eq!(replace(&mut store, &[a("2")]).0, ["ConfigMap ns/a"]);
    assert_eq!(value(&store, "a").as_deref(), Some("2"));
    assert_eq!(replace(&mut store, &[]).0, ["ConfigMap ns/a"]);
    assert_eq!(value(&store, "a"), None);
}

#[test]
fn kind_namespace_and_name_identify_an_object() {
    let secret: ConfigObject =
        decode::<Secret>(json!({"metadata": {"namespace": "ns", "name": "a"}})).unwrap().value.into();
    let mut store = Objects::default();
    assert_eq!(replace(&mut store, &[a("1"), from("/m/a", secret)]).0.len(), 2);
    assert!(matches!(store.get(&pod_in("ns"), ObjectKind::Secret, "a"), Lookup::Found(_)));
    assert!(store.get(&pod_in("other"), ObjectKind::ConfigMap, "a") == Lookup::Missing);
    assert!(store.get(&pod_in("ns"), ObjectKind::ConfigMap, "b") == Lookup::Missing);
}

#[test]
fn of_two_equal_names_the_one_in_use_wins() {
    let mut store = Objects::default();
    let other = |text: &str| from("/m/b", config_map("a", json!({"k": text}), false));
    replace(&mut store, &[other("b")]);
    let (changed, refused) = replace(&mut store, &[a("a"), other("b")]);
    assert_eq!(changed, NONE);
    assert_eq!(refused, ["/m/a: ConfigMap ns/a is ignored: already defined in /m/b"]);
    assert_eq!(replace(&mut store, &[a("a")]).0.len(), 1);
    assert_eq!(value(&store, "a").as_deref(), Some("a"));
}

#[test]
fn immutable_object_stays_until_removed() {
    let mut store = Objects::default();
    let immutable = |text: &str, immutable| from("/m/a", config_map("a", json!({"k": text}), immutable));
    replace(&mut store, &[immutable("1", true)]);
    for changed in [immutable("2", true), immutable("2", false), immutable("1", false)] {
        let (changed, refused) = replace(&mut store, &[changed]);
        assert_eq!((changed, refused.len()), (NONE.to_vec(), 1));
        assert_eq!(refused[0], "/m/a: ConfigMap ns/a is immutable, keeping the previous version");
        assert_eq!(value(&store, "a").as_deref(), Some("1"));
    }
    replace(&mut store, &[]);
    replace(&mut store, &[immutable("3", false)]);
    assert_eq!(value(&store, "a").as_deref(), Some("3"));
}

#[test]
fn claim_of_a_cluster_is_read_with_its_volume_only() {
    let mut pod: Pod = decode(json!({
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
    }))
    .unwrap()
    .value;
    let is_own = |topic: &Topic| matches!(topic, Topic::Object(key) if key.kind == ObjectKind::VolumeClaim);
    let topics = Topic::of(&pod);
    assert!(topics.iter().any(|topic| matches!(topic, Topic::Claim { .. })) && !topics.iter().any(is_own));
    pod.metadata.annotations.insert(crate::types::api::annotations::CONFIG_SOURCE, "file".to_owned());
    assert!(Topic::of(&pod).iter().any(is_own));
}

#[test]
fn token_beyond_the_limit_of_a_pod_is_refused_by_its_name() {
    let tokens = |name: &str| -> Vec<Value> {
        let token = |number| json!({"serviceAccountToken": {"path": "t", "audience": format!("{name}-{number}")}});
        (0..MAX_POD_TOKENS).map(token).collect()
    };
    // The first ones are repeated, and sort after the others.
    let sources = [tokens("first"), tokens("first"), tokens("beyond")].concat();
    let metadata = json!({"name": "p", "namespace": "ns", "uid": "u"});
    let spec = json!({"nodeName": "n", "volumes": [{"name": "v", "projected": {"sources": sources}}]});
    let pod: Arc<Pod> = Arc::new(decode(json!({"metadata": metadata, "spec": spec})).unwrap().value);
    let key = |audience: &str| TokenKey::for_driver(&pod, &(audience.to_owned(), 3600));
    let mut objects = Objects::default();
    objects.set_pods(&[Arc::clone(&pod)]);
    let why = |objects: &Objects, audience: &str| match objects.token(key(audience)) {
        Lookup::Unknown(why) => why,
        other => format!("{other:?}"),
    };
    assert_eq!(why(&objects, "beyond-0"), "not read from the API server yet");
    let topics = Topic::of(&pod);
    let requested: Vec<&Topic> = topics.iter().filter(|topic| matches!(topic, Topic::Token(_))).collect();
    assert_eq!(requested.len(), MAX_POD_TOKENS);
    for topic in &topics {
        objects.on_event(ObjectEvent::Failed(topic.clone(), "refused".to_owned()));
    }
    assert_eq!(why(&objects, "first-63"), "refused");
    assert_eq!(
        why(&objects, "beyond-0"),
        "audience \"beyond-0\" with expirationSeconds 3600 is not among the first 64 different tokens of the pod, \
         the most that a pod gets"
    );
}

#[test]
fn pod_that_replaces_the_last_user_of_a_claim_waits_for_its_volume() {
    let pod = |uid: &str| -> Arc<Pod> {
        let annotations = json!({(crate::types::api::annotations::CONFIG_SOURCE): "api"});
        let metadata = json!({"name": "p", "namespace": "ns", "uid": uid, "annotations": annotations});
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        let spec = json!({"nodeName": "n", "enableServiceLinks": false, "volumes": [volume]});
        Arc::new(decode(json!({"metadata": metadata, "spec": spec})).unwrap().value)
    };
    let [former, next] = ["former", "next"].map(pod);
    let claim = Topic::claim(&former, &former.spec.volumes[0]).unwrap();
    let mut objects = Objects::default();
    let set = |objects: &mut Objects, pods: &[&Arc<Pod>]| -> Vec<Topic> {
        let pods: Vec<Arc<Pod>> = pods.iter().copied().cloned().collect();
        objects.set_pods(&pods).outdated.iter().map(|topic| (**topic).clone()).collect()
    };
    set(&mut objects, &[&former]);
    for topic in Topic::of(&former) {
        objects.on_event(ObjectEvent::Failed(topic, "refused".to_owned()));
    }
    assert_eq!(set(&mut objects, &[&former, &next]), []);
    assert!(objects.are_known(&next), "another user is left");
    set(&mut objects, &[&former]);
    assert_eq!(set(&mut objects, &[&next]), [claim]);
    assert!(!objects.are_known(&next));
}

#[test]
fn every_reference_is_found() {
    let pod = json!({"metadata": {"namespace": "ns", "name": "p"}, "spec": {
        "imagePullSecrets": [{"name": "s0"}],
        "volumes": [
            {"name": "a", "configMap": {"name": "c1"}}, {"name": "b", "secret": {"secretName": "s1"}},
            {"name": "c", "projected": {"sources": [{"configMap": {"name": "c2"}}, {"secret": {"name": "s2"}},
                {"downwardAPI": {}}]}},
            {"name": "d", "emptyDir": {}}
        ],
        "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "c3"}}, {"secretRef": {"name": "s3"}}]}],
        "containers": [{"name": "m", "env": [
            {"name": "A", "value": "x"},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c4", "key": "k"}}},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s4", "key": "k"}}},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        ]}]
    }});
    let pod: Pod = decode(pod).unwrap().value;
    let mut referenced: Vec<String> = references(&pod).iter().map(ToString::to_string).collect();
    referenced.sort();
    let names =
        |kind: &str, letter: &str, first: u8| (first..=4).map(|n| format!("{kind} ns/{letter}{n}")).collect::<Vec<_>>();
    assert_eq!(referenced, [names("ConfigMap", "c", 1), names("Secret", "s", 0)].concat());
    assert!(volumes_follow(&pod));
    assert!(!volumes_follow(&Pod::default()));
}
