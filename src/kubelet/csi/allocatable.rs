//! Periodic updates of the drivers' volume limits (`nodeAllocatableUpdatePeriodSeconds`).

use std::rc::Rc;
use std::time::Duration;

use super::Csi;
use crate::platform::rt;
use crate::types::error::ErrorChain;

/// The periodic update of one driver.
pub(super) struct PeriodicUpdate {
    pub(super) driver: String,
    period: Duration,
    #[expect(dead_code, reason = "dropping the task ends it")]
    task: rt::Task<()>,
}

impl Csi {
    /// Starts periodic updates of the registered drivers with a `period`, and stops all others.
    pub(crate) fn refresh_periodically(self: &Rc<Self>, period: impl Fn(&str) -> Option<Duration>) {
        let wanted = self.registered().into_iter().filter_map(|name| Some((period(&name)?, name)));
        let mut before = self.recurrences.take();
        let recurrence = |(period, driver): (Duration, String)| {
            let running_update = before.iter().position(|old| old.driver == driver && old.period == period);
            running_update.map(|index| before.swap_remove(index)).unwrap_or_else(|| self.recur(driver, period))
        };
        let recurrences = wanted.map(recurrence).collect();
        self.recurrences.replace(recurrences);
    }

    fn recur(self: &Rc<Self>, driver: String, period: Duration) -> PeriodicUpdate {
        let (csi, name) = (Rc::downgrade(self), driver.clone());
        let task = rt::spawn(async move {
            loop {
                rt::sleep(period).await;
                let Some(csi) = csi.upgrade() else { return };
                csi.refresh(&name).await;
            }
        });
        PeriodicUpdate { driver, period, task }
    }

    /// Names of the registered drivers.
    pub(crate) fn registered(&self) -> Vec<String> {
        let drivers = self.drivers.borrow();
        drivers.iter().filter(|(_, driver)| driver.is_some()).map(|(name, _)| name.clone()).collect()
    }

    /// Repeats NodeGetInfo and updates the CSINode if the answer has changed.
    pub(super) async fn refresh(&self, name: &str) {
        let Ok(driver) = self.driver(name) else { return };
        match driver.refreshed().await {
            Ok(Some(refreshed)) => {
                let mut drivers = self.drivers.borrow_mut();
                // The driver may have registered again in the meantime.
                let same = drivers.get_mut(name).filter(|now| now.as_ref().is_some_and(|now| Rc::ptr_eq(now, &driver)));
                if let Some(registered) = same {
                    *registered = Some(Rc::new(refreshed));
                    self.changed.notify();
                }
            }
            Ok(None) => {}
            Err(error) => {
                log!(warn, "failed to get node info of CSI driver", driver = name, error = ErrorChain(&error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::drivers::Driver;
    use super::*;

    #[test]
    fn timer_runs_until_driver_or_period_changes() {
        rt::block_on(async {
            let csi = Csi::new(Path::new("/nowhere"), "n", async_channel::bounded(1).0, None);
            let register = |name: &str, is_there: bool| {
                let driver = is_there.then(|| Rc::new(Driver::named("node-7", &[], 1)));
                csi.drivers.borrow_mut().insert(name.to_owned(), driver);
            };
            register("a", true);
            register("b", true);
            register("gone", false);
            // Each running timer has a reference to the drivers.
            let ask = |of_a: u64, of_b: Option<u64>| {
                let before = Rc::weak_count(&csi);
                csi.refresh_periodically(|name| if name == "b" { of_b } else { Some(of_a) }.map(Duration::from_secs));
                let all = csi.recurrences.borrow();
                let all = all.iter().map(|one| (one.driver.clone(), one.period.as_secs())).collect::<Vec<_>>();
                (Rc::weak_count(&csi) - before, all)
            };
            let one = |name: &str, period| (name.to_owned(), period);
            assert_eq!(ask(60, Some(90)), (2, vec![one("a", 60), one("b", 90)]));
            assert_eq!(ask(60, Some(90)), (0, vec![one("a", 60), one("b", 90)]));
            assert_eq!(ask(30, Some(90)), (1, vec![one("a", 30), one("b", 90)]));
            assert_eq!(ask(30, None), (0, vec![one("a", 30)]));
        });
    }
}
