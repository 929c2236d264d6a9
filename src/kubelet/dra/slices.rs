//! Removes ResourceSlices of drivers that are gone: no pod may be scheduled for devices that nothing can prepare.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::DraManager;
use crate::kubelet::node::StatusInputs;
use crate::platform::apiserver::{ApiError, Client, Rank, Request};
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::sorted::{SortedMap, SortedSet};
use crate::types::time::{Backoff, jitter};

/// How long a driver may be disconnected before its slices are removed.
const DRIVER_DISCONNECT_GRACE: Duration = Duration::from_secs(30);
const FIRST_SLICE_REMOVAL_DELAY: Duration = Duration::from_secs(1);
const MAX_SLICE_REMOVAL_DELAY: Duration = Duration::from_secs(300);
pub(super) const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

pub(crate) struct SliceCleaner {
    pub(crate) client: Client,
    pub(crate) manager: Rc<DraManager>,
    pub(crate) node_name: String,
    pub(crate) status_inputs: Rc<StatusInputs>,
}

/// The disconnected drivers, and when their slices are removed. Pure.
#[derive(Debug, Default)]
struct AbsentDrivers {
    due: SortedMap<String, Instant>,
    names: SortedSet<String>,
}

impl AbsentDrivers {
    /// Starts with the drivers of slices from an earlier process, due at once unless they have registered by now.
    fn left_over(drivers: SortedSet<String>, now: Instant) -> Self {
        Self { due: drivers.iter().map(|driver| (driver.clone(), now)).collect(), names: drivers }
    }

    /// Updates the absences; `is_usable` says whether a registered driver is connected.
    fn update(&mut self, registered: Vec<String>, is_usable: &dyn Fn(&str) -> bool, now: Instant) {
        self.names.extend(registered);
        for driver in &self.names {
            if is_usable(driver) {
                self.due.remove(driver);
            } else if !self.due.contains_key(driver) {
                self.due.insert(driver.clone(), now + DRIVER_DISCONNECT_GRACE);
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    fn take_due(&mut self, now: Instant) -> Vec<String> {
        let due = self.due.iter().filter(|(_, time)| **time <= now);
        let due: Vec<String> = due.map(|(driver, _)| driver.clone()).collect();
        for driver in &due {
            self.due.remove(driver);
            self.names.remove(driver);
        }
        due
    }
}

impl SliceCleaner {
    /// Never returns. Slices from an earlier process are listed once, after the grace period for registrations.
    pub(crate) async fn run(self) {
        self.status_inputs.admission_is_possible().await;
        rt::sleep(DRIVER_DISCONNECT_GRACE).await;
        let mut absences = AbsentDrivers::left_over(self.left_over().await, rt::now());
        loop {
            let seen = self.manager.changed.changes();
            let is_usable = |driver: &str| self.manager.is_usable(driver);
            absences.update(self.manager.registered(), &is_usable, rt::now());
            for driver in absences.take_due(rt::now()) {
                self.remove(&driver).await;
            }
            let due = async {
                match absences.next() {
                    Some(time) => rt::sleep_until(time).await,
                    None => std::future::pending().await,
                }
            };
            rt::either(self.manager.changed.beyond(seen), due).await;
        }
    }

    /// The drivers that have slices of this node.
    async fn left_over(&self) -> SortedSet<String> {
        let request = Request::get(SLICES).with_query("fieldSelector", &format!("spec.nodeName={}", self.node_name));
        match self.send_until_answered(&request, &|| true).await {
            Ok(list) => {
                let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
                items.filter_map(|item| Some(item.pointer("/spec/driver")?.as_str()?.to_owned())).collect()
            }
            Err(error) => {
                log!(warn, "failed to list ResourceSlices", error = ErrorChain(&error));
                SortedSet::new()
            }
        }
    }

    async fn remove(&self, driver: &str) {
        let selector = format!("spec.nodeName={},spec.driver={driver}", self.node_name);
        let request = Request::delete(SLICES, &json!({})).with_query("fieldSelector", &selector);
        match self.send_until_answered(&request, &|| !self.manager.is_usable(driver)).await {
            Ok(_) => log!(info, "removed ResourceSlices of a driver that is gone", driver = driver),
            Err(error) => log!(warn, "failed to remove ResourceSlices", driver = driver, error = ErrorChain(&error)),
        }
    }

    /// Repeats the request until the API server has answered, while it is `due`. A server without the API has no
    /// slices.
    async fn send_until_answered(&self, request: &Request, is_due: &dyn Fn() -> bool) -> Result<Value, ApiError> {
        let mut backoff = Backoff::new(FIRST_SLICE_REMOVAL_DELAY, MAX_SLICE_REMOVAL_DELAY);
        loop {
            match self.client.send(&request.clone().ranked(Rank::Node)).await {
                Ok(response) => return response.json(),
                Err(error) if error.is_not_found() => return Ok(Value::Null),
                Err(error) if error.is_forbidden() || !is_due() => return Err(error),
                Err(_) => rt::sleep(jitter(backoff.next_wait(), 0.2, rt::random())).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_a_driver_that_stays_disconnected_are_removed() {
        let told = rt::simulate(1, |_| async {
            let begun = rt::now();
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let mut absences = AbsentDrivers::left_over(names(&["a", "gone"]).into_iter().collect(), begun);
            absences.update(names(&["a", "b"]), &|driver| driver == "a", begun);
            assert_eq!(absences.take_due(begun), ["gone"]);
            assert_eq!(absences.next(), Some(begun + DRIVER_DISCONNECT_GRACE));
            // Deregistered, then back in time.
            absences.update(Vec::new(), &|_| false, begun + DRIVER_DISCONNECT_GRACE / 2);
            absences.update(names(&["a"]), &|driver| driver == "a", begun + DRIVER_DISCONNECT_GRACE);
            assert_eq!(absences.take_due(begun + DRIVER_DISCONNECT_GRACE), ["b"]);
            assert_eq!((absences.take_due(begun + DRIVER_DISCONNECT_GRACE * 2).len(), absences.next()), (0, None));
        });
        assert_eq!(told, Ok(()));
    }
}
