//! `coracle apply`: stores pods and workloads on this node and runs them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::command_table::Apply;
use super::local_api::{RequestFailure, change, fetch, pod_path};
use super::manifest_files::read_all;
use super::{complain, failed, print};
use crate::control::pod_sources::static_pod::{Object, Origin, WorkloadPods, read_manifest};
use crate::state::objects::{ConfigObject, ObjectKey, references};
use crate::state::pods::SourceName;
use crate::types::api::{ObjectMeta, Pod, yaml};
use crate::types::sorted::SortedSet;

pub(super) fn run(command: &Apply) -> ExitCode {
    let files: Vec<PathBuf> = command.filename.iter().chain(&command.files).cloned().collect();
    // All files are parsed before the first pod is sent, so that a mistake changes nothing.
    let all = match all_parts(&files) {
        Ok(all) => all,
        Err(line) => return failed(&line),
    };
    let mut code = ExitCode::SUCCESS;
    for part in all {
        let pod = format!("{} {}/{}", part.kind, part.namespace, part.name);
        let done =
            if command.dry_run { would_do(&command.local_socket, &part) } else { put(&command.local_socket, &part) };
        match done {
            Ok((result, warnings)) => {
                warnings.iter().for_each(|warning| complain(&format!("{pod}: warning: {warning}")));
                if print(&format!("{pod} {result}\n")) != ExitCode::SUCCESS {
                    return ExitCode::FAILURE;
                }
            }
            Err(line) => {
                // The agent's message may already name the pod.
                complain(&if line.contains(&pod) { line } else { format!("{pod}: {line}") });
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// The pods of all files, or a line about the first file that cannot be used.
pub(super) fn all_parts(files: &[PathBuf]) -> Result<Vec<Part>, String> {
    let mut all = Vec::new();
    for file in read_all(files) {
        // A backup beside the manifests is not meant.
        if file.is_skipped && files.iter().all(|path| path.display().to_string() != file.name) {
            complain(&format!("{}: skipped: its name is that of a backup or a temporary file", file.name));
            continue;
        }
        let text = file.text.map_err(|error| format!("{}: {error}", file.name))?;
        all.extend(parts(&text).map_err(|why| format!("{}: {why}", file.name))?);
    }
    Ok(all)
}

/// What was done, and the agent's warnings.
fn put(socket: &Path, Part { namespace, name, body, .. }: &Part) -> Result<(String, Vec<String>), String> {
    let response = change(socket, "PUT", &pod_path(namespace, name, ""), body).map_err(RequestFailure::line)?;
    let warnings = response.get("warnings").and_then(Value::as_array).into_iter().flatten();
    let warnings = warnings.filter_map(Value::as_str).map(str::to_owned).collect();
    Ok((response.get("result").and_then(Value::as_str).unwrap_or("put").to_owned(), warnings))
}

/// What an apply would do.
fn would_do(socket: &Path, part: &Part) -> Result<(String, Vec<String>), String> {
    let result = match stored(socket, part)? {
        None => "created",
        Some(stored) if stored == part.body => "unchanged",
        Some(_) => "changed",
    };
    Ok((format!("{result} (dry run)"), Vec::new()))
}

/// The manifest as it was applied last; `None` if it was not.
pub(super) fn stored(socket: &Path, Part { namespace, name, .. }: &Part) -> Result<Option<Vec<u8>>, String> {
    match fetch(socket, &pod_path(namespace, name, "")) {
        Ok(body) => Ok(Some(body)),
        Err(RequestFailure::Missing(_)) => Ok(None),
        Err(other) => Err(other.line()),
    }
}

/// A pod or a workload with the ConfigMaps and Secrets that it uses, and the Services that lead to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// `pod`, or the kind of a workload.
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) body: Vec<u8>,
}

/// A text with a single pod is sent unchanged; several pods are split, each with the objects it uses.
fn parts(text: &[u8]) -> Result<Vec<Part>, String> {
    let origin = Origin {
        source: SourceName::Local,
        path: "",
        node_name: PLACEHOLDER_NODE_NAME,
        config_seen: "",
        board_key: None,
    };
    let objects = read_manifest(text, &origin).map_err(|error| error.to_string())?;
    let problems: Vec<String> = objects.iter().filter_map(|object| object.problem()).collect();
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    let objects: Vec<Object> = objects.into_iter().filter_map(|object| object.object.ok()).collect();
    let pods = objects.iter().filter(|object| !matches!(object, Object::Config(_))).count();
    let values = if pods > 1 { values(text)? } else { Vec::new() };
    let mut used: SortedSet<ObjectKey> = SortedSet::new();
    let mut parts = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let Some(Subject { kind, namespace, name, pods: its_pods }) = Subject::of(object) else { continue };
        let body = if pods == 1 {
            text.to_vec()
        } else {
            let keys: SortedSet<ObjectKey> = its_pods.iter().flat_map(references).collect();
            let leads_here = |config: &ConfigObject| its_pods.iter().any(|pod| config.leads_to(&pod.metadata));
            let goes_with = |other: &Object| match other {
                Object::Config(config) if keys.contains(&config.key) || leads_here(config) => Some(config.key.clone()),
                Object::Agent(_) | Object::Config(_) | Object::Pod(_) | Object::Workload(_) => None,
            };
            let with = objects.iter().zip(&values).filter(|(other, _)| goes_with(other).is_some());
            let items: Vec<&Value> = values.get(index).into_iter().chain(with.map(|(_, value)| value)).collect();
            used.extend(objects.iter().filter_map(goes_with));
            json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string().into_bytes()
        };
        parts.push(Part { kind, namespace: namespace.to_owned(), name: name.to_owned(), body });
    }
    let unused = objects.iter().find_map(|object| match object {
        Object::Config(config) if pods > 1 && !used.contains(&config.key) => Some(&config.key),
        Object::Agent(_) | Object::Config(_) | Object::Pod(_) | Object::Workload(_) => None,
    });
    match unused {
        Some(key) => Err(format!("no Pod in the file uses {key}, define it together with the Pod that does")),
        None if parts.is_empty() => {
            Err("no Pod in the file; ConfigMaps, Secrets and Services need a Pod or a workload that uses them"
                .to_owned())
        }
        None => Ok(parts),
    }
}

/// An object that is stored with the objects that it uses.
struct Subject<'a> {
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    pods: &'a [Pod],
}

