//! Configurations from command lines and files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::shutdown::ShutdownPhase;
use super::{
    Amount, Authorization, CgroupDriver, Config, ConfiguredFields, EnforcedLimits, Eviction, Identity,
    KernelParameters, Reporting, Request, ServerSettings, ServingIdentity, Signal, SwapBehavior, Threshold,
    TlsSettings, load,
};
use crate::types::api::Taint;
use crate::types::error::ErrorChain;

/// A temporary directory, removed on drop.
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

/// The configuration and the warnings for a command line, on a node called `n`.
#[track_caller]
fn loaded(line: &[&str]) -> (Config, Vec<String>) {
    let (mut config, warnings) = loaded_with_origin(line);
    config.configured = ConfiguredFields::default();
    config.process.config_file = None;
    (config, warnings)
}

/// The same, with what it was read from.
#[track_caller]
fn loaded_with_origin(line: &[&str]) -> (Config, Vec<String>) {
    let line = [&["--hostname-override=n"], line].concat();
    match load(&arguments(&line)).map_err(|error| ErrorChain(&error).to_string()) {
        Ok(Request::Run(config, warnings)) => (*config, warnings.0),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(line: &[&str]) -> String {
    ErrorChain(&load(&arguments(line)).unwrap_err()).to_string()
}

/// A configuration file with these fields, as JSON.
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
    let mut config = Config::default();
    "n".clone_into(&mut config.node.name);
    config
}

/// The defaults, but for what `set` changes.
fn defaults_with(set: impl FnOnce(&mut Config)) -> Config {
    let mut config = defaults();
    set(&mut config);
    config
}

/// Only these thresholds, all hard.
fn hard_eviction(thresholds: &[(Signal, &str)]) -> Eviction {
    let threshold = |(signal, text): &(Signal, &str)| {
        let value = Amount::parse(text).unwrap();
        Threshold { signal: *signal, value, grace: Duration::ZERO, min_reclaim: None }
    };
    Eviction { thresholds: thresholds.iter().map(threshold).collect(), ..Eviction::default() }
}

mod access;
mod eviction;
mod reference;
mod refusals;
mod upstream;

#[test]
fn configuration_knows_its_file() {
    let dir = TempDir::new();
    let file = dir.write("config.yaml", &document(r#""maxPods":1"#));
    assert_eq!(loaded_with_origin(&["--config", &file]).0.process.config_file, Some(file.into()));
    assert_eq!(loaded_with_origin(&[]).0.process.config_file, None);
}

#[test]
fn empty_command_line_gives_the_defaults() {
    assert_eq!(loaded(&[]), (defaults(), vec![]));
    assert_eq!(file_loaded(""), (defaults(), vec![]));
}

#[test]
fn flags_are_written_with_a_space_or_an_equals_sign_and_underscores_count_as_dashes() {
    let expected = defaults_with(|config| {
        config.pods.max_pods = 7;
        config.process.fail_swap_on = false;
        config.process.verbosity = 4;
    });
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
fn every_supported_setting_reaches_the_configuration() {
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
    let expected = defaults_with(|config| {
        config.static_pods.path = Some("/m".into());
        config.logs.pods_dir = "/l".into();
        config.pods.sync_frequency = Duration::from_secs(30);
        config.static_pods.check_frequency = Duration::from_secs(5);
        config.images.registry_pull_qps = 0;
        config.images.registry_burst = 3;
        config.health.healthz = Some("[::1]:1".parse().unwrap());
        config.process.oom_score_adj = -5;
        config.dns.cluster_domain = "c".to_owned();
        config.dns.cluster_dns = vec!["1.1.1.1".parse().unwrap(), "::2".parse().unwrap()];
        config.cgroups.root = "/r".to_owned();
        config.cgroups.per_qos = false;
        config.reserved.enforced = EnforcedLimits::default();
        config.cgroups.driver = CgroupDriver::Systemd;
        config.cgroups.single_process_oom_kill = Some(true);
        config.runtime.request_timeout = Duration::from_secs(3);
        config.pods.max_pods = 4;
        config.pods.pids_limit = Some(100);
        config.dns.resolv_conf = None;
        config.cgroups.cpu_cfs_quota = false;
        config.cgroups.cpu_cfs_quota_period = Duration::from_millis(10);
        config.images.serialize_pulls = false;
        config.images.max_parallel_pulls = Some(3);
        config.process.fail_swap_on = false;
        config.process.verbosity = 5;
        config.pods.max_container_restart_period = Duration::from_secs(20);
        config.pods.seccomp_default = true;
        config.pods.allowed_unsafe_sysctls = vec!["net.*".to_owned()];
        config.runtime.endpoint = "/a".into();
        config.runtime.image_endpoint = "/b".into();
        config.eviction = hard_eviction(&[
            (Signal::MemoryAvailable, "100Mi"),
            (Signal::NodeFsAvailable, "10%"),
            (Signal::NodeFsInodesFree, "5%"),
            (Signal::ImageFsAvailable, "15%"),
            (Signal::ImageFsInodesFree, "5%"),
        ]);
    });
    assert_eq!((config, warnings), (expected, vec![]));
}

#[test]
fn reporting_is_set_by_files_and_flags() {
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
    assert_eq!((config, warnings), (defaults_with(|config| config.cluster.reporting = reporting), vec![]));
    let (config, warnings) = loaded(&["--cloud-provider=external", "--register-schedulable=false"]);
    let reporting = Reporting { external_cloud: true, unschedulable: true, ..Reporting::default() };
    assert_eq!((config, warnings), (defaults_with(|config| config.cluster.reporting = reporting), vec![]));
}

#[test]
fn log_limits_and_shutdown_phases_are_read() {
    let (config, warnings) = file_loaded(
        r#""containerLogMaxSize":"1Mi","containerLogMaxFiles":3,"containerLogMaxWorkers":2,
           "containerLogMonitorInterval":"5s","shutdownGracePeriod":"30s",
           "shutdownGracePeriodCriticalPods":"10s""#,
    );
    let phase = |priority, seconds| ShutdownPhase { priority, grace: Duration::from_secs(seconds) };
    let expected = defaults_with(|config| {
        config.logs.max_bytes = 1 << 20;
        config.logs.max_files = 3;
        config.logs.max_workers = 2;
        config.logs.monitor_interval = Duration::from_secs(5);
        config.shutdown_phases = vec![phase(0, 20), phase(2_000_000_000, 10)];
    });
    assert_eq!((config, warnings), (expected, vec![]));
}

#[test]
fn zero_means_the_default() {
    let (config, warnings) = file_loaded(
        r#""syncFrequency":"0s","fileCheckFrequency":"0s","runtimeRequestTimeout":"0s","registryBurst":0,"maxPods":0,
           "cgroupDriver":"","healthzBindAddress":"","containerRuntimeEndpoint":"","podPidsLimit":-1"#,
    );
    assert_eq!((config, warnings), (defaults(), vec![]));
}

#[test]
fn zero_pods_are_those_of_the_flag_only() {
    let dir = TempDir::new();
    let file = dir.write("config.yaml", &document(r#""maxPods":0"#));
    let max_pods = |line: &[&str]| {
        let config = loaded_with_origin(line).0;
        let page: Value = serde_json::from_slice(&config.configured.page(CgroupDriver::Systemd)).unwrap();
        (config.pods.max_pods, page["kubeletconfig"]["maxPods"].clone())
    };
    assert_eq!(max_pods(&["--config", &file]), (110, json!(110)));
    assert_eq!(max_pods(&["--config", &file, "--max-pods=0"]), (0, json!(0)));
}

#[test]
fn period_is_at_least_a_second() {
    let (config, warnings) = file_loaded(
        r#""syncFrequency":"1ns","fileCheckFrequency":"1ms","runtimeRequestTimeout":"1ns","httpCheckFrequency":"1us",
           "nodeStatusReportFrequency":"1ns""#,
    );
    let second = Duration::from_secs(1);
    let periods = [config.pods.sync_frequency, config.static_pods.check_frequency, config.runtime.request_timeout];
    assert_eq!(periods, [second; 3]);
    assert_eq!(config.cluster.reporting.status_period, second);
    assert!(warnings.is_empty());
}

#[test]
fn zero_healthz_port_and_empty_manifest_path_disable() {
    let (config, _) = file_loaded(r#""healthzPort":0,"staticPodPath":"""#);
    assert_eq!(
        config,
        defaults_with(|config| {
            config.health.healthz = None;
            config.static_pods.path = None;
        })
    );
}

#[test]
fn drop_ins_merge_in_path_order_and_flags_win() {
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
    let expected = defaults_with(|config| {
        config.pods.max_pods = 20;
        config.dns.cluster_dns = vec![[2, 2, 2, 2].into()];
        config.process.verbosity = 2;
    });
    assert_eq!(loaded(&line).0, expected);
    let line = [&line[..], &["--max-pods=3", "--cluster-dns=3.3.3.3", "--cluster-dns=4.4.4.4"]].concat();
    let cluster_dns = vec![[3, 3, 3, 3].into(), [4, 4, 4, 4].into()];
    let expected = defaults_with(|config| {
        config.pods.max_pods = 3;
        config.dns.cluster_dns = cluster_dns;
        config.process.verbosity = 2;
    });
    assert_eq!(loaded(&line).0, expected);
}

#[test]
fn map_of_flags_replaces_that_of_files() {
    let dir = TempDir::new();
    let file = dir.write(
        "config.yaml",
        &document(
            r#""evictionHard":{"memory.available":"200Mi","nodefs.available":"5%"},"systemReserved":{"cpu":"1"},
               "evictionMinimumReclaim":{"memory.available":"1Mi"},"featureGates":{"ContainerCheckpoint":false}"#,
        ),
    );
    let line = [
        "--config",
        &file,
        "--eviction-hard=memory.available<50Mi",
        "--system-reserved=memory=1Gi",
        "--system-reserved=pid=10",
        "--eviction-minimum-reclaim=",
        "--feature-gates=ContainerRestartRules=false",
    ];
    let fields: Value =
        serde_json::from_slice(&loaded_with_origin(&line).0.configured.page(CgroupDriver::Systemd)).unwrap();
    let fields = &fields["kubeletconfig"];
    assert_eq!(fields["evictionHard"], json!({"memory.available": "50Mi"}));
    assert_eq!(fields["systemReserved"], json!({"memory": "1Gi", "pid": "10"}));
    assert_eq!(fields["evictionMinimumReclaim"], json!({}));
    assert_eq!(fields["featureGates"], json!({"ContainerCheckpoint": false, "ContainerRestartRules": false}));
    assert!(loaded(&["--config", &file, "--eviction-hard="]).0.eviction.thresholds.is_empty());
}

#[test]
fn relative_paths_start_at_their_file() {
    let dir = TempDir::new();
    let base = dir.write("config.yaml", &document(r#""staticPodPath":"manifests","resolvConf":"resolv.conf""#));
    dir.write("d/x.conf", &document(r#""resolvConf":"resolv.conf""#));
    let (config, _) = loaded(&["--config", &base, "--config-dir", dir.0.join("d").to_str().unwrap()]);
    assert_eq!(config.static_pods.path, Some(dir.0.join("manifests")));
    assert_eq!(config.dns.resolv_conf, Some(dir.0.join("d/resolv.conf")));
}

#[test]
fn paths_of_flags_become_absolute() {
    let here = std::env::current_dir().unwrap();
    let (config, _) = loaded(&["--root-dir=state"]);
    assert_eq!(config.root_dir, here.join("state"));
    assert_eq!(config.identity.cert_dir, here.join("state/pki"));
}

#[test]
fn help_and_version_read_no_files() {
    for (line, help) in [("--help", true), ("-h", true), ("--version", false)] {
        let request = load(&arguments(&["--config=/nowhere", line])).unwrap();
        assert_eq!(matches!(request, Request::Help), help);
        assert_eq!(matches!(request, Request::Version), !help);
    }
}

#[test]
fn shipped_configuration_shows_the_defaults() {
    let shipped = include_str!("../../../systemd/config.yaml");
    // Commented-out settings have no space after the `#`; prose does.
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
fn node_labels_and_max_pods_come_from_flags() {
    let (config, warnings) =
        loaded(&["--node-labels=a=b,c=d", "--node-labels", "c=e", "--pods-per-core=3", "--max-pods=7"]);
    assert!(warnings.is_empty(), "{warnings:?}");
    let labels: Vec<(&str, &str)> = config.node.labels.iter().map(|(key, value)| (key, value.as_str())).collect();
    assert_eq!((labels, config.pods.per_core, config.pods.max_pods), (vec![("a", "b"), ("c", "e")], Some(3), 7));
    assert_eq!(loaded(&["--pods-per-core=0"]).0.pods.per_core, None);
    let bad = refused(&["--node-labels=a b"]);
    assert_eq!(bad, "--node-labels: expected the key and the value of a label, found \"a b\"");
}

#[test]
fn pods_with_users_of_their_own_have_whole_ranges_of_them() {
    assert_eq!(file_loaded(r#""userNamespaces":{"idsPerPod":131072}"#).0.pods.user_ids_per_pod, 131_072);
    let dir = TempDir::new();
    let file = dir.write("config.yaml", &document(r#""userNamespaces":{"idsPerPod":65537}"#));
    let fault = "userNamespaces.idsPerPod: expected a multiple of 65536, found 65537";
    assert_eq!(refused(&["--hostname-override=n", "--config", &file]), fault);
}

#[test]
fn parameters_of_the_kernel_are_set_unless_it_is_to_be_only_looked_at_or_left() {
    assert_eq!(loaded(&[]).0.process.kernel_parameters, KernelParameters::Set);
    assert_eq!(loaded(&["--leave-kernel-parameters"]).0.process.kernel_parameters, KernelParameters::Leave);
    assert_eq!(loaded(&["--protect-kernel-defaults=false"]).0.process.kernel_parameters, KernelParameters::Set);
    let (config, warnings) = file_loaded(r#""protectKernelDefaults":true"#);
    assert_eq!((config.process.kernel_parameters, warnings.len()), (KernelParameters::Check, 0));
}
