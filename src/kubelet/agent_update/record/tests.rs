//! Plans with every interruption: a cut before and after each durable write.

use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";

fn slot(version: &str) -> Slot {
    let digit = version.chars().last().unwrap();
    Slot { digest: digit.to_string().repeat(64).replace('.', "0"), version: version.to_owned() }
}

fn config() -> Subject {
    Subject::Config { path: "/c".into(), candidate: "a".repeat(64), former: Some("b".repeat(64)) }
}

fn armed(subject: Subject, current: Option<Slot>) -> Record {
    let mut record = Record { current, installed: "0.8.0".to_owned(), ..Record::default() };
    record.arm(subject, Duration::from_secs(300), Before::default()).unwrap();
    record
}

/// The disk: the record, and the content of the configuration file.
#[derive(Clone, Debug, PartialEq)]
struct Disk {
    record: Record,
    config: Option<String>,
}

impl Disk {
    fn apply(&mut self, write: &Write, after: &Record) {
        match write {
            Write::Record => self.record = after.clone(),
            Write::Config { content, .. } => self.config.clone_from(content),
        }
    }

    /// One start that is cut after `writes` writes. Returns the program that ran, if it came so far.
    fn start(&mut self, writes: usize) -> Option<StartPlan> {
        let plan = self.record.plan("0.8.0", NOW);
        plan.writes.iter().take(writes).for_each(|write| self.apply(write, &plan.after));
        (writes >= plan.writes.len()).then_some(plan)
    }
}

#[test]
fn candidate_runs_three_times_and_then_the_former_one() {
    for current in [None, Some(slot("0.8.5"))] {
        let record = armed(Subject::Program(slot("0.9.1")), current.clone());
        let mut disk = Disk { record, config: None };
        for start in 1..=3 {
            let plan = disk.start(9).unwrap();
            assert_eq!((plan.run.as_ref(), plan.limit), (Some(&slot("0.9.1")), Some(Duration::from_secs(400))));
            assert_eq!(disk.record.trial.as_ref().unwrap().starts, start);
        }
        for _ in 0..3 {
            let plan = disk.start(9).unwrap();
            assert_eq!((plan.run, plan.limit), (current.clone(), None));
        }
        let last = disk.record.last.clone().unwrap();
        assert_eq!(last.line(), "version 0.9.1 (111111111111) rejected: no verdict in 3 starts; the former one runs");
        assert_eq!((disk.record.trial, disk.record.current), (None, current));
    }
}

/// Whatever is cut, the candidate runs at most three times, the former one runs in the end, and the configuration is
/// the former one.
#[test]
fn every_sequence_of_cuts_ends_with_the_former_state() {
    let subjects = [(Subject::Program(slot("0.9.1")), None), (config(), Some("b".repeat(64)))];
    for (subject, former) in subjects {
        // Each start is cut after 0, 1 or 2 writes, or is not cut.
        for cuts in 0..4_usize.pow(5) {
            let mut disk = Disk { record: armed(subject.clone(), None), config: former.clone() };
            let mut cuts = cuts;
            let mut tried = 0;
            for _ in 0..5 {
                let ran = disk.start(cuts % 4);
                tried += usize::from(ran.is_some_and(|plan| plan.limit.is_some()));
                cuts /= 4;
            }
            while disk.record.trial.is_some() {
                let ran = disk.start(9).unwrap();
                tried += usize::from(ran.limit.is_some());
            }
            assert!(tried <= 3, "{tried}");
            let plan = disk.start(9).unwrap();
            assert_eq!((plan.run, plan.limit), (None, None));
            assert_eq!(disk.config, former);
        }
    }
}

#[test]
fn verdict_is_final_whatever_follows() {
    let mut record = armed(Subject::Program(slot("0.9.1")), None);
    record = record.plan("0.8.0", NOW).after;
    assert!(record.accept(NOW));
    for _ in 0..5 {
        let plan = record.plan("0.8.0", NOW);
        assert_eq!((plan.run.as_ref(), plan.writes.len(), plan.limit), (Some(&slot("0.9.1")), 0, None));
    }
    assert_eq!(record.digests(), [slot("0.9.1").digest.as_str()]);
}

#[test]
fn trial_that_has_not_started_is_not_accepted() {
    let mut record = armed(Subject::Program(slot("0.9.1")), None);
    assert!(!record.accept(NOW));
    assert_eq!((record.current.clone(), record.last.clone()), (None, None));
    record = record.plan("0.8.0", NOW).after;
    assert!(record.accept(NOW) && !record.accept(NOW));
}