impl<'a> Subject<'a> {
    fn of(object: &'a Object) -> Option<Self> {
        match object {
            Object::Agent(_) | Object::Config(_) => None,
            Object::Pod(pod) => {
                let ObjectMeta { namespace, name, .. } = &pod.metadata;
                let name = name.strip_suffix(&format!("-{PLACEHOLDER_NODE_NAME}")).unwrap_or(name);
                Some(Self { kind: "pod", namespace, name, pods: std::slice::from_ref(&**pod) })
            }
            Object::Workload(workload) => {
                let WorkloadPods { kind, namespace, name, pods, .. } = &**workload;
                Some(Self { kind: kind.as_str(), namespace, name, pods })
            }
        }
    }
}

/// The objects of a text in order, each with its apiVersion and kind.
fn values(text: &[u8]) -> Result<Vec<Value>, String> {
    let mut values = Vec::new();
    for document in yaml::parse(text).map_err(|error| error.to_string())? {
        let kind = document.value.get("kind").and_then(Value::as_str);
        let is_pods = kind == Some("PodList");
        if !is_pods && kind != Some("List") {
            values.push(document.value);
            continue;
        }
        let items = document.value.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        values.extend(items.into_iter().map(|mut item| {
            if let Some(item) = item.as_object_mut().filter(|_| is_pods) {
                item.entry("kind").or_insert_with(|| Value::from("Pod"));
                item.entry("apiVersion").or_insert_with(|| Value::from("v1"));
            }
            item
        }));
    }
    Ok(values)
}

/// A placeholder: the agent reads the manifest with its own node name.
const PLACEHOLDER_NODE_NAME: &str = "n";

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, more: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: c, image: i{more}}}]\n"
        )
    }

    fn config(name: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: b}}\n")
    }

    fn uses(name: &str) -> String {
        format!(", envFrom: [{{configMapRef: {{name: {name}}}}}]")
    }

    #[test]
    fn single_pod_is_sent_as_written() {
        let text = format!("# mine\n{}---\n{}", pod("web", ""), config("x"));
        let part = Part {
            kind: "pod",
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            body: text.clone().into_bytes(),
        };
        assert_eq!(parts(text.as_bytes()), Ok(vec![part]));
    }

    #[test]
    fn each_pod_takes_the_objects_it_uses() {
        let list = pod("two", &uses("x")).lines().map(|line| format!("  {line}\n")).collect::<String>();
        let list = format!("apiVersion: v1\nkind: List\nitems:\n- {}", list.trim_start());
        let text = [pod("one", &uses("x")), config("x"), list, config("own"), pod("three", &uses("own"))].join("---\n");
        let put: Vec<(String, Vec<String>)> = parts(text.as_bytes())
            .unwrap()
            .into_iter()
            .map(|part| {
                let body: Value = serde_json::from_slice(&part.body).unwrap();
                let items = body["items"].as_array().unwrap();
                (part.name, items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect())
            })
            .collect();
        let expected = [("one", ["one", "x"]), ("two", ["two", "x"]), ("three", ["three", "own"])];
        assert_eq!(put, expected.map(|(name, items)| (name.to_owned(), items.map(str::to_owned).to_vec())));
        // Each part is a valid manifest.
        for part in parts(text.as_bytes()).unwrap() {
            assert_eq!(parts(&part.body).unwrap(), [part]);
        }
    }

    #[test]
    fn service_goes_with_each_pod_that_it_leads_to() {
        let labelled = |name: &str| pod(name, "").replace("{name: ", "{labels: {app: web}, name: ");
        let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {app: web}}\n";
        let text = [service, &labelled("a"), &labelled("b"), &pod("c", "")].join("---\n");
        let with: Vec<bool> = parts(text.as_bytes())
            .unwrap()
            .iter()
            .map(|part| String::from_utf8_lossy(&part.body).contains("\"Service\""))
            .collect();
        assert_eq!(with, [true, true, false]);
    }

    #[test]
    fn file_that_cannot_be_applied_is_refused_before_sending() {
        for (text, why) in [
            (
                config("x"),
                "no Pod in the file; ConfigMaps, Secrets and Services need a Pod or a workload that uses them",
            ),
            (
                String::new(),
                "no Pod in the file; ConfigMaps, Secrets and Services need a Pod or a workload that uses them",
            ),
            (
                [pod("a", ""), pod("b", ""), config("x")].join("---\n"),
                "no Pod in the file uses ConfigMap default/x, define it together with the Pod that does",
            ),
            (
                [pod("a", ""), "kind: Ingress\napiVersion: v1\n".to_owned()].join("---\n"),
                "document 2 (line 6): kind Ingress: a manifest has Pods, ConfigMaps, Secrets, Services, claims and workloads",
            ),
        ] {
            assert_eq!(parts(text.as_bytes()), Err(why.to_owned()));
        }
    }
}
