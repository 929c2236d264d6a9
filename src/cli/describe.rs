//! `coracle describe`: details of one pod, in the format of `kubectl describe`.

use std::path::Path;
use std::process::ExitCode;

use super::command_table::Describe;
use super::events::{self, in_one_line, last_seen};
use super::find_pod::find_entry;
use super::local_api::get;
use super::logs::last_lines;
use super::pod_name::PodName;
use super::pod_row::PodRow;
use super::table::table;
use super::{failed, print};
use crate::control::pod_sources::static_pod::owning_workload;
use crate::control::server::{NodeStatus, PodEntry, VersionStatus};
use crate::platform::host::clock;
use crate::types::api::annotations::{NEXT_VERSION, UPDATE_HELD};
use crate::types::api::{
    Container, ContainerState, ContainerStatus, Event, Map, Pod, QosClass, Quantity, Time, Volume, encode, qos_class,
};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;

pub(super) fn run(command: &Describe) -> ExitCode {
    let namespace = command.namespace.as_deref();
    let (pod, entry) = match find_entry(&command.local_socket, &command.pod, namespace) {
        Ok(found) => found,
        Err(line) => return failed(&line),
    };
    let events = match get::<events::EventsResponse>(&command.local_socket, "/events") {
        Ok(response) => response.events().map(|(event, _)| event),
        Err(error) => return failed(&ErrorChain(&error).to_string()),
    };
    let versions = match get::<NodeStatus>(&command.local_socket, "/status") {
        Ok(status) => status.versions,
        Err(error) => return failed(&ErrorChain(&error).to_string()),
    };
    let full_name = [&*pod.metadata.namespace, "/", &*pod.metadata.name].concat();
    let versions = versions.into_iter().find(|versions| versions.pod == full_name).unwrap_or_default();
    let wanted = PodName::new(&pod.metadata.name, Some(&pod.metadata.namespace));
    let events: Vec<Event> = events.filter(|event| events::is_about(event, &wanted)).collect();
    let logs = crash_logs(&command.local_socket, &pod);
    print(&text(&pod, &entry, &versions, &events, &logs, clock::now().unix_seconds()))
}

/// The last log lines of crashed containers, by name.
type CrashLogs = SortedMap<String, Vec<String>>;

fn crash_logs(socket: &Path, pod: &Pod) -> CrashLogs {
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let crashed = statuses.filter_map(|status| {
        let is_running = matches!(status.state, Some(ContainerState::Running(_)));
        let ends = [&status.state, &status.last_state].into_iter().flatten();
        let failed = |state: &ContainerState| matches!(state, ContainerState::Terminated(end) if end.exit_code != 0);
        ends.into_iter().any(failed).then_some((&status.name, is_running))
    });
    crashed.map(|(name, is_running)| (name.clone(), last_lines(socket, pod, name, is_running))).collect()
}

fn text(pod: &Pod, entry: &PodEntry, versions: &VersionStatus, events: &[Event], logs: &CrashLogs, now: i64) -> String {
    let mut page = Page::default();
    head(&mut page, pod, entry, versions, now);
    for (title, containers, statuses) in [
        ("Init Containers", &pod.spec.init_containers, &pod.status.init_container_statuses),
        ("Containers", &pod.spec.containers, &pod.status.container_statuses),
        ("Ephemeral Containers", &pod.spec.ephemeral_containers, &pod.status.ephemeral_container_statuses),
    ] {
        if !containers.is_empty() {
            page.title(title);
        }
        for container in containers {
            let status = statuses.iter().find(|status| status.name == container.name);
            let log = logs.get(&container.name).map(Vec::as_slice).unwrap_or_default();
            describe_container(&mut page, container, status, log);
        }
    }
    conditions(&mut page, pod);
    page.title("Volumes");
    pod.spec.volumes.iter().for_each(|volume| describe_volume(&mut page, volume));
    page.none_unless(!pod.spec.volumes.is_empty());
    page.field(0, "QoS Class", qos(pod));
    page.title("Events");
    let head = ["Type", "Reason", "Age", "Message"].map(str::to_owned).to_vec();
    let rows = events.iter().map(|event| {
        let message = in_one_line(&event.message);
        vec![event.event_type.to_string(), event.reason.to_string(), last_seen(event, now), message]
    });
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    page.none_unless(rows.len() > 1);
    if rows.len() > 1 {
        table(&rows).lines().for_each(|line| page.line(2, line));
    }
    page.0
}

