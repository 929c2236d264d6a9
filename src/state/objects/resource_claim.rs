//! ResourceClaims of pods (dynamic resource allocation). Pure.

use std::fmt;

use serde_json::Value;

use super::is_controlled_by;
use crate::types::api::{Pod, PodResourceClaimKeys, PodUid, TextObject};
use crate::types::sorted::{SortedMap, SortedSet};

/// An allocated `resource.k8s.io/v1` ResourceClaim that a pod may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceClaim {
    pub(crate) uid: String,
    /// The drivers of its allocated devices.
    pub(crate) drivers: SortedSet<String>,
    /// The allocated devices of [`DEVICE_FILES_DRIVER`].
    pub(crate) files: Vec<AllocatedFile>,
}

/// The driver of this node's device files. The agent itself prepares its claims.
pub(crate) const DEVICE_FILES_DRIVER: &str = "devices.coracle.dev";

/// A device file that a claim allocates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocatedFile {
    /// Without the subrequest.
    pub(crate) request: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    /// Others may have the device.
    pub(crate) has_admin_access: bool,
}

/// A claim, read for one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResourceClaimKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) pod: PodUid,
    pub(crate) pod_name: String,
    /// The claim was generated from a template for the pod, which owns it.
    pub(crate) is_generated: bool,
}

/// An entry of `spec.resourceClaims`, or the claim that the scheduler made for extended resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodClaim<'a> {
    /// The name in the pod; empty for extended resources.
    pub(crate) entry: &'a str,
    /// The ResourceClaim object; `None` if the entry needs none.
    pub(crate) claim: Option<&'a str>,
    pub(crate) is_generated: bool,
}

/// Why a pod cannot use a claim, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClaimRefusal {
    Unallocated {
        name: String,
    },
    /// The claim was generated for another pod.
    OtherOwner {
        namespace: String,
        name: String,
        pod_name: String,
    },
    Unreserved {
        name: String,
        uid: String,
        pod_name: String,
        pod: PodUid,
    },
}

/// The ResourceClaim of a template does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimNotCreated {
    namespace: String,
    pod_name: String,
}

impl ResourceClaim {
    /// Checks that the claim may be used by the pod of `key`.
    pub(crate) fn read(object: &Value, key: &ResourceClaimKey) -> Result<Self, ClaimRefusal> {
        let ResourceClaimKey { namespace, name, pod, pod_name, is_generated } = key;
        let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let uid = text(object, "/metadata/uid").unwrap_or_default();
        if *is_generated && !is_controlled_by(object, pod) {
            let (namespace, name, pod_name) = (namespace.clone(), name.clone(), pod_name.clone());
            return Err(ClaimRefusal::OtherOwner { namespace, name, pod_name });
        }
        let list = |path: &str| object.pointer(path).and_then(Value::as_array).into_iter().flatten();
        let is_reserved = |one: &Value| one.get("uid").and_then(Value::as_str) == Some(pod.as_str());
        if !list("/status/reservedFor").any(is_reserved) {
            let (name, pod_name, pod) = (name.clone(), pod_name.clone(), pod.clone());
            return Err(ClaimRefusal::Unreserved { name, uid, pod_name, pod });
        }
        if !object.pointer("/status/allocation").is_some_and(Value::is_object) {
            return Err(ClaimRefusal::Unallocated { name: name.clone() });
        }
        let results = list("/status/allocation/devices/results");
        let file = |result: &Value| {
            let field = |path: &str| text(result, path).unwrap_or_default();
            let request = field("/request");
            AllocatedFile {
                request: request.split_once('/').map_or(&*request, |(request, _)| request).to_owned(),
                pool: field("/pool"),
                device: field("/device"),
                has_admin_access: result.pointer("/adminAccess").and_then(Value::as_bool).unwrap_or_default(),
            }
        };
        let is_file = |result: &&Value| text(result, "/driver").as_deref() == Some(DEVICE_FILES_DRIVER);
        let files = results.clone().filter(is_file).map(file).collect();
        Ok(Self { uid, drivers: results.filter_map(|result| text(result, "/driver")).collect(), files })
    }
}

impl ResourceClaimKey {
    pub(crate) fn new(pod: &Pod, name: &str, is_generated: bool) -> Self {
        let metadata = &pod.metadata;
        Self {
            namespace: metadata.namespace.clone(),
            name: name.to_owned(),
            pod: metadata.uid.clone(),
            pod_name: metadata.name.clone(),
            is_generated,
        }
    }
}

