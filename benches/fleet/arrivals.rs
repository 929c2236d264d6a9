//! Number of API requests per second, from the audit log of the API server.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;

pub(crate) struct Arrivals {
    begin: Timestamp,
    /// Number of requests in each second.
    pub(crate) counts: Vec<usize>,
    requests: Vec<(usize, String)>,
}

impl Arrivals {
    pub(crate) fn read(log: &Path, begin: Timestamp, end: Timestamp) -> Self {
        let mut arrivals = Self { begin, counts: Vec::new(), requests: Vec::new() };
        arrivals.counts.resize(arrivals.second(end), 0);
        for line in fs::read_to_string(log).unwrap().lines() {
            let entry: Value = serde_json::from_str(line).expect("a line of the audit log is JSON");
            let at: Timestamp = entry["requestReceivedTimestamp"].as_str().unwrap().parse().unwrap();
            if at < begin {
                continue;
            }
            let second = arrivals.second(at);
            if let Some(count) = arrivals.counts.get_mut(second) {
                *count += 1;
                let resource = &entry["objectRef"]["resource"].as_str().unwrap_or("none");
                let part =
                    entry["objectRef"]["subresource"].as_str().map(|part| format!("/{part}")).unwrap_or_default();
                arrivals.requests.push((second, format!("{} {resource}{part}", entry["verb"].as_str().unwrap())));
            }
        }
        arrivals
    }

    pub(crate) fn second(&self, at: Timestamp) -> usize {
        usize::try_from(at.duration_since(self.begin).as_secs()).unwrap()
    }

    pub(crate) fn between(&self, from: Timestamp, to: Timestamp) -> Part<'_> {
        Part(&self.counts[self.second(from)..self.second(to).min(self.counts.len())])
    }

    /// Seconds from `from` until the last request of this kind.
    pub(crate) fn last(&self, kind: &str, from: Timestamp, to: Timestamp) -> Option<usize> {
        let span = self.second(from)..self.second(to);
        let of_kind = self.requests.iter().filter(|(second, other)| span.contains(second) && other == kind);
        of_kind.map(|(second, _)| second - span.start).max()
    }

    /// The kinds of requests and their number, most frequent first.
    pub(crate) fn kinds(&self, from: Timestamp, to: Timestamp) -> Vec<(String, usize)> {
        let span = self.second(from)..self.second(to);
        let mut kinds = BTreeMap::<&str, usize>::new();
        for (_, kind) in self.requests.iter().filter(|(second, _)| span.contains(second)) {
            *kinds.entry(kind).or_default() += 1;
        }
        let mut kinds: Vec<_> = kinds.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        kinds
    }
}

/// A range of seconds.
pub(crate) struct Part<'a>(&'a [usize]);

impl Part<'_> {
    pub(crate) fn total(&self) -> usize {
        self.0.iter().sum()
    }

    pub(crate) fn seconds(&self) -> usize {
        self.0.len()
    }

    /// The largest number of requests in this many consecutive seconds.
    pub(crate) fn peak(&self, seconds: usize) -> usize {
        self.0.windows(seconds).map(|window| window.iter().sum()).max().unwrap_or_default()
    }
}
