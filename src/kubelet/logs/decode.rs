//! Decodes the CRI log format to the container's output. Pure.
//!
//! A line is `2026-01-02T03:04:05.6Z stdout F the text`, with the tag `P` for a partial line that the next one
//! continues. Input is decoded in pieces, so lines may have any length. Malformed lines are skipped.

use std::io::BufRead as _;

use crate::types::timestamp::Timestamp;

/// Decodes a log from the start of a line on.
#[derive(Debug)]
pub(super) struct Decoder {
    since: Option<Timestamp>,
    stream: Option<LogStream>,
    timestamps: bool,
    /// Bytes of output left before the limit.
    bytes_left: Option<u64>,
    state: State,
    /// The current line continues the previous one.
    goes_on: bool,
}

/// The stream of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogStream {
    Stdout,
    Stderr,
}

#[derive(Debug)]
enum State {
    /// In the head: the bytes of it received so far.
    Head(Vec<u8>),
    Text {
        partial: bool,
    },
    /// Discards until the end of the line.
    Skip,
}

/// Longer than any valid head.
pub(super) const MAX_LOG_HEAD_BYTES: usize = 128;

impl Decoder {
    pub(super) fn new(since: Option<Timestamp>, timestamps: bool, limit: Option<u64>) -> Self {
        Self { since, stream: None, timestamps, bytes_left: limit, state: State::Head(Vec::new()), goes_on: false }
    }

    /// Skips the lines of the other stream.
    pub(super) fn of_stream(self, stream: Option<LogStream>) -> Self {
        Self { stream, ..self }
    }

    /// Whether the limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.bytes_left == Some(0)
    }

    /// Starts another file; an unfinished last line of the previous file is dropped.
    pub(super) fn next_file(&mut self) {
        self.state = State::Head(Vec::new());
    }

    /// Appends the decoded text of `bytes` to `text`.
    pub(super) fn take(&mut self, mut bytes: &[u8], text: &mut Vec<u8>) {
        while !bytes.is_empty() {
            // The standard library's byte search, much faster than a loop. Reads from memory cannot fail.
            let length = { bytes }.skip_until(b'\n').unwrap_or(bytes.len());
            let (line, rest) = bytes.split_at_checked(length).unwrap_or((bytes, &[]));
            match line.strip_suffix(b"\n") {
                Some(content) => match self.take_whole(content) {
                    Some(length) => text.extend_from_slice(line.get(length..).unwrap_or_default()),
                    None => {
                        self.take_part(content, text);
                        self.end_line(text);
                    }
                },
                None => self.take_part(line, text),
            }
            bytes = rest;
        }
    }

    /// The fast path for most lines: a full line, wanted as a whole. Returns the length of its head.
    fn take_whole(&mut self, line: &[u8]) -> Option<usize> {
        let begins = matches!(&self.state, State::Head(buffered_head) if buffered_head.is_empty());
        let is_plain = !self.timestamps && self.since.is_none() && self.bytes_left.is_none() && self.stream.is_none();
        if !begins || !is_plain {
            return None;
        }
        match Head::of(line.get(..MAX_LOG_HEAD_BYTES).unwrap_or(line)) {
            DecodedLine::Head { head: Head { partial: false, .. }, length } => {
                self.goes_on = false;
                Some(length)
            }
            _ => None,
        }
    }

    /// Decodes a part of one line, without its line break.
    fn take_part(&mut self, part: &[u8], text: &mut Vec<u8>) {
        match &mut self.state {
            State::Skip => {}
            State::Text { .. } => self.give(part, text),
            State::Head(head) => {
                let buffered = head.len();
                let first = part.get(..MAX_LOG_HEAD_BYTES.saturating_sub(buffered)).unwrap_or(part);
                // Most heads arrive in one piece and are not buffered.
                head.extend_from_slice(if buffered > 0 { first } else { &[] });
                let kept = std::mem::take(head);
                match Head::of(if buffered > 0 { &kept } else { first }) {
                    DecodedLine::Head { head, length } => {
                        let wanted = self.since.is_none_or(|since| head.is_since(since));
                        if !wanted || self.stream.is_some_and(|stream| stream != head.stream) {
                            self.state = State::Skip;
                            return;
                        }
                        self.state = State::Text { partial: head.partial };
                        if self.timestamps && !self.goes_on {
                            self.give(&head.fixed_time(), text);
                        }
                        self.give(part.get(length.saturating_sub(buffered)..).unwrap_or_default(), text);
                    }
                    DecodedLine::Part if buffered > 0 => self.state = State::Head(kept),
                    DecodedLine::Part => self.state = State::Head(first.to_vec()),
                    DecodedLine::Malformed => self.state = State::Skip,
                }
            }
        }
    }

    fn end_line(&mut self, text: &mut Vec<u8>) {
        if let State::Text { partial } = self.state {
            if !partial {
                self.give(b"\n", text);
            }
            self.goes_on = partial;
        }
        self.state = State::Head(Vec::new());
    }

    fn give(&mut self, bytes: &[u8], text: &mut Vec<u8>) {
        let wanted_bytes = match &mut self.bytes_left {
            Some(left) => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left = left.saturating_sub(u64::try_from(most).unwrap_or(u64::MAX));
                bytes.get(..most).unwrap_or(bytes)
            }
            None => bytes,
        };
        text.extend_from_slice(wanted_bytes);
    }
}

