//! Authorization: upstream's node authorizer, and a few rules for others.

use serde_json::Value;

use super::api_error::ApiError;
use super::identity::Identity;
use super::resources::{Resource, Target};
use super::selectors::Selector;
use super::world::{World, text};

/// The attributes of a request that authorization needs.
#[derive(Clone, Debug)]
pub(crate) struct Attributes<'a> {
    pub identity: &'a Identity,
    pub verb: &'a str,
    pub path: &'a str,
    /// `None` for a non-resource path.
    pub target: Option<&'a Target>,
    pub selector: Option<&'a Selector>,
}

/// Allowed, or the reason for a refusal.
type Decision = Result<(), String>;

pub(crate) fn authorize(world: &World, request: &Attributes<'_>) -> Result<(), ApiError> {
    let identity = request.identity;
    if identity.is_in("system:masters") {
        return Ok(());
    }
    let Some(target) = request.target else { return authorize_path(request) };
    let decision = match identity.node_name() {
        Some(_) if is_reenrolment_token(target, request.verb) => Ok(()),
        Some(node) => authorize_node(world, node, target, request),
        _ if is_public(target, request.verb) => Ok(()),
        None if identity.is_in("system:bootstrappers") => for_bootstrap(target, request.verb),
        None if identity.user == REENROLMENT_ACCOUNT => for_reenrolment(target, request.verb),
        None => Err(String::new()),
    };
    let Err(reason) = decision else { return Ok(()) };
    let resource = target.resource;
    let part = match target.subresource.as_str() {
        "" => resource.name.to_owned(),
        subresource => format!("{}/{subresource}", resource.name),
    };
    let scope = match target.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let (user, verb, group) = (&identity.user, request.verb, resource.group);
    let mut why = format!("User {user:?} cannot {verb} resource {part:?} in API group {group:?} {scope}");
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    Err(ApiError::forbidden(resource, name_of(target, request), &why))
}

fn authorize_path(request: &Attributes<'_>) -> Result<(), ApiError> {
    let (user, verb, path) = (&request.identity.user, request.verb, request.path);
    let is_public = ["/healthz", "/livez", "/readyz", "/version"]
        .iter()
        .any(|public| path.strip_prefix(public).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    let is_discovery = request.identity.is_in("system:authenticated")
        && ["/api", "/apis", "/openapi"].iter().any(|known| path.starts_with(known));
    if verb == "get" && (is_public || is_discovery) {
        return Ok(());
    }
    Err(ApiError::forbidden_path(&format!("User {user:?} cannot {verb} path {path:?}")))
}

/// Public information of a kubeadm cluster.
fn is_public(target: &Target, verb: &str) -> bool {
    let is_info = (&*target.namespace, &*target.name) == ("kube-public", "cluster-info");
    verb == "get" && target.resource.is("", "configmaps") && is_info
}

fn for_bootstrap(target: &Target, verb: &str) -> Decision {
    let is_request = target.resource.is("certificates.k8s.io", "certificatesigningrequests");
    // The rules that kubeadm creates for joining nodes.
    let is_config = target.resource.is("", "configmaps")
        && target.namespace == "kube-system"
        && ["kubelet-config", "kubeadm-config"].contains(&&*target.name);
    let reads = verb == "get" && (is_config || target.resource.is("", "nodes"));
    let asks = is_request && target.subresource.is_empty() && ["create", "get", "list", "watch"].contains(&verb);
    let may = reads || asks;
    if may { Ok(()) } else { Err(String::new()) }
}

/// The rules of examples/reenrolment/reenrolment.yaml.
const REENROLMENT_ACCOUNT: &str = "system:serviceaccount:kube-system:coracle-reenrolment";

fn for_reenrolment(target: &Target, verb: &str) -> Decision {
    let is_request = target.resource.is("certificates.k8s.io", "certificatesigningrequests");
    let asks = is_request && target.subresource.is_empty() && ["create", "get", "list", "watch"].contains(&verb);
    if asks { Ok(()) } else { Err(String::new()) }
}

fn is_reenrolment_token(target: &Target, verb: &str) -> bool {
    let is_token = (&*target.namespace, &*target.name) == ("kube-system", "coracle-reenrolment");
    verb == "get" && target.resource.is("", "secrets") && is_token
}

/// The requested name; for a list, the name in its field selector.
fn name_of<'a>(target: &'a Target, request: &'a Attributes<'_>) -> &'a str {
    if !target.name.is_empty() {
        return &target.name;
    }
    request.selector.and_then(|selector| selector.field("metadata.name")).unwrap_or_default()
}

