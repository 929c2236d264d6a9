//! The flags of the agent that the documentation names. `config::flag_table` has all that are accepted. Pure.

use super::commands::LOCAL_SOCKET;
use super::{Flag, FlagSection, Value, flag, switch};

pub(crate) const AGENT_FLAGS: &[FlagSection] = &[
    FlagSection { title: "Pods", manual: "", flags: PODS },
    FlagSection { title: "Runtime and images", manual: "", flags: RUNTIME },
    FlagSection { title: "Eviction", manual: "", flags: EVICTION },
    FlagSection { title: "Node and network", manual: "", flags: NODE },
    FlagSection { title: "Cluster", manual: "", flags: CLUSTER },
    FlagSection {
        title: "Kubelet API",
        manual: "The API of the kubelet over TLS.\n\
                 The port is open in a cluster, and elsewhere if --client-ca-file or --anonymous-auth lets clients in.\n",
        flags: SERVER,
    },
    FlagSection { title: "Control groups", manual: "", flags: CGROUPS },
    FlagSection { title: "This process", manual: "", flags: PROCESS },
];

const PODS: &[Flag] = &[
    flag("pod-manifest-path", Value::File("PATH"), "manifests, a directory or one file")
        .default("/etc/kubernetes/manifests"),
    flag("file-check-frequency", DURATION, "interval at which manifests are read even without a change").default("20s"),
    flag("manifest-url", Value::Text("URL"), "a manifest at an HTTP or HTTPS URL").manual(
        "A manifest at an HTTP or HTTPS URL: a Pod, a PodList or several documents, with their ConfigMaps and Secrets.\n\
         Either all of it is used or none.\nAfter an error the pods keep running, and the error is shown once in the \
         log and by\n.Nm Cm status .\nThe last good manifest is stored, and runs after a start without the server.\n",
    ),
    flag("manifest-url-header", Value::Text("NAME:VALUE,..."), "headers of requests for --manifest-url")
        .may_repeat()
        .manual("Headers of requests for --manifest-url; may be given again.\n"),
    flag("manifest-url-ca-file", FILE, "CA certificates for --manifest-url").default("those of the system").manual(
        "CA certificates for --manifest-url; by default\n.Pa /etc/ssl/certs/ca-certificates.crt .\n",
    ),
    flag("manifest-public-key", FILE, "Ed25519 public key that verifies the manifest of --manifest-url").manual(
        "An Ed25519 public key, in PEM or base64.\nA manifest of --manifest-url is accepted only with its signature, which is \
         at the same URL with\n.Pa .sig\nat the end of its path, and covers an audience and a serial number.\n\
         A stored manifest is checked against the key at each start.\n",
    ),
    switch("manifest-plain-signatures", "accept signatures without audience and serial number, which can be replayed").manual(
        "Also accept signatures of the manifest alone: 64 bytes, raw or in base64.\nThey can be replayed, and are valid on \
         every node with the same key.\n",
    ),
    flag("http-check-frequency", DURATION, "interval of requests for --manifest-url").default("20s").manual(
        "Interval of requests for --manifest-url; by default 20s, and up to five minutes while they fail.\n",
    ),
    flag("max-pods", N, "highest number of pods").default("110"),
    flag("node-labels", Value::Text("KEY=VALUE,..."), "labels of the node, for node selectors and affinity").manual(
        "Labels of the node besides its name, operating system and architecture, for node selectors and affinity.\n",
    ),
    flag("pod-max-pids", N, "highest number of processes of one pod, -1 without a limit").default("-1"),
    switch("seccomp-default", "use the RuntimeDefault seccomp profile for pods without a profile"),
];