/// The fields before a line's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    time: &'a str,
    stream: LogStream,
    pub(super) partial: bool,
}

pub(super) enum DecodedLine<'a> {
    Head {
        head: Head<'a>,
        length: usize,
    },
    /// Incomplete, but may become valid.
    Part,
    Malformed,
}

impl<'a> Head<'a> {
    /// Parses the head at the beginning of `line`.
    pub(super) fn of(line: &'a [u8]) -> DecodedLine<'a> {
        let mut rest = line;
        let (Some(time), Some(stream), Some(tag)) = (word(&mut rest), word(&mut rest), word(&mut rest)) else {
            return if line.len() < MAX_LOG_HEAD_BYTES { DecodedLine::Part } else { DecodedLine::Malformed };
        };
        // The tag may be followed by others, separated by colons.
        let partial = match tag.split(|byte| *byte == b':').next() {
            Some(b"P") => true,
            Some(b"F") => false,
            _ => return DecodedLine::Malformed,
        };
        let of_stream = match stream {
            b"stdout" => LogStream::Stdout,
            b"stderr" => LogStream::Stderr,
            _ => return DecodedLine::Malformed,
        };
        match std::str::from_utf8(time) {
            Ok(time) if time.contains('T') => {
                let head = Self { time, stream: of_stream, partial };
                DecodedLine::Head { head, length: time.len() + stream.len() + tag.len() + 3 }
            }
            _ => DecodedLine::Malformed,
        }
    }

    fn is_since(&self, since: Timestamp) -> bool {
        self.time.parse::<Timestamp>().is_ok_and(|time| time >= since)
    }

    /// The time with nine fractional digits, so that lines align, and a space.
    fn fixed_time(&self) -> Vec<u8> {
        let zone = self.time.rfind(['Z', '+', '-']).unwrap_or(self.time.len());
        let (time, zone) = self.time.split_at_checked(zone).unwrap_or((self.time, ""));
        let (whole, part) = time.split_once('.').unwrap_or((time, ""));
        // CRI-O writes +00:00, containerd Z.
        let zone = if zone == "+00:00" { "Z" } else { zone };
        format!("{whole}.{part:0<9}{zone} ").into_bytes()
    }
}

/// Splits off the text before the next space.
fn word<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (word, rest) = line.split_at_checked({ *line }.skip_until(b' ').ok()?)?;
    *line = rest;
    word.strip_suffix(b" ")
}

