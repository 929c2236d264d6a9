//! Write permissions of nodes: upstream's admission plugin NodeRestriction.

use serde_json::Value;

use super::api_error::ApiError;
use super::authorizer::references;
use super::pod_certificates;
use super::resources::{Resource, Target};
use super::signer;
use super::world::{World, text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Admits or refuses a write by the kubelet of `node`.
pub(crate) fn admit(
    world: &World,
    node: &str,
    target: &Target,
    operation: Operation,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let null = Value::Null;
    let (new, old) = (new.unwrap_or(&null), old.unwrap_or(&null));
    let decision = match (target.resource.group, target.resource.name) {
        ("", "pods") if target.subresource == "status" => pod_status(node, new, old),
        ("", "pods") => match operation {
            Operation::Create => return mirror_pod(world, node, target, new),
            Operation::Delete if text(old, "/spec/nodeName") == node => Ok(()),
            Operation::Delete => Err(format!("node {node:?} can only delete pods with spec.nodeName set to itself")),
            Operation::Update => {
                Err(format!("unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"))
            }
        },
        ("", "nodes") => own_node(node, target, operation, new, old),
        ("coordination.k8s.io", "leases") if target.namespace != "kube-node-lease" => {
            Err("can only access leases in the \"kube-node-lease\" system namespace".to_owned())
        }
        ("coordination.k8s.io", "leases") if target.name != node => {
            Err("can only access node lease with the same name as the requesting node".to_owned())
        }
        ("storage.k8s.io", "csinodes") if target.name != node => {
            Err("can only access CSINode with the same name as the requesting node".to_owned())
        }
        ("", "persistentvolumeclaims") if target.subresource != "status" => {
            Err("may only update PVC status".to_owned())
        }
        ("certificates.k8s.io", "podcertificaterequests") => {
            return pod_certificates::admit(world, node, target, operation, new);
        }
        ("certificates.k8s.io", "certificatesigningrequests") if operation == Operation::Create => request(node, new),
        _ => Ok(()),
    };
    decision.map_err(|why| ApiError::forbidden(target.resource, &target.name, &why))
}

fn pod_status(node: &str, new: &Value, old: &Value) -> Result<(), String> {
    if text(old, "/spec/nodeName") != node {
        return Err(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    if new["metadata"]["labels"] != old["metadata"]["labels"] {
        return Err(format!("node {node:?} cannot update labels through pod status"));
    }
    Ok(())
}

fn mirror_pod(world: &World, node: &str, target: &Target, pod: &Value) -> Result<(), ApiError> {
    let forbidden = |why: String| Err(ApiError::forbidden(target.resource, &target.name, &why));
    let metadata = &pod["metadata"];
    if metadata["annotations"][MIRROR].is_null() {
        return forbidden(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if text(pod, "/spec/nodeName") != node {
        return forbidden(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let to_itself = format!("node {node:?} can only create pods with an owner reference set to itself");
    let owner = match owners {
        [owner] => owner,
        [] => return forbidden(to_itself),
        _ => {
            return forbidden(format!(
                "node {node:?} can only create pods with a single owner reference set to itself"
            ));
        }
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return forbidden(to_itself);
    }
    if owner["controller"] != true {
        return forbidden(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself"
        ));
    }
    if owner["blockOwnerDeletion"] == true {
        return forbidden(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let own = node_object(world, node)?;
    let (expected, found) = (text(&own, "/metadata/uid"), text(owner, "/uid"));
    if expected != found {
        return forbidden(format!("node {node} UID mismatch: expected {found} got {expected}"));
    }
    let references_any = |resource: &&str| !references(pod, resource).is_empty();
    let mut resources = ["secrets", "configmaps", "persistentvolumeclaims"].iter().copied();
    let has_account = !pod["spec"]["serviceAccountName"].is_null();
    match has_account.then_some("serviceaccounts").or_else(|| resources.find(references_any)) {
        Some(resource) => forbidden(format!("node {node:?} can not create pods that reference {resource}")),
        None => Ok(()),
    }
}

fn node_object(world: &World, node: &str) -> Result<Value, ApiError> {
    let nodes = Resource::find("", "v1", "nodes").expect("it is served");
    let (namespace, subresource) = (String::new(), String::new());
    world.get_object(&Target { resource: nodes, version: "v1", namespace, name: node.to_owned(), subresource })
}

fn own_node(node: &str, target: &Target, operation: Operation, new: &Value, old: &Value) -> Result<(), String> {
    if target.name != node {
        return Err(format!("node {node:?} is not allowed to modify node {:?}", target.name));
    }
    let labels = forbidden_labels(new, old).join(", ");
    match operation {
        Operation::Create if !labels.is_empty() => {
            Err(format!("node {node:?} is not allowed to set the following labels: {labels}"))
        }
        Operation::Update if new["spec"]["taints"] != old["spec"]["taints"] => {
            Err(format!("node {node:?} is not allowed to modify taints"))
        }
        Operation::Update if new["metadata"]["ownerReferences"] != old["metadata"]["ownerReferences"] => {
            Err(format!("node {node:?} is not allowed to modify ownerReferences"))
        }
        Operation::Update if !labels.is_empty() => Err(format!("is not allowed to modify labels: {labels}")),
        _ => Ok(()),
    }
}

/// Changed labels that no node may set.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let labels = |object: &Value| object["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let (new, old) = (labels(new), labels(old));
    let mut differing: Vec<String> =
        new.keys().chain(old.keys()).filter(|key| new.get(*key) != old.get(*key)).cloned().collect();
    differing.sort();
    differing.dedup();
    differing.retain(|key| {
        let is_under =
            |namespace: &str, parent: &str| namespace == parent || namespace.ends_with(&format!(".{parent}"));
        let Some((namespace, _)) = key.split_once('/') else { return false };
        let is_kubernetes = is_under(namespace, "kubernetes.io") || is_under(namespace, "k8s.io");
        let is_of_kubelets = OF_KUBELETS.contains(&key.as_str())
            || is_under(namespace, "kubelet.kubernetes.io")
            || is_under(namespace, "node.kubernetes.io");
        is_under(namespace, "node-restriction.kubernetes.io") || is_kubernetes && !is_of_kubelets
    });
    differing
}

const OF_KUBELETS: &[&str] = &[
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// A node may request certificates only for itself.
fn request(node: &str, object: &Value) -> Result<(), String> {
    let signer = text(object, "/spec/signerName");
    if ![signer::CLIENT_SIGNER, signer::SERVING_SIGNER].contains(&signer) {
        return Ok(());
    }
    let Some(request) = signer::request_of(object) else {
        return Err("unable to parse csr: PEM block type must be CERTIFICATE REQUEST".to_owned());
    };
    let name = request.subject.common_name.unwrap_or_default();
    if name == format!("system:node:{node}") {
        return Ok(());
    }
    Err(format!("can only create a node CSR with CN=system:node:{node}"))
}

/// A token must be bound to a pod of the node.
pub(crate) fn admit_token(world: &World, node: &str, target: &Target, body: &Value) -> Result<(), ApiError> {
    let forbidden = |why: &str| Err(ApiError::forbidden(target.resource, &target.name, why));
    let reference = &body["spec"]["boundObjectRef"];
    if reference["apiVersion"] != "v1" || reference["kind"] != "Pod" || text(reference, "/name").is_empty() {
        return forbidden("node requested token not bound to a pod");
    }
    let uid = text(reference, "/uid");
    if uid.is_empty() {
        return forbidden("node requested token with a pod binding without a uid");
    }
    let pods = Resource::find("", "v1", "pods").expect("it is served");
    let pod = Target { resource: pods, subresource: String::new(), ..target.named(text(reference, "/name")) };
    let pod = world.get_object(&pod)?;
    if text(&pod, "/metadata/uid") != uid {
        return forbidden(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        ));
    }
    if text(&pod, "/spec/nodeName") != node {
        return forbidden("node requested token bound to a pod scheduled on a different node");
    }
    let audiences = body["spec"]["audiences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let audience = match audiences {
        [] => "",
        [audience] => audience.as_str().unwrap_or_default(),
        _ => return forbidden("node may only request 0 or 1 audiences"),
    };
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let mut sources = volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    let is_asked = |source: &Value| {
        let token = &source["serviceAccountToken"];
        token.is_object() && text(token, "/audience") == audience
    };
    // Covers volumes in the pod's own spec. No test uses those of claims yet.
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let drivers: Vec<&Value> = volumes.map(|volume| &volume["csi"]["driver"]).filter(|name| name.is_string()).collect();
    let all = world.list("/apis/storage.k8s.io/v1/csidrivers");
    let wants = |driver: &std::sync::Arc<Value>| {
        let mut requests = driver["spec"]["tokenRequests"].as_array().into_iter().flatten();
        drivers.contains(&&driver["metadata"]["name"]) && requests.any(|one| text(one, "/audience") == audience)
    };
    // Granted by RBAC, for credential providers.
    let granted = ["system:nodes", "request-serviceaccounts-token-audience", audience];
    if sources.any(is_asked) || all.iter().any(wants) || world.allowed.iter().any(|rule| *rule == granted) {
        return Ok(());
    }
    forbidden(&format!(
        "audience {audience:?} not found in pod spec volume, system:node:{node} is not authorized to request tokens for \
         this audience"
    ))
}
