//! The served resources and their peculiarities, and how paths name them.

use std::cmp::Ordering;

use serde_json::Value;

/// One resource and its peculiarities.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub group: &'static str,
    /// The first is the storage version of test objects.
    pub versions: &'static [&'static str],
    /// The name in paths.
    pub name: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// Whether `status` is a subresource, so that neither half changes the other.
    pub status: bool,
    /// Whether PUT creates a missing object.
    pub create_on_update: bool,
    /// Whether PUT without a resourceVersion overwrites unconditionally.
    pub unconditional_update: bool,
    /// Whether DELETE returns the object instead of a Status.
    pub returns_deleted: bool,
}

const fn namespaced(name: &'static str, kind: &'static str) -> Resource {
    Resource { namespaced: true, ..cluster(name, kind) }
}

const fn cluster(name: &'static str, kind: &'static str) -> Resource {
    Resource {
        group: "",
        versions: &["v1"],
        name,
        kind,
        namespaced: false,
        status: false,
        create_on_update: false,
        unconditional_update: true,
        returns_deleted: false,
    }
}

pub(crate) static RESOURCES: &[Resource] = &[
    Resource { status: true, returns_deleted: true, ..namespaced("pods", "Pod") },
    Resource { status: true, ..cluster("nodes", "Node") },
    namespaced("configmaps", "ConfigMap"),
    namespaced("secrets", "Secret"),
    Resource { status: true, returns_deleted: true, ..namespaced("services", "Service") },
    Resource { create_on_update: true, ..namespaced("events", "Event") },
    Resource { status: true, returns_deleted: true, ..cluster("persistentvolumes", "PersistentVolume") },
    Resource { status: true, returns_deleted: true, ..namespaced("persistentvolumeclaims", "PersistentVolumeClaim") },
    Resource { returns_deleted: true, ..namespaced("serviceaccounts", "ServiceAccount") },
    Resource { status: true, ..cluster("namespaces", "Namespace") },
    namespaced("endpoints", "Endpoints"),
    Resource { group: "apps", status: true, ..namespaced("daemonsets", "DaemonSet") },
    Resource { group: "apps", ..namespaced("controllerrevisions", "ControllerRevision") },
    Resource {
        group: "coordination.k8s.io",
        create_on_update: true,
        unconditional_update: false,
        ..namespaced("leases", "Lease")
    },
    Resource { group: "events.k8s.io", create_on_update: true, ..namespaced("events", "Event") },
    Resource {
        group: "certificates.k8s.io",
        status: true,
        ..cluster("certificatesigningrequests", "CertificateSigningRequest")
    },
    Resource {
        group: "certificates.k8s.io",
        versions: &["v1beta1", "v1", "v1alpha1"],
        unconditional_update: false,
        ..cluster("clustertrustbundles", "ClusterTrustBundle")
    },
    Resource {
        group: "certificates.k8s.io",
        versions: &["v1", "v1beta1"],
        status: true,
        unconditional_update: false,
        ..namespaced("podcertificaterequests", "PodCertificateRequest")
    },
    Resource { group: "authentication.k8s.io", ..cluster("tokenreviews", "TokenReview") },
    Resource { group: "authorization.k8s.io", ..cluster("subjectaccessreviews", "SubjectAccessReview") },
    Resource { group: "node.k8s.io", unconditional_update: false, ..cluster("runtimeclasses", "RuntimeClass") },
    Resource { group: "storage.k8s.io", unconditional_update: false, ..cluster("csinodes", "CSINode") },
    Resource { group: "storage.k8s.io", unconditional_update: false, ..cluster("csidrivers", "CSIDriver") },
    Resource {
        group: "storage.k8s.io",
        status: true,
        unconditional_update: false,
        ..cluster("volumeattachments", "VolumeAttachment")
    },
    Resource {
        group: "resource.k8s.io",
        status: true,
        returns_deleted: true,
        unconditional_update: false,
        ..namespaced("resourceclaims", "ResourceClaim")
    },
    Resource { group: "resource.k8s.io", unconditional_update: false, ..cluster("resourceslices", "ResourceSlice") },
];

