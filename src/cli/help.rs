//! What `--help` and `--version` say. Pure.

use crate::types::api::KUBERNETES_VERSION;

/// As kubeadm reads it where this is the node's `kubelet`.
pub(super) fn version(is_kubelet: bool) -> String {
    if is_kubelet {
        format!("Kubernetes {KUBERNETES_VERSION}\n")
    } else {
        format!("coracle {} (Kubernetes {KUBERNETES_VERSION})\n", env!("CARGO_PKG_VERSION"))
    }
}

/// What `coracle version -o json` says.
pub(super) fn version_json() -> String {
    format!("{{\"version\": {:?}, \"kubernetesVersion\": {KUBERNETES_VERSION:?}}}\n", env!("CARGO_PKG_VERSION"))
}

pub(super) fn text() -> String {
    TEXT.to_owned()
}

/// The help of one command; that of the whole program where there is no such command.
pub(super) fn of_command(name: &str) -> String {
    let help = match name {
        "apply" => APPLY,
        "delete" => DELETE,
        "attach" => ATTACH,
        "completion" => COMPLETION,
        "describe" => DESCRIBE,
        "events" => EVENTS,
        "exec" => EXEC,
        "images" => IMAGES,
        "join" => JOIN,
        "leave" => LEAVE,
        "logs" => LOGS,
        "pods" => PODS,
        "restart" => RESTART,
        "rollback" => ROLLBACK,
        "hold" => HOLD,
        "confirm" => CONFIRM,
        "sync" => SYNC,
        "port-forward" => PORT_FORWARD,
        "status" => STATUS,
        "top" => TOP,
        "validate" => VALIDATE,
        "version" => VERSION,
        _ => TEXT,
    };
    help.to_owned()
}

const APPLY: &str = "\
Usage: coracle apply -f FILE|- [-f FILE]...

Has this node keep and run the pods of a manifest, now and after every start, without a file in its manifest directory.
ConfigMaps and Secrets go with the pods that use them. A manifest that is refused changes nothing, and one that is the same
as before writes nothing. Exit code 1 if any pod was refused.

  coracle apply -f web.yaml
  ssh board coracle apply -f - <web.yaml

  -f, --filename FILE|-         a manifest, or the standard input; may be given again
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]
";

const DELETE: &str = "\
Usage: coracle delete POD [--wait] [-n NAMESPACE]

Ends a pod that was applied on this node, with its grace, and forgets it. Of a pod that comes from somewhere else one line says
from where, and nothing is done. Exit code 1 if nothing was deleted. A pod goes by its name, or by the name in its manifest.

  coracle delete web --wait

  --wait                        until nothing of the pod is left
  -n, --namespace NAMESPACE     the pod's
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]
";

const RESTART: &str = "\
Usage: coracle restart POD [-c CONTAINER] [--wait] [-n NAMESPACE]

Has the containers of a pod begin anew, wherever the pod comes from: they are told to end and given the pod's grace, sidecars
last, then started again at once, in the same pod with the same address and volumes. One that waits in its crash-loop back-off
starts at once. Init containers do not run again; a container that runs once (restartPolicy Never) is refused. Exit code 1 if
nothing was restarted. A pod goes by its name, or by the name in its manifest.

  coracle restart web -c main --wait

  -c, --container CONTAINER     [all of the pod's]
  --wait                        until they run again
  -n, --namespace NAMESPACE     the pod's
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]
";

const ROLLBACK: &str = "\
Usage: coracle rollback POD [--to N] [-n NAMESPACE]

Has an earlier version of one of the node's own pods run again, until its manifest changes or coracle confirm takes what it says.
Three versions are kept, the present one among them, or as many as the annotation coracle.dev/keep-versions says. Of one that is
on trial (coracle.dev/ready-within) it is the end. The same again goes back to where it came from. Exit code 1 if nothing was
done. A pod goes by its name, or by the name in its manifest.

  coracle rollback web

  --to N                        so many versions back  [1]
  -n, --namespace NAMESPACE     the pod's
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]
";

