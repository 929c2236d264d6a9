//! CronJobs, their records and their Jobs.

use std::sync::Arc;

use super::*;
use crate::control::pod_sources::static_pod::testing::pods_of;
use crate::control::pod_table::testing::{Node, with_node};
use crate::platform::rt::{self, TestFolder};
use crate::state::pods::{SourceName, SourcePod, SourceUpdate, ZoneFile};
use crate::types::timestamp::Timestamp;

/// A CronJob `backup` with a time in each minute.
fn update(image: &str, spec: &str) -> SourceUpdate {
    let document = format!(
        "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: backup}}, spec: {{schedule: '* * * * *', {spec} \
         jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: {image}}}]}}}}}}}}}}}}"
    );
    of_source(pods_of(&document))
}

fn of_source(pods: Vec<crate::types::api::Pod>) -> SourceUpdate {
    let pods = pods.into_iter().map(|pod| SourcePod { pod: Arc::new(pod), origin: "m".into() }).collect();
    SourceUpdate {
        source: SourceName::File,
        pods,
        objects: Vec::new(),
        mirrors: Vec::new(),
        problems: Vec::new(),
        unread: Vec::new(),
        complete: true,
        relisted: false,
    }
}

fn utc() -> Vec<ZoneFile> {
    vec![ZoneFile { name: String::new(), zone: Ok(TimeZone::utc()) }]
}

fn time(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_second()
}

fn at(clock: &str) -> Moment {
    Moment { now: rt::now(), clock: Some(time(clock)) }
}

/// Decides about CronJobs at this time, and lets it take effect. Returns the keys that changed, removed ones with `-`.
fn look(jobs: &mut Jobs, node: &Node, clock: &str) -> Vec<String> {
    let changes = jobs.decide_cron_jobs(&node.pods, at(clock));
    let keys = changes.iter().map(|change| format!("{}{}", if change.record.is_some() { "" } else { "-" }, change.key));
    let keys = keys.collect();
    jobs.in_flight = changes;
    jobs.on_written(None, rt::now());
    keys
}

fn opened(node: &Node, table: JobTable) -> Jobs {
    let mut jobs = Jobs::new(table, node.inbox.clone());
    jobs.on_schedule_due(utc());
    jobs
}

const CRON: &str = "default_backup_cron.json";
const FIRST: &str = "default_backup-29931041.json";

#[test]
fn job_of_time_is_written_before_the_record_of_its_cron_job() {
    with_node(|mut node| {
        node.list(Vec::new());
        let mut jobs = opened(&node, JobTable::default());
        jobs.take_documents(&mut update("i", ""));
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:40:30Z"), [CRON], "it is met");
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:41:00Z"), [FIRST, CRON]);
        let pods = jobs.pods();
        assert_eq!(pods.len(), 1);
        assert!(pods[0].1.pod.metadata.name.starts_with("backup-29931041-"), "{}", pods[0].1.pod.metadata.name);
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:41:59Z"), Vec::<String>::new());
        let rows = jobs.table.read().cron_rows();
        assert_eq!((rows[0].active, rows[0].last_schedule_time), (1, Some(time("2026-11-28T10:41:00Z"))));
        assert_eq!(rows[0].next_schedule_time, Some(time("2026-11-28T10:42:00Z")));
    });
}

#[test]
fn time_whose_job_is_on_the_disk_starts_no_other() {
    with_node(|mut node| {
        node.list(Vec::new());
        let folder = TestFolder::new("cron-cut");
        let mut jobs = opened(&node, JobTable::open(folder.0.clone()));
        jobs.take_documents(&mut update("i", ""));
        look(&mut jobs, &node, "2026-11-28T10:40:30Z");
        let changes = jobs.decide_cron_jobs(&node.pods, at("2026-11-28T10:41:00Z"));
        // The power fails between the two files.
        super::super::write(&folder.0.join(FIRST), changes[0].record.as_ref()).unwrap();
        let before = jobs.table.read().jobs.get(CRON).unwrap().record.clone();
        super::super::write(&folder.0.join(CRON), before.as_ref()).unwrap();
        let mut jobs = opened(&node, JobTable::open(folder.0.clone()));
        jobs.take_documents(&mut update("i", ""));
        assert_eq!(jobs.pods().len(), 1, "its Job goes on");
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:41:40Z"), [CRON]);
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:42:00Z").len(), 2);
    });
}

/// After the write of the start at 10:41 has failed.
fn with_failed_start(node: &mut Node) -> Jobs {
    node.list(Vec::new());
    let mut jobs = opened(node, JobTable::default());
    jobs.take_documents(&mut update("i", ""));
    look(&mut jobs, node, "2026-11-28T10:40:30Z");
    jobs.in_flight = jobs.decide_cron_jobs(&node.pods, at("2026-11-28T10:41:00Z"));
    jobs.on_written(Some("disk full".to_owned()), rt::now());
    jobs
}

