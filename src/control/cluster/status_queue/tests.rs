use super::*;
use crate::types::api::PodPhase;

fn uid() -> PodUid {
    PodUid::from("u")
}

fn target() -> Target {
    Target { namespace: "ns".to_owned(), name: "p".to_owned(), uid: uid() }
}

fn status(phase: PodPhase) -> PodStatus {
    PodStatus { phase, ..PodStatus::default() }
}

/// A pod that the server shows as pending.
fn pending() -> StatusQueue {
    let mut reports = StatusQueue::default();
    reports.see(&uid(), target(), &status(PodPhase::Pending), 5);
    reports
}

/// The phases that are told now; an empty one for a deletion.
fn told(reports: &mut StatusQueue, now: Instant) -> Vec<String> {
    let phase = |job: StatusJob| match job.what {
        StatusRequest::Patch(patch) => {
            assert_eq!(patch["metadata"]["uid"], "u");
            patch["status"]["phase"].as_str().unwrap_or_default().to_owned()
        }
        StatusRequest::Delete { .. } => String::new(),
    };
    reports.next(now).into_iter().map(phase).collect()
}

fn accepted(reports: &mut StatusQueue, version: u64, now: Instant) {
    reports.done(&uid(), &ReportOutcome::Accepted { version }, now, |wait| wait);
}

#[test]
fn what_is_news_is_told_once_and_one_at_a_time() {
    let (mut reports, now) = (pending(), Instant::now());
    assert!(told(&mut reports, now).is_empty());
    reports.want(&uid(), status(PodPhase::Running));
    assert_eq!(told(&mut reports, now), ["Running"]);
    reports.want(&uid(), status(PodPhase::Failed));
    assert!(told(&mut reports, now).is_empty());
    accepted(&mut reports, 6, now);
    assert_eq!(told(&mut reports, now), ["Failed"]);
    accepted(&mut reports, 7, now);
    assert!(told(&mut reports, now).is_empty());
}

#[test]
fn an_echo_that_comes_late_brings_nothing_old_back() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.want(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    accepted(&mut reports, 9, now);
    reports.see(&uid(), target(), &status(PodPhase::Pending), 7);
    assert!(told(&mut reports, now).is_empty());
    // Somebody has really written another one.
    reports.see(&uid(), target(), &status(PodPhase::Pending), 10);
    assert_eq!(told(&mut reports, now), ["Running"]);
}

#[test]
fn an_answer_that_comes_late_hides_nothing_that_was_written_after_it() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.want(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    // Somebody takes it away again, and the watch is faster than the answer.
    reports.see(&uid(), target(), &status(PodPhase::Running), 6);
    reports.see(&uid(), target(), &status(PodPhase::Pending), 7);
    accepted(&mut reports, 6, now);
    assert_eq!(told(&mut reports, now), ["Running"]);
    accepted(&mut reports, 8, now);
    assert!(told(&mut reports, now).is_empty());
}

#[test]
fn an_answer_that_is_older_than_what_was_known_before_is_of_another_history() {
    let (mut reports, now) = (pending(), Instant::now());
    let accepted = |reports: &mut StatusQueue, version| {
        reports.done(&uid(), &ReportOutcome::Accepted { version }, now, |wait| wait)
    };
    reports.want(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    assert!(!accepted(&mut reports, 900));
    reports.want(&uid(), status(PodPhase::Failed));
    told(&mut reports, now);
    assert!(accepted(&mut reports, 3));
    assert!(told(&mut reports, now).is_empty(), "it was taken all the same");
    // A list has come while the next one was under way.
    reports.want(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    reports.relisted([(&uid(), &status(PodPhase::Failed), 2)].into_iter());
    assert!(!accepted(&mut reports, 4));
}

#[test]
fn a_server_with_another_history_is_told_what_it_has_lost() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.want(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    accepted(&mut reports, 900, now);
    assert!(told(&mut reports, now).is_empty());
    // A store that was restored: what was told is lost, and its versions are lower.
    reports.relisted([(&uid(), &status(PodPhase::Pending), 5)].into_iter());
    assert_eq!(told(&mut reports, now), ["Running"]);
    accepted(&mut reports, 6, now);
    // Somebody else writes in the new history.
    reports.see(&uid(), target(), &status(PodPhase::Pending), 8);
    assert_eq!(told(&mut reports, now), ["Running"]);
}

#[test]
fn a_failure_is_tried_again_later_with_what_is_true_then() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.want(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    reports.done(&uid(), &ReportOutcome::Failed("away".to_owned()), now, |wait| wait);
    reports.want(&uid(), status(PodPhase::Succeeded));
    assert!(told(&mut reports, now).is_empty());
    let due = reports.due().unwrap();
    assert_eq!(due - now, RETRY_FIRST);
    assert_eq!(told(&mut reports, due), ["Succeeded"]);
}

#[test]
fn a_pod_is_deleted_after_its_last_word() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.want(&uid(), status(PodPhase::Failed));
    reports.gone(&uid());
    assert_eq!(told(&mut reports, now), ["Failed"]);
    accepted(&mut reports, 6, now);
    assert_eq!(told(&mut reports, now), [""]);
    accepted(&mut reports, 0, now);
    assert!(told(&mut reports, now).is_empty());
}

/// A server that was restored may have a pod that nobody has deleted in its history.
#[test]
fn a_pod_of_another_history_is_not_deleted_before_it_is_seen_there() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.want(&uid(), status(PodPhase::Failed));
    reports.gone(&uid());
    told(&mut reports, now);
    accepted(&mut reports, 3, now);
    assert!(told(&mut reports, now).is_empty() && reports.due().is_none());
    reports.relisted([(&uid(), &status(PodPhase::Failed), 4)].into_iter());
    assert!(told(&mut reports, now).is_empty(), "whether it is deleted there is not known yet");
    reports.gone(&uid());
    assert_eq!(reports.next(now)[0].what, StatusRequest::Delete { version: 4 });
}

