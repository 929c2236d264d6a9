//! `coracle sync`: synchronizes with the cluster now, in any sync mode.

use std::process::ExitCode;
use std::time::Duration;

use super::command_table::Sync;
use super::local_api::{change_within, decoded};
use super::status::si_bytes;
use super::{failed, print};
use crate::control::server::{ExchangeStatus, SyncStatus};

/// Longer than the agent's own timeout.
const SYNC_COMMAND_TIMEOUT: Duration = Duration::from_secs(11 * 60);

pub(super) fn run(command: &Sync) -> ExitCode {
    let path = if command.wait { "/sync?wait=true" } else { "/sync" };
    let response = match change_within(SYNC_COMMAND_TIMEOUT, &command.local_socket, "POST", path, &[]) {
        Ok(response) => response,
        Err(refused) => return failed(&refused.line()),
    };
    match decoded::<SyncStatus>(response) {
        Ok(status) => match summary(&status, command.wait) {
            Ok(line) => print(&line),
            Err(line) => failed(&line),
        },
        Err(error) => failed(&format!("invalid answer from the agent: {error}")),
    }
}

fn summary(status: &SyncStatus, waited: bool) -> Result<String, String> {
    let last = match (&status.last, waited) {
        _ if status.open => {
            // In mode watch, or inside a sync window.
            return Ok(format!("nothing to do: in mode {} changes are exchanged immediately\n", status.mode));
        }
        (Some(last), true) => last,
        _ => return Ok("sync started, see coracle status\n".to_owned()),
    };
    if last.message.is_empty() { Ok(exchanged(last) + "\n") } else { Err(last.message.clone()) }
}

pub(super) fn exchanged(last: &ExchangeStatus) -> String {
    let answered = if last.answered.is_empty() { "nothing".to_owned() } else { last.answered.join(", ") };
    let failed = if last.failed > 0 { format!(", {} without success", last.failed) } else { String::new() };
    let (sent, received) = (si_bytes(last.sent_bytes), si_bytes(last.received_bytes));
    format!("{answered}{failed}; {sent} sent, {received} received")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchange_is_summarized_and_its_failure_is_an_error() {
        let last = ExchangeStatus {
            answered: vec!["leases: 1".to_owned(), "events: 3".to_owned()],
            sent_bytes: 950,
            received_bytes: 4200,
            ..ExchangeStatus::default()
        };
        let mut status = SyncStatus { mode: "manual".to_owned(), last: Some(last), ..SyncStatus::default() };
        let line = "leases: 1, events: 3; 950 B sent, 4.2 kB received\n";
        assert_eq!(summary(&status, true).as_deref(), Ok(line));
        assert_eq!(summary(&status, false).as_deref(), Ok("sync started, see coracle status\n"));
        status.last = Some(ExchangeStatus { message: "refused".to_owned(), failed: 2, ..ExchangeStatus::default() });
        assert_eq!(summary(&status, true), Err("refused".to_owned()));
        (status.open, status.mode) = (true, "watch".to_owned());
        let line = "nothing to do: in mode watch changes are exchanged immediately\n";
        assert_eq!(summary(&status, true).as_deref(), Ok(line));
    }
}
