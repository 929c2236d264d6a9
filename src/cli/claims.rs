//! `coracle claims`: the claims that pods use, from the node's statistics.

use std::process::ExitCode;

use serde_json::Value;

use super::command_table::Claims;
use super::local_api::get;
use super::table::table;
use super::{failed, print};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortOnce;

pub(super) fn run(command: &Claims) -> ExitCode {
    match get::<Value>(&command.local_socket, "/stats/summary") {
        Ok(summary) => print(&rows(&summary, command.namespace.as_deref())),
        Err(error) => failed(&ErrorChain(&error).to_string()),
    }
}

fn rows(summary: &Value, namespace: Option<&str>) -> String {
    let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let list = |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut rows = Vec::new();
    for pod in list(summary, "pods") {
        for volume in list(&pod, "volume") {
            let (of, name) = (text(&volume, "/pvcRef/namespace"), text(&volume, "/pvcRef/name"));
            if name.is_empty() || namespace.is_some_and(|namespace| namespace != of) {
                continue;
            }
            let bytes = |key: &str| volume.get(key).and_then(Value::as_u64);
            let (used, capacity) = (bytes("usedBytes"), bytes("capacityBytes"));
            let is_over = used.zip(capacity).is_some_and(|(used, capacity)| used > capacity);
            let shown = |bytes: Option<u64>| bytes.map_or_else(|| "<unknown>".to_owned(), in_mebibytes);
            let used = [&*shown(used), if is_over { " (more than requested)" } else { "" }].concat();
            rows.push(vec![of, name, shown(capacity), used, text(&pod, "/podRef/name")]);
        }
    }
    if rows.is_empty() {
        return "No claims in use.\n".to_owned();
    }
    rows.sort_once();
    rows.insert(0, ["NAMESPACE", "NAME", "CAPACITY", "USED", "POD"].map(str::to_owned).to_vec());
    table(&rows)
}

/// Rounded up, so that a file never counts as nothing.
fn in_mebibytes(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_are_listed_with_their_use() {
        let volume = |name: &str, capacity: u64, used: u64| json!({"name": "v", "capacityBytes": capacity, "usedBytes": used, "pvcRef": {"name": name, "namespace": "a"}});
        let pod = |volumes: Vec<Value>| json!({"podRef": {"name": "db-0-n", "namespace": "a"}, "volume": volumes});
        let scratch = json!({"name": "scratch", "usedBytes": 1});
        let summary = json!({"pods": [pod(vec![volume("two", 1 << 20, 2 << 20), scratch, volume("one", 8 << 20, 1)])]});
        let expected = "\
NAMESPACE   NAME   CAPACITY   USED                        POD
a           one    8Mi        1Mi                         db-0-n
a           two    1Mi        2Mi (more than requested)   db-0-n
";
        assert_eq!(rows(&summary, None), expected);
        assert_eq!(rows(&summary, Some("b")), "No claims in use.\n");
    }
}