const HOLD: &str = "\
Usage: coracle hold POD [-n NAMESPACE]

Keeps the present version of one of the node's own pods, whatever its manifest becomes, also after a restart, until coracle
confirm. Exit code 1 if nothing was done. A pod goes by its name, or by the name in its manifest.

  coracle hold web

  -n, --namespace NAMESPACE     the pod's
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]
";

const CONFIRM: &str = "\
Usage: coracle confirm POD [-n NAMESPACE]

Runs what the manifest of one of the node's own pods says, and counts it as good: it ends a hold and a rollback, accepts a
version that is on trial, and takes one that was rejected. Exit code 1 if nothing was done. A pod goes by its name, or by the
name in its manifest.

  coracle confirm web

  -n, --namespace NAMESPACE     the pod's
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]
";

const SYNC: &str = "\
Usage: coracle sync [--wait]

Exchanges everything with the cluster now, whatever sync.mode in coracle.yaml says: the node's lease and status, the pods that
it is to run and what they need, what has become of them, events. Where that is done anyway, nothing is begun. With --wait it
says what was exchanged, and the exit code is 1 if that was broken off.

  coracle sync --wait

  --wait                        until it is done
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]
";

const ATTACH: &str = "\
Usage: coracle attach [-i] [-t] POD [-c CONTAINER]

Shows what a container writes from now on, until it ends. With -i what is typed goes to it, if its manifest has stdin: true.
A container with a terminal (tty: true) has every key, Ctrl-C too; away from it Ctrl-C ends coracle attach alone.

  -i, --stdin                   pass the input on
  -t, --tty                     the container's terminal is shown on this one
  -c, --container CONTAINER     [the pod's first]
  -n, --namespace NAMESPACE     the pod's
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]

Example: coracle attach -it console
";

const COMPLETION: &str = "\
Usage: coracle completion bash|zsh|fish

Prints the script with which a shell completes commands, options and the names of pods. The packages install it.

Example: source <(coracle completion bash)
";

const EXEC: &str = "\
Usage: coracle exec [-i] [-t] POD [-c CONTAINER] -- COMMAND [ARGUMENT...]

Runs a command in a container and ends with its exit code. A pod goes by its name, or by the name in its manifest.

  -i, --stdin                   pass the input on; its end is the end of the command's
  -t, --tty                     on a terminal: every key goes to the command, Ctrl-C too
  -c, --container CONTAINER     [the pod's first]
  -n, --namespace NAMESPACE     the pod's
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]

Examples: coracle exec -it web -- sh
          coracle exec -i web -- tar xf - -C /data <data.tar
";

const DESCRIBE: &str = "\
Usage: coracle describe POD [-n NAMESPACE]

Everything about one pod: its containers, their states, conditions, volumes, and what has happened to it. A pod goes by
its name, or by the name in its manifest.

  -n, --namespace NAMESPACE     the pod's
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]

Example: coracle describe web
";

const LOGS: &str = "\
Usage: coracle logs [-f] [-p] [--tail N] [--since DURATION] [--timestamps] POD [-c CONTAINER]

What a container has written, over all files that its log has been parted into. A pod goes by its name, or by the name in
its manifest.

  -c, --container CONTAINER     [the pod's first]
  -f, --follow                  go on with what comes, until the container ends
  -p, --previous                of the run before this one
  --tail N                      only so many of the last lines
  --since DURATION              only what is younger, as 90s or 2h
  --timestamps                  with the moment before each line
  --limit-bytes N               no more than this
  -n, --namespace NAMESPACE     the pod's
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]

Example: coracle logs -f --since 10m web -c main
";

const EVENTS: &str = "\
Usage: coracle events [POD] [-o json|yaml] [-n NAMESPACE]

What has happened of late, oldest first: on this node, or to one pod. A pod goes by its name, or by the name in its
manifest.

  -o, --output json|yaml        the whole v1.EventList
  -n, --namespace NAMESPACE     only what happened in this one
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]

Example: coracle events web
";

const IMAGES: &str = "\
Usage: coracle images [-o wide|json]
       coracle images import FILE...
       coracle images remove IMAGE...

