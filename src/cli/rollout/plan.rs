//! What a rollout changes, on which boards, and in which steps. Pure.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Plan {
    pub(super) subject: Subject,
    /// The nodes, as `labelSelector`; empty: all.
    pub(super) selector: String,
    /// Boards of the first step.
    pub(super) first: u64,
    /// Percentages of all boards, for the steps after it.
    pub(super) then: Percentages,
    pub(super) max_unavailable: Amount,
    /// The rollout stops at so many failed boards.
    pub(super) stop_after: u64,
    /// How long a board that is awake may take.
    pub(super) within: Duration,
    /// How long a pod has to be ready.
    pub(super) settle: Duration,
    pub(super) order: Order,
    /// At the end, boards that sleep get their change too, and take it when they wake.
    pub(super) is_ahead: bool,
}

/// What is written for a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Its pod of the DaemonSet is deleted.
    DaemonSet(DaemonSetName),
    /// The annotation `coracle.dev/upgrade` of its node.
    Agent(String),
    /// The annotation `coracle.dev/config`.
    Config(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DaemonSetName {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The label `controller-revision-hash` of its present template.
    pub(super) revision: String,
}

/// Such as `10%,50%,100%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Percentages(pub(super) Vec<u64>);

/// Such as `3` or `10%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Amount {
    Boards(u64),
    Percent(u64),
}

/// The order in which boards have their turn. Both are the same at each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Order {
    /// Of the digests of the rollout's name and theirs.
    Hash,
    Name,
}

impl Plan {
    /// How many boards have the change at the end of each step. It never falls.
    pub(super) fn targets(&self, total: u64) -> Vec<u64> {
        let mut targets = vec![self.first.min(total)];
        for percent in &self.then.0 {
            let before = targets.last().copied().unwrap_or_default();
            targets.push(part(*percent, total).max(before));
        }
        targets
    }

    pub(super) fn max_unavailable(&self, total: u64) -> u64 {
        match self.max_unavailable {
            Amount::Boards(boards) => boards,
            // A percentage of a small fleet is a board at least.
            Amount::Percent(percent) => (total * percent / 100).max(1),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let mut plan = json!({
            "selector": self.selector,
            "first": self.first,
            "then": self.then.0,
            "maxUnavailable": self.max_unavailable.to_string(),
            "stopAfter": self.stop_after,
            "withinSeconds": self.within.as_secs(),
            "settleSeconds": self.settle.as_secs(),
            "order": match self.order { Order::Hash => "hash", Order::Name => "name" },
            "ahead": self.is_ahead,
        });
        let (key, subject) = match &self.subject {
            Subject::DaemonSet(set) => {
                ("daemonSet", json!({ "namespace": set.namespace, "name": set.name, "revision": set.revision }))
            }
            Subject::Agent(url) => ("agent", json!(url)),
            Subject::Config(url) => ("config", json!(url)),
        };
        if let Value::Object(fields) = &mut plan {
            fields.insert(key.to_owned(), subject);
        }
        plan
    }

    /// `None` for what another version may have written.
    pub(super) fn from_json(plan: &Value) -> Option<Self> {
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| plan.get(key).and_then(Value::as_u64);
        let subject = match (plan.get("daemonSet"), text(plan, "agent"), text(plan, "config")) {
            (Some(set), None, None) => Subject::DaemonSet(DaemonSetName {
                namespace: text(set, "namespace")?,
                name: text(set, "name")?,
                revision: text(set, "revision")?,
            }),
            (None, Some(url), None) => Subject::Agent(url),
            (None, None, Some(url)) => Subject::Config(url),
            _ => return None,
        };
        let then = plan.get("then")?.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()?;
        Some(Self {
            subject,
            selector: text(plan, "selector")?,
            first: number("first")?,
            then: Percentages(then),
            max_unavailable: text(plan, "maxUnavailable")?.parse().ok()?,
            stop_after: number("stopAfter")?,
            within: Duration::from_secs(number("withinSeconds")?),
            settle: Duration::from_secs(number("settleSeconds")?),
            order: text(plan, "order")?.parse().ok()?,
            is_ahead: plan.get("ahead")?.as_bool()?,
        })
    }
}

impl Percentages {
    pub(in crate::cli) fn usual() -> Self {
        Self(vec![10, 50, 100])
    }
}

impl Subject {
    /// Whether both may write to the same board.
    pub(super) fn is_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::DaemonSet(one), Self::DaemonSet(two)) => (&one.namespace, &one.name) == (&two.namespace, &two.name),
            (Self::Agent(_), Self::Agent(_)) | (Self::Config(_), Self::Config(_)) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DaemonSet(set) => write!(f, "daemonset {}/{}", set.namespace, set.name),
            Self::Agent(url) => write!(f, "agent {url}"),
            Self::Config(url) => write!(f, "config {url}"),
        }
    }
}

