//! Compatibility with the configuration of upstream and its tools.

use std::time::Duration;

use super::*;
use crate::platform::config::schema::{CREDENTIAL_PROVIDER_CONFIG, Field, KUBELET_CONFIGURATION, Kind};
use crate::platform::config::{CpuOptions, MemoryQos, TopologyManager, TopologyPolicy};

#[test]
fn upstreams_configz_is_accepted_whole() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/config/configz-1.36.json");
    let (config, _) = loaded(&["--config", path.to_str().unwrap()]);
    let expected = defaults_with(|config| {
        config.runtime.endpoint = "/lab/containerd.sock".into();
        config.runtime.image_endpoint = "/lab/containerd.sock".into();
        config.dns.cluster_dns = vec![[10, 96, 0, 10].into()];
        config.dns.cluster_domain = "cluster.local".to_owned();
        config.dns.resolv_conf = Some("/lab/resolv.conf".into());
        config.cgroups.per_qos = false;
        // 1.37 has no default.
        config.cgroups.memory_qos = Some(MemoryQos { throttling: Some(900), is_tiered: false });
        config.reserved.enforced = EnforcedLimits::default();
        config.process.fail_swap_on = false;
        config.process.verbosity = 2;
        config.eviction = hard_eviction(&[
            (Signal::ImageFsAvailable, "1%"),
            (Signal::MemoryAvailable, "50Mi"),
            (Signal::NodeFsAvailable, "1%"),
        ]);
        config.cluster.reporting = Reporting { max_images: Some(50), ..Reporting::default() };
        config.identity = Identity {
            serving: ServingIdentity::Files {
                certificate: "/var/lib/kubelet/pki/kubelet.crt".into(),
                key: "/var/lib/kubelet/pki/kubelet.key".into(),
            },
            client_ca_file: Some("/lab/pki/ca.crt".into()),
            server: ServerSettings { read_only: Some("0.0.0.0:10255".parse().unwrap()), ..ServerSettings::default() },
            ..Identity::default()
        };
    });
    assert_eq!(config, expected);
}

#[test]
fn flags_of_kubeadm_and_node_e2e_are_accepted() {
    let (config, warnings) = loaded(&[
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--container-runtime-endpoint=unix:///run/crio/crio.sock",
        "--register-with-taints=node-role.kubernetes.io/control-plane=:NoSchedule",
        "--pod-infra-container-image=registry.k8s.io/pause:3.10",
        "--hostname-override=Edge-7",
        "--root-dir",
        "/var/lib/kubelet",
        "--v",
        "4",
        "--feature-gates",
        "EventedPLEG=false,ContainerCheckpoint=true",
        "--image-service-endpoint",
        "unix:///run/images.sock",
        "--runtime-cgroups",
        "/system.slice/containerd.service",
    ]);
    let (key, effect) = ("node-role.kubernetes.io/control-plane".to_owned(), "NoSchedule".into());
    let taint = Taint { key, effect, ..Taint::default() };
    let expected = defaults_with(|config| {
        config.runtime.endpoint = "/run/crio/crio.sock".into();
        config.runtime.image_endpoint = "/run/images.sock".into();
        config.identity = Identity {
            bootstrap_kubeconfig: Some("/etc/kubernetes/bootstrap-kubelet.conf".into()),
            ..Identity::default()
        };
        config.node.name = "edge-7".to_owned();
        config.cluster.reporting = Reporting { taints: vec![taint], ..Reporting::default() };
        config.cluster.kubeconfig = Some("/etc/kubernetes/kubelet.conf".into());
        config.process.verbosity = 4;
        config.cgroups.runtime = "/system.slice/containerd.service".to_owned();
    });
    assert_eq!(config, expected);
    assert_eq!(warnings, ["--pod-infra-container-image has no effect: the runtime chooses the sandbox's image"]);
}

