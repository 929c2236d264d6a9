//! The resource limits that the agent promises, idle and under load, measured on a real containerd.
//!
//! `cargo bench --bench promises` takes about ten minutes. `-- quick` runs fewer rounds and shorter pauses. The name
//! of a part (`latency`, `rest`, `stack`, `logs`, `probes`, `scrape`, `storm`, `updates`, `density`) runs that part alone.
//! `density` needs the kube-apiserver, etcd and kubectl in the directory `KUBEBUILDER_ASSETS`, and is skipped without.
//! It measures the build that cargo has just made. `CORACLE_BINARY=dist/coracle-VERSION-x86_64` measures a release
//! binary instead. The first line of the output names the binary.
//! Latencies are compared with the same CRI calls, made in alternation by a bare client of the same code to a second
//! containerd on the same machine. A container counts as running from the start time that the runtime reports.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a measurement: a panic here is its failure"
)]

mod at_rest;
mod bare_client;
mod bare_probes;
#[path = "../../tests/fake_api/certificates.rs"]
#[expect(dead_code, reason = "the tests use other parts of it")]
mod certificates;
#[path = "../../tests/real_apiserver/cluster.rs"]
#[expect(dead_code, reason = "the tests ask more of a cluster")]
mod cluster;
#[path = "../../tests/real_apiserver/control_plane.rs"]
#[expect(dead_code, reason = "the tests ask more of a server")]
mod control_plane;
#[path = "../../tests/real_apiserver/crowd.rs"]
#[expect(dead_code, reason = "the tests ask more of a full node")]
mod crowd;
mod density;
#[path = "../../tests/fake_api/der.rs"]
mod der;
#[path = "../../tests/containerd/door.rs"]
#[expect(dead_code, reason = "the tests ask for whole pages")]
mod door;
#[path = "../../tests/fake_api/identity.rs"]
#[expect(dead_code, reason = "the tests use other parts of it")]
mod identity;
mod latency;
mod log_stream;
#[expect(dead_code, unused_imports, reason = "the tests ask more of a node")]
#[path = "../../tests/containerd/node/mod.rs"]
mod node;
mod probes;
#[expect(dead_code, reason = "the tests ask more of a registry")]
#[path = "../../tests/containerd/registry.rs"]
mod registry;
mod report;
mod scrape;
mod stack;
mod storm;
mod updates;
#[path = "../../tests/containerd/updates.rs"]
mod web_update;

use std::time::Duration;

use report::Report;

/// Number of rounds and duration of pauses.
struct Effort {
    rounds: usize,
    crowd_rounds: usize,
    rest: Duration,
}

struct Part {
    name: &'static str,
    measure: fn(&Effort, &mut Report),
}

const PARTS: &[Part] = &[
    Part { name: "latency", measure: latency::measure },
    Part { name: "rest", measure: at_rest::measure },
    Part { name: "stack", measure: stack::measure },
    Part { name: "logs", measure: log_stream::measure },
    Part { name: "probes", measure: probes::measure },
    Part { name: "scrape", measure: scrape::measure },
    Part { name: "storm", measure: storm::measure },
    Part { name: "updates", measure: updates::measure },
    Part { name: "density", measure: density::measure },
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((bare_probes::NAME, rest)) = arguments.split_first().map(|(name, rest)| (name.as_str(), rest)) {
        return bare_probes::run(rest);
    }
    let quick = std::env::args().any(|argument| argument == "quick");
    let effort = if quick {
        Effort { rounds: 5, crowd_rounds: 2, rest: Duration::from_secs(10) }
    } else {
        Effort { rounds: 21, crowd_rounds: 7, rest: Duration::from_secs(60) }
    };
    let mut report = Report::default();
    report.binary(node::coracle());
    let named = |part: &Part| std::env::args().any(|argument| argument == part.name);
    let all = !PARTS.iter().any(named);
    for part in PARTS.iter().filter(|part| all || named(part)) {
        (part.measure)(&effort, &mut report);
    }
    report.finish();
}