#[test]
fn a_deletion_that_somebody_elses_write_has_overtaken_is_asked_for_again() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.gone(&uid());
    assert_eq!(reports.next(now)[0].what, StatusRequest::Delete { version: 5 });
    reports.see(&uid(), target(), &status(PodPhase::Pending), 6);
    reports.done(&uid(), &ReportOutcome::Unknown, now, |wait| wait);
    assert_eq!(reports.next(now)[0].what, StatusRequest::Delete { version: 6 });
    // The same, if it is heard of after the answer.
    reports.done(&uid(), &ReportOutcome::Unknown, now, |wait| wait);
    assert!(told(&mut reports, now).is_empty());
    reports.see(&uid(), target(), &status(PodPhase::Pending), 7);
    assert_eq!(reports.next(now)[0].what, StatusRequest::Delete { version: 7 });
}

#[test]
fn of_a_pod_that_the_server_does_not_have_nothing_is_told_until_it_has() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.want(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    reports.done(&uid(), &ReportOutcome::Unknown, now, |wait| wait);
    assert!(told(&mut reports, now).is_empty() && reports.due().is_none());
    let other = Target { uid: PodUid::from("other"), ..target() };
    reports.see(&uid(), other.clone(), &status(PodPhase::Pending), 8);
    assert_eq!(reports.next(now)[0].target, other);
}

#[test]
fn no_more_than_a_few_are_told_at_once() {
    let (mut reports, now) = (StatusQueue::default(), Instant::now());
    for name in 0..10 {
        let pod = PodUid::from(name.to_string());
        reports.see(&pod, Target { uid: pod.clone(), ..target() }, &status(PodPhase::Pending), 1);
        reports.want(&pod, status(PodPhase::Running));
    }
    assert_eq!(reports.next(now).len(), AT_ONCE);
    assert!(reports.next(now).is_empty());
}

#[test]
fn the_newest_is_told_first_and_nobody_waits_who_has_nothing_to_tell() {
    let mut reports = StatusQueue::default();
    for name in ["a", "b", "c", "d"] {
        let uid = PodUid::from(name);
        reports.see(&uid, Target { uid: uid.clone(), ..target() }, &status(PodPhase::Pending), 5);
    }
    for (name, phase) in
        [("b", PodPhase::Running), ("d", PodPhase::Pending), ("c", PodPhase::Failed), ("a", PodPhase::Running)]
    {
        reports.want(&PodUid::from(name), status(phase));
    }
    reports.settle();
    assert_eq!(reports.untold(), 3);
    let order: Vec<PodUid> = reports.next(Instant::now()).into_iter().map(|job| job.pod).collect();
    assert_eq!(order, ["a", "c", "b"].map(PodUid::from));
    assert_eq!(reports.untold(), 3, "they are under way");
}

/// Five pods whose reports failed during an outage; the server is back.
#[test]
fn a_report_that_has_no_room_is_not_due_until_another_ends() {
    let (mut reports, now) = (StatusQueue::default(), Instant::now());
    let pods: Vec<PodUid> = (0..=AT_ONCE).map(|number| PodUid::from(&*format!("u{number}"))).collect();
    for pod in &pods {
        let target = Target { namespace: "ns".to_owned(), name: pod.to_string(), uid: pod.clone() };
        reports.see(pod, target, &status(PodPhase::Pending), 5);
        reports.want(pod, status(PodPhase::Running));
    }
    // One after the other, as they are begun: all of them fail.
    let fail = ReportOutcome::Failed("connection refused".to_owned());
    for _ in 0..2 {
        for job in reports.next(now) {
            reports.done(&job.pod, &fail, now, |wait| wait);
        }
    }
    let back = now + RETRY_LONGEST;
    assert!(reports.due().is_some_and(|due| due <= back));
    let jobs = reports.next(back);
    assert_eq!(jobs.len(), AT_ONCE);
    assert_eq!(reports.due(), None, "the loop would go round until a request ends, and keep it from ending");
    let first = jobs.first().unwrap();
    reports.done(&first.pod, &ReportOutcome::Accepted { version: 6 }, back, |wait| wait);
    assert_eq!(reports.next(back).len(), 1);
}

#[test]
fn an_invalid_status_is_sent_again_more_and_more_rarely_until_it_changes() {
    let (mut reports, now) = (pending(), Instant::now());
    let invalid = ReportOutcome::Invalid("Forbidden: may not be transitioned".to_owned());
    reports.want(&uid(), status(PodPhase::Running));
    let mut moment = now;
    for seconds in [60, 120, 240] {
        assert_eq!(told(&mut reports, moment), ["Running"]);
        reports.done(&uid(), &invalid, moment, |wait| wait);
        let due = reports.due().expect("it is sent again");
        assert_eq!(due - moment, Duration::from_secs(seconds));
        moment = due;
    }
    reports.want(&uid(), status(PodPhase::Failed));
    assert_eq!(told(&mut reports, now), ["Failed"]);
    reports.done(&uid(), &invalid, now, |wait| wait);
    assert!(told(&mut reports, now).is_empty());
    reports.see(&uid(), target(), &status(PodPhase::Pending), 6);
    assert_eq!(told(&mut reports, now), ["Failed"], "the server's object has changed");
}
