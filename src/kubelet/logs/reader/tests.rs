//! Logs that are rotated and removed while they are read.

use std::fs;
use std::io::Write;

use super::*;

struct Log(PathBuf);

impl Log {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("coracle-reader-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn log(&self) -> PathBuf {
        self.0.join("0.log")
    }

    fn write(&self, lines: &[&str]) {
        let mut file = File::options().create(true).append(true).open(self.log()).unwrap();
        for line in lines {
            writeln!(file, "2026-01-02T03:04:05.6Z stdout F {line}").unwrap();
        }
    }

    fn rotate(&self, stamp: &str) {
        fs::rename(self.log(), self.0.join(format!("0.log.{stamp}"))).unwrap();
    }

    fn open(&self, request: LogRequest) -> LogReader {
        rt::block_on(LogReader::open(self.log(), request)).unwrap()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A closed channel: nothing more will be written.
fn over() -> Receiver<()> {
    async_channel::bounded(1).1
}

/// Reads everything left of an ended log.
fn rest(reader: &mut LogReader) -> String {
    let mut text = Vec::new();
    while let Some(part) = rt::block_on(reader.next(&over())).unwrap() {
        text.extend(part);
    }
    String::from_utf8(text).unwrap()
}

const FIRST: &str = "20260102-030405";
const SECOND: &str = "20260102-030406";

#[test]
fn all_files_of_a_log_are_read_as_one_text() {
    let log = Log::new("all");
    for (lines, stamp) in [(["a", "b"], FIRST), (["c", "d"], SECOND)] {
        log.write(&lines);
        log.rotate(stamp);
    }
    fs::write(log.0.join("0.log.20250102-030405.gz"), "of an upstream kubelet").unwrap();
    log.write(&["e"]);
    assert_eq!(rest(&mut log.open(LogRequest::default())), "a\nb\nc\nd\ne\n");
    assert_eq!(rest(&mut log.open(LogRequest { tail: Some(2), ..LogRequest::default() })), "d\ne\n");
    assert_eq!(rest(&mut log.open(LogRequest { limit_bytes: Some(3), ..LogRequest::default() })), "a\nb");
}

#[test]
fn later_writes_are_read_only_when_following() {
    let log = Log::new("after");
    log.write(&["a"]);
    let mut once = log.open(LogRequest::default());
    let mut follows = log.open(LogRequest { follow: true, ..LogRequest::default() });
    log.write(&["b"]);
    log.rotate(FIRST);
    log.write(&["c"]);
    assert_eq!(rest(&mut once), "a\n");
    assert_eq!(rest(&mut follows), "a\nb\nc\n");
}

#[test]
fn following_reads_new_lines_until_the_container_ends() {
    let log = Log::new("follow");
    log.write(&["a"]);
    let mut reader = log.open(LogRequest { follow: true, tail: Some(0), ..LogRequest::default() });
    let (running, ended) = async_channel::bounded(1);
    let text = rt::block_on(async {
        let mut text = Vec::new();
        let follow = async {
            while let Some(part) = reader.next(&ended).await.unwrap() {
                text.extend(part);
            }
        };
        let write = async {
            for (line, stamp) in [("b", FIRST), ("c", SECOND)] {
                log.write(&[line]);
                // The reader may or may not have seen the line by the rotation: it must not lose it.
                rt::sleep(Duration::from_millis(5)).await;
                log.rotate(stamp);
            }
            log.write(&["d"]);
            drop(running);
            std::future::pending().await
        };
        rt::either(follow, write).await;
        text
    });
    assert_eq!(String::from_utf8(text).unwrap(), "b\nc\nd\n");
}

#[test]
fn file_removed_while_reading_is_read_to_its_end() {
    let log = Log::new("removed");
    log.write(&["a"]);
    let mut reader = log.open(LogRequest { follow: true, ..LogRequest::default() });
    assert_eq!(rt::block_on(reader.next(&over())).unwrap().unwrap(), b"a\n");
    log.write(&["b"]);
    fs::remove_file(log.log()).unwrap();
    log.write(&["c"]);
    log.rotate(FIRST);
    log.write(&["d"]);
    assert_eq!(rest(&mut reader), "b\nc\nd\n");
    fs::remove_dir_all(&log.0).unwrap();
    assert_eq!(rest(&mut reader), "");
    assert_eq!(
        rt::block_on(LogReader::open(log.log(), LogRequest::default())).err().unwrap().kind(),
        io::ErrorKind::NotFound
    );
}

#[test]
fn rotated_file_removed_before_it_was_read_is_skipped() {
    let log = Log::new("away");
    log.write(&["a"]);
    log.rotate(FIRST);
    log.write(&["b"]);
    log.rotate(SECOND);
    log.write(&["c"]);
    let mut reader = log.open(LogRequest::default());
    fs::remove_file(log.0.join(format!("0.log.{FIRST}"))).unwrap();
    fs::remove_file(log.0.join(format!("0.log.{SECOND}"))).unwrap();
    assert_eq!(rest(&mut reader), "a\nc\n");
}

#[test]
fn large_log_is_read_whole_and_the_buffer_is_freed() {
    let log = Log::new("pieces");
    let lines: Vec<String> = (0..5000).map(|number| format!("line {number}")).collect();
    log.write(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let mut reader = log.open(LogRequest::default());
    assert!(rest(&mut reader) == lines.join("\n") + "\n");
    assert_eq!(reader.buffer.capacity(), 0);
}
