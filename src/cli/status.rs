//! `coracle status`.

use std::process::ExitCode;

use serde_json::Value;

use super::command_table::Status;
use super::images::size;
use super::local_api::{decoded, get};
use super::outputs::StatusOutput;
use super::pod_row::age;
use super::problem_lines::problem_lines;
use super::{DEGRADED_STATUS, DOWN_STATUS, colours, complain, failed, print, print_painted};
use crate::control::server::{
    ApiServerStatus, ArchivesStatus, CertificateState, CertificateStatus, ConditionStatus, NodeHealth, NodeStatus,
    OfflineStatus, PanicRecord, PodCounts, PullBudgetStatus, RuntimeStatus, Stall, SyncStatus, WatchdogStatus,
};
use crate::platform::host::clock;
use crate::types::api::to_yaml;
use crate::types::error::ErrorChain;

/// Ends with 0 if all is well, 3 if something is wrong, 4 if no pod can be started or the agent does not answer.
pub(super) fn run(command: &Status) -> ExitCode {
    // As the agent sent it, with fields that this version may not know.
    let response: Value = match get(&command.local_socket, "/status") {
        Ok(response) => response,
        Err(error) => {
            complain(&ErrorChain(&error).to_string());
            return ExitCode::from(DOWN_STATUS);
        }
    };
    let status: NodeStatus = match decoded(response.clone()) {
        Ok(status) => status,
        Err(error) => return failed(&format!("decode the agent's status: {error}")),
    };
    let printed = match command.output {
        StatusOutput::Text => print_painted(&text(&status, clock::now().unix_seconds()), colours::of_status),
        StatusOutput::Json => print(&format!("{response:#}\n")),
        StatusOutput::Yaml => print(&to_yaml(&response)),
    };
    match status.health {
        NodeHealth::Ok => printed,
        NodeHealth::Degraded => ExitCode::from(DEGRADED_STATUS),
        NodeHealth::Down => ExitCode::from(DOWN_STATUS),
    }
}

fn text(status: &NodeStatus, now: i64) -> String {
    let mut lines = vec![
        format!("Node:     {} ({})", status.node, or_none(&status.addresses.join(", "))),
        format!("Coracle:  {}, up {}", status.version, age(i64::try_from(status.uptime_seconds).unwrap_or(i64::MAX))),
        format!("Health:   {}", health(status)),
    ];
    lines
        .extend(status.problems.iter().flat_map(|problem| problem_lines(problem, now)).map(|line| format!("  {line}")));
    lines.extend(status.join.as_ref().map(|line| format!("Join:     {line}")));
    lines.extend(status.upgrade.as_ref().map(|upgrade| format!("Upgrade:  {upgrade}")));
    lines.extend([
        format!("Watchdog: {}", watchdog(&status.watchdog)),
        format!("Runtime:  {}", runtime(&status.runtime)),
        format!("Network:  {}", if status.runtime.network_ready { "ready" } else { "not ready" }),
        format!("Pressure: {}", pressure(&status.conditions)),
        format!("Pods:     {}", pods(status)),
    ]);
    lines.extend(status.api_server.as_ref().map(|server| format!("Cluster:  {}", api_server(server))));
    lines.extend(status.sync.as_ref().map(|sync| format!("Sync:     {}", sync_line(sync))));
    lines.extend(status.offline.as_ref().map(|offline| format!("Offline:  {}", offline_store(offline))));
    lines.push("Sources:".to_owned());
    for source in &status.sources {
        let seen = if source.ready { format!("{} pods", source.pods) } else { "not read yet".to_owned() };
        lines.push(format!("  {}: {seen}", source.name));
        lines.extend(Some(&source.agent).filter(|agent| !agent.is_empty()).map(|agent| format!("    agent: {agent}")));
        lines.extend(source.errors.iter().map(|error| format!("    {error}")));
    }
    if status.sources.is_empty() {
        lines.push("  <none>".to_owned());
    }
    let versions = || status.versions.iter().filter(|versions| !versions.state.is_empty());
    if versions().next().is_some() {
        lines.push("Versions:".to_owned());
        lines.extend(versions().map(|one| format!("  {}: {}: {}", one.pod, one.state, one.message)));
    }
    if !status.held_pods.is_empty() {
        lines.push("Held pods:".to_owned());
        lines.extend(status.held_pods.iter().map(|line| format!("  {line}")));
    }
    lines.extend(status.pull_budget.as_ref().map(|budget| format!("Images:   {}", pull_budget(budget))));
    if !status.pulls.is_empty() {
        lines.push("Pulls:".to_owned());
        lines.extend(status.pulls.iter().map(|pull| {
            let since = age(i64::try_from(pull.seconds).unwrap_or(i64::MAX));
            let what = if pull.begun { "in progress for" } else { "waiting for its turn since" };
            let bytes = pull.bytes.map(|(here, all)| format!(", {} of {}", size(here), size(all))).unwrap_or_default();
            format!("  {} for {}: {what} {since}{bytes}", pull.image, pull.pod)
        }));
    }
    archives(&status.image_archives, &mut lines);
    let missing = status.missing_images.as_deref().unwrap_or_default();
    if !missing.is_empty() {
        lines.push("Missing images:".to_owned());
        lines.extend(missing.iter().map(|missing| format!("  {} for {}", missing.image, missing.pods.join(", "))));
    }
    if !status.certificates.is_empty() {
        lines.push("Certificates:".to_owned());
        lines.extend(status.certificates.iter().map(|certificate| format!("  {}", certificate_line(certificate))));
    }
    if !status.leftovers.is_empty() {
        lines.push("Left by former pods, cannot be removed:".to_owned());
        lines.extend(status.leftovers.iter().map(|error| format!("  {error}")));
    }
    if let Some(stall) = &status.last_stall {
        lines.push("Last stall:".to_owned());
        lines.extend(last_stall(stall).map(|line| format!("  {line}")));
    }
    if let Some(panic) = &status.last_panic {
        lines.push("Last panic:".to_owned());
        lines.extend(last_panic(panic).map(|line| format!("  {line}")));
    }
    lines.push("Last errors:".to_owned());
    lines.extend(status.errors.iter().map(|error| format!("  {} {}", error.time, error.message)));
    if status.errors.is_empty() {
        lines.push("  <none>".to_owned());
    }
    lines.join("\n") + "\n"
}

