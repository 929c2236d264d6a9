//! Errors: one line that names the place and what was expected.

use super::*;

#[test]
fn command_line_errors_name_the_flag() {
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
        (vec!["--fail-swap-on", "false"], "unexpected argument \"false\" (coracle --help lists all flags)"),
        (vec!["--sync-frequency=60"], "--sync-frequency: expected a duration such as 1m30s, found \"60\""),
        (vec!["--sync-frequency=-1s"], "--sync-frequency: expected a duration such as 1m30s, found \"-1s\""),
        (vec!["--cpu-cfs-quota-period=2s"], "--cpu-cfs-quota-period: expected a duration from 1ms to 1s, found \"2s\""),
        (vec!["--cgroup-driver=docker"], "--cgroup-driver: expected cgroupfs or systemd, found \"docker\""),
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
        (
            vec!["--tls-cipher-suites=TLS_FOO"],
            "--tls-cipher-suites[0]: expected a cipher suite of Go such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, \
             found \"TLS_FOO\"",
        ),
        (vec!["--exit-on-lock-contention"], "--exit-on-lock-contention: not supported"),
        (vec!["--runonce"], "--runonce: not supported"),
        (vec!["--", "x"], "unexpected argument \"--\" (coracle --help lists all flags)"),
        (vec!["serve"], "unexpected argument \"serve\" (coracle --help lists all flags)"),
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
fn file_errors_name_file_and_field() {
    for (fields, message) in [
        (r#""authentication":true"#, "authentication: expected a mapping, found true"),
        (r#""maxPods":"110""#, "maxPods: expected a whole number from 0, found \"110\""),
        (r#""maxPods":1.5"#, "maxPods: expected a whole number from 0, found 1.5"),
        (r#""failSwapOn":"no""#, "failSwapOn: expected true or false, found \"no\""),
        (r#""clusterDomain":[]"#, "clusterDomain: expected a string, found a list"),
        (r#""clusterDNS":"10.0.0.10""#, "clusterDNS: expected a list, found \"10.0.0.10\""),
        (
            r#""allowedUnsafeSysctls":["net.*","vm.swappiness"]"#,
            "allowedUnsafeSysctls[1]: expected a namespaced sysctl such as net.core.somaxconn or kernel.msg*, \
             found \"vm.swappiness\"",
        ),
        (r#""syncFrequency":60"#, "syncFrequency: expected a duration such as 1m30s, found 60"),
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
        (r#""containerLogMaxSize":"big""#, "containerLogMaxSize: expected a quantity such as 10Mi, found \"big\""),
        (
            r#""evictionHard":{"memory.available":"lots"}"#,
            "evictionHard[memory.available]: expected a quantity such as 10Mi or a percentage such as 10%, found \"lots\"",
        ),
        (
            r#""systemReserved":{"gpu":"1"}"#,
            "systemReserved: unknown name gpu (expected cpu, memory, ephemeral-storage or pid)",
        ),
        (
            r#""qosReserved":{"memory":"half"}"#,
            "qosReserved[memory]: expected a percentage such as 10%, found \"half\"",
        ),
        (
            r#""memorySwap":{"swapBehavior":"Swap"}"#,
            "memorySwap.swapBehavior: expected NoSwap or LimitedSwap, found \"Swap\"",
        ),
        (
            r#""shutdownGracePeriodByPodPriority":[{"priority":"x"}]"#,
            "shutdownGracePeriodByPodPriority[0].priority: expected a whole number from -2147483648 to 2147483647, found \"x\"",
        ),
        (r#""runOnce":true"#, "runOnce: not supported"),
        (
            r#""tlsCipherSuites":["TLS_AES_128_GCM_SHA256","TLS_ECDHE_ECDSA_WITH_3DES_EDE_CBC_SHA"]"#,
            "tlsCipherSuites[1]: expected a cipher suite of Go such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, \
             found \"TLS_ECDHE_ECDSA_WITH_3DES_EDE_CBC_SHA\"",
        ),
        (r#""reservedSystemCPUs":"0-""#, "reservedSystemCPUs: expected CPU numbers such as 0-1,4, found \"0-\""),
        (
            r#""cpuManagerPolicyOptions":{"full-pcpu-only":"true"}"#,
            "cpuManagerPolicyOptions.full-pcpu-only: unknown field (did you mean full-pcpus-only?)",
        ),
        (
            r#""cpuManagerPolicyOptions":{"strict-cpu-reservation":"yes"}"#,
            "cpuManagerPolicyOptions.strict-cpu-reservation: expected \"true\" or \"false\", found \"yes\"",
        ),
        (
            r#""cpuManagerPolicyOptions":{"align-by-socket":"true"}"#,
            "cpuManagerPolicyOptions.align-by-socket: not supported",
        ),
    ] {
        let dir = TempDir::new();
        let path = dir.write("config.yaml", &document(fields));
        assert_eq!(refused(&["--config", &path]), format!("{path}: {message}"), "{fields}");
    }
}

#[test]
fn pod_logs_directory_is_absolute_and_normalized() {
    for path in ["logs", "./logs", "/logs/", "/var//logs", "/var/./logs", "/var/../logs", "/l\u{f6}gs"] {
        let dir = TempDir::new();
        let file = dir.write("config.yaml", &document(&format!(r#""podLogsDir":"{path}""#)));
        let line = refused(&["--config", &file]);
        assert!(
            line.contains("podLogsDir: expected an absolute, normalized path in ASCII such as /var/log/pods"),
            "{line}"
        );
    }
    for path in ["/", "/logs", "/var/log.d/..pods"] {
        let pods_dir = file_loaded(&format!(r#""podLogsDir":"{path}""#)).0.logs.pods_dir;
        assert_eq!(pods_dir.to_str(), Some(path));
    }
}

#[test]
fn conflicting_settings_are_refused() {
    for (fields, message) in [
        (r#""memoryThrottlingFactor":0"#, "memoryThrottlingFactor: must be above 0"),
        (
            r#""serializeImagePulls":true,"maxParallelImagePulls":3"#,
            "serializeImagePulls: expected false with maxParallelImagePulls 3, found true",
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
        (
            r#""cpuManagerPolicyOptions":{"full-pcpus-only":"true"}"#,
            "cpuManagerPolicyOptions: requires cpuManagerPolicy static",
        ),
        (
            r#""reservedSystemCPUs":"0-1","kubeReservedCgroup":"/kube""#,
            "reservedSystemCPUs: must not be set with kubeReservedCgroup",
        ),
        (
            r#""topologyManagerPolicy":"restricted","topologyManagerPolicyOptions":{"max-allowable-numa-nodes":"4"}"#,
            "topologyManagerPolicyOptions.max-allowable-numa-nodes: expected a number from 8, found \"4\"",
        ),
        (
            r#""reservedMemory":[{"numaNode":0,"limits":{"cpu":"1"}}]"#,
            "reservedMemory: expected memory or hugepages-SIZE, found \"cpu\"",
        ),
        (
            r#""reservedMemory":[{"limits":{"memory":"1Gi"}},{"numaNode":0,"limits":{"memory":"1Gi"}}]"#,
            "reservedMemory: memory on node 0 is given twice",
        ),
        (r#""imageMaximumGCAge":"2m""#, "imageMaximumGCAge: expected more than imageMinimumGCAge"),
        (
            r#""preloadedImagesVerificationAllowlist":["r.io/*"]"#,
            "preloadedImagesVerificationAllowlist: requires imagePullCredentialsVerificationPolicy \
             NeverVerifyAllowlistedImages",
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
fn files_need_kind_and_version() {
    let dir = TempDir::new();
    for (text, message) in [
        ("", "expected one KubeletConfiguration, found 0 documents"),
        ("a: 1\na: 2\n", "apiVersion: required: kubelet.config.k8s.io/v1beta1"),
        (
            "a: [\n",
            "line 2, column 1: not YAML: while parsing a flow collection of line 1, did not find expected node content",
        ),
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
fn invalid_thresholds_are_refused() {
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
fn incomplete_settings_are_refused() {
    for (flag, line) in [
        ("--tls-cert-file=/c", "tlsCertFile: requires tlsPrivateKeyFile"),
        ("--tls-private-key-file=/k", "tlsPrivateKeyFile: requires tlsCertFile"),
        (
            "--bootstrap-kubeconfig=/b",
            "--bootstrap-kubeconfig: requires --kubeconfig, which the node's own credentials are written to",
        ),
    ] {
        assert_eq!(refused(&[flag]), line);
    }
}
