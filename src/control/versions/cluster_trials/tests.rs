//! Verdicts about pods of the cluster: each is told once.

use super::*;
use crate::types::api::{OwnerReference, PodCondition};

const WITHIN: Duration = Duration::from_secs(60);

/// A pod of the DaemonSet `agent` with this image.
fn pod(uid: &str, image: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = uid.into();
    pod.metadata.name = ["agent-", uid].concat();
    pod.metadata.namespace = "default".to_owned();
    pod.metadata.annotations.insert("kubernetes.io/config.source", "api".to_owned());
    pod.metadata.annotations.insert(READY_WITHIN, "60s".to_owned());
    let kind = "DaemonSet".to_owned();
    let owner = OwnerReference { kind, name: "agent".to_owned(), controller: Some(true), ..OwnerReference::default() };
    pod.metadata.owner_references = vec![owner];
    pod.spec.containers = vec![Container { image: image.to_owned(), ..Container::default() }];
    pod
}

fn judge(trials: &mut ClusterTrials, seen: &[(&Pod, Option<TrialState>)], now: Instant) -> Vec<String> {
    let seen: Vec<TriedPod<'_>> = seen.iter().map(|&(pod, state)| TriedPod { pod, state }).collect();
    let news = trials.judge(&seen, true, now).into_iter().map(|news| match news {
        TrialNews::Condition(uid, condition) => format!("{uid} {:?} {}", condition.status, condition.message),
        TrialNews::Verdict(uid, reason, _) => format!("{uid} {reason}"),
    });
    news.collect()
}

/// What the next agent reads.
fn after_a_restart(trials: &ClusterTrials) -> ClusterTrials {
    trials.to_json().map(|value| ClusterTrials::from_json(&value)).unwrap_or_default()
}

fn images(trials: &ClusterTrials) -> Vec<&str> {
    trials.kept().flat_map(|pod| &pod.spec.containers).map(|container| container.image.as_str()).collect()
}

/// Trials in which the pod has this verdict, which was written and told.
fn judged(pod: &Pod, state: TrialState, now: Instant) -> ClusterTrials {
    let mut trials = ClusterTrials::default();
    judge(&mut trials, &[(pod, Some(state))], now);
    judge(&mut trials, &[(pod, Some(state))], now + WITHIN);
    assert!(trials.take_dirty());
    trials.on_written();
    assert_eq!(judge(&mut trials, &[(pod, Some(state))], now + WITHIN).len(), 2);
    trials
}

#[test]
fn verdict_is_told_once_and_after_it_was_written() {
    let (pod, now) = (pod("a", "app:1"), Instant::now());
    let mut trials = ClusterTrials::default();
    assert_eq!(judge(&mut trials, &[(&pod, None)], now), ["a Unknown it has to be ready within 60s"]);
    assert_eq!((trials.due(), trials.take_dirty()), (None, false), "nothing has run");
    assert!(judge(&mut trials, &[(&pod, Some(TrialState::NotReady))], now).is_empty());
    assert_eq!(trials.due(), Some(now + WITHIN));
    assert!(judge(&mut trials, &[(&pod, Some(TrialState::Ready))], now).is_empty(), "it is not on disk");
    assert_eq!((trials.due(), trials.take_dirty(), trials.take_dirty()), (None, true, false));
    trials.on_written();
    let told = judge(&mut trials, &[(&pod, Some(TrialState::Failed))], now);
    assert_eq!(told, ["a UpdateAccepted", "a True it is ready"]);
    assert!(judge(&mut trials, &[(&pod, Some(TrialState::Failed))], now + WITHIN).is_empty());
}

#[test]
fn late_failed_and_unsettled_pods_are_judged() {
    let now = Instant::now();
    for (state, after, expected) in [
        (TrialState::NotReady, WITHIN, Some("it was not ready within 60s")),
        (TrialState::NotReady, WITHIN / 2, None),
        (TrialState::Failed, Duration::ZERO, Some("it has failed")),
        (TrialState::Settling(Duration::from_secs(9)), Duration::ZERO, None),
        (TrialState::Settling(Duration::from_secs(9)), WITHIN, Some("it is ready")),
    ] {
        let (pod, mut trials) = (pod("a", "app:1"), ClusterTrials::default());
        judge(&mut trials, &[(&pod, Some(TrialState::NotReady))], now);
        judge(&mut trials, &[(&pod, Some(state))], now + after);
        let verdict = trials.pods.values().next().and_then(|trial| trial.verdict.as_ref());
        assert_eq!(verdict.map(|verdict| verdict.message.as_str()), expected, "{state:?} after {after:?}");
    }
}

#[test]
fn next_agent_shows_the_verdict_and_does_not_judge_again() {
    let (mut pod, now) = (pod("a", "app:1"), Instant::now());
    let trials = judged(&pod, TrialState::NotReady, now);
    let shown = ["a False it was not ready within 60s"];
    assert_eq!(judge(&mut after_a_restart(&trials), &[(&pod, Some(TrialState::Ready))], now), shown);
    // The file is lost, and the API server has the verdict.
    let message = "it was not ready within 60s".to_owned();
    let status = ConditionStatus::False;
    pod.status.conditions = vec![PodCondition { kind: TRIAL.into(), status, message, ..PodCondition::default() }];
    let mut trials = ClusterTrials::default();
    assert_eq!(judge(&mut trials, &[(&pod, Some(TrialState::Ready))], now), shown);
    assert!(!trials.take_dirty());
}