#[test]
fn start_whose_write_failed_is_repeated() {
    with_node(|mut node| {
        let mut jobs = with_failed_start(&mut node);
        assert_eq!(jobs.pods().len(), 0);
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:41:30Z"), [FIRST, CRON]);
    });
}

#[test]
fn start_whose_write_failed_is_not_on_the_disk_once_its_cron_job_is_suspended() {
    with_node(|mut node| {
        let mut jobs = with_failed_start(&mut node);
        jobs.take_documents(&mut update("i", "suspend: true,"));
        let changes = jobs.decide_cron_jobs(&node.pods, at("2026-11-28T10:41:30Z"));
        assert_eq!(changes.len(), 0);
        let back = jobs.changes_back(&changes);
        let back_files: Vec<_> = back.iter().map(|change| (&*change.key, change.record.is_some())).collect();
        assert_eq!(back_files, [(CRON, true), (FIRST, false)]);
        jobs.in_flight = back;
        jobs.on_written(None, rt::now());
        assert_eq!(jobs.changes_back(&[]).len(), 0, "they are written");
    });
}

#[test]
fn changed_template_is_that_of_later_jobs() {
    with_node(|mut node| {
        node.list(Vec::new());
        let mut jobs = opened(&node, JobTable::default());
        jobs.take_documents(&mut update("old", ""));
        look(&mut jobs, &node, "2026-11-28T10:40:30Z");
        look(&mut jobs, &node, "2026-11-28T10:41:00Z");
        jobs.take_documents(&mut update("new", ""));
        look(&mut jobs, &node, "2026-11-28T10:42:00Z");
        let images: Vec<String> =
            jobs.pods().iter().map(|(_, source)| source.pod.spec.containers[0].image.clone()).collect();
        assert_eq!(images, ["old", "new"]);
    });
}

#[test]
fn jobs_go_with_their_cron_job() {
    with_node(|mut node| {
        node.list(Vec::new());
        let mut jobs = opened(&node, JobTable::default());
        jobs.take_documents(&mut update("i", ""));
        look(&mut jobs, &node, "2026-11-28T10:40:30Z");
        look(&mut jobs, &node, "2026-11-28T10:41:00Z");
        jobs.take_documents(&mut of_source(Vec::new()));
        assert_eq!(jobs.pods().len(), 0);
        jobs.forget_gone(SourceName::File);
        assert!(node.pods.relisted());
        jobs.round(&node.pods, rt::now());
        let removed: Vec<(String, bool)> =
            jobs.in_flight.iter().map(|change| (change.key.clone(), change.record.is_none())).collect();
        assert_eq!(removed, [(FIRST.to_owned(), true), (CRON.to_owned(), true)]);
        jobs.on_written(None, rt::now());
        assert!(jobs.table.read().jobs.is_empty());
    });
}

#[test]
fn replaced_and_surplus_jobs_are_removed_with_an_event() {
    with_node(|mut node| {
        node.list(Vec::new());
        let mut jobs = opened(&node, JobTable::default());
        jobs.take_documents(&mut update("i", "concurrencyPolicy: Replace,"));
        look(&mut jobs, &node, "2026-11-28T10:40:30Z");
        look(&mut jobs, &node, "2026-11-28T10:41:00Z");
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:42:00Z"), [&["-", FIRST].concat(), CRON]);
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:42:01Z"), ["default_backup-29931042.json", CRON]);
        assert_eq!(jobs.pods().len(), 1);
    });
}

#[test]
fn unknown_time_zone_is_told_once_and_starts_nothing() {
    with_node(|mut node| {
        node.list(Vec::new());
        let mut jobs = opened(&node, JobTable::default());
        jobs.take_documents(&mut update("i", "timeZone: Europe/Atlantis,"));
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:40:30Z"), Vec::<String>::new(), "it was not read yet");
        let unknown = ZoneFile { name: "Europe/Atlantis".to_owned(), zone: Err("no such zone".to_owned()) };
        jobs.on_schedule_due(vec![unknown]);
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:41:30Z"), [CRON], "an event");
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:42:30Z"), Vec::<String>::new());
        assert_eq!(jobs.table.read().cron_rows()[0].problem, "no such zone");
        let known = ZoneFile { name: "Europe/Atlantis".to_owned(), zone: Ok(TimeZone::utc()) };
        jobs.on_schedule_due(vec![known]);
        look(&mut jobs, &node, "2026-11-28T10:43:30Z");
        assert_eq!(look(&mut jobs, &node, "2026-11-28T10:44:00Z").len(), 2);
    });
}

#[test]
fn clock_that_is_not_set_starts_nothing() {
    with_node(|mut node| {
        node.list(Vec::new());
        let mut jobs = opened(&node, JobTable::default());
        jobs.take_documents(&mut update("i", ""));
        let unset = Moment { now: rt::now(), clock: None };
        assert_eq!(jobs.decide_cron_jobs(&node.pods, unset).len(), 0);
    });
}
