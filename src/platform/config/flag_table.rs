//! Every flag of the agent, declared once. Pure.
//!
//! An entry has the name of the flag and its effect, for the parser (`flag_effect.rs`), and its value, summary, default
//! and mdoc for the manual page, for the help, the manual page, the completions and the table of docs/configuration.md:
//! `build/texts.rs` reads this file too, and defines `flags!` in another way. The sections are those of the help.

flags! {
    "Pods" {
        "pod-manifest-path": field("staticPodPath")
            => flag(Value::File("PATH"), "manifests, a directory or one file")
                .default("/etc/kubernetes/manifests");
        "file-check-frequency": field("fileCheckFrequency")
            => flag(DURATION, "interval at which manifests are read even without a change").default("20s");
        "manifest-url": field("staticPodURL")
            => flag(Value::Text("URL"), "a manifest at an HTTP, HTTPS or OCI URL")
                .manual(
                    "A manifest at an HTTP or HTTPS URL, or in a registry (oci://REGISTRY/NAME:TAG): a Pod, a PodList or several documents, with their \
                     ConfigMaps and Secrets.\n\
                     Either all of it is used or none.\n\
                     After an error the pods keep running, and the error is shown once in the log and by\n\
                     .Nm Cm status .\n\
                     The last good manifest is stored, and runs after a start without the server.\n",
                );
        "manifest-url-header": own(Kind::Text, add_url_headers)
            => flag(Value::Text("NAME:VALUE,..."), "headers of requests for --manifest-url")
                .may_repeat()
                .manual("Headers of requests for --manifest-url; may be given again.\n")
                .reference("`NAME:VALUE,...`; adds to `staticPodURLHeader`");
        "manifest-url-ca-file": path(manifest_url_ca_file)
            => flag(FILE, "CA certificates for --manifest-url")
                .default("those of the system")
                .manual(
                    "CA certificates for --manifest-url; by default\n\
                     .Pa /etc/ssl/certs/ca-certificates.crt .\n",
                );
        "manifest-public-key": path(manifest_public_key)
            => flag(FILE, "Ed25519 public key that verifies the manifest of --manifest-url")
                .manual(
                    "An Ed25519 public key, in PEM or base64.\n\
                     A manifest of --manifest-url is accepted only with its signature, which is at the same URL \
                     with\n\
                     .Pa .sig\n\
                     at the end of its path, and covers an audience and a serial number.\n\
                     A stored manifest is checked against the key at each start.\n",
                );
        "manifest-plain-signatures": switch(manifest_plain_signatures)
            => switch("accept signatures without audience and serial number, which can be replayed")
                .manual(
                    "Also accept signatures of the manifest alone: 64 bytes, raw or in base64.\n\
                     They can be replayed, and are valid on every node with the same key.\n",
                );
        "http-check-frequency": field("httpCheckFrequency")
            => flag(DURATION, "interval of requests for --manifest-url")
                .default("20s")
                .manual(
                    "Interval of requests for --manifest-url; by default 20s, and up to five minutes while they \
                     fail.\n",
                );
        "max-pods": field("maxPods") => flag(N, "highest number of pods").default("110");
        "node-labels": own(Kind::Text, add_node_labels)
            => flag(Value::Text("KEY=VALUE,..."), "labels of the node, for node selectors and affinity")
                .manual(
                    "Labels of the node besides its name, operating system and architecture, for node selectors and \
                     affinity.\n",
                )
                .reference("`KEY=VALUE,...`: labels of the node, for selectors and affinity");
        "pod-max-pids": field("podPidsLimit")
            => flag(N, "highest number of processes of one pod, -1 without a limit").default("-1");
        "seccomp-default": field("seccompDefault")
            => switch("use the RuntimeDefault seccomp profile for pods without a profile");
    }
    "Runtime and images" {
        "container-runtime-endpoint": field("containerRuntimeEndpoint")
            => flag(SOCKET, "socket of the container runtime")
                .default("unix:///run/containerd/containerd.sock")
                .manual(
                    "Socket of the container runtime; by default\n\
                     .Pa unix:///run/containerd/containerd.sock .\n\
                     That of CRI-O is\n\
                     .Pa unix:///run/crio/crio.sock .\n",
                );
        "image-service-endpoint": field("imageServiceEndpoint")
            => flag(SOCKET, "socket of the image service").default("that of the runtime");
        "runtime-profile": own(Kind::Word(&["default", "lean"]), set_runtime_profile)
            => flag(Value::OneOf(&["default", "lean"]), "lean lets static pods share shims, for boards with little memory")
                .default("default")
                .manual(
                    "With\n\
                     .Cm lean\n\
                     static pods of one priority share a shim, ten pods at most, which saves several megabytes for each \
                     pod.\n\
                     A shim that is killed takes the containers of its pods with it.\n\
                     A pod with the annotation\n\
                     .Li coracle.dev/own-shim: \\(dqtrue\\(dq\n\
                     has a shim of its own.\n\
                     This needs the configuration of the runtime that\n\
                     .Cm runtime-config\n\
                     prints.\n",
                )
                .reference("`lean`: static pods share shims; see [a lean stack](boards-and-memory.md#a-lean-stack)");
        "runtime-request-timeout": field("runtimeRequestTimeout")
            => flag(DURATION, "timeout of runtime requests").default("2m");
        "serialize-image-pulls": field("serializeImagePulls")
            => flag(Value::Bool, "pull one image at a time").default("true");
        "registry-qps": field("registryPullQPS") => flag(N, "image pulls per second, 0 without a limit").default("5");
        "registry-burst": field("registryBurst") => flag(N, "image pulls at once").default("10");
        "image-credential-provider-config": path(credential_provider_config)
            => flag(Value::File("PATH"), "CredentialProviderConfig of programs for registries")
                .manual(
                    "A CredentialProviderConfig, or a directory of them: programs that are asked for credentials for \
                     registries.\n",
                )
                .reference("see [CredentialProviderConfig](#credentialproviderconfig); a file, or a directory of them");
        "image-credential-provider-bin-dir": path(credential_provider_bin_dir)
            => flag(Value::Directory, "directory of the credential provider programs");
        "image-archives": path(image_archives)
            => flag(Value::Directory, "directory of image archives to import and keep")
                .default("coracle/images in the root directory")
                .manual(
                    "Images without a registry.\n\
                     Each archive in this directory (docker save, or an OCI layout as a tar, also compressed with \
                     gzip or zstd) is imported into the runtime.\n\
                     Image garbage collection does not remove its images while the archive is in the directory.\n\
                     By default\n\
                     .Pa coracle/images\n\
                     in the root directory.\n\
                     This needs\n\
                     .Xr ctr 8\n\
                     with containerd,\n\
                     .Xr skopeo 1\n\
                     with CRI-O, and\n\
                     .Xr gzip 1\n\
                     or\n\
                     .Xr zstd 1\n\
                     for compressed archives.\n\
                     .Cm status\n\
                     shows the state of each archive.\n",
                );
        "strict-image-pull-policy": switch(strict_image_pull_policy)
            => switch("fail a pull with policy Always while the registry is unreachable")
                .manual(
                    "The pull policy\n\
                     .Cm Always\n\
                     fails while the registry is unreachable.\n\
                     By default a present image is used then, and an event reports it.\n",
                )
                .reference("`imagePullPolicy: Always` fails while the registry cannot be reached, as upstream");
        "image-gc-high-threshold": field("imageGCHighThresholdPercent")
            => flag(N, "disk usage in percent that starts the removal of unused images, 100 for never").default("85");
        "image-gc-low-threshold": field("imageGCLowThresholdPercent")
            => flag(N, "disk usage in percent that stops the removal of unused images").default("80");
    }
    "Eviction" {
        "eviction-hard": field("evictionHard")
            => flag(Value::Text("SIGNAL<AMOUNT,..."), "thresholds below which the agent evicts pods at once")
                .default(
                    "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,\
                     imagefs.available<15%,imagefs.inodesFree<5%",
                )
                .manual(
                    "Below a threshold the node is under pressure.\n\
                     If a disk is full, unused images are removed first.\n\
                     Then pods are evicted, one after the other.\n\
                     By default memory.available<100Mi, nodefs.available<10%, nodefs.inodesFree<5%, \
                     imagefs.available<15% and imagefs.inodesFree<5%.\n\
                     The configuration file has more settings of eviction.\n",
                );
        "eviction-soft": field("evictionSoft")
            => flag(Value::Text("SIGNAL<AMOUNT,..."), "thresholds below which the agent evicts pods after the grace period");
        "eviction-soft-grace-period": field("evictionSoftGracePeriod")
            => flag(Value::Text("SIGNAL=DURATION,..."), "grace periods of --eviction-soft");
        "evict-static-pods": switch(evict_static_pods)
            => switch("also evict static pods without a critical priority")
                .manual(
                    "Static pods can also be evicted, refused and preempted, unless they have a system-critical \
                     priority.\n\
                     An evicted static pod stays down until its manifest changes or the agent starts again.\n\
                     By default no static pod is evicted.\n",
                );
    }
    "Node and network" {
        "hostname-override": own(Kind::Text, set_hostname_override)
            => flag(Value::Text("NAME"), "name of the node").default("the host name");
        "name-template": own(Kind::Text, set_name_template)
            => flag(Value::Text("TEMPLATE"), "template that names the node after its board, such as edge-{serial}")
                .manual(
                    "Template that names the node after its board, such as\n\
                     .Li edge-{serial} ;\n\
                     the other parts are {mac}, {mac:eth0}, {model} and {hostname}.\n\
                     The agent decides the name once and keeps it in\n\
                     .Pa coracle/node.json\n\
                     in the root directory.\n\
                     .Fl \\-hostname-override\n\
                     takes precedence.\n",
                )
                .reference("template that names the node after its board; see [one image for many boards](install.md#one-image-for-many-boards)");
        "node-ip": own(Kind::List(&Kind::Ip), set_node_ips)
            => flag(Value::Text("IP[,IP]"), "addresses of the node")
                .default("those of the default route's interface");
        "register-node": field("registerNode")
            => flag(Value::Bool, "create the Node object if the cluster has none").default("true");
        "register-with-taints": own(Kind::Text, add_taints)
            => flag(Value::Text("KEY=VALUE:EFFECT,..."), "taints of a Node object that is created")
                .reference("`KEY=VALUE:EFFECT,...`; see `registerWithTaints`");
        "node-status-max-images": field("nodeStatusMaxImages")
            => flag(N, "number of images in the node status, -1 for all")
                .default("0")
                .manual(
                    "Number of images in the node status, the largest first; \\-1: all.\n\
                     By default 0, because images would be the largest part of a node status.\n",
                );
        "cloud-provider": own(Kind::Word(&["external"]), set_external_cloud)
            => flag(Value::OneOf(&["external"]), "a cloud controller manager sets the node addresses")
                .manual("A cloud controller manager sets the addresses of the node and removes its initial taint.\n")
                .reference("`external`: a cloud controller sets the addresses and removes the initial taint");
        "cluster-dns": field("clusterDNS")
            => flag(Value::Text("IP[,IP]"), "DNS servers of pods with the cluster's DNS policy");
        "cluster-domain": field("clusterDomain")
            => flag(Value::Text("NAME"), "DNS domain of the cluster");
        "leave-kernel-parameters": switch(leave_kernel_parameters)
            => switch("do not set vm.overcommit_memory, kernel.panic and the like")
                .manual(
                    "Do not set\n\
                     .Va vm.overcommit_memory ,\n\
                     .Va vm.panic_on_oom ,\n\
                     .Va kernel.panic ,\n\
                     .Va kernel.panic_on_oops\n\
                     and the limits of root's keys.\n\
                     By default they are set at the start to the values that the kubelet sets.\n",
                );
        "resolv-conf": field("resolvConf")
            => flag(Value::File("PATH"), "resolver settings that pods inherit").default("/etc/resolv.conf");
    }
    "Cluster" {
        "kubeconfig": path(kubeconfig)
            => flag(Value::File("PATH"), "credentials of the node; needed to run pods of the cluster")
                .manual(
                    "Credentials of the node.\n\
                     With them the node also runs the pods that the cluster schedules to it.\n\
                     The file may be created later.\n",
                )
                .reference("the node's own credentials: joins the cluster. The file may appear later");
        "join-file": own(Kind::Text, set_join_file)
            => flag(FILE, "names a cluster that this machine joins; empty for none")
                .default("/etc/coracle/join.yaml, if it exists")
                .manual(
                    "Names a cluster and a bootstrap token. The agent joins in the background, tries until it has \
                     joined, and then removes the file, which may appear while it runs. Empty: none. By default\n\
                     .Pa /etc/coracle/join.yaml .\n",
                )
                .reference("see [a file that joins a cluster](joining-a-cluster.md#a-file-that-joins-a-cluster); empty: none");
        "bootstrap-kubeconfig": path(bootstrap_kubeconfig)
            => flag(Value::File("PATH"), "credentials for the first certificate request")
                .manual(
                    "Credentials for certificate requests.\n\
                     With them the node gets its first certificate, and a new one if its own has expired.\n\
                     The kubeconfig is written then.\n",
                )
                .reference(
                    "credentials for requesting the node's own, at the first start and when its certificate has \
                     expired; needs `--kubeconfig`",
                );
        "rotate-certificates": field("rotateCertificates")
            => switch("renew the client certificate of the node before it expires")
                .manual("Renew the client certificate of the node after 70 to 90 percent of its life.\n");
        "cert-dir": path(cert_dir)
            => flag(Value::Directory, "directory of certificates and keys").default("pki in the root directory");
        "offline-key-file": own(Kind::Path, set_offline_key_file)
            => flag(FILE, "key that encrypts Secrets and tokens in the offline store")
                .default("coracle/store-key in the root directory")
                .manual(
                    "The key that encrypts Secrets and tokens in the offline store: 32 random bytes or more, mode \
                     0600; by default\n\
                     .Pa coracle/store-key\n\
                     in the root directory, made at the first start.\n\
                     The credential\n\
                     .Li coracle-store-key\n\
                     of the service manager has precedence.\n\
                     An empty value keeps Secrets and tokens in memory only: pods that need them do not start \
                     without the cluster.\n",
                )
                .reference(
                    "key that encrypts Secrets and tokens of the offline store; empty: they stay in memory only",
                );
        "offline-plain-secrets": switch(offline_plain_secrets)
            => flag(Value::Bool, "store Secrets and tokens unencrypted where there is no key")
                .manual("Store Secrets and tokens unencrypted where there is no key, and make no key.\n");
    }
    "Kubelet API" introduced_by "The API of the kubelet over TLS.\n\
         The port is open in a cluster, and elsewhere if --client-ca-file or --anonymous-auth lets clients in.\n" {
        "enable-server": field("enableServer")
            => flag(Value::Bool, "serve the kubelet API").default("true");
        "address": field("address")
            => flag(IP, "address of the kubelet API")
                .default("0.0.0.0")
                .manual("Address of the kubelet API; by default 0.0.0.0, which is every address of both families.\n");
        "port": field("port")
            => flag(N, "port of the kubelet API").default("10250");
        "tls-cert-file": field("tlsCertFile")
            => flag(FILE, "serving certificate")
                .default("self-signed")
                .manual(
                    "Serving certificate; read again when it changes.\n\
                     By default the node signs one itself,\n\
                     .Pa kubelet.crt .\n",
                );
        "tls-private-key-file": field("tlsPrivateKeyFile")
            => flag(FILE, "key of the serving certificate");
        "rotate-server-certificates": field("serverTLSBootstrap")
            => switch("request the serving certificate from the cluster, and renew it")
                .manual(
                    "Request a serving certificate for the addresses of the node from the cluster, and a new one \
                     after 70 to 90 percent of its life or when the addresses change.\n\
                     An administrator has to approve the requests\n\
                     .Pq Ic kubectl certificate approve .\n\
                     Until the first certificate is signed, every client is refused.\n",
                );
        "client-ca-file": field("authentication.x509.clientCAFile")
            => flag(FILE, "CA certificates of clients")
                .manual(
                    "CA certificates of clients; read again when it changes.\n\
                     By default no client certificate is accepted.\n",
                );
        "anonymous-auth": field("authentication.anonymous.enabled")
            => flag(Value::Bool, "treat clients without credentials as the anonymous user")
                .default("false")
                .manual(
                    "Treat clients without a certificate or token as system:anonymous; by default they are refused.\n",
                );
        "authorization-mode": field("authorization.mode")
            => flag(Value::OneOf(&["Webhook", "AlwaysAllow"]),
                "ask the cluster what a client may do, or allow all authenticated clients",
            )
                .default("Webhook")
                .manual(
                    ".Cm Webhook ,\n\
                     the default, asks the cluster what a client may do;\n\
                     .Cm AlwaysAllow\n\
                     lets every authenticated client do everything.\n\
                     The answer for a token is cached for\n\
                     .Va authentication.webhook.cacheTTL\n\
                     (2m), that for a permission for\n\
                     .Va authorization.webhook.cacheAuthorizedTTL\n\
                     and\n\
                     .Va cacheUnauthorizedTTL\n\
                     (5m, 30s), also while the cluster is unreachable; after that every client is refused.\n",
                );
        "enable-debugging-handlers": field("enableDebuggingHandlers")
            => flag(Value::Bool, "serve logs, exec, attach and port-forward")
                .default("true")
                .manual(
                    "Serve logs, exec, attach and port-forward of containers, files of the node below\n\
                     .Pa /var/log\n\
                     and the configuration; by default true.\n",
                );
        "read-only-port": field("readOnlyPort")
            => flag(N, "port for health, pods and metrics without TLS, 0 for none")
                .default("0")
                .manual(
                    "Port for health, pods and metrics without TLS or authentication; upstream uses 10255.\n\
                     By default, and with 0, there is none.\n",
                );
    }
    "Control groups" {
        "cgroup-driver": field("cgroupDriver")
            => flag(Value::OneOf(&["cgroupfs", "systemd"]), "driver of control groups")
                .default("cgroupfs, or that of the runtime")
                .manual(
                    "Driver of control groups.\n\
                     The driver that the runtime reports has precedence; by default cgroupfs.\n",
                );
        "cgroups-per-qos": field("cgroupsPerQOS")
            => flag(Value::Bool, "create control groups for pods and QoS classes").default("true");
        "cpu-cfs-quota": field("cpuCFSQuota")
            => flag(Value::Bool, "enforce CPU limits of containers").default("true");
        "fail-swap-on": field("failSwapOn")
            => flag(Value::Bool, "refuse to start if swap is on").default("true");
    }
    "This process" {
        "config": path(config)
            => flag(FILE, "KubeletConfiguration, in YAML or JSON")
                .reference("a KubeletConfiguration, YAML or JSON; the service has `/etc/coracle/config.yaml`");
        "coracle-config": path(coracle_config)
            => flag(FILE, "settings that KubeletConfiguration has no fields for, in YAML")
                .default("/etc/coracle/coracle.yaml, if it exists")
                .manual(include_str!("../../../man/coracle.yaml.in"))
                .reference("see [coracle.yaml](#coracleyaml)");
        "config-dir": path(config_dir)
            => flag(Value::Directory, "directory of *.conf files that override --config, in the order of their names")
                .reference("`*.conf` files laid over it in lexical order");
        "root-dir": path(root_dir) => flag(Value::Directory, "directory of the state").default("/var/lib/kubelet");
        "local-path-dir": path(local_path_dir)
            => flag(Value::Directory, "directory for PersistentVolumeClaims of manifests")
                .default("/opt/local-path-provisioner")
                .manual(
                    "Directory for the data of PersistentVolumeClaims of manifests, each in\n\
                     .Pa pvc-UID_NAMESPACE_NAME ;\n\
                     by default\n\
                     .Pa /opt/local-path-provisioner .\n",
                )
                .reference("directory for the data of [PersistentVolumeClaims](storage.md#claims-of-manifests) of manifests");
        "local-socket": path(local_socket)
            => flag(Value::File("PATH"), "socket of the agent")
                .default("/run/coracle/coracle.sock")
                .manual(
                    "Socket for the commands; by default\n\
                     .Pa /run/coracle/coracle.sock .\n",
                );
        "healthz-port": field("healthzPort") => flag(N, "port of GET /healthz, 0 for none").default("10248");
        "healthz-bind-address": field("healthzBindAddress")
            => flag(IP, "address of GET /healthz").default("127.0.0.1");
        "page-port": own(Kind::Int(0, 65535), set_page_port)
            => flag(N, "port of a status page for browsers (4194 is customary), 0 for none")
                .default("0")
                .manual(
                    "Port of a status page for browsers: pods, resource usage and problems of the node.\n\
                     4194 is the customary port; by default, and with 0, there is no page.\n",
                )
                .reference("port of the status page; 4194 is customary; 0: no page");
        "page-address": own(Kind::Ip, set_page_address)
            => flag(IP, "address of the status page")
                .default("127.0.0.1")
                .manual(
                    "Address of the status page; by default 127.0.0.1.\n\
                     The page has no authentication, so use another address only in networks where everyone may see \
                     it.\n",
                );
        "lock-file": path(lock_file) => flag(Value::File("PATH"), "file that is locked while this process runs");
        "watchdog-device": path(watchdog_device)
            => flag(Value::File("PATH"), "watchdog device that is kept alive while the sync loop runs")
                .manual(
                    "Watchdog device\n\
                     .Pq Pa /dev/watchdog\n\
                     that is kept alive while the sync loop runs.\n\
                     By default none; the watchdog of systemd needs no flag.\n",
                )
                .reference("`/dev/watchdog`: kept alive while the sync loop makes progress");
        "v": field("logging.verbosity")
            => flag(N, "log verbosity, 4 and above for debug lines").short('v');
        "help": switch(help) => switch("print this help").short('h');
        "version": switch(version) => switch("print the version");
    }
    not_in_the_help {
        "allowed-unsafe-sysctls": field("allowedUnsafeSysctls");
        "application-metrics-count-limit": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "authentication-token-webhook": field("authentication.webhook.enabled");
        "authentication-token-webhook-cache-ttl": field("authentication.webhook.cacheTTL");
        "authorization-webhook-cache-authorized-ttl": field("authorization.webhook.cacheAuthorizedTTL");
        "authorization-webhook-cache-unauthorized-ttl": field("authorization.webhook.cacheUnauthorizedTTL");
        "boot-id-file": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "cgroup-root": field("cgroupRoot");
        "cloud-config": not_yet(Kind::Path);
        "container-hints": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "container-log-max-files": field("containerLogMaxFiles");
        "container-log-max-size": field("containerLogMaxSize");
        "containerd": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "containerd-namespace": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "contention-profiling": field("enableContentionProfiling");
        "cpu-cfs-quota-period": field("cpuCFSQuotaPeriod");
        "cpu-manager-policy": field("cpuManagerPolicy");
        "cpu-manager-policy-options": field("cpuManagerPolicyOptions");
        "cpu-manager-reconcile-period": field("cpuManagerReconcilePeriod");
        "enable-controller-attach-detach": field("enableControllerAttachDetach");
        "enable-load-reader": gone(Kind::Bool, "it is a setting of cAdvisor, which Coracle does not contain");
        "enforce-node-allocatable": field("enforceNodeAllocatable");
        "event-burst": field("eventBurst");
        "event-qps": field("eventRecordQPS");
        "event-storage-age-limit": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "event-storage-event-limit": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "eviction-max-pod-grace-period": field("evictionMaxPodGracePeriod");
        "eviction-minimum-reclaim": field("evictionMinimumReclaim");
        "eviction-pressure-transition-period": field("evictionPressureTransitionPeriod");
        "exit-on-lock-contention": refused(Kind::Bool)
            => reference_only("**refused**: a successor that waits for the lock would wait forever");
        "experimental-allocatable-ignore-eviction": not_yet(Kind::Bool);
        "experimental-mounter-path": not_yet(Kind::Path);
        "fail-cgroupv1": field("failCgroupV1");
        "feature-gates": field("featureGates");
        "global-housekeeping-interval": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "hairpin-mode": field("hairpinMode");
        "housekeeping-interval": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "iptables-drop-bit": field("iptablesDropBit");
        "iptables-masquerade-bit": field("iptablesMasqueradeBit");
        "keep-terminated-pod-volumes": not_yet(Kind::Bool);
        "kernel-memcg-notification": field("kernelMemcgNotification");
        "kube-api-burst": field("kubeAPIBurst");
        "kube-api-content-type": field("contentType");
        "kube-api-qps": field("kubeAPIQPS");
        "kube-reserved": field("kubeReserved");
        "kube-reserved-cgroup": field("kubeReservedCgroup");
        "kubelet-cgroups": field("kubeletCgroups");
        "local-storage-capacity-isolation": field("localStorageCapacityIsolation");
        "log-cadvisor-usage": gone(Kind::Bool, "it is a setting of cAdvisor, which Coracle does not contain");
        "log-flush-frequency": field("logging.flushFrequency");
        "log-json-info-buffer-size": field("logging.options.json.infoBufferSize");
        "log-json-split-stream": field("logging.options.json.splitStream");
        "log-text-info-buffer-size": field("logging.options.text.infoBufferSize");
        "log-text-split-stream": field("logging.options.text.splitStream");
        "logging-format": field("logging.format");
        "machine-id-file": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "make-iptables-util-chains": field("makeIPTablesUtilChains");
        "max-housekeeping-interval": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "max-open-files": field("maxOpenFiles");
        "maximum-dead-containers": not_yet(Kind::Int(i32::MIN as i64, i32::MAX as i64));
        "maximum-dead-containers-per-container": not_yet(Kind::Int(i32::MIN as i64, i32::MAX as i64));
        "memory-manager-policy": field("memoryManagerPolicy");
        "minimum-container-ttl-duration": not_yet(Kind::AnyDuration);
        "minimum-image-ttl-duration": field("imageMinimumGCAge");
        "node-status-update-frequency": field("nodeStatusUpdateFrequency");
        "oom-score-adj": field("oomScoreAdj");
        "pod-cidr": field("podCIDR");
        "pod-infra-container-image": gone(Kind::Text, "the runtime chooses the sandbox's image");
        "pods-per-core": field("podsPerCore");
        "protect-kernel-defaults": field("protectKernelDefaults");
        "provider-id": field("providerID");
        "qos-reserved": field("qosReserved");
        "register-schedulable": own(Kind::Bool, set_schedulable)
            => reference_only("false: a new node is unschedulable").default("true");
        "reserved-cpus": field("reservedSystemCPUs");
        "reserved-memory": own(Kind::Text, add_reserved_memory)
            => reference_only("`0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=1Gi`; see `reservedMemory`");
        "runonce": field("runOnce");
        "runtime-cgroups": own(Kind::Text, set_runtime_cgroups)
            => reference_only("cgroup of the runtime, whose usage `/stats/summary` shows as `runtime`");
        "storage-driver-buffer-duration": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "storage-driver-db": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "storage-driver-host": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "storage-driver-password": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "storage-driver-secure": gone(Kind::Bool, "it is a setting of cAdvisor, which Coracle does not contain");
        "storage-driver-table": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "storage-driver-user": gone(Kind::Text, "it is a setting of cAdvisor, which Coracle does not contain");
        "streaming-connection-idle-timeout": field("streamingConnectionIdleTimeout");
        "sync-frequency": field("syncFrequency");
        "system-cgroups": field("systemCgroups");
        "system-reserved": field("systemReserved");
        "system-reserved-cgroup": field("systemReservedCgroup");
        "tls-cipher-suites": field("tlsCipherSuites");
        "tls-curve-preferences": field("tlsCurvePreferences");
        "tls-min-version": field("tlsMinVersion");
        "topology-manager-policy": field("topologyManagerPolicy");
        "topology-manager-policy-options": field("topologyManagerPolicyOptions");
        "topology-manager-scope": field("topologyManagerScope");
        "vmodule": not_yet(Kind::Text);
        "volume-plugin-dir": field("volumePluginDir");
        "volume-stats-agg-period": field("volumeStatsAggPeriod");
    }
}
