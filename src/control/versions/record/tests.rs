//! One pod's versions: every transition.

use super::*;
use crate::types::api::Container;
use crate::types::api::annotations::{CONFIG_SEEN, HOLD, UPDATE_LOCK};

const START: Duration = Duration::from_secs(1000);

fn version(uid: &str, within: Option<&str>) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.name = "web-n".to_owned();
    pod.metadata.uid = PodUid::from(uid.to_owned());
    if let Some(within) = within {
        pod.metadata.annotations.insert(READY_WITHIN, within.to_owned());
    }
    Arc::new(pod)
}

fn gated(uid: &str) -> Arc<Pod> {
    version(uid, Some("60s"))
}

fn plain(uid: &str) -> Arc<Pod> {
    version(uid, None)
}

fn runs(record: &Record) -> &'static str {
    let runs = |uid: &&str| record.runs().is_some_and(|pod| pod.metadata.uid.as_str() == *uid);
    ["1", "2", "3", "4", "5"].into_iter().find(runs).unwrap_or("nothing")
}

fn is_on_trial(record: &mut Record, now: Instant) -> bool {
    record.on_trial(true, now).is_some()
}

fn kept(record: &Record) -> Vec<&str> {
    record.kept().iter().map(|pod| pod.metadata.uid.as_str()).collect()
}

/// The record that the next process reads from disk.
fn after_a_restart(record: &Record) -> Record {
    let text = record.to_json().to_string();
    Record::from_json(serde_json::from_str(&text).unwrap()).unwrap()
}

/// The record after these manifests, each accepted once it was ready.
fn after(pods: &[&Arc<Pod>], now: Instant) -> Record {
    let mut record = Record::default();
    for pod in pods {
        record.offer(pod);
        record.on_trial(true, now);
        judge(&mut record, TrialState::Ready, now);
    }
    record
}

fn judge(record: &mut Record, state: TrialState, now: Instant) -> Option<TrialResult> {
    record.judge(state, &mut || true, now)
}

#[test]
fn first_or_ungated_versions_count_at_once_and_old_ones_are_dropped() {
    let now = Instant::now();
    let mut record = Record::default();
    for (index, uid) in ["1", "2", "3", "4"].into_iter().enumerate() {
        assert!(record.offer(&plain(uid)));
        assert!(!record.offer(&plain(uid)), "the same again is nothing new");
        assert_eq!((runs(&record), is_on_trial(&mut record, now), record.earlier()), (uid, false, index.min(2)));
    }
    assert_eq!(kept(&record), ["2", "3", "4"]);
    let mut more = Pod::clone(&plain("5"));
    more.metadata.annotations.insert(KEEP_VERSIONS, "2".to_owned());
    record.offer(&Arc::new(more));
    assert_eq!(kept(&record), ["4", "5"]);
    // A trial needs an earlier version to return to.
    assert_eq!(after(&[&gated("1")], now).trial.map(|trial| trial.uid), None);
}

#[test]
fn version_ready_in_time_is_kept_and_a_late_one_is_rejected() {
    let now = Instant::now() + START;
    let mut record = after(&[&gated("1"), &gated("2")], now);
    assert_eq!((runs(&record), kept(&record).as_slice()), ("2", &["1", "2"][..]));

    assert!(record.offer(&gated("3")));
    assert_eq!((runs(&record), record.due(), record.holds_up_others()), ("3", None, Some("is on trial")));
    // The deadline starts when pods can be worked on.
    record.on_trial(false, now);
    assert_eq!(record.due(), None);
    record.on_trial(true, now);
    let end = now + Duration::from_secs(60);
    assert_eq!(record.due(), Some(end));
    assert_eq!(judge(&mut record, TrialState::NotReady, end - Duration::from_millis(1)), None);
    let verdict = judge(&mut record, TrialState::NotReady, end);
    assert_eq!(verdict, Some(TrialResult::Rejected("it was not ready within 60s".to_owned())));
    assert_eq!((runs(&record), record.due(), kept(&record).as_slice()), ("2", None, &["1", "2"][..]));
    assert_eq!((record.state().unwrap().0, record.holds_up_others()), ("rejected", Some("rejected this version")));
    assert!(!record.offer(&gated("3")));
    assert_eq!(runs(&record), "2", "it was tried again");

    assert!(record.offer(&gated("4")));
    assert_eq!(runs(&record), "4");
    assert!(judge(&mut record, TrialState::Failed, now).is_some());
    assert_eq!(runs(&record), "2");
    // The former manifest is the version that runs.
    assert!(record.offer(&gated("2")));
    assert_eq!((runs(&record), record.state()), ("2", None));
}

