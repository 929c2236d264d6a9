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

/// A queue with a pod that is pending on the API server.
fn pending() -> StatusQueue {
    let mut reports = StatusQueue::default();
    reports.on_server_status(&uid(), target(), &status(PodPhase::Pending), 5);
    reports
}

/// The phases that are sent now; an empty string for a deletion.
fn told(reports: &mut StatusQueue, now: Instant) -> Vec<String> {
    let phase = |job: StatusJob| match job.request {
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
fn change_is_sent_once_and_one_request_at_a_time() {
    let (mut reports, now) = (pending(), Instant::now());
    assert!(told(&mut reports, now).is_empty());
    reports.enqueue(&uid(), status(PodPhase::Running));
    assert_eq!(told(&mut reports, now), ["Running"]);
    reports.enqueue(&uid(), status(PodPhase::Failed));
    assert!(told(&mut reports, now).is_empty());
    accepted(&mut reports, 6, now);
    assert_eq!(told(&mut reports, now), ["Failed"]);
    accepted(&mut reports, 7, now);
    assert!(told(&mut reports, now).is_empty());
}

#[test]
fn late_watch_event_of_own_write_restores_no_old_status() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.enqueue(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    accepted(&mut reports, 9, now);
    reports.on_server_status(&uid(), target(), &status(PodPhase::Pending), 7);
    assert!(told(&mut reports, now).is_empty());
    // Another client really wrote another status.
    reports.on_server_status(&uid(), target(), &status(PodPhase::Pending), 10);
    assert_eq!(told(&mut reports, now), ["Running"]);
}

#[test]
fn late_response_hides_no_later_write() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.enqueue(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    // Another client reverts the status, and the watch is faster than the response.
    reports.on_server_status(&uid(), target(), &status(PodPhase::Running), 6);
    reports.on_server_status(&uid(), target(), &status(PodPhase::Pending), 7);
    accepted(&mut reports, 6, now);
    assert_eq!(told(&mut reports, now), ["Running"]);
    accepted(&mut reports, 8, now);
    assert!(told(&mut reports, now).is_empty());
}

#[test]
fn response_with_an_older_version_means_another_history() {
    let (mut reports, now) = (pending(), Instant::now());
    let accepted = |reports: &mut StatusQueue, version| {
        reports.done(&uid(), &ReportOutcome::Accepted { version }, now, |wait| wait)
    };
    reports.enqueue(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    assert!(!accepted(&mut reports, 900));
    reports.enqueue(&uid(), status(PodPhase::Failed));
    told(&mut reports, now);
    assert!(accepted(&mut reports, 3));
    assert!(told(&mut reports, now).is_empty(), "it was taken all the same");
    // A list arrived while the next request was in flight.
    reports.enqueue(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    reports.relisted([(&uid(), &status(PodPhase::Failed), 2)].into_iter());
    assert!(!accepted(&mut reports, 4));
}

#[test]
fn pods_report_another_history_once_until_the_list_arrives() {
    let now = Instant::now();
    let mut reports = StatusQueue::default();
    let pods = ["a", "b", "c"].map(PodUid::from);
    let shown = status(PodPhase::Pending);
    for pod in &pods {
        reports.on_server_status(pod, Target { uid: pod.clone(), ..target() }, &shown, 900);
        reports.enqueue(pod, status(PodPhase::Running));
    }
    let report = |reports: &mut StatusQueue, outcome: &ReportOutcome| {
        assert_eq!(reports.next(now).len(), 3);
        let outcomes = pods.each_ref().map(|pod| reports.done(pod, outcome, now, |wait| wait));
        reports.relisted(pods.iter().map(|pod| (pod, &shown, 900)));
        outcomes
    };
    let behind = ReportOutcome::Accepted { version: 3 };
    assert_eq!([(); 2].map(|()| report(&mut reports, &behind)), [[true, false, false]; 2]);
    // A doubt that comes up while the list is under way ends with it.
    reports.next(now);
    assert!(reports.done(&pods[0], &behind, now, |wait| wait));
    reports.done(&pods[1], &ReportOutcome::Unknown, now, |wait| wait);
    assert!(!reports.take_overdue_denials(now + WATCH_LAG[0]));
    assert_eq!(reports.due(), None);
}

#[test]
fn restored_server_gets_the_lost_statuses_again() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.enqueue(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    accepted(&mut reports, 900, now);
    assert!(told(&mut reports, now).is_empty());
    // A restored store: sent statuses are lost, and versions are lower.
    reports.relisted([(&uid(), &status(PodPhase::Pending), 5)].into_iter());
    assert_eq!(told(&mut reports, now), ["Running"]);
    accepted(&mut reports, 6, now);
    // Another client writes in the new history.
    reports.on_server_status(&uid(), target(), &status(PodPhase::Pending), 8);
    assert_eq!(told(&mut reports, now), ["Running"]);
}

/// The queue of a pod whose status was not found on the API server.
fn denied(now: Instant) -> StatusQueue {
    let mut reports = pending();
    reports.enqueue(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    reports.done(&uid(), &ReportOutcome::Unknown, now, |wait| wait);
    assert!(told(&mut reports, now).is_empty());
    reports
}

#[test]
fn watch_that_keeps_showing_a_denied_pod_is_doubted() {
    let now = Instant::now();
    let mut reports = denied(now);
    assert_eq!(reports.due(), Some(now + WATCH_LAG[0]));
    assert!(!reports.take_overdue_denials(now));
    let later = now + WATCH_LAG[0];
    assert!(reports.take_overdue_denials(later));
    assert!(!reports.take_overdue_denials(later));
    assert_eq!(reports.due(), None);
}

#[test]
fn watch_that_confirms_the_denial_is_not_doubted() {
    let now = Instant::now();
    let newer = |reports: &mut StatusQueue| {
        reports.on_server_status(&uid(), target(), &status(PodPhase::Pending), 6);
    };
    let listed = |reports: &mut StatusQueue| {
        reports.relisted([(&uid(), &status(PodPhase::Pending), 4)].into_iter());
    };
    let gone = |reports: &mut StatusQueue| reports.forget(&uid());
    for confirm in [&newer as &dyn Fn(&mut StatusQueue), &listed, &gone] {
        let mut reports = denied(now);
        confirm(&mut reports);
        assert_eq!(reports.due(), None);
        assert!(!reports.take_overdue_denials(now + WATCH_LAG[0]));
    }
}

#[test]
fn pod_denied_again_and_again_is_doubted_ever_more_rarely() {
    let mut now = Instant::now();
    let mut reports = denied(now);
    for times in [2, 4, 8] {
        now = reports.due().unwrap();
        assert!(reports.take_overdue_denials(now));
        reports.relisted([(&uid(), &status(PodPhase::Pending), 5)].into_iter());
        assert_eq!(told(&mut reports, now), ["Running"]);
        reports.done(&uid(), &ReportOutcome::Unknown, now, |wait| wait);
        assert_eq!(reports.due(), Some(now + WATCH_LAG[0] * times));
    }
}

#[test]
fn failed_update_is_retried_with_the_current_status() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.enqueue(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    reports.done(&uid(), &ReportOutcome::Failed("away".to_owned()), now, |wait| wait);
    reports.enqueue(&uid(), status(PodPhase::Succeeded));
    assert!(told(&mut reports, now).is_empty());
    let due = reports.due().unwrap();
    assert_eq!(due - now, FIRST_STATUS_RETRY_DELAY);
    assert_eq!(told(&mut reports, due), ["Succeeded"]);
}

#[test]
fn pod_is_deleted_after_its_last_status() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.enqueue(&uid(), status(PodPhase::Failed));
    reports.enqueue_delete(&uid());
    assert_eq!(told(&mut reports, now), ["Failed"]);
    accepted(&mut reports, 6, now);
    assert_eq!(told(&mut reports, now), [""]);
    accepted(&mut reports, 0, now);
    assert!(told(&mut reports, now).is_empty());
}

/// In the history of a restored API server, the pod may not be marked as deleted.
#[test]
fn deletion_in_another_history_waits_until_it_is_seen_there() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.enqueue(&uid(), status(PodPhase::Failed));
    reports.enqueue_delete(&uid());
    told(&mut reports, now);
    accepted(&mut reports, 3, now);
    assert!(told(&mut reports, now).is_empty() && reports.due().is_none());
    reports.relisted([(&uid(), &status(PodPhase::Failed), 4)].into_iter());
    assert!(told(&mut reports, now).is_empty(), "whether it is deleted there is not known yet");
    reports.enqueue_delete(&uid());
    assert_eq!(reports.next(now)[0].request, StatusRequest::Delete { version: 4 });
}

#[test]
fn deletion_overtaken_by_another_write_is_retried() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.enqueue_delete(&uid());
    assert_eq!(reports.next(now)[0].request, StatusRequest::Delete { version: 5 });
    reports.on_server_status(&uid(), target(), &status(PodPhase::Pending), 6);
    reports.done(&uid(), &ReportOutcome::Unknown, now, |wait| wait);
    assert_eq!(reports.next(now)[0].request, StatusRequest::Delete { version: 6 });
    // The same when the write is observed after the response.
    reports.done(&uid(), &ReportOutcome::Unknown, now, |wait| wait);
    assert!(told(&mut reports, now).is_empty());
    reports.on_server_status(&uid(), target(), &status(PodPhase::Pending), 7);
    assert_eq!(reports.next(now)[0].request, StatusRequest::Delete { version: 7 });
}

#[test]
fn nothing_is_sent_for_a_pod_that_the_server_does_not_have() {
    let (mut reports, now) = (pending(), Instant::now());
    reports.enqueue(&uid(), status(PodPhase::Running));
    told(&mut reports, now);
    reports.done(&uid(), &ReportOutcome::Unknown, now, |wait| wait);
    assert!(told(&mut reports, now).is_empty());
    assert_eq!(reports.due(), Some(now + WATCH_LAG[0]), "only the doubt is due");
    let other = Target { uid: PodUid::from("other"), ..target() };
    reports.on_server_status(&uid(), other.clone(), &status(PodPhase::Pending), 8);
    assert_eq!(reports.next(now)[0].target, other);
}

#[test]
fn number_of_concurrent_requests_is_limited() {
    let (mut reports, now) = (StatusQueue::default(), Instant::now());
    for name in 0..10 {
        let pod = PodUid::from(name.to_string());
        reports.on_server_status(&pod, Target { uid: pod.clone(), ..target() }, &status(PodPhase::Pending), 1);
        reports.enqueue(&pod, status(PodPhase::Running));
    }
    assert_eq!(reports.next(now).len(), MAX_STATUS_REQUESTS);
    assert!(reports.next(now).is_empty());
}

#[test]
fn newest_change_is_sent_first_and_unchanged_pods_are_not_due() {
    let mut reports = StatusQueue::default();
    for name in ["a", "b", "c", "d"] {
        let uid = PodUid::from(name);
        reports.on_server_status(&uid, Target { uid: uid.clone(), ..target() }, &status(PodPhase::Pending), 5);
    }
    for (name, phase) in
        [("b", PodPhase::Running), ("d", PodPhase::Pending), ("c", PodPhase::Failed), ("a", PodPhase::Running)]
    {
        reports.enqueue(&PodUid::from(name), status(phase));
    }
    reports.settle();
    assert_eq!(reports.unreported(), 3);
    let order: Vec<PodUid> = reports.next(Instant::now()).into_iter().map(|job| job.pod).collect();
    assert_eq!(order, ["a", "c", "b"].map(PodUid::from));
    assert_eq!(reports.unreported(), 3, "they are under way");
}

/// Five pods whose updates failed during an outage, after which the API server is back.
#[test]
fn update_without_a_free_slot_is_not_due() {
    let (mut reports, now) = (StatusQueue::default(), Instant::now());
    let pods: Vec<PodUid> = (0..=MAX_STATUS_REQUESTS).map(|number| PodUid::from(&*format!("u{number}"))).collect();
    for pod in &pods {
        let target = Target { namespace: "ns".to_owned(), name: pod.to_string(), uid: pod.clone() };
        reports.on_server_status(pod, target, &status(PodPhase::Pending), 5);
        reports.enqueue(pod, status(PodPhase::Running));
    }
    // In the order in which they were started, all requests fail.
    let fail = ReportOutcome::Failed("connection refused".to_owned());
    for _ in 0..2 {
        for job in reports.next(now) {
            reports.done(&job.pod, &fail, now, |wait| wait);
        }
    }
    let back = now + MAX_STATUS_RETRY_DELAY;
    assert!(reports.due().is_some_and(|due| due <= back));
    let jobs = reports.next(back);
    assert_eq!(jobs.len(), MAX_REQUESTS_AFTER_FAILURE);
    assert_eq!(reports.due(), None, "the loop would go round until a request ends, and keep it from ending");
    let first = jobs.first().unwrap();
    reports.done(&first.pod, &ReportOutcome::Accepted { version: 6 }, back, |wait| wait);
    assert_eq!(reports.next(back).len(), 1);
}

#[test]
fn invalid_status_is_retried_ever_more_rarely_until_it_changes() {
    let (mut reports, now) = (pending(), Instant::now());
    let invalid = ReportOutcome::Invalid("Forbidden: may not be transitioned".to_owned());
    reports.enqueue(&uid(), status(PodPhase::Running));
    let mut time = now;
    for seconds in [60, 120, 240] {
        assert_eq!(told(&mut reports, time), ["Running"]);
        reports.done(&uid(), &invalid, time, |wait| wait);
        let due = reports.due().expect("it is sent again");
        assert_eq!(due - time, Duration::from_secs(seconds));
        time = due;
    }
    reports.enqueue(&uid(), status(PodPhase::Failed));
    assert_eq!(told(&mut reports, now), ["Failed"]);
    reports.done(&uid(), &invalid, now, |wait| wait);
    assert!(told(&mut reports, now).is_empty());
    reports.on_server_status(&uid(), target(), &status(PodPhase::Pending), 6);
    assert_eq!(told(&mut reports, now), ["Failed"], "the server's object has changed");
}

#[test]
fn pod_whose_last_status_is_refused_is_deleted_without_it() {
    let (mut reports, now) = (pending(), Instant::now());
    let invalid = ReportOutcome::Invalid("etcdserver: request is too large".to_owned());
    let refused = |reports: &mut StatusQueue, time| {
        reports.done(&uid(), &invalid, time, |wait| wait);
    };
    reports.enqueue(&uid(), status(PodPhase::Running));
    assert_eq!(told(&mut reports, now), ["Running"]);
    refused(&mut reports, now);
    reports.enqueue_delete(&uid());
    assert_eq!(told(&mut reports, now), [""], "the status was refused before");
    // A deletion that is refused waits.
    refused(&mut reports, now);
    assert!(told(&mut reports, now).is_empty());
    reports.enqueue(&uid(), status(PodPhase::Failed));
    assert_eq!(told(&mut reports, now), ["Failed"], "another status is tried first");
    refused(&mut reports, now);
    assert_eq!(told(&mut reports, now), [""]);
    accepted(&mut reports, 0, now);
    assert!(told(&mut reports, now).is_empty());
}

/// A queue with these pods, which have changed in this order.
fn queue_of(pods: impl Iterator<Item = u32>) -> StatusQueue {
    let mut reports = StatusQueue::default();
    for pod in pods {
        let uid = PodUid::from(format!("{pod:03}").as_str());
        reports.on_server_status(&uid, target(), &status(PodPhase::Pending), 5);
        reports.enqueue(&uid, status(PodPhase::Running));
    }
    reports
}

/// The numbers of the pods whose requests are sent now.
fn sent(reports: &mut StatusQueue, now: Instant) -> Vec<u32> {
    reports.next(now).into_iter().map(|job| job.pod.as_str().parse().unwrap()).collect()
}

#[test]
fn pods_whose_status_always_changes_delay_no_other() {
    let (mut reports, now) = (queue_of(0..10), Instant::now());
    // The last four change again before each response.
    let mut first = sent(&mut reports, now);
    first.sort_unstable();
    assert_eq!(first, [6, 7, 8, 9]);
    let mut others = Vec::new();
    for round in 1..4 {
        let under_way = [6, 7, 8, 9];
        let phase = if round % 2 == 0 { PodPhase::Running } else { PodPhase::Failed };
        for pod in under_way {
            let uid = PodUid::from(format!("{pod:03}").as_str());
            reports.enqueue(&uid, status(phase));
            reports.done(&uid, &ReportOutcome::Accepted { version: 10 + round }, now, |wait| wait);
        }
        let begun = sent(&mut reports, now);
        for pod in begun.iter().filter(|pod| !under_way.contains(pod)) {
            others.push(*pod);
            let uid = PodUid::from(format!("{pod:03}").as_str());
            reports.done(&uid, &ReportOutcome::Accepted { version: 10 }, now, |wait| wait);
        }
    }
    others.sort_unstable();
    assert_eq!(others, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn pods_whose_requests_failed_leave_half_of_the_slots() {
    let (mut reports, now) = (queue_of(0..20), Instant::now());
    for _ in 0..5 {
        for pod in sent(&mut reports, now) {
            let uid = PodUid::from(format!("{pod:03}").as_str());
            reports.done(&uid, &ReportOutcome::Failed("late".to_owned()), now, |wait| wait);
        }
    }
    let later = now + Duration::from_secs(60);
    assert_eq!(sent(&mut reports, later).len(), 2);
    assert!(reports.due().is_none(), "the end of a request is an event");
    let uid = PodUid::from("honest");
    reports.on_server_status(&uid, target(), &status(PodPhase::Pending), 5);
    reports.enqueue(&uid, status(PodPhase::Running));
    assert_eq!(reports.next(later).len(), 1);
}
