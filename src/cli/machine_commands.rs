//! The commands about the machine and the program itself: the end of the table in `command_table.rs`. Pure.

/// `commands!` with the table of `command_table.rs` and these commands.
macro_rules! with_machine_commands {
    ($($table:tt)*) => {
        commands! {
            $($table)*

        command Validate "validate" {
            brief: "FILE...",
            usage: "FILE|DIRECTORY|-...",
            summary: "check manifests without running them",
            description: [
                "Checks manifests as the agent does, and prints each error with file, line and field. Also \
                 checks a KubeletConfiguration. Warns about valid settings that are probably mistakes. Needs no running \
                 agent. Exit code 1 if the agent would refuse a file.",
            ],
            arguments { (positional) files: Vec<PathBuf> => [("manifest", Completes::Files)]; }
            flags {
                filename['f']: Vec<PathBuf>
                    => flag(Value::File("FILE|-"), "manifest, directory, or - for standard input, as an argument")
                    .may_repeat();
            }
            examples: ["coracle validate web.yaml"],
        }
        command Doctor "doctor" {
            brief: "[-o json]",
            usage: "[-o json] [-- FLAGS]",
            summary: "check what this machine needs to run pods",
            description: [
                "Checks what this machine needs to run pods, before and after the installation: the runtime, its pause \
                 image and pod network, the kernel, cgroups, swap, clock, disks, watchdog, ports and certificates. Each \
                 line is ok, warning or failed, with the command or setting that fixes it. Needs no running agent. Exit \
                 code 3 with warnings, 4 if something failed.",
            ],
            manual:
                "The flags are those of the running agent, or else those of its service.\n\
                 Give others after\n\
                 .Fl Fl .\n",
            arguments { (positional, greedy) agent_flags: Vec<String> => []; }
            flags {
                output['o']: TopOutput = "TopOutput::Table" => flag(Value::OneOf(&["json"]), "print it as JSON");
                first_start: bool => switch("print only problems, and only if the agent has never run here")
                    .manual(
                        "Print only problems, and only if the agent has never run here.\n\
                         The service runs this before its first start, so that its log has the problems.\n",
                    );
                LOCAL_SOCKET;
            }
            examples: ["coracle doctor", "coracle doctor -- --container-runtime-endpoint unix:///run/crio/crio.sock"],
        }
        command RuntimeConfig "runtime-config" {
            brief: "RUNTIME",
            usage: "containerd|crio [--unit | --apply FILE]",
            summary: "print a configuration of the runtime for a board with little memory",
            description: [
                "Prints a configuration of containerd (1.6 and newer) or CRI-O for this board that makes the runtime use \
                 less memory: it turns off plugins that no kubelet uses, lets pods share shims, and uses crun if that is \
                 1.8 or newer. With --unit it prints the drop-in of the unit, which makes Go collect garbage earlier. The \
                 first lines of each say where to install it.",
                "With --apply FILE it puts such a configuration in place of the runtime's file and restarts the runtime, on \
                 trial. The configuration is accepted once the runtime answers and all containers that ran before still \
                 run. Otherwise the former file is restored and the runtime restarted; after a crash or a power cut, the agent \
                 does this at its next start.",
                "Version, pause image, network and cgroup driver are read from the running runtime and the agent; the \
                 options set them for another board. The agent needs --runtime-profile=lean.",
            ],
            arguments {
                (positional) runtime: RuntimeName => [("runtime", Completes::Words(&["containerd", "crio"]))];
            }
            flags {
                unit: bool => switch("print the drop-in of the unit of the runtime");
                runtime_version: Option<String> => flag(Value::Text("VERSION"), "version of the runtime, as 2.1");
                cgroup_driver: Option<CgroupDriverName>
                    => flag(Value::OneOf(&["cgroupfs", "systemd"]), "driver of control groups");
                pause_image: Option<String> => flag(Value::Text("IMAGE"), "pause image");
                cni_bin_dir: Option<PathBuf> => flag(Value::Directory, "directory of the network plugins");
                crun: Option<String> => flag(Value::Text("VERSION|none"), "version of /usr/bin/crun");
                shim: Option<PathBuf> => flag(Value::File("PROGRAM"), "shim that containerd uses instead of its own");
                apply: Option<PathBuf> => flag(Value::File("FILE"), "configuration to try");
                file: Option<PathBuf>
                    => flag(Value::File("FILE"), "configuration that --apply replaces")
                    .default("/etc/containerd/config.toml or /etc/crio/crio.conf.d/90-coracle-lean.conf");
                restart_command: Option<String>
                    => flag(Value::Text("COMMAND"), "shell command that restarts the runtime")
                    .default("that of systemd or OpenRC");
                within: Age = "Age(Duration::from_secs(60))"
                    => flag(Value::Text("DURATION"), "time limit of the trial")
                    .default("1m");
                ROOT_DIR;
                LOCAL_SOCKET;
            }
            examples: [
                "coracle runtime-config containerd >config.toml",
                "coracle runtime-config containerd --unit >coracle-lean.conf",
                "coracle runtime-config containerd --apply config.toml",
                "coracle runtime-config containerd --runtime-version 2.1 --cgroup-driver systemd --crun none",
            ],
        }
        command Upgrade "upgrade" {
            brief: "FILE",
            usage: "FILE|URL|status|rollback [--signature FILE] [--public-key FILE] [--within DURATION] [--wait] [-o json]",
            summary: "try another version of the agent, and return to the former one if it fails",
            description: [
                "Installs FILE, or the file at an http, https or oci URL, beside the running program and restarts the agent with it, on trial. It is accepted once \
                 the sync loop runs, the runtime answers, all containers that ran before still run, and the cluster and \
                 the URL of manifests answer if they did before. Otherwise, and after a crash, a hang, a power cut or \
                 three starts without a verdict, the former version runs again.",
                "status shows the running version, the version on trial and the result of the last trial. rollback stops a \
                 trial, or restores the former version. The installed program stays unchanged and starts the other one. \
                 A newer package replaces an upgrade.",
            ],
            manual:
                "FILE needs an Ed25519 signature of the whole file, 64 bytes, raw or in base64, as\n\
                 .Ql openssl pkeyutl -sign -rawin -inkey key.pem -in coracle -out coracle.sig\n\
                 writes it.\n",
            arguments { (positional) program: String => [("FILE", Completes::Files)]; }
            flags {
                signature: Option<PathBuf> => flag(Value::File("FILE"), "signature of the program").default("FILE.sig");
                public_key: Option<PathBuf>
                    => flag(Value::File("FILE"), "Ed25519 public key, in PEM or base64")
                    .default("/etc/coracle/upgrade.pub");
                unsigned: bool => switch("accept a program without a signature");
                allow_downgrade: bool => switch("accept an older version than the running one");
                within: Age = "Age(Duration::from_secs(300))"
                    => flag(Value::Text("DURATION"), "time limit of the trial after each start")
                    .default("5m");
                wait: bool => switch("wait for the end of the trial; exit code 1 if it was rejected");
                output['o']: TopOutput = "TopOutput::Table" => flag(Value::OneOf(&["json"]), "print the status as JSON");
                LOCAL_SOCKET;
                ROOT_DIR;
            }
            examples: ["coracle upgrade --wait ./coracle", "coracle upgrade status", "coracle upgrade rollback"],
        }
        command Config "config" {
            brief: "apply FILE",
            usage: "apply FILE [--within DURATION] [--wait]",
            summary: "try another configuration of the agent, and return to the former one if it fails",
            description: [
                "Checks FILE, a KubeletConfiguration, and restarts the agent with it in place of the file of its \
                 --config, on trial as with coracle upgrade. If the trial fails, the former file is restored.",
            ],
            arguments {
                (positional) action: String => [("action", Completes::Words(&["apply"]))];
                (positional) file: PathBuf => [("FILE", Completes::Files)];
            }
            flags {
                within: Age = "Age(Duration::from_secs(300))"
                    => flag(Value::Text("DURATION"), "time limit of the trial after each start")
                    .default("5m");
                wait: bool => switch("wait for the end of the trial; exit code 1 if it was rejected");
                LOCAL_SOCKET;
                ROOT_DIR;
            }
            examples: ["coracle config apply --wait config.yaml"],
        }
        command Support "support" {
            brief: "[-o FILE]",
            usage: "[-o FILE] [--no-container-logs] [-- FLAGS]",
            summary: "write an archive about this node for support",
            description: [
                "Writes an archive (tar.gz, a few megabytes at most) for support: the result of coracle doctor, \
                 status, pods, events, the last lines of logs, configuration, manifests, checkpoints and facts of the \
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
        command Seal "seal" {
            brief: "[-f FILE] [--to KEY]",
            usage: "[-f FILE|-] [--to KEY]",
            summary: "seal Secrets of manifests for one board",
            description: [
                "Prints the public key of this board. With -f, prints the Secrets of a manifest with values that only one \
                 board can open: this one, or with --to the board with the public key KEY, which needs no running agent. \
                 Any repository can hold a sealed Secret.",
            ],
            manual: "Namespace, name and keys are sealed with the values: seal the Secret again after you change any of them.\n",
            flags {
                filename['f']: Option<PathBuf> => flag(Value::File("FILE|-"), "manifest with Secrets, or - for standard input");
                to: Option<String> => flag(Value::Text("KEY"), "public key of the board, as its coracle seal prints it");
                LOCAL_SOCKET;
            }
            examples: ["coracle seal", "coracle seal -f secret.yaml --to KEY > sealed.yaml"],
        }
        command PageToken "page-token" {
            usage: "[--remove]",
            summary: "create a token for the controls of the status page",
            description: [
                "Creates a token and prints it. With it the status page shows the last lines of logs, restarts pods, rolls \
                 them back and confirms versions. A new token replaces the former one. Without a token the page is read-only.",
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
                 control plane contains the server, a token and the digest. Nothing is written before the cluster has proved \
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
                name_template: Option<NameTemplate>
                    => flag(Value::Text("TEMPLATE"), "template that names the node after its board, such as edge-{serial}");
                no_start: bool => switch("write all files and do not start the service");
                timeout: Patience = "Patience(Some(Duration::from_secs(60)))"
                    => flag(Value::Text("DURATION"), "how long to retry while the server is unreachable, 0 for no limit")
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
        command Replace "replace" {
            brief: "NODE",
            usage: "NODE [--from DIRECTORY] [--force] [--no-start]",
            summary: "take the role of a board that is gone",
            description: [
                "Makes this board the node that another board was: its name, manifests, settings, credentials and the \
                 volumes of its claims. With --from they are copied from the card of the old board or a copy of it. \
                 Without it, the card itself has been moved to this board.",
            ],
            arguments { (positional) old: String => [("node", Completes::Nothing)]; }
            flags {
                from: Option<PathBuf>
                    => flag(Value::Directory, "root directory of the old board's card, or of a copy of it");
                force: bool => switch("do not ask the cluster whether the old board is alive")
                    .manual(
                        "Do not ask the cluster whether the old board is alive.\n\
                         Two boards with one name take each other's pods and certificates away.\n",
                    );
                no_start: bool => switch("do not start the service");
                LOCAL_SOCKET;
                KUBERNETES_DIR;
                ROOT_DIR;
            }
            examples: ["coracle replace edge-7 --from /mnt/card"],
        }
        command Fleet "fleet" {
            brief: "[-o wide]",
            usage: "[-l LABELS] [-o wide|json|yaml|name|jsonpath=PATH]",
            summary: "list the nodes of a cluster, with a kubeconfig",
            description: [
                "Lists the nodes of a cluster as its API server shows them, on any machine with a kubeconfig: version of \
                 the agent, last contact (with the length of the lease if it is longer than 40 s), last status, the \
                 result of the last trial of a program or configuration, held pods, problems, and certificates that have \
                 expired or expire within three days. A node whose lease has expired is Asleep.",
                "As kubectl coracle fleet it is a plugin of kubectl, if a link to this program is called kubectl-coracle.",
            ],
            flags {
                selector['l']: Option<Selector> => flag(Value::Text("LABELS"), "only nodes with these labels, as site=a");
                output['o']: PodsOutput = "PodsOutput::Table"
                    => flag(
                        Value::OneOf(&["wide", "json", "yaml", "name", "jsonpath="]),
                        "output format; wide adds all leases, verdicts and certificates",
                    );
                kubeconfig: Option<PathBuf> => flag(Value::File("FILE"), "kubeconfig")
                    .default("$KUBECONFIG, else ~/.kube/config");
                context: Option<String> => flag(Value::Text("NAME"), "context of the kubeconfig")
                    .default("the current context");
                traffic: bool => switch("print the requests and bytes that it took");
            }
            examples: ["coracle fleet -l site=harbour", "kubectl coracle fleet -o wide"],
        }
        command Rollout "rollout" {
            brief: "ACTION [NAME]",
            usage:
                "start NAME --daemonset NAMESPACE/NAME|--agent URL|--config URL [-l LABELS] [--first N] [--then PERCENTS] \
                 | status|pause|resume|abort NAME",
            summary: "bring a change to the nodes of a cluster in steps",
            description: [
                "Brings a change to the nodes of a cluster in steps, on any machine with a kubeconfig. start NAME begins: \
                 with --daemonset it deletes the pods of a DaemonSet with updateStrategy OnDelete, so that the controller \
                 creates them with the current template; --agent and --config annotate nodes with the URL of a signed program or \
                 configuration.",
                "A sleeping node (its lease has expired) is pending until it wakes. The rollout stops when a node reports a \
                 rejected trial, or is awake and not healthy in time. Its state is a ConfigMap in the cluster: resume NAME, \
                 or the same start again, continues after a command was killed.",
                "status shows all rollouts, or one with its nodes; pause, resume and abort change one, and resume takes \
                 --stop-after and --ahead; rights [USER] prints \
                 the roles that it needs, to apply once. Exit code 0 when it has finished, 1 when it has stopped, 3 when \
                 only sleeping nodes are left.",
                "coracle rollout undo, status, pause, resume, restart and history with a workload, as deployment/web, work as \
                 in kubectl, for pods of this node: they mean rollback, wait, hold, confirm, restart and describe. A rollout of \
                 the fleet is named without a kind.",
            ],
            arguments {
                (positional) words: Vec<String> => [
                    ("action", Completes::Words(&["abort", "pause", "resume", "rights", "start", "status"])),
                    ("name", Completes::Nothing),
                ];
            }
            flags {
                daemonset: Option<String> => flag(Value::Text("NAMESPACE/NAME"), "DaemonSet whose pods are replaced");
                agent: Option<String> => flag(Value::Text("URL"), "program for the annotation coracle.dev/upgrade");
                config: Option<String> => flag(Value::Text("URL"), "configuration for the annotation coracle.dev/config");
                selector['l']: Option<Selector> => flag(Value::Text("LABELS"), "only nodes with these labels, as site=a");
                first: Option<u64> => flag(Value::Text("N"), "nodes of the first step").default("1");
                then: Option<Percentages>
                    => flag(Value::Text("PERCENTS"), "parts of all nodes for the steps after it")
                    .default("10%,50%,100%");
                max_unavailable: Option<Amount>
                    => flag(Value::Text("N|PERCENT"), "maximum number of nodes that are changing or not healthy").default("10%");
                stop_after: Option<u64> => flag(Value::Text("N"), "stop at this number of failed nodes").default("1");
                within: Option<Age>
                    => flag(Value::Text("DURATION"), "time limit for a node that is awake").default("10m");
                settle: Option<Age>
                    => flag(Value::Text("DURATION"), "how long a pod must be ready").default("30s");
                order: Option<Order>
                    => flag(Value::OneOf(&["hash", "name"]), "order of the nodes; hash spreads them, and is the same each time")
                    .default("hash");
                ahead: bool => switch("at the end, also change sleeping nodes, which see the change when they wake");
                wait: bool => switch("continue until the last sleeping node has woken");
                interval: Age = "Age(Duration::from_secs(10))"
                    => flag(Value::Text("DURATION"), "interval of requests to the cluster").default("10s");
                dry_run: bool => switch("print the requests of the first round and send none");
                output['o']: StatusOutput = "StatusOutput::Text"
                    => flag(Value::OneOf(&["json", "yaml"]), "print the status as JSON or YAML");
                namespace['n']: String = "\"coracle\".to_owned()"
                    => flag(Value::Text("NAMESPACE"), "namespace of the ConfigMaps").default("coracle");
                kubeconfig: Option<PathBuf> => flag(Value::File("FILE"), "kubeconfig")
                    .default("$KUBECONFIG, else ~/.kube/config");
                context: Option<String> => flag(Value::Text("NAME"), "context of the kubeconfig")
                    .default("the current context");
                traffic: bool => switch("print the requests and bytes that it took");
            }
            examples: [
                "coracle rollout start camera-2 --daemonset vision/camera --first 5 --then 10%,50%,100%",
                "coracle rollout start agent-0.9.1 --agent https://fleet.example/v0.9.1/coracle-{arch} -l site=harbour",
                "coracle rollout status camera-2",
            ],
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
    };
}