fn head(page: &mut Page, pod: &Pod, entry: &PodEntry, versions: &VersionStatus, now: i64) {
    let (meta, status) = (&pod.metadata, &pod.status);
    page.field(0, "Name", &meta.name);
    page.field(0, "Namespace", &meta.namespace);
    page.field(0, "UID", meta.uid.as_str());
    page.field(0, "Source", &entry.source);
    if let Some(owner) = owning_workload(pod) {
        page.field(0, "Controlled By", format!("{}/{}", owner.kind, owner.name));
    }
    if !versions.state.is_empty() {
        page.field(0, "Version", format!("{}: {}", versions.state, versions.message));
    }
    if let Some(next) = pod.annotation(NEXT_VERSION) {
        page.field(0, "Next Version", next);
    }
    if let Some(held) = pod.annotation(UPDATE_HELD) {
        page.field(0, "Update Held", held);
    }
    if versions.earlier > 0 {
        page.field(0, "Earlier Versions", versions.earlier.to_string());
    }
    page.field(0, "Node", &pod.spec.node_name);
    page.field(0, "Start Time", status.start_time.map(|time| time.to_string()).unwrap_or_default());
    page.list(0, "Labels", meta.labels.iter().map(|(key, value)| format!("{key}={value}")));
    page.list(0, "Annotations", meta.annotations.iter().map(|(key, value)| format!("{key}: {}", in_one_line(value))));
    page.field(0, "Status", PodRow::of(pod, now).status);
    if !status.reason.is_empty() {
        page.field(0, "Reason", status.reason.as_str());
    }
    if !status.message.is_empty() {
        page.field(0, "Message", in_one_line(&status.message));
    }
    if let Some(problem) = &entry.problem {
        page.field(0, "Problem", in_one_line(&problem.cause));
        page.field_unless_empty(0, "Advice", &problem.advice);
        page.field_unless_empty(0, "Detail", &in_one_line(&problem.detail));
        page.field_unless_empty(0, "Since", &problem.since);
        page.field_unless_empty(0, "Next Retry", &problem.next_retry);
    }
    page.list(0, "IPs", status.pod_ips.iter().map(|ip| ip.ip.clone()));
}

fn describe_container(page: &mut Page, container: &Container, status: Option<&ContainerStatus>, log: &[String]) {
    page.line(2, &format!("{}:", container.name));
    page.field(4, "Container ID", status.map_or("", |status| &status.container_id));
    page.field(4, "Image", &container.image);
    page.field(4, "Image ID", status.map_or("", |status| &status.image_id));
    let ports = container.ports.iter().map(|port| format!("{}/{}", port.container_port, port.protocol));
    page.field(4, "Ports", ports.collect::<Vec<_>>().join(", "));
    for (name, words) in [("Command", &container.command), ("Args", &container.args)] {
        if !words.is_empty() {
            page.list(4, name, words.iter().map(in_one_line));
        }
    }
    describe_state(page, "State", status.and_then(|status| status.state.as_ref()));
    if let Some(last) = status.and_then(|status| status.last_state.as_ref()) {
        describe_state(page, "Last State", Some(last));
    }
    if !log.is_empty() {
        page.list(4, "Last Log Lines", log.iter().map(|line| in_one_line(line)));
    }
    page.field(4, "Ready", if status.is_some_and(|status| status.ready) { "True" } else { "False" });
    page.field(4, "Restart Count", status.map_or(0, |status| status.restart_count).to_string());
    let amounts = |amounts: &Map<Quantity>| {
        amounts.iter().map(|(name, amount)| format!("{name}: {amount}")).collect::<Vec<_>>().join(", ")
    };
    let resources = &container.resources;
    for (name, of) in [("Limits", &resources.limits), ("Requests", &resources.requests)] {
        if of.iter().next().is_some() {
            page.field(4, name, amounts(of));
        }
    }
    for (name, probe) in [
        ("Liveness", &container.liveness_probe),
        ("Readiness", &container.readiness_probe),
        ("Startup", &container.startup_probe),
    ] {
        if let Some(probe) = probe {
            page.field(4, name, encode(&**probe).to_string());
        }
    }
    let mounts = container.volume_mounts.iter().map(|mount| {
        format!("{} from {} ({})", mount.mount_path, mount.name, if mount.read_only { "ro" } else { "rw" })
    });
    page.list(4, "Mounts", mounts);
}

