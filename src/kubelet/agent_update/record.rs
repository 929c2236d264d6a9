//! The record of updates: what runs, what is on trial, and what the next start does. Pure.
//!
//! ```text
//!             arm              start 1..3             good
//!   (none) ---------> trial 0 ------------> trial n ---------> accepted: the slot is current, the former one previous
//!                        |                     | bad, or a fourth start
//!                        +---------------------+-------------> rejected: the former one runs
//! ```
//!
//! The start that counts is written before the candidate runs. So a crash, a hang or a power cut costs one start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::verdict::{Before, text};
use crate::types::text::cut;

/// The default is a node without updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The slot that runs; `None`: the installed program.
    pub(crate) current: Option<Slot>,
    /// What `coracle upgrade rollback` restores, if `current` or this is a slot.
    pub(crate) previous: Option<Slot>,
    /// The version of the installed program when `current` was tried.
    pub(crate) installed: String,
    pub(crate) trial: Option<Trial>,
    /// The key of the last program that the cluster or the manifests asked for.
    pub(crate) requested_key: String,
    /// The key of the last such configuration.
    pub(crate) requested_config_key: String,
    /// The last trial.
    pub(crate) last: Option<TrialEnd>,
}

/// What the cluster or the manifests may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Config,
    Program,
}

/// A program below the state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// SHA-256, also the file's name.
    pub(crate) digest: String,
    pub(crate) version: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Program(Slot),
    Config {
        path: PathBuf,
        candidate: String,
        /// `None`: there was no file.
        former: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    pub(crate) subject: Subject,
    /// Counted before each start of the candidate.
    pub(crate) starts: u64,
    /// The owner's limit, for each start.
    pub(crate) within: Duration,
    pub(crate) before: Before,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrialEnd {
    pub(crate) subject: String,
    pub(crate) is_accepted: bool,
    /// Why it was rejected.
    pub(crate) reason: String,
    pub(crate) time: String,
    /// The running agent has logged it and sent an event.
    pub(crate) is_announced: bool,
}

/// What the launcher does, in this order: the writes, then the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StartPlan {
    pub(super) writes: Vec<Write>,
    /// The record that [`Write::Record`] writes.
    pub(super) after: Record,
    /// `None`: the installed program.
    pub(super) run: Option<Slot>,
    /// How long the process may run without a verdict; `None` without a trial.
    pub(super) limit: Option<Duration>,
    /// For the log.
    pub(super) line: Option<String>,
}

/// A durable write of the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Record,
    /// The file gets the stored configuration with this digest, or is removed.
    Config {
        path: PathBuf,
        content: Option<String>,
    },
}

/// Starts of a candidate without a verdict.
pub(super) const MAX_CANDIDATE_STARTS: u64 = 3;
/// How long the conditions of a trial have to hold, at most.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(60);
/// The alarm comes this much, and a tenth of the limit, after the agent's own verdict: a start takes a while.
const ALARM_MARGIN: Duration = Duration::from_secs(10);

impl Record {
    /// What a start of the installed program of version `installed` does.
    pub(super) fn plan(&self, installed: &str, now: &str) -> StartPlan {
        let mut after = self.clone();
        let mut writes = Vec::new();
        let mut line = None;
        if let Some(current) =
            self.current.as_ref().filter(|current| self.installed != installed && is_newer(installed, &current.version))
        {
            line = Some(format!("installed version {installed} replaces version {} of an upgrade", current.version));
            (after.current, after.previous) = (None, None);
            writes.push(Write::Record);
        }
        let Some(trial) = &mut after.trial else {
            return StartPlan { run: after.current.clone(), writes, after, limit: None, line };
        };
        if trial.starts >= MAX_CANDIDATE_STARTS {
            let writes = after.reject(&format!("no verdict in {MAX_CANDIDATE_STARTS} starts"), now);
            return StartPlan { run: after.current.clone(), writes, limit: None, line: after.last_line(), after };
        }
        if trial.starts == 0 {
            installed.clone_into(&mut after.installed);
        }
        trial.starts += 1;
        let limit = trial.within + trial.within / 10 + trial.settle_time() + ALARM_MARGIN;
        let line =
            Some(format!("start {} of {MAX_CANDIDATE_STARTS} of {} on trial", trial.starts, trial.subject.name()));
        let mut writes = vec![Write::Record];
        let run = match &trial.subject {
            Subject::Program(slot) => Some(slot.clone()),
            Subject::Config { path, candidate, .. } => {
                writes.push(Write::Config { path: path.clone(), content: Some(candidate.clone()) });
                after.current.clone()
            }
        };
        StartPlan { writes, after, run, limit: Some(limit), line }
    }