fn authorize_node(world: &World, node: &str, target: &Target, request: &Attributes<'_>) -> Decision {
    let (verb, part) = (request.verb, target.subresource.as_str());
    let name = name_of(target, request);
    let reads = ["get", "list", "watch"].contains(&verb);
    let related = || related(world, node, target, name);
    match (target.resource.group, target.resource.name) {
        ("", "secrets" | "configmaps") => match (reads, part, target.namespace.as_str()) {
            (false, ..) => deny("can only read resources of this type"),
            (_, part, _) if !part.is_empty() => deny("cannot read subresource"),
            (_, _, "") => deny("can only read namespaced object of this type"),
            _ => related(),
        },
        ("", "persistentvolumeclaims") if part == "status" => match verb {
            "update" | "patch" => related(),
            _ => deny("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims" | "persistentvolumes") | ("storage.k8s.io", "volumeattachments") => {
            match (verb, part) {
                ("get", "") => related(),
                ("get", _) => deny("cannot get subresource"),
                _ => deny("can only get individual resources of this type"),
            }
        }
        ("", "serviceaccounts") => match (verb, part) {
            ("get", "") => related(),
            ("create", "token") => related(),
            ("create", _) => deny("can only create token subresource of serviceaccount"),
            _ => deny("can only create tokens for individual service accounts"),
        },
        ("resource.k8s.io", "resourceclaims") => match (verb, part) {
            ("get", "") => related(),
            ("get", _) => deny("cannot get subresource"),
            _ => deny("can only get individual resources of this type"),
        },
        ("certificates.k8s.io", "podcertificaterequests") => match (verb, part) {
            (_, part) if !part.is_empty() => {
                deny("nodes may not access the status subresource of PodCertificateRequests")
            }
            ("create", _) => Ok(()),
            ("get", _) => related(),
            ("list" | "watch", _) => {
                let own = request.selector.and_then(|selector| selector.field("spec.nodeName")) == Some(node);
                let why = "can only list/watch podcertificaterequests with nodeName field selector";
                if own { Ok(()) } else { deny(why) }
            }
            _ => deny(&format!("nodes may not {verb} podcertificaterequests")),
        },
        ("resource.k8s.io", "resourceslices") => match verb {
            "list" | "watch" | "deletecollection" => {
                let own = request.selector.and_then(|selector| selector.field("spec.nodeName")) == Some(node);
                if own {
                    Ok(())
                } else {
                    deny("can only list/watch/deletecollection resourceslices with nodeName field selector")
                }
            }
            _ => Ok(()),
        },
        ("coordination.k8s.io", "leases") => for_lease(node, target, verb),
        ("storage.k8s.io", "csinodes") => match verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" if name == node => Ok(()),
            "get" | "update" | "patch" | "delete" => {
                deny("can only access CSINode with the same name as the requesting node")
            }
            _ => deny("can only get, create, update, patch, or delete a CSINode"),
        },
        ("", "nodes") => for_node(node, name, verb, part),
        ("", "pods") => match (part, verb) {
            ("", "get") => related(),
            ("", "list" | "watch") => {
                let own = request.selector.and_then(|selector| selector.field("spec.nodeName")) == Some(node);
                match (own, name) {
                    (true, _) => Ok(()),
                    (false, "") => deny("can only list/watch pods with spec.nodeName field selector"),
                    _ => related(),
                }
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => deny(""),
        },
        _ => by_rule(target, verb),
    }
}

fn deny(why: &str) -> Decision {
    Err(why.to_owned())
}

fn for_lease(node: &str, target: &Target, verb: &str) -> Decision {
    if !["get", "create", "update", "patch", "delete"].contains(&verb) {
        return deny("can only get, create, update, patch, or delete a node lease");
    }
    if target.namespace != "kube-node-lease" {
        return deny("can only access leases in the \"kube-node-lease\" system namespace");
    }
    if verb != "create" && target.name != node {
        return deny("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn for_node(node: &str, name: &str, verb: &str, part: &str) -> Decision {
    match (part, verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") if name == node => Ok(()),
        ("", "get" | "list" | "watch") if name.is_empty() => {
            deny(&format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("", "get" | "list" | "watch") => {
            deny(&format!("node '{node}' cannot read '{name}', only its own Node object"))
        }
        _ => deny(""),
    }
}

/// The permissions of every node.
fn by_rule(target: &Target, verb: &str) -> Decision {
    let read: &[&str] = &["get", "list", "watch"];
    let verbs: &[&str] = match (target.resource.group, target.resource.name, target.subresource.as_str()) {
        ("", "services", "")
        | ("node.k8s.io", "runtimeclasses", "")
        | ("storage.k8s.io", "csidrivers", "")
        | ("certificates.k8s.io", "clustertrustbundles", "") => read,
        ("" | "events.k8s.io", "events", "") => &["create", "update", "patch"],
        ("", "endpoints", "") => &["get"],
        ("certificates.k8s.io", "certificatesigningrequests", "") => &["create", "get", "list", "watch"],
        ("authentication.k8s.io", "tokenreviews", "") | ("authorization.k8s.io", "subjectaccessreviews", "") => {
            &["create"]
        }
        _ => &[],
    };
    if verbs.contains(&verb) { Ok(()) } else { deny("") }
}

/// Whether something on the node refers to the object.
fn related(world: &World, node: &str, target: &Target, name: &str) -> Decision {
    if name.is_empty() {
        return deny("No Object name found");
    }
    let of_pods = || pods_of(world, node, &target.namespace).into_iter();
    let is_related = match target.resource.name {
        "pods" => of_pods().any(|pod| text(pod, "/metadata/name") == name),
        "volumeattachments" | "podcertificaterequests" => {
            world.find(&target.named(name).key()).is_some_and(|attachment| text(attachment, "/spec/nodeName") == node)
        }
        "persistentvolumes" => {
            world.find(&target.named(name).key()).is_some_and(|volume| is_on_node(world, node, volume))
        }
        what => {
            // A node must not gain rights through its own mirror pods.
            let mut real = of_pods().filter(|pod| !is_mirror(pod));
            real.any(|pod| references(pod, what).contains(&name.to_owned()))
                || what == "secrets" && of_volumes(world, node, &target.namespace, name)
        }
    };
    if is_related { Ok(()) } else { Err(format!("no relationship found between node '{node}' and this object")) }
}

fn pods_of<'a>(world: &'a World, node: &str, namespace: &str) -> Vec<&'a Value> {
    let pods = Target {
        resource: Resource::find("", "v1", "pods").expect("it is served"),
        version: "v1",
        namespace: namespace.to_owned(),
        name: String::new(),
        subresource: String::new(),
    };
    let all = world.store.list(&pods).map(|(_, object)| &**object);
    all.filter(|pod| text(pod, "/spec/nodeName") == node).collect()
}

/// Whether a pod of the node claims the volume.
fn is_on_node(world: &World, node: &str, volume: &Value) -> bool {
    let claim = |field: &str| text(volume, &format!("/spec/claimRef/{field}")).to_owned();
    let pods = pods_of(world, node, &claim("namespace"));
    let mut real = pods.into_iter().filter(|pod| !is_mirror(pod));
    real.any(|pod| references(pod, "persistentvolumeclaims").contains(&claim("name")))
}

/// Whether a volume in use on the node refers to the secret (`pvutil.VisitPVSecretNames`).
fn of_volumes(world: &World, node: &str, namespace: &str, name: &str) -> bool {
    let named = |volume: &Value| {
        ["nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"].iter().any(|field| {
            let secret = &volume["spec"]["csi"][*field];
            secret["namespace"] == namespace && secret["name"] == name
        })
    };
    world.list("/api/v1/persistentvolumes").iter().any(|volume| named(volume) && is_on_node(world, node, volume))
}

fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null()
}

/// The names of a resource that a pod refers to.
pub(crate) fn references(pod: &Value, resource: &str) -> Vec<String> {
    let spec = &pod["spec"];
    let mut names: Vec<&Value> = Vec::new();
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let containers = lists.iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
    let (in_env, in_env_from, in_volume, its_name) = match resource {
        "secrets" => ("secretKeyRef", "secretRef", "secret", "secretName"),
        _ => ("configMapKeyRef", "configMapRef", "configMap", "name"),
    };
    let volumes = || spec["volumes"].as_array().into_iter().flatten();
    match resource {
        "secrets" | "configmaps" => {
            for container in containers {
                let env = container["env"].as_array().into_iter().flatten();
                names.extend(env.map(|variable| &variable["valueFrom"][in_env]["name"]));
                let env_from = container["envFrom"].as_array().into_iter().flatten();
                names.extend(env_from.map(|source| &source[in_env_from]["name"]));
            }
            for volume in volumes() {
                names.push(&volume[in_volume][its_name]);
                let sources = volume["projected"]["sources"].as_array().into_iter().flatten();
                names.extend(sources.map(|source| &source[in_volume]["name"]));
                if resource == "secrets" {
                    names.push(&volume["csi"]["nodePublishSecretRef"]["name"]);
                }
            }
            if resource == "secrets" {
                let pull = spec["imagePullSecrets"].as_array().into_iter().flatten();
                names.extend(pull.map(|secret| &secret["name"]));
            }
        }
        "persistentvolumeclaims" => {
            names.extend(volumes().map(|volume| &volume["persistentVolumeClaim"]["claimName"]));
        }
        "serviceaccounts" => names.push(&spec["serviceAccountName"]),
        "resourceclaims" => {
            let named = spec["resourceClaims"].as_array().into_iter().flatten();
            names.extend(named.map(|claim| &claim["resourceClaimName"]));
            let generated = pod["status"]["resourceClaimStatuses"].as_array().into_iter().flatten();
            names.extend(generated.map(|status| &status["resourceClaimName"]));
            names.push(&pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]);
        }
        _ => {}
    }
    let mut names: Vec<String> = names.into_iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
    if resource == "persistentvolumeclaims" {
        let ephemeral = volumes().filter(|volume| !volume["ephemeral"].is_null());
        names.extend(ephemeral.map(|volume| format!("{}-{}", text(pod, "/metadata/name"), text(volume, "/name"))));
    }
    if resource == "serviceaccounts" && names.is_empty() {
        names.push("default".to_owned());
    }
    names
}