/// Such as `degraded, 2 problems`.
fn health(status: &NodeStatus) -> String {
    let health = match status.health {
        NodeHealth::Ok => return "ok".to_owned(),
        NodeHealth::Degraded => "degraded",
        NodeHealth::Down => "down",
    };
    let count = status.problems.len();
    format!("{health}, {count} {}", if count == 1 { "problem" } else { "problems" })
}

/// Such as `4 (2 running, 1 failing, 1 done)`.
fn pods(status: &NodeStatus) -> String {
    let PodCounts { running, failing, waiting, done, stopped } = status.pod_counts;
    let counts =
        [(running, "running"), (failing, "failing"), (waiting, "waiting"), (done, "done"), (stopped, "stopped")];
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let counts = counts.collect::<Vec<_>>().join(", ");
    // With pods that no source has any more and that are still ending.
    let total = running + failing + waiting + done + stopped;
    if counts.is_empty() { status.pods.to_string() } else { format!("{total} ({counts})") }
}

/// Adds nothing if there are no archives.
fn archives(archives: &ArchivesStatus, lines: &mut Vec<String>) {
    let ArchivesStatus { directory, files, message } = archives;
    if files.is_empty() && message.is_empty() {
        return;
    }
    let why = if message.is_empty() { String::new() } else { format!(" cannot be read: {message}") };
    lines.push(format!("Image archives in {directory}:{why}"));
    lines.extend(files.iter().map(|archive| {
        if archive.message.is_empty() {
            format!("  {}: {} {}", archive.file, archive.state, archive.images.join(", ")).trim_end().to_owned()
        } else {
            format!("  {}: {}: {}", archive.file, archive.state, archive.message)
        }
    }));
}

fn runtime(runtime: &RuntimeStatus) -> String {
    let name = if runtime.name.is_empty() {
        "no answer yet".to_owned()
    } else {
        format!("{} {}", runtime.name, runtime.version)
    };
    let ready = if runtime.ready { "ready" } else { "not ready" };
    let why = if runtime.message.is_empty() { String::new() } else { format!(": {}", runtime.message) };
    format!("{name} at {}, {ready}{why}", runtime.endpoint)
}