    /// Puts `subject` on trial, at the next start.
    pub(crate) fn arm(&mut self, subject: Subject, within: Duration, before: Before) -> Result<(), String> {
        if let Some(trial) = &self.trial {
            return Err(format!("{} is on trial, wait for its end", trial.subject.name()));
        }
        if matches!(&subject, Subject::Program(slot) if self.current.as_ref() == Some(slot)) {
            return Err(format!("{} runs already", subject.name()));
        }
        self.trial = Some(Trial { subject, starts: 0, within, before });
        Ok(())
    }

    /// The key of what was asked for last.
    pub(crate) fn requested_key(&mut self, wanted: Wanted) -> &mut String {
        match wanted {
            Wanted::Config => &mut self.requested_config_key,
            Wanted::Program => &mut self.requested_key,
        }
    }

    /// What the cluster or the manifests ask for gives no trial.
    pub(crate) fn refuse(&mut self, wanted: Wanted, key: &str, shown: &str, reason: &str, now: &str) {
        key.clone_into(self.requested_key(wanted));
        let (subject, reason) = (shown.to_owned(), reason.to_owned());
        self.last = Some(TrialEnd { subject, is_accepted: false, reason, time: now.to_owned(), is_announced: false });
    }

    /// What the cluster asks for runs already. The report says so; there is no news for an event.
    pub(crate) fn note_present(&mut self, wanted: Wanted, key: &str, shown: &str, now: &str) {
        key.clone_into(self.requested_key(wanted));
        let (subject, time) = (shown.to_owned(), now.to_owned());
        self.last = Some(TrialEnd { subject, is_accepted: true, reason: String::new(), time, is_announced: true });
    }

    /// The trial was good. False if there is none, or if it has not started: then another one was judged.
    pub(crate) fn accept(&mut self, now: &str) -> bool {
        let Some(trial) = self.trial.take_if(|trial| trial.starts > 0) else { return false };
        self.last = Some(TrialEnd::new(&trial.subject, true, "", now));
        if let Subject::Program(slot) = trial.subject {
            self.previous = self.current.replace(slot);
        }
        true
    }

    /// The trial was bad. Returns the writes that restore the former state, in their order.
    pub(super) fn reject(&mut self, reason: &str, now: &str) -> Vec<Write> {
        let Some(trial) = self.trial.take() else { return Vec::new() };
        self.last = Some(TrialEnd::new(&trial.subject, false, reason, now));
        match trial.subject {
            Subject::Program(_) => vec![Write::Record],
            // The record comes last: a cut between the two repeats both.
            Subject::Config { path, former, .. } => vec![Write::Config { path, content: former }, Write::Record],
        }
    }

    /// The record on the disk is damaged, and this is what is known of it. No trial of it is ever accepted. Returns the
    /// writes.
    pub(super) fn lose(&mut self, now: &str) -> Vec<Write> {
        if self.trial.is_some() {
            return self.reject("the record of updates was damaged", now);
        }
        let (subject, reason) = (RECORD_SUBJECT.to_owned(), RECORD_DAMAGE.to_owned());
        self.last = Some(TrialEnd { subject, is_accepted: false, reason, time: now.to_owned(), is_announced: false });
        vec![Write::Record]
    }

