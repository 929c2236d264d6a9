//! The verdict about an agent or a configuration on trial. Pure: the time is an argument.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::types::sorted::SortedMap;

/// The node before the trial. The default asks for nothing but a running agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) boot: String,
    pub(crate) runs: Vec<RunBefore>,
    /// The API server answered.
    pub(crate) is_connected: bool,
    /// The URL of manifests answered.
    pub(crate) has_url: bool,
}

/// A container that ran steadily.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunBefore {
    /// The runtime's id.
    pub(crate) id: String,
    /// Uid of the pod.
    pub(crate) uid: String,
    /// The pod's name and the container's, for messages.
    pub(crate) name: String,
    /// The cluster may delete it at any time.
    pub(crate) is_of_cluster: bool,
    /// It may end by itself, as that of a Job.
    pub(crate) may_end: bool,
}

/// A container of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenRun {
    Running,
    /// The exit code.
    Exited(i32),
}

/// The node as the agent on trial sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeNow {
    pub(crate) boot: String,
    /// The sync loop has done a round, all sources have reported, and the loop is not stalled.
    pub(crate) loop_runs: bool,
    pub(crate) runtime_answers: bool,
    pub(crate) runs: SortedMap<String, SeenRun>,
    /// Uids of pods with a running container.
    pub(crate) running_pods: Vec<String>,
    /// Uids of pods that a source wants and has not deleted.
    pub(crate) wanted_pods: Vec<String>,
    /// The API server has answered since the start, and the Node object was ready.
    pub(crate) is_connected: bool,
    pub(crate) has_url: bool,
}

/// What is not as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: String,
    /// It will not pass.
    pub(crate) is_final: bool,
}

/// The first fault.
pub(crate) fn fault(before: &Before, now: &NodeNow) -> Option<Fault> {
    let passing = |line: &str| Some(Fault { line: line.to_owned(), is_final: false });
    if !now.loop_runs {
        return passing("the sync loop has not run");
    }
    if !now.runtime_answers {
        return passing("the runtime does not answer");
    }
    let is_same_boot = before.boot == now.boot;
    let fault = before.runs.iter().find_map(|run| fault_of_run(run, is_same_boot, now));
    if fault.is_some() {
        return fault;
    }
    if before.is_connected && !now.is_connected {
        return passing("the node was not ready in its cluster");
    }
    if before.has_url && !now.has_url {
        return passing("the URL of manifests does not answer");
    }
    None
}

fn fault_of_run(run: &RunBefore, is_same_boot: bool, now: &NodeNow) -> Option<Fault> {
    let is_wanted = now.wanted_pods.contains(&run.uid);
    if run.is_of_cluster && !is_wanted {
        return None;
    }
    if !is_same_boot {
        // Every container has ended with the boot.
        let is_fine = run.may_end || now.running_pods.contains(&run.uid);
        let line = || format!("the pod of {} does not run since the reboot", run.name);
        return (!is_fine).then(|| Fault { line: line(), is_final: false });
    }
    let (line, is_final) = match now.runs.get(&run.id) {
        Some(SeenRun::Running) => return None,
        Some(SeenRun::Exited(0)) if run.may_end => return None,
        Some(SeenRun::Exited(_)) => (format!("container {} does not run any longer", run.name), true),
        None => (format!("container {} is not known", run.name), false),
    };
    Some(Fault { line, is_final })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// The reason.
    Bad(String),
}

/// Waits until there has been no fault for a while.
#[derive(Debug)]
pub(crate) struct Judge {
    end: Instant,
    settle_time: Duration,
    good_since: Option<Instant>,
}

impl Judge {
    pub(crate) fn new(within: Duration, settle_time: Duration, now: Instant) -> Self {
        Self { end: now + within, settle_time, good_since: None }
    }

    pub(crate) fn judge(&mut self, fault: Option<Fault>, now: Instant) -> Option<Verdict> {
        let Some(fault) = fault else {
            let since = *self.good_since.get_or_insert(now);
            return (now.saturating_duration_since(since) >= self.settle_time).then_some(Verdict::Good);
        };
        self.good_since = None;
        (fault.is_final || now >= self.end).then_some(Verdict::Bad(fault.line))
    }
}

impl Before {
    pub(super) fn to_json(&self) -> Value {
        let runs: Vec<Value> = self.runs.iter().map(|run| {
            json!({ "id": run.id, "uid": run.uid, "name": run.name, "ofCluster": run.is_of_cluster, "mayEnd": run.may_end })
        }).collect();
        json!({ "boot": self.boot, "runs": runs, "connected": self.is_connected, "url": self.has_url })
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let flag = |value: &Value, key: &str| value.get(key).and_then(Value::as_bool);
        let run = |run: &Value| {
            Some(RunBefore {
                id: text(run, "id")?,
                uid: text(run, "uid")?,
                name: text(run, "name")?,
                is_of_cluster: flag(run, "ofCluster")?,
                may_end: flag(run, "mayEnd")?,
            })
        };
        Some(Self {
            boot: text(value, "boot")?,
            runs: value.get("runs")?.as_array()?.iter().map(run).collect::<Option<_>>()?,
            is_connected: flag(value, "connected")?,
            has_url: flag(value, "url")?,
        })
    }
}