const RUNTIME: &[Flag] = &[
    flag("container-runtime-endpoint", SOCKET, "socket of the container runtime")
        .default("unix:///run/containerd/containerd.sock")
        .manual(
            "Socket of the container runtime; by default\n.Pa unix:///run/containerd/containerd.sock .\nThat of CRI-O is\n\
             .Pa unix:///run/crio/crio.sock .\n",
        ),
    flag("image-service-endpoint", SOCKET, "socket of the image service").default("that of the runtime"),
    flag("runtime-request-timeout", DURATION, "timeout of runtime requests").default("2m"),
    flag("serialize-image-pulls", Value::Bool, "pull one image at a time").default("true"),
    flag("registry-qps", N, "image pulls per second, 0 without a limit").default("5"),
    flag("registry-burst", N, "image pulls at once").default("10"),
    flag("image-credential-provider-config", Value::File("PATH"), "CredentialProviderConfig of programs for registries")
        .manual(
            "A CredentialProviderConfig, or a directory of them: programs that are asked for credentials for registries.\n",
        ),
    flag("image-credential-provider-bin-dir", Value::Directory, "directory of the credential provider programs"),
    flag("image-archives", Value::Directory, "directory of image archives to import and keep")
        .default("coracle/images in the root directory")
        .manual(
            "Images without a registry.\nEach archive in this directory (docker save, or an OCI layout as a tar, also \
             compressed with gzip or zstd) is imported into the runtime.\nImage garbage collection does not remove its images \
             while the archive is in the directory.\nBy default\n.Pa coracle/images\nin the root directory.\nThis needs\n.Xr ctr 8\n\
             with containerd,\n.Xr skopeo 1\nwith CRI-O, and\n.Xr gzip 1\nor\n.Xr zstd 1\nfor compressed archives.\n\
             .Cm status\nshows the state of each archive.\n",
        ),
    switch("strict-image-pull-policy", "fail a pull with policy Always while the registry is unreachable").manual(
        "The pull policy\n.Cm Always\nfails while the registry is unreachable.\n\
         By default a present image is used then, and an event reports it.\n",
    ),
    flag("image-gc-high-threshold", N, "disk usage in percent that starts removal of unused images, 100 for never")
        .default("85"),
    flag("image-gc-low-threshold", N, "disk usage in percent that ends removal of unused images").default("80"),
];

const EVICTION: &[Flag] = &[
    flag("eviction-hard", Value::Text("SIGNAL<AMOUNT,..."), "thresholds below which pods are evicted at once")
        .default(
            "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%",
        )
        .manual(
            "Below a threshold the node is under pressure.\nIf a disk is full, unused images are removed first.\n\
             Then pods are evicted, one after the other.\nBy default memory.available<100Mi, nodefs.available<10%, \
             nodefs.inodesFree<5%, imagefs.available<15% and imagefs.inodesFree<5%.\n\
             The configuration file has more settings of eviction.\n",
        ),
    flag(
        "eviction-soft",
        Value::Text("SIGNAL<AMOUNT,..."),
        "thresholds below which pods are evicted after the grace period",
    ),
    flag("eviction-soft-grace-period", Value::Text("SIGNAL=DURATION,..."), "grace periods of --eviction-soft"),
    switch("evict-static-pods", "also evict static pods without a critical priority").manual(
        "Static pods can also be evicted, refused and preempted, unless they have a system-critical priority.\n\
         An evicted static pod stays down until its manifest changes or the agent starts again.\n\
         By default no static pod is evicted.\n",
    ),
];

const NODE: &[Flag] = &[
    flag("hostname-override", Value::Text("NAME"), "name of the node").default("the host name"),
    flag("node-ip", Value::Text("IP[,IP]"), "addresses of the node").default("those of the default route's interface"),
    flag("register-node", Value::Bool, "create the Node object if the cluster has none").default("true"),
    flag("register-with-taints", Value::Text("KEY=VALUE:EFFECT,..."), "taints of a Node object that is created"),
    flag("node-status-max-images", N, "number of images in the node status, -1 for all").default("0").manual(
        "Number of images in the node status, the largest first; \\-1: all.\n\
         By default 0, because images would be the largest part of a node status.\n",
    ),
    flag("cloud-provider", Value::OneOf(&["external"]), "a cloud controller manager sets the node addresses")
        .manual("A cloud controller manager sets the addresses of the node and removes its initial taint.\n"),
    flag("cluster-dns", Value::Text("IP[,IP]"), "DNS servers of pods with the cluster's DNS policy"),
    flag("cluster-domain", Value::Text("NAME"), "DNS domain of the cluster"),
    switch("leave-kernel-parameters", "do not set vm.overcommit_memory, kernel.panic and the like").manual(
        "Do not set\n.Va vm.overcommit_memory ,\n.Va vm.panic_on_oom ,\n.Va kernel.panic ,\n.Va kernel.panic_on_oops\n\
         and the limits of root's keys.\nBy default they are set at the start to the values that the kubelet sets.\n",
    ),
    flag("resolv-conf", Value::File("PATH"), "resolver settings that pods inherit").default("/etc/resolv.conf"),
];

