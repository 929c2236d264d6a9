//! Labels and annotations of sandboxes and containers, which every kubelet understands. Pure.

use crate::types::api::{
    Container, Decode, Encode, Lifecycle, LifecycleHandler, Pod, PodUid, TerminationMessagePolicy,
    annotations::SPEC_HASH, container_hash_text, container_spec_hash, decode, encode_text, pod_spec_hash,
};
use crate::types::sorted::SortedMap;

/// Labels or annotations, as stored by the runtime.
pub(crate) type StringMap = SortedMap<String, String>;

const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Also used to filter the runtime's lists.
pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

const CONTAINER_HASH_ANNOTATION: &str = "io.kubernetes.container.hash";
const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
const PORTS: &str = "io.kubernetes.container.ports";
const DELETION_GRACE: &str = "io.kubernetes.pod.deletionGracePeriod";
const TERMINATION_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";

/// The pod in these labels, such as `default/web-node1`; `None` if they have no pod.
pub(crate) fn pod_of(labels: &StringMap) -> Option<String> {
    Some([labels.get(POD_NAMESPACE)?, "/", labels.get(POD_NAME)?].concat())
}

/// The pod's labels and its identity.
pub(crate) fn sandbox_labels(pod: &Pod) -> StringMap {
    let mut labels = owned(pod.metadata.labels.iter());
    put_pod(&mut labels, pod);
    labels
}

pub(crate) fn sandbox_annotations(pod: &Pod) -> StringMap {
    let mut annotations = owned(pod.metadata.annotations.iter());
    if pod.is_static() {
        annotations.insert(SPEC_HASH.to_owned(), format!("{:x}", pod_spec_hash(pod)));
    }
    annotations
}

pub(crate) fn container_labels(pod: &Pod, container: &Container) -> StringMap {
    let mut labels = StringMap::new();
    put_pod(&mut labels, pod);
    labels.insert(CONTAINER_NAME.to_owned(), container.name.clone());
    labels
}

/// What is needed to stop the container and report its exit without its spec.
pub(crate) fn container_annotations(pod: &Pod, container: &Container, restart_count: u32) -> StringMap {
    let mut annotations = StringMap::new();
    let mut put = |key: &str, value: String| drop(annotations.insert(key.to_owned(), value));
    put(CONTAINER_HASH_ANNOTATION, container_hash_text(container));
    if pod.is_static() {
        put(SPEC_HASH, format!("{:x}", container_spec_hash(container)));
    }
    put(RESTART_COUNT, restart_count.to_string());
    put(MESSAGE_PATH, container.termination_message_path.clone());
    put(MESSAGE_POLICY, container.termination_message_policy.to_string());
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        put(DELETION_GRACE, seconds.to_string());
    }
    if let Some(seconds) = pod.spec.termination_grace_period_seconds {
        put(TERMINATION_GRACE, seconds.to_string());
    }
    if let Some(handler) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) {
        put(PRE_STOP, go_json(handler));
    }
    if !container.ports.is_empty() {
        // A preStop hook may name its port.
        put(PORTS, go_json(&container.ports));
    }
    annotations
}

/// The parts of the container spec needed for its termination, from the annotations.
pub(crate) fn restored_container(labels: &StringMap, annotations: &StringMap) -> Container {
    let pre_stop = read_json::<LifecycleHandler>(annotations, PRE_STOP);
    let lifecycle = pre_stop.map(|hook| Box::new(Lifecycle { pre_stop: Some(hook), ..Lifecycle::default() }));
    Container {
        name: AnnotatedContainerInfo::read(labels, annotations).name.to_owned(),
        ports: read_json(annotations, PORTS).unwrap_or_default(),
        lifecycle,
        ..Container::default()
    }
}

/// The hash of the spec that a static pod's sandbox or container runs.
pub(crate) fn spec_hash(annotations: &StringMap) -> Option<u32> {
    u32::from_str_radix(annotations.get(SPEC_HASH)?, 16).ok()
}

fn read_json<T: Decode>(annotations: &StringMap, key: &str) -> Option<T> {
    let value = serde_json::from_str(annotations.get(key)?).ok()?;
    decode(value).ok().map(|decoded| decoded.value)
}

fn put_pod(labels: &mut StringMap, pod: &Pod) {
    labels.insert(POD_NAME.to_owned(), pod.metadata.name.clone());
    labels.insert(POD_NAMESPACE.to_owned(), pod.metadata.namespace.clone());
    labels.insert(POD_UID.to_owned(), pod.metadata.uid.to_string());
}

fn owned<'a>(entries: impl Iterator<Item = (&'a str, &'a String)>) -> StringMap {
    entries.map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

/// Encodes JSON like Go: fields in order, HTML characters escaped, which occur only in strings.
fn go_json(value: &dyn Encode) -> String {
    let json = encode_text(value);
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The pod of a sandbox or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LabeledPodInfo<'a> {
    pub(crate) uid: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> LabeledPodInfo<'a> {
    /// `None`: not created by a kubelet.
    pub(crate) fn read(labels: &'a StringMap) -> Option<Self> {
        let text = |key: &str| labels.get(key).map(String::as_str);
        let uid = text(POD_UID).filter(|uid| !uid.is_empty())?;
        Some(Self { uid, namespace: text(POD_NAMESPACE)?, name: text(POD_NAME)? })
    }

    pub(crate) fn uid(&self) -> PodUid {
        PodUid::from(self.uid)
    }
}

