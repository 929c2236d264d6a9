//! Every command: its arguments, its flags with their types, and its texts, declared once. Pure.
//!
//! `commands!` of `command_parser.rs` makes argh's structs, that of `build/texts.rs` the help, the manual page and the
//! completions. A flag is `field['short']: Type = "default" => switch(...)` or `=> flag(...)`; its name is that of the
//! field with dashes. A name in capitals is a flag that several commands share. `brief` stands after the name in the
//! overview, `usage` in the usage line (the manual page adds the flags that it omits), `manual` is mdoc.

commands! {
    command Status "status" {
        usage: "[-o json|yaml]",
        summary: "show the node, its runtime, its pod sources and its last errors",
        description: [
            "Shows the node, its runtime, its pod sources, the connection to its cluster and the last errors.",
        ],
        manual: "It also shows the traffic with the cluster and the state of each image archive.\n",
        flags {
            output['o']: StatusOutput = "StatusOutput::Text"
                => flag(Value::OneOf(&["json", "yaml"]), "print all fields as JSON or YAML");
            LOCAL_SOCKET;
        }
        examples: ["coracle status -o json"],
    }
    command Pods "pods" {
        brief: "[-o wide]",
        usage: "[-o wide|json|yaml] [-n NAMESPACE]",
        summary: "list the pods of this node",
        description: ["Lists the pods of the running agent."],
        flags {
            output['o']: PodsOutput = "PodsOutput::Table"
                => flag(
                    Value::OneOf(&["wide", "json", "yaml"]),
                    "output format; wide adds address, uid and manifest, json and yaml are a v1.PodList",
                );
            NAMESPACE.summary("only pods of this namespace");
            LOCAL_SOCKET;
        }
        examples: ["coracle pods -o wide"],
    }
    command Describe "describe" {
        brief: "POD",
        usage: "POD [-n NAMESPACE]",
        summary: "show everything about one pod",
        description: [
            "Shows the containers of a pod, their states, its conditions, volumes and events. POD is the name of \
             the pod or the name in its manifest.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pods)]; }
        flags { NAMESPACE; LOCAL_SOCKET; }
        examples: ["coracle describe web"],
    }
    command Logs "logs" {
        brief: "[-f] POD",
        usage:
            "[-f] [-p] [--tail N] [--since DURATION] [--timestamps] [--limit-bytes N] POD [-c CONTAINER] [-n \
             NAMESPACE]",
        summary: "print the log of a container",
        description: [
            "Prints the log of a container, including its rotated files. POD is the name of the pod or the name in \
             its manifest.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pods)]; }
        flags {
            CONTAINER;
            follow['f']: bool => switch("print new lines until the container ends");
            previous['p']: bool => switch("print the log of the previous instance");
            tail: Option<i64> => flag(Value::Text("N"), "print only the last N lines");
            since: Option<Age> => flag(Value::Text("DURATION"), "print only lines younger than this, as 90s or 2h");
            timestamps: bool => switch("print the time of each line");
            limit_bytes: Option<u64> => flag(Value::Text("N"), "print at most N bytes");
            NAMESPACE;
            LOCAL_SOCKET;
        }
        examples: ["coracle logs -f --since 10m web -c main"],
    }
    command Exec "exec" {
        brief: "[-it] POD -- COMMAND",
        usage: "[-i] [-t] POD [-c CONTAINER] [-n NAMESPACE] -- COMMAND [ARGUMENT...]",
        summary: "run a command in a container",
        description: [
            "Runs a command in a container and exits with its exit code. POD is the name of the pod or the name in \
             its manifest.",
        ],
        arguments {
            (positional) pod: String => [("pod", Completes::Pods)];
            (positional, greedy) command: Vec<String> => [];
        }
        flags {
            stdin['i']: bool => switch("pass standard input to the command, until its end");
            tty['t']: bool => switch("run the command on a terminal")
                .manual(
                    "Run the command on a terminal, which has the size of this one.\n\
                     The command receives every key, including Ctrl-C.\n",
                );
            CONTAINER;
            NAMESPACE;
            LOCAL_SOCKET;
        }
        examples: [
            "coracle exec -it web -- sh",
            "coracle exec -i web -- tar xf - -C /data <data.tar",
        ],
    }
    command Attach "attach" {
        brief: "[-it] POD",
        usage: "[-i] [-t] POD [-c CONTAINER] [-n NAMESPACE]",
        summary: "show the output of a container from now on, and pass input to it",
        description: [
            "Shows the output of a container from now on, until it ends. With -i standard input is passed to the \
             container, if its manifest has stdin: true. A container with a terminal (tty: true) receives every \
             key, including Ctrl-C. Without a terminal, Ctrl-C ends coracle attach and not the container.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pods)]; }
        flags {
            stdin['i']: bool => switch("pass standard input to the container");
            tty['t']: bool => switch("show the terminal of the container on this one");
            CONTAINER;
            NAMESPACE;
            LOCAL_SOCKET;
        }
        examples: ["coracle attach -it console"],
    }
    command PortForward "port-forward" {
        brief: "POD [LOCAL:]REMOTE...",
        usage: "[--address IP,...] POD [LOCAL:]REMOTE... [-n NAMESPACE]",
        summary: "forward ports of this machine to a pod",
        description: [
            "Forwards connections to ports of this machine to ports of a pod, until Ctrl-C. Without LOCAL, the \
             local port is REMOTE; :REMOTE uses any free local port. REMOTE is a number or the name of a container \
             port.",
        ],
        arguments {
            (positional) pod: String => [("pod", Completes::Pods)];
            (positional) ports: Vec<PortPair> => [("port", Completes::Nothing)];
        }
        flags {
            address: Addresses = "Addresses::local()" => flag(Value::Text("IP,..."), "addresses to listen on")
                .default("127.0.0.1");
            NAMESPACE;
            LOCAL_SOCKET;
        }
        examples: ["coracle port-forward web 8080:80"],
    }
    command Events "events" {
        brief: "[POD]",
        usage: "[POD] [-o json|yaml] [-n NAMESPACE]",
        summary: "list recent events of this node or of one pod",
        description: [
            "Lists recent events of this node or of one pod, the oldest first. POD is the name of the pod or the \
             name in its manifest.",
        ],
        manual: "Repeated events are counted.\n",
        arguments { (positional) pod: Option<String> => [("pod", Completes::Pods)]; }
        flags {
            output['o']: StatusOutput = "StatusOutput::Text"
                => flag(Value::OneOf(&["json", "yaml"]), "print a v1.EventList");
            NAMESPACE.summary("only events of this namespace");
            LOCAL_SOCKET;
        }
        examples: ["coracle events web"],
    }
    command ListDevices "devices" {
        brief: "[-o json]",
        usage: "[-o json]",
        summary: "list devices, their attributes and who has them",
        description: [
            "Lists the devices of device plugins and of the devices rules in coracle.yaml, the containers that have \
             them, and the attributes by which pods select them (annotation coracle.dev/device-selectors).",
        ],
        flags {
            output['o']: TopOutput = "TopOutput::Table" => flag(Value::OneOf(&["json"]), "print all fields");
            LOCAL_SOCKET;
        }
        examples: ["coracle devices"],
    }
    command ListImages "images" {
        brief: "[-o wide]",
        usage: "[-o wide|json] [import FILE... | remove IMAGE... | delta OLD NEW -o FILE]",
        summary: "list, import or remove images, or make a delta of two archives",
        description: [
            "Lists the images of the runtime, their sizes and the pods that need them. remove deletes images that \
             no pod needs.",
            "import puts archives (docker save, or an OCI layout as a tar, also compressed with gzip or zstd) into \
             the directory of --image-archives, waits until coracle has imported them, and prints the names of \
             their images. An image is kept as long as its archive is in the directory. An archive on the same file \
             system is hard-linked, not copied.",
            "delta, on any machine, writes FILE with what the image in the archive NEW has and that in OLD does \
             not. A node that has the image in OLD imports it like an archive.",
        ],
        arguments {
            (positional) words: Vec<String> => [
                ("action", Completes::Words(&["delta", "import", "remove"])),
                ("image", Completes::FilesAfter(&["import", "delta"])),
            ];
        }
        flags {
            output['o']: ImagesOutput = "ImagesOutput::Table"
                => flag(
                    Value::OneOf(&["wide", "json"]),
                    "output format; wide adds digests and all pods, json has all fields; for delta the file to write",
                );
            LOCAL_SOCKET;
        }
        examples: [
            "coracle images import nginx.tar.zst",
            "coracle images remove docker.io/library/nginx:1.27",
            "coracle images delta nginx-1.26.tar nginx-1.27.tar -o nginx.delta",
        ],
    }
    command Top "top" {
        brief: "[-w]",
        usage: "[-w] [-o json] [-n NAMESPACE]",
        summary: "show CPU and memory usage of the node and its pods",
        description: [
            "Shows the usage of the node and its pods: CPU in thousandths of a core, and memory as the working set.",
        ],
        flags {
            watch['w']: bool => switch("repeat every three seconds");
            output['o']: TopOutput = "TopOutput::Table"
                => flag(Value::OneOf(&["json"]), "print the whole Summary of /stats/summary");
            NAMESPACE.summary("only pods of this namespace");
            LOCAL_SOCKET;
        }
        examples: ["coracle top -w"],
    }
    command Apply "apply" {
        brief: "-f FILE",
        usage: "-f FILE|- [-f FILE]...",
        summary: "run the pods of a manifest on this node and keep them",
        description: [
            "Runs the pods of a manifest on this node, now and after every start, without a file in the manifest \
             directory. ConfigMaps and Secrets of the manifest are stored with the pods that use them. An invalid \
             manifest changes nothing, and an unchanged manifest writes nothing. Exit code 1 if a pod was refused.",
        ],
        manual:
            "If a manifest has several pods, each ConfigMap and Secret has to be used by one of them.\n\
             All manifests are checked before the first pod is changed.\n\
             The same is\n\
             .Ic PUT /pods/NAMESPACE/NAME\n\
             on the local socket.\n",
        flags {
            filename['f']: Vec<PathBuf>
                => flag(Value::File("FILE|-"), "manifest, or - for standard input; may be given again")
                .may_repeat();
            LOCAL_SOCKET;
        }
        examples: [
            "coracle apply -f web.yaml",
            "ssh board coracle apply -f - <web.yaml",
        ],
    }
    command Delete "delete" {
        brief: "POD",
        usage: "POD [--wait] [-n NAMESPACE]",
        summary: "stop and remove a pod that was applied",
        description: [
            "Stops a pod that was applied on this node, with its grace period, and removes it. A pod from another \
             source is not changed; its source is printed. Exit code 1 if no pod was deleted. POD is the name of \
             the pod or the name in its manifest.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pods)]; }
        flags {
            wait: bool => switch("wait until the pod is gone")
                .manual(
                    "Wait until the containers, volumes and logs of the pod are gone.\n\
                     It fails if that takes a minute longer than the grace period of the pod.\n",
                );
            NAMESPACE;
            LOCAL_SOCKET;
        }
        examples: ["coracle delete web --wait"],
    }
    command Restart "restart" {
        brief: "POD",
        usage: "POD [-c CONTAINER] [--wait] [-n NAMESPACE]",
        summary: "restart the containers of a pod in place",
        description: [
            "Restarts the containers of a pod from any source. They are stopped with the grace period of the pod, \
             sidecars last, and started again at once, in the same pod with the same address and volumes. A \
             container in crash-loop back-off starts at once. Init containers do not run again. A container with \
             restartPolicy Never cannot be restarted. Exit code 1 if nothing was restarted. POD is the name of the \
             pod or the name in its manifest.",
        ],
        manual: "The restart count of each container is incremented.\n",
        arguments { (positional) pod: String => [("pod", Completes::Pods)]; }
        flags {
            CONTAINER.summary("restart only this container").default("all containers of the pod");
            wait: bool => switch("wait until the containers run again")
                .manual(
                    "Wait until the containers run again.\n\
                     It fails if that takes a minute longer than the grace period of the pod.\n",
                );
            NAMESPACE;
            LOCAL_SOCKET;
        }
        examples: ["coracle restart web -c main --wait"],
    }
    command Rollback "rollback" {
        brief: "POD",
        usage: "POD [--to N] [-n NAMESPACE]",
        summary: "run an earlier version of a pod",
        description: [
            "Runs an earlier version of a pod of this node, until its manifest changes or coracle confirm returns \
             to the manifest. Three versions are kept, including the running one; the annotation \
             coracle.dev/keep-versions sets another number. A rollback ends the trial of a version \
             (coracle.dev/ready-within). A second rollback returns to the version before the first. Exit code 1 if \
             nothing was changed. POD is the name of the pod or the name in its manifest.",
        ],
        manual:
            "The annotation\n\
             .Li coracle.dev/keep-versions\n\
             is from 1 to 10.\n\
             .Pp\n\
             If a manifest has the annotation\n\
             .Li coracle.dev/ready-within\n\
             (whole seconds, minutes or hours, as 60s, up to 24h), its new version is on trial.\n\
             If it fails or is not ready in that time, the previous version runs again, an event reports it, and \
             the rejected version is not tried again until the manifest changes.\n\
             Decisions are stored and survive a restart of the agent or the machine.\n\
             A trial starts again then, and a version that is still on trial at the fourth start in a row is \
             rejected.\n",
        arguments { (positional) pod: String => [("pod", Completes::Pods)]; }
        flags {
            to: u32 = "1" => flag(Value::Text("N"), "number of versions to go back").default("1");
            NAMESPACE;
            LOCAL_SOCKET;
        }
        examples: ["coracle rollback web"],
    }
    command Hold "hold" {
        brief: "POD",
        usage: "POD [-n NAMESPACE]",
        summary: "keep the running version of a pod even if its manifest changes",
        description: [
            "Keeps the running version of a pod of this node even if its manifest changes, also after a restart, \
             until coracle confirm. Exit code 1 if nothing was changed. POD is the name of the pod or the name in \
             its manifest.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pods)]; }
        flags { NAMESPACE; LOCAL_SOCKET; }
        examples: ["coracle hold web"],
    }
    command Confirm "confirm" {
        brief: "POD",
        usage: "POD [-n NAMESPACE]",
        summary: "run the manifest of a pod and accept it",
        description: [
            "Runs the version in the manifest of a pod of this node and accepts it. This ends a hold or a rollback, \
             accepts a version on trial, and runs a rejected version. Exit code 1 if nothing was changed. POD is \
             the name of the pod or the name in its manifest.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pods)]; }
        flags { NAMESPACE; LOCAL_SOCKET; }
        examples: ["coracle confirm web"],
    }
    command Sync "sync" {
        usage: "[--wait]",
        summary: "exchange everything with the cluster now",
        description: [
            "Exchanges everything with the cluster now, in every sync.mode of coracle.yaml: the lease and status of \
             the node, its pods and the objects that they need, the statuses of pods, and events. In mode watch it \
             does nothing, because changes are exchanged as they happen. With --wait it prints what was exchanged, \
             and the exit code is 1 if the exchange failed.",
        ],
        manual:
            "The same is\n\
             .Ic POST /sync?wait=true\n\
             on the local socket.\n",
        flags {
            wait: bool => switch("wait until everything is exchanged, and print a summary");
            LOCAL_SOCKET;
        }
        examples: ["coracle sync --wait"],
    }
    command Validate "validate" {
        brief: "FILE...",
        usage: "FILE...",
        summary: "check manifests without running them",
        description: [
            "Checks manifests as the agent does, and prints each error with file, line and field. Needs no running \
             agent. Exit code 1 if a file would be refused.",
        ],
        arguments { (positional) files: Vec<PathBuf> => [("manifest", Completes::Files)]; }
        examples: ["coracle validate web.yaml"],
    }
    command Doctor "doctor" {
        brief: "[-o json]",
        usage: "[-o json] [-- FLAGS]",
        summary: "check what this machine needs to run pods",
        description: [
            "Checks what this machine needs to run pods, before and after the installation: the runtime, its pause \
             image and pod network, the kernel, cgroups, swap, clock, disks, watchdog, ports and certificates. Each \
             line is ok, warning or failed, with the command or setting that mends it. Needs no running agent. Exit \
             code 3 with warnings, 4 if something failed.",
        ],
        manual:
            "The flags are those of the running agent, else those of its service.\n\
             Others stand after\n\
             .Fl Fl .\n",
        arguments { (positional, greedy) agent_flags: Vec<String> => []; }
        flags {
            output['o']: TopOutput = "TopOutput::Table" => flag(Value::OneOf(&["json"]), "print it as JSON");
            first_start: bool => switch("print only what is wrong, and only if the agent has never run here")
                .manual(
                    "Print only what is wrong, and only if the agent has never run here.\n\
                     The service runs it before its first start, so that the log has it.\n",
                );
            LOCAL_SOCKET;
        }
        examples: ["coracle doctor", "coracle doctor -- --container-runtime-endpoint unix:///run/crio/crio.sock"],
    }
    command Support "support" {
        brief: "[-o FILE]",
        usage: "[-o FILE] [--no-container-logs] [-- FLAGS]",
        summary: "write an archive about this node for the person who helps",
        description: [
            "Writes an archive (tar.gz, a few megabytes at most) for the person who helps: the result of coracle \
             doctor, status, pods, events, ends of logs, configuration, manifests, checkpoints and facts of the \
             kernel, as text and JSON. Works without a running agent.",
            "Values of variables, data of Secrets and ConfigMaps, annotations, tokens, private keys and passwords \
             are replaced. Programs may log secrets in other forms, so look through the archive before you send it.",
        ],
        arguments { (positional, greedy) agent_flags: Vec<String> => []; }
        flags {
            output['o']: Option<PathBuf> => flag(Value::File("FILE"), "archive to write, or - for standard output")
                .default("coracle-support-NODE-TIME.tar.gz");
            no_container_logs: bool => switch("leave out the logs of containers");
            LOCAL_SOCKET;
        }
        examples: ["coracle support", "ssh board coracle support -o - >board.tar.gz"],
    }
    command PageToken "page-token" {
        usage: "[--remove]",
        summary: "make a token for the controls of the status page",
        description: [
            "Makes a token and prints it. With it the status page shows ends of logs, and restarts pods, rolls them \
             back and confirms versions. A new token replaces the former one. Without a token the page is read-only.",
        ],
        flags {
            remove: bool => switch("remove the token, so that the page is read-only");
            ROOT_DIR;
        }
        examples: ["coracle page-token"],
    }
    command Join "join" {
        brief: "HOST[:PORT]",
        usage:
            "HOST[:PORT] --token TOKEN --discovery-token-ca-cert-hash sha256:DIGEST [--node-name NAME] [--no-start] \
             [--timeout DURATION]",
        summary: "make this machine a node of a cluster",
        description: [
            "Makes this machine a node of a cluster. The join command that kubeadm token create prints on the \
             control plane has the server, a token and the digest. Nothing is written before the cluster has proved \
             that it knows the token and has the CA with this digest, and before its configuration was checked.",
        ],
        manual:
            "It writes these files, all or none:\n\
             .Pa /etc/kubernetes/pki/ca.crt ,\n\
             .Pa /etc/kubernetes/bootstrap-kubelet.conf ,\n\
             .Pa /var/lib/kubelet/config.yaml\n\
             (the cluster's configuration for its nodes, which replaces\n\
             .Pa /etc/coracle/config.yaml )\n\
             and\n\
             .Pa /var/lib/kubelet/coracle-flags.env\n\
             (flags of the service).\n\
             Then it starts the service, which requests a certificate for this node and removes the token.\n",
        arguments { (positional) server: String => [("server", Completes::Nothing)]; }
        flags {
            token: String => flag(Value::Text("TOKEN"), "bootstrap token, for the certificate request of this node");
            discovery_token_ca_cert_hash: Vec<Pin>
                => flag(Value::Text("sha256:DIGEST"), "digest of the public key of the cluster CA; may be given again")
                .may_repeat()
                .manual(
                    "Digest of the public key of the cluster CA.\n\
                     It may be given several times; one has to match.\n",
                );
            discovery_token_unsafe_skip_ca_verification: bool => switch("trust every server that knows the token");
            node_name: Option<String> => flag(Value::Text("NAME"), "name of the node").default("the host name");
            no_start: bool => switch("write all files and do not start the service");
            timeout: Age = "Age(Duration::from_secs(60))"
                => flag(Value::Text("DURATION"), "how long to retry while the server cannot be reached")
                .default("1m");
            KUBERNETES_DIR;
            ROOT_DIR;
        }
        examples: [
            "coracle join 10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:...",
        ],
    }
    command Leave "leave" {
        usage: "[--delete-node] [--no-restart]",
        summary: "remove this machine from its cluster",
        description: [
            "Removes this machine from its cluster: the credentials and keys, the cluster's configuration and the \
             lease of the node. Pods from manifests keep running. Pods of the cluster are terminated when the agent \
             restarts without the cluster.",
        ],
        flags {
            delete_node: bool => switch("also delete the Node object")
                .manual("Also delete the Node object, if the cluster allows the node to do that.\n");
            no_restart: bool => switch("do not restart the agent");
            KUBERNETES_DIR;
            ROOT_DIR;
        }
        examples: ["coracle leave --delete-node"],
    }
    command Completion "completion" {
        brief: "SHELL",
        usage: "bash|zsh|fish",
        summary: "print a completion script for bash, zsh or fish",
        description: [
            "Prints a script that completes commands, flags and the names of pods in a shell. The packages install \
             it.",
        ],
        arguments { (positional) shell: Shell => [("shell", Completes::Words(&["bash", "zsh", "fish"]))]; }
        examples: ["source <(coracle completion bash)"],
    }
    command Version "version" {
        brief: "[-o json]",
        usage: "[-o json]",
        summary: "print the version",
        description: ["Prints the version, and the Kubernetes version whose behaviour it follows."],
        flags {
            output['o']: VersionOutput = "VersionOutput::Text" => flag(Value::OneOf(&["json"]), "print it as JSON");
        }
        examples: ["coracle version -o json"],
    }
    help_only "help" {
        brief: "[COMMAND]",
        usage: "[COMMAND]",
        summary: "print this help or the help of a command",
        description: ["Prints the help of the program or of one command, as --help does."],
        arguments {
            // The completion scripts fill in all commands: a table cannot refer to itself.
            (positional) command: String => [("command", Completes::Words(&[]))];
        }
        examples: ["coracle help logs"],
    }
}