#[test]
fn unsupported_fields_are_reported_unless_default() {
    let (_, warnings) = file_loaded(
        r#""authentication":{"anonymous":{"enabled":false},"webhook":{"cacheTTL":"0s","enabled":true},
           "x509":{"clientCAFile":"/etc/kubernetes/pki/ca.crt"}},
           "cpuManagerPolicy":"none","cpuManagerReconcilePeriod":"0s","qosReserved":{"memory":"10%"},
           "evictionSoft":{},"logging":{"flushFrequency":0,"options":{"json":{"infoBufferSize":"0"}},"verbosity":0},
           "memorySwap":{},"hairpinMode":"none","staticPodURL":"","tracing":null"#,
    );
    assert_eq!(warnings, ["not supported yet, without effect: qosReserved", "without effect here: hairpinMode"]);
}

#[test]
fn settings_without_effect_are_named() {
    // It does not set the period of reports.
    let (config, warnings) = file_loaded(
        r#""nodeStatusUpdateFrequency":"4s","streamingConnectionIdleTimeout":"4h0m0s","hairpinMode":"hairpin-veth",
           "maxOpenFiles":1000000,"iptablesDropBit":15,"kernelMemcgNotification":true,"logging":{"flushFrequency":"5s"},
           "cpuManagerReconcilePeriod":"10s","enableControllerAttachDetach":false"#,
    );
    assert_eq!(config, defaults());
    let named = "cpuManagerReconcilePeriod, enableControllerAttachDetach, hairpinMode, iptablesDropBit, \
                 kernelMemcgNotification, logging.flushFrequency, maxOpenFiles, nodeStatusUpdateFrequency, \
                 streamingConnectionIdleTimeout";
    assert_eq!(sorted(&warnings), [format!("without effect here: {named}")]);
    let (_, warnings) = file_loaded(r#""enableControllerAttachDetach":true"#);
    assert!(warnings.is_empty(), "{warnings:?}");
    let (_, warnings) = loaded(&["--enable-controller-attach-detach=false", "--max-open-files=5"]);
    assert_eq!(warnings, ["without effect here: --enable-controller-attach-detach, --max-open-files"]);
}

/// The fields that warnings name, sorted: their order is that of the document.
fn sorted(warnings: &[String]) -> Vec<String> {
    let sort = |warning: &String| {
        let (text, fields) = warning.split_once(": ").unwrap();
        let mut fields: Vec<&str> = fields.split(", ").collect();
        fields.sort_unstable();
        format!("{text}: {}", fields.join(", "))
    };
    warnings.iter().map(sort).collect()
}

#[test]
fn what_the_kubelet_ignores_in_a_file_is_ignored_with_a_warning() {
    let dir = TempDir::new();
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    for (text, warning) in [
        ("configTrialDuration: 10m0s\nmaxPods: 50\n", "configTrialDuration: unknown field, ignored"),
        ("maxPods: 50\nMaxPods: 60\n", "MaxPods: unknown field (did you mean maxPods?), ignored"),
        (
            "maxPods: 50\nauthentication: {webhok: {enabled: false}}\n",
            "authentication.webhok: unknown field (did you mean webhook?), ignored",
        ),
        (
            "maxPods: 50\nregisterWithTaints: [{key: a, effect: NoSchedule, colour: 3}]\n",
            "registerWithTaints[0].colour: unknown field, ignored",
        ),
        ("maxPods: 40\nmaxPods: 50\n", "line 4: maxPods is given twice, the later one counts"),
        (
            "maxPods: 50\n---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n",
            "2 documents, only the first is read",
        ),
        (
            "maxPods: 50\n---\n{ left by an editor\n",
            "line 6, column 1: not YAML: while parsing a flow mapping of line 5, did not find expected ',' or '}'; only the first \
             document is read",
        ),
    ] {
        let path = dir.write("config.yaml", &format!("{head}{text}"));
        let (config, warnings) = loaded(&["--config", &path]);
        assert_eq!(config.pods.max_pods, 50, "{text}");
        assert_eq!(warnings, [format!("{path}: {warning}")], "{text}");
    }
    let (config, warnings) = file_loaded(
        r#""containerLogMaxSize":"","clusterDomain":"","cgroupDriver":"","reservedSystemCPUs":"","staticPodPath":"",
           "resolvConf":"","address":"","imageServiceEndpoint":"","cpuManagerPolicy":"","topologyManagerScope":"""#,
    );
    assert_eq!((config.logs, warnings), (defaults().logs, vec![]));
}

#[test]
fn cipher_suites_of_upstream_that_are_not_supported_are_named() {
    let warnings = |names: &str| file_loaded(&format!(r#""tlsCipherSuites":[{names}]"#)).1;
    let (good, bad) = (r#""TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305""#, r#""TLS_RSA_WITH_AES_128_CBC_SHA""#);
    assert_eq!(warnings(good), [] as [&str; 0]);
    let line = "tlsCipherSuites: not supported and ignored: TLS_RSA_WITH_AES_128_CBC_SHA";
    assert_eq!(warnings(&format!("{good},{bad}")), [line]);
    let rest = "; none is left for TLS 1.2, so clients need TLS 1.3";
    assert_eq!(warnings(&format!(r#"{bad},"TLS_AES_128_GCM_SHA256""#)), [format!("{line}{rest}")]);
}

#[test]
fn logs_are_rotated_whatever_their_size_is_set_to() {
    for (size, bytes) in [(r#""20Mi""#, 20 << 20), ("20971520", 20 << 20), (r#""""#, 10 << 20)] {
        let (config, warnings) = file_loaded(&format!(r#""containerLogMaxSize":{size}"#));
        assert_eq!((config.logs.max_bytes, warnings.is_empty()), (bytes, true), "{size}: {warnings:?}");
    }
    for size in [r#""-1""#, r#""0""#, "0", "-1"] {
        let (config, warnings) = file_loaded(&format!(r#""containerLogMaxSize":{size}"#));
        assert_eq!(config.logs.max_bytes, 10 << 20);
        assert_eq!(warnings, ["containerLogMaxSize: expected a size above 0, 10Mi is used"], "{size}");
    }
}

#[test]
fn cluster_dns_servers_that_are_no_address_are_left_out_with_a_warning() {
    let (config, warnings) = file_loaded(r#""clusterDNS":["010.096.0.10","dns.example","fd00::10","10..0.1"]"#);
    assert_eq!(config.dns.cluster_dns.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.96.0.10", "fd00::10"]);
    assert_eq!(
        warnings,
        ["dns.example", "10..0.1"]
            .map(|server| { format!("clusterDNS: expected an IP address, found {server:?}, which is ignored") })
    );
}

#[test]
fn reduced_crash_loop_decay_keeps_a_configured_limit() {
    let waits = |fields: &str| {
        let pods = file_loaded(fields).0.pods;
        [pods.first_container_restart_period, pods.max_container_restart_period].map(|wait| wait.as_secs())
    };
    assert_eq!(waits(r#""featureGates":{"ReduceDefaultCrashLoopBackOffDecay":false}"#), [10, 300]);
    let gate = r#""featureGates":{"ReduceDefaultCrashLoopBackOffDecay":true}"#;
    assert_eq!(waits(gate), [1, 60]);
    assert_eq!(waits(&format!(r#"{gate},"crashLoopBackOff":{{"maxContainerRestartPeriod":"20s"}}"#)), [1, 20]);
}

#[test]
fn flags_of_cadvisor_have_no_effect() {
    for flag in [
        "--containerd=/run/containerd/containerd.sock",
        "--housekeeping-interval=10s",
        "--storage-driver-secure",
        "--event-storage-age-limit=default=0",
    ] {
        let (config, warnings) = loaded(&[flag]);
        let (name, _) = flag.split_once('=').unwrap_or((flag, ""));
        let reason = "it is a setting of cAdvisor, which Coracle does not contain";
        assert_eq!((config, warnings), (defaults(), vec![format!("{name} has no effect: {reason}")]));
    }
}

#[test]
fn every_flag_of_upstream_is_known() {
    for name in include_str!("../../../../tests/data/upstream-1.36/flags.txt").lines() {
        assert!(crate::platform::config::is_flag(name.trim_start_matches("--")), "{name}");
    }
}

/// Where the types of upstream's list of fields are in the schemas.
const TYPES: &[(&str, &[Field], &str)] = &[
    ("CrashLoopBackOffConfig", KUBELET_CONFIGURATION, "crashLoopBackOff."),
    ("CredentialProvider", CREDENTIAL_PROVIDER_CONFIG, "providers."),
    ("CredentialProviderConfig", CREDENTIAL_PROVIDER_CONFIG, ""),
    ("ExecEnvVar", CREDENTIAL_PROVIDER_CONFIG, "providers.env."),
    ("KubeletAnonymousAuthentication", KUBELET_CONFIGURATION, "authentication.anonymous."),
    ("KubeletAuthentication", KUBELET_CONFIGURATION, "authentication."),
    ("KubeletAuthorization", KUBELET_CONFIGURATION, "authorization."),
    ("KubeletConfiguration", KUBELET_CONFIGURATION, ""),
    ("KubeletWebhookAuthentication", KUBELET_CONFIGURATION, "authentication.webhook."),
    ("KubeletWebhookAuthorization", KUBELET_CONFIGURATION, "authorization.webhook."),
    ("KubeletX509Authentication", KUBELET_CONFIGURATION, "authentication.x509."),
    ("MemoryReservation", KUBELET_CONFIGURATION, "reservedMemory."),
    ("MemorySwapConfiguration", KUBELET_CONFIGURATION, "memorySwap."),
    ("ShutdownGracePeriodByPodPriority", KUBELET_CONFIGURATION, "shutdownGracePeriodByPodPriority."),
    ("UserNamespaces", KUBELET_CONFIGURATION, "userNamespaces."),
];

/// Whether the schema has a field at the dotted path, also below lists.
fn has_field(mut schema: &'static [Field], path: &str) -> bool {
    path.split('.').all(|name| {
        let Some(Field { kind, .. }) = schema.iter().find(|field| field.name == name) else { return false };
        let kind = if let Kind::List(entry) = kind { entry } else { kind };
        schema = if let Kind::Object(fields) | Kind::Options(fields) = kind { fields } else { &[] };
        true
    })
}

#[test]
fn every_field_of_upstream_is_known() {
    let text = include_str!("../../../../tests/data/upstream-1.36/config-fields.txt");
    let newer = include_str!("../../../../tests/data/upstream-1.37/config-fields.txt");
    let is_known = |line: &str| {
        let (of_type, path) = line.split_once('.').unwrap();
        let (_, schema, at) = TYPES.iter().find(|(name, ..)| *name == of_type).unwrap_or_else(|| panic!("{line}"));
        has_field(schema, &format!("{at}{path}"))
    };
    assert!(!is_known("MemoryReservation.numaNodes"), "it finds what is missing");
    let lines = text.lines().chain(newer.lines()).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let unknown: Vec<&str> = lines.filter(|line| !is_known(line)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn memory_qos_is_off_without_its_gate() {
    let memory_qos = |gate: bool| {
        let fields = format!(r#""memoryThrottlingFactor":0.5,"featureGates":{{"MemoryQoS":{gate}}}"#);
        file_loaded(&fields).0.cgroups.memory_qos
    };
    assert_eq!(memory_qos(false), None);
    assert_eq!(memory_qos(true).and_then(|qos| qos.throttling), Some(500));
}

#[test]
fn kubeadms_file_is_accepted() {
    let dir = TempDir::new();
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/config/kubeadm-1.36.yaml"));
    let (config, warnings) = loaded(&["--config", &dir.write("config.yaml", &text.unwrap())]);
    let expected = defaults_with(|config| {
        config.dns.cluster_dns = vec![[10, 96, 0, 10].into()];
        config.dns.cluster_domain = "cluster.local".to_owned();
        config.cgroups.driver = CgroupDriver::Systemd;
        config.dns.resolv_conf = Some("/run/systemd/resolve/resolv.conf".into());
        config.identity = Identity {
            rotate_certificates: true,
            client_ca_file: Some("/etc/kubernetes/pki/ca.crt".into()),
            ..Identity::default()
        };
    });
    assert_eq!(config, expected);
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn polling_node_of_kubeadm_reports_its_status_with_every_fourth_poll() {
    let dir = TempDir::new();
    let kubeadm = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/config/kubeadm-1.36.yaml");
    let sync = dir.write("coracle.yaml", "sync: {mode: poll, every: 15m}");
    let (config, _) = loaded(&["--config", kubeadm, "--coracle-config", &sync]);
    // The file has `nodeStatusReportFrequency: 0s`, as all durations that kubeadm does not set.
    assert_eq!(config.cluster.reporting.status_period, Duration::from_secs(60 * 60));
}

/// The `/configz` page for a command line.
#[track_caller]
fn shown(line: &[&str]) -> Value {
    let Ok(Request::Run(config, _)) = load(&arguments(line)) else { panic!("{line:?}") };
    let page: Value = serde_json::from_slice(&config.configured.page(config.cgroups.driver)).unwrap();
    page["kubeletconfig"].clone()
}

#[test]
fn configz_reads_back_as_the_same_configuration() {
    let dir = TempDir::new();
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/config");
    let files = [
        dir.write("empty.yaml", &document("")),
        dir.write(
            "zeros.yaml",
            &document(r#""syncFrequency":"0s","port":0,"registryBurst":0,"address":"","maxPods":0"#),
        ),
        dir.write("pulls.yaml", &document(r#""maxParallelImagePulls":3,"resolvConf":"","evictionHard":{}"#)),
        dir.write("no-qos.yaml", &document(r#""cgroupsPerQOS":false,"kubeReserved":{"cpu":1},"staticPodPath":"""#)),
        format!("{tests}/configz-1.36.json"),
        format!("{tests}/kubeadm-1.36.yaml"),
    ];
    for file in &files {
        let line = ["--config", file.as_str()];
        let text = serde_json::to_string(&shown(&line)).unwrap();
        let again = dir.write("again.yaml", &text);
        let [read, meant] = [&["--config", &*again], &line].map(|line| {
            let (mut config, _) = loaded(line);
            // The order does not matter.
            config.eviction.thresholds.sort_by_key(|threshold| threshold.signal.as_str());
            config
        });
        assert_eq!(read, meant, "{file}: {text}");
        assert_eq!(shown(&["--config", &again]), shown(&line), "{file}");
    }
}

#[test]
fn configz_equals_upstreams() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/config/configz-1.36.json");
    let mut recorded: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(shown(&["--config", file, "--v=2"]), recorded);
    // Flags are included, durations have Go's format, and secrets are masked.
    let dir = TempDir::new();
    let given = r#""syncFrequency":"90s","staticPodURL":"https://h/a?token=secret","staticPodURLHeader":{"Authorization":["Bearer secret"]}"#;
    let shown = shown(&["--config", &dir.write("a.yaml", &document(given)), "--max-pods=7"]);
    assert_eq!((&shown["syncFrequency"], &shown["maxPods"]), (&json!("1m30s"), &json!(7)));
    assert_eq!(shown["staticPodURL"], "https://h/a?...");
    assert_eq!(shown["staticPodURLHeader"], json!({"Authorization": ["<masked>"]}));
    recorded.as_object_mut().unwrap().retain(|field, _| shown.get(field).is_none());
    let only_set: Vec<&String> = recorded.as_object().unwrap().keys().collect();
    // 1.37 has no default of memoryThrottlingFactor.
    let unset = ["clusterDNS", "clusterDomain", "memoryThrottlingFactor", "readOnlyPort", "tlsCertFile"];
    assert_eq!(only_set, [&unset[..], &["tlsPrivateKeyFile"]].concat());
}

#[test]
fn reserved_system_cpus_override_reserved_amounts() {
    let fields =
        r#""kubeReserved":{"cpu":"500m","memory":"64Mi"},"systemReserved":{"cpu":"2"},"reservedSystemCPUs":"0,2-3""#;
    let (config, warnings) = file_loaded(fields);
    assert_eq!(warnings, Vec::<String>::new());
    let cpu = |list: &crate::types::api::ResourceList| list.get("cpu").map(ToString::to_string);
    assert_eq!((cpu(&config.reserved.system), cpu(&config.reserved.kube)), (Some("3".to_owned()), None));
    assert_eq!((config.managers.reserved_cpus.len(), config.managers.static_cpus), (3, None));
}

#[test]
fn cpu_manager_options_come_from_file_and_flags() {
    let fields = r#""cpuManagerPolicy":"static","cpuManagerReconcilePeriod":"5s",
                    "cpuManagerPolicyOptions":{"full-pcpus-only":"true","prefer-align-cpus-by-uncorecache":"true"}"#;
    let (config, warnings) = file_loaded(fields);
    let options = |config: &Config| config.managers.static_cpus.unwrap();
    assert_eq!(options(&config), CpuOptions { full_cores: true, by_cache: true, ..CpuOptions::default() });
    assert_eq!(warnings, ["without effect here: cpuManagerReconcilePeriod"]);
    let line = [
        "--cpu-manager-policy=static",
        "--cpu-manager-policy-options=strict-cpu-reservation=true",
        "--cpu-manager-policy-options=distribute-cpus-across-numa=1",
        "--reserved-cpus=1",
    ];
    let (config, warnings) = loaded(&line);
    let expected = CpuOptions { strict_reservation: true, across_nodes: true, ..CpuOptions::default() };
    assert_eq!(options(&config), expected);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(config.managers.reserved_cpus.to_string(), "1");
}

#[test]
fn topology_manager_policy_and_scope_are_read() {
    let topology = |fields: &str| file_loaded(fields).0.managers.topology;
    assert_eq!(topology(r#""topologyManagerPolicy":"none","topologyManagerScope":"pod""#), None);
    let fields = r#""topologyManagerPolicy":"single-numa-node","topologyManagerScope":"pod""#;
    let policy = TopologyPolicy::SingleNumaNode;
    assert_eq!(
        topology(fields),
        Some(TopologyManager { policy, pod_scope: true, most_nodes: 8, closest_nodes: false })
    );
    let line = [
        "--topology-manager-policy=restricted",
        "--topology-manager-policy-options=max-allowable-numa-nodes=16,prefer-closest-numa-nodes=true",
    ];
    let (config, warnings) = loaded(&line);
    let policy = TopologyPolicy::Restricted;
    let expected = TopologyManager { policy, pod_scope: false, most_nodes: 16, closest_nodes: true };
    assert_eq!(config.managers.topology, Some(expected));
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn reserved_memory_comes_from_file_and_flags() {
    let fields = r#""memoryManagerPolicy":"Static","reservedMemory":[{"numaNode":1,"limits":{"memory":"1Gi"}}]"#;
    let (config, warnings) = file_loaded(fields);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(config.managers.static_memory);
    assert_eq!(config.managers.reserved_memory, [(1, "memory".to_owned(), 1 << 30)]);
    let line = ["--reserved-memory=0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=1Mi", "--reserved-memory", "2:memory=1Ki"];
    let reserved = loaded(&line).0.managers.reserved_memory;
    let of = |node, kind: &str, size| (node, kind.to_owned(), size);
    let expected =
        [of(0, "hugepages-2Mi", 4 << 20), of(0, "memory", 1 << 30), of(1, "memory", 1 << 20), of(2, "memory", 1 << 10)];
    assert_eq!(reserved, expected);
    let wanted = "--reserved-memory: expected NODE:KIND=QUANTITY,... such as 0:memory=1Gi, found \"memory=1Gi\"";
    assert_eq!(refused(&["--reserved-memory=memory=1Gi"]), wanted);
}
