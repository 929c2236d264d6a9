//! A log storm: the peak disk usage of a container's log.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Effort;
use crate::node::{Manifest, Node};
use crate::report::Report;

/// The default limit: five files of 10 MiB. The measured value may exceed it by a tenth.
const LIMIT: u64 = 50 << 20;
/// 50 MB per second in ten parts.
const PART: u64 = 5_000_000;

pub(crate) fn measure(effort: &Effort, report: &mut Report) {
    let node = Node::start();
    let seconds = effort.rest.as_secs();
    // Each part has a fixed time, in hundredths of a second. A late part is written at once.
    let script = format!(
        "now() {{ read up rest </proc/uptime; echo ${{up%.*}}${{up#*.}}; }}
         yes 'a line of a storm that fills the disk where nobody sees to it, about a hundred bytes of it.' \
             | head -c {PART} >/part
         echo >>/part; begin=$(now); n=0
         while [ $(now) -lt $((begin + {seconds} * 100)) ]; do
             cat /part; n=$((n + 1))
             while [ $(now) -lt $((begin + n * 10)) ]; do usleep 5000; done
         done
         echo parts $n; trap exit TERM; sleep 9999 & wait"
    );
    node.apply(&Manifest::new("storm").container("main", &script));
    node.wait_until("the storm begins", |pods| pods.has("storm", |pod| pod.is_ready()));
    let uid = node.pods().get("storm").unwrap().uid().to_owned();
    let folder = node.folder().join(format!("logs/default_storm-node-a_{uid}/main"));
    let (mut most, mut parts) = (0, None);
    let (begin, mut asked) = (Instant::now(), Instant::now());
    while parts.is_none() {
        assert!(begin.elapsed() < Duration::from_secs(seconds + 120), "the storm does not end");
        most = most.max(size_of(&folder));
        if begin.elapsed().as_secs() > seconds && asked.elapsed() > Duration::from_secs(1) {
            let last = node.ask(&["logs", "storm", "--tail", "1"]).unwrap_or_default();
            parts = last.strip_prefix("parts ").and_then(|parts| parts.trim().parse::<u64>().ok());
            asked = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let rate = parts.unwrap_or_default() * PART / seconds.max(1) / 1_000_000;
    report.note(&format!("log storm of {seconds} s"), format!("{rate} MB/s"));
    report.row(
        "its log at the most",
        format!("{most} bytes"),
        format!("at most {LIMIT} + 10 %"),
        most <= LIMIT / 10 * 11,
    );
}

fn size_of(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}