/// Rounded up, so that no step of a small fleet is empty.
fn part(percent: u64, total: u64) -> u64 {
    (total * percent).div_ceil(100)
}

fn percent(word: &str) -> Option<u64> {
    word.strip_suffix('%')?.parse().ok().filter(|percent| (1..=100).contains(percent))
}

impl FromStr for Percentages {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let expected = "expected growing percentages as 10%,50%,100%";
        let percentages: Vec<u64> = text.split(',').map(percent).collect::<Option<_>>().ok_or(expected)?;
        match percentages.is_sorted_by(|a, b| a < b) {
            true => Ok(Self(percentages)),
            false => Err(expected),
        }
    }
}

impl FromStr for Amount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let boards = text.parse().ok().filter(|boards| *boards > 0).map(Self::Boards);
        boards.or_else(|| percent(text).map(Self::Percent)).ok_or("expected a number from 1 as 3, or a part as 10%")
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boards(boards) => write!(f, "{boards}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for Order {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, &'static str> {
        match word {
            "hash" => Ok(Self::Hash),
            "name" => Ok(Self::Name),
            _ => Err("expected hash or name"),
        }
    }
}

#[cfg(test)]
pub(super) fn plan(first: u64, then: &str, max_unavailable: &str) -> Plan {
    Plan {
        subject: Subject::Agent("https://f/c".to_owned()),
        selector: "site=a".to_owned(),
        first,
        then: then.parse().unwrap(),
        max_unavailable: max_unavailable.parse().unwrap(),
        stop_after: 1,
        within: Duration::from_secs(600),
        settle: Duration::from_secs(30),
        order: Order::Hash,
        is_ahead: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_counts_that_never_fall_and_never_exceed_the_fleet() {
        for (first, then, total, targets) in [
            (5, "10%,50%,100%", 500, &[5, 50, 250, 500][..]),
            (5, "10%,50%,100%", 20, &[5, 5, 10, 20]),
            (5, "10%,100%", 3, &[3, 3, 3]),
            (1, "1%", 500, &[1, 5]),
            (1, "1%,100%", 0, &[0, 0, 0]),
        ] {
            assert_eq!(plan(first, then, "1").targets(total), targets, "{first} {then} of {total}");
        }
    }

    #[test]
    fn part_of_a_small_fleet_is_one_board() {
        assert_eq!(plan(1, "100%", "10%").max_unavailable(5), 1);
        assert_eq!(plan(1, "100%", "10%").max_unavailable(500), 50);
        assert_eq!(plan(1, "100%", "3").max_unavailable(500), 3);
    }

    #[test]
    fn malformed_values_are_refused() {
        for text in ["", "10", "0%", "101%", "50%,10%", "10%,10%", "10%,"] {
            assert!(text.parse::<Percentages>().is_err(), "{text}");
        }
        for text in ["", "0", "0%", "-1", "x%", "101%"] {
            assert!(text.parse::<Amount>().is_err(), "{text}");
        }
        assert!("size".parse::<Order>().is_err());
    }

    #[test]
    fn stored_plan_is_read_back() {
        let set = DaemonSetName { namespace: "n".to_owned(), name: "d".to_owned(), revision: "r".to_owned() };
        for subject in [Subject::DaemonSet(set), Subject::Agent("a".to_owned()), Subject::Config("c".to_owned())] {
            let plan = Plan { subject, order: Order::Name, is_ahead: true, ..plan(5, "10%,100%", "7%") };
            assert_eq!(Plan::from_json(&plan.to_json()), Some(plan));
        }
        assert_eq!(Plan::from_json(&json!({ "agent": "a" })), None);
    }
}
