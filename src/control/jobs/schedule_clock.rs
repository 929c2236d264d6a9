//! Waits for the next scheduled time of all CronJobs, and reads their time zones then: a zone may have changed.

use std::io;
use std::path::Path;

use async_channel::Sender;

use crate::platform::host::{file, wall_timer};
use crate::platform::rt;
use crate::state::pods::{SyncEvent, ZoneFile};
use crate::types::sorted::SortedMap;
use crate::types::time_zone::TimeZone;

pub(super) struct ScheduleClock {
    inbox: Sender<SyncEvent>,
    /// By name; the node's own has an empty one.
    zones: SortedMap<String, Result<TimeZone, String>>,
    waiting: Option<Waiting>,
}

struct Waiting {
    until: i64,
    names: Vec<String>,
    _task: rt::Task<()>,
}

const ZONES: &str = "/usr/share/zoneinfo";
const OWN_ZONE: &str = "/etc/localtime";
/// The largest zones have 4 KB.
const MAX_ZONE_BYTES: u64 = 256 << 10;

impl ScheduleClock {
    pub(super) fn new(inbox: Sender<SyncEvent>) -> Self {
        Self { inbox, zones: SortedMap::default(), waiting: None }
    }

    /// `None` until it was read.
    pub(super) fn zone(&self, name: &str) -> Option<Result<&TimeZone, &String>> {
        self.zones.get(name).map(Result::as_ref)
    }

    /// Sends an event at this Unix time, when the clock is set, and at once if a zone was not read. Without `names`, no
    /// CronJob has to be looked at.
    pub(super) fn wait(&mut self, until: i64, names: Vec<String>) {
        if names.is_empty() {
            self.waiting = None;
            return;
        }
        let until = if names.iter().all(|name| self.zones.contains_key(name)) { until } else { i64::MIN };
        if self.waiting.as_ref().is_some_and(|waiting| waiting.until == until && waiting.names == names) {
            return;
        }
        let (inbox, to_read) = (self.inbox.clone(), names.clone());
        let task = rt::spawn(async move {
            wall_timer::until(until).await;
            let read = || to_read.into_iter().map(|name| (read_zone(&name, ZONES, OWN_ZONE), name));
            let zones = rt::blocking(move || read().map(|(zone, name)| ZoneFile { name, zone }).collect()).await;
            // Fails only when the agent is ending.
            let _ = inbox.send(SyncEvent::ScheduleDue(zones)).await;
        });
        self.waiting = Some(Waiting { until, names, _task: task });
    }

    pub(super) fn on_due(&mut self, zones: Vec<ZoneFile>) {
        self.waiting = None;
        self.zones = zones.into_iter().map(|ZoneFile { name, zone }| (name, zone)).collect();
    }
}

/// Blocking. A node without a zone of its own has UTC.
fn read_zone(name: &str, zones: &str, own: &str) -> Result<TimeZone, String> {
    if matches!(name, "UTC" | "Etc/UTC") {
        return Ok(TimeZone::utc());
    }
    let path = if name.is_empty() { Path::new(own).to_path_buf() } else { Path::new(zones).join(name) };
    match file::read_all(&path, MAX_ZONE_BYTES) {
        Ok(bytes) => {
            TimeZone::parse(&bytes).ok_or_else(|| format!("{}: expected a time zone (TZif 2)", path.display()))
        }
        Err(error) if name.is_empty() && error.kind() == io::ErrorKind::NotFound => Ok(TimeZone::utc()),
        Err(error) => Err(format!("failed to read time zone {}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rt::TestFolder;

    #[test]
    fn node_without_zones_has_utc_only() {
        let folder = TestFolder::new("zones");
        let own = folder.0.join("localtime");
        let read = |name: &str| read_zone(name, folder.0.to_str().unwrap(), own.to_str().unwrap());
        assert_eq!(read(""), Ok(TimeZone::utc()));
        assert_eq!(read("Etc/UTC"), Ok(TimeZone::utc()));
        let error = read("Europe/Berlin").unwrap_err();
        assert!(error.ends_with("/Europe/Berlin: No such file or directory (os error 2)"), "{error}");
        std::fs::create_dir_all(&folder.0).unwrap();
        std::fs::write(&own, "Berlin").unwrap();
        let error = read("").unwrap_err();
        assert!(error.ends_with("localtime: expected a time zone (TZif 2)"), "{error}");
    }
}
