//! What command lines and files come to, and the one line that a mistake gets.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::shutdown::ShutdownPhase;
use super::{
    Amount, Authorization, CgroupDriver, Config, Enforced, Eviction, GivenFields, Identity, KernelParameters,
    Reporting, Request, ServerSettings, ServingIdentity, Signal, SwapBehavior, Threshold, TlsSettings, load,
};
use crate::api::Taint;
use crate::error::ErrorChain;

/// A directory of one test, gone with it.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("coracle-config-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn arguments(line: &[&str]) -> Vec<String> {
    line.iter().map(|&argument| argument.to_owned()).collect()
}

/// The configuration that a command line comes to, on a node called `n`, and its warnings.
#[track_caller]
fn loaded(line: &[&str]) -> (Config, Vec<String>) {
    let line = [&["--hostname-override=n"], line].concat();
    match load(&arguments(&line)).map_err(|error| ErrorChain(&error).to_string()) {
        Ok(Request::Run(config, warnings)) => (Config { given: GivenFields::default(), ..*config }, warnings.0),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(line: &[&str]) -> String {
    ErrorChain(&load(&arguments(line)).unwrap_err()).to_string()
}

/// A configuration file with these fields, written as JSON.
fn document(fields: &str) -> String {
    let comma = if fields.is_empty() { "" } else { "," };
    format!(r#"{{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration"{comma}{fields}}}"#)
}

#[track_caller]
fn file_loaded(fields: &str) -> (Config, Vec<String>) {
    let dir = TempDir::new();
    loaded(&["--config", &dir.write("config.yaml", &document(fields))])
}

fn defaults() -> Config {
    Config { node_name: "n".to_owned(), ..Config::default() }
}

/// Only these thresholds, all of them hard.
fn hard_eviction(thresholds: &[(Signal, &str)]) -> Eviction {
    let threshold = |(signal, text): &(Signal, &str)| {
        let value = Amount::parse(text).unwrap();
        Threshold { signal: *signal, value, grace: Duration::ZERO, min_reclaim: None }
    };
    Eviction { thresholds: thresholds.iter().map(threshold).collect(), ..Eviction::default() }
}

#[test]
fn nothing_said_means_the_defaults() {
    assert_eq!(loaded(&[]), (defaults(), vec![]));
    assert_eq!(file_loaded(""), (defaults(), vec![]));
}

#[test]
fn a_bad_command_line_gets_one_line_that_names_the_flag() {
    for (line, message) in [
        (vec!["--max-podz", "3"], "--max-podz: unknown flag (did you mean --max-pods?)"),
        (vec!["--frobnicate"], "--frobnicate: unknown flag"),
        (vec!["-max-pods=3"], "-max-pods: unknown flag (did you mean --max-pods?)"),
        (vec!["-x"], "-x: unknown flag"),
        (vec!["--max-pods"], "--max-pods: expected a whole number from 0, found nothing"),
        (vec!["--max-pods="], "--max-pods: expected a whole number from 0, found \"\""),
        (vec!["--max-pods=many"], "--max-pods: expected a whole number from 0, found \"many\""),
        (vec!["--max-pods=-1"], "--max-pods: expected a whole number from 0, found -1"),
        (vec!["--healthz-port", "70000"], "--healthz-port: expected a whole number from 0 to 65535, found 70000"),
        (vec!["--fail-swap-on=maybe"], "--fail-swap-on: expected true or false, found \"maybe\""),
        (vec!["--fail-swap-on", "false"], "unexpected argument \"false\" (coracle --help shows what there is)"),
        (vec!["--sync-frequency=60"], "--sync-frequency: expected a duration as 1m30s, found \"60\""),
        (vec!["--sync-frequency=-1s"], "--sync-frequency: expected a duration as 1m30s, found \"-1s\""),
        (vec!["--cpu-cfs-quota-period=2s"], "--cpu-cfs-quota-period: expected a duration from 1ms to 1s, found \"2s\""),
        (vec!["--cgroup-driver=docker"], "--cgroup-driver: expected cgroupfs or systemd, found \"docker\""),
        (vec!["--cluster-dns=10.0.0.10,dns"], "--cluster-dns[1]: expected an IP address, found \"dns\""),
        (
            vec!["--container-runtime-endpoint=tcp://1.2.3.4:5"],
            "--container-runtime-endpoint: expected a socket as unix:///run/containerd/containerd.sock, \
             found \"tcp://1.2.3.4:5\"",
        ),
        (
            vec!["--eviction-hard=memory.free<1Gi"],
            "--eviction-hard: unknown name memory.free (expected memory.available, \
             allocatableMemory.available, nodefs.available, nodefs.inodesFree, imagefs.available, \
             imagefs.inodesFree, containerfs.available, containerfs.inodesFree or pid.available)",
        ),
        (vec!["--feature-gates=A=perhaps"], "--feature-gates[A]: expected true or false, found \"perhaps\""),
        (vec!["--node-ip=here"], "--node-ip[0]: expected an IP address, found \"here\""),
        (
            vec!["--node-ip=1.1.1.1,2.2.2.2"],
            "--node-ip: expected one address, or one of each family, found \"1.1.1.1,2.2.2.2\"",
        ),
        (
            vec!["--hostname-override=my_node"],
            "--hostname-override: expected a DNS name of letters, digits, '-' and '.', found \"my_node\"",
        ),
        (
            vec!["--register-with-taints=a:Never"],
            "--register-with-taints: expected taints such as key=value:NoSchedule or key:NoExecute, found \"a:Never\"",
        ),
        (vec!["--cloud-provider=aws"], "--cloud-provider: expected external, found \"aws\""),
        (vec!["--exit-on-lock-contention"], "--exit-on-lock-contention: not supported"),
        (vec!["--runonce"], "--runonce: not supported"),
        (vec!["--", "x"], "unexpected argument \"--\" (coracle --help shows what there is)"),
        (vec!["serve"], "unexpected argument \"serve\" (coracle --help shows what there is)"),
        (vec!["--root-dir"], "--root-dir: expected a path, found nothing"),
        (vec!["--v=loud"], "--v: expected a whole number from 0, found \"loud\""),
        (
            vec!["--cgroups-per-qos=false", "--enforce-node-allocatable=pods"],
            "enforceNodeAllocatable: expected none where cgroupsPerQOS is false",
        ),
    ] {
        assert_eq!(refused(&line), message, "{line:?}");
    }
}

#[test]
fn a_bad_file_gets_one_line_that_names_file_and_field() {
    for (fields, message) in [
        (r#""maxPod":3"#, "maxPod: unknown field (did you mean maxPods?)"),
        (r#""replicas":3"#, "replicas: unknown field"),
        (r#""authentication":{"webhok":{}}"#, "authentication.webhok: unknown field (did you mean webhook?)"),
        (r#""authentication":true"#, "authentication: expected a mapping, found true"),
        (r#""maxPods":"110""#, "maxPods: expected a whole number from 0, found \"110\""),
        (r#""maxPods":1.5"#, "maxPods: expected a whole number from 0, found 1.5"),
        (r#""failSwapOn":"no""#, "failSwapOn: expected true or false, found \"no\""),
        (r#""clusterDomain":[]"#, "clusterDomain: expected a string, found a list"),
        (r#""clusterDNS":"10.0.0.10""#, "clusterDNS: expected a list, found \"10.0.0.10\""),
        (
            r#""allowedUnsafeSysctls":["net.*","vm.swappiness"]"#,
            "allowedUnsafeSysctls[1]: expected a sysctl of the namespaces of a pod, as net.core.somaxconn or kernel.msg*, \
             found \"vm.swappiness\"",
        ),
        (r#""clusterDNS":["10.0.0.10","x"]"#, "clusterDNS[1]: expected an IP address, found \"x\""),
        (r#""syncFrequency":60"#, "syncFrequency: expected a duration as 1m30s, found 60"),
        (r#""oomScoreAdj":1001"#, "oomScoreAdj: expected a whole number from -1000 to 1000, found 1001"),
        (
            r#""crashLoopBackOff":{"maxContainerRestartPeriod":"10m"}"#,
            "crashLoopBackOff.maxContainerRestartPeriod: expected a duration from 1s to 5m0s, found \"10m\"",
        ),
        (
            r#""imageGCHighThresholdPercent":101"#,
            "imageGCHighThresholdPercent: expected a whole number from 0 to 100, found 101",
        ),
        (r#""memoryThrottlingFactor":1.5"#, "memoryThrottlingFactor: expected a number from 0 to 1, found 1.5"),
        (r#""containerLogMaxSize":"big""#, "containerLogMaxSize: expected a quantity as 10Mi, found \"big\""),
        (
            r#""evictionHard":{"memory.available":"lots"}"#,
            "evictionHard[memory.available]: expected a quantity as 10Mi or a percentage as 10%, found \"lots\"",
        ),
        (
            r#""systemReserved":{"gpu":"1"}"#,
            "systemReserved: unknown name gpu (expected cpu, memory, ephemeral-storage or pid)",
        ),
        (r#""qosReserved":{"memory":"half"}"#, "qosReserved[memory]: expected a percentage as 10%, found \"half\""),
        (
            r#""memorySwap":{"swapBehavior":"Swap"}"#,
            "memorySwap.swapBehavior: expected NoSwap or LimitedSwap, found \"Swap\"",
        ),
        (
            r#""shutdownGracePeriodByPodPriority":[{"priority":"x"}]"#,
            "shutdownGracePeriodByPodPriority[0].priority: expected a whole number from -2147483648 to 2147483647, found \"x\"",
        ),
        (r#""runOnce":true"#, "runOnce: not supported"),
    ] {
        let dir = TempDir::new();
        let path = dir.write("config.yaml", &document(fields));
        assert_eq!(refused(&["--config", &path]), format!("{path}: {message}"), "{fields}");
    }
}

#[test]
fn settings_that_cannot_stand_beside_each_other_are_refused_wherever_they_come_from() {
    for (fields, message) in [
        (
            r#""serializeImagePulls":true,"maxParallelImagePulls":3"#,
            "serializeImagePulls: expected false beside maxParallelImagePulls 3, found true",
        ),
        (
            r#""shutdownGracePeriod":"10s","shutdownGracePeriodCriticalPods":"20s""#,
            "shutdownGracePeriodCriticalPods: expected no more than shutdownGracePeriod",
        ),
        (
            r#""cgroupsPerQOS":false,"enforceNodeAllocatable":["pods"]"#,
            "enforceNodeAllocatable: expected none where cgroupsPerQOS is false",
        ),
        (
            r#""imageGCHighThresholdPercent":70"#,
            "imageGCLowThresholdPercent: expected less than imageGCHighThresholdPercent 70, found 80",
        ),
        (r#""imageMaximumGCAge":"2m""#, "imageMaximumGCAge: expected more than imageMinimumGCAge"),
        (
            r#""preloadedImagesVerificationAllowlist":["r.io/*"]"#,
            "preloadedImagesVerificationAllowlist: expected imagePullCredentialsVerificationPolicy \
             NeverVerifyAllowlistedImages beside it",
        ),
        (
            r#""imagePullCredentialsVerificationPolicy":"NeverVerifyAllowlistedImages",
               "preloadedImagesVerificationAllowlist":["r.io/*","r.io/a:1"]"#,
            "preloadedImagesVerificationAllowlist[1]: expected the name of an image without tag and digest, or its \
             beginning and /*, found \"r.io/a:1\"",
        ),
    ] {
        let dir = TempDir::new();
        assert_eq!(refused(&["--config", &dir.write("config.yaml", &document(fields))]), message);
    }
}

#[test]
fn a_file_must_say_what_it_is() {
    let dir = TempDir::new();
    for (text, message) in [
        ("", "expected one KubeletConfiguration, found 0 documents"),
        ("a: 1\n---\nb: 2\n", "expected one KubeletConfiguration, found 2 documents"),
        ("a: 1\na: 2\n", "line 2, column 1: a is given twice"),
        ("a: [\n", "line 2, column 1: not YAML: while parsing a node, did not find expected node content"),
        ("{}", "apiVersion: required: kubelet.config.k8s.io/v1beta1"),
        ("[]", "expected a mapping, found a list"),
        ("3", "expected a mapping, found 3"),
        (r#"{"apiVersion":"v1","kind":"Pod"}"#, "apiVersion: expected kubelet.config.k8s.io/v1beta1, found \"v1\""),
        (
            r#"{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"Pod"}"#,
            "kind: expected KubeletConfiguration, found \"Pod\"",
        ),
    ] {
        let path = dir.write("config.yaml", text);
        assert_eq!(refused(&["--config", &path]), format!("{path}: {message}"));
        fs::remove_file(&path).unwrap();
        let path = dir.write("d/config.conf", text);
        assert_eq!(refused(&["--config-dir", dir.0.join("d").to_str().unwrap()]), format!("{path}: {message}"));
    }
    assert_eq!(refused(&["--config=/nowhere/c.yaml"]), "/nowhere/c.yaml: No such file or directory (os error 2)");
    assert_eq!(refused(&["--config-dir=/nowhere"]), "/nowhere: No such file or directory (os error 2)");
}

#[test]
fn what_the_kubelet_itself_shows_as_its_configuration_is_taken_whole() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/config/configz-1.36.json");
    let (config, _) = loaded(&["--config", path.to_str().unwrap()]);
    let expected = Config {
        runtime_endpoint: "/lab/containerd.sock".into(),
        image_endpoint: "/lab/containerd.sock".into(),
        cluster_dns: vec![[10, 96, 0, 10].into()],
        cluster_domain: "cluster.local".to_owned(),
        resolv_conf: Some("/lab/resolv.conf".into()),
        cgroups_per_qos: false,
        enforced: Enforced::default(),
        fail_swap_on: false,
        verbosity: 2,
        eviction: hard_eviction(&[
            (Signal::ImageFsAvailable, "1%"),
            (Signal::MemoryAvailable, "50Mi"),
            (Signal::NodeFsAvailable, "1%"),
        ]),
        reporting: Reporting { max_images: Some(50), ..Reporting::default() },
        identity: Identity {
            serving: ServingIdentity::Files {
                certificate: "/var/lib/kubelet/pki/kubelet.crt".into(),
                key: "/var/lib/kubelet/pki/kubelet.key".into(),
            },
            client_ca_file: Some("/lab/pki/ca.crt".into()),
            server: ServerSettings { read_only: Some("0.0.0.0:10255".parse().unwrap()), ..ServerSettings::default() },
            ..Identity::default()
        },
        ..defaults()
    };
    assert_eq!(config, expected);
}

#[test]
fn flags_are_written_with_a_space_or_an_equals_sign_and_underscores_count_as_dashes() {
    let expected = Config { max_pods: 7, fail_swap_on: false, verbosity: 4, ..defaults() };
    for line in [
        vec!["--max-pods", "7", "--fail-swap-on=false", "--v", "4"],
        vec!["--max_pods=7", "--fail-swap-on=F", "-v=4"],
        vec!["-v4", "--fail-swap-on", "--fail-swap-on=0", "--max-pods=9", "--max-pods=7"],
        vec!["--max-pods=7", "-v", "4", "--fail-swap-on=0"],
        vec!["--max-pods=7", "-v", "--fail-swap-on=0"],
        vec!["--max-pods=7", "--fail-swap-on=0", "-v"],
    ] {
        assert_eq!(loaded(&line).0, expected, "{line:?}");
    }
}

#[test]
fn what_kubeadm_and_the_upstream_node_tests_pass_is_taken() {
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
        "A=true,B=false",
        "--image-service-endpoint",
        "unix:///run/images.sock",
        "--runtime-cgroups",
        "/system.slice/containerd.service",
    ]);
    let (key, effect) = ("node-role.kubernetes.io/control-plane".to_owned(), "NoSchedule".into());
    let taint = Taint { key, effect, ..Taint::default() };
    let expected = Config {
        runtime_endpoint: "/run/crio/crio.sock".into(),
        image_endpoint: "/run/images.sock".into(),
        identity: Identity {
            bootstrap_kubeconfig: Some("/etc/kubernetes/bootstrap-kubelet.conf".into()),
            ..Identity::default()
        },
        node_name: "edge-7".to_owned(),
        reporting: Reporting { taints: vec![taint], ..Reporting::default() },
        kubeconfig: Some("/etc/kubernetes/kubelet.conf".into()),
        verbosity: 4,
        ..defaults()
    };
    assert_eq!(config, expected);
    assert_eq!(
        warnings,
        [
            "not supported yet, without effect: --feature-gates, --runtime-cgroups",
            "--pod-infra-container-image has no effect: the runtime chooses the sandbox's image",
        ]
    );
}

#[test]
fn a_field_without_effect_is_named_unless_it_asks_for_nothing() {
    let (_, warnings) = file_loaded(
        r#""authentication":{"anonymous":{"enabled":false},"webhook":{"cacheTTL":"0s","enabled":true},
           "x509":{"clientCAFile":"/etc/kubernetes/pki/ca.crt"}},
           "cpuManagerPolicy":"none","cpuManagerReconcilePeriod":"0s","qosReserved":{"memory":"10%"},
           "evictionSoft":{},"logging":{"flushFrequency":0,"options":{"json":{"infoBufferSize":"0"}},"verbosity":0},
           "memorySwap":{},"hairpinMode":"none","staticPodURL":"","tracing":null"#,
    );
    assert_eq!(warnings, ["not supported yet, without effect: qosReserved"]);
}

#[test]
fn every_setting_in_force_reaches_the_configuration() {
    let (config, warnings) = file_loaded(
        r#""staticPodPath":"/m","podLogsDir":"/l","syncFrequency":"30s","fileCheckFrequency":"5s",
           "registryPullQPS":0,"registryBurst":3,"healthzPort":1,"healthzBindAddress":"::1","oomScoreAdj":-5,
           "clusterDomain":"c","clusterDNS":["1.1.1.1","::2"],"cgroupRoot":"/r","cgroupsPerQOS":false,
           "cgroupDriver":"systemd","singleProcessOOMKill":true,"runtimeRequestTimeout":"3s","maxPods":4,
           "podPidsLimit":100,"resolvConf":"","cpuCFSQuota":false,"cpuCFSQuotaPeriod":"10ms",
           "maxParallelImagePulls":3,"failSwapOn":false,"logging":{"verbosity":5},
           "crashLoopBackOff":{"maxContainerRestartPeriod":"20s"},"seccompDefault":true,"allowedUnsafeSysctls":["net.*"],
           "containerRuntimeEndpoint":"unix:///a","imageServiceEndpoint":"/b""#,
    );
    let expected = Config {
        static_pod_path: Some("/m".into()),
        pod_logs_dir: "/l".into(),
        sync_frequency: Duration::from_secs(30),
        file_check_frequency: Duration::from_secs(5),
        registry_pull_qps: 0,
        registry_burst: 3,
        healthz: Some("[::1]:1".parse().unwrap()),
        oom_score_adj: -5,
        cluster_domain: "c".to_owned(),
        cluster_dns: vec!["1.1.1.1".parse().unwrap(), "::2".parse().unwrap()],
        cgroup_root: "/r".to_owned(),
        cgroups_per_qos: false,
        enforced: Enforced::default(),
        cgroup_driver: CgroupDriver::Systemd,
        single_process_oom_kill: Some(true),
        runtime_request_timeout: Duration::from_secs(3),
        max_pods: 4,
        pod_pids_limit: Some(100),
        resolv_conf: None,
        cpu_cfs_quota: false,
        cpu_cfs_quota_period: Duration::from_millis(10),
        serialize_image_pulls: false,
        max_parallel_image_pulls: Some(3),
        fail_swap_on: false,
        verbosity: 5,
        max_container_restart_period: Duration::from_secs(20),
        seccomp_default: true,
        allowed_unsafe_sysctls: vec!["net.*".to_owned()],
        runtime_endpoint: "/a".into(),
        image_endpoint: "/b".into(),
        eviction: hard_eviction(&[
            (Signal::MemoryAvailable, "100Mi"),
            (Signal::NodeFsAvailable, "10%"),
            (Signal::NodeFsInodesFree, "5%"),
            (Signal::ImageFsAvailable, "15%"),
            (Signal::ImageFsInodesFree, "5%"),
        ]),
        ..defaults()
    };
    assert_eq!((config, warnings), (expected, vec![]));
}

#[test]
fn what_the_node_tells_of_itself_is_set_by_files_and_flags() {
    let (config, warnings) = file_loaded(
        r#""registerNode":false,"providerID":"x://y","nodeStatusReportFrequency":"1h","nodeLeaseDurationSeconds":120,
           "nodeStatusMaxImages":-1,"eventRecordQPS":0,"eventBurst":7,"registerWithTaints":[{"key":"a","value":"b",
           "effect":"NoExecute"}]"#,
    );
    let reporting = Reporting {
        register: false,
        taints: vec![Taint {
            key: "a".to_owned(),
            value: "b".to_owned(),
            effect: "NoExecute".into(),
            time_added: None,
        }],
        provider_id: "x://y".to_owned(),
        status_period: Duration::from_secs(3600),
        lease_duration: Duration::from_secs(120),
        max_images: None,
        event_qps: 0,
        event_burst: 7,
        ..Reporting::default()
    };
    assert_eq!((config, warnings), (Config { reporting, ..defaults() }, vec![]));
    let (config, warnings) = loaded(&["--cloud-provider=external", "--register-schedulable=false"]);
    let reporting = Reporting { external_cloud: true, unschedulable: true, ..Reporting::default() };
    assert_eq!((config, warnings), (Config { reporting, ..defaults() }, vec![]));
}

#[test]
fn how_often_upstream_looks_at_its_node_says_nothing_of_how_often_it_is_told() {
    let (config, warnings) = file_loaded(r#""nodeStatusUpdateFrequency":"4s""#);
    assert_eq!((config, warnings), (defaults(), vec![]));
}

#[test]
fn bounds_of_logs_and_of_a_shutdown_are_in_force() {
    let (config, warnings) = file_loaded(
        r#""containerLogMaxSize":"1Mi","containerLogMaxFiles":3,"containerLogMaxWorkers":2,
           "containerLogMonitorInterval":"5s","shutdownGracePeriod":"30s",
           "shutdownGracePeriodCriticalPods":"10s""#,
    );
    let phase = |priority, seconds| ShutdownPhase { priority, grace: Duration::from_secs(seconds) };
    let expected = Config {
        container_log_max_bytes: 1 << 20,
        container_log_max_files: 3,
        container_log_max_workers: 2,
        container_log_monitor_interval: Duration::from_secs(5),
        shutdown_phases: vec![phase(0, 20), phase(2_000_000_000, 10)],
        ..defaults()
    };
    assert_eq!((config, warnings), (expected, vec![]));
}

#[test]
fn what_is_kept_from_pods_reaches_the_configuration() {
    let (config, warnings) = file_loaded(
        r#""systemReserved":{"cpu":"100m","memory":"64Mi","pid":"100"},"kubeReserved":{"memory":33554432},
           "systemReservedCgroup":"/system.slice","kubeReservedCgroup":"/kube","memorySwap":{"swapBehavior":"LimitedSwap"},
           "enforceNodeAllocatable":["pods","system-reserved","kube-reserved-compressible"]"#,
    );
    let list =
        |given: &[(&'static str, &str)]| given.iter().map(|(name, value)| (*name, value.parse().unwrap())).collect();
    let expected = Config {
        system_reserved: list(&[("cpu", "100m"), ("memory", "64Mi"), ("pid", "100")]),
        kube_reserved: list(&[("memory", "32Mi")]),
        system_reserved_cgroup: "/system.slice".to_owned(),
        kube_reserved_cgroup: "/kube".to_owned(),
        enforced: Enforced { pods: true, system: true, kube_compressible: true, ..Enforced::default() },
        swap: SwapBehavior::LimitedSwap,
        ..defaults()
    };
    assert_eq!((config, warnings), (expected, vec![]));
    let (config, _) = file_loaded(r#""enforceNodeAllocatable":["none"]"#);
    assert_eq!(config.enforced, Enforced::default());
    let (config, _) = loaded(&["--system-reserved=memory=64Mi,pid=10", "--enforce-node-allocatable="]);
    assert_eq!(config.system_reserved, list(&[("memory", "64Mi"), ("pid", "10")]));
    assert_eq!(config.enforced, Enforced::default());
}

#[test]
fn what_is_kept_from_pods_has_one_meaning_or_is_refused() {
    for (line, fault) in [
        (vec!["--enforce-node-allocatable=pods,none"], "enforceNodeAllocatable: expected nothing else beside none"),
        (
            vec!["--enforce-node-allocatable=pods", "--cgroups-per-qos=false"],
            "enforceNodeAllocatable: expected none where cgroupsPerQOS is false",
        ),
        (
            vec!["--enforce-node-allocatable=system-reserved"],
            "systemReservedCgroup: required where enforceNodeAllocatable has system-reserved or \
             system-reserved-compressible",
        ),
        (
            vec!["--enforce-node-allocatable=kube-reserved,kube-reserved-compressible", "--kube-reserved-cgroup=/k"],
            "enforceNodeAllocatable: expected kube-reserved or kube-reserved-compressible, found both",
        ),
        (vec!["--cgroup-root=/a/../b"], "cgroupRoot: expected a path without . and .., found \"/a/../b\""),
        (vec!["--system-reserved-cgroup=.."], "systemReservedCgroup: expected a path without . and .., found \"..\""),
    ] {
        assert_eq!(refused(&line), fault, "{line:?}");
    }
}

#[test]
fn the_file_that_kubeadm_writes_is_taken() {
    let dir = TempDir::new();
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/config/kubeadm-1.36.yaml"));
    let (config, warnings) = loaded(&["--config", &dir.write("config.yaml", &text.unwrap())]);
    let expected = Config {
        cluster_dns: vec![[10, 96, 0, 10].into()],
        cluster_domain: "cluster.local".to_owned(),
        cgroup_driver: CgroupDriver::Systemd,
        resolv_conf: Some("/run/systemd/resolve/resolv.conf".into()),
        identity: Identity {
            rotate_certificates: true,
            client_ca_file: Some("/etc/kubernetes/pki/ca.crt".into()),
            ..Identity::default()
        },
        ..defaults()
    };
    assert_eq!(config, expected);
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn a_zero_means_the_default_where_it_can_mean_nothing_else() {
    let (config, warnings) = file_loaded(
        r#""syncFrequency":"0s","fileCheckFrequency":"0s","runtimeRequestTimeout":"0s","registryBurst":0,"maxPods":0,
           "cgroupDriver":"","healthzBindAddress":"","containerRuntimeEndpoint":"","podPidsLimit":-1"#,
    );
    assert_eq!((config, warnings), (defaults(), vec![]));
}

#[test]
fn healthz_port_zero_is_off_and_an_empty_manifest_path_is_none() {
    let (config, _) = file_loaded(r#""healthzPort":0,"staticPodPath":"""#);
    assert_eq!(config, Config { healthz: None, static_pod_path: None, ..defaults() });
}

#[test]
fn drop_ins_are_merged_in_the_order_of_their_paths_and_flags_win() {
    let dir = TempDir::new();
    let base = dir.write(
        "config.yaml",
        &document(r#""maxPods":1,"clusterDomain":"a","clusterDNS":["1.1.1.1"],"logging":{"verbosity":2}"#),
    );
    dir.write("d/20.conf", &document(r#""maxPods":20,"clusterDNS":["2.2.2.2"]"#));
    dir.write("d/10/x.conf", &document(r#""maxPods":10,"clusterDomain":null,"logging":{"flushFrequency":0}"#));
    dir.write("d/30.yaml", "not read");
    let drop_ins = dir.0.join("d");
    let line = ["--config", &base, "--config-dir", drop_ins.to_str().unwrap()];
    let expected = Config { max_pods: 20, cluster_dns: vec![[2, 2, 2, 2].into()], verbosity: 2, ..defaults() };
    assert_eq!(loaded(&line).0, expected);
    let line = [&line[..], &["--max-pods=3", "--cluster-dns=3.3.3.3", "--cluster-dns=4.4.4.4"]].concat();
    let cluster_dns = vec![[3, 3, 3, 3].into(), [4, 4, 4, 4].into()];
    assert_eq!(loaded(&line).0, Config { max_pods: 3, cluster_dns, ..expected });
}

#[test]
fn relative_paths_belong_to_the_directory_of_their_file() {
    let dir = TempDir::new();
    let base = dir.write("config.yaml", &document(r#""staticPodPath":"manifests","podLogsDir":"logs""#));
    dir.write("d/x.conf", &document(r#""podLogsDir":"logs""#));
    let (config, _) = loaded(&["--config", &base, "--config-dir", dir.0.join("d").to_str().unwrap()]);
    assert_eq!(config.static_pod_path, Some(dir.0.join("manifests")));
    assert_eq!(config.pod_logs_dir, dir.0.join("d/logs"));
}

#[test]
fn places_given_by_flags_are_made_absolute() {
    let here = std::env::current_dir().unwrap();
    let (config, _) = loaded(&["--root-dir=state"]);
    assert_eq!(config.root_dir, here.join("state"));
    assert_eq!(config.cert_dir, here.join("state/pki"));
}

#[test]
fn help_and_version_are_answered_before_any_file_is_read() {
    for (line, help) in [("--help", true), ("-h", true), ("--version", false)] {
        let request = load(&arguments(&["--config=/nowhere", line])).unwrap();
        assert_eq!(matches!(request, Request::Help), help);
        assert_eq!(matches!(request, Request::Version), !help);
    }
}

#[test]
fn the_configuration_that_is_shipped_shows_the_defaults() {
    let shipped = include_str!("../../systemd/config.yaml");
    // A setting is commented out without a space; words are not.
    let uncommented = shipped.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => setting,
        _ => line,
    });
    let uncommented = uncommented.collect::<Vec<_>>().join("\n");
    assert_ne!(uncommented, shipped);
    let dir = TempDir::new();
    for text in [shipped, &uncommented] {
        let config = dir.write("config.yaml", text);
        assert_eq!(loaded(&["--config", &config]), loaded(&[]));
    }
}

#[test]
fn credential_providers_come_from_a_file_or_from_a_directory_of_them() {
    let provider = |name: &str| {
        format!(
            "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n\
             - {{name: {name}, matchImages: [r.io], defaultCacheDuration: 1m, \
             apiVersion: credentialprovider.kubelet.k8s.io/v1}}\n"
        )
    };
    let dir = TempDir::new();
    let file = dir.write("providers/b.yaml", &provider("b"));
    dir.write("providers/a.yml", &provider("a"));
    dir.write("providers/readme", "not one of them");
    let folder = dir.0.join("providers").display().to_string();
    let programs = dir.0.display().to_string();
    let given = |config: &str| {
        let flags = ["--image-credential-provider-config", config, "--image-credential-provider-bin-dir", &programs];
        let (config, warnings) = loaded(&flags);
        let names: Vec<String> = config.credential_providers.into_iter().map(|provider| provider.name).collect();
        (names, warnings)
    };
    let missing = |name: &str| format!("credential provider {name} is missing: {programs}/{name}");
    assert_eq!(given(&file), (vec!["b".to_owned()], vec![missing("b")]));
    assert_eq!(given(&folder).0, ["a", "b"]);
    let again = dir.write("providers/c.json", &provider("a"));
    let flags = ["--image-credential-provider-config", &folder, "--image-credential-provider-bin-dir", &programs];
    assert_eq!(refused(&flags), format!("{again}: providers[0].name: there is another provider a"));
    assert_eq!(
        refused(&["--image-credential-provider-config", &file]),
        "--image-credential-provider-config: expected --image-credential-provider-bin-dir beside it"
    );
}

#[test]
fn labels_of_the_node_and_the_number_of_its_pods_come_from_flags() {
    let (config, warnings) =
        loaded(&["--node-labels=a=b,c=d", "--node-labels", "c=e", "--pods-per-core=3", "--max-pods=7"]);
    assert!(warnings.is_empty(), "{warnings:?}");
    let labels: Vec<(&str, &str)> = config.node_labels.iter().map(|(key, value)| (key, value.as_str())).collect();
    assert_eq!((labels, config.pods_per_core, config.max_pods), (vec![("a", "b"), ("c", "e")], Some(3), 7));
    assert_eq!(loaded(&["--pods-per-core=0"]).0.pods_per_core, None);
    let bad = refused(&["--node-labels=a"]);
    assert_eq!(bad, "--node-labels: expected labels such as key=value,other=value, found \"a\"");
}

#[test]
fn thresholds_of_eviction_are_the_configured_ones_in_place_of_the_defaults() {
    let shown = |fields: &str| {
        let (config, warnings) = file_loaded(fields);
        assert!(warnings.is_empty(), "{warnings:?}");
        let shown = |t: &Threshold| {
            let reclaim = t.min_reclaim.map(|amount| format!(" + {}", amount.of(1000))).unwrap_or_default();
            format!("{} {}{reclaim} {:?}", t.signal.as_str(), t.value.of(1000), t.grace)
        };
        config.eviction.thresholds.iter().map(shown).collect::<Vec<_>>()
    };
    let hard = r#""enforceNodeAllocatable":["none"],"evictionHard":{"memory.available":"1Gi","pid.available":"0%"}"#;
    assert_eq!(shown(hard), ["memory.available 1Gi 0ns"]);
    let merged = format!(r#"{hard},"mergeDefaultEvictionSettings":true"#);
    let expected = [
        "memory.available 1Gi 0ns",
        "nodefs.available 100 0ns",
        "nodefs.inodesFree 50 0ns",
        "imagefs.available 150 0ns",
        "imagefs.inodesFree 50 0ns",
    ];
    assert_eq!(shown(&merged), expected);
    let soft = format!(
        r#"{hard},"evictionSoft":{{"nodefs.available":"20%"}},"evictionSoftGracePeriod":{{"nodefs.available":"1m"}},
           "evictionMinimumReclaim":{{"nodefs.available":"5"}}"#
    );
    assert_eq!(shown(&soft), ["memory.available 1Gi 0ns", "nodefs.available 200 + 5 60s"]);
    let none: [&str; 0] = [];
    assert_eq!(shown(r#""evictionHard":{},"evictionMinimumReclaim":{"pid.available":"0"}"#), none);
    let enforced = r#""evictionHard":{"memory.available":"1Gi"}"#;
    assert_eq!(shown(enforced), ["memory.available 1Gi 0ns", "allocatableMemory.available 1Gi 0ns"]);
}

#[test]
fn the_page_is_off_without_a_port_and_for_this_machine_alone_without_an_address() {
    let page = |line: &[&str]| loaded(line).0.status_page.map(|address| address.to_string());
    assert_eq!(page(&[]), None);
    assert_eq!(page(&["--page-address=0.0.0.0"]), None);
    assert_eq!(page(&["--page-port=0"]), None);
    assert_eq!(page(&["--page-port=4194"]).as_deref(), Some("127.0.0.1:4194"));
    assert_eq!(page(&["--page-port", "80", "--page-address", "fd00::7"]).as_deref(), Some("[fd00::7]:80"));
    for (line, message) in [
        ("--page-port=65536", "--page-port: expected a whole number from 0 to 65535, found 65536"),
        ("--page-address=here", "--page-address: expected an IP address, found \"here\""),
    ] {
        assert_eq!(refused(&[line]), message);
    }
}

#[test]
fn eviction_has_its_other_settings_from_the_file_and_its_own_flag() {
    let (config, _) = file_loaded(
        r#""evictionMaxPodGracePeriod":7,"evictionPressureTransitionPeriod":"30s","kernelMemcgNotification":true,
           "localStorageCapacityIsolation":false"#,
    );
    let Eviction { max_pod_grace, transition, local_storage, static_pods, .. } = config.eviction;
    assert_eq!((max_pod_grace.as_secs(), transition.as_secs()), (7, 30));
    assert!(!local_storage && !static_pods);
    assert!(loaded(&["--evict-static-pods"]).0.eviction.static_pods);
}

#[test]
fn thresholds_that_cannot_stand_are_refused() {
    for (fields, message) in [
        (r#""evictionHard":{"memory.available":"0"}"#, "evictionHard[memory.available]: expected more than 0, found 0"),
        (
            r#""evictionSoft":{"memory.available":"1Gi"},"evictionSoftGracePeriod":{"pid.available":"1m"}"#,
            "evictionSoftGracePeriod: required for the soft threshold of memory.available",
        ),
    ] {
        let dir = TempDir::new();
        assert_eq!(refused(&["--config", &dir.write("config.yaml", &document(fields))]), message);
    }
}

#[test]
fn pods_with_users_of_their_own_have_whole_ranges_of_them() {
    assert_eq!(file_loaded(r#""userNamespaces":{"idsPerPod":131072}"#).0.user_ids_per_pod, 131_072);
    let dir = TempDir::new();
    let file = dir.write("config.yaml", &document(r#""userNamespaces":{"idsPerPod":65537}"#));
    let fault = "userNamespaces.idsPerPod: expected a multiple of 65536, found 65537";
    assert_eq!(refused(&["--hostname-override=n", "--config", &file]), fault);
}

#[test]
fn parameters_of_the_kernel_are_set_unless_it_is_to_be_only_looked_at_or_left() {
    assert_eq!(loaded(&[]).0.kernel_parameters, KernelParameters::Set);
    assert_eq!(loaded(&["--leave-kernel-parameters"]).0.kernel_parameters, KernelParameters::Leave);
    assert_eq!(loaded(&["--protect-kernel-defaults=false"]).0.kernel_parameters, KernelParameters::Set);
    let (config, warnings) = file_loaded(r#""protectKernelDefaults":true"#);
    assert_eq!((config.kernel_parameters, warnings.len()), (KernelParameters::Check, 0));
}

#[test]
fn who_the_node_is_to_a_cluster_is_read() {
    let (config, _) = file_loaded(
        r#""rotateCertificates":true,"serverTLSBootstrap":true,
           "authentication":{"x509":{"clientCAFile":"/etc/kubernetes/pki/ca.crt"}}"#,
    );
    let expected = Identity {
        rotate_certificates: true,
        serving: ServingIdentity::Cluster,
        client_ca_file: Some("/etc/kubernetes/pki/ca.crt".into()),
        ..Identity::default()
    };
    assert_eq!(config.identity, expected);
    let (config, _) = loaded(&["--tls-cert-file=/c", "--tls-private-key-file=/k", "--rotate-server-certificates"]);
    assert_eq!(config.identity.serving, ServingIdentity::Files { certificate: "/c".into(), key: "/k".into() });
}

#[test]
fn who_may_ask_the_nodes_own_server_is_read() {
    let (config, _) = file_loaded(
        r#""address":"::1","port":10350,"enableDebuggingHandlers":false,"readOnlyPort":10255,
           "enableSystemLogHandler":false,"tlsMinVersion":"VersionTLS13","tlsCurvePreferences":[29],
           "tlsCipherSuites":["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"],
           "authentication":{"anonymous":{"enabled":true},"webhook":{"cacheTTL":"7s"}},
           "authorization":{"webhook":{"cacheAuthorizedTTL":"8s","cacheUnauthorizedTTL":"9s"}}"#,
    );
    let seconds = Duration::from_secs;
    let expected = ServerSettings {
        enabled: true,
        address: "[::1]:10350".parse().unwrap(),
        tls: TlsSettings {
            only_1_3: true,
            cipher_suites: vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()],
            curves: vec![29],
        },
        anonymous: true,
        token_ttl: Some(seconds(7)),
        authorization: Authorization::Webhook { allowed_ttl: seconds(8), refused_ttl: seconds(9) },
        read_only: Some("[::1]:10255".parse().unwrap()),
        system_logs: false,
        debugging: false,
    };
    assert_eq!(config.identity.server, expected);
    let line = ["--enable-server=false", "--authentication-token-webhook=false", "--authorization-mode=AlwaysAllow"];
    let expected = ServerSettings {
        enabled: false,
        token_ttl: None,
        authorization: Authorization::AlwaysAllow,
        ..ServerSettings::default()
    };
    assert_eq!(loaded(&line).0.identity.server, expected);
    // As in the kubelet, nothing is the default.
    let (config, _) = file_loaded(r#""port":0,"address":"","authorization":{"webhook":{"cacheAuthorizedTTL":"0s"}}"#);
    assert_eq!(config.identity.server, ServerSettings::default());
}

#[test]
fn half_of_what_belongs_together_is_refused() {
    for (flag, line) in [
        ("--tls-cert-file=/c", "tlsCertFile: expected tlsPrivateKeyFile beside it"),
        ("--tls-private-key-file=/k", "tlsPrivateKeyFile: expected tlsCertFile beside it"),
        (
            "--bootstrap-kubeconfig=/b",
            "--bootstrap-kubeconfig: expected --kubeconfig beside it, which the node's own credentials are written to",
        ),
    ] {
        assert_eq!(refused(&[flag]), line);
    }
}

/// What `/configz` shows of a command line.
#[track_caller]
fn shown(line: &[&str]) -> Value {
    let Ok(Request::Run(config, _)) = load(&arguments(line)) else { panic!("{line:?}") };
    let page: Value = serde_json::from_slice(&config.given.page(config.cgroup_driver)).unwrap();
    page["kubeletconfig"].clone()
}

#[test]
fn what_is_shown_of_a_configuration_is_that_configuration() {
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
            // Which comes first says nothing.
            config.eviction.thresholds.sort_by_key(|threshold| threshold.signal.as_str());
            config
        });
        assert_eq!(read, meant, "{file}: {text}");
        assert_eq!(shown(&["--config", &again]), shown(&line), "{file}");
    }
}

#[test]
fn what_upstream_shows_is_shown_as_it_is() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/config/configz-1.36.json");
    let mut recorded: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(shown(&["--config", file, "--v=2"]), recorded);
    // Flags count, durations are written as Go does, and nothing secret is shown.
    let dir = TempDir::new();
    let given = r#""syncFrequency":"90s","staticPodURLHeader":{"Authorization":["Bearer secret"]}"#;
    let shown = shown(&["--config", &dir.write("a.yaml", &document(given)), "--max-pods=7"]);
    assert_eq!((&shown["syncFrequency"], &shown["maxPods"]), (&json!("1m30s"), &json!(7)));
    assert_eq!(shown["staticPodURLHeader"], json!({"Authorization": ["<masked>"]}));
    recorded.as_object_mut().unwrap().retain(|field, _| shown.get(field).is_none());
    let only_set: Vec<&String> = recorded.as_object().unwrap().keys().collect();
    assert_eq!(only_set, ["clusterDNS", "clusterDomain", "readOnlyPort", "tlsCertFile", "tlsPrivateKeyFile"]);
}

#[test]
fn pods_from_a_url_have_their_headers_and_who_vouches_for_them() {
    assert_eq!(loaded(&[]).0.pod_url, None);
    assert_eq!(loaded(&["--manifest-public-key=/key.pem", "--manifest-url="]).0.pod_url, None);
    let (config, warnings) = loaded(&[
        "--manifest-url=https://fleet.example/board.yaml",
        "--manifest-url-header=X-A:1, X-B: 2:3",
        "--manifest-url-header=X-A:4",
        "--http-check-frequency=1m",
        "--manifest-url-ca-file=/ca.crt",
        "--manifest-public-key=/key.pem",
    ]);
    assert_eq!(warnings, [""; 0]);
    let url = config.pod_url.unwrap();
    let header = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    assert_eq!(url.headers, [("X-A", "1"), ("X-A", "4"), ("X-B", "2:3")].map(header));
    assert_eq!((url.url.as_str(), url.every.as_secs()), ("https://fleet.example/board.yaml", 60));
    assert_eq!((url.authorities, url.public_key), (Some(PathBuf::from("/ca.crt")), Some(PathBuf::from("/key.pem"))));
    let dir = TempDir::new();
    let fields = r#""staticPodURL":"http://h:8080/","staticPodURLHeader":{"X-A":["1","2"]}"#;
    let url = loaded(&["--config", &dir.write("config.yaml", &document(fields))]).0.pod_url.unwrap();
    assert_eq!((url.headers.len(), url.every.as_secs()), (2, 20));
}

#[test]
fn a_url_that_is_none_is_refused() {
    for (line, message) in [
        (
            &["--manifest-url=ftp://h/x"][..],
            "staticPodURL: expected http://HOST/PATH or https://HOST/PATH, without a user, found \"ftp://h/x\"",
        ),
        (
            &["--manifest-url=http://user:secret@h/x"],
            "staticPodURL: expected http://HOST/PATH or https://HOST/PATH, without a user, found \"http://user:secret@h/x\"",
        ),
        (&["--manifest-public-key=/k"], "--manifest-public-key: expected staticPodURL or --manifest-url beside it"),
        (&["--manifest-url-header=x"], "--manifest-url-header: expected NAME:VALUE,..., found \"x\""),
        (
            &["--manifest-url=http://h/", "--manifest-url-header=a b:c"],
            "staticPodURLHeader.a b: expected the name and the value of a header",
        ),
    ] {
        assert_eq!(refused(line), message);
    }
}
