//! Log lines on stderr: `level message key=value`, with the journal's priority prefix under systemd.
//!
//! Never blocks on a slow reader: drops lines and counts them instead.

use std::fmt;
use std::fmt::Write as _;
use std::io::{Stderr, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The severity of a line. A line is written if its level is at or below the verbosity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    /// Written with `-v 4` and above.
    Debug,
}

static VERBOSITY: AtomicU8 = AtomicU8::new(0);
static IS_JOURNAL: AtomicBool = AtomicBool::new(false);
static LOST: AtomicU32 = AtomicU32::new(0);

/// Sets the verbosity (the kubelet's `--v`), and whether lines go to the journal.
pub(crate) fn init(verbosity: u8, journal: bool) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
    IS_JOURNAL.store(journal, Ordering::Relaxed);
}

/// Changes the verbosity.
pub(crate) fn set_verbosity(verbosity: u8) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
}

pub(crate) fn enabled(level: Level) -> bool {
    level <= Level::Info || VERBOSITY.load(Ordering::Relaxed) >= 4
}

/// Writes one line, and quotes a field's value unless it reads as one word.
pub(crate) fn write(level: Level, message: &str, fields: &[(&str, &dyn fmt::Display)]) {
    #[cfg(test)]
    if let Some(read) = READER.take() {
        read(level, &line(level, false, message, fields));
        return READER.set(Some(read));
    }
    let journal = IS_JOURNAL.load(Ordering::Relaxed);
    let stderr = std::io::stderr();
    if !takes_a_line(&stderr) {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut text = line(level, journal, message, fields);
    cut(&mut text);
    let lost = LOST.swap(0, Ordering::Relaxed);
    if lost > 0 {
        text.insert_str(0, &line(Level::Warn, journal, "log lines lost", &[("lines", &lost)]));
    }
    // The caller could do nothing about a log that cannot be written.
    let _ = stderr.lock().write_all(text.as_bytes());
}

#[cfg(test)]
type Reader = Box<dyn Fn(Level, &str)>;

#[cfg(test)]
thread_local! {
    static READER: std::cell::Cell<Option<Reader>> = const { std::cell::Cell::new(None) };
}

/// Sends this thread's lines of every level to `read`.
#[cfg(test)]
pub(crate) fn read_by(read: impl Fn(Level, &str) + 'static) {
    READER.set(Some(Box::new(read)));
}

/// Whether a line can be written without blocking. A pipe that polls writable has room for `MAX_LOG_LINE_BYTES` bytes.
fn takes_a_line(stderr: &Stderr) -> bool {
    let mut ready = [PollFd::new(stderr, PollFlags::OUT)];
    // Regular files and closed descriptors never block.
    poll(&mut ready, Some(&Timespec::default())).map_or(true, |ready| ready > 0)
}

/// Cuts a line to the length that is written atomically.
fn cut(line: &mut String) {
    if line.len() > MAX_LOG_LINE_BYTES {
        let end = (0..=MAX_LOG_LINE_BYTES - CUT.len()).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
        line.truncate(end);
        line.push_str(CUT);
    }
}

/// `PIPE_BUF`, less the line about lost lines.
const MAX_LOG_LINE_BYTES: usize = 4000;
const CUT: &str = "...\n";

fn line(level: Level, journal: bool, message: &str, fields: &[(&str, &dyn fmt::Display)]) -> String {
    let (priority, name) = match level {
        Level::Error => ("<3>", "error"),
        Level::Warn => ("<4>", "warn"),
        Level::Info => ("<6>", "info"),
        Level::Debug => ("<7>", "debug"),
    };
    let mut line = String::with_capacity(96);
    if journal {
        line.push_str(priority);
    }
    line.push_str(name);
    line.push(' ');
    push_escaped(&mut line, message);
    for (key, value) in fields {
        line.push(' ');
        line.push_str(key);
        line.push('=');
        let value = value.to_string();
        let plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c == '"' || c == '=');
        if plain {
            push_escaped(&mut line, &value);
        } else {
            line.push('"');
            for c in value.chars() {
                if c == '"' || c == '\\' {
                    line.push('\\');
                }
                push_char(&mut line, c);
            }
            line.push('"');
        }
    }
    line.push('\n');
    line
}

fn push_escaped(line: &mut String, text: &str) {
    for c in text.chars() {
        push_char(line, c);
    }
}

/// Escapes control characters, so that one event is one line.
fn push_char(line: &mut String, c: char) {
    if c.is_control() {
        let _ = write!(line, "{}", c.escape_default());
    } else {
        line.push(c);
    }
}

/// `log!(warn, "pod not started", pod = uid, error = ErrorChain(&error))`
macro_rules! log {
    ($level:ident, $message:expr $(, $key:ident = $value:expr)* $(,)?) => {{
        let level = $crate::types::log::level::$level;
        if $crate::types::log::enabled(level) {
            $crate::types::log::write(level, $message, &[$((stringify!($key), &$value as &dyn ::std::fmt::Display)),*]);
        }
    }};
}

/// The level names that `log!` takes.
#[expect(non_upper_case_globals, reason = "they read as words at the macro's call")]
pub(crate) mod level {
    use super::Level;

    pub(crate) const error: Level = Level::Error;
    pub(crate) const warn: Level = Level::Warn;
    pub(crate) const info: Level = Level::Info;
    pub(crate) const debug: Level = Level::Debug;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_level_message_and_fields() {
        let made = line(Level::Warn, false, "pod not started", &[("pod", &"default/web"), ("attempt", &3)]);
        assert_eq!(made, "warn pod not started pod=default/web attempt=3\n");
    }

    #[test]
    fn lines_for_the_journal_begin_with_the_priority() {
        assert_eq!(line(Level::Error, true, "x", &[]), "<3>error x\n");
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        for length in MAX_LOG_LINE_BYTES - 10..MAX_LOG_LINE_BYTES + 10 {
            let whole = format!("{}\n", "\u{20ac}".repeat(length / 3));
            let mut line = whole.clone();
            cut(&mut line);
            assert!(line.len() <= MAX_LOG_LINE_BYTES && line.ends_with('\n'));
            assert!(
                line == whole || (whole.len() > MAX_LOG_LINE_BYTES && line.len() > MAX_LOG_LINE_BYTES - 8),
                "{length}"
            );
        }
    }

    #[test]
    fn multi_word_value_stays_one_field_on_one_line() {
        let made = line(Level::Info, false, "x", &[("error", &"said \"no\"\nand left")]);
        assert_eq!(made, "info x error=\"said \\\"no\\\"\\nand left\"\n");
    }
}
