//! Throughput of streaming a large log, and the agent's memory growth meanwhile.
//!
//! The limit applies to bytes of the log file. The CRI prefix of each line is not sent, so fewer bytes leave the
//! agent.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use crate::Effort;
use crate::door::{OPEN, ask, connect};
use crate::node::{Manifest, Node, STAY};
use crate::report::Report;

/// With its prefix a line has a hundred bytes.
const LINE: &str = "2026-11-22T10:00:00.123456789Z stdout F a line of a log that is read far away, and so on and on.\n";
/// MB/s of the log file on an otherwise idle machine.
const PROMISE: f64 = 200.0;
/// KiB.
const GROWTH: u64 = 4096;

pub(crate) fn measure(effort: &Effort, report: &mut Report) {
    let mut node = Node::with_runtime();
    node.configure_agent(&format!("{OPEN}containerLogMaxSize: 8Gi\nevictionHard: {{}}\n"));
    node.start_agent();
    node.apply(&Manifest::new("web").container("main", STAY));
    node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let uid = node.pods().get("web").unwrap().uid().to_owned();
    // One gigabyte, or less in a quick run.
    let lines = if effort.rounds > 10 { 10_000_000 } else { 2_000_000 };
    let log = node.folder().join(format!("logs/default_web-node-a_{uid}/main/0.log"));
    write_lines(&log, lines);
    let length = std::fs::metadata(&log).unwrap().len();
    let path = "/containerLogs/default/web-node-a/main";
    let head = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    let mut local = UnixStream::connect(node.folder().join("coracle.sock")).unwrap();
    local.write_all(head.as_bytes()).unwrap();
    row(&node, report, "a log over the local socket", length, &mut local);
    let mut tls = connect(&node);
    let answer = ask(&mut tls, &head);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    row(&node, report, "the same over port 10250", length, &mut tls);
}

fn write_lines(log: &Path, lines: u64) {
    let mut file = BufWriter::with_capacity(1 << 20, File::options().append(true).open(log).unwrap());
    (0..lines).for_each(|_| file.write_all(LINE.as_bytes()).unwrap());
    file.flush().unwrap();
}

fn row(node: &Node, report: &mut Report, what: &str, log: u64, stream: &mut impl Read) {
    let (before, begin) = (most_resident(node), Instant::now());
    let (mut buffer, mut total) = (vec![0; 1 << 20], 0_u64);
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            read => total += u64::try_from(read).unwrap(),
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let rate = log as f64 / 1e6 / seconds;
    let text = total as f64 / 1e6 / seconds;
    let grown = most_resident(node).saturating_sub(before);
    let measured = format!("{} MB at {rate:.0} MB/s", log / 1_000_000);
    report.row(what, measured, format!("at least {PROMISE:.0} MB/s"), rate >= PROMISE);
    report.note("the text in it", format!("{} MB at {text:.0} MB/s", total / 1_000_000));
    report.row("the agent's growth by it", format!("{grown} KiB"), format!("at most {GROWTH}"), grown <= GROWTH);
}

/// Peak resident memory of the agent, in KiB.
fn most_resident(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.agent_pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
