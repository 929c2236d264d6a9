//! `coracle pods`.

use std::process::ExitCode;
use std::thread;

use serde_json::{Value, json};

use super::command_table::Pods;
use super::find_pod::PodListResponse;
use super::local_api::{WATCH_INTERVAL, get};
use super::outputs::PodsOutput;
use super::pod_name::PodName;
use super::pod_row::PodRow;
use super::problem_lines::problem_lines;
use super::selector::Selector;
use super::table::table;
use super::{colours, failed, print, print_painted};
use crate::control::server::{NodeProblem, PodEntry};
use crate::platform::host::clock;
use crate::types::api::annotations::{NEXT_VERSION, UPDATE_HELD};
use crate::types::api::{Pod, decode, to_yaml};
use crate::types::error::ErrorChain;
use crate::types::sorted::{SortOnce, SortedMap};

pub(super) fn run(command: &Pods) -> ExitCode {
    let is_table = matches!(command.output, PodsOutput::Table | PodsOutput::Wide);
    match () {
        () if command.watch && !is_table => failed("pods: -w shows a table, leave out -o or use -o wide"),
        () if command.watch => watch(command),
        () => match entries(command).and_then(|entries| shown(entries, command, clock::now().unix_seconds())) {
            Ok(text) if is_table => print_painted(&text, colours::of_pods),
            Ok(text) => print(&text),
            Err(line) => failed(&line),
        },
    }
}

/// The requested pods, sorted.
fn entries(command: &Pods) -> Result<Vec<PodEntry>, String> {
    let response =
        get::<PodListResponse>(&command.local_socket, "/pods").map_err(|error| ErrorChain(&error).to_string())?;
    let entries = selected(response.pods, command);
    let missing = command.pods.iter().find(|wanted| !entries.iter().any(|entry| is_named(entry, wanted, command)));
    match missing {
        Some(name) if name.ends_with('/') => {
            Err(format!("no pods of {}; coracle pods lists all pods", name.trim_end_matches('/')))
        }
        Some(name) => Err(format!("no pod {name}; coracle pods lists all pods")),
        None => Ok(entries),
    }
}

fn selected(mut entries: Vec<PodEntry>, command: &Pods) -> Vec<PodEntry> {
    let namespace = command.namespace.as_deref().filter(|_| !command.all_namespaces);
    entries.retain(|entry| {
        namespace.is_none_or(|namespace| word(entry, "namespace") == namespace)
            && command.selector.as_ref().is_none_or(|selector| has_labels(entry, selector))
            && (command.pods.is_empty() || command.pods.iter().any(|name| is_named(entry, name, command)))
    });
    entries.sort_once_by_cached_key(|entry| (word(entry, "namespace"), word(entry, "name"), word(entry, "uid")));
    entries
}

fn word(entry: &PodEntry, key: &str) -> String {
    let metadata = entry.pod.get("metadata");
    metadata.and_then(|metadata| metadata.get(key)?.as_str()).unwrap_or_default().to_owned()
}

fn is_named(entry: &PodEntry, name: &str, command: &Pods) -> bool {
    let node = entry.pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    let name = PodName::new(name, command.namespace.as_deref());
    // The same binary wrote it.
    let is_owner = || decode::<Pod>(entry.pod.clone()).is_ok_and(|pod| name.is_owner_of(&pod.value));
    name.is(&word(entry, "namespace"), &word(entry, "name"), node) || is_owner()
}

fn has_labels(entry: &PodEntry, selector: &Selector) -> bool {
    let labels = entry.pod.pointer("/metadata/labels").cloned().unwrap_or_default();
    // The same binary wrote them.
    decode(labels).is_ok_and(|labels| selector.matches(&labels.value))
}

fn shown(entries: Vec<PodEntry>, command: &Pods, now: i64) -> Result<String, String> {
    Ok(match &command.output {
        PodsOutput::Table => rows(entries, false, now),
        PodsOutput::Wide => rows(entries, true, now),
        PodsOutput::Json => serde_json::to_string_pretty(&list(entries, command)).unwrap_or_default() + "\n",
        PodsOutput::Yaml => to_yaml(&list(entries, command)),
        PodsOutput::Name => entries.iter().map(|entry| format!("pod/{}\n", word(entry, "name"))).collect(),
        PodsOutput::JsonPath(path) => path.of(&list(entries, command)),
    })
}

