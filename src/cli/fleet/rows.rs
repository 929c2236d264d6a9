//! The table of the fleet. Pure.

use crate::cli::fleet::board::Board;
use crate::cli::pod_row::age;
use crate::cli::table::table;
use crate::kubelet::node::{CERTIFICATE_ANNOTATIONS, HELD_ANNOTATION, SYNC_ANNOTATION};
use crate::types::timestamp::Timestamp;

/// A certificate is shown from so many seconds before its end: rotation begins much earlier.
const STALE_CERTIFICATE_SECONDS: i64 = 3 * 86_400;
/// Longest line of a verdict; wide shows all.
const MAX_VERDICT_CHARS: usize = 48;

pub(super) fn text(boards: &[Board], now: i64, is_wide: bool) -> String {
    if boards.is_empty() {
        return "No nodes.\n".to_owned();
    }
    let head = ["NAME", "STATUS", "VERSION", "CONTACT", "SYNCED", "TRIAL", "HELD", "PROBLEMS", "CERTIFICATES"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(boards.iter().map(|board| {
        let ago = |time: i64| age(now.saturating_sub(time).max(0));
        let shown = board.lease.filter(|_| board.has_long_lease() || is_wide);
        let length = shown.map(|lease| format!(" (lease {})", age(lease.seconds))).unwrap_or_default();
        vec![
            board.name.clone(),
            board.status(now).to_owned(),
            or_dash(board.version.clone()),
            board.lease.map_or_else(|| "<none>".to_owned(), |lease| ago(lease.renewed) + &length),
            board.reported.map_or_else(|| "<none>".to_owned(), ago) + &sync(board),
            or_dash(trial(board, is_wide)),
            or_dash(board.annotation(HELD_ANNOTATION).to_owned()),
            or_dash(board.problems.join(",")),
            or_dash(certificates(board, now, is_wide)),
        ]
    }));
    table(&rows)
}

/// `poll 15m0s`, unless the node watches.
fn sync(board: &Board) -> String {
    match board.annotation(SYNC_ANNOTATION) {
        "" => String::new(),
        mode => format!(" ({mode})"),
    }
}

/// The end of the last trial of a program or a configuration, without its last words.
fn trial(board: &Board, is_wide: bool) -> String {
    let Some((is_accepted, message)) = &board.verdict else { return String::new() };
    let word = if *is_accepted { "accepted" } else { "rejected" };
    let subject = message.split(" accepted").next().unwrap_or_default();
    match (is_accepted, is_wide) {
        (_, true) => message.clone(),
        (true, false) => format!("{word}: {}", shortened(subject)),
        (false, false) => {
            let reason = message.split_once("rejected: ").map_or(message.as_str(), |(_, reason)| reason);
            format!("{word}: {}", shortened(reason))
        }
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_VERDICT_CHARS) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned() + "...",
        None => text.to_owned(),
    }
}

/// Those that have expired or soon will; all in the wide table.
fn certificates(board: &Board, now: i64, is_wide: bool) -> String {
    let shown = ["client", "serving"].into_iter().zip(CERTIFICATE_ANNOTATIONS).filter_map(|(kind, annotation)| {
        let end = board.annotation(annotation);
        let lifetime_left = end.parse::<Timestamp>().ok()?.as_second().saturating_sub(now);
        match lifetime_left {
            ..=0 => Some(format!("{kind} expired {} ago", age(lifetime_left.saturating_neg()))),
            _ if is_wide || lifetime_left < STALE_CERTIFICATE_SECONDS => {
                Some(format!("{kind} {} left", age(lifetime_left)))
            }
            _ => None,
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fleet::board::BoardLease;

    fn board(name: &str, renewed: i64, seconds: i64) -> Board {
        Board {
            name: name.to_owned(),
            version: "0.2.0".to_owned(),
            is_ready: true,
            reported: Some(renewed),
            lease: Some(BoardLease { renewed, seconds }),
            ..Board::default()
        }
    }

    #[test]
    fn table_shows_contact_trials_and_what_is_wrong() {
        let now = 1_000_000;
        let mut rejected = board("b2", now - 9, 40);
        rejected.verdict =
            Some((false, "version 3 (cd) rejected: no verdict in 3 starts; the former one runs".to_owned()));
        rejected.problems = vec!["ClockUnset".to_owned()];
        let expired = Timestamp::from_second(now - 7200).unwrap().to_string();
        rejected.annotations.insert("coracle.dev/client-certificate-expires".to_owned(), expired);
        rejected.annotations.insert("coracle.dev/held".to_owned(), "default/web".to_owned());
        let mut asleep = board("b3", now - 86_400, 3600);
        asleep.annotations.insert("coracle.dev/sync".to_owned(), "poll 15m0s".to_owned());
        let mut accepted = board("b1", now - 4, 40);
        accepted.verdict = Some((true, "version 2 (ab) accepted".to_owned()));
        let later = Timestamp::from_second(now + 30 * 86_400).unwrap().to_string();
        accepted.annotations.insert("coracle.dev/serving-certificate-expires".to_owned(), later);
        let boards = [accepted, rejected, asleep];
        let shown = text(&boards, now, false);
        let lines: Vec<String> = shown
            .lines()
            .map(|line| line.split("   ").map(str::trim).filter(|c| !c.is_empty()).collect::<Vec<_>>().join("|"))
            .collect();
        assert_eq!(lines[0], "NAME|STATUS|VERSION|CONTACT|SYNCED|TRIAL|HELD|PROBLEMS|CERTIFICATES");
        assert_eq!(lines[1], "b1|Ready|0.2.0|4s|4s|accepted: version 2 (ab)|-|-|-");
        assert_eq!(
            lines[2],
            "b2|Ready|0.2.0|9s|9s|rejected: no verdict in 3 starts; the former one runs|default/web|ClockUnset|client expired 120m ago"
        );
        assert_eq!(lines[3], "b3|Asleep|0.2.0|24h (lease 60m)|24h (poll 15m0s)|-|-|-|-");
        let wide = text(&boards, now, true);
        assert!(wide.contains("serving 30d left") && wide.contains("(lease 40s)"), "{wide}");
        assert_eq!(text(&[], now, false), "No nodes.\n");
    }

    #[test]
    fn long_reason_is_cut_at_a_character() {
        let mut long = board("b", 0, 40);
        long.verdict = Some((false, format!("x rejected: {}", "\u{e9}".repeat(60))));
        assert_eq!(trial(&long, false), format!("rejected: {}...", "\u{e9}".repeat(MAX_VERDICT_CHARS)));
    }
}
