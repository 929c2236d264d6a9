//! Checks of the machine around the kernel: clock, disks, watchdog, ports, certificates. Pure.

use super::facts::{CertificateFacts, ClockFacts, DiskFacts, PortFacts, WatchdogFacts};
use super::finding::Finding;
use crate::cli::status::si_bytes;
use crate::platform::config::KeptIdentity;
use crate::types::api::Time;

/// Seconds that a clock may be behind the latest time seen, as by a correction.
const MAX_SECONDS_BEHIND: i64 = 120;
/// Seconds before its end from which a certificate is warned of.
const CERTIFICATE_WARNING_SECONDS: i64 = 7 * 86_400;
/// Free space below which images and logs soon do not fit.
const MIN_FREE_BYTES: u64 = 200 << 20;

pub(super) fn clock(clock: &ClockFacts) -> Finding {
    let ClockFacts { now, built, latest, has_rtc, time_service, is_synchronised } = clock;
    let shown = rfc3339(*now);
    let advice = "set it with date -s or chronyc makestep, and run a time service; certificates are invalid until then";
    // 2020: older than every release.
    if *now < built.unwrap_or(1_577_836_800) {
        return Finding::warning("clock", format!("it is {shown}, before this program was built"), advice);
    }
    if let Some(latest) = latest.filter(|latest| now.saturating_add(MAX_SECONDS_BEHIND) < *latest) {
        return Finding::warning("clock", format!("it is {shown}, but this node has seen {}", rfc3339(latest)), advice);
    }
    let rtc = if *has_rtc { "" } else { "; no clock with a battery: it is wrong after a power loss until set" };
    let (state, advice) = match (time_service, is_synchronised) {
        (Some(service), Some(false)) => (
            format!("{service} has not synchronised it yet"),
            "check that its servers are reachable: timedatectl timesync-status or chronyc sources",
        ),
        (Some(service), Some(true)) => (format!("synchronised by {service}"), ""),
        (Some(service), None) => (format!("{service} runs"), ""),
        // Such as a hypervisor's agent.
        (None, Some(true)) => ("synchronised".to_owned(), ""),
        (None, Some(false) | None) => {
            ("no time service runs".to_owned(), "install one: apt install systemd-timesyncd, or chrony")
        }
    };
    let text = format!("{shown}, {state}{rtc}");
    if advice.is_empty() { Finding::ok("clock", text) } else { Finding::warning("clock", text, advice) }
}

pub(super) fn disk(disk: &DiskFacts) -> Finding {
    let DiskFacts { purpose, path, capacity, available, inodes, inodes_free, is_read_only } = disk;
    let text = format!("{purpose} {path}: {} of {} free", si_bytes(*available), si_bytes(*capacity));
    if *is_read_only {
        let advice = format!("mount it writable: mount -o remount,rw {path}; or move it with --root-dir");
        return Finding::failed("disk", format!("{purpose} {path} is read-only"), advice);
    }
    // Upstream evicts at 10 % of the space and 5 % of the inodes.
    let is_full = *available < MIN_FREE_BYTES || *available < capacity / 10;
    if is_full {
        let advice = "remove images (coracle images remove), logs or files; pods are evicted below nodefs.available";
        return Finding::warning("disk", text, advice);
    }
    if *inodes > 0 && *inodes_free < inodes / 20 {
        return Finding::warning(
            "disk",
            format!("{text}, {inodes_free} of {inodes} inodes free"),
            "remove small files",
        );
    }
    Finding::ok("disk", text)
}

/// `None`: the state directory does not know its board, or the board has no serial number.
pub(super) fn identity(kept: &KeptIdentity, serial: Option<&str>) -> Option<Finding> {
    let serial = serial.filter(|_| !kept.serial.is_empty())?;
    if kept.is_of_other_board(serial) {
        let text = format!("the state directory is of the board {}, this board is {serial}", kept.serial);
        let advice = "of a copied image: remove the other board's state (docs/install.md#one-image-for-many-boards); of a \
                      card that was moved here: coracle replace NODE";
        return Some(Finding::warning("identity", text, advice));
    }
    Some(Finding::ok("identity", format!("the state directory is of this board, {serial}")))
}

/// A policy, and why it cannot be honoured.
pub(super) fn signature_policy((path, problem): (String, Option<String>)) -> Finding {
    let advice = "correct the policy or its keys: until then no image is taken, so no container starts";
    match problem {
        None => Finding::ok("signature policy", path),
        Some(problem) => Finding::failed("signature policy", problem, advice),
    }
}