The images that the runtime has: their names, sizes, and the pods that need them. An image that no pod needs can be removed.

import puts archives (docker save, an OCI layout as a tar, also packed by gzip or zstd) into the directory from which coracle
imports images without a registry (--image-archives), waits until that has been done, and tells their names. They stay for as
long as the archive lies there. A file of the same file system is linked there and not copied.

  -o, --output wide|json        with digests and every pod; or all that is known
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]

Examples: coracle images import nginx.tar.zst
          coracle images remove docker.io/library/nginx:1.27
";

const JOIN: &str = "\
Usage: coracle join HOST[:PORT] --token TOKEN --discovery-token-ca-cert-hash sha256:DIGEST [--node-name NAME]

Makes this machine a node of a cluster. `kubeadm token create`, on the control plane, makes a token and can print the
command for kubeadm, whose server, token and digest are these. Nothing is written before the cluster has proved that it is
the one that was meant, and nothing that the agent could not use.

  --token TOKEN                 good for asking for this node's own certificate
  --discovery-token-ca-cert-hash sha256:DIGEST
                                of the key of the cluster's authority; may be given again
  --discovery-token-unsafe-skip-ca-verification
                                believe whoever knows the token
  --node-name NAME              [the host's name]
  --no-start                    write everything, and start nothing
  --timeout DURATION            ask a server that is away for so long  [1m]
  --kubernetes-dir PATH         kubeconfigs and the authority's certificate  [/etc/kubernetes]
  --root-dir PATH               the agent's state and its configuration  [/var/lib/kubelet]

Example: coracle join 10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:...
";

const LEAVE: &str = "\
Usage: coracle leave [--delete-node]

Takes this machine out of its cluster: its credentials, the cluster's configuration and the node's lease go. Pods from
manifests go on; pods of the cluster end when the agent starts anew without it.

  --delete-node                 delete the node's object, too
  --no-restart                  leave the agent as it runs
  --kubernetes-dir PATH         kubeconfigs and the authority's certificate  [/etc/kubernetes]
  --root-dir PATH               the agent's state and its configuration  [/var/lib/kubelet]

Example: coracle leave --delete-node
";

const PODS: &str = "\
Usage: coracle pods [-o wide|json|yaml] [-n NAMESPACE]

The pods of this node, as its running coracle knows them.

  -o, --output wide|json|yaml   with address, uid and manifest; or the whole v1.PodList
  -n, --namespace NAMESPACE     only the pods of this one
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]

Example: coracle pods -o wide
";

const PORT_FORWARD: &str = "\
Usage: coracle port-forward [--address IP,...] POD [LOCAL:]REMOTE...

Carries connections to ports of this machine to ports of a pod, until Ctrl-C. Without LOCAL it is the same number as REMOTE,
and with nothing before the colon any that is free. REMOTE is a number, or a name that a container gives to its port.

  --address IP,...              where to listen  [127.0.0.1]
  -n, --namespace NAMESPACE     the pod's
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]

Example: coracle port-forward web 8080:80
";

const STATUS: &str = "\
Usage: coracle status [-o json|yaml]

The node, its runtime, its manifests, and what went wrong last.

  -o, --output json|yaml
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]

Example: coracle status -o json
";

const TOP: &str = "\
Usage: coracle top [-w] [-o json] [-n NAMESPACE]

What the node and its pods use of processors and memory: thousandths of a processor, and what cannot be taken back at once.

  -w, --watch                   again every three seconds
  -o, --output json             the whole Summary, as /stats/summary has it
  -n, --namespace NAMESPACE     only the pods of this one
  --local-socket PATH           where coracle listens  [/run/coracle/coracle.sock]

Example: coracle top -w
";

const VALIDATE: &str = "\
Usage: coracle validate FILE...

Reads manifests as coracle would read them from its manifest directory, and says what is wrong with them.
No coracle needs to run. Exit code 1 if any file would be refused.

Example: coracle validate web.yaml
";

const VERSION: &str = "\
Usage: coracle version [-o json]

The version, and that of the Kubernetes it behaves like.

  -o, --output json

