//! `coracle pods`.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::command_table::Pods;
use super::find_pod::PodListResponse;
use super::local_api::get;
use super::outputs::PodsOutput;
use super::pod_row::PodRow;
use super::problem_lines::problem_lines;
use super::table::table;
use super::{failed, print};
use crate::control::server::{NodeProblem, PodEntry};
use crate::platform::host::clock;
use crate::types::api::annotations::NEXT_VERSION;
use crate::types::api::{Pod, decode, to_yaml};
use crate::types::error::ErrorChain;

pub(super) fn run(command: &Pods) -> ExitCode {
    match get::<PodListResponse>(&command.local_socket, "/pods") {
        Ok(answer) => {
            let now = clock::now().unix_seconds();
            print(&shown(answer.pods, command.output, command.namespace.as_deref(), now))
        }
        Err(error) => failed(&ErrorChain(&error).to_string()),
    }
}

fn shown(mut entries: Vec<PodEntry>, output: PodsOutput, namespace: Option<&str>, now: i64) -> String {
    let word = |entry: &PodEntry, key: &str| {
        let metadata = entry.pod.get("metadata");
        metadata.and_then(|metadata| metadata.get(key)?.as_str()).unwrap_or_default().to_owned()
    };
    if let Some(namespace) = namespace {
        entries.retain(|entry| word(entry, "namespace") == namespace);
    }
    entries.sort_by_cached_key(|entry| (word(entry, "namespace"), word(entry, "name"), word(entry, "uid")));
    match output {
        PodsOutput::Table => rows(entries, false, now),
        PodsOutput::Wide => rows(entries, true, now),
        PodsOutput::Json => serde_json::to_string_pretty(&list(entries)).unwrap_or_default() + "\n",
        PodsOutput::Yaml => to_yaml(&list(entries)),
    }
}

/// A `v1.List` of the pods.
fn list(entries: Vec<PodEntry>) -> Value {
    let items: Vec<Value> = entries.into_iter().map(|entry| entry.pod).collect();
    json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items })
}

fn rows(entries: Vec<PodEntry>, wide: bool, now: i64) -> String {
    if entries.is_empty() {
        return "No pods.\n".to_owned();
    }
    let more: &[&str] = if wide { &["IP", "UID", "SOURCE"] } else { &[] };
    let head = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"].iter().chain(more);
    let mut rows = vec![head.map(|&name| name.to_owned()).collect()];
    let mut problems = Vec::new();
    for entry in entries {
        // The same binary wrote it. A pod that fails to decode is shown with default values.
        let pod = decode::<Pod>(entry.pod).map(|pod| pod.value).unwrap_or_default();
        let PodRow { ready, status, restarts, age } = PodRow::of(&pod, now);
        let status = match pod.annotation(NEXT_VERSION) {
            Some(next) => format!("{status} (next version: {})", next.split(" (").next().unwrap_or_default()),
            None => status,
        };
        if let Some(problem) = entry.problem {
            let name = [&*pod.metadata.namespace, "/", &*pod.metadata.name].concat();
            problems.extend(problem_lines(&NodeProblem::of_pod(&name, String::new(), problem), now));
        }
        let mut row = vec![pod.metadata.namespace, pod.metadata.name, ready, status, restarts, age];
        if wide {
            let ip = if pod.status.pod_ip.is_empty() { "<none>".to_owned() } else { pod.status.pod_ip };
            row.extend([ip, pod.metadata.uid.to_string(), entry.source]);
        }
        rows.push(row);
    }
    let mut text = table(&rows);
    if !problems.is_empty() {
        text.push('\n');
        problems.iter().for_each(|line| text.extend([line, "\n"]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::status::PodProblem;

    const NOW: i64 = 1_800_000_000;

    fn entries() -> Vec<PodEntry> {
        let pod = |namespace: &str, name: &str| PodEntry {
            source: format!("file:/m/{name}.yaml"),
            pod: json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "namespace": namespace, "name": name, "uid": "u1" },
                "spec": { "containers": [{ "name": "c" }] },
                "status": { "phase": "Pending", "startTime": "2027-01-15T07:59:00Z" },
            }),
            problem: None,
        };
        vec![pod("x", "b"), pod("x", "a"), pod("default", "c")]
    }

    #[test]
    fn pods_are_sorted_by_namespace_and_name() {
        let text = "\
NAMESPACE   NAME   READY   STATUS    RESTARTS   AGE
default     c      0/1     Pending   0          60s
x           a      0/1     Pending   0          60s
x           b      0/1     Pending   0          60s
";
        assert_eq!(shown(entries(), PodsOutput::Table, None, NOW), text);
    }

    #[test]
    fn problems_follow_the_table() {
        let mut entries = entries();
        entries.truncate(1);
        entries[0].problem = Some(PodProblem {
            reason: "NodePorts".to_owned(),
            cause: "port 80 is in use".to_owned(),
            advice: "choose another hostPort".to_owned(),
            ..PodProblem::default()
        });
        let text = shown(entries, PodsOutput::Table, None, NOW);
        let problems = "\npod x/b: NodePorts: port 80 is in use\n  -> choose another hostPort\n";
        assert!(text.ends_with(&["60s\n", problems].concat()), "{text}");
    }

    #[test]
    fn wide_adds_ip_uid_and_source() {
        let text = "\
NAMESPACE   NAME   READY   STATUS    RESTARTS   AGE   IP       UID   SOURCE
default     c      0/1     Pending   0          60s   <none>   u1    file:/m/c.yaml
";
        assert_eq!(shown(entries(), PodsOutput::Wide, Some("default"), NOW), text);
    }

    #[test]
    fn json_and_yaml_are_a_pod_list() {
        let text = shown(entries(), PodsOutput::Json, Some("x"), NOW);
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&list["kind"], &list["items"][1]["metadata"]["name"]), (&json!("PodList"), &json!("b")));
        let text = shown(entries(), PodsOutput::Yaml, None, NOW);
        assert!(text.starts_with("apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n"), "{text}");
    }

    #[test]
    fn empty_list_has_a_message() {
        assert_eq!(shown(entries(), PodsOutput::Table, Some("y"), NOW), "No pods.\n");
    }
}