pub(super) fn watchdog(watchdog: &WatchdogFacts) -> Finding {
    let devices: Vec<String> = watchdog
        .devices
        .iter()
        .map(|(name, seconds)| seconds.map_or(name.clone(), |seconds| format!("{name} ({seconds} s)")))
        .collect();
    match (&watchdog.configured, watchdog.exists) {
        (Some(path), true) => Finding::ok("watchdog", format!("{path} is used; found: {}", devices.join(", "))),
        (Some(path), false) => Finding::warning(
            "watchdog",
            format!("{path} does not exist"),
            "load its driver, or remove --watchdog-device (CORACLE_WATCHDOG= in /etc/default/coracle)",
        ),
        (None, _) if devices.is_empty() => Finding::ok("watchdog", "no device; a hanging kernel is not reset"),
        (None, _) => {
            let text = format!("{} not used by the agent; systemd may use it (RuntimeWatchdogSec)", devices.join(", "));
            Finding::ok("watchdog", text)
        }
    }
}

pub(super) fn port(facts: &PortFacts) -> Finding {
    let PortFacts { port, purpose, holder, is_own } = facts;
    let Some((pid, name)) = holder else { return Finding::ok("ports", format!("{port} ({purpose}) is free")) };
    if *is_own {
        return Finding::ok("ports", format!("{port} ({purpose}) is served by this agent"));
    }
    let who = if *pid == 0 { "another program".to_owned() } else { format!("{name} (pid {pid})") };
    let text = format!("{port} ({purpose}) is in use by {who}");
    if ["kubelet", "k3s", "k3s-server", "k3s-agent", "k0s", "microk8s"].contains(&name.as_str()) {
        let advice = "two kubelets must not share a runtime: systemctl disable --now kubelet (docs/install.md)";
        return Finding::failed("ports", text, advice);
    }
    Finding::warning("ports", text, format!("stop {name}, or set another port in /etc/coracle/config.yaml"))
}

/// `None`: there is no certificate, and none is needed.
pub(super) fn certificate(certificate: &CertificateFacts, now: i64) -> Option<Finding> {
    let CertificateFacts { name, path, not_after } = certificate;
    Some(match not_after.as_ref()? {
        Err(error) => Finding::failed("certificates", format!("{name}: {path}: {error}"), REJOIN),
        Ok(end) if *end <= now => {
            Finding::failed("certificates", format!("{name}: {path} expired {}", rfc3339(*end)), REJOIN)
        }
        Ok(end) if end.saturating_sub(now) < CERTIFICATE_WARNING_SECONDS => Finding::warning(
            "certificates",
            format!("{name}: {path} expires {}", rfc3339(*end)),
            "the agent renews its own while it reaches the cluster; others renew by hand",
        ),
        Ok(end) => Finding::ok("certificates", format!("{name}: valid until {}", rfc3339(*end))),
    })
}

const REJOIN: &str =
    "check the clock; then coracle leave, and coracle join with a new token (docs/joining-a-cluster.md)";

