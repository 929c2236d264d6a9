//! What to do about a problem, by its reason or the text of its error. Pure.

use crate::types::api::{ContainerStateTerminated, Pod, Reason};
use crate::types::architecture::BUILD_FOR_THIS_MACHINE;

pub(super) const IMPORT_IMAGE: &str =
    "copy an archive of the image into the image archive directory, or set imagePullPolicy: IfNotPresent";

/// How runtimes report a program of another architecture.
pub(super) const EXEC_FORMAT_ERROR: [&str; 2] = ["exec format error", "Exec format error"];

/// A phrase of an error text, what it means, and what to do.
struct Known {
    phrases: &'static [&'static str],
    cause: &'static str,
    advice: &'static str,
}

/// The first entry with a phrase in the text counts.
const PULL_ADVICE: [Known; 8] = [
    Known {
        phrases: &["no match for platform", "no image found in manifest list for architecture", "no matching manifest"],
        cause: "it has no variant for this machine's architecture",
        advice: BUILD_FOR_THIS_MACHINE,
    },
    Known {
        phrases: &["x509:", "certificate"],
        cause: "the registry's certificate is not trusted",
        advice: "add the registry's CA to the node, and check the node's clock",
    },
    Known {
        phrases: &["server gave HTTP response to HTTPS client"],
        cause: "the registry speaks HTTP, not HTTPS",
        advice: "configure the registry as insecure in the runtime, or give it a certificate",
    },
    Known {
        phrases: &["unauthorized", "authorization failed", "access denied", "403 Forbidden", "401 Unauthorized"],
        cause: "the registry denies access, or the image does not exist",
        advice: "check the image's name, and the pull Secret or the node's credentials",
    },
    Known {
        phrases: &["not found", "manifest unknown", "404"],
        cause: "the registry does not have it",
        advice: "check the image's name and tag",
    },
    Known {
        phrases: &["no such host", "server misbehaving", "Temporary failure in name resolution"],
        cause: "the registry's name cannot be resolved",
        advice: "check the node's DNS and network, or import the image from an archive",
    },
    Known {
        phrases: &[
            "connection refused",
            "no route to host",
            "network is unreachable",
            "i/o timeout",
            "deadline exceeded",
        ],
        cause: "the registry cannot be reached",
        advice: "check the network and the registry's address, or import the image from an archive",
    },
    Known {
        phrases: &["no space left on device"],
        cause: "the disk is full",
        advice: "free disk space: coracle images lists what is not in use",
    },
];

/// The cause in a pull error, if it is a usual one.
pub(super) fn pull_error(text: &str) -> Option<&'static str> {
    find_advice(&PULL_ADVICE, text).map(|advice| advice.cause)
}

pub(super) fn of_pull(text: &str, reason: &Reason) -> &'static str {
    match find_advice(&PULL_ADVICE, text) {
        Some(entry) => entry.advice,
        None if *reason == Reason::SIGNATURE_VALIDATION_FAILED => "sign the image, or change the signature policy",
        None => "check the image's name, the registry and the network",
    }
}

const START_ADVICE: [Known; 9] = [
    Known {
        phrases: &["unable to set memory limit", "memory limit too low"],
        cause: "its memory limit is too low to start it",
        advice: "raise resources.limits.memory: 64Mi are mebibytes, 64m is less than a byte",
    },
    Known {
        phrases: &EXEC_FORMAT_ERROR,
        cause: "its program is built for another architecture, or is a script without `#!`",
        advice: BUILD_FOR_THIS_MACHINE,
    },
    Known {
        phrases: &["executable file not found", "no such file or directory"],
        cause: "its command is not in the image",
        advice: "check command and args: without a shell, the first word is the program",
    },
    Known {
        phrases: &["permission denied"],
        cause: "its command may not be executed",
        advice: "check the file's mode in the image, runAsUser and the mounts",
    },
    Known {
        phrases: &["operation not permitted"],
        cause: "the kernel does not permit what it asks for",
        advice: "check securityContext, and the kernel's features",
    },
    Known {
        phrases: &["device or resource busy"],
        cause: "a device or mount point is in use",
        advice: "see which other pod or program uses it",
    },
    Known {
        phrases: &["not a directory"],
        cause: "a mount's source and target are a file and a directory",
        advice: "check volumeMounts: mount a single file with subPath",
    },
    Known {
        phrases: &["address already in use", "port is already allocated"],
        cause: "a host port is in use",
        advice: "choose another hostPort, or stop the program that has it",
    },
    Known {
        phrases: &["apparmor", "seccomp"],
        cause: "its security profile cannot be applied",
        advice: "load the profile on the node, or choose another one in securityContext",
    },
];

