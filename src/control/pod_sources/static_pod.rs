//! Parses manifests: static pods, with the uid, name and annotations that a kubelet assigns, workloads that stand for
//! such pods, the ConfigMaps and Secrets that they use, Services, by whose names they find each other, and the document
//! that names the version of the agent. Pure.
//!
//! A file may hold several documents, and `List` and `PodList` objects. Objects are independent: an invalid one does
//! not affect the others. Text that is not valid YAML invalidates the whole file, because the next document cannot be
//! located.

mod cron_job;
mod deletion;
mod job;
mod origin;
mod sealed_secret;
mod volume_claim;
mod workload;
mod workload_fields;

pub(crate) use cron_job::{cron_job_of_template, scheduled_job, scheduled_job_name};
pub(crate) use job::{is_pod_name_of, job_name, job_of_template, job_pod, job_pod_uid};
pub(crate) use origin::ManifestNode;
pub use origin::Origin;
pub(crate) use workload::{WorkloadPods, owning_workload};
pub(crate) use workload_fields::WorkloadKind;

use std::fmt;

use serde_json::{Map, Value};

use super::field_names;
use crate::state::objects::ConfigObject;
use crate::state::pods::SourceName;
use crate::types::api::validation::{
    FieldError, validate_agent, validate_config_map, validate_secret, validate_service, validate_static_pod,
};
use crate::types::api::yaml::{self, DuplicateKey, ParseError};
use crate::types::api::{
    AgentDocument, AgentSpec, CLUSTER_SERVICE_FIELDS, CPU, ConfigMap, Decode, DecodeError, MEMORY, ObjectMeta, Pod,
    PodPhase, PodStatus, PodUid, QosClass, Quantity, Secret, Service, TaintEffect, Toleration, TolerationOperator,
    annotations, decode_leniently, defaults, encode, qos_class,
};

/// One object of a manifest, or why it is invalid.
#[derive(Debug)]
pub(crate) struct ManifestObject {
    pub(crate) position: Place,
    /// The kind that the object states.
    pub(crate) kind: Kind,
    pub(crate) object: Result<Object, ObjectError>,
    pub(crate) warnings: Vec<Warning>,
}

#[derive(Debug)]
pub(crate) enum Object {
    Agent(Box<AgentSpec>),
    Config(ConfigObject),
    Pod(Box<Pod>),
    Workload(Box<WorkloadPods>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The document that names the version of the agent.
    Agent,
    /// A ConfigMap, a Secret, a Service or a PersistentVolumeClaim.
    Config,
    /// A kind of the API that manifests do not support.
    Other,
    /// A pod, or a workload, which stands for pods.
    Pod,
    /// The object states no kind.
    Unknown,
}

/// The position of an object in its manifest. Displays as nothing if there is only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number and line of the document, if there are several.
    document: Option<(usize, usize)>,
    /// Index in a list.
    item: Option<usize>,
}

/// Why an object of a manifest cannot be used.
#[derive(Debug)]
pub(crate) enum ObjectError {
    /// The object does not state its kind or version.
    Field {
        path: &'static str,
        problem: String,
    },
    /// A kind of the API that manifests do not support.
    Unsupported {
        kind: String,
    },
    /// Values that do not fit their fields, and what is invalid beside them.
    Decode(Vec<DecodeError>, Vec<FieldError>),
    Invalid(Vec<FieldError>),
}

/// A harmless defect of an object.
#[derive(Debug)]
pub(crate) enum Warning {
    Duplicate(DuplicateKey),
    /// A field that has no effect on one node, and what to do instead.
    NoEffect(String, String),
    UnknownField(String),
}

pub(crate) fn read_manifest(text: &[u8], origin: &Origin<'_>) -> Result<Vec<ManifestObject>, ParseError> {
    let documents = yaml::parse(text)?;
    let several = documents.len() > 1;
    let mut objects = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        let place = Place { document: several.then_some((index + 1, document.line)), item: None };
        let first = objects.len();
        read_document(document.value, place, origin, &mut objects);
        // Duplicate keys belong to the document: they are reported with its first object.
        if let Some(object) = objects.get_mut(first) {
            object.warnings.extend(document.duplicates.into_iter().map(Warning::Duplicate));
        }
    }
    Ok(objects)
}

