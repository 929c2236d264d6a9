//! Colours of the state words that commands print on a terminal. Pure.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    /// On its way, or in need of attention.
    Doubtful,
    Bad,
}

/// What stands before the state word of a line, the word, and its tone.
type Painted<'a> = Option<(&'a str, &'a str, Tone)>;

/// The table of `coracle pods`.
pub(super) fn of_pods(text: &str) -> String {
    let Some(column) = column(text, "STATUS") else { return text.to_owned() };
    pod_rows(text, column)
}

/// Rows of this table whose head has been printed before.
pub(super) fn pod_rows(rows: &str, column: usize) -> String {
    let (table, below) = rows.split_once("\n\n").map_or((rows, None), |(table, below)| (table, Some(below)));
    let mut text = paint(table, |line| {
        let (before, word) = cell(line, column)?;
        let is_ready = line.split_whitespace().nth(2).and_then(|ready| ready.split_once('/'));
        Some((before, word, pod_tone(word, is_ready.is_some_and(|(ready, all)| ready == all))?))
    });
    if let Some(below) = below {
        text.extend(["\n\n", below]);
    }
    text
}

fn pod_tone(state: &str, is_ready: bool) -> Option<Tone> {
    match state.strip_prefix("Init:").unwrap_or(state) {
        "STATUS" | "Completed" | "Stopped" | "Succeeded" => None,
        "Running" if is_ready => Some(Tone::Good),
        "ContainerCreating" | "NotReady" | "Pending" | "PodInitializing" | "Running" | "Terminating" => {
            Some(Tone::Doubtful)
        }
        state if state.starts_with(|c: char| c.is_ascii_digit()) => Some(Tone::Doubtful),
        _ => Some(Tone::Bad),
    }
}

/// The table of `coracle events`: warnings stand out.
pub(super) fn of_events(text: &str) -> String {
    let Some(column) = column(text, "TYPE") else { return text.to_owned() };
    event_rows(text, column)
}

/// Rows of this table whose head has been printed before.
pub(super) fn event_rows(rows: &str, column: usize) -> String {
    paint(rows, |line| {
        let (before, word) = cell(line, column)?;
        (word == "Warning").then_some((before, word, Tone::Doubtful))
    })
}

/// `coracle status`: health, network and runtime.
pub(super) fn of_status(text: &str) -> String {
    paint(text, |line| {
        let (label, state) = line.split_at_checked(10)?;
        let not_ready = |before| Some((before, "not ready", Tone::Bad));
        match label {
            "Health:   " => {
                let word = state.split(',').next()?;
                let tone = match word {
                    "ok" => Tone::Good,
                    "degraded" => Tone::Doubtful,
                    _ => Tone::Bad,
                };
                Some((label, word, tone))
            }
            "Network:  " if state == "ready" => Some((label, state, Tone::Good)),
            "Network:  " => not_ready(label),
            "Runtime:  " => match line.strip_suffix("ready").filter(|before| before.ends_with(", ")) {
                Some(before) => Some((before, "ready", Tone::Good)),
                None => not_ready(line.split("not ready").next().filter(|before| before.len() < line.len())?),
            },
            _ => None,
        }
    })
}

/// `coracle doctor`: the verdict at the start of each line.
pub(super) fn of_doctor(text: &str) -> String {
    paint(text, |line| {
        let word = first_word(line);
        let tone = match word {
            "ok" => Tone::Good,
            "warning" => Tone::Doubtful,
            "failed" => Tone::Bad,
            _ => return None,
        };
        Some(("", word, tone))
    })
}

/// Where the column with this head begins, in characters.
pub(super) fn column(table: &str, head: &str) -> Option<usize> {
    let first = table.lines().next()?;
    let (before, _) = first.split_once(head)?;
    Some(before.chars().count())
}

/// The text before the column, and the first word in it.
fn cell(line: &str, column: usize) -> Option<(&str, &str)> {
    let (start, _) = line.char_indices().nth(column)?;
    let (before, rest) = line.split_at_checked(start)?;
    Some((before, first_word(rest)))
}