fn api_server(status: &ApiServerStatus) -> String {
    let ApiServerStatus { server, connected, message, connections, sent_bytes, received_bytes } = status;
    let server = if server.is_empty() { "no server known" } else { server };
    let connected = if *connected { "connected" } else { "not connected" };
    let why = if message.is_empty() { String::new() } else { format!(" ({message})") };
    let (sent, received) = (si_bytes(*sent_bytes), si_bytes(*received_bytes));
    let noun = if *connections == 1 { "connection" } else { "connections" };
    format!("{server}, {connected}{why}; {sent} sent, {received} received over {connections} {noun}")
}

fn sync_line(status: &SyncStatus) -> String {
    let seconds = |seconds: u64| age(i64::try_from(seconds).unwrap_or(i64::MAX));
    let mut line = status.mode.clone();
    match (status.open, status.cache_age_seconds) {
        (true, None) => {}
        (_, Some(old)) => line.push_str(&format!("; last heard {} ago", seconds(old))),
        (false, None) => line.push_str("; nothing exchanged yet"),
    }
    if let Some(last) = status.last.as_ref().filter(|last| !last.message.is_empty()) {
        line.push_str(&format!(", last attempt failed ({})", last.message));
    }
    if let Some(next) = status.next_seconds {
        line.push_str(&format!(", next in {}", seconds(next)));
    }
    line.push_str(&format!("; {} today", si_bytes(status.bytes_today)));
    if let Some(most) = status.bytes_per_day {
        line.push_str(&format!(" of {}", si_bytes(most)));
    }
    if !status.left_out.is_empty() {
        line.push_str(&format!(", left out: {}", status.left_out.join(", ")));
    }
    let pending = [(status.pending_statuses, "pods"), (status.pending_events, "events")];
    let pending = pending.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let pending: Vec<String> = pending.collect();
    if !pending.is_empty() {
        line.push_str(&format!("; to report: {}", pending.join(", ")));
    }
    line
}

fn offline_store(status: &OfflineStatus) -> String {
    let OfflineStatus { records, bytes, changed, in_use, set_aside, unopened, left_out, .. } = status;
    let written = if changed.is_empty() { "nothing yet".to_owned() } else { format!("as of {changed}") };
    let in_use = if *in_use { "; the pods are those of the store" } else { "" };
    let faults = [(set_aside, "set aside"), (unopened, "not decryptable"), (left_out, "too large")];
    let faults = faults.map(|(count, what)| if *count > 0 { format!(", {count} {what}") } else { String::new() });
    let why = if status.message.is_empty() { String::new() } else { format!(" ({})", status.message) };
    let (bytes, secrets, faults) = (si_bytes(*bytes), &status.secrets, faults.concat());
    format!("{records} objects, {bytes}, {written}{faults}{why}; secrets {secrets}{in_use}")
}

/// At most three significant digits: `950 B`, `8.2 MB`.
pub(super) fn si_bytes(bytes: u64) -> String {
    let (mut whole, mut tenths) = (bytes, 0);
    for unit in ["B", "kB", "MB", "GB"] {
        if whole < 1000 {
            return if unit == "B" || whole >= 100 {
                format!("{whole} {unit}")
            } else {
                format!("{whole}.{tenths} {unit}")
            };
        }
        (whole, tenths) = (whole / 1000, whole % 1000 / 100);
    }
    format!("{whole} TB")
}

fn certificate_line(certificate: &CertificateStatus) -> String {
    let CertificateStatus { name, state, not_after, message } = certificate;
    let what = match state {
        CertificateState::Missing => "none yet".to_owned(),
        CertificateState::Good => format!("good until {not_after}"),
        CertificateState::Due => format!("good until {not_after}, to be replaced"),
        CertificateState::Expired => format!("expired {not_after}"),
    };
    let why = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("{name}: {what}{why}")
}

