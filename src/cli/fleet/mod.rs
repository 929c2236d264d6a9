//! `coracle fleet`: the nodes of the cluster, as the API server shows them.

mod board;
mod operator;
mod rows;

use std::collections::HashMap;
use std::process::ExitCode;

use serde_json::json;

use super::command_table::Fleet;
use super::outputs::PodsOutput;
use super::{failed, print};
use crate::platform::apiserver::ApiError;
use crate::platform::host::clock;
use crate::platform::rt;
use crate::types::api::to_yaml;

use crate::types::sorted::SortOnce;
pub(super) use board::{Board, BoardLease, seconds, text};
pub(super) use operator::{Operator, failure};

pub(super) fn run(command: &Fleet) -> ExitCode {
    let mut operator = Operator::new(command.kubeconfig.as_deref(), command.context.as_deref());
    let selector = command.selector.as_ref().map(ToString::to_string).unwrap_or_default();
    let boards = match rt::block_on(boards(&mut operator, &selector)) {
        Ok(boards) => boards,
        Err(error) => return failed(&failure("fleet", &error)),
    };
    if command.traffic {
        eprint_line(&operator.cost());
    }
    let now = clock::now().unix_seconds();
    let list = || json!({ "boards": boards.iter().map(|board| board.to_json(now)).collect::<Vec<_>>() });
    print(&match &command.output {
        PodsOutput::Table => rows::text(&boards, now, false),
        PodsOutput::Wide => rows::text(&boards, now, true),
        PodsOutput::Json => format!("{:#}\n", list()),
        PodsOutput::Yaml => to_yaml(&list()),
        PodsOutput::Name => boards.iter().map(|board| format!("node/{}\n", board.name)).collect(),
        PodsOutput::JsonPath(path) => path.of(&list()),
    })
}

/// The nodes that the selector matches, by name, with their leases.
pub(super) async fn boards(operator: &mut Operator, selector: &str) -> Result<Vec<Board>, ApiError> {
    let mut boards: Vec<Board> = Vec::new();
    let mut each = |node: Option<&serde_json::Value>| match node {
        Some(node) => boards.extend(Board::of_node(node)),
        None => boards.clear(),
    };
    operator.list("/api/v1/nodes", selector, &mut each).await?;
    // A lease has no labels of its node: all leases, in pages, cost less than a request for each board.
    let mut leases = HashMap::new();
    let mut each = |lease: Option<&serde_json::Value>| match lease {
        Some(lease) => leases.extend(BoardLease::of_lease(lease)),
        None => leases.clear(),
    };
    operator.list("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", "", &mut each).await?;
    for board in &mut boards {
        board.lease = leases.get(&board.name).copied();
    }
    boards.sort_once_by(|a, b| a.name.cmp(&b.name));
    Ok(boards)
}

/// Beside the output of the command. A failed write is ignored.
pub(super) fn eprint_line(line: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