/// Prints the table, then each row that changes. Ends with Ctrl-C.
fn watch(command: &Pods) -> ExitCode {
    let wide = matches!(command.output, PodsOutput::Wide);
    let mut shown: SortedMap<String, Vec<String>> = SortedMap::new();
    let mut has_head = false;
    loop {
        let entries = match entries(command) {
            Ok(entries) => entries,
            Err(line) => return failed(&line),
        };
        let uids: Vec<String> = entries.iter().map(|entry| word(entry, "uid")).collect();
        let (rows, _) = cells(entries, wide, clock::now().unix_seconds());
        let text = table(&rows);
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default();
        let mut news = if has_head { String::new() } else { format!("{head}\n") };
        has_head = true;
        for ((uid, row), line) in uids.iter().zip(rows.iter().skip(1)).zip(lines) {
            // The age always changes.
            let row: Vec<String> =
                row.iter().enumerate().filter(|(at, _)| *at != AGE_COLUMN).map(|(_, cell)| cell.clone()).collect();
            if shown.get(uid) != Some(&row) {
                news.extend([line, "\n"]);
                shown.insert(uid.clone(), row);
            }
        }
        let status = colours::column(&text, "STATUS").unwrap_or_default();
        if print_painted(&news, |news| colours::pod_rows(news, status)) != ExitCode::SUCCESS {
            return ExitCode::FAILURE;
        }
        thread::sleep(WATCH_INTERVAL);
    }
}

/// Index of the column AGE.
const AGE_COLUMN: usize = 5;

/// A `v1.List` of the pods; the pod itself if one was named.
fn list(entries: Vec<PodEntry>, command: &Pods) -> Value {
    let mut items: Vec<Value> = entries.into_iter().map(|entry| entry.pod).collect();
    if command.pods.len() == 1 && items.len() == 1 {
        return items.pop().unwrap_or_default();
    }
    json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items })
}

fn rows(entries: Vec<PodEntry>, wide: bool, now: i64) -> String {
    if entries.is_empty() {
        return "No pods.\n".to_owned();
    }
    let (rows, problems) = cells(entries, wide, now);
    let mut text = table(&rows);
    if !problems.is_empty() {
        text.push('\n');
        problems.iter().for_each(|line| text.extend([line, "\n"]));
    }
    text
}

/// The rows of the table with its head, and the lines below it.
fn cells(entries: Vec<PodEntry>, wide: bool, now: i64) -> (Vec<Vec<String>>, Vec<String>) {
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
        let status = match pod.annotation(UPDATE_HELD) {
            Some(held) => format!("{status} ({})", held.split(": ").next().unwrap_or_default()),
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
    (rows, problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::status::PodProblem;

    const NOW: i64 = 1_800_000_000;

    fn command(output: PodsOutput, namespace: Option<&str>) -> Pods {
        Pods {
            pods: Vec::new(),
            all_namespaces: false,
            output,
            selector: None,
            watch: false,
            namespace: namespace.map(str::to_owned),
            local_socket: "/c.sock".into(),
        }
    }

    fn shown(entries: Vec<PodEntry>, output: PodsOutput, namespace: Option<&str>, now: i64) -> String {
        let command = command(output, namespace);
        super::shown(selected(entries, &command), &command, now).unwrap()
    }

    fn entries() -> Vec<PodEntry> {
        let pod = |namespace: &str, name: &str| PodEntry {
            source: format!("file:/m/{name}.yaml"),
            pod: json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "namespace": namespace, "name": name, "uid": "u1" },
                "spec": { "containers": [{ "name": "c" }] },
                "status": { "phase": "Pending", "startTime": "2027-01-15T07:59:00Z" },
            }),
            ..PodEntry::default()
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

    #[test]
    fn names_and_paths_are_for_scripts() {
        assert_eq!(shown(entries(), PodsOutput::Name, None, NOW), "pod/c\npod/a\npod/b\n");
        let path = PodsOutput::JsonPath("{.items[*].metadata.namespace}".parse().unwrap());
        assert_eq!(shown(entries(), path, Some("x"), NOW), "x x");
    }

    #[test]
    fn named_pod_is_shown_itself() {
        let path = PodsOutput::JsonPath("{.metadata.name}".parse().unwrap());
        let command = Pods { pods: vec!["x/b".to_owned()], ..command(path, None) };
        assert_eq!(super::shown(selected(entries(), &command), &command, NOW).as_deref(), Ok("b"));
    }

    #[test]
    fn labels_select_pods() {
        let mut all = entries();
        all[1].pod["metadata"]["labels"] = json!({ "app": "web" });
        let command = Pods { selector: Some("app=web".parse().unwrap()), ..command(PodsOutput::Name, None) };
        assert_eq!(super::shown(selected(all, &command), &command, NOW).as_deref(), Ok("pod/a\n"));
    }

    #[test]
    fn all_namespaces_overrides_the_namespace() {
        let command = Pods { all_namespaces: true, ..command(PodsOutput::Name, Some("x")) };
        assert_eq!(selected(entries(), &command).len(), 3);
    }
}