/// The claims of a pod, in the order of the pod.
pub(crate) fn pod_claims(pod: &Pod) -> impl Iterator<Item = Result<PodClaim<'_>, ClaimNotCreated>> {
    let extended = pod.status.extended_resource_claim_status.as_deref();
    let extended = extended.and_then(|status| status.get("resourceClaimName")?.as_str());
    let extended = extended.map(|name| Ok(PodClaim { entry: "", claim: Some(name), is_generated: false }));
    // Reversed: of two with the same name upstream takes the first, and the map the last.
    let statuses = pod.status.resource_claim_statuses.iter().rev();
    let statuses: SortedMap<&str, Option<&str>> =
        statuses.filter_map(|status| Some((status.get("name")?, status.get("resourceClaimName")))).collect();
    pod.spec.resource_claims.iter().map(move |entry| named(pod, entry, &statuses)).chain(extended)
}

/// Requests of a container's extended resources in the claim that the scheduler made for them. A claim has at most 32
/// requests (upstream's `DeviceRequestsMaxSize`), so the list that is searched is short.
pub(crate) fn extended_requests<'a>(pod: &'a Pod, container: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let mappings = pod.status.extended_resource_claim_status.as_deref();
    let mappings = mappings.and_then(|status| status.get("requestMappings")?.as_array()).into_iter().flatten();
    mappings.filter_map(move |mapping| {
        let text = |key: &str| mapping.get(key).and_then(Value::as_str);
        (text("containerName") == Some(container)).then_some((text("resourceName")?, text("requestName")?))
    })
}

/// The extended resources of the pod's containers that are served by a claim.
pub(crate) fn claimed_resources(pod: &Pod) -> SortedSet<&str> {
    let containers = pod.spec.containers_by_name();
    let mappings = pod.status.extended_resource_claim_status.as_deref();
    let mappings = mappings.and_then(|status| status.get("requestMappings")?.as_array()).into_iter().flatten();
    let resources = mappings.filter_map(|mapping| {
        let text = |key: &str| mapping.get(key).and_then(Value::as_str);
        let is_there = containers.contains_key(text("containerName")?) && text("requestName").is_some();
        text("resourceName").filter(|_| is_there)
    });
    resources.collect()
}

/// Whether a container's extended resource is served by a claim, and by no device plugin.
pub(crate) fn is_backed_by_claim(pod: &Pod, container: &str, resource: &str) -> bool {
    extended_requests(pod, container).any(|(mapped, _)| mapped == resource)
}

fn named<'a>(
    pod: &'a Pod,
    entry: TextObject<'a, PodResourceClaimKeys>,
    statuses: &SortedMap<&'a str, Option<&'a str>>,
) -> Result<PodClaim<'a>, ClaimNotCreated> {
    let name = entry.get("name").unwrap_or_default();
    if let Some(claim) = entry.get("resourceClaimName") {
        return Ok(PodClaim { entry: name, claim: Some(claim), is_generated: false });
    }
    let Some(claim) = statuses.get(name).copied() else {
        let (namespace, pod_name) = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        return Err(ClaimNotCreated { namespace, pod_name });
    };
    Ok(PodClaim { entry: name, claim, is_generated: true })
}

impl fmt::Display for ClaimRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unallocated { name } => write!(f, "ResourceClaim {name}: not allocated"),
            Self::OtherOwner { namespace, name, pod_name } => write!(
                f,
                "ResourceClaim {namespace}/{name} was not created for Pod {namespace}/{pod_name} (Pod is not owner)"
            ),
            Self::Unreserved { name, uid, pod_name, pod } => {
                write!(f, "pod {pod_name} ({pod}) is not allowed to use ResourceClaim {name} ({uid})")
            }
        }
    }
}

impl fmt::Display for ClaimNotCreated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod \"{}/{}\": ResourceClaim not created yet", self.namespace, self.pod_name)
    }
}

