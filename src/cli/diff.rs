//! `coracle diff`: what an apply would change.

use std::path::PathBuf;
use std::process::ExitCode;

use super::apply::{all_parts, stored};
use super::command_table::Diff;
use super::{complain, print};

/// Ends with 0 if nothing differs, 1 if something does, and 3 on an error.
pub(super) fn run(command: &Diff) -> ExitCode {
    let trouble = |line: &str| {
        complain(line);
        ExitCode::from(DIFF_TROUBLE_STATUS)
    };
    let files: Vec<PathBuf> = command.filename.iter().chain(&command.files).cloned().collect();
    let parts = match all_parts(&files) {
        Ok(parts) => parts,
        Err(line) => return trouble(&line),
    };
    let mut text = String::new();
    for part in parts {
        let before = match stored(&command.local_socket, &part) {
            Ok(before) => before.unwrap_or_default(),
            Err(line) => return trouble(&line),
        };
        let (before, after) = (String::from_utf8_lossy(&before), String::from_utf8_lossy(&part.body));
        text.push_str(&difference(&format!("{} {}/{}", part.kind, part.namespace, part.name), &before, &after));
    }
    let is_same = text.is_empty();
    match print(&text) {
        ExitCode::SUCCESS if is_same => ExitCode::SUCCESS,
        ExitCode::SUCCESS => ExitCode::FAILURE,
        _ => ExitCode::from(DIFF_TROUBLE_STATUS),
    }
}

/// The lines that differ, with the lines around them; empty if none does.
fn difference(name: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let lines = edits(&before.lines().collect::<Vec<_>>(), &after.lines().collect::<Vec<_>>());
    let mut text = format!("--- {name}, applied\n+++ {name}, in the file\n");
    let is_near = |at: usize| {
        let around =
            lines.get(at.saturating_sub(CONTEXT_LINES)..lines.len().min(at + CONTEXT_LINES + 1)).unwrap_or_default();
        around.iter().any(|(sign, _)| *sign != ' ')
    };
    let mut was_near = true;
    for (at, (sign, line)) in lines.iter().enumerate() {
        let is_near = is_near(at);
        if is_near && !was_near {
            text.push_str("...\n");
        }
        if is_near {
            text.push_str(&format!("{sign}{line}\n"));
        }
        was_near = is_near;
    }
    text
}

/// 2 is a usage error.
const DIFF_TROUBLE_STATUS: u8 = 3;
/// Lines around a change.
const CONTEXT_LINES: usize = 3;

/// The lines of both texts in order: ` ` in both, `-` only before, `+` only after.
fn edits<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<(char, &'a str)> {
    let same_head = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let (head, before) = before.split_at_checked(same_head).unwrap_or((&[], before));
    let after = after.get(same_head..).unwrap_or_default();
    let same_tail = before.iter().rev().zip(after.iter().rev()).take_while(|(one, other)| one == other).count();
    let (before, tail) = before.split_at_checked(before.len().saturating_sub(same_tail)).unwrap_or((before, &[]));
    let after = after.get(..after.len().saturating_sub(same_tail)).unwrap_or_default();
    let middle = if before.len().saturating_mul(after.len()) > MAX_DIFF_CELLS {
        before.iter().map(|line| ('-', *line)).chain(after.iter().map(|line| ('+', *line))).collect()
    } else {
        middle(before, after)
    };
    let same = |lines: &[&'a str]| lines.iter().map(|line| (' ', *line)).collect::<Vec<_>>();
    [same(head), middle, same(tail)].concat()
}

/// A longer change is shown as a whole.
const MAX_DIFF_CELLS: usize = 4_000_000;

/// By a longest common subsequence.
fn middle<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<(char, &'a str)> {
    // The row for each line of `before`: the length of the longest common subsequence of the rests.
    let mut rows: Vec<Vec<u32>> = vec![vec![0; after.len() + 1]];
    for one in before.iter().rev() {
        let below = rows.last().cloned().unwrap_or_default();
        let mut row = vec![0; after.len() + 1];
        let mut right = 0;
        let cells = row.iter_mut().zip(&below).zip(below.iter().skip(1)).zip(after).rev();
        for (((cell, down), diagonal), other) in cells {
            *cell = if one == other { diagonal + 1 } else { (*down).max(right) };
            right = *cell;
        }
        rows.push(row);
    }
    let length =
        |from_end: usize, column: usize| rows.get(from_end).and_then(|row| row.get(column)).copied().unwrap_or(0);
    let (mut one, mut other) = (0, 0);
    let mut lines = Vec::new();
    loop {
        match (before.get(one), after.get(other)) {
            (Some(left), Some(right)) if left == right => {
                lines.push((' ', *left));
                (one, other) = (one + 1, other + 1);
            }
            (Some(left), right) => {
                let rest = before.len().saturating_sub(one);
                if let Some(right) = right.filter(|_| length(rest, other + 1) > length(rest.saturating_sub(1), other)) {
                    lines.push(('+', *right));
                    other += 1;
                } else {
                    lines.push(('-', *left));
                    one += 1;
                }
            }
            (None, Some(right)) => {
                lines.push(('+', *right));
                other += 1;
            }
            (None, None) => return lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_shown_with_their_surroundings() {
        let before = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n";
        let after = before.replace("b\n", "B\n").replace("k\n", "");
        let expected = "\
--- pod default/web, applied
+++ pod default/web, in the file
 a
-b
+B
 c
 d
 e
...
 h
 i
 j
-k
 l
";
        assert_eq!(difference("pod default/web", before, &after), expected);
        assert_eq!(difference("x", before, before), "");
        assert!(difference("x", "", "a\n").ends_with("\n+a\n"));
    }

    #[test]
    fn edits_of_all_small_texts_give_both_texts() {
        let texts = ["", "a", "b", "a b", "b a", "a b a", "b b", "c a b", "a c b a"];
        for before in texts {
            for after in texts {
                let words = |text: &'static str| text.split_whitespace().collect::<Vec<_>>();
                let lines = edits(&words(before), &words(after));
                let side = |left_out: char| {
                    lines.iter().filter(|(sign, _)| *sign != left_out).map(|(_, line)| *line).collect::<Vec<_>>()
                };
                assert_eq!((side('+'), side('-')), (words(before), words(after)));
            }
        }
    }
}