#[test]
fn pod_counts_as_rejected_from_its_stored_verdict_until_it_is_gone() {
    let (good, bad, now) = (pod("a", "app:1"), pod("b", "app:2"), Instant::now());
    let both = [(&good, Some(TrialState::Ready)), (&bad, Some(TrialState::Failed))];
    let mut trials = ClusterTrials::default();
    judge(&mut trials, &both, now);
    let rejected = |trials: &ClusterTrials| trials.rejected().map(str::to_owned).collect::<Vec<_>>();
    assert!(trials.take_dirty() && rejected(&trials).is_empty(), "it is not on disk");
    trials.on_written();
    assert_eq!(rejected(&trials), ["default/agent-b"]);
    let mut trials = after_a_restart(&trials);
    assert!(rejected(&trials).is_empty(), "its name is not known yet");
    judge(&mut trials, &both, now);
    assert_eq!(rejected(&trials), ["default/agent-b"]);
    judge(&mut trials, &[(&good, Some(TrialState::Ready))], now);
    assert!(rejected(&trials).is_empty());
}

#[test]
fn images_of_the_good_version_stay_while_the_next_is_on_trial_or_rejected() {
    let (first, second, now) = (pod("a", "app:1"), pod("b", "app:2"), Instant::now());
    let mut trials = judged(&first, TrialState::Ready, now);
    assert!(images(&trials).is_empty(), "a running pod keeps its images");
    // The controller deletes the former pod first.
    judge(&mut trials, &[], now);
    assert_eq!(images(&trials), ["app:1"]);
    let mut trials = after_a_restart(&trials);
    assert_eq!(images(&trials), ["app:1"], "no pod has been seen yet");
    for (state, kept) in [(TrialState::NotReady, "app:1"), (TrialState::Failed, "app:1")] {
        judge(&mut trials, &[(&second, Some(state))], now);
        assert_eq!(images(&trials), [kept], "{state:?}");
    }
    let third = pod("c", "app:3");
    judge(&mut trials, &[(&third, Some(TrialState::Ready))], now);
    assert!(images(&trials).is_empty());
    judge(&mut trials, &[], now);
    assert_eq!(images(&trials), ["app:3"]);
}

#[test]
fn images_of_an_owner_without_pods_are_given_up_after_an_hour() {
    let now = Instant::now();
    let mut trials = judged(&pod("a", "app:1"), TrialState::Ready, now);
    judge(&mut trials, &[], now);
    judge(&mut trials, &[], now + GOOD_IMAGES_AGE - Duration::from_secs(1));
    assert_eq!(images(&trials), ["app:1"]);
    judge(&mut trials, &[], now + GOOD_IMAGES_AGE);
    assert_eq!((images(&trials).len(), trials.to_json()), (0, None));
}

#[test]
fn replica_sets_of_one_deployment_have_one_owner() {
    let of = |kind: &str, name: &str, hash: &str| {
        let mut pod = pod("a", "app:1");
        pod.metadata.labels.insert("pod-template-hash", hash.to_owned());
        (pod.metadata.owner_references[0].kind, pod.metadata.owner_references[0].name) = (kind.into(), name.into());
        owner_of(&pod).unwrap()
    };
    assert_eq!(of("ReplicaSet", "web-7d4f", "7d4f"), "default/Deployment/web");
    assert_eq!(of("ReplicaSet", "web-7d4f", "other"), "default/ReplicaSet/web-7d4f");
    assert_eq!(of("DaemonSet", "web-7d4f", "7d4f"), "default/DaemonSet/web-7d4f");
}

#[test]
fn trial_of_a_pod_that_ends_is_not_due() {
    let (pod, now) = (pod("a", "app:1"), Instant::now());
    let mut trials = ClusterTrials::default();
    judge(&mut trials, &[(&pod, Some(TrialState::NotReady))], now);
    assert_eq!(trials.due(), Some(now + WITHIN));
    judge(&mut trials, &[(&pod, None)], now);
    assert_eq!(trials.due(), None);
}

#[test]
fn known_verdict_is_shown_before_the_first_judgement() {
    let (pod, now) = (pod("a", "app:1"), Instant::now());
    let mut trials = after_a_restart(&judged(&pod, TrialState::Ready, now));
    let shown = trials.show(&[&pod], true);
    assert!(matches!(&*shown, [TrialNews::Condition(_, shown)] if shown.status == ConditionStatus::True));
    assert!(trials.show(&[&pod], true).is_empty() && judge(&mut trials, &[(&pod, None)], now).is_empty());
}

#[test]
fn verdict_that_only_the_api_server_has_is_neither_taken_back_nor_repeated() {
    let (stored, now) = (pod("a", "app:1"), Instant::now());
    // The disk was full: neither the verdict nor the status with it is stored.
    let mut trials = ClusterTrials::default();
    assert_eq!(trials.show(&[&stored], false), []);
    let tried = [TriedPod { pod: &stored, state: Some(TrialState::NotReady) }];
    assert_eq!(trials.judge(&tried, false, now), []);
    let mut listed = stored.clone();
    let (kind, message) = (TRIAL.into(), "it is ready".to_owned());
    listed.status.conditions =
        vec![PodCondition { kind, status: ConditionStatus::True, message, ..PodCondition::default() }];
    let news = trials.show(&[&listed], true);
    assert!(matches!(&news[..], [TrialNews::Condition(_, shown)] if shown.status == ConditionStatus::True), "{news:?}");
    assert!(judge(&mut trials, &[(&listed, Some(TrialState::Failed))], now + WITHIN).is_empty());
}