/// Why a container does not start, and what to do.
pub(super) fn start_error(text: &str) -> (&'static str, &'static str) {
    match find_advice(&START_ADVICE, text) {
        Some(entry) => (entry.cause, entry.advice),
        None => ("the runtime does not start it", "see `coracle describe` for the runtime's message"),
    }
}

/// A container configuration that cannot be made: a missing object, a missing key, a user that may not run.
pub(super) fn of_configuration(text: &str, pod: &Pod) -> &'static str {
    let where_to_create = if pod.is_of_cluster() { CREATE_IN_CLUSTER } else { CREATE_ON_NODE };
    if text.contains("secret") || text.contains("configmap") || text.contains("Secret") || text.contains("ConfigMap") {
        where_to_create
    } else if text.contains("runAsNonRoot") || text.contains("non-root") || text.contains("non-numeric user") {
        "set runAsUser to a number above 0, or remove runAsNonRoot"
    } else {
        "check the container's fields that the message names"
    }
}

pub(super) const CREATE_IN_CLUSTER: &str = "create it in the pod's namespace, or mark the reference optional";
pub(super) const CREATE_ON_NODE: &str =
    "put a document with it into the manifest directory, or mark the reference optional";

/// What to do about an exit with an error.
pub(super) fn of_exit(ended: &ContainerStateTerminated, container: &str, pod: &Pod, has_memory_limit: bool) -> String {
    let (name, namespace) = (&pod.metadata.name, &*pod.metadata.namespace);
    let elsewhere = if namespace == "default" { String::new() } else { format!(" -n {namespace}") };
    let log = format!("see coracle logs --previous -c {container}{elsewhere} {name}");
    match (ended.reason == Reason::OOM_KILLED, ended.exit_code) {
        (true, _) if has_memory_limit => "raise resources.limits.memory, or make the program use less".to_owned(),
        (true, _) => "the node ran out of memory: set memory limits, or run fewer pods".to_owned(),
        (_, 126) => format!("its command cannot be executed: check command and the file's mode; {log}"),
        (_, 127) => format!("its command was not found: check command and args; {log}"),
        (_, 134 | 136 | 139) => format!("the program crashed: check that the image fits this machine; {log}"),
        _ => log,
    }
}

/// A pod that the node rejected or ended.
pub(super) fn of_failed_pod(reason: &Reason) -> &'static str {
    match reason.as_str() {
        "NodePorts" => "choose another hostPort, or remove the pod that has it",
        "OutOfcpu" | "OutOfmemory" | "OutOfephemeral-storage" => {
            "lower resources.requests, or remove another pod: coracle top shows what is used"
        }
        "OutOfpods" => "remove another pod, or raise maxPods",
        "NodeAffinity" => "change nodeSelector or affinity, or give the node the labels: --node-labels",
        "NodeName" => "remove spec.nodeName, or set it to this node's name",
        "TaintToleration" => "add a toleration, or remove the node's taint",
        "SysctlForbidden" => "add the sysctl to allowedUnsafeSysctls, or remove it from the pod",
        "AppArmor" => "enable AppArmor on the node",
        "UnexpectedAdmissionError" => "check that the device plugin runs: coracle devices",
        "TopologyAffinityError" | "SMTAlignmentError" => "change the requests so that they fit the node's topology",
        "PodOSNotSupported" | "PodOSSelectorNodeLabelDoesNotMatch" => "this node runs Linux pods only",
        "Evicted" => "free the resource that the message names, then restart the pod: coracle restart",
        "DeadlineExceeded" => "raise activeDeadlineSeconds, or remove it",
        "Preempting" => "a pod of higher priority took its place: remove another pod",
        "NodeShutdown" | "Terminated" => "the node was shutting down",
        _ => "",
    }
}

fn find_advice(table: &'static [Known], text: &str) -> Option<&'static Known> {
    table.iter().find(|entry| entry.phrases.iter().any(|phrase| text.contains(phrase)))
}
