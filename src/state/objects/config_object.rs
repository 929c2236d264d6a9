//! A ConfigMap or Secret as named bytes, or a Service or a claim of a manifest. Pure.

use std::fmt;
use std::sync::Arc;

use super::manifest_service::ManifestService;
use crate::types::api::{ConfigMap, Map, ObjectMeta, Secret, Service, VolumeClaim};
use crate::types::sorted::SortedMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectKind {
    ConfigMap,
    Secret,
    /// Only of manifests.
    Service,
    /// Only of manifests: the node's own.
    VolumeClaim,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    pub(crate) kind: ObjectKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The value of a key, shared by all files that have it.
pub(crate) type Content = Arc<Vec<u8>>;

#[derive(PartialEq, Eq)]
pub(crate) struct ConfigObject {
    pub(crate) key: ObjectKey,
    /// Empty for objects from manifests, except claims.
    pub(crate) uid: String,
    /// Data for environment variables and files.
    data: Map<Content>,
    /// `binaryData` of a ConfigMap: for files only.
    binary: Map<Content>,
    pub(crate) immutable: bool,
    /// Empty for ConfigMaps.
    pub(crate) secret_type: String,
    /// Set for Services, which have no data.
    pub(crate) service: Option<ManifestService>,
    /// Requested bytes of a claim.
    pub(crate) storage: Option<u64>,
}

impl ConfigObject {
    /// Keys and values for environment variables.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.data.iter().map(|(key, value)| (key, value.as_slice()))
    }

    pub(crate) fn variable(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).map(|value| value.as_slice())
    }

    /// Keys and contents for files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &Content)> {
        self.data.iter().chain(self.binary.iter())
    }

    /// Whether this is a Service that leads to the pod.
    pub(crate) fn leads_to(&self, pod: &ObjectMeta) -> bool {
        let service = self.service.as_ref().filter(|_| self.key.namespace == pod.namespace);
        service.is_some_and(|service| service.selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value)))
    }

    pub(crate) fn file(&self, key: &str) -> Option<&Content> {
        self.data.get(key).or_else(|| self.binary.get(key))
    }
}

impl From<ConfigMap> for ConfigObject {
    fn from(from: ConfigMap) -> Self {
        let key = |kind| ObjectKey { kind, namespace: from.metadata.namespace, name: from.metadata.name };
        Self {
            uid: from.metadata.uid.to_string(),
            key: key(ObjectKind::ConfigMap),
            data: from.data.into_iter().map(|(key, text)| (key, Arc::new(text.into_bytes()))).collect(),
            binary: from.binary_data.into_iter().map(|(key, bytes)| (key, Arc::new(bytes.0))).collect(),
            immutable: from.immutable,
            secret_type: String::new(),
            service: None,
            storage: None,
        }
    }
}

impl From<Secret> for ConfigObject {
    /// `stringData` is already merged.
    fn from(from: Secret) -> Self {
        let key = |kind| ObjectKey { kind, namespace: from.metadata.namespace, name: from.metadata.name };
        Self {
            uid: from.metadata.uid.to_string(),
            key: key(ObjectKind::Secret),
            data: from.data.into_iter().map(|(key, bytes)| (key, Arc::new(bytes.0))).collect(),
            binary: Map::new(),
            immutable: from.immutable,
            secret_type: from.secret_type,
            service: None,
            storage: None,
        }
    }
}

impl From<VolumeClaim> for ConfigObject {
    fn from(from: VolumeClaim) -> Self {
        let storage = Some(from.storage());
        let ObjectMeta { namespace, name, uid, .. } = from.metadata;
        Self {
            key: ObjectKey { kind: ObjectKind::VolumeClaim, namespace, name },
            uid: uid.to_string(),
            data: Map::new(),
            binary: Map::new(),
            immutable: false,
            secret_type: String::new(),
            service: None,
            storage,
        }
    }
}

impl From<Service> for ConfigObject {
    fn from(mut from: Service) -> Self {
        let metadata = std::mem::take(&mut from.metadata);
        Self {
            key: ObjectKey { kind: ObjectKind::Service, namespace: metadata.namespace, name: metadata.name },
            uid: metadata.uid.to_string(),
            data: Map::new(),
            binary: Map::new(),
            immutable: false,
            secret_type: String::new(),
            service: Some(from.into()),
            storage: None,
        }
    }
}

impl ConfigObject {
    /// The data as text.
    pub(crate) fn texts(&self) -> SortedMap<String, String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.variables().map(|(key, value)| (key.to_owned(), text(value))).collect()
    }
}

impl fmt::Debug for ConfigObject {
    // Contents are not printed, because they may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigObject({})", self.key)
    }
}

impl ObjectKind {
    /// The resource name in the API server's not-found message.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::Service => "service",
            Self::VolumeClaim => "persistentvolumeclaim",
        }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Service => "Service",
            Self::VolumeClaim => "PersistentVolumeClaim",
        })
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