Example: coracle version -o json
";

const TEXT: &str = "\
Coracle: a kubelet that a small board can carry. It keeps the pods of a manifest directory running.

Usage:
  coracle [FLAGS]             run the pods of this node until told to stop
  coracle status              the node, its runtime, its manifests, and what went wrong last
  coracle pods [-o wide]      the pods of this node
  coracle describe POD        everything about one pod
  coracle logs [-f] POD       what a container has written
  coracle exec [-it] POD -- COMMAND
                              run a command in a container
  coracle attach [-it] POD    what a container writes from now on; type into it
  coracle port-forward POD [LOCAL:]REMOTE...
                              a pod's ports on this machine
  coracle events [POD]        what has happened of late
  coracle images [-o wide]    the images of this node, and who needs them
  coracle top [-w]            what the node and its pods use
  coracle apply -f FILE       have this node keep and run pods
  coracle delete POD          end one of those
  coracle restart POD         have its containers begin anew
  coracle rollback POD        have an earlier version of it run again
  coracle hold POD            keep its version, whatever its manifest becomes
  coracle confirm POD         run what its manifest says, and count it as good
  coracle sync                exchange everything with the cluster now
  coracle validate FILE...    check manifests before they are put in place
  coracle join HOST[:PORT]    make this machine a node of a cluster
  coracle leave               take it out again
  coracle completion SHELL    a script with which bash, zsh or fish completes all of this
  coracle version

Pods:
  --pod-manifest-path PATH              manifests, a directory or a file  [/etc/kubernetes/manifests]
  --file-check-frequency DURATION       look at the manifests again after this, besides on changes  [20s]
  --manifest-url URL                    a manifest to be asked for now and then, over HTTP or HTTPS  [none]
  --manifest-url-header NAME:VALUE,...  headers of these questions  [none]
  --manifest-url-ca-file FILE           whose certificates are believed there  [those of the system]
  --manifest-public-key FILE            Ed25519: only what it has signed (URL.sig) counts  [none]
  --http-check-frequency DURATION       between two questions  [20s]
  --max-pods N                          [110]
  --node-labels KEY=VALUE,...           labels of the node, for node selectors and affinity
  --pod-max-pids N                      processes of one pod; -1: no limit  [-1]
  --seccomp-default                     RuntimeDefault where a pod says nothing