/// Decodes a log at once and in pieces, for the fuzz targets: the text must be the same, and within `limit`.
pub fn check_log(log: &[u8], piece: usize, limit: u64) {
    let decoded = |piece: usize| {
        let mut decoder = Decoder::new(None, true, Some(limit));
        let mut text = Vec::new();
        log.chunks(piece.max(1)).for_each(|piece| decoder.take(piece, &mut text));
        text
    };
    let whole = decoded(log.len());
    assert!(u64::try_from(whole.len()).is_ok_and(|length| length <= limit), "more than the limit");
    assert_eq!(decoded(piece), whole, "depends on the pieces");
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2026-01-02T03:04:05.6Z stdout F one
2026-01-02T03:04:06Z stderr P tw
2026-01-02T03:04:06.000000001+01:00 stderr F:x o
not a line of a log
2026-01-02T03:04:07Z stdout X three
2026-01-02T03:04:08Z stdout F 
2026-01-02T03:04:09Z stdout F  four
";

    fn decoded(mut decoder: Decoder, log: &str, chunk: usize) -> String {
        let mut text = Vec::new();
        log.as_bytes().chunks(chunk).for_each(|bytes| decoder.take(bytes, &mut text));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn partial_lines_are_joined_and_malformed_ones_skipped_at_any_cut() {
        for chunk in 1..LOG.len() {
            assert_eq!(decoded(Decoder::new(None, false, None), LOG, chunk), "one\ntwo\n\n four\n", "{chunk}");
        }
    }

    #[test]
    fn timestamps_have_nine_digits_and_precede_whole_lines() {
        let text = "\
2026-01-02T03:04:05.600000000Z one
2026-01-02T03:04:06.000000000Z two
2026-01-02T03:04:08.000000000Z 
2026-01-02T03:04:09.000000000Z  four
";
        assert_eq!(decoded(Decoder::new(None, true, None), LOG, 7), text);
        let zones = "2026-01-02T03:04:05.6+00:00 stdout F one\n2026-01-02T03:04:05.6+02:00 stdout F two\n";
        let text = "2026-01-02T03:04:05.600000000Z one\n2026-01-02T03:04:05.600000000+02:00 two\n";
        assert_eq!(decoded(Decoder::new(None, true, None), zones, 7), text);
    }

    #[test]
    fn lines_before_since_are_skipped() {
        let since = "2026-01-02T03:04:08Z".parse().unwrap();
        assert_eq!(decoded(Decoder::new(Some(since), false, None), LOG, 50), "\n four\n");
    }

    #[test]
    fn lines_of_the_other_stream_are_skipped() {
        let decoder = |stream| Decoder::new(None, false, None).of_stream(Some(stream));
        for chunk in [1, 7, LOG.len()] {
            assert_eq!(decoded(decoder(LogStream::Stdout), LOG, chunk), "one\n\n four\n", "{chunk}");
            assert_eq!(decoded(decoder(LogStream::Stderr), LOG, chunk), "two\n", "{chunk}");
        }
    }

    #[test]
    fn limit_cuts_the_output() {
        for limit in 0..12u64 {
            let text = decoded(Decoder::new(None, false, Some(limit)), LOG, 9);
            assert_eq!(text.as_bytes(), &b"one\ntwo\n\n four\n"[..usize::try_from(limit).unwrap()]);
        }
        let mut decoder = Decoder::new(None, false, Some(3));
        decoder.take(LOG.as_bytes(), &mut Vec::new());
        assert!(decoder.is_full());
    }

    #[test]
    fn long_line_is_not_buffered() {
        let mut decoder = Decoder::new(None, false, None);
        let mut text = Vec::new();
        decoder.take(b"2026-01-02T03:04:05Z stdout F ", &mut text);
        for _ in 0..1000 {
            decoder.take(&[b'x'; 1000], &mut text);
            assert_eq!(std::mem::take(&mut text).len(), 1000);
        }
        decoder.take(b"\n", &mut text);
        decoder.take(&[b'y'; 100_000], &mut text);
        assert_eq!(text, b"\n");
        assert!(matches!(decoder.state, State::Skip));
    }
}