fn describe_state(page: &mut Page, name: &str, state: Option<&ContainerState>) {
    let time = |time: Option<Time>| time.map(|time| time.to_string()).unwrap_or_default();
    match state {
        None => page.field(4, name, "Waiting"),
        Some(ContainerState::Waiting(waiting)) => {
            page.field(4, name, "Waiting");
            page.field_unless_empty(6, "Reason", waiting.reason.as_str());
            page.field_unless_empty(6, "Message", &in_one_line(&waiting.message));
        }
        Some(ContainerState::Running(running)) => {
            page.field(4, name, "Running");
            page.field(6, "Started", time(running.started_at));
        }
        Some(ContainerState::Terminated(ended)) => {
            page.field(4, name, "Terminated");
            page.field_unless_empty(6, "Reason", ended.reason.as_str());
            page.field_unless_empty(6, "Message", &in_one_line(&ended.message));
            page.field(6, "Exit Code", ended.exit_code.to_string());
            page.field(6, "Started", time(ended.started_at));
            page.field(6, "Finished", time(ended.finished_at));
        }
    }
}

fn conditions(page: &mut Page, pod: &Pod) {
    page.title("Conditions");
    page.none_unless(!pod.status.conditions.is_empty());
    let rows = pod.status.conditions.iter().map(|condition| {
        let why = [condition.reason.as_str(), &in_one_line(&condition.message)].join(" ");
        vec![condition.kind.to_string(), condition.status.to_string(), why.trim().to_owned()]
    });
    table(&rows.collect::<Vec<_>>()).lines().for_each(|line| page.line(2, line));
}

fn describe_volume(page: &mut Page, volume: &Volume) {
    page.line(2, &format!("{}:", volume.name));
    // The name is printed above; the rest is the volume's type and its fields.
    let encoded = encode(volume);
    for (kind, source) in encoded.as_object().into_iter().flatten().filter(|(key, _)| *key != "name") {
        page.field(4, "Type", kind);
        for (key, value) in source.as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), in_one_line);
            page.field_unless_empty(4, key, &value);
        }
    }
}

fn qos(pod: &Pod) -> &'static str {
    match qos_class(pod) {
        QosClass::BestEffort => "BestEffort",
        QosClass::Burstable => "Burstable",
        QosClass::Guaranteed => "Guaranteed",
    }
}

/// A page of names and values.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, indent: usize, text: &str) {
        self.0.push_str(&" ".repeat(indent));
        self.0.push_str(text.trim_end());
        self.0.push('\n');
    }

    fn title(&mut self, name: &str) {
        self.line(0, &format!("{name}:"));
    }

    fn field(&mut self, indent: usize, name: &str, value: impl AsRef<str>) {
        let value = if value.as_ref().is_empty() { "<none>" } else { value.as_ref() };
        let width = VALUE_COLUMN.saturating_sub(indent);
        self.line(indent, &format!("{:<width$} {value}", format!("{name}:")));
    }

    fn field_unless_empty(&mut self, indent: usize, name: &str, value: &str) {
        if !value.is_empty() {
            self.field(indent, name, value);
        }
    }

    /// The first value is beside the name, the others below it.
    fn list(&mut self, indent: usize, name: &str, values: impl Iterator<Item = String>) {
        let mut values = values;
        self.field(indent, name, values.next().unwrap_or_default());
        values.for_each(|value| self.line(VALUE_COLUMN + 1, &value));
    }

    fn none_unless(&mut self, some: bool) {
        if !some {
            self.line(2, "<none>");
        }
    }
}

