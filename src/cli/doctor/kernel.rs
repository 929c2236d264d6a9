//! Checks of the kernel: features, control groups, swap, architecture. Pure.

use super::facts::{Feature, KernelFacts};
use super::finding::{Finding, Verdict};

/// A feature of the kernel, the option that enables it and the module that has it.
pub(super) struct KernelFeature {
    pub(super) name: &'static str,
    /// Without `CONFIG_`.
    pub(super) option: &'static str,
    /// Empty: it cannot be a module.
    pub(super) module: &'static str,
    /// What does not work without it.
    verdict: Verdict,
    without: &'static str,
}

macro_rules! features {
    ($($name:literal, $option:literal, $module:literal, $verdict:ident, $without:literal;)*) => {
        &[$(KernelFeature {
            name: $name,
            option: $option,
            module: $module,
            verdict: Verdict::$verdict,
            without: $without,
        },)*]
    };
}

pub(super) const FEATURES: &[KernelFeature] = features! {
    "mount namespaces", "NAMESPACES", "", Failed, "no container starts";
    "pid namespaces", "PID_NS", "", Failed, "no container starts";
    "network namespaces", "NET_NS", "", Failed, "only pods with hostNetwork run";
    "IPC namespaces", "IPC_NS", "", Failed, "no container starts";
    "UTS namespaces", "UTS_NS", "", Failed, "no container starts";
    "user namespaces", "USER_NS", "", Warning, "pods with hostUsers: false are refused";
    "overlay", "OVERLAY_FS", "overlay", Warning, "the runtime needs another snapshotter, such as native";
    "bridge", "BRIDGE", "bridge", Warning, "the CNI plugin bridge does not work";
    "veth", "VETH", "veth", Warning, "pods have no network of their own";
    "seccomp", "SECCOMP_FILTER", "", Warning, "pods with a seccomp profile do not start";
    "pressure", "PSI", "", Warning, "memory pressure is noticed every ten seconds, not at once";
};

/// The two packet filters, of which one is enough.
pub(super) const FILTERS: [(&str, &str, &str); 2] =
    [("nftables", "NF_TABLES", "nf_tables"), ("iptables", "IP_NF_IPTABLES", "ip_tables")];

/// Controllers without which limits of pods have no effect.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

pub(super) fn check(kernel: &KernelFacts, fail_swap_on: bool, built_for: &str) -> Vec<Finding> {
    let mut findings = vec![
        release(&kernel.release),
        architecture(&kernel.machine, built_for),
        cgroups(kernel.controllers.as_deref()),
        swap(kernel.swap_area.as_deref(), fail_swap_on),
    ];
    findings.extend(features(kernel));
    findings
}

fn release(release: &str) -> Finding {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (5, 8) {
        return Finding::warning(
            "kernel",
            format!("Linux {release}; 5.8 is the oldest tested one"),
            "update the kernel",
        );
    }
    Finding::ok("kernel", format!("Linux {release}"))
}

/// `built_for`: Rust's name of the architecture of this binary.
fn architecture(machine: &str, built_for: &str) -> Finding {
    let of_kernel = match machine {
        "armv7l" | "armv6l" | "armv8l" => "arm",
        other => other,
    };
    if of_kernel == built_for || machine.is_empty() {
        return Finding::ok("architecture", machine);
    }
    let advice = format!("install the binary for {machine}, unless the whole system is 32-bit");
    Finding::warning("architecture", format!("the kernel is {machine}, this binary is for {built_for}"), advice)
}

fn cgroups(controllers: Option<&[String]>) -> Finding {
    let Some(controllers) = controllers else {
        let advice = "boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none /sys/fs/cgroup";
        return Finding::warning("cgroups", "no cgroup v2 at /sys/fs/cgroup: limits of pods have no effect", advice);
    };
    let missing = |name: &&&str| !controllers.iter().any(|controller| controller == **name);
    let missing: Vec<&str> = CONTROLLERS.iter().filter(missing).copied().collect();
    if missing.is_empty() {
        return Finding::ok("cgroups", format!("v2: {}", controllers.join(" ")));
    }
    let advice = if missing.contains(&"memory") {
        "Raspberry Pi: append cgroup_enable=memory to the line of /boot/firmware/cmdline.txt and reboot; other kernels: CONFIG_MEMCG"
    } else {
        "use a kernel with CONFIG_CGROUP_PIDS, CONFIG_CPUSETS and CONFIG_CGROUP_SCHED"
    };
    Finding::warning("cgroups", format!("v2 without the controllers {}", missing.join(" ")), advice)
}

fn swap(area: Option<&str>, fail_swap_on: bool) -> Finding {
    match (area, fail_swap_on) {
        (None, _) => Finding::ok("swap", "off"),
        (Some(area), false) => Finding::ok("swap", format!("on ({area}), permitted by failSwapOn: false")),
        (Some(area), true) => {
            let advice = "swapoff -a, or failSwapOn: false in /etc/coracle/config.yaml";
            Finding::failed("swap", format!("on ({area}): the agent does not start"), advice)
        }
    }
}

