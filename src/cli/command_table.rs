//! Every command: its arguments, its flags with their types, and its texts, declared once. Pure.
//!
//! `commands!` of `command_parser.rs` makes argh's structs, that of `build/texts.rs` the help, the manual page and the
//! completions. A flag is `field['short']: Type = "default" => switch(...)` or `=> flag(...)`; its name is that of the
//! field with dashes. A name in capitals is a flag of `shared_flags.rs`. `brief` stands after the name in the overview,
//! `usage` in the usage line (the manual page adds the flags that it omits), `manual` is mdoc.

with_machine_commands! {
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
        brief: "[-o wide] [POD...]",
        usage: "[-A] [-l LABELS] [-o wide|json|yaml|name|jsonpath=PATH] [-w] [-n NAMESPACE] [POD...]",
        summary: "list the pods of this node",
        description: [
            "Lists the pods of the running agent, of all namespaces. ps and get pods do the same.",
            "With one POD, json, yaml and jsonpath show the pod itself. jsonpath has fields, indexes, [*], range and \
             texts.",
        ],
        arguments { (positional) pods: Vec<String> => [("pod", Completes::Pods)]; }
        flags {
            all_namespaces['A']: bool => switch("pods of all namespaces, also without this");
            output['o']: PodsOutput = "PodsOutput::Table"
                => flag(
                    Value::OneOf(&["wide", "json", "yaml", "name", "jsonpath="]),
                    "output format; wide adds address, uid and manifest, json and yaml are a v1.PodList",
                );
            selector['l']: Option<Selector> => flag(Value::Text("LABELS"), "only pods with these labels, as app=web");
            watch['w']: bool => switch("print each row again when it changes");
            NAMESPACE.summary("only pods of this namespace");
            LOCAL_SOCKET;
        }
        examples: ["coracle pods -o wide", "coracle pods web -o jsonpath='{.status.podIP}'"],
    }
    command Describe "describe" {
        brief: "POD",
        usage: "POD [-n NAMESPACE]",
        summary: "show everything about one pod",
        description: [
            "Shows the containers of a pod, their states, its conditions, volumes and events. POD is the name of \
             the pod or the name in its manifest.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pod)]; }
        flags { NAMESPACE; LOCAL_SOCKET; }
        examples: ["coracle describe web"],
    }
    command Logs "logs" {
        brief: "[-f] POD...",
        usage:
            "[-f] [-p] [-t] [--tail N] [--since DURATION] [--since-time TIME] [--limit-bytes N] POD... [-l LABELS] \
             [-c CONTAINER] [--all-containers] [-n NAMESPACE]",
        summary: "print the log of a container",
        description: [
            "Prints the log of a container, including its rotated files. POD is the name of the pod or the name in \
             its manifest. Of several logs, each line begins with its pod and container.",
        ],
        arguments { (positional) pods: Vec<String> => [("pod", Completes::Pods)]; }
        flags {
            CONTAINER;
            all_containers: bool => switch("the logs of all containers of the pod");
            selector['l']: Option<Selector> => flag(Value::Text("LABELS"), "the logs of pods with these labels");
            follow['f']: bool => switch("print new lines until the container exits");
            previous['p']: bool => switch("print the log of the previous instance");
            tail: Option<i64> => flag(Value::Text("N"), "print only the last N lines");
            since: Option<Age> => flag(Value::Text("DURATION"), "print only lines younger than this, as 90s or 2h");
            since_time: Option<String> => flag(Value::Text("TIME"), "print only lines from this time on (RFC 3339)");
            timestamps['t']: bool => switch("print the time of each line");
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
            (positional) pod: String => [("pod", Completes::Pod)];
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
        examples: ["coracle exec -it web -- sh", "coracle exec -i web -- tar xf - -C /data <data.tar"],
    }
    command Attach "attach" {
        brief: "[-it] POD",
        usage: "[-i] [-t] POD [-c CONTAINER] [-n NAMESPACE]",
        summary: "show new output of a container, and pass input to it",
        description: [
            "Shows new output of a container until it exits. With -i standard input is passed to the \
             container, if its manifest has stdin: true. A container with a terminal (tty: true) receives every \
             key, including Ctrl-C. Without a terminal, Ctrl-C stops coracle attach and not the container.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pod)]; }
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
            (positional) pod: String => [("pod", Completes::Pod)];
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
        usage: "[POD] [-A] [-o json|yaml] [-w] [-n NAMESPACE]",
        summary: "list recent events of this node or of one pod",
        description: [
            "Lists recent events of this node or of one pod, the oldest first. POD is the name of the pod or the \
             name in its manifest.",
        ],
        manual: "Repeated events are counted.\n",
        arguments { (positional) pod: Option<String> => [("pod", Completes::Pod)]; }
        flags {
            output['o']: StatusOutput = "StatusOutput::Text"
                => flag(Value::OneOf(&["json", "yaml"]), "print a v1.EventList");
            all_namespaces['A']: bool => switch("events of all namespaces, also without this");
            watch['w']: bool => switch("print new events as they come");
            NAMESPACE.summary("only events of this namespace");
            LOCAL_SOCKET;
        }
        examples: ["coracle events web"],
    }
    command Claims "claims" {
        brief: "",
        usage: "[-n NAMESPACE]",
        summary: "list the claims that pods use, and how full they are",
        description: [
            "Lists the PersistentVolumeClaims that pods of this node use, with their capacities and the bytes in use. The \
             capacity of a claim of a manifest is its request, which a disk with project quotas (prjquota) enforces.",
        ],
        flags { NAMESPACE.summary("only claims of this namespace"); LOCAL_SOCKET; }
        examples: ["coracle claims"],
    }
    command ListJobs "jobs" {
        brief: "",
        usage: "[-n NAMESPACE] [-o json]",
        summary: "list the Jobs and CronJobs of manifests, and how far they are",
        description: [
            "Lists the Jobs of the manifests of a node without a cluster: whether they run, are complete or have failed, \
             and how many of their pods have succeeded. CronJobs come first, with the time of their next Job. coracle \
             pods job/NAME lists the pods of a Job, cronjob/NAME those of all Jobs that it started.",
        ],
        flags {
            output['o']: TopOutput = "TopOutput::Table" => flag(Value::OneOf(&["json"]), "print all fields");
            NAMESPACE.summary("only Jobs and CronJobs of this namespace");
            LOCAL_SOCKET;
        }
        examples: ["coracle jobs"],
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
        usage: "[-o wide|json] [import FILE... | pull IMAGE... | remove IMAGE... | prune | delta OLD NEW -o FILE]",
        summary: "list, import, pull or remove images, or make a delta of two archives",
        description: [
            "Lists the images of the runtime, their sizes and the pods that need them. remove deletes images that \
             no pod needs, prune all of these.",
            "import puts archives (docker save, or an OCI layout as a tar, also compressed with gzip or zstd) into \
             the directory of --image-archives, waits until coracle has imported them, and prints the names of \
             their images. An image is kept as long as its archive is in the directory.",
            "pull downloads images now, with the credentials of the node and outside the windows of images.windows. An \
             image that no pod needs may be removed again when the disk is full.",
            "delta, on any machine, writes FILE with what the image in the archive NEW has and that in OLD does \
             not. A node that has the image in OLD imports it like an archive. Of two programs of coracle it makes a \
             delta for coracle upgrade.",
        ],
        arguments {
            (positional) words: Vec<String> => [
                ("action", Completes::Words(&["delta", "import", "prune", "pull", "remove"])),
                ("image", Completes::After { files: &["import", "delta"], images: &["remove", "rm"] }),
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
            "Shows the usage of the node and its pods: CPU in millicores, and memory as the working set.",
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
        usage: "[--dry-run] -f FILE|DIRECTORY|- [-f FILE]...",
        summary: "run the pods of a manifest on this node and keep them",
        description: [
            "Runs the pods of a manifest on this node, now and after every start, without a file in the manifest \
             directory. ConfigMaps and Secrets of the manifest are stored with the pods that use them, Services with \
             the pods that they lead to. An invalid manifest changes nothing, and an unchanged manifest writes \
             nothing. Exit code 1 if a pod was refused. Of a directory, each file is applied.",
        ],
        manual:
            "If a manifest has several pods, each ConfigMap, Secret and Service has to be used by one of them.\n\
             All manifests are checked before the first pod is changed.\n\
             The same is\n\
             .Ic PUT /pods/NAMESPACE/NAME\n\
             on the local socket.\n",
        arguments { (positional) files: Vec<PathBuf> => [("manifest", Completes::Files)]; }
        flags {
            filename['f']: Vec<PathBuf>
                => flag(Value::File("FILE|-"), "manifest, directory, or - for standard input; may be given again")
                .may_repeat();
            dry_run: bool => switch("check the manifests and print what would change");
            LOCAL_SOCKET;
        }
        examples: ["coracle apply -f web.yaml", "ssh board coracle apply -f - <web.yaml"],
    }
    command Diff "diff" {
        brief: "-f FILE",
        usage: "-f FILE|DIRECTORY|- [-f FILE]...",
        summary: "show what coracle apply would change",
        description: [
            "Shows the lines in which manifests differ from those that were applied last. Changes nothing. Exit code \
             0 if nothing differs, 1 if something does, 3 on an error.",
        ],
        arguments { (positional) files: Vec<PathBuf> => [("manifest", Completes::Files)]; }
        flags {
            filename['f']: Vec<PathBuf>
                => flag(Value::File("FILE|-"), "manifest, directory, or - for standard input; may be given again")
                .may_repeat();
            LOCAL_SOCKET;
        }
        examples: ["coracle diff -f web.yaml"],
    }
    command Copy "cp" {
        brief: "POD:PATH PATH",
        usage: "POD:PATH PATH | PATH POD:PATH [-c CONTAINER] [-n NAMESPACE]",
        summary: "copy files from or to a container",
        description: [
            "Copies a file or a directory between this machine and a running container. The image needs no tar. \
             Files in the container belong to the owner of their directory. A path of this machine that has a colon \
             begins with / or a dot. Needs root.",
        ],
        arguments { (positional) paths: Vec<String> => [("pod", Completes::PodsAndFiles)]; }
        flags {
            CONTAINER.default("the first container of the pod");
            NAMESPACE;
            LOCAL_SOCKET;
        }
        examples: ["coracle cp web:/etc/nginx .", "coracle cp nginx.conf web:/etc/nginx/nginx.conf"],
    }
    command Delete "delete" {
        brief: "POD...",
        usage: "POD... [-f FILE] [--wait] [-n NAMESPACE]",
        summary: "stop and remove pods that were applied",
        description: [
            "Stops a pod that was applied on this node, with its grace period, and removes it. A pod from another \
             source is not changed; its source is printed. Exit code 1 if a pod was not deleted. POD is the name of \
             the pod or the name in its manifest. With -f, deletes the pods of a manifest.",
        ],
        arguments { (positional) pods: Vec<String> => [("pod", Completes::Pods)]; }
        flags {
            filename['f']: Vec<PathBuf>
                => flag(Value::File("FILE|-"), "manifest or directory whose pods to delete; may be given again")
                .may_repeat();
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
    command Wait "wait" {
        brief: "POD...",
        usage: "POD... [--until ready|done|delete] [--timeout DURATION] [-n NAMESPACE]",
        summary: "wait until pods are ready, done or gone",
        description: [
            "Waits until all pods are ready, have succeeded (done) or are gone (delete). Exit code 1 if that takes \
             longer than the time-out, or if a pod has failed. POD is the name of the pod or the name in its \
             manifest. The syntax of kubectl wait is accepted, too.",
        ],
        arguments { (positional) pods: Vec<String> => [("pod", Completes::Pods)]; }
        flags {
            until: WaitedState = "WaitedState::Ready"
                => flag(Value::OneOf(&["ready", "done", "delete"]), "state to wait for").default("ready");
            timeout: Age = "Age(Duration::from_secs(30))"
                => flag(Value::Text("DURATION"), "longest time to wait").default("30s");
            NAMESPACE;
            LOCAL_SOCKET;
        }
        examples: ["coracle apply -f web.yaml && coracle wait web --timeout 2m"],
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
        arguments { (positional) pod: String => [("pod", Completes::Pod)]; }
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
    command Rerun "rerun" {
        brief: "POD",
        usage: "POD [-n NAMESPACE]",
        summary: "run a finished pod again",
        description: [
            "Runs a pod of this node again from its start, with its init containers, \
             after it has succeeded or failed. Exit code 1 if it is not finished. POD is the name of the pod or the \
             name in its manifest.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pod)]; }
        flags { NAMESPACE; LOCAL_SOCKET; }
        examples: ["coracle rerun backup && coracle wait backup --until done --timeout 10m"],
    }
    command Stop "stop" {
        brief: "POD",
        usage: "POD [-n NAMESPACE]",
        summary: "stop a pod until it is started",
        description: [
            "Stops a pod of this node. It does not run until coracle start, even after a reboot or a change \
             of its manifest. It is listed as Stopped. Its containers and emptyDir volumes are removed, its images \
             remain. A stopped pod is forgotten when its manifest is removed. The trial of a new version begins again \
             after coracle start. POD is the name of the pod or the name \
             in its manifest.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pod)]; }
        flags { NAMESPACE; LOCAL_SOCKET; }
        examples: ["coracle stop web"],
    }
    command Start "start" {
        brief: "POD",
        usage: "POD [-n NAMESPACE]",
        summary: "run a pod that coracle stop has stopped",
        description: [
            "Runs a pod that coracle stop has stopped, with its present manifest. Exit code 1 if it \
             is not stopped. POD is the name of the pod or the name in its manifest.",
        ],
        arguments { (positional) pod: String => [("pod", Completes::Pod)]; }
        flags { NAMESPACE; LOCAL_SOCKET; }
        examples: ["coracle start web && coracle wait web"],
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
        arguments { (positional) pod: String => [("pod", Completes::Pod)]; }
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
        arguments { (positional) pod: String => [("pod", Completes::Pod)]; }
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
        arguments { (positional) pod: String => [("pod", Completes::Pod)]; }
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
}