/// Column of the values.
const VALUE_COLUMN: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::status::PodProblem;
    use crate::types::api::decode;

    #[test]
    fn pod_is_described_with_all_sections() {
        let pod = decode::<Pod>(serde_json::json!({
            "metadata": { "name": "web-n1", "namespace": "default", "uid": "u1", "labels": { "a": "1", "b": "2" } },
            "spec": {
                "nodeName": "n1",
                "containers": [{
                    "name": "main", "image": "i:1", "command": ["sh", "-c"], "ports": [{ "containerPort": 80 }],
                    "resources": { "limits": { "memory": "64Mi" } },
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }],
                "volumes": [{ "name": "data", "hostPath": { "path": "/srv" } }],
            },
            "status": {
                "phase": "Running", "startTime": "2027-01-15T07:59:00Z", "podIPs": [{ "ip": "10.0.0.7" }],
                "conditions": [{ "type": "Ready", "status": "False", "reason": "ContainersNotReady" }],
                "containerStatuses": [{
                    "name": "main", "restartCount": 3, "containerID": "containerd://x",
                    "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off\n10s" } },
                    "lastState": { "terminated": { "exitCode": 1, "reason": "Error" } },
                }],
            },
        }));
        let event = decode::<Event>(serde_json::json!({
            "type": "Warning", "reason": "BackOff", "message": "Back-off", "count": 2,
            "firstTimestamp": "2027-01-15T07:58:00Z", "lastTimestamp": "2027-01-15T07:59:55Z",
        }));
        let versions = VersionStatus::default();
        let problem = PodProblem {
            cause: "container main exits with code 1 (3 restarts)".to_owned(),
            advice: "see its log".to_owned(),
            detail: "out of\nlight".to_owned(),
            since: "2027-01-15T07:59:00Z".to_owned(),
            ..PodProblem::default()
        };
        let entry = PodEntry { source: "file:/m/web.yaml".to_owned(), problem: Some(problem), ..PodEntry::default() };
        let logs = CrashLogs::from_iter([("main".to_owned(), vec!["starting".to_owned(), "no light".to_owned()])]);
        let shown = text(&pod.unwrap().value, &entry, &versions, &[event.unwrap().value], &logs, 1_800_000_000);
        let expected = "\
Name:              web-n1
Namespace:         default
UID:               u1
Source:            file:/m/web.yaml
Node:              n1
Start Time:        2027-01-15T07:59:00Z
Labels:            a=1
                   b=2
Annotations:       <none>
Status:            CrashLoopBackOff
Problem:           container main exits with code 1 (3 restarts)
Advice:            see its log
Detail:            out of light
Since:             2027-01-15T07:59:00Z
IPs:               10.0.0.7
Containers:
  main:
    Container ID:  containerd://x
    Image:         i:1
    Image ID:      <none>
    Ports:         80/TCP
    Command:       sh
                   -c
    State:         Waiting
      Reason:      CrashLoopBackOff
      Message:     back-off 10s
    Last State:    Terminated
      Reason:      Error
      Exit Code:   1
      Started:     <none>
      Finished:    <none>
    Last Log Lines: starting
                   no light
    Ready:         False
    Restart Count: 3
    Limits:        memory: 64Mi
    Mounts:        /data from data (rw)
Conditions:
  Ready   False   ContainersNotReady
Volumes:
  data:
    Type:          hostPath
    path:          /srv
QoS Class:         Burstable
Events:
  Type      Reason    Age               Message
  Warning   BackOff   5s (x2 over 2m)   Back-off
";
        assert_eq!(shown, expected);
    }
}