const CLUSTER: &[Flag] = &[
    flag("kubeconfig", Value::File("PATH"), "credentials of the node; needed to run pods of the cluster").manual(
        "Credentials of the node.\nWith them the node also runs the pods that the cluster schedules to it.\n\
         The file may be created later.\n",
    ),
    flag("bootstrap-kubeconfig", Value::File("PATH"), "credentials for the first certificate request").manual(
        "Credentials for certificate requests.\nWith them the node gets its first certificate, and a new one if its own has \
         expired.\nThe kubeconfig is written then.\n",
    ),
    switch("rotate-certificates", "renew the client certificate of the node before it expires").manual(
        "Renew the client certificate of the node after 70 to 90 percent of its life.\n",
    ),
    flag("cert-dir", Value::Directory, "directory of certificates and keys").default("pki in the root directory"),
    flag("offline-key-file", FILE, "key that encrypts Secrets and tokens in the offline store")
        .default("coracle/store-key in the root directory")
        .manual(
            "The key that encrypts Secrets and tokens in the offline store: 32 random bytes or more, mode 0600; by default\n\
             .Pa coracle/store-key\nin the root directory, made at the first start in a cluster.\n\
             The credential\n.Li coracle-store-key\nof the service manager has precedence.\n\
             An empty value keeps Secrets and tokens in memory only: pods that need them do not start without the \
             cluster.\n",
        ),
    flag("offline-plain-secrets", Value::Bool, "store Secrets and tokens unencrypted where there is no key").manual(
        "Store Secrets and tokens unencrypted where there is no key, and make no key.\n",
    ),
];

const SERVER: &[Flag] = &[
    flag("enable-server", Value::Bool, "serve the kubelet API").default("true"),
    flag("address", IP, "address of the kubelet API").default("0.0.0.0").manual(
        "Address of the kubelet API; by default 0.0.0.0, which is every address of both families.\n",
    ),
    flag("port", N, "port of the kubelet API").default("10250"),
    flag("tls-cert-file", FILE, "serving certificate").default("self-signed").manual(
        "Serving certificate; read again when it changes.\nBy default the node signs one itself,\n.Pa kubelet.crt .\n",
    ),
    flag("tls-private-key-file", FILE, "key of the serving certificate"),
    switch("rotate-server-certificates", "request the serving certificate from the cluster, and renew it").manual(
        "Request a serving certificate for the addresses of the node from the cluster, and a new one after 70 to 90 percent \
         of its life or when the addresses change.\nAn administrator has to approve the requests\n\
         .Pq Ic kubectl certificate approve .\nUntil the first certificate is signed, every client is refused.\n",
    ),
    flag("client-ca-file", FILE, "CA certificates of clients").manual(
        "CA certificates of clients; read again when it changes.\nBy default no client certificate is accepted.\n",
    ),
    flag("anonymous-auth", Value::Bool, "treat clients without credentials as the anonymous user").default("false").manual(
        "Treat clients without a certificate or token as system:anonymous; by default they are refused.\n",
    ),
    flag(
        "authorization-mode",
        Value::OneOf(&["Webhook", "AlwaysAllow"]),
        "ask the cluster what a client may do, or allow all authenticated clients",
    )
    .default("Webhook")
    .manual(
        ".Cm Webhook ,\nthe default, asks the cluster what a client may do;\n.Cm AlwaysAllow\nlets every authenticated client \
         do everything.\nThe answer for a token is cached for\n.Va authentication.webhook.cacheTTL\n(2m), that for a \
         permission for\n.Va authorization.webhook.cacheAuthorizedTTL\nand\n.Va cacheUnauthorizedTTL\n(5m, 30s), also while \
         the cluster is unreachable; after that every client is refused.\n",
    ),
    flag("enable-debugging-handlers", Value::Bool, "serve logs, exec, attach and port-forward").default("true").manual(
        "Serve logs, exec, attach and port-forward of containers, files of the node below\n.Pa /var/log\nand the \
         configuration; by default true.\n",
    ),
    flag("read-only-port", N, "port for health, pods and metrics without TLS, 0 for none").default("0").manual(
        "Port for health, pods and metrics without TLS or authentication; upstream uses 10255.\n\
         By default, and with 0, there is none.\n",
    ),
];