/// The annotations of a container. An invalid value counts as missing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnnotatedContainerInfo<'a> {
    pub(crate) name: &'a str,
    pub(crate) hash: Option<u32>,
    pub(crate) restart_count: u32,
    pub(crate) message_path: &'a str,
    pub(crate) message_policy: TerminationMessagePolicy,
    /// In seconds. During a deletion, its grace period takes precedence over that of the spec.
    pub(crate) deletion_grace: Option<i64>,
    pub(crate) termination_grace: Option<i64>,
}

impl<'a> AnnotatedContainerInfo<'a> {
    pub(crate) fn read(labels: &'a StringMap, annotations: &'a StringMap) -> Self {
        let text = |key: &str| annotations.get(key).map(String::as_str);
        Self {
            name: labels.get(CONTAINER_NAME).map_or("", String::as_str),
            hash: text(CONTAINER_HASH_ANNOTATION).and_then(|hash| u32::from_str_radix(hash, 16).ok()),
            restart_count: text(RESTART_COUNT).and_then(|count| count.parse().ok()).unwrap_or(0),
            message_path: text(MESSAGE_PATH).unwrap_or_default(),
            message_policy: text(MESSAGE_POLICY).and_then(TerminationMessagePolicy::from_word).unwrap_or_default(),
            deletion_grace: text(DELETION_GRACE).and_then(|seconds| seconds.parse().ok()),
            termination_grace: text(TERMINATION_GRACE).and_then(|seconds| seconds.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{ContainerPort, ExecAction, LifecycleAction, Protocol};

    fn written() -> (Pod, Container) {
        let mut pod = Pod::default();
        pod.metadata.name = "web".to_owned();
        pod.metadata.namespace = "default".to_owned();
        pod.metadata.uid = PodUid::from("u1");
        pod.spec.termination_grace_period_seconds = Some(30);
        let command = ["sh", "-c", "a && b > c"].into_iter().collect();
        let handler = LifecycleHandler { action: LifecycleAction::Exec(ExecAction { command }) };
        let lifecycle = Lifecycle { pre_stop: Some(handler), ..Lifecycle::default() };
        let port = ContainerPort { container_port: 53, protocol: Protocol::Udp, ..ContainerPort::default() };
        let container = Container {
            name: "main".to_owned(),
            image: "busybox".to_owned(),
            termination_message_path: "/dev/termination-log".to_owned(),
            termination_message_policy: TerminationMessagePolicy::FallbackToLogsOnError,
            lifecycle: Some(Box::new(lifecycle)),
            ports: vec![port],
            ..Container::default()
        };
        (pod, container)
    }

    #[test]
    fn labels_and_annotations_are_read_back() {
        let (mut pod, container) = written();
        pod.metadata.deletion_grace_period_seconds = Some(7);
        let labels = container_labels(&pod, &container);
        let annotations = container_annotations(&pod, &container, 3);
        assert_eq!(
            LabeledPodInfo::read(&labels),
            Some(LabeledPodInfo { uid: "u1", namespace: "default", name: "web" })
        );
        let mark = AnnotatedContainerInfo::read(&labels, &annotations);
        assert_eq!((mark.name, mark.hash, mark.restart_count), ("main", Some(0xb34e_1a14), 3));
        assert_eq!(mark.message_path, "/dev/termination-log");
        assert_eq!(mark.message_policy, TerminationMessagePolicy::FallbackToLogsOnError);
        assert_eq!((mark.deletion_grace, mark.termination_grace), (Some(7), Some(30)));
    }

    #[test]
    fn objects_are_encoded_like_go_does() {
        let (pod, container) = written();
        let annotations = container_annotations(&pod, &container, 0);
        let pre_stop = r#"{"exec":{"command":["sh","-c","a \u0026\u0026 b \u003e c"]}}"#;
        assert_eq!(annotations[PRE_STOP], pre_stop);
        assert_eq!(annotations[PORTS], r#"[{"containerPort":53,"protocol":"UDP"}]"#);
    }

    #[test]
    fn container_can_be_terminated_from_its_annotations() {
        let (pod, container) = written();
        let (labels, mut annotations) =
            (container_labels(&pod, &container), container_annotations(&pod, &container, 0));
        let restored = restored_container(&labels, &annotations);
        assert_eq!((&restored.name, &restored.ports), (&container.name, &container.ports));
        assert_eq!(restored.lifecycle, container.lifecycle);
        annotations.insert(PRE_STOP.to_owned(), r#"{"exec":{"command":7}}"#.to_owned());
        annotations.insert(PORTS.to_owned(), "[".to_owned());
        let restored = restored_container(&labels, &annotations);
        assert_eq!((restored.lifecycle, restored.ports), (None, Vec::new()));
    }

    #[test]
    fn invalid_values_count_as_missing() {
        let garbage = [CONTAINER_HASH_ANNOTATION, RESTART_COUNT, MESSAGE_POLICY, DELETION_GRACE];
        let annotations: StringMap = garbage.map(|key| (key.to_owned(), "{-".to_owned())).into();
        let none = StringMap::new();
        assert_eq!(LabeledPodInfo::read(&none), None);
        let mark = AnnotatedContainerInfo::read(&none, &annotations);
        assert_eq!((mark.name, mark.hash, mark.restart_count, mark.deletion_grace), ("", None, 0, None));
    }

    #[test]
    fn pod_label_cannot_replace_the_pods_identity() {
        let (mut pod, _) = written();
        pod.metadata.labels = [(POD_UID, "other".to_owned()), ("app", "x".to_owned())].into_iter().collect();
        let labels = sandbox_labels(&pod);
        assert_eq!(LabeledPodInfo::read(&labels).unwrap().uid, "u1");
        assert_eq!(labels["app"], "x");
    }
}