/// The conditions that hold.
fn pressure(conditions: &[ConditionStatus]) -> String {
    let held = conditions.iter().filter(|condition| condition.is_pressure() && condition.status == "True");
    let held: Vec<String> =
        held.map(|condition| format!("{} since {}", condition.kind, condition.last_transition_time)).collect();
    if held.is_empty() { "none".to_owned() } else { held.join(", ") }
}

fn watchdog(watchdog: &WatchdogStatus) -> String {
    let manager = watchdog.service_manager_seconds.map(|seconds| format!("service manager ({seconds} s)"));
    let device = watchdog.device.as_ref().map(|device| {
        let reset = if device.reset_the_board { ", it reset the board before this boot" } else { "" };
        if device.armed {
            format!("{} ({} s){reset}", device.path, device.timeout_seconds)
        } else {
            format!("{} cannot be opened", device.path)
        }
    });
    let on: Vec<String> = manager.into_iter().chain(device).collect();
    if on.is_empty() { "none".to_owned() } else { on.join("; ") }
}

fn last_stall(stall: &Stall) -> impl Iterator<Item = String> {
    let head = match (stall.rounds, &stall.part) {
        (Some(rounds), part) => {
            let part = part.as_deref().unwrap_or("events");
            format!("{} the sync loop ran {rounds} times without waiting; due: {part}", stall.time)
        }
        (None, _) => format!("{} no answer for {} s {}", stall.time, stall.seconds, stall.description()),
    };
    let moved = stall.moved_again_after_seconds.map(|seconds| format!("it continued after {seconds} s"));
    let ended = stall.next_start.as_ref().map(|start| format!("it was killed; the next start was at {start}"));
    std::iter::once(head).chain(moved).chain(ended)
}

fn last_panic(panic: &PanicRecord) -> impl Iterator<Item = String> {
    let PanicRecord { time, version, thread, location, message, .. } = panic;
    let message: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let head = format!("{time} {version}, thread {thread}, {location}: {message}");
    let next = panic.next_start.as_ref().map(|start| format!("it ended the process; the next start was at {start}"));
    std::iter::once(head).chain(next)
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "no address" } else { text }
}