impl Resource {
    /// The name in error messages: `pods`, `leases.coordination.k8s.io`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.name, self.group) }
    }

    /// The name in validation errors: `Pod`, `Lease.coordination.k8s.io`.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    pub(crate) fn is(&self, group: &str, name: &str) -> bool {
        self.group == group && self.name == name
    }

    /// Whether this is the resource `name` of the core group.
    pub(crate) fn is_core(&self, name: &str) -> bool {
        self.is("", name)
    }

    /// The group under which objects are stored. Both event groups share theirs.
    fn storage_group(&self) -> &'static str {
        if self.group == "events.k8s.io" { "" } else { self.group }
    }

    pub(crate) fn is_served(group: &str, version: &str) -> bool {
        RESOURCES.iter().any(|resource| resource.group == group && resource.versions.contains(&version))
    }

    pub(crate) fn find(group: &str, version: &str, name: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|resource| resource.is(group, name) && resource.versions.contains(&version))
    }
}

/// The key of a stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub resource: &'static Resource,
    pub namespace: String,
    pub name: String,
}

impl Key {
    fn parts(&self) -> (&str, &str, &str, &str) {
        (self.resource.storage_group(), self.resource.name, &self.namespace, &self.name)
    }

    pub(crate) fn is_of(&self, resource: &Resource) -> bool {
        self.resource.name == resource.name && self.resource.storage_group() == resource.storage_group()
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The target of a path: all objects of a resource, those of a namespace, one object or its subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub resource: &'static Resource,
    pub version: &'static str,
    /// Empty for cluster-scoped objects, and for all namespaces.
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
    pub subresource: String,
}

impl Target {
    /// `None` for an unknown path.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let (group, version, rest) = match *parts {
            ["api", version, ref rest @ ..] => ("", version, rest),
            ["apis", group, version, ref rest @ ..] => (group, version, rest),
            _ => return None,
        };
        let (namespace, rest) = match *rest {
            // A namespace is an object, too. Its two subresources are no resources.
            ["namespaces", namespace, resource, ref rest @ ..] if !["status", "finalize"].contains(&resource) => {
                (namespace, [&[resource], rest].concat())
            }
            _ => ("", rest.to_vec()),
        };
        let (resource, name, subresource) = match *rest {
            [resource] => (resource, "", ""),
            [resource, name] => (resource, name, ""),
            [resource, name, subresource] => (resource, name, subresource),
            _ => return None,
        };
        let resource = Resource::find(group, version, resource)?;
        let version = resource.versions.iter().find(|known| **known == version)?;
        if !resource.namespaced && !namespace.is_empty() {
            return None;
        }
        let (namespace, name, subresource) = (namespace.to_owned(), name.to_owned(), subresource.to_owned());
        Some(Self { resource, version, namespace, name, subresource })
    }

    /// The target of an object, from its own kind and name.
    pub(crate) fn of_object(object: &Value) -> Option<Self> {
        let (group, version) = match object["apiVersion"].as_str()?.split_once('/') {
            Some(parts) => parts,
            None => ("", object["apiVersion"].as_str()?),
        };
        let kind = object["kind"].as_str()?;
        let resource = RESOURCES
            .iter()
            .find(|known| known.group == group && known.kind == kind && known.versions.contains(&version))?;
        let version = resource.versions.iter().find(|known| **known == version)?;
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let namespace = match (resource.namespaced, text("namespace")) {
            (true, namespace) if namespace.is_empty() => "default".to_owned(),
            (true, namespace) => namespace,
            (false, _) => String::new(),
        };
        Some(Self { resource, version, namespace, name: text("name"), subresource: String::new() })
    }

    pub(crate) fn key(&self) -> Key {
        Key { resource: self.resource, namespace: self.namespace.clone(), name: self.name.clone() }
    }

    pub(crate) fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    pub(crate) fn is_collection(&self) -> bool {
        self.name.is_empty()
    }

    /// Whether the target is this object, its subresource, or a collection that contains it.
    pub(crate) fn covers(&self, key: &Key) -> bool {
        key.is_of(self.resource)
            && (self.namespace.is_empty() || self.namespace == key.namespace)
            && (self.name.is_empty() || self.name == key.name)
    }

    pub(crate) fn api_version(&self) -> String {
        let group = self.resource.group;
        if group.is_empty() { self.version.to_owned() } else { format!("{group}/{}", self.version) }
    }

    pub(crate) fn path(&self) -> String {
        let group = self.resource.group;
        let mut path = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        let namespace = if self.namespace.is_empty() { "" } else { "namespaces" };
        for part in [self.version, namespace, &self.namespace, self.resource.name, &self.name, &self.subresource] {
            if !part.is_empty() {
                path = format!("{path}/{part}");
            }
        }
        path
    }
}