#[test]
fn version_without_readiness_probe_has_to_settle() {
    let now = Instant::now() + START;
    let settling = |seconds| TrialState::Settling(Duration::from_secs(seconds));
    let mut record = after(&[&gated("1")], now);
    record.offer(&gated("2"));
    record.on_trial(true, now);
    assert_eq!(judge(&mut record, settling(10), now), None);
    assert_eq!(record.due(), Some(now + Duration::from_secs(10)));
    // A container restarts: it settles again.
    assert_eq!(judge(&mut record, TrialState::NotReady, now + Duration::from_secs(5)), None);
    assert_eq!(record.due(), Some(now + Duration::from_secs(60)));
    let end = now + Duration::from_secs(60);
    assert_eq!(judge(&mut record, settling(10), end - Duration::from_secs(1)), None);
    assert_eq!(record.due(), Some(end));
    // It ran until the end of the trial.
    assert_eq!(judge(&mut record, settling(9), end), Some(TrialResult::Accepted));
}

#[test]
fn manifest_change_during_a_trial_starts_another_trial() {
    let now = Instant::now();
    let mut record = after(&[&gated("1")], now);
    record.offer(&gated("2"));
    record.on_trial(true, now);
    assert!(record.offer(&gated("3")));
    assert_eq!((runs(&record), record.due()), ("3", None));
    assert!(record.offer(&gated("1")));
    assert_eq!((runs(&record), is_on_trial(&mut record, now)), ("1", false));
    record.offer(&gated("2"));
    assert!(record.offer(&plain("4")), "one without a gate counts at once");
    assert_eq!((runs(&record), kept(&record).as_slice()), ("4", &["1", "4"][..]));
}

#[test]
fn decisions_survive_restarts_and_trials_restart_a_few_times() {
    let now = Instant::now();
    let mut record = after(&[&gated("1")], now);
    record.offer(&gated("2"));
    for start in 1..=3 {
        assert_eq!(runs(&record), "2", "start {start}");
        record = after_a_restart(&record);
        assert!(record.offer(&gated("2")), "each start counts, and is kept");
        assert!(!record.offer(&gated("2")));
    }
    assert_eq!((runs(&record), record.state().unwrap().0), ("1", "rejected"));

    let mut next = after_a_restart(&record);
    assert!(!next.offer(&gated("2")));
    assert_eq!(runs(&next), "1");

    // This node's own annotations are no change, and cost no write.
    let mut seen = Pod::clone(&gated("1"));
    seen.metadata.annotations.insert(CONFIG_SEEN, "later".to_owned());
    let mut same = after_a_restart(&after(&[&gated("1")], now));
    assert!(!same.offer(&Arc::new(seen.clone())));
    seen.spec.priority = Some(1);
    assert!(same.offer(&Arc::new(seen)), "other amounts of the same version are to come back, too");
}

#[test]
fn rollback_holds_until_the_manifest_changes_or_is_confirmed() {
    let now = Instant::now();
    let mut record = after(&[&plain("1"), &plain("2"), &plain("3")], now);
    assert_eq!(record.apply_request(RecordAction::Rollback(3)), Err(RequestError::NoSuchVersion(2)));
    assert!(record.apply_request(RecordAction::Rollback(0)).is_err());
    assert_eq!(record.apply_request(RecordAction::Rollback(2)), Ok("rolled back"));
    assert_eq!((runs(&record), kept(&record).as_slice()), ("1", &["2", "3", "1"][..]));
    record = after_a_restart(&record);
    assert!(!record.offer(&plain("3")));
    assert_eq!((runs(&record), record.state().unwrap().0), ("1", "rolled back"));
    // A second rollback returns to the original version.
    assert_eq!(record.apply_request(RecordAction::Rollback(1)), Ok("rolled back"));
    assert_eq!(runs(&record), "3");
    assert_eq!(record.apply_request(RecordAction::Rollback(1)), Ok("rolled back"));
    record.offer(&gated("4"));
    assert_eq!((runs(&record), record.trial.is_some()), ("4", true));
    assert_eq!(record.apply_request(RecordAction::Rollback(1)), Ok("rolled back"));
    assert_eq!((runs(&record), is_on_trial(&mut record, now)), ("1", false), "what had run before comes back");
    assert_eq!(record.apply_request(RecordAction::Confirm), Ok("confirmed"));
    assert_eq!((runs(&record), record.state(), kept(&record).as_slice()), ("4", None, &["3", "1", "4"][..]));
    let none = after(&[&plain("1")], now).apply_request(RecordAction::Rollback(1));
    assert_eq!(none, Err(RequestError::NoSuchVersion(0)));
}