fn read_document(value: Value, position: Place, origin: &Origin<'_>, objects: &mut Vec<ManifestObject>) {
    let mut object = match value {
        Value::Object(object) => object,
        _ => return objects.push(ManifestObject::wrong(position, "", "expected an object with apiVersion and kind")),
    };
    let list = match object.get("kind").and_then(Value::as_str) {
        Some("List") => ListKind::Any,
        Some("PodList") => ListKind::Pods,
        _ => return objects.push(read_object(object, position, origin)),
    };
    let items = match object.remove("items") {
        Some(Value::Array(items)) => items,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => return objects.push(ManifestObject::wrong(position, "items", "expected a list")),
    };
    for (index, item) in items.into_iter().enumerate() {
        let place = Place { item: Some(index), ..position };
        objects.push(match item {
            Value::Object(mut item) => {
                if list == ListKind::Pods {
                    // Items of a typed list may omit these fields.
                    item.entry("kind").or_insert_with(|| Value::from("Pod"));
                    item.entry("apiVersion").or_insert_with(|| Value::from("v1"));
                }
                read_object(item, place, origin)
            }
            _ => ManifestObject::wrong(place, "", "expected an object with apiVersion and kind"),
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListKind {
    Any,
    Pods,
}

fn read_object(object: Map<String, Value>, position: Place, origin: &Origin<'_>) -> ManifestObject {
    let name = match object.get("kind") {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        None | Some(Value::Null) => return ManifestObject::wrong(position, "kind", "required"),
        Some(_) => return ManifestObject::wrong(position, "kind", "expected the name of a kind, such as Pod"),
    };
    let kind = match name.as_str() {
        "Agent" if origin.source != SourceName::Http => {
            let error = ObjectError::Field { path: "", problem: ONLY_FROM_A_URL.to_owned() };
            return ManifestObject { position, kind: Kind::Agent, object: Err(error), warnings: Vec::new() };
        }
        "Agent" => Kind::Agent,
        "ConfigMap" | "PersistentVolumeClaim" | "Secret" | "Service" => Kind::Config,
        "Pod" => Kind::Pod,
        _ if WorkloadKind::from_word(&name).is_some() => Kind::Pod,
        _ => {
            let error = ObjectError::Unsupported { kind: name };
            return ManifestObject { position, kind: Kind::Other, object: Err(error), warnings: Vec::new() };
        }
    };
    if object.get("apiVersion").is_none_or(Value::is_null) {
        return ManifestObject { kind, ..ManifestObject::wrong(position, "apiVersion", "required") };
    }
    let mut warnings = Vec::new();
    let object = match name.as_str() {
        "Agent" => read_agent(object, &mut warnings),
        "ConfigMap" => read_config_map(object, &mut warnings),
        "PersistentVolumeClaim" => volume_claim::read_claim(object, &mut warnings),
        "Secret" => read_secret(object, origin, &mut warnings),
        "Service" => read_service(object, &mut warnings),
        _ => match WorkloadKind::from_word(&name) {
            Some(WorkloadKind::CronJob) => cron_job::read_cron_job(object, origin, &mut warnings),
            Some(WorkloadKind::Job) => job::read_job(object, origin, &mut warnings),
            Some(kind) => workload::read_workload(object, kind, origin, &mut warnings),
            None => read_pod(object, origin, &mut warnings),
        },
    };
    ManifestObject { position, kind, object, warnings }
}

const ONLY_FROM_A_URL: &str =
    "kind Agent: only the signed manifests of --manifest-url have it; here use coracle upgrade FILE";

fn read_agent(object: Map<String, Value>, warnings: &mut Vec<Warning>) -> Result<Object, ObjectError> {
    let (document, errors): (AgentDocument, _) = read(object, warnings)?;
    valid(errors, validate_agent(&document))?;
    Ok(Object::Agent(Box::new(document.spec)))
}

fn read_pod(
    object: Map<String, Value>,
    origin: &Origin<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Object, ObjectError> {
    let (mut pod, errors): (Pod, _) = read(object, warnings)?;
    deletion::ignore_deletion(&mut pod.metadata, warnings);
    let pod = static_pod(pod, origin);
    valid(errors, validate_static_pod(&pod))?;
    Ok(Object::Pod(Box::new(pod)))
}

fn read_config_map(object: Map<String, Value>, warnings: &mut Vec<Warning>) -> Result<Object, ObjectError> {
    let (mut config_map, errors): (ConfigMap, _) = read(object, warnings)?;
    set_namespace(&mut config_map.metadata);
    valid(errors, validate_config_map(&config_map))?;
    Ok(Object::Config(config_map.into()))
}

fn read_secret(
    object: Map<String, Value>,
    origin: &Origin<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Object, ObjectError> {
    let (mut secret, errors): (Secret, _) = read(object, warnings)?;
    set_namespace(&mut secret.metadata);
    let sealed = sealed_secret::open(&mut secret, origin.board_key);
    if !sealed.is_empty() {
        return Err(ObjectError::Invalid(sealed));
    }
    secret.merge_string_data();
    valid(errors, validate_secret(&secret))?;
    Ok(Object::Config(secret.into()))
}

fn read_service(object: Map<String, Value>, warnings: &mut Vec<Warning>) -> Result<Object, ObjectError> {
    let first = warnings.len();
    let (mut service, errors): (Service, _) = read(object, warnings)?;
    for warning in warnings.iter_mut().skip(first) {
        if let Warning::UnknownField(path) = warning
            && path.strip_prefix("spec.").is_some_and(|field| CLUSTER_SERVICE_FIELDS.contains(&field))
        {
            *warning = Warning::NoEffect(std::mem::take(path), "it needs a cluster".to_owned());
        }
    }
    warnings.extend(service.without_effect().into_iter().map(|(path, why)| Warning::NoEffect(path, why)));
    set_namespace(&mut service.metadata);
    valid(errors, validate_service(&service))?;
    Ok(Object::Config(service.into()))
}

/// The object without the values that do not fit their fields, and the errors about those.
fn read<T: Decode>(
    object: Map<String, Value>,
    warnings: &mut Vec<Warning>,
) -> Result<(T, Vec<DecodeError>), ObjectError> {
    let (decoded, errors) = decode_leniently(&Value::Object(object));
    let Some(decoded) = decoded else { return Err(ObjectError::Decode(errors, Vec::new())) };
    warnings.extend(decoded.unknown.into_iter().map(Warning::UnknownField));
    Ok((decoded.value, errors))
}

/// What was left out because it does not fit may be missing now.
fn valid(errors: Vec<DecodeError>, mut faults: Vec<FieldError>) -> Result<(), ObjectError> {
    faults.retain(|fault| !errors.iter().any(|error| fault.path.starts_with(error.path())));
    match (errors.is_empty(), faults.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(ObjectError::Invalid(faults)),
        (false, _) => Err(ObjectError::Decode(errors, faults)),
    }
}

fn set_namespace(metadata: &mut ObjectMeta) {
    if metadata.namespace.is_empty() {
        metadata.namespace.push_str("default");
    }
}

/// The pod as this node runs it: `applyDefaults` in pkg/kubelet/config/common.go.
fn static_pod(mut pod: Pod, origin: &Origin<'_>) -> Pod {
    pod.status = PodStatus { phase: PodPhase::Pending, ..PodStatus::default() };
    let metadata = &pod.metadata;
    let uid = if metadata.uid.is_empty() { own_uid(&pod, origin) } else { metadata.uid.clone() };
    defaults::apply(&mut pod);

    let metadata = &mut pod.metadata;
    if !metadata.name.is_empty() {
        metadata.name.push('-');
        metadata.name.push_str(&origin.node_name.to_lowercase());
    }
    set_namespace(metadata);
    metadata.annotations.insert(annotations::CONFIG_HASH, uid.as_str().to_owned());
    metadata.annotations.insert(annotations::CONFIG_SEEN, origin.config_seen.to_owned());
    metadata.annotations.insert(annotations::CONFIG_SOURCE, origin.source.as_str().to_owned());
    metadata.uid = uid;

    origin.node_name.clone_into(&mut pod.spec.node_name);
    // No taint may evict a static pod, which no scheduler placed here.
    let toleration = Toleration {
        operator: Some(TolerationOperator::Exists),
        effect: Some(TaintEffect::NoExecute),
        ..Toleration::default()
    };
    if !pod.spec.tolerations.contains(&toleration) {
        pod.spec.tolerations.push(toleration);
    }
    pod
}

/// The uid of a pod whose manifest gives none: the same content in the same file always has the same uid.
///
/// The hash covers the pod as written, before defaults, which may change between versions. It does not cover resource
/// amounts, as long as the QoS class stays the same: a running pod can be resized.
fn own_uid(pod: &Pod, origin: &Origin<'_>) -> PodUid {
    let mut hash = Fnv128a::new();
    hash.write(encode(&without_amounts(pod)).to_string().as_bytes());
    hash.write(class(pod).as_bytes());
    for part in ["host:", origin.node_name, "file:", origin.path] {
        hash.write(part.as_bytes());
    }
    PodUid::from(hash.marked())
}

/// The uid of the same manifest with these images by digest, as `(image, digest)`.
pub(crate) fn uid_with_images<'a>(uid: &PodUid, images: impl Iterator<Item = (&'a str, &'a str)>) -> PodUid {
    let mut hash = Fnv128a::new();
    hash.write(uid.as_str().as_bytes());
    for (image, digest) in images {
        for part in [image, "=", digest, "\n"] {
            hash.write(part.as_bytes());
        }
    }
    PodUid::from(hash.marked())
}

/// The pod with its resizable resource amounts set to zero. The names of the resources stay.
pub(super) fn without_amounts(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    let sidecars = pod.spec.init_containers.iter_mut().filter(|container| container.is_sidecar());
    for container in pod.spec.containers.iter_mut().chain(sidecars) {
        for list in [&mut container.resources.requests, &mut container.resources.limits] {
            for name in [CPU, MEMORY] {
                if let Some(amount) = list.get_mut(name) {
                    *amount = Quantity::default();
                }
            }
        }
    }
    pod
}

/// The QoS class of a pod, which never changes; empty for best effort.
fn class(pod: &Pod) -> String {
    let mut pod = pod.clone();
    defaults::apply(&mut pod);
    match qos_class(&pod) {
        QosClass::BestEffort => String::new(),
        class => format!("qos:{class}"),
    }
}

/// Whether [`own_uid`] made `uid`.
///
/// It looks like the uid of an upstream kubelet, 32 hexadecimal digits, but its last 8 digits are a checksum of the
/// others.
pub(crate) fn is_own_uid(uid: &str) -> bool {
    uid.len() == 32 && uid.split_at_checked(HASH_DIGITS).is_some_and(|(hash, end)| end == format!("{:08x}", mark(hash)))
}

/// 96 bits tell any number of pods apart; the other 32 are the checksum.
const HASH_DIGITS: usize = 24;

fn mark(hash: &str) -> u32 {
    let mut mark = Fnv128a::new();
    mark.write(b"coracle");
    mark.write(hash.as_bytes());
    let bytes = mark.0.to_be_bytes();
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

struct Fnv128a(u128);

impl Fnv128a {
    fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// With the checksum of [`is_own_uid`].
    fn marked(&self) -> String {
        let hash = format!("{:032x}", self.0);
        let hash = hash.get(..HASH_DIGITS).unwrap_or_default();
        format!("{hash}{:08x}", mark(hash))
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}

/// Parses a manifest in every way that the agent does. For fuzzing: no input may make it panic.
pub fn check_manifest(text: &[u8]) {
    let origin =
        Origin { source: SourceName::File, path: "x.yaml", node_name: "node", config_seen: "", board_key: None };
    for object in read_manifest(text, &origin).unwrap_or_default() {
        drop(object.problem());
        drop(object.warnings.iter().map(ToString::to_string).collect::<Vec<_>>());
        match object.object {
            Ok(Object::Pod(pod)) => drop(encode(&*pod).to_string()),
            Ok(Object::Workload(workload)) => workload.pods.iter().for_each(|pod| drop(encode(pod).to_string())),
            Ok(Object::Agent(_) | Object::Config(_)) | Err(_) => {}
        }
    }
}

impl ManifestObject {
    fn wrong(position: Place, path: &'static str, problem: &str) -> Self {
        let error = ObjectError::Field { path, problem: problem.to_owned() };
        Self { position, kind: Kind::Unknown, object: Err(error), warnings: Vec::new() }
    }

    /// The error with its position, as one line.
    pub(crate) fn problem(&self) -> Option<String> {
        self.object.as_ref().err().map(|error| self.position.before(error))
    }

    /// The warnings with their positions, one line each.
    pub(crate) fn warning_lines(&self) -> impl Iterator<Item = String> {
        self.warnings.iter().map(|warning| self.position.before(warning))
    }
}

impl Place {
    fn before(self, text: &dyn fmt::Display) -> String {
        if self.document.is_none() && self.item.is_none() { text.to_string() } else { format!("{self}: {text}") }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((number, line)) = self.document {
            write!(f, "document {number}")?;
            // JSON documents after the first have no line number.
            if line > 0 {
                write!(f, " (line {line})")?;
            }
        }
        match self.item {
            Some(item) if self.document.is_some() => write!(f, ", items[{item}]"),
            Some(item) => write!(f, "items[{item}]"),
            None => Ok(()),
        }
    }
}

impl Kind {
    /// Whether this may have been meant as a pod. If it is invalid, its predecessor stays until it is fixed.
    pub(crate) fn may_be_pod(self) -> bool {
        matches!(self, Self::Pod | Self::Unknown)
    }

    /// Whether this may have been meant as a ConfigMap, a Secret or a Service.
    pub(crate) fn may_be_config(self) -> bool {
        matches!(self, Self::Config | Self::Unknown)
    }
}

impl ObjectError {
    /// Each error as one line.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Decode(errors, faults) => {
                errors.iter().map(ToString::to_string).chain(faults.iter().map(ToString::to_string)).collect()
            }
            Self::Invalid(faults) => faults.iter().map(ToString::to_string).collect(),
            Self::Field { .. } | Self::Unsupported { .. } => vec![self.to_string()],
        }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field { path: "", problem } => f.write_str(problem),
            Self::Field { path, problem } => write!(f, "{path}: {problem}"),
            Self::Unsupported { kind } => write_unsupported(f, kind),
            Self::Decode(..) | Self::Invalid(_) => f.write_str(&self.lines().join("; ")),
        }
    }
}

/// What to do about an object that manifests do not have.
fn write_unsupported(f: &mut fmt::Formatter<'_>, kind: &str) -> fmt::Result {
    if let Some(meant) = KINDS.iter().find(|known| known.eq_ignore_ascii_case(kind)) {
        return write!(f, "kind {kind}: did you mean {meant}?");
    }
    match kind {
        "ReplicaSet" => write!(f, "kind {kind}: a manifest has its Deployment"),
        _ => write!(f, "kind {kind}: a manifest has Pods, ConfigMaps, Secrets, Services, claims and workloads"),
    }
}

const KINDS: [&str; 10] = [
    "Pod",
    "ConfigMap",
    "Secret",
    "Service",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "PersistentVolumeClaim",
    "StatefulSet",
];

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate(duplicate) => write!(f, "{duplicate}; the later one counts"),
            Self::NoEffect(path, why) => write!(f, "{path}: no effect on one node: {why}"),
            Self::UnknownField(path) => match field_names::nearest_field(path) {
                Some(meant) => write!(f, "{path}: unknown field, ignored (did you mean {meant}?)"),
                None => write!(f, "{path}: unknown field, ignored"),
            },
        }
    }
}

#[cfg(test)]
mod bad_input;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
