//! An idle agent.

use std::time::Duration;

use super::node::activity::{Activity, Memory};
use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

/// Duration of the measurement. The shortest timer of an idle agent is the re-list of the manifests, every twenty
/// seconds.
const WATCHED: Duration = Duration::from_secs(10);

#[test]
fn idle_agent_sleeps_writes_nothing_and_stays_small() {
    let node = Node::start();
    let names = ["one", "two", "three"];
    names.iter().for_each(|name| node.apply(&Manifest::new(name).container("main", STAY)));
    node.wait_until("all are ready", |pods| names.iter().all(|name| pods.has(name, |pod| pod.is_ready())));
    let pid = node.agent_pid();
    // The start is complete when no thread has been woken for a second.
    let mut before = Activity::of(pid);
    wait_for("the agent to come to rest", PATIENCE, || {
        std::thread::sleep(Duration::from_secs(1));
        let now = Activity::of(pid);
        let done = now.since(&before);
        before = now;
        (done.wakes == 0).then_some(())
    });
    // What is measured is a span of time without work.
    std::thread::sleep(WATCHED);
    let done = Activity::of(pid).since(&before);
    assert!(done.wakes <= WATCHED.as_secs(), "woken {} times in {WATCHED:?}", done.wakes);
    assert_eq!(done.written, 0, "something was written to disk");
    // The benchmark and the QEMU tests check the limits of the release build. The code of this debug build is several
    // times larger. Memory other than code is the same in both, except for relocated data.
    let Memory { rss, pss, anonymous } = Memory::of(pid);
    assert!(
        anonymous > 0 && anonymous <= 3 << 10,
        "{anonymous} KiB are data, of {rss} that are resident, {pss} its own"
    );
}