#[test]
fn held_version_stays_until_confirmed() {
    let now = Instant::now();
    let mut record = after(&[&plain("1")], now);
    assert!(!record.is_held());
    assert_eq!(record.apply_request(RecordAction::Hold), Ok("held"));
    assert!(record.is_held());
    for uid in ["2", "3"] {
        assert!(!record.offer(&plain(uid)));
        record = after_a_restart(&record);
        assert!(!record.offer(&gated(uid)));
        assert_eq!((runs(&record), is_on_trial(&mut record, now)), ("1", false));
    }
    assert!(record.state().unwrap().1.starts_with("the manifest has changed; "));
    assert_eq!(record.apply_request(RecordAction::Confirm), Ok("confirmed"));
    assert_eq!((runs(&record), is_on_trial(&mut record, now), record.state()), ("3", false, None));
    record.offer(&gated("4"));
    assert!(record.apply_request(RecordAction::Hold).is_err());
    assert_eq!(record.apply_request(RecordAction::Confirm), Ok("confirmed"));
    assert_eq!((runs(&record), is_on_trial(&mut record, now)), ("4", false));
}

/// A version with images of its own.
fn with_image(uid: &str, within: Option<&str>) -> Arc<Pod> {
    let mut pod = Pod::clone(&version(uid, within));
    let container = Container { image: format!("app:{uid}"), ..Container::default() };
    pod.spec.containers = vec![container];
    Arc::new(pod)
}

fn next(record: &Record) -> Option<&str> {
    record.next().map(|pod| pod.metadata.uid.as_str())
}

#[test]
fn trial_begins_when_the_images_of_the_next_version_are_there() {
    let now = Instant::now();
    let mut record = Record::default();
    assert!(record.propose(&with_image("1", None)), "the first version replaces none");
    assert_eq!((runs(&record), next(&record)), ("1", None));
    let second = with_image("2", Some("60s"));
    for _ in 0..5 {
        assert!(!record.propose(&second), "nothing has to be stored");
        assert_eq!((runs(&record), next(&record)), ("1", Some("2")));
        assert!(!is_on_trial(&mut record, now));
        record = after_a_restart(&record);
    }
    record.propose(&second);
    assert!(!record.take_next(&"3".into()));
    assert!(record.take_next(&"2".into()));
    assert_eq!((runs(&record), next(&record)), ("2", None));
    assert!(is_on_trial(&mut record, now));
    assert!(!record.propose(&second));
    // A still newer version waits while the trial continues; its verdict leaves the newer one waiting.
    record.propose(&with_image("3", None));
    assert_eq!((runs(&record), next(&record)), ("2", Some("3")));
    assert!(judge(&mut record, TrialState::Failed, now).is_some());
    assert_eq!((runs(&record), next(&record)), ("1", Some("3")));
    record.propose(&with_image("4", None));
    assert_eq!((runs(&record), next(&record)), ("1", Some("4")));
    record.propose(&with_image("1", None));
    assert_eq!((runs(&record), next(&record)), ("1", None), "the manifest is the present version again");
}

#[test]
fn present_version_replaces_a_trial_that_a_restart_has_lost() {
    let mut record = Record::default();
    record.propose(&with_image("1", None));
    record.offer(&with_image("2", Some("60s")));
    record = after_a_restart(&record);
    assert!(record.propose(&with_image("3", None)));
    assert_eq!((runs(&record), next(&record), record.state()), ("1", Some("3"), None));
}

#[test]
fn requests_end_the_wait_of_the_next_version() {
    let waiting = || {
        let mut record = after(&[&with_image("1", None), &with_image("2", None)], Instant::now());
        record.propose(&with_image("3", None));
        assert_eq!((runs(&record), next(&record)), ("2", Some("3")));
        record
    };
    for (ask, shown, state) in [
        (RecordAction::Confirm, "3", None),
        (RecordAction::Hold, "2", Some("held")),
        (RecordAction::Rollback(1), "1", Some("rolled back")),
    ] {
        let mut record = waiting();
        assert!(record.apply_request(ask).is_ok());
        assert_eq!((runs(&record), next(&record), record.state().map(|state| state.0)), (shown, None, state));
        assert!(!record.propose(&with_image("3", None)), "{ask:?}: the manifest is the same");
        assert_eq!((runs(&record), next(&record)), (shown, None));
    }
    let mut record = waiting();
    assert!(record.apply_request(RecordAction::Rollback(2)).is_err());
    assert_eq!((runs(&record), next(&record)), ("2", Some("3")));
}