    /// The record before this one was damaged, and nothing was tried since.
    pub(crate) fn is_lost(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.subject == RECORD_SUBJECT)
    }

    /// Ends a trial, or makes the previous program the current one, without a trial. Returns what runs next, and the
    /// writes.
    pub(super) fn roll_back(&mut self, now: &str) -> Result<(String, Vec<Write>), String> {
        let writes = match (&self.trial, &self.current, &self.previous) {
            (Some(_), _, _) => self.reject("rolled back by its owner", now),
            (None, None, None) => return Err("there is no former version".to_owned()),
            (None, _, _) => {
                std::mem::swap(&mut self.current, &mut self.previous);
                vec![Write::Record]
            }
        };
        Ok((self.current.as_ref().map_or_else(|| "the installed program".to_owned(), Slot::name), writes))
    }

    /// The trial or the end of the last one, as one line; `None` on a node without updates.
    pub(crate) fn line(&self) -> Option<String> {
        match &self.trial {
            Some(trial) => {
                Some(format!("{} is on trial, start {} of {MAX_CANDIDATE_STARTS}", trial.subject.name(), trial.starts))
            }
            None => self.last.as_ref().map(|last| format!("{} {}", last.time, last.line())),
        }
    }

    fn last_line(&self) -> Option<String> {
        self.last.as_ref().map(TrialEnd::line)
    }

    /// The digests of programs and configurations that may be needed again.
    pub(super) fn digests(&self) -> Vec<&str> {
        let slots = self.current.iter().chain(&self.previous).map(|slot| slot.digest.as_str());
        let tried = self.trial.iter().flat_map(|trial| match &trial.subject {
            Subject::Program(slot) => vec![slot.digest.as_str()],
            Subject::Config { candidate, former, .. } => {
                former.iter().map(String::as_str).chain([candidate.as_str()]).collect()
            }
        });
        slots.chain(tried).collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        let slot = |slot: &Slot| json!({ "digest": slot.digest, "version": slot.version });
        let trial = self.trial.as_ref().map(|trial| {
            let subject = match &trial.subject {
                Subject::Program(program) => json!({ "program": slot(program) }),
                Subject::Config { path, candidate, former } => {
                    json!({ "config": { "path": path, "candidate": candidate, "former": former } })
                }
            };
            let (starts, within) = (trial.starts, trial.within.as_secs());
            json!({ "subject": subject, "starts": starts, "withinSeconds": within, "before": trial.before.to_json() })
        });
        let last = self.last.as_ref().map(TrialEnd::to_json);
        json!({
            "format": 1, "current": self.current.as_ref().map(slot), "previous": self.previous.as_ref().map(slot),
            "installed": self.installed, "asked": self.requested_key, "askedConfig": self.requested_config_key, "trial": trial,
            "last": last,
        })
    }

    /// `None` if the format is unknown.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        if value.get("format").and_then(Value::as_u64) != Some(1) {
            return None;
        }
        let slot = |key| {
            value.get(key).filter(|slot| !slot.is_null()).map_or(Some(None), |slot| Slot::from_json(slot).map(Some))
        };
        let trial = match value.get("trial").filter(|trial| !trial.is_null()) {
            Some(trial) => Some(Trial::from_json(trial)?),
            None => None,
        };
        let last = value.get("last").and_then(TrialEnd::from_json);
        let asked = |key| text(value, key).unwrap_or_default();
        Some(Self {
            current: slot("current")?,
            previous: slot("previous")?,
            installed: text(value, "installed")?,
            requested_key: asked("asked"),
            requested_config_key: asked("askedConfig"),
            trial,
            last,
        })
    }
}

impl Slot {
    /// Such as `version 0.9.1 (3f2a...)`.
    pub(crate) fn name(&self) -> String {
        format!("version {} ({})", self.version, short(&self.digest))
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self { digest: digest(value, "digest")?, version: text(value, "version")? })
    }
}