fn first_word(text: &str) -> &str {
    text.split([' ', '\n']).next().unwrap_or_default()
}

fn paint(text: &str, locate_word: impl Fn(&str) -> Painted<'_>) -> String {
    let mut painted = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let word_range = locate_word(line.trim_end_matches('\n'));
        let parts = word_range.and_then(|(before, word, tone)| {
            Some((before, word, tone, line.strip_prefix(before)?.strip_prefix(word)?))
        });
        match parts {
            Some((before, word, tone, after)) => {
                let colour = match tone {
                    Tone::Good => "\u{1b}[32m",
                    Tone::Doubtful => "\u{1b}[33m",
                    Tone::Bad => "\u{1b}[31m",
                };
                painted.extend([before, colour, word, "\u{1b}[0m", after]);
            }
            None => painted.push_str(line),
        }
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with marks in place of the codes.
    fn shown(text: &str) -> String {
        let marks = [("\u{1b}[32m", "+"), ("\u{1b}[33m", "~"), ("\u{1b}[31m", "!"), ("\u{1b}[0m", ".")];
        marks.iter().fold(text.to_owned(), |text, (code, mark)| text.replace(code, mark))
    }

    #[test]
    fn only_state_words_of_pods_are_painted_and_the_columns_stay() {
        let table = "\
NAMESPACE   NAME    READY   STATUS                   RESTARTS   AGE
default     b\u{fc}ro    1/1     Running                  0          3s
default     half    1/2     Running                  0          3s
default     next    1/1     Running (next version: pulling)   0   3s
default     crash   0/1     CrashLoopBackOff         3          3s
default     init    0/1     Init:0/2                 0          3s
default     fails   0/1     Init:Error               0          3s
default     job     0/1     Completed                0          3s

pod default/crash: CrashLoopBackOff: Running
";
        let painted = shown(&of_pods(table));
        for row in [
            "default     b\u{fc}ro    1/1     +Running.   ",
            "half    1/2     ~Running.   ",
            "next    1/1     +Running. (next",
            "crash   0/1     !CrashLoopBackOff.   ",
            "init    0/1     ~Init:0/2.   ",
            "fails   0/1     !Init:Error.   ",
            "job     0/1     Completed   ",
            "\n\npod default/crash: CrashLoopBackOff: Running\n",
        ] {
            assert!(painted.contains(row), "{row}: {painted}");
        }
        assert_eq!(of_pods("No pods.\n"), "No pods.\n");
    }

    #[test]
    fn warnings_states_and_verdicts_are_painted() {
        let events = "NAMESPACE   LAST SEEN   TYPE      REASON\nx           5s          Warning   BackOff\n\
                      x           5s          Normal    Started\n";
        let painted = shown(&of_events(events));
        assert!(painted.contains("~Warning.   BackOff") && painted.contains("   Normal    Started"), "{painted}");

        let status = "Node:     n1\nHealth:   degraded, 1 problem\n  pod a: b, not ready\n\
                      Runtime:  c 2 at /c.sock, ready\nNetwork:  not ready\n";
        let painted = shown(&of_status(status));
        let expected = "Node:     n1\nHealth:   ~degraded., 1 problem\n  pod a: b, not ready\n\
                        Runtime:  c 2 at /c.sock, +ready.\nNetwork:  !not ready.\n";
        assert_eq!(painted, expected);
        let painted = shown(&of_status("Health:   ok\nRuntime:  no answer yet at /c, not ready: down\n"));
        assert_eq!(painted, "Health:   +ok.\nRuntime:  no answer yet at /c, !not ready.: down\n");

        let doctor = "ok       swap: off\nwarning  clock: late\n         -> set it\nfailed   runtime: gone\n1 failed\n";
        let expected =
            "+ok.       swap: off\n~warning.  clock: late\n         -> set it\n!failed.   runtime: gone\n1 failed\n";
        assert_eq!(shown(&of_doctor(doctor)), expected);
    }
}