#[test]
fn only_images_that_the_present_version_lacks_are_pulled_first() {
    let container = |image: &str, policy| Container {
        image: image.to_owned(),
        image_pull_policy: Some(policy),
        ..Container::default()
    };
    let pod = |containers: Vec<Container>, pull_first: Option<&str>| {
        let mut pod = Pod::default();
        pod.spec.containers = containers;
        if let Some(value) = pull_first {
            pod.metadata.annotations.insert(PULL_FIRST, value.to_owned());
        }
        pod
    };
    let (present, always) = (PullPolicy::IfNotPresent, PullPolicy::Always);
    let before = pod(vec![container("a:1", present), container("b:1", present)], None);
    for (containers, annotation, expected) in [
        (vec![container("b:1", present)], None, false),
        (vec![container("b:1", always)], None, true),
        (vec![container("a:1", present), container("a:2", present)], None, true),
        (vec![container("a:2", present)], Some("true"), true),
        (vec![container("a:2", present)], Some("false"), false),
    ] {
        let after = pod(containers, annotation);
        assert_eq!(pulls_first(&before, &after), expected, "{after:?}");
    }
    let mut needs_mains = pod(vec![container("b:1", present)], Some("false"));
    needs_mains.metadata.annotations.insert(NEEDS_MAINS, "true".to_owned());
    assert!(pulls_first(&before, &needs_mains));
}

#[test]
fn invalid_record_is_rejected() {
    for text in ["{}", "7", r#"{"format": 2, "accepted": []}"#, r#"{"format": 1}"#, r#"{"format": 1, "accepted": [7]}"#]
    {
        assert!(Record::from_json(serde_json::from_str(text).unwrap()).is_none(), "{text}");
    }
}

#[test]
fn stop_pauses_a_trial_and_the_start_gives_it_its_whole_time() {
    let now = Instant::now();
    let later = |seconds| now + Duration::from_secs(seconds);
    let mut record = after(&[&plain("1")], now);
    record.offer(&gated("2"));
    assert!(is_on_trial(&mut record, now));
    record.set_stopped(true);
    for state in [TrialState::NotReady, TrialState::Failed, TrialState::Ready] {
        assert!(is_on_trial(&mut record, later(600)));
        assert_eq!(judge(&mut record, state, later(600)), None, "{state:?}");
    }
    assert_eq!(record.due(), None);
    record.set_stopped(false);
    assert!(is_on_trial(&mut record, later(600)));
    assert_eq!(judge(&mut record, TrialState::NotReady, later(659)), None);
    assert!(matches!(judge(&mut record, TrialState::NotReady, later(660)), Some(TrialResult::Rejected(_))));
    assert_eq!(runs(&record), "1");
}

#[test]
fn rejected_version_runs_until_the_node_may_stop_it() {
    for state in [TrialState::NotReady, TrialState::Failed] {
        let now = Instant::now();
        let end = now + Duration::from_secs(60);
        let mut record = after(&[&plain("1")], now);
        record.offer(&gated("2"));
        record.on_trial(true, now);
        assert_eq!(record.judge(state, &mut || false, end), None);
        // The update lock wakes the loop.
        assert_eq!((runs(&record), record.due()), ("2", None));
        assert!(record.judge(state, &mut || true, end).is_some());
        assert_eq!(runs(&record), "1");
    }
}

#[test]
fn version_that_becomes_ready_while_it_is_held_is_accepted() {
    let now = Instant::now();
    let mut record = after(&[&plain("1")], now);
    record.offer(&gated("2"));
    record.on_trial(true, now);
    assert_eq!(record.judge(TrialState::NotReady, &mut || false, now + Duration::from_secs(60)), None);
    let end = now + Duration::from_secs(90);
    assert_eq!(record.judge(TrialState::Ready, &mut || panic!("nothing stops"), end), Some(TrialResult::Accepted));
}

#[test]
fn present_version_that_may_be_held_is_not_replaced_at_once() {
    let annotated = |uid: &str, name: &'static str, value: &str| {
        let mut pod = Pod::clone(&plain(uid));
        pod.metadata.annotations.insert(name, value.to_owned());
        Arc::new(pod)
    };
    // Without images there is nothing to pull first.
    let (locked, held) = (annotated("1", UPDATE_LOCK, "state/lock"), annotated("2", HOLD, "true"));
    for (present, next) in [(locked, plain("2")), (plain("1"), held)] {
        let mut record = after(&[&present], Instant::now());
        record.propose(&next);
        assert_eq!(runs(&record), "1");
        assert!(record.take_next(&"2".into()));
        assert_eq!(runs(&record), "2");
    }
}
