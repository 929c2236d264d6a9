//! `coracle wait`: waits until pods are ready, done or gone.

use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::Instant;

use super::command_table::Wait;
use super::delete::DELETE_POLL_INTERVAL;
use super::find_pod::PodListResponse;
use super::local_api::get;
use super::pod_name::PodName;
use super::pod_row::PodRow;
use super::{failed, print};
use crate::platform::host::clock;
use crate::types::api::{ConditionStatus, Pod, PodPhase, conditions, decode};
use crate::types::error::ErrorChain;

/// The state that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitedState {
    Ready,
    /// All containers succeeded.
    Done,
    Gone,
}

impl FromStr for WaitedState {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, &'static str> {
        match word.to_ascii_lowercase().as_str() {
            "ready" | "condition=ready" | "condition=ready=true" => Ok(Self::Ready),
            "done" | "completed" | "succeeded" => Ok(Self::Done),
            "delete" | "deleted" | "gone" => Ok(Self::Gone),
            _ => Err("expected ready, done or delete"),
        }
    }
}

impl WaitedState {
    fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Done => "done",
            Self::Gone => "gone",
        }
    }
}

pub(super) fn run(command: &Wait) -> ExitCode {
    let end = Instant::now() + command.timeout.duration();
    let mut waiting_for: Vec<&String> = command.pods.iter().collect();
    loop {
        let pods = match get::<PodListResponse>(&command.local_socket, "/pods") {
            Ok(response) => {
                response.pods.into_iter().filter_map(|entry| decode::<Pod>(entry.pod).ok()).map(|pod| pod.value)
            }
            // The agent may be about to start.
            Err(error) if Instant::now() >= end => return failed(&ErrorChain(&error).to_string()),
            Err(_) => {
                thread::sleep(DELETE_POLL_INTERVAL);
                continue;
            }
        };
        let pods: Vec<Pod> = pods.collect();
        let named = |name: &str| named(&pods, PodName::new(name, command.namespace.as_deref()));
        for name in std::mem::take(&mut waiting_for) {
            match progress(&named(name), command.until) {
                Progress::There => {
                    if print(&format!("pod {name} is {}\n", command.until.word())) != ExitCode::SUCCESS {
                        return ExitCode::FAILURE;
                    }
                }
                Progress::Never(why) => return failed(&format!("pod {name} {why}; see coracle describe {name}")),
                Progress::NotYet => waiting_for.push(name),
            }
        }
        let Some(first) = waiting_for.first() else { return ExitCode::SUCCESS };
        if Instant::now() >= end {
            let seconds = command.timeout.seconds();
            let found = named(first);
            let state = found.first().map_or_else(
                || format!("no pod {first}; coracle pods lists all pods"),
                |pod| format!("{}; see coracle describe {first}", PodRow::of(pod, clock::now().unix_seconds()).status),
            );
            return failed(&format!("pod {first} is not {} after {seconds} s: {state}", command.until.word()));
        }
        thread::sleep(DELETE_POLL_INTERVAL);
    }
}

fn named<'a>(pods: &'a [Pod], name: PodName<'_>) -> Vec<&'a Pod> {
    let is_it = |pod: &&Pod| name.is(&pod.metadata.namespace, &pod.metadata.name, &pod.spec.node_name);
    let named: Vec<&Pod> = pods.iter().filter(is_it).collect();
    if named.is_empty() { pods.iter().filter(|pod| name.is_owner_of(pod)).collect() } else { named }
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    There,
    NotYet,
    Never(&'static str),
}

/// The progress of all pods of a name: one that ends may have a successor.
fn progress(pods: &[&Pod], state: WaitedState) -> Progress {
    let ready = |pod: &&Pod| {
        let mut held = pod.status.conditions.iter().filter(|condition| condition.status == ConditionStatus::True);
        pod.metadata.deletion_timestamp.is_none() && held.any(|condition| condition.kind == conditions::READY)
    };
    let phase = |phase: PodPhase| pods.iter().any(|pod| pod.status.phase == phase);
    let is_there = match state {
        // Of a workload, all pods.
        WaitedState::Ready => {
            let has_ready = |pod_of_name: &&Pod| {
                pods.iter().filter(|pod| pod.metadata.name == pod_of_name.metadata.name).any(ready)
            };
            !pods.is_empty() && pods.iter().all(has_ready)
        }
        WaitedState::Done => phase(PodPhase::Succeeded),
        WaitedState::Gone => pods.is_empty(),
    };
    match state {
        _ if is_there => Progress::There,
        WaitedState::Ready if pods.len() == 1 && phase(PodPhase::Succeeded) => Progress::Never("has ended"),
        WaitedState::Ready | WaitedState::Done if pods.len() == 1 && phase(PodPhase::Failed) => {
            Progress::Never("has failed")
        }
        WaitedState::Ready | WaitedState::Done | WaitedState::Gone => Progress::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(phase: &str, ready: &str) -> Pod {
        let status = json!({ "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] });
        decode(json!({ "metadata": { "name": "web" }, "status": status })).unwrap().value
    }

    #[test]
    fn each_state_is_reached_by_its_pods() {
        use Progress::{Never, NotYet, There};
        use WaitedState::{Done, Gone, Ready};
        let (starts, runs, done, failed) =
            (pod("Pending", "False"), pod("Running", "True"), pod("Succeeded", "False"), pod("Failed", "False"));
        for (pods, state, expected) in [
            (vec![], Ready, NotYet),
            (vec![&starts], Ready, NotYet),
            (vec![&runs], Ready, There),
            (vec![&done], Ready, Never("has ended")),
            (vec![&failed], Ready, Never("has failed")),
            // A former pod of the name does not decide.
            (vec![&failed, &starts], Ready, NotYet),
            (vec![&runs], Done, NotYet),
            (vec![&done], Done, There),
            (vec![&runs], Gone, NotYet),
            (vec![], Gone, There),
        ] {
            assert_eq!(progress(&pods, state), expected, "{state:?}");
        }
    }

    #[test]
    fn states_have_kubectls_words() {
        for (word, state) in [
            ("condition=Ready", WaitedState::Ready),
            ("ready", WaitedState::Ready),
            ("delete", WaitedState::Gone),
            ("done", WaitedState::Done),
        ] {
            assert_eq!(word.parse(), Ok(state));
        }
        assert!("condition=Scheduled".parse::<WaitedState>().is_err());
    }
}