Runtime and images:
  --container-runtime-endpoint SOCKET   [unix:///run/containerd/containerd.sock]
  --image-service-endpoint SOCKET       [as the runtime's]
  --runtime-request-timeout DURATION    [2m]
  --serialize-image-pulls[=BOOL]        one image at a time  [true]
  --registry-qps N, --registry-burst N  pulls per second; 0: no limit  [5, 10]
  --image-credential-provider-config PATH, --image-credential-provider-bin-dir DIR
                                        programs that give credentials for registries  [none]
  --image-archives DIR                  images without a registry: each archive in it is imported and kept
                                        [coracle/images, in the state]
  --strict-image-pull-policy            Always fails while the registry is away, whatever is present
  --image-gc-high-threshold N, --image-gc-low-threshold N
                                        percent of the disk: remove unused images from, down to  [85, 80]

Eviction:
  --eviction-hard SIGNAL<AMOUNT,...     below this the node is under pressure and pods go at once
                                        [memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,
                                        imagefs.available<15%,imagefs.inodesFree<5%]
  --eviction-soft SIGNAL<AMOUNT,..., --eviction-soft-grace-period SIGNAL=DURATION,...
                                        below this for so long  [none]
  --evict-static-pods                   static pods of ordinary priority go, too

Node and network:
  --hostname-override NAME              the node's name  [the host's name]
  --node-ip IP[,IP]                     [of the default route's interface]
  --register-node[=BOOL]                make the node's object where the cluster has none  [true]
  --register-with-taints KEY=VALUE:EFFECT,...
                                        taints of a node that the cluster has not had before  [none]
  --node-status-max-images N            images in the node's status; -1: all  [0]
  --cloud-provider external             a cloud's own controller knows the node's addresses
  --cluster-dns IP[,IP], --cluster-domain NAME
                                        resolver of pods that want the cluster's
  --leave-kernel-parameters             do not set vm.overcommit_memory, kernel.panic and the like
  --resolv-conf PATH                    resolver settings that pods inherit  [/etc/resolv.conf]

Cluster:
  --kubeconfig PATH                     the node's own credentials; pods of the cluster run, too  [none]
  --bootstrap-kubeconfig PATH           credentials to ask for its own ones with  [none]
  --rotate-certificates                 replace the node's certificate before it expires
  --cert-dir DIR                        its certificates and keys  [pki, in the state]
  --offline-key-file FILE               seals Secrets and tokens for a start without the cluster
                                        [coracle/store-key, in the state]
  --offline-plain-secrets               store them in plain where there is no key

The node's own server:
  --enable-server[=BOOL]                answer the kubelet's API over TLS  [true, where somebody may ask]
  --address IP                          [0.0.0.0]
  --port N                              [10250]
  --tls-cert-file FILE                  its certificate  [one of its own making]
  --tls-private-key-file FILE           and the key of it
  --rotate-server-certificates          ask the cluster for its certificate, and for the next one
  --client-ca-file FILE                 whose certificates are believed of clients  [none]
  --anonymous-auth[=BOOL]               let in who shows nothing, as system:anonymous  [false]
  --authorization-mode MODE             Webhook: ask the cluster who may; AlwaysAllow  [Webhook]
  --enable-debugging-handlers[=BOOL]    logs, exec, attach and port-forward  [true]
  --read-only-port N                    figures and pods for whoever asks, without TLS; 0: nowhere  [0]

Control groups:
  --cgroup-driver cgroupfs|systemd      [cgroupfs; the runtime's own where it tells]
  --cgroups-per-qos[=BOOL]              [true]
  --cpu-cfs-quota[=BOOL]                keep containers to their CPU limits  [true]
  --fail-swap-on[=BOOL]                 do not start where swap is on  [true]

This process:
  --config FILE                         a KubeletConfiguration, in YAML or JSON
  --coracle-config FILE                 what a KubeletConfiguration has no fields for: when the cluster is
                                        asked and told  [/etc/coracle/coracle.yaml, if it is there]
  --config-dir DIR                      *.conf files laid over it, in the order of their names
  --root-dir DIR                        state  [/var/lib/kubelet]
  --local-socket PATH                   for the commands above  [/run/coracle/coracle.sock]
  --healthz-port N, --healthz-bind-address IP
                                        GET /healthz; 0: off  [10248, 127.0.0.1]
  --page-port N, --page-address IP      a page to look at (4194 is customary); 0: none  [0, 127.0.0.1]
  --lock-file PATH                      held while this process runs
  --watchdog-device PATH                pet this one (/dev/watchdog) while the sync loop moves  [none]
  -v, --v N                             4 and above: debug lines
  -h, --help
  --version

The other flags of the kubelet that set a field of KubeletConfiguration are taken, too. --flag VALUE and
--flag=VALUE are the same. A flag wins over the files. What is not supported yet is named at the start.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_on_a_terminal_and_names_flags_that_there_are() {
        assert!(TEXT.lines().all(|line| line.chars().count() <= 110));
        let flags = TEXT.split(|c: char| c.is_whitespace() || c == ',').filter_map(|word| word.strip_prefix("--"));
        for flag in flags {
            let name = flag.split(['[', '=']).next().unwrap();
            // Two hyphens alone stand before a command in a container.
            assert!(name.is_empty() || name == "flag" || crate::platform::config::is_flag(name), "--{name}");
        }
    }

    #[test]
    fn called_as_kubelet_the_version_is_what_kubeadm_reads() {
        assert_eq!(version(true), "Kubernetes v1.36.2\n");
        assert!(version(false).starts_with("coracle 0."));
        let json: serde_json::Value = serde_json::from_str(&version_json()).unwrap();
        assert_eq!(json["kubernetesVersion"], KUBERNETES_VERSION);
    }
}
