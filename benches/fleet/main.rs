//! The load that a fleet puts on its API server before and after an outage.
//!
//! `KUBEBUILDER_ASSETS=DIR cargo bench --bench fleet` starts the kube-apiserver and etcd of that directory and five
//! hundred agents (`-- 100` for another number). Each agent is the real program with a fake runtime and one pod. The
//! API server becomes unreachable three times: for a short time and for a long one it refuses connections, then its
//! packets are dropped. The requests are counted in its audit log. The results are printed and drawn into
//! `target/tmp/fleet.svg`.
#![expect(
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a measurement: a panic here is its failure"
)]

mod agents;
mod arrivals;
#[path = "../../tests/fake_api/certificates.rs"]
#[expect(dead_code, reason = "the tests use other parts of it")]
mod certificates;
#[path = "../../tests/real_apiserver/control_plane.rs"]
#[expect(dead_code, reason = "the tests ask more of a server")]
mod control_plane;
#[path = "../../tests/fake_api/der.rs"]
#[expect(dead_code, reason = "the tests use other parts of it")]
mod der;
#[path = "../../tests/fake_cri/mod.rs"]
#[expect(dead_code, reason = "the tests use other parts of the fake runtime")]
mod fake_cri;
#[path = "../../tests/fake_api/identity.rs"]
#[expect(dead_code, reason = "the tests use other parts of it")]
mod identity;
#[expect(dead_code, unused_imports, reason = "the tests ask more of a node")]
#[path = "../../tests/containerd/node/mod.rs"]
mod node;
mod plot;

use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use agents::Fleet;
use arrivals::Arrivals;
use control_plane::{Assets, ControlPlane};
use node::Node;

const REST: Duration = Duration::from_secs(60);
/// After an outage of this length, a node reports everything within ten seconds.
const SHORT: Duration = Duration::from_secs(50);
/// After an outage of this length, a fleet spreads its return over the longest time.
const LONG: Duration = Duration::from_secs(200);
const RETURN: Duration = Duration::from_secs(240);
/// The usual renewal interval of a lease.
const WINDOW: usize = 10;

/// Logs metadata of the nodes' requests, without bodies.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [ResponseStarted, ResponseComplete, Panic]\n\
                      rules: [{level: Metadata, userGroups: [\"system:nodes\"]}, {level: None}]\n";

/// The firewall target that makes the API server unreachable in each outage.
const OUTAGES: [(&str, Duration, &[&str]); 3] = [
    ("a short outage", SHORT, &["REJECT", "--reject-with", "tcp-reset"]),
    ("connections are refused", LONG, &["REJECT", "--reject-with", "tcp-reset"]),
    ("nothing is answered", LONG, &["DROP"]),
];

fn main() {
    let Some(assets) = Assets::find("the fleet", &[]) else { return };
    let count: usize = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(500);
    note_limits(count);
    let machine = Node::bare();
    let audit = machine.folder().join("audit.log");
    let policy = machine.folder().join("policy.yaml");
    fs::write(&policy, POLICY).unwrap();
    let arguments = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", audit.display()),
        "--audit-log-maxsize=10000".to_owned(),
    ];
    let plane = ControlPlane::start_with(assets, &machine, &arguments);
    let fleet = Fleet::start(count, &plane, &machine);
    println!("{count} agents are ready, each with a pod; {:.1} MB of memory each", fleet.memory());

    // Initial statuses are sent and periodic reports are spread over time.
    std::thread::sleep(REST);
    let begin = Timestamp::now();
    std::thread::sleep(REST);
    let mut marks = Vec::new();
    let mut drawn = begin;
    for (name, lasts, target) in OUTAGES {
        let gone = Timestamp::now();
        let rule = |action: &str| {
            let rule = ["iptables", "--wait", action, "INPUT", "--protocol", "tcp", "--dport", "6443", "--jump"];
            machine.enclosure().run(&[&rule, target].concat());
        };
        rule("--insert");
        std::thread::sleep(lasts);
        rule("--delete");
        let back = Timestamp::now();
        std::thread::sleep(RETURN);
        drawn = Timestamp::now();
        marks.push((name, gone, back, drawn));
    }
    fleet.check();

    let arrivals = Arrivals::read(&audit, begin, drawn);
    let rest = arrivals.between(begin, marks[0].1);
    let level = rest.total() as f64 / rest.seconds() as f64;
    println!("at rest: {level:.1} requests a second, {} at most in one", rest.peak(1));
    for (name, _, back, end) in &marks {
        let after = arrivals.between(*back, *end);
        let peak = after.peak(WINDOW) as f64 / WINDOW as f64;
        println!(
            "after {name}: {peak:.1} a second at most over {WINDOW} s, {:.2} of rest; {} at most in one second",
            peak / level,
            after.peak(1)
        );
        if let Some(seconds) = arrivals.last("watch pods", *back, *end) {
            println!("  the last node followed its pods again after {seconds} s");
        }
    }
    for (what, requests) in arrivals.kinds(marks[0].2, marks[0].3) {
        println!("  {requests:6} {what}");
    }
    let outages = marks.iter().map(|(name, gone, back, _)| (*name, arrivals.second(*gone), arrivals.second(*back)));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fleet.svg");
    fs::write(&file, plot::draw(&arrivals.counts, level, &outages.collect::<Vec<_>>())).unwrap();
    println!("drawn: {}", file.display());
}

/// Each agent uses an inotify instance for its manifests if one is available; other programs on the machine need some
/// too.
fn note_limits(count: usize) {
    let file = "/proc/sys/fs/inotify/max_user_instances";
    let most: usize = fs::read_to_string(file).unwrap_or_default().trim().parse().unwrap_or_default();
    if most < count * 2 {
        println!(
            "{file} says {most}: some agents look at their manifests now and then, and other programs may miss changes"
        );
    }
}