pub(super) fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(run: RunBefore) -> Before {
        Before { boot: "b".to_owned(), runs: vec![run], is_connected: true, has_url: true }
    }

    fn run() -> RunBefore {
        let (id, uid, name) = ("c1".to_owned(), "u".to_owned(), "default/web/main".to_owned());
        RunBefore { id, uid, name, is_of_cluster: false, may_end: false }
    }

    fn good() -> NodeNow {
        NodeNow {
            boot: "b".to_owned(),
            loop_runs: true,
            runtime_answers: true,
            runs: [("c1".to_owned(), SeenRun::Running)].into_iter().collect(),
            running_pods: vec!["u".to_owned()],
            wanted_pods: vec!["u".to_owned()],
            is_connected: true,
            has_url: true,
        }
    }

    #[track_caller]
    fn check(run: RunBefore, now: &NodeNow, line: &str, is_final: bool) {
        let expected = (!line.is_empty()).then(|| Fault { line: line.to_owned(), is_final });
        assert_eq!(fault(&before(run), now), expected);
    }

    #[test]
    fn each_condition_is_needed() {
        check(run(), &good(), "", false);
        check(run(), &NodeNow { loop_runs: false, ..good() }, "the sync loop has not run", false);
        check(run(), &NodeNow { runtime_answers: false, ..good() }, "the runtime does not answer", false);
        check(run(), &NodeNow { is_connected: false, ..good() }, "the node was not ready in its cluster", false);
        check(run(), &NodeNow { has_url: false, ..good() }, "the URL of manifests does not answer", false);
        let away = Before { is_connected: false, has_url: false, ..before(run()) };
        assert_eq!(fault(&away, &NodeNow { is_connected: false, has_url: false, ..good() }), None);
    }

    #[test]
    fn container_has_to_be_the_same_unless_it_ended_by_itself_or_the_cluster_deleted_its_pod() {
        let seen = |id: &str, seen| NodeNow { runs: [(id.to_owned(), seen)].into_iter().collect(), ..good() };
        let ended = "container default/web/main does not run any longer";
        check(run(), &seen("c1", SeenRun::Exited(137)), ended, true);
        check(run(), &seen("c1", SeenRun::Exited(0)), ended, true);
        check(run(), &seen("c2", SeenRun::Running), "container default/web/main is not known", false);
        check(RunBefore { may_end: true, ..run() }, &seen("c1", SeenRun::Exited(0)), "", false);
        check(RunBefore { may_end: true, ..run() }, &seen("c1", SeenRun::Exited(1)), ended, true);
        let deleted = NodeNow { wanted_pods: Vec::new(), ..seen("c1", SeenRun::Exited(137)) };
        check(RunBefore { is_of_cluster: true, ..run() }, &deleted, "", false);
        check(run(), &deleted, ended, true);
    }

    #[test]
    fn after_a_reboot_the_pod_has_to_run_again() {
        let rebooted = NodeNow { boot: "c".to_owned(), runs: SortedMap::new(), ..good() };
        check(run(), &rebooted, "", false);
        let without = NodeNow { running_pods: Vec::new(), ..rebooted };
        check(run(), &without, "the pod of default/web/main does not run since the reboot", false);
        check(RunBefore { may_end: true, ..run() }, &without, "", false);
    }

    #[test]
    fn verdict_is_good_once_there_was_no_fault_for_the_settle_time() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let fault = |is_final| Some(Fault { line: "f".to_owned(), is_final });
        let judge = || Judge::new(Duration::from_secs(50), Duration::from_secs(10), start);
        let mut one = judge();
        assert_eq!(one.judge(fault(false), at(0)), None);
        assert_eq!(one.judge(None, at(5)), None);
        assert_eq!(one.judge(fault(false), at(14)), None);
        assert_eq!(one.judge(None, at(15)), None);
        assert_eq!(one.judge(None, at(24)), None);
        assert_eq!(one.judge(None, at(25)), Some(Verdict::Good));
        assert_eq!(judge().judge(fault(false), at(50)), Some(Verdict::Bad("f".to_owned())));
        assert_eq!(judge().judge(fault(true), at(0)), Some(Verdict::Bad("f".to_owned())));
        // A fault that passed just before the end gets its time.
        let mut late = judge();
        assert_eq!(late.judge(None, at(49)), None);
        assert_eq!(late.judge(None, at(58)), None);
        assert_eq!(late.judge(None, at(59)), Some(Verdict::Good));
    }

    #[test]
    fn before_survives_its_encoding() {
        let one = before(RunBefore { is_of_cluster: true, may_end: true, ..run() });
        for before in [one, before(run()), Before::default()] {
            assert_eq!(Before::from_json(&before.to_json()), Some(before));
        }
    }
}