/// One finding for all that are present, one for each that is missing.
fn features(kernel: &KernelFacts) -> Vec<Finding> {
    let has = |name: &str| kernel.features.get(name).copied().unwrap_or_default();
    let (mut present, mut unknown, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    for feature in FEATURES {
        let is_off = feature.name == "user namespaces" && kernel.most_user_namespaces == Some(0);
        match has(feature.name) {
            Feature::Present if is_off => findings.push(Finding::warning(
                "kernel features",
                format!("{} are off: {}", feature.name, feature.without),
                "sysctl user.max_user_namespaces=65536",
            )),
            Feature::Present => present.push(feature.name),
            Feature::Unknown => unknown.push(feature.name),
            Feature::Missing => findings.push(Finding {
                check: "kernel features",
                verdict: feature.verdict,
                text: format!("no {}: {}", feature.name, feature.without),
                advice: advice(feature.option, feature.module),
            }),
        }
    }
    let filters = FILTERS.map(|(name, ..)| (name, has(name)));
    match filters.iter().find(|(_, feature)| *feature == Feature::Present) {
        Some((name, _)) => present.push(name),
        None if filters.iter().all(|(_, feature)| *feature == Feature::Missing) => {
            let text = "neither nftables nor iptables: host ports, Services and NAT of pods do not work";
            findings.push(Finding::warning("kernel features", text, advice("NF_TABLES", "nf_tables")));
        }
        None => unknown.push("nftables or iptables"),
    }
    if !unknown.is_empty() {
        let advice = "modprobe configs shows the kernel's configuration, if it was built with CONFIG_IKCONFIG_PROC";
        findings.push(Finding {
            advice: advice.to_owned(),
            ..Finding::ok("kernel features", format!("unknown: {}", unknown.join(", ")))
        });
    }
    findings.insert(0, Finding::ok("kernel features", present.join(", ")));
    findings
}

fn advice(option: &str, module: &str) -> String {
    match module {
        "" => format!("use a kernel with CONFIG_{option}=y"),
        _ => format!("modprobe {module}, or use a kernel with CONFIG_{option}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::sorted::SortedMap;

    fn whole() -> KernelFacts {
        let names = FEATURES.iter().map(|feature| feature.name).chain(FILTERS.map(|(name, ..)| name));
        KernelFacts {
            release: "6.1.0-18-arm64".to_owned(),
            machine: "aarch64".to_owned(),
            features: names.map(|name| (name, Feature::Present)).collect::<SortedMap<_, _>>(),
            most_user_namespaces: Some(1000),
            controllers: Some(["cpuset", "cpu", "io", "memory", "pids"].map(str::to_owned).to_vec()),
            swap_area: None,
        }
    }

    /// Expects one finding that is not ok, with these words, or none if they are empty.
    #[track_caller]
    fn check_one(kernel: &KernelFacts, verdict: Verdict, words: &str) {
        let findings = check(kernel, true, "aarch64");
        let bad: Vec<_> = findings.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
        match words {
            "" => assert_eq!(bad, Vec::<&Finding>::new()),
            _ => {
                assert_eq!(bad.len(), 1, "{bad:?}");
                assert_eq!(bad[0].verdict, verdict);
                assert!(bad[0].text.contains(words) && !bad[0].advice.is_empty(), "{bad:?}");
            }
        }
    }

    #[test]
    fn whole_kernel_is_ok_and_each_missing_feature_is_named() {
        check_one(&whole(), Verdict::Ok, "");
        for feature in FEATURES {
            let mut kernel = whole();
            kernel.features.insert(feature.name, Feature::Missing);
            check_one(&kernel, feature.verdict, &format!("no {}: ", feature.name));
        }
    }

    #[test]
    fn one_packet_filter_is_enough() {
        let mut kernel = whole();
        kernel.features.insert("iptables", Feature::Missing);
        check_one(&kernel, Verdict::Ok, "");
        kernel.features.insert("nftables", Feature::Missing);
        check_one(&kernel, Verdict::Warning, "neither nftables nor iptables");
    }

    #[test]
    fn unknown_features_are_no_warning() {
        let kernel = KernelFacts { features: SortedMap::new(), ..whole() };
        check_one(&kernel, Verdict::Ok, "");
        let findings = check(&kernel, true, "aarch64");
        assert!(findings.iter().any(|finding| finding.text.starts_with("unknown: mount namespaces")), "{findings:?}");
    }

    #[test]
    fn old_kernels_other_architectures_swap_and_controllers_are_warned_of() {
        for (release, words) in [("5.7.19", "5.8 is the oldest"), ("4.19", "oldest"), ("5.8.0-rc1", ""), ("6.12", "")] {
            check_one(&KernelFacts { release: release.to_owned(), ..whole() }, Verdict::Warning, words);
        }
        check_one(&KernelFacts { machine: "armv7l".to_owned(), ..whole() }, Verdict::Warning, "this binary is for");
        check_one(&KernelFacts { swap_area: Some("/dev/zram0".to_owned()), ..whole() }, Verdict::Failed, "zram0");
        assert_eq!(swap(Some("/dev/zram0"), false).verdict, Verdict::Ok);
        check_one(&KernelFacts { controllers: None, ..whole() }, Verdict::Warning, "no cgroup v2");
        let without = KernelFacts { controllers: Some(vec!["cpu".to_owned(), "cpuset".to_owned()]), ..whole() };
        check_one(&without, Verdict::Warning, "memory pids");
        let off = KernelFacts { most_user_namespaces: Some(0), ..whole() };
        check_one(&off, Verdict::Warning, "user namespaces are off");
    }
}