impl Subject {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Program(slot) => slot.name(),
            Self::Config { path, candidate, .. } => format!("{} ({})", path.display(), short(candidate)),
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        if let Some(program) = value.get("program") {
            return Slot::from_json(program).map(Self::Program);
        }
        let config = value.get("config")?;
        let former = config.get("former")?;
        let former = if former.is_null() { None } else { Some(digest(config, "former")?) };
        Some(Self::Config { path: text(config, "path")?.into(), candidate: digest(config, "candidate")?, former })
    }
}

impl Trial {
    /// How long the conditions have to hold.
    pub(crate) fn settle_time(&self) -> Duration {
        (self.within / 5).min(MAX_SETTLE_TIME)
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            subject: Subject::from_json(value.get("subject")?)?,
            starts: value.get("starts")?.as_u64()?,
            within: Duration::from_secs(value.get("withinSeconds")?.as_u64()?),
            before: Before::from_json(value.get("before")?)?,
        })
    }
}

impl TrialEnd {
    fn new(subject: &Subject, is_accepted: bool, reason: &str, now: &str) -> Self {
        let (subject, reason) = (subject.name(), reason.to_owned());
        Self { subject, is_accepted, reason, time: now.to_owned(), is_announced: false }
    }

    /// Of the runtime's configuration at `path`. `fault` says why it was rejected, and what became of the former one.
    pub(super) fn of_runtime(path: &Path, fault: Option<&str>, now: &str) -> Self {
        let mut reason = fault.unwrap_or_default().to_owned();
        cut(&mut reason, MAX_RUNTIME_REASON_BYTES);
        let subject = format!("{RUNTIME_SUBJECT}{}", path.display());
        Self { subject, is_accepted: fault.is_none(), reason, time: now.to_owned(), is_announced: false }
    }

    /// One line, such as `version 0.9.1 (3f2a...) rejected: no verdict in 3 starts`.
    pub(crate) fn line(&self) -> String {
        let Self { subject, reason, .. } = self;
        match self.is_accepted {
            true => format!("{subject} accepted"),
            false if subject.starts_with(RUNTIME_SUBJECT) || subject == RECORD_SUBJECT => {
                format!("{subject} rejected: {reason}")
            }
            false => format!("{subject} rejected: {reason}; the former one runs"),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "subject": self.subject, "accepted": self.is_accepted, "reason": self.reason, "time": self.time,
            "announced": self.is_announced,
        })
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            subject: text(value, "subject")?,
            is_accepted: value.get("accepted")?.as_bool()?,
            reason: text(value, "reason")?,
            time: text(value, "time")?,
            is_announced: value.get("announced")?.as_bool()?,
        })
    }
}

/// Begins the subject of a trial of the runtime's configuration. No other one begins so; rollouts tell them apart.
const RUNTIME_SUBJECT: &str = "runtime's ";
/// Of a record that was damaged.
const RECORD_SUBJECT: &str = "record of updates";
const RECORD_DAMAGE: &str = "damaged and set aside; a trial under way has no verdict";
/// A runtime may answer with megabytes.
const MAX_RUNTIME_REASON_BYTES: usize = 1024;

/// A digest also names a file, so it has to be one.
fn digest(value: &Value, key: &str) -> Option<String> {
    text(value, key).filter(|digest| is_digest(digest))
}

/// Whether this is a SHA-256 in hexadecimal digits.
pub(super) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// Whether version `a` is newer than `b`: numbers are compared as numbers, and a version without a suffix (`-rc.1`) is
/// newer than the same one with a suffix.
pub(crate) fn is_newer(a: &str, b: &str) -> bool {
    let parts = |version: &str| {
        let (numbers, suffix) =
            version.split_once('-').map_or((version, None), |(numbers, rest)| (numbers, Some(rest)));
        let numbers: Vec<u64> = numbers.split('.').map(|part| part.parse().unwrap_or(0)).collect();
        let suffix = suffix.map(|suffix| suffix.split('.').map(|part| format!("{part:0>20}")).collect::<Vec<_>>());
        (numbers, suffix.is_none(), suffix)
    };
    parts(a) > parts(b)
}

#[cfg(test)]
mod tests;