#[test]
fn lost_record_accepts_nothing_and_says_so() {
    let mut record = Record::default();
    assert_eq!(record.lose(NOW), [Write::Record]);
    let line = "record of updates rejected: damaged and set aside; a trial under way has no verdict";
    assert_eq!(record.last.clone().unwrap().line(), line);
    assert!(record.is_lost() && !record.accept(NOW));
    assert_eq!(record.plan("0.8.0", NOW).run, None);
    // What this process knows of its own trial is enough to undo it.
    let mut record = armed(config(), Some(slot("0.8.5")));
    record.requested_config_key = "key".to_owned();
    record = record.plan("0.8.0", NOW).after;
    let former = Write::Config { path: "/c".into(), content: Some("b".repeat(64)) };
    assert_eq!(record.lose(NOW), [former, Write::Record]);
    let last = record.last.clone().unwrap();
    assert_eq!((last.is_accepted, &*last.reason), (false, "the record of updates was damaged"));
    assert_eq!((record.current, &*record.requested_config_key), (Some(slot("0.8.5")), "key"));
}

#[test]
fn accepted_configuration_stays_and_the_program_too() {
    let mut disk = Disk { record: armed(config(), Some(slot("0.8.5"))), config: Some("b".repeat(64)) };
    assert_eq!(disk.start(9).unwrap().run, Some(slot("0.8.5")));
    assert!(disk.record.accept(NOW));
    assert_eq!(disk.start(9).unwrap().run, Some(slot("0.8.5")));
    assert_eq!((disk.config, disk.record.current), (Some("a".repeat(64)), Some(slot("0.8.5"))));
}

#[test]
fn newer_installed_program_replaces_an_upgrade() {
    let mut record = armed(Subject::Program(slot("0.9.1")), None);
    record = record.plan("0.8.0", NOW).after;
    assert!(record.accept(NOW));
    for (installed, run) in [("0.8.0", true), ("0.9.0", true), ("0.9.1", true), ("0.9.2", false), ("0.10.0", false)] {
        let plan = record.plan(installed, NOW);
        assert_eq!(plan.run.is_some(), run, "{installed}");
        assert_eq!(plan.writes.len(), usize::from(!run), "{installed}");
    }
    // An older program that the owner wanted stays.
    let mut record = armed(Subject::Program(slot("0.7.1")), None);
    record = record.plan("0.8.0", NOW).after;
    assert!(record.accept(NOW));
    assert_eq!(record.plan("0.8.0", NOW).run, Some(slot("0.7.1")));
    assert_eq!(record.plan("0.8.1", NOW).run, None);
}

#[test]
fn rollback_goes_back_and_forth_and_ends_a_trial() {
    let mut record = Record { current: Some(slot("0.9.1")), ..Record::default() };
    assert_eq!(record.roll_back(NOW), Ok(("the installed program".to_owned(), vec![Write::Record])));
    assert_eq!(record.plan("0.8.0", NOW).run, None);
    assert_eq!(record.roll_back(NOW).unwrap().0, "version 0.9.1 (111111111111)");
    record.arm(Subject::Program(slot("0.9.2")), Duration::from_secs(9), Before::default()).unwrap();
    assert_eq!(record.roll_back(NOW).unwrap().0, "version 0.9.1 (111111111111)");
    assert_eq!((record.trial.clone(), record.last.clone().unwrap().is_accepted), (None, false));
    assert_eq!(Record::default().roll_back(NOW), Err("there is no former version".to_owned()));
}

#[test]
fn second_trial_and_the_running_program_are_refused() {
    let mut record = armed(Subject::Program(slot("0.9.1")), Some(slot("0.9.0")));
    let arm =
        |record: &mut Record, version| record.arm(Subject::Program(slot(version)), Duration::ZERO, Before::default());
    assert!(arm(&mut record, "0.9.2").unwrap_err().contains("is on trial"));
    record.trial = None;
    assert!(arm(&mut record, "0.9.0").unwrap_err().contains("runs already"));
}

#[test]
fn record_survives_its_encoding_and_another_format_is_refused() {
    let mut records = vec![Record::default(), armed(config(), Some(slot("0.9.0")))];
    let mut record = armed(Subject::Program(slot("0.9.1")), Some(slot("0.8.5")));
    records.push(record.clone());
    record = record.plan("0.8.0", NOW).after;
    assert!(record.accept(NOW));
    records.push(record.clone());
    record.arm(config(), Duration::from_secs(1), Before::default()).unwrap();
    record.reject("why", NOW);
    records.push(record);
    for record in records {
        assert_eq!(Record::from_json(&record.to_json()), Some(record.clone()));
        let mut other = record.to_json();
        other["format"] = json!(2);
        assert_eq!(Record::from_json(&other), None);
    }
    // A digest is the name of a file.
    let mut outside = armed(config(), None).to_json();
    outside["trial"]["subject"]["config"]["candidate"] = json!("../../../etc/passwd");
    assert_eq!(Record::from_json(&outside), None);
}

#[test]
fn versions_are_compared_by_their_numbers() {
    for (a, b) in [("0.10.0", "0.9.9"), ("1.0.0", "1.0.0-rc.1"), ("1.0.0-rc.10", "1.0.0-rc.9"), ("0.9.1", "0.9")] {
        assert!(is_newer(a, b) && !is_newer(b, a), "{a} {b}");
    }
    assert!(!is_newer("0.9.1", "0.9.1"));
}