const CGROUPS: &[Flag] = &[
    flag("cgroup-driver", Value::OneOf(&["cgroupfs", "systemd"]), "driver of control groups")
        .default("cgroupfs, or that of the runtime")
        .manual(
            "Driver of control groups.\nThe driver that the runtime reports has precedence; by default cgroupfs.\n",
        ),
    flag("cgroups-per-qos", Value::Bool, "create control groups for pods and QoS classes").default("true"),
    flag("cpu-cfs-quota", Value::Bool, "enforce CPU limits of containers").default("true"),
    flag("fail-swap-on", Value::Bool, "refuse to start if swap is on").default("true"),
];

const PROCESS: &[Flag] = &[
    flag("config", FILE, "KubeletConfiguration, in YAML or JSON"),
    flag("coracle-config", FILE, "settings that KubeletConfiguration has no fields for, in YAML")
        .default("/etc/coracle/coracle.yaml, if it exists")
        .manual(CORACLE_CONFIG),
    flag("config-dir", Value::Directory, "directory of *.conf files that override --config, in the order of their names"),
    flag("root-dir", Value::Directory, "directory of the state").default("/var/lib/kubelet"),
    LOCAL_SOCKET.manual("Socket for the commands; by default\n.Pa /run/coracle/coracle.sock .\n"),
    flag("healthz-port", N, "port of GET /healthz, 0 for none").default("10248"),
    flag("healthz-bind-address", IP, "address of GET /healthz").default("127.0.0.1"),
    flag("page-port", N, "port of a status page for browsers (4194 is customary), 0 for none").default("0").manual(
        "Port of a status page for browsers: pods, resource usage and problems of the node.\n\
         4194 is the customary port; by default, and with 0, there is no page.\n",
    ),
    flag("page-address", IP, "address of the status page").default("127.0.0.1").manual(
        "Address of the status page; by default 127.0.0.1.\nThe page has no authentication, so use another address only in \
         networks where everyone may see it.\n",
    ),
    flag("lock-file", Value::File("PATH"), "file that is locked while this process runs"),
    flag("watchdog-device", Value::File("PATH"), "watchdog device that is kept alive while the sync loop runs").manual(
        "Watchdog device\n.Pq Pa /dev/watchdog\nthat is kept alive while the sync loop runs.\n\
         By default none; the watchdog of systemd needs no flag.\n",
    ),
    flag("v", N, "log verbosity, 4 and above for debug lines").short('v'),
    switch("help", "print this help").short('h'),
    switch("version", "print the version"),
];

const CORACLE_CONFIG: &str = "\
Settings that KubeletConfiguration has no fields for, in YAML; by default
.Pa /etc/coracle/coracle.yaml ,
if it exists.
An unknown field, or a field that has no effect in the mode that is set, keeps the agent from starting.
.Bl -tag -width Ds
.It Va sync.mode
When the agent exchanges data with the API server.
.Cm watch ,
the default: everything as it happens.
.Cm poll :
every
.Va sync.every
.Pq from 1s to 720h
the agent opens one connection, exchanges everything in the order lease, node status, pods and what they need, pod statuses
(the newest first), events, and closes it; it sends nothing in between.
A failed poll is retried after 30 seconds; the delay doubles with each further failure.
.Cm windows :
as in
.Cm watch
while a window is open, and nothing at other times.
.Cm manual :
only with
.Cm sync .
.It Va sync.windows , sync.whileInterface
Times of the day in UTC, as
.Li [\\(dq01:00-03:00\\(dq] ,
and the name of a network interface that has to be up; if both are given, both have to hold.
.It Va sync.lease.duration
Duration of the node's lease, in whole seconds from 4s; it is renewed after a quarter of that.
With
.Cm poll
at least twice
.Va sync.every ,
and four times that by default.
.It Va sync.bytesPerDay
Limit of bytes in a day by the clock of this boot, both ways and with TLS, from the start of the agent on; a quantity from 64Ki.
When it is nearly used up, events are left out first (at 60 percent), then the pods that the node is to run and what they need
(80 percent), then statuses (90 percent), and last the lease.
.It Va devices
A list of device files that containers may have without a device plugin.
Each entry has a
.Va resource ,
which containers request by limits, as
.Li example.com/camera ;
.Va paths ,
in which * and ? match parts of a name; and
.Va permissions ,
of r, w and m; by default rw.
.El
";

const DURATION: Value = Value::Text("DURATION");
const FILE: Value = Value::File("FILE");
const IP: Value = Value::Text("IP");
const N: Value = Value::Text("N");
const SOCKET: Value = Value::File("SOCKET");
