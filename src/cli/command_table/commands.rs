//! The commands. Pure.

use super::{Argument, CommandEntry, Completes, Flag, Value, flag, switch};

/// In the order of the overview.
pub(crate) const COMMANDS: &[CommandEntry] = &[
    CommandEntry {
        name: "status",
        brief: "",
        usage: "[-o json|yaml]",
        summary: "show the node, its runtime, its pod sources and its last errors",
        description: &[
            "Shows the node, its runtime, its pod sources, the connection to its cluster and the last errors.",
        ],
        manual: "It also shows the traffic with the cluster and the state of each image archive.\n",
        arguments: &[],
        flags: &[output(&["json", "yaml"], "print all fields as JSON or YAML"), LOCAL_SOCKET],
        examples: &["coracle status -o json"],
    },
    CommandEntry {
        name: "pods",
        brief: "[-o wide]",
        usage: "[-o wide|json|yaml] [-n NAMESPACE]",
        summary: "list the pods of this node",
        description: &["Lists the pods of the running agent."],
        manual: "",
        arguments: &[],
        flags: &[
            output(
                &["wide", "json", "yaml"],
                "output format; wide adds address, uid and manifest, json and yaml are a v1.PodList",
            ),
            NAMESPACE.summary("only pods of this namespace"),
            LOCAL_SOCKET,
        ],
        examples: &["coracle pods -o wide"],
    },
    CommandEntry {
        name: "describe",
        brief: "POD",
        usage: "POD [-n NAMESPACE]",
        summary: "show everything about one pod",
        description: &[
            "Shows the containers of a pod, their states, its conditions, volumes and events. POD is the name of the pod or \
             the name in its manifest.",
        ],
        manual: "",
        arguments: POD,
        flags: &[NAMESPACE, LOCAL_SOCKET],
        examples: &["coracle describe web"],
    },
    CommandEntry {
        name: "logs",
        brief: "[-f] POD",
        usage: "[-f] [-p] [--tail N] [--since DURATION] [--timestamps] [--limit-bytes N] POD [-c CONTAINER] [-n NAMESPACE]",
        summary: "print the log of a container",
        description: &[
            "Prints the log of a container, including its rotated files. POD is the name of the pod or the name \
             in its manifest.",
        ],
        manual: "",
        arguments: POD,
        flags: &[
            CONTAINER,
            switch("follow", "print new lines until the container ends").short('f'),
            switch("previous", "print the log of the previous instance").short('p'),
            flag("tail", Value::Text("N"), "print only the last N lines"),
            flag("since", Value::Text("DURATION"), "print only lines younger than this, as 90s or 2h"),
            switch("timestamps", "print the time of each line"),
            flag("limit-bytes", Value::Text("N"), "print at most N bytes"),
            NAMESPACE,
            LOCAL_SOCKET,
        ],
        examples: &["coracle logs -f --since 10m web -c main"],
    },
    CommandEntry {
        name: "exec",
        brief: "[-it] POD -- COMMAND",
        usage: "[-i] [-t] POD [-c CONTAINER] [-n NAMESPACE] -- COMMAND [ARGUMENT...]",
        summary: "run a command in a container",
        description: &[
            "Runs a command in a container and exits with its exit code. POD is the name of the pod or the name in its \
             manifest.",
        ],
        manual: "",
        arguments: POD,
        flags: &[
            switch("stdin", "pass standard input to the command, until its end").short('i'),
            switch("tty", "run the command on a terminal").short('t').manual(
                "Run the command on a terminal, which has the size of this one.\n\
                 The command receives every key, including Ctrl-C.\n",
            ),
            CONTAINER,
            NAMESPACE,
            LOCAL_SOCKET,
        ],
        examples: &["coracle exec -it web -- sh", "coracle exec -i web -- tar xf - -C /data <data.tar"],
    },
    CommandEntry {
        name: "attach",
        brief: "[-it] POD",
        usage: "[-i] [-t] POD [-c CONTAINER] [-n NAMESPACE]",
        summary: "show the output of a container from now on, and pass input to it",
        description: &[
            "Shows the output of a container from now on, until it ends. With -i standard input is passed to the container, \
             if its manifest has stdin: true. A container with a terminal (tty: true) receives every key, including Ctrl-C. \
             Without a terminal, Ctrl-C ends coracle attach and not the container.",
        ],
        manual: "",
        arguments: POD,
        flags: &[
            switch("stdin", "pass standard input to the container").short('i'),
            switch("tty", "show the terminal of the container on this one").short('t'),
            CONTAINER,
            NAMESPACE,
            LOCAL_SOCKET,
        ],
        examples: &["coracle attach -it console"],
    },
    CommandEntry {
        name: "port-forward",
        brief: "POD [LOCAL:]REMOTE...",
        usage: "[--address IP,...] POD [LOCAL:]REMOTE... [-n NAMESPACE]",
        summary: "forward ports of this machine to a pod",
        description: &[
            "Forwards connections to ports of this machine to ports of a pod, until Ctrl-C. Without LOCAL, the local port is \
             REMOTE; :REMOTE uses any free local port. REMOTE is a number or the name of a container port.",
        ],
        manual: "",
        arguments: &[
            Argument { label: "pod", completes: Completes::Pods },
            Argument { label: "port", completes: Completes::Nothing },
        ],
        flags: &[
            flag("address", Value::Text("IP,..."), "addresses to listen on").default("127.0.0.1"),
            NAMESPACE,
            LOCAL_SOCKET,
        ],
        examples: &["coracle port-forward web 8080:80"],
    },
    CommandEntry {
        name: "events",
        brief: "[POD]",
        usage: "[POD] [-o json|yaml] [-n NAMESPACE]",
        summary: "list recent events of this node or of one pod",
        description: &[
            "Lists recent events of this node or of one pod, the oldest first. POD is the name of the pod or the name in its \
             manifest.",
        ],
        manual: "Repeated events are counted.\n",
        arguments: POD,
        flags: &[
            output(&["json", "yaml"], "print a v1.EventList"),
            NAMESPACE.summary("only events of this namespace"),
            LOCAL_SOCKET,
        ],
        examples: &["coracle events web"],
    },
    CommandEntry {
        name: "devices",
        brief: "[-o json]",
        usage: "[-o json]",
        summary: "list devices, their attributes and who has them",
        description: &[
            "Lists the devices of device plugins and of the devices rules in coracle.yaml, the containers that have them, \
             and the attributes by which pods select them (annotation coracle.dev/device-selectors).",
        ],
        manual: "",
        arguments: &[],
        flags: &[output(&["json"], "print all fields"), LOCAL_SOCKET],
        examples: &["coracle devices"],
    },
    CommandEntry {
        name: "images",
        brief: "[-o wide]",
        usage: "[-o wide|json] [import FILE... | remove IMAGE... | delta OLD NEW -o FILE]",
        summary: "list, import or remove images, or make a delta of two archives",
        description: &[
            "Lists the images of the runtime, their sizes and the pods that need them. remove deletes images that no pod \
             needs.",
            "import puts archives (docker save, or an OCI layout as a tar, also compressed with gzip or zstd) into the \
             directory of --image-archives, waits until coracle has imported them, and prints the names of their images. \
             An image is kept as long as its archive is in the directory. An archive on the same file system is hard-linked, \
             not copied.",
            "delta, on any machine, writes FILE with what the image in the archive NEW has and that in OLD does not. A node \
             that has the image in OLD imports it like an archive.",
        ],
        manual: "",
        arguments: &[
            Argument { label: "action", completes: Completes::Words(&["delta", "import", "remove"]) },
            Argument { label: "image", completes: Completes::FilesAfter(&["import", "delta"]) },
        ],
        flags: &[
            output(
                &["wide", "json"],
                "output format; wide adds digests and all pods, json has all fields; for delta the file to write",
            ),
            LOCAL_SOCKET,
        ],
        examples: &[
            "coracle images import nginx.tar.zst",
            "coracle images remove docker.io/library/nginx:1.27",
            "coracle images delta nginx-1.26.tar nginx-1.27.tar -o nginx.delta",
        ],
    },
    CommandEntry {
        name: "top",
        brief: "[-w]",
        usage: "[-w] [-o json] [-n NAMESPACE]",
        summary: "show CPU and memory usage of the node and its pods",
        description: &[
            "Shows the usage of the node and its pods: CPU in thousandths of a core, and memory as the working set.",
        ],
        manual: "",
        arguments: &[],
        flags: &[
            switch("watch", "repeat every three seconds").short('w'),
            output(&["json"], "print the whole Summary of /stats/summary"),
            NAMESPACE.summary("only pods of this namespace"),
            LOCAL_SOCKET,
        ],
        examples: &["coracle top -w"],
    },
    CommandEntry {
        name: "apply",
        brief: "-f FILE",
        usage: "-f FILE|- [-f FILE]...",
        summary: "run the pods of a manifest on this node and keep them",
        description: &[
            "Runs the pods of a manifest on this node, now and after every start, without a file in the manifest directory. \
             ConfigMaps and Secrets of the manifest are stored with the pods that use them. An invalid manifest changes \
             nothing, and an unchanged manifest writes nothing. Exit code 1 if a pod was refused.",
        ],
        manual: "If a manifest has several pods, each ConfigMap and Secret has to be used by one of them.\n\
                 All manifests are checked before the first pod is changed.\n\
                 The same is\n.Ic PUT /pods/NAMESPACE/NAME\non the local socket.\n",
        arguments: &[],
        flags: &[
            flag("filename", Value::File("FILE|-"), "manifest, or - for standard input; may be given again")
                .short('f')
                .may_repeat(),
            LOCAL_SOCKET,
        ],
        examples: &["coracle apply -f web.yaml", "ssh board coracle apply -f - <web.yaml"],
    },
    CommandEntry {
        name: "delete",
        brief: "POD",
        usage: "POD [--wait] [-n NAMESPACE]",
        summary: "stop and remove a pod that was applied",
        description: &[
            "Stops a pod that was applied on this node, with its grace period, and removes it. A pod from another source is \
             not changed; its source is printed. Exit code 1 if no pod was deleted. POD is the name of the pod or the name \
             in its manifest.",
        ],
        manual: "",
        arguments: POD,
        flags: &[
            switch("wait", "wait until the pod is gone").manual(
                "Wait until the containers, volumes and logs of the pod are gone.\n\
                 It fails if that takes a minute longer than the grace period of the pod.\n",
            ),
            NAMESPACE,
            LOCAL_SOCKET,
        ],
        examples: &["coracle delete web --wait"],
    },
    CommandEntry {
        name: "restart",
        brief: "POD",
        usage: "POD [-c CONTAINER] [--wait] [-n NAMESPACE]",
        summary: "restart the containers of a pod in place",
        description: &[
            "Restarts the containers of a pod from any source. They are stopped with the grace period of the pod, sidecars \
             last, and started again at once, in the same pod with the same address and volumes. A container in crash-loop \
             back-off starts at once. Init containers do not run again. A container with restartPolicy Never cannot be \
             restarted. Exit code 1 if nothing was restarted. POD is the name of the pod or the name in its manifest.",
        ],
        manual: "The restart count of each container is incremented.\n",
        arguments: POD,
        flags: &[
            CONTAINER.summary("restart only this container").default("all containers of the pod"),
            switch("wait", "wait until the containers run again").manual(
                "Wait until the containers run again.\n\
                 It fails if that takes a minute longer than the grace period of the pod.\n",
            ),
            NAMESPACE,
            LOCAL_SOCKET,
        ],
        examples: &["coracle restart web -c main --wait"],
    },
    CommandEntry {
        name: "rollback",
        brief: "POD",
        usage: "POD [--to N] [-n NAMESPACE]",
        summary: "run an earlier version of a pod",
        description: &[
            "Runs an earlier version of a pod of this node, until its manifest changes or coracle confirm returns to the \
             manifest. Three versions are kept, including the running one; the annotation coracle.dev/keep-versions sets \
             another number. A rollback ends the trial of a version (coracle.dev/ready-within). A second rollback returns to \
             the version before the first. Exit code 1 if nothing was changed. POD is the name of the pod or the name in its \
             manifest.",
        ],
        manual: "The annotation\n.Li coracle.dev/keep-versions\nis from 1 to 10.\n.Pp\n\
                 If a manifest has the annotation\n.Li coracle.dev/ready-within\n\
                 (whole seconds, minutes or hours, as 60s, up to 24h), its new version is on trial.\n\
                 If it fails or is not ready in that time, the previous version runs again, an event reports it, and the \
                 rejected version is not tried again until the manifest changes.\n\
                 Decisions are stored and survive a restart of the agent or the machine.\n\
                 A trial starts again then, and a version that is still on trial at the fourth start in a row is rejected.\n",
        arguments: POD,
        flags: &[flag("to", Value::Text("N"), "number of versions to go back").default("1"), NAMESPACE, LOCAL_SOCKET],
        examples: &["coracle rollback web"],
    },
    CommandEntry {
        name: "hold",
        brief: "POD",
        usage: "POD [-n NAMESPACE]",
        summary: "keep the running version of a pod even if its manifest changes",
        description: &[
            "Keeps the running version of a pod of this node even if its manifest changes, also after a restart, until \
             coracle confirm. Exit code 1 if nothing was changed. POD is the name of the pod or the name in its manifest.",
        ],
        manual: "",
        arguments: POD,
        flags: &[NAMESPACE, LOCAL_SOCKET],
        examples: &["coracle hold web"],
    },
    CommandEntry {
        name: "confirm",
        brief: "POD",
        usage: "POD [-n NAMESPACE]",
        summary: "run the manifest of a pod and accept it",
        description: &[
            "Runs the version in the manifest of a pod of this node and accepts it. This ends a hold or a rollback, accepts a \
             version on trial, and runs a rejected version. Exit code 1 if nothing was changed. POD is the name of the pod \
             or the name in its manifest.",
        ],
        manual: "",
        arguments: POD,
        flags: &[NAMESPACE, LOCAL_SOCKET],
        examples: &["coracle confirm web"],
    },
    CommandEntry {
        name: "sync",
        brief: "",
        usage: "[--wait]",
        summary: "exchange everything with the cluster now",
        description: &[
            "Exchanges everything with the cluster now, in every sync.mode of coracle.yaml: the lease and status of the node, \
             its pods and the objects that they need, the statuses of pods, and events. In mode watch it does nothing, \
             because changes are exchanged as they happen. With --wait it prints what was exchanged, and the exit code is 1 \
             if the exchange failed.",
        ],
        manual: "The same is\n.Ic POST /sync?wait=true\non the local socket.\n",
        arguments: &[],
        flags: &[switch("wait", "wait until everything is exchanged, and print a summary"), LOCAL_SOCKET],
        examples: &["coracle sync --wait"],
    },
    CommandEntry {
        name: "validate",
        brief: "FILE...",
        usage: "FILE...",
        summary: "check manifests without running them",
        description: &[
            "Checks manifests as the agent does, and prints each error with file, line and field. Needs no running agent. \
             Exit code 1 if a file would be refused.",
        ],
        manual: "",
        arguments: &[Argument { label: "manifest", completes: Completes::Files }],
        flags: &[],
        examples: &["coracle validate web.yaml"],
    },
    CommandEntry {
        name: "join",
        brief: "HOST[:PORT]",
        usage: "HOST[:PORT] --token TOKEN --discovery-token-ca-cert-hash sha256:DIGEST [--node-name NAME] [--no-start] \
                [--timeout DURATION]",
        summary: "make this machine a node of a cluster",
        description: &[
            "Makes this machine a node of a cluster. The join command that kubeadm token create prints on the control plane has \
             the server, a token and the digest. Nothing is written before the cluster has proved that it knows the token and \
             has the CA with this digest, and before its configuration was checked.",
        ],
        manual: "It writes these files, all or none:\n\
                 .Pa /etc/kubernetes/pki/ca.crt ,\n\
                 .Pa /etc/kubernetes/bootstrap-kubelet.conf ,\n\
                 .Pa /var/lib/kubelet/config.yaml\n\
                 (the cluster's configuration for its nodes, which replaces\n\
                 .Pa /etc/coracle/config.yaml )\nand\n\
                 .Pa /var/lib/kubelet/coracle-flags.env\n\
                 (flags of the service).\n\
                 Then it starts the service, which requests a certificate for this node and removes the token.\n",
        arguments: &[Argument { label: "server", completes: Completes::Nothing }],
        flags: &[
            flag("token", Value::Text("TOKEN"), "bootstrap token, for the certificate request of this node"),
            flag(
                "discovery-token-ca-cert-hash",
                Value::Text("sha256:DIGEST"),
                "digest of the public key of the cluster CA; may be given again",
            )
            .may_repeat()
            .manual("Digest of the public key of the cluster CA.\nIt may be given several times; one has to match.\n"),
            switch("discovery-token-unsafe-skip-ca-verification", "trust every server that knows the token"),
            flag("node-name", Value::Text("NAME"), "name of the node").default("the host name"),
            switch("no-start", "write all files and do not start the service"),
            flag("timeout", Value::Text("DURATION"), "how long to retry while the server cannot be reached")
                .default("1m"),
            KUBERNETES_DIR,
            ROOT_DIR,
        ],
        examples: &[
            "coracle join 10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:...",
        ],
    },
    CommandEntry {
        name: "leave",
        brief: "",
        usage: "[--delete-node] [--no-restart]",
        summary: "remove this machine from its cluster",
        description: &[
            "Removes this machine from its cluster: the credentials and keys, the cluster's configuration and the lease of \
             the node. Pods from manifests keep running. Pods of the cluster are terminated when the agent restarts without \
             the cluster.",
        ],
        manual: "",
        arguments: &[],
        flags: &[
            switch("delete-node", "also delete the Node object")
                .manual("Also delete the Node object, if the cluster allows the node to do that.\n"),
            switch("no-restart", "do not restart the agent"),
            KUBERNETES_DIR,
            ROOT_DIR,
        ],
        examples: &["coracle leave --delete-node"],
    },
    CommandEntry {
        name: "completion",
        brief: "SHELL",
        usage: "bash|zsh|fish",
        summary: "print a completion script for bash, zsh or fish",
        description: &[
            "Prints a script that completes commands, flags and the names of pods in a shell. The packages install it.",
        ],
        manual: "",
        arguments: &[Argument { label: "shell", completes: Completes::Words(&["bash", "zsh", "fish"]) }],
        flags: &[],
        examples: &["source <(coracle completion bash)"],
    },
    CommandEntry {
        name: "version",
        brief: "[-o json]",
        usage: "[-o json]",
        summary: "print the version",
        description: &["Prints the version, and the Kubernetes version whose behaviour it follows."],
        manual: "",
        arguments: &[],
        flags: &[output(&["json"], "print it as JSON")],
        examples: &["coracle version -o json"],
    },
    CommandEntry {
        name: "help",
        brief: "[COMMAND]",
        usage: "[COMMAND]",
        summary: "print this help or the help of a command",
        description: &["Prints the help of the program or of one command, as --help does."],
        manual: "",
        // The completion scripts fill in all commands: a table cannot refer to itself.
        arguments: &[Argument { label: "command", completes: Completes::Words(&[]) }],
        flags: &[],
        examples: &["coracle help logs"],
    },
];

const POD: &[Argument] = &[Argument { label: "pod", completes: Completes::Pods }];

/// The manual page describes it once for all commands.
pub(crate) const LOCAL_SOCKET: Flag =
    flag("local-socket", Value::File("PATH"), "socket of the agent").default("/run/coracle/coracle.sock");

const NAMESPACE: Flag = flag("namespace", Value::Text("NAMESPACE"), "namespace of the pod").short('n');

const CONTAINER: Flag =
    flag("container", Value::Text("CONTAINER"), "container").short('c').default("the first container of the pod");

const KUBERNETES_DIR: Flag =
    flag("kubernetes-dir", Value::Directory, "directory of kubeconfigs and the cluster CA").default("/etc/kubernetes");

const ROOT_DIR: Flag =
    flag("root-dir", Value::Directory, "directory of the state of the agent").default("/var/lib/kubelet");

const fn output(formats: &'static [&'static str], summary: &'static str) -> Flag {
    flag("output", Value::OneOf(formats), summary).short('o')
}

impl Flag {
    const fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }
}