/// Such as `12.1MB of 50.0MB today; pulls wait: outside images.windows until 01:00 UTC`.
fn pull_budget(budget: &PullBudgetStatus) -> String {
    let used = budget.bytes_per_day.map(|most| format!("{} of {} today", size(budget.bytes_today), size(most)));
    let held = Some(&budget.held).filter(|held| !held.is_empty()).map(|held| ["pulls wait: ", held].concat());
    [used, held].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::server::{
        ArchiveStatus, DeviceStatus, ExchangeStatus, MissingImage, NodeProblem, PullStatus, RecentError, SourceStatus,
        VersionStatus,
    };

    const NOW: i64 = 1_800_000_000;

    #[test]
    fn page_has_node_runtime_sources_and_errors() {
        let status = NodeStatus {
            version: "0.1.0".to_owned(),
            node: "edge-7".to_owned(),
            addresses: vec!["10.0.0.7".to_owned()],
            processors: 4,
            uptime_seconds: 7265,
            healthy: true,
            seal_key: None,
            watchdog: WatchdogStatus { service_manager_seconds: Some(60), device: None },
            last_stall: None,
            last_panic: None,
            upgrade: None,
            runtime: RuntimeStatus {
                endpoint: "/run/containerd/containerd.sock".to_owned(),
                name: "containerd".to_owned(),
                version: "1.6.20".to_owned(),
                ready: true,
                network_ready: false,
                message: String::new(),
            },
            conditions: ["DiskPressure", "MemoryPressure"]
                .map(|kind| ConditionStatus {
                    kind: kind.to_owned(),
                    status: if kind == "MemoryPressure" { "True" } else { "False" }.to_owned(),
                    last_transition_time: "2026-11-20T20:20:00Z".to_owned(),
                    ..ConditionStatus::default()
                })
                .to_vec(),
            sources: vec![SourceStatus {
                name: "file:/etc/kubernetes/manifests".to_owned(),
                pods: 2,
                ready: true,
                agent: String::new(),
                errors: vec!["web.yaml: spec.containers[0].image: required".to_owned()],
                path: "/m".to_owned(),
            }],
            pods: 2,
            versions: Vec::new(),
            held_pods: Vec::new(),
            join: None,
            pull_budget: None,
            pulls: Vec::new(),
            image_archives: ArchivesStatus::default(),
            missing_images: None,
            api_server: None,
            sync: None,
            offline: None,
            certificates: Vec::new(),
            health: NodeHealth::Degraded,
            problems: vec![NodeProblem {
                subject: "pod default/web".to_owned(),
                cause: "NodePorts: port 80 is in use".to_owned(),
                advice: "choose another hostPort".to_owned(),
                since: "2027-01-15T07:55:00Z".to_owned(),
                ..NodeProblem::default()
            }],
            pod_counts: PodCounts { running: 1, failing: 1, waiting: 0, done: 0, stopped: 0 },
            leftovers: vec!["remove /var/log/pods/default_left_1: Operation not permitted".to_owned()],
            errors: vec![RecentError { time: "2026-11-20T20:24:00Z".to_owned(), message: "pull failed".to_owned() }],
        };
        let page = "\
Node:     edge-7 (10.0.0.7)
Coracle:  0.1.0, up 121m
Health:   degraded, 1 problem
  pod default/web: NodePorts: port 80 is in use, for 5m
    -> choose another hostPort
Watchdog: service manager (60 s)
Runtime:  containerd 1.6.20 at /run/containerd/containerd.sock, ready
Network:  not ready
Pressure: MemoryPressure since 2026-11-20T20:20:00Z
Pods:     2 (1 running, 1 failing)
Sources:
  file:/etc/kubernetes/manifests: 2 pods
    web.yaml: spec.containers[0].image: required
Left by former pods, cannot be removed:
  remove /var/log/pods/default_left_1: Operation not permitted
Last errors:
  2026-11-20T20:24:00Z pull failed
";
        assert_eq!(text(&status, NOW), page);
    }

    #[test]
    fn starting_node_shows_what_it_waits_for() {
        let page = text(&NodeStatus::default(), NOW);
        assert!(page.contains("Runtime:  no answer yet at , not ready\n"), "{page}");
        assert!(page.ends_with("Sources:\n  <none>\nLast errors:\n  <none>\n"), "{page}");
    }

    #[test]
    fn budget_of_pulls_is_one_line() {
        let shown = |bytes_per_day, held: &str| {
            pull_budget(&PullBudgetStatus { bytes_today: 12_100_000, bytes_per_day, held: held.to_owned() })
        };
        assert_eq!(shown(Some(50_000_000), ""), "12.1MB of 50.0MB today");
        assert_eq!(shown(None, "outside images.windows"), "pulls wait: outside images.windows");
        assert_eq!(shown(Some(50_000_000), "x"), "12.1MB of 50.0MB today; pulls wait: x");
    }

    #[test]
    fn pulls_are_shown_with_their_pods() {
        let pull = |image: &str, begun| PullStatus {
            image: image.to_owned(),
            pod: "web_default".to_owned(),
            begun,
            seconds: 75,
            bytes: begun.then_some((4_200_000, 12_345_678)),
        };
        let status = NodeStatus { pulls: vec![pull("a:1", true), pull("b:1", false)], ..NodeStatus::default() };
        let page = text(&status, NOW);
        let pulls = "Pulls:\n  a:1 for web_default: in progress for 75s, 4.2MB of 12.3MB\n  b:1 for web_default: waiting for its turn since 75s\n";
        assert!(page.contains(pulls), "{page}");
    }

    #[test]
    fn held_version_is_shown() {
        let version = |pod: &str, state: &str| VersionStatus {
            pod: pod.to_owned(),
            state: state.to_owned(),
            message: "why".to_owned(),
            earlier: 1,
        };
        let versions = vec![version("x/a", ""), version("x/b", "held")];
        let page = text(&NodeStatus { versions, ..NodeStatus::default() }, NOW);
        assert!(page.contains("\nVersions:\n  x/b: held: why\nLast errors:"), "{page}");
    }

    #[test]
    fn archives_and_missing_images_are_shown() {
        let archive = |file: &str, state: &str, images: &[&str], message: &str| ArchiveStatus {
            file: file.to_owned(),
            state: state.to_owned(),
            images: images.iter().map(|&image| image.to_owned()).collect(),
            message: message.to_owned(),
            ..ArchiveStatus::default()
        };
        let files = vec![
            archive("a.tar", "imported", &["x:1", "y:1"], ""),
            archive("b.tar", "refused", &["x:1"], "it is cut short"),
            archive("c.tar", "waiting", &[], ""),
        ];
        let missing = MissingImage { image: "z:1".to_owned(), pods: vec!["x/a".to_owned(), "x/b".to_owned()] };
        let mut status = NodeStatus { missing_images: Some(vec![missing]), ..NodeStatus::default() };
        status.image_archives = ArchivesStatus { directory: "/images".to_owned(), files, message: String::new() };
        let lines = "\
Image archives in /images:
  a.tar: imported x:1, y:1
  b.tar: refused: it is cut short
  c.tar: waiting
Missing images:
  z:1 for x/a, x/b
";
        assert!(text(&status, NOW).contains(lines), "{}", text(&status, NOW));
        status.image_archives.message = "Not a directory".to_owned();
        assert!(text(&status, NOW).contains("Image archives in /images: cannot be read: Not a directory\n"));
    }

    #[test]
    fn connection_to_the_cluster_is_shown_with_its_traffic() {
        let mut server = ApiServerStatus {
            server: "10.0.0.1:6443".to_owned(),
            connected: true,
            connections: 1,
            sent_bytes: 950,
            received_bytes: 8_249_999,
            ..ApiServerStatus::default()
        };
        assert_eq!(api_server(&server), "10.0.0.1:6443, connected; 950 B sent, 8.2 MB received over 1 connection");
        (server.connected, server.message) = (false, "connect to the API server: refused".to_owned());
        (server.connections, server.received_bytes) = (2, 123_456_000_000_000);
        let page = text(&NodeStatus { api_server: Some(server), ..NodeStatus::default() }, NOW);
        let line = "Cluster:  10.0.0.1:6443, not connected (connect to the API server: refused); \
                    950 B sent, 123 TB received over 2 connections\n";
        assert!(page.contains(line), "{page}");
    }

    #[test]
    fn sync_mode_is_shown_with_pending_work_and_traffic() {
        let mut sync = SyncStatus { mode: "watch".to_owned(), open: true, bytes_today: 7_800, ..SyncStatus::default() };
        assert_eq!(sync_line(&sync), "watch; 7.8 kB today");
        (sync.mode, sync.open) = ("poll every 15m0s".to_owned(), false);
        sync.next_seconds = Some(30);
        assert_eq!(sync_line(&sync), "poll every 15m0s; nothing exchanged yet, next in 30s; 7.8 kB today");
        sync.cache_age_seconds = Some(600);
        sync.last = Some(ExchangeStatus { message: "refused".to_owned(), ..ExchangeStatus::default() });
        sync.bytes_per_day = Some(1_000_000);
        (sync.left_out, sync.pending_statuses, sync.pending_events) = (vec!["events".to_owned()], 2, 3);
        let line = "Sync:     poll every 15m0s; last heard 10m ago, last attempt failed (refused), next in 30s; \
                    7.8 kB today of 1.0 MB, left out: events; to report: 2 pods, 3 events\n";
        let page = text(&NodeStatus { sync: Some(sync), ..NodeStatus::default() }, NOW);
        assert!(page.contains(line), "{page}");
    }

    #[test]
    fn offline_store_is_shown_with_its_age_and_faults() {
        let mut offline =
            OfflineStatus { records: 34, bytes: 210_000, secrets: "in plain".to_owned(), ..OfflineStatus::default() };
        assert_eq!(offline_store(&offline), "34 objects, 210 kB, nothing yet; secrets in plain");
        (offline.changed, offline.in_use, offline.set_aside) = ("2026-11-20T20:24:00Z".to_owned(), true, 1);
        (offline.unopened, offline.left_out, offline.message) = (2, 3, "write: no space".to_owned());
        let line = "Offline:  34 objects, 210 kB, as of 2026-11-20T20:24:00Z, 1 set aside, 2 not decryptable, 3 too large (write: no \
                    space); secrets in plain; the pods are those of the store\n";
        let page = text(&NodeStatus { offline: Some(offline), ..NodeStatus::default() }, NOW);
        assert!(page.contains(line), "{page}");
    }

    #[test]
    fn certificates_are_shown_with_expiry_and_faults() {
        let certificate = |state, not_after: &str, message: &str| CertificateStatus {
            name: "client".to_owned(),
            state,
            not_after: not_after.to_owned(),
            message: message.to_owned(),
        };
        let end = "2026-11-20T20:24:00Z";
        let certificates = vec![
            certificate(CertificateState::Good, end, ""),
            certificate(CertificateState::Due, end, "refused"),
            certificate(CertificateState::Expired, end, "refused"),
            certificate(CertificateState::Missing, "", "refused"),
        ];
        let page = text(&NodeStatus { certificates, ..NodeStatus::default() }, NOW);
        let lines = "\
Certificates:
  client: good until 2026-11-20T20:24:00Z
  client: good until 2026-11-20T20:24:00Z, to be replaced: refused
  client: expired 2026-11-20T20:24:00Z: refused
  client: none yet: refused
";
        assert!(page.contains(lines), "{page}");
    }

    #[test]
    fn last_stall_is_shown_with_its_outcome() {
        let mut stall = Stall {
            time: "2026-11-20T20:24:00Z".to_owned(),
            seconds: 37,
            doing: "taking in manifests".to_owned(),
            next_start: Some("2026-11-20T20:24:41Z".to_owned()),
            ..Stall::default()
        };
        let page = |stall: &Stall| text(&NodeStatus { last_stall: Some(stall.clone()), ..NodeStatus::default() }, NOW);
        let head = "Last stall:\n  2026-11-20T20:24:00Z no answer for 37 s while taking in manifests\n";
        let ended = "  it was killed; the next start was at 2026-11-20T20:24:41Z\nLast errors:";
        assert!(page(&stall).contains(&format!("{head}{ended}")), "{}", page(&stall));
        stall.next_start = None;
        stall.moved_again_after_seconds = Some(41);
        assert!(page(&stall).contains(&format!("{head}  it continued after 41 s\nLast errors:")), "{}", page(&stall));
    }

    #[test]
    fn last_panic_is_shown_on_one_line() {
        let panic = PanicRecord {
            time: "2026-11-20T20:24:00Z".to_owned(),
            version: "0.2.0".to_owned(),
            thread: "main".to_owned(),
            location: "src/a.rs:7:9".to_owned(),
            message: "left\nright".to_owned(),
            next_start: Some("2026-11-20T20:24:01Z".to_owned()),
            ..PanicRecord::default()
        };
        let page = text(&NodeStatus { last_panic: Some(panic), ..NodeStatus::default() }, NOW);
        let lines = "Last panic:\n  2026-11-20T20:24:00Z 0.2.0, thread main, src/a.rs:7:9: left right\n  \
                     it ended the process; the next start was at 2026-11-20T20:24:01Z\nLast errors:";
        assert!(page.contains(lines), "{page}");
    }

    #[test]
    fn busy_loop_is_shown_with_its_rounds_and_due_part() {
        let stall = Stall {
            time: "2026-11-20T20:24:00Z".to_owned(),
            doing: "going round without ever waiting".to_owned(),
            rounds: Some(10_000),
            part: Some("versions".to_owned()),
            ..Stall::default()
        };
        let line = "2026-11-20T20:24:00Z the sync loop ran 10000 times without waiting; due: versions";
        assert_eq!(last_stall(&stall).collect::<Vec<_>>(), [line]);
    }

    #[test]
    fn each_watchdog_is_shown_with_its_interval() {
        let path = "/dev/watchdog".to_owned();
        let mut device = DeviceStatus { path, armed: true, timeout_seconds: 15, reset_the_board: true };
        let page = |device: &DeviceStatus| {
            watchdog(&WatchdogStatus { service_manager_seconds: Some(60), device: Some(device.clone()) })
        };
        let reset = "it reset the board before this boot";
        assert_eq!(page(&device), format!("service manager (60 s); /dev/watchdog (15 s), {reset}"));
        device.armed = false;
        assert_eq!(page(&device), "service manager (60 s); /dev/watchdog cannot be opened");
        assert_eq!(watchdog(&WatchdogStatus::default()), "none");
    }
}
