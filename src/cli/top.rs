//! `coracle top`.

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::command_table::Top;
use super::failed;
use super::local_api::{LocalApiError, get};
use super::outputs::TopOutput;
use super::table::table;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortOnce;

pub(super) fn run(command: &Top) -> ExitCode {
    loop {
        let summary = match measured(&command.local_socket, command.output) {
            Ok(summary) => summary,
            Err(error) => return failed(&ErrorChain(&error).to_string()),
        };
        let text = match command.output {
            TopOutput::Table => rows(&summary, command.namespace.as_deref()),
            TopOutput::Json => serde_json::to_string_pretty(&summary).unwrap_or_default() + "\n",
        };
        let text = if command.watch && io::stdout().is_terminal() { [CLEAR, &text].concat() } else { text };
        match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return failed(&format!("write to stdout: {error}")),
            Ok(()) if command.watch => thread::sleep(TOP_REPEAT_INTERVAL),
            _ => return ExitCode::SUCCESS,
        }
    }
}

/// CPU usage needs two samples: without an earlier one, a second is taken.
fn measured(socket: &Path, output: TopOutput) -> Result<Value, LocalApiError> {
    let page = match output {
        TopOutput::Table => "/stats/summary?only_cpu_and_memory=true",
        TopOutput::Json => "/stats/summary",
    };
    let summary: Value = get(socket, page)?;
    let is_known = |cpu: &Value| cpu.get("usageNanoCores").is_some();
    if summary.pointer("/node/cpu").is_none_or(is_known) {
        return Ok(summary);
    }
    thread::sleep(TOP_SAMPLE_INTERVAL);
    get(socket, page)
}

/// The node, and its pods sorted by namespace and name.
fn rows(summary: &Value, namespace: Option<&str>) -> String {
    let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_u64);
    let cpu = |value: &Value| number(value, "/cpu/usageNanoCores").map_or_else(unknown, millicores);
    let memory = |value: &Value| number(value, "/memory/workingSetBytes").map_or_else(unknown, bytes);
    let nothing = Value::Null;
    let node = summary.get("node").unwrap_or(&nothing);
    let share = number(node, "/memory/workingSetBytes").zip(number(node, "/memory/availableBytes"));
    let percent =
        share.and_then(|(used, available)| used.saturating_mul(100).checked_div(used.saturating_add(available)));
    let head = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let of_node = vec![
        head(&["NODE", "CPU", "MEMORY", "MEMORY%"]),
        vec![
            text(node, "/nodeName"),
            cpu(node),
            memory(node),
            percent.map_or_else(unknown, |percent| format!("{percent}%")),
        ],
    ];
    let pods = summary.get("pods").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let row = |pod: &Value| vec![text(pod, "/podRef/namespace"), text(pod, "/podRef/name"), cpu(pod), memory(pod)];
    let mut of_pods: Vec<_> = pods.iter().map(row).collect();
    of_pods.retain(|row| namespace.is_none_or(|namespace| row.first().is_some_and(|first| first == namespace)));
    of_pods.sort_once();
    let of_pods = if of_pods.is_empty() {
        "No pods.\n".to_owned()
    } else {
        of_pods.insert(0, head(&["NAMESPACE", "NAME", "CPU", "MEMORY"]));
        table(&of_pods)
    };
    [&table(&of_node), "\n", &of_pods].concat()
}

fn unknown() -> String {
    "<unknown>".to_owned()
}

/// Rounded up like kubectl, so that a running container never shows zero.
fn millicores(nanos: u64) -> String {
    format!("{}m", nanos.div_ceil(1_000_000))
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0x10_0000.. => format!("{}Mi", bytes >> 20),
        _ => format!("{}Ki", bytes >> 10),
    }
}

const CLEAR: &str = "\x1b[H\x1b[2J";
const TOP_REPEAT_INTERVAL: Duration = Duration::from_secs(3);
/// Longer than the agent's minimum time between two samples.
const TOP_SAMPLE_INTERVAL: Duration = Duration::from_millis(1100);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary() -> Value {
        let pod = |namespace: &str, name: &str, nanos: u64| {
            json!({
                "podRef": { "namespace": namespace, "name": name },
                "cpu": { "usageNanoCores": nanos },
                "memory": { "workingSetBytes": 258_048 },
            })
        };
        json!({
            "node": {
                "nodeName": "n1",
                "cpu": { "usageNanoCores": 1_168_816_391u64 },
                "memory": { "workingSetBytes": 1u64 << 30, "availableBytes": 3u64 << 30 },
            },
            "pods": [pod("x", "b", 0), pod("default", "c", 1), json!({ "podRef": { "namespace": "x", "name": "a" } })],
        })
    }

    #[test]
    fn node_is_above_its_pods() {
        let text = "\
NODE   CPU     MEMORY   MEMORY%
n1     1169m   1024Mi   25%

NAMESPACE   NAME   CPU         MEMORY
default     c      1m          252Ki
x           a      <unknown>   <unknown>
x           b      0m          252Ki
";
        assert_eq!(rows(&summary(), None), text);
        assert!(rows(&summary(), Some("default")).ends_with("MEMORY\ndefault     c      1m    252Ki\n"));
        assert!(rows(&summary(), Some("y")).ends_with("\n\nNo pods.\n"));
    }

    #[test]
    fn empty_answer_shows_placeholders() {
        let text = "NODE   CPU         MEMORY      MEMORY%\n       <unknown>   <unknown>   <unknown>\n\nNo pods.\n";
        assert_eq!(rows(&Value::Null, None), text);
    }
}