fn rfc3339(seconds: i64) -> String {
    Time::from_unix_nanos(seconds.saturating_mul(1_000_000_000)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Verdict;

    const NOW: i64 = 1_800_000_000;

    #[track_caller]
    fn expect(finding: &Finding, verdict: Verdict, words: &str) {
        assert!(finding.verdict == verdict && finding.text.contains(words), "{finding:?}");
        assert!(verdict == Verdict::Ok || !finding.advice.is_empty(), "{finding:?}");
    }

    #[test]
    fn clock_of_1970_and_a_step_back_are_warned_of() {
        let facts = |now, built, latest| {
            let time_service = Some("chronyd".to_owned());
            ClockFacts { now, built, latest, has_rtc: true, time_service, is_synchronised: Some(true) }
        };
        expect(&clock(&facts(60, None, None)), Verdict::Warning, "1970-01-01T00:01:00Z");
        expect(&clock(&facts(NOW, Some(NOW + 1), None)), Verdict::Warning, "before this program was built");
        expect(&clock(&facts(NOW, None, Some(NOW + 3600))), Verdict::Warning, "has seen 2027-01-15T09:00:00Z");
        expect(&clock(&facts(NOW, None, Some(NOW + 60))), Verdict::Ok, "2027-01-15T08:00:00Z");
        let without = ClockFacts { has_rtc: false, ..facts(NOW, None, None) };
        expect(&clock(&without), Verdict::Ok, "no clock with a battery");
    }

    #[test]
    fn signature_policy_that_cannot_be_honoured_fails() {
        let check = |problem: Option<&str>| signature_policy(("/p.json".to_owned(), problem.map(str::to_owned)));
        expect(&check(None), Verdict::Ok, "/p.json");
        expect(&check(Some("/p.json: no default")), Verdict::Failed, "/p.json: no default");
    }

    #[test]
    fn clock_that_no_service_sets_is_warned_of() {
        for (service, is_synchronised, verdict, words) in [
            (Some("chronyd"), Some(true), Verdict::Ok, "2027-01-15T08:00:00Z, synchronised by chronyd"),
            (Some("chronyd"), Some(false), Verdict::Warning, "chronyd has not synchronised it yet"),
            (Some("ntpd"), None, Verdict::Ok, "ntpd runs"),
            (None, Some(true), Verdict::Ok, ", synchronised"),
            (None, Some(false), Verdict::Warning, "no time service runs"),
            (None, None, Verdict::Warning, "no time service runs"),
        ] {
            let time_service = service.map(str::to_owned);
            let facts = ClockFacts { now: NOW, has_rtc: true, time_service, is_synchronised, ..ClockFacts::default() };
            expect(&clock(&facts), verdict, words);
        }
    }

    #[test]
    fn state_of_another_board_is_warned_of() {
        let of = |serial: &str| KeptIdentity { serial: serial.to_owned(), ..KeptIdentity::default() };
        expect(&identity(&of("S1"), Some("S2")).unwrap(), Verdict::Warning, "of the board S1, this board is S2");
        expect(&identity(&of("S1"), Some("S1")).unwrap(), Verdict::Ok, "of this board, S1");
        assert!(identity(&of(""), Some("S1")).is_none() && identity(&of("S1"), None).is_none());
    }

    #[test]
    fn full_and_read_only_disks_are_found() {
        let facts = DiskFacts {
            purpose: "state",
            path: "/var/lib/kubelet".to_owned(),
            capacity: 8 << 30,
            available: 4 << 30,
            inodes: 1000,
            inodes_free: 900,
            is_read_only: false,
        };
        expect(&disk(&facts), Verdict::Ok, "4.2 GB of 8.5 GB free");
        expect(&disk(&DiskFacts { available: 700 << 20, ..facts.clone() }), Verdict::Warning, "734 MB of 8.5 GB");
        let small = DiskFacts { capacity: 1 << 30, available: 190 << 20, ..facts.clone() };
        expect(&disk(&small), Verdict::Warning, "199 MB of 1.0 GB");
        expect(&disk(&DiskFacts { inodes_free: 49, ..facts.clone() }), Verdict::Warning, "49 of 1000 inodes");
        expect(&disk(&DiskFacts { inodes: 0, inodes_free: 0, ..facts.clone() }), Verdict::Ok, "free");
        expect(&disk(&DiskFacts { is_read_only: true, ..facts }), Verdict::Failed, "is read-only");
    }

    #[test]
    fn ports_of_other_programs_are_named() {
        let facts = |holder: Option<(u32, &str)>, is_own| PortFacts {
            port: 10250,
            purpose: "kubelet API",
            holder: holder.map(|(pid, name)| (pid, name.to_owned())),
            is_own,
        };
        expect(&port(&facts(None, false)), Verdict::Ok, "is free");
        expect(&port(&facts(Some((7, "coracle")), true)), Verdict::Ok, "served by this agent");
        expect(&port(&facts(Some((7, "kubelet")), false)), Verdict::Failed, "in use by kubelet (pid 7)");
        expect(&port(&facts(Some((7, "nginx")), false)), Verdict::Warning, "in use by nginx (pid 7)");
        expect(&port(&facts(Some((0, "")), false)), Verdict::Warning, "another program");
    }

    #[test]
    fn certificates_are_judged_by_their_end() {
        let facts = |not_after| CertificateFacts { name: "client", path: "/c.pem".to_owned(), not_after };
        assert_eq!(certificate(&facts(None), NOW), None);
        let found = |end| certificate(&facts(Some(end)), NOW).unwrap();
        expect(&found(Ok(NOW + 30 * 86_400)), Verdict::Ok, "valid until 2027-02-14");
        expect(&found(Ok(NOW + 86_400)), Verdict::Warning, "expires 2027-01-16");
        expect(&found(Ok(NOW)), Verdict::Failed, "expired 2027-01-15");
        expect(&found(Err("no certificate".to_owned())), Verdict::Failed, "/c.pem: no certificate");
    }

    #[test]
    fn missing_watchdog_device_is_warned_of_only_if_configured() {
        let devices = vec![("watchdog0".to_owned(), Some(15))];
        let facts = |configured: Option<&str>, exists, devices: &[_]| WatchdogFacts {
            configured: configured.map(str::to_owned),
            exists,
            devices: devices.to_vec(),
        };
        expect(&watchdog(&facts(Some("/dev/watchdog"), true, &devices)), Verdict::Ok, "watchdog0 (15 s)");
        expect(&watchdog(&facts(Some("/dev/watchdog"), false, &[])), Verdict::Warning, "does not exist");
        expect(&watchdog(&facts(None, false, &[])), Verdict::Ok, "no device");
        expect(&watchdog(&facts(None, false, &devices)), Verdict::Ok, "not used by the agent");
    }
}
