//! Compares the service files in `systemd/` with each other.

use std::collections::BTreeSet;

const CORACLE: &str = include_str!("../systemd/coracle.service");
const KUBELET: &str = include_str!("../systemd/kubelet.service");
const KUBEADM: &str = include_str!("../systemd/kubelet.service.d/10-kubeadm.conf");

fn settings(unit: &str) -> Vec<&str> {
    unit.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn kubelet_service_differs_only_in_name_and_command_line() {
    let of_its_own = |line: &&str| {
        ["Description=", "Conflicts=", "EnvironmentFile=", "ExecStart=", "ExecStartPre="]
            .iter()
            .any(|name| line.starts_with(name))
    };
    let shared = |unit| settings(unit).into_iter().filter(|line| !of_its_own(line)).collect::<Vec<_>>();
    assert_eq!(shared(CORACLE), shared(KUBELET));
    assert!(KUBELET.contains("\nConflicts=coracle.service\n") && CORACLE.contains("\nConflicts=kubelet.service\n"));
}

#[test]
fn every_service_setting_has_its_reason_above_it() {
    let mut explained = false;
    let mut bare = Vec::new();
    for line in CORACLE.lines() {
        match line.chars().next() {
            Some('#') => explained = true,
            None => explained = false,
            Some('[') => {}
            Some(_) if explained || line.starts_with("Description=") || line.starts_with("Documentation=") => {}
            Some(_) => bare.push(line),
        }
    }
    assert_eq!(bare, ["WantedBy=multi-user.target"]);
}

/// Files that others read get their modes from the program.
#[test]
fn files_are_for_root_and_unused_capabilities_are_dropped() {
    let settings = settings(CORACLE);
    assert!(settings.contains(&"UMask=0077"));
    let dropped: BTreeSet<&str> = settings
        .iter()
        .filter_map(|line| line.strip_prefix("CapabilityBoundingSet=~"))
        .flat_map(str::split_whitespace)
        .collect();
    for needed in
        ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE"]
    {
        assert!(!dropped.contains(&*format!("CAP_{needed}")), "{needed}");
    }
    for unused in ["BPF", "CHECKPOINT_RESTORE", "PERFMON", "SYS_MODULE", "SYS_NICE", "SYS_RAWIO", "SYS_TIME"] {
        assert!(dropped.contains(&*format!("CAP_{unused}")), "{unused}");
    }
}

/// The command line uses only variables that kubeadm's files or this one set.
/// As the units have it. OpenRC's `supervise-daemon` takes it from the variable.
#[test]
fn init_scripts_set_umask_of_services() {
    for (script, line) in [
        (include_str!("../init/busybox/coracle-respawn"), "umask 077"),
        (include_str!("../init/openrc/coracle"), "umask=077"),
    ] {
        assert!(script.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn drop_in_passes_on_kubeadms_four_variables() {
    let command = settings(KUBEADM).into_iter().rfind(|line| line.starts_with("ExecStart=")).unwrap_or_default();
    let passed: BTreeSet<&str> = command.split_whitespace().filter_map(|word| word.strip_prefix('$')).collect();
    let wanted = ["KUBELET_CONFIG_ARGS", "KUBELET_EXTRA_ARGS", "KUBELET_KUBEADM_ARGS", "KUBELET_KUBECONFIG_ARGS"];
    assert!(passed.iter().eq(&wanted), "{command}");
}

/// `cross/package` reads the version from this place.
#[test]
fn packages_find_the_kubernetes_version() {
    let package = include_str!("../cross/package");
    let read = package.lines().find(|line| line.contains("kubernetes=$(sed")).unwrap_or_default();
    assert!(
        read.contains("'s/^pub const KUBERNETES_VERSION") && read.contains("\"$TOP/src/types/api/mod.rs\""),
        "{read}"
    );
    let told =
        include_str!("../src/types/api/mod.rs").lines().filter(|line| line.starts_with("pub const KUBERNETES_VERSION"));
    assert_eq!(told.count(), 1);
}

/// The test of kubeadm reads the same unit and drop-in.
#[test]
fn kubelet_package_has_the_unit_and_the_program_that_it_starts() {
    let package = include_str!("../cross/package");
    for line in [
        "put 644 \"$TOP/systemd/kubelet.service\" usr/lib/systemd/system/kubelet.service",
        "put 644 \"$TOP/systemd/kubelet.service.d/10-kubeadm.conf\" usr/share/doc/coracle-kubelet/examples/10-kubeadm.conf",
        "ln -s coracle \"$ROOT/usr/bin/kubelet\"",
    ] {
        assert!(package.lines().any(|read| read.trim() == line), "{line}");
    }
    for unit in [KUBELET, KUBEADM] {
        let commands = settings(unit).into_iter().filter_map(|line| line.strip_prefix("ExecStart="));
        let programs: Vec<&str> = commands.filter_map(|command| command.split_whitespace().next()).collect();
        assert_eq!(programs, ["/usr/bin/kubelet"]);
    }
    assert!(settings(KUBEADM).contains(&"ExecStart="), "the drop-in replaces the command of the unit");
}
