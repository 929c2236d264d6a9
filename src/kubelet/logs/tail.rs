//! Finds the start of a log's last lines, reading blocks from its end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::decode::{DecodedLine, Head, MAX_LOG_HEAD_BYTES};
use super::files::{LogFile, Opened};

/// Block size in bytes.
const LOG_BLOCK_BYTES: u64 = 64 << 10;

/// The index in `files` and the offset where the last `lines` lines begin. Partial lines count as one line.
pub(super) fn start_of_tail(files: &[LogFile], lines: u64) -> io::Result<(usize, u64)> {
    let mut tail = LineCounter { wanted: lines, lines: 0, open_end: true };
    let mut start = (files.len().saturating_sub(1), files.last().map_or(0, |file| file.size));
    for (index, log) in files.iter().enumerate().rev() {
        // If it was removed meanwhile, so was everything older.
        let Opened::File(file) = log.open()? else { return Ok(start) };
        let mut end = log.size;
        while end > 0 {
            let begin = end.saturating_sub(LOG_BLOCK_BYTES);
            // A head may start in this block and end in the next.
            let most = end.saturating_sub(begin).saturating_add(u64::try_from(MAX_LOG_HEAD_BYTES).unwrap_or(0));
            let block = read(&file, begin, most.min(log.size.saturating_sub(begin)))?;
            for at in line_starts(&block, begin, end) {
                let offset = at.saturating_sub(begin);
                let line = usize::try_from(offset).ok().and_then(|at| block.get(at..)).unwrap_or_default();
                if tail.is_complete_before(line) {
                    return Ok(start);
                }
                start = (index, at);
            }
            end = begin;
        }
    }
    Ok(start)
}

fn read(file: &File, at: u64, limit: u64) -> io::Result<Vec<u8>> {
    let mut block = vec![0; usize::try_from(limit).unwrap_or(0)];
    let mut filled = 0;
    while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at.saturating_add(u64::try_from(filled).unwrap_or(0)))? {
            0 => break,
            read => filled += read,
        }
    }
    block.truncate(filled);
    Ok(block)
}

/// The offsets in `begin..end` where lines start, last first. A line break at the very end starts none.
fn line_starts(block: &[u8], begin: u64, end: u64) -> Vec<u64> {
    let newlines = block.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let starts = newlines.filter_map(|(index, _)| begin.checked_add(u64::try_from(index).ok()? + 1));
    let last = begin.saturating_add(u64::try_from(block.len()).unwrap_or(0));
    let mut starts: Vec<u64> = starts.filter(|start| *start <= end && *start < last).collect();
    if begin == 0 {
        starts.insert(0, 0);
    }
    starts.reverse();
    starts
}

/// Counts lines backwards.
struct LineCounter {
    wanted: u64,
    lines: u64,
    /// Only partial lines so far: the last line has no end yet.
    open_end: bool,
}

impl LineCounter {
    /// True if all wanted lines start after `line`; otherwise `line` is one of them.
    fn is_complete_before(&mut self, line: &[u8]) -> bool {
        let DecodedLine::Head { head, .. } = Head::of(line) else { return self.wanted == 0 };
        // A full line, or the last part of one, ends what precedes the lines found so far.
        if !head.partial || std::mem::take(&mut self.open_end) {
            self.open_end = false;
            if self.lines == self.wanted {
                return true;
            }
            self.lines += 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::files::list;
    use super::*;

    struct Logs(PathBuf);

    impl Logs {
        fn new(name: &str, texts: &[(&str, String)]) -> Self {
            let dir = std::env::temp_dir().join(format!("coracle-tail-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(&dir).unwrap();
            for (name, text) in texts {
                fs::write(dir.join(name), text).unwrap();
            }
            Self(dir)
        }

        fn tail(&self, lines: u64) -> String {
            let files = list(&self.0.join("0.log")).unwrap();
            let (place, offset) = start_of_tail(&files, lines).unwrap();
            let mut text = Vec::new();
            for (number, file) in files.iter().enumerate().skip(place) {
                let whole = fs::read(&file.path).unwrap();
                text.extend(&whole[if number == place { usize::try_from(offset).unwrap() } else { 0 }..]);
            }
            String::from_utf8(text).unwrap()
        }
    }

    impl Drop for Logs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn line(tag: &str, text: &str) -> String {
        format!("2026-01-02T03:04:05.6Z stdout {tag} {text}\n")
    }

    #[test]
    fn last_lines_are_found_across_blocks_and_files() {
        let lines: Vec<String> = (0..9000).map(|number| line("F", &number.to_string())).collect();
        let logs =
            Logs::new("lines", &[("0.log.20260102-030405", lines[..5000].concat()), ("0.log", lines[5000..].concat())]);
        for wanted in [0, 1, 2, 3999, 4000, 4001, 8999, 9000] {
            let from = lines.len() - usize::try_from(wanted).unwrap();
            assert!(logs.tail(wanted) == lines[from..].concat(), "{wanted}");
        }
        assert!(logs.tail(100_000) == lines.concat());
    }

    #[test]
    fn partial_lines_count_as_one_across_files_and_at_the_end() {
        let whole = [line("F", "a"), line("P", "b1")];
        let long = line("P", &"b".repeat(200_000));
        let last = [long, line("F", "b3"), line("F", "c"), line("P", "d1"), line("P", "d2")];
        let logs = Logs::new("parts", &[("0.log.20260102-030405", whole.concat()), ("0.log", last.concat())]);
        assert_eq!(logs.tail(1), last[3..].concat());
        assert_eq!(logs.tail(2), last[2..].concat());
        assert!(logs.tail(3) == whole[1].clone() + &last.concat());
        assert!(logs.tail(4) == whole.concat() + &last.concat());
    }

    #[test]
    fn empty_log_has_no_last_line() {
        let logs = Logs::new("empty", &[("0.log", String::new())]);
        assert_eq!(logs.tail(3), "");
        assert_eq!(start_of_tail(&[], 3).unwrap(), (0, 0));
    }
}