impl std::error::Error for ClaimRefusal {}
impl std::error::Error for ClaimNotCreated {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    fn pod(fields: Value) -> Pod {
        let mut pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "u"}, "spec": {}});
        for (key, value) in fields.as_object().unwrap() {
            pod[key.as_str()] = value.clone();
        }
        decode(pod).unwrap().value
    }

    fn claim(reserved: &str) -> Value {
        json!({
            "metadata": {"name": "c", "uid": "c-uid", "ownerReferences": [{"uid": "u", "controller": true}]},
            "status": {
                "reservedFor": [{"resource": "pods", "name": "p", "uid": reserved}],
                "allocation": {"devices": {"results": [
                    {"driver": "gpu.example.com", "pool": "n", "device": "a"},
                    {"driver": "gpu.example.com", "pool": "n", "device": "b"},
                    {"driver": "nic.example.com", "pool": "n", "device": "c"},
                ]}},
            },
        })
    }

    #[test]
    fn allocated_and_reserved_claim_names_its_drivers() {
        let key = ResourceClaimKey::new(&pod(json!({})), "c", true);
        let read = ResourceClaim::read(&claim("u"), &key).unwrap();
        assert_eq!(read.uid, "c-uid");
        assert_eq!(read.drivers, ["gpu.example.com", "nic.example.com"].map(str::to_owned).into_iter().collect());
        assert_eq!(read.files, []);
    }

    #[test]
    fn device_files_of_a_claim_are_those_of_the_nodes_own_driver() {
        let mut object = claim("u");
        let result = json!({
            "request": "camera/best", "driver": DEVICE_FILES_DRIVER, "pool": "n", "device": "video0", "adminAccess": true,
        });
        object["status"]["allocation"]["devices"]["results"].as_array_mut().unwrap().push(result);
        let read = ResourceClaim::read(&object, &ResourceClaimKey::new(&pod(json!({})), "c", true)).unwrap();
        let [request, pool, device] = ["camera", "n", "video0"].map(str::to_owned);
        assert_eq!(read.files, [AllocatedFile { request, pool, device, has_admin_access: true }]);
    }

    #[test]
    fn refusals_have_upstreams_text() {
        let key = |is_generated| ResourceClaimKey::new(&pod(json!({})), "c", is_generated);
        let refused = |object: &Value, is_generated| {
            ResourceClaim::read(object, &key(is_generated)).map(|_| ()).unwrap_err().to_string()
        };
        let mut foreign = claim("u");
        foreign["metadata"]["ownerReferences"][0]["uid"] = "other".into();
        let text = "ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)";
        assert_eq!(refused(&foreign, true), text);
        assert!(ResourceClaim::read(&foreign, &key(false)).is_ok(), "a claim by name has no owner");
        let text = "pod p (u) is not allowed to use ResourceClaim c (c-uid)";
        assert_eq!(refused(&claim("other"), false), text);
        let mut open = claim("u");
        open["status"]["allocation"].take();
        assert_eq!(refused(&open, false), "ResourceClaim c: not allocated");
    }

    #[test]
    fn claims_are_found_by_name_by_status_and_for_extended_resources() {
        let pod = pod(json!({
            "spec": {"resourceClaims": [
                {"name": "own", "resourceClaimName": "c"},
                {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "needless", "resourceClaimTemplateName": "t"},
                {"name": "late", "resourceClaimTemplateName": "t"},
            ]},
            "status": {
                "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "needless"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "p-extended", "requestMappings": [
                    {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"},
                    {"containerName": "side", "resourceName": "example.com/gpu", "requestName": "container-1-request-0"},
                ]},
            },
        }));
        let claims: Vec<_> = pod_claims(&pod).map(|claim| claim.map(|claim| (claim.entry, claim.claim))).collect();
        let late = ClaimNotCreated { namespace: "ns".to_owned(), pod_name: "p".to_owned() };
        assert_eq!(late.to_string(), "pod \"ns/p\": ResourceClaim not created yet");
        let (own, made, extended) = (Some("c"), Some("p-made-x"), Some("p-extended"));
        let wanted = [Ok(("own", own)), Ok(("made", made)), Ok(("needless", None)), Err(late), Ok(("", extended))];
        assert_eq!(claims, wanted);
        let requests: Vec<_> = extended_requests(&pod, "main").collect();
        assert_eq!(requests, [("example.com/gpu", "container-0-request-0")]);
        assert!(is_backed_by_claim(&pod, "side", "example.com/gpu"));
        assert!(!is_backed_by_claim(&pod, "other", "example.com/gpu"));
    }
}
