//! The health of devices, as drivers report it by `DRAResourceHealth` (v1, and v1alpha1, which has the same messages).

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::DraManager;
use super::plugin::Plugin;
use super::v1::{DeviceHealth as Report, Empty, HealthResponse};
use crate::platform::rpc::Error;
use crate::platform::rt;
use crate::protocol::grpc::Code;
use crate::protocol::protobuf::{decode, encode};
use crate::state::pods::{DeviceHealth, SyncEvent};
use crate::types::sorted::SortedMap;

/// Health of a device that its driver no longer reports is unknown after this, unless the driver names a time.
const DEVICE_HEALTH_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before a health stream is opened again.
const HEALTH_STREAM_RETRY_DELAY: Duration = Duration::from_secs(5);
const MAX_HEALTH_MESSAGE_BYTES: usize = 1024;
/// Limit of devices kept for one driver.
const MAX_DRIVER_DEVICES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct HealthCache {
    /// By driver, then by pool and device.
    drivers: SortedMap<String, SortedMap<(String, String), ReportedHealth>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ReportedHealth {
    health: DeviceHealth,
    message: String,
    timeout: Duration,
    at: Instant,
    /// The socket of the instance that reported it.
    socket: Rc<str>,
}

impl HealthCache {
    pub(super) fn of(&self, driver: &str, pool: &str, device: &str) -> (DeviceHealth, &str) {
        let reported = self.drivers.get(driver).and_then(|devices| devices.get(&(pool.to_owned(), device.to_owned())));
        reported.map_or((DeviceHealth::Unknown, ""), |reported| (reported.health, &reported.message))
    }

    /// Forgets what this instance of the driver has reported last. True if any device's health changed.
    pub(super) fn forget(&mut self, driver: &str, socket: &str) -> bool {
        let Some(driver_devices) = self.drivers.get_mut(driver) else { return false };
        let mut changed = false;
        driver_devices.retain(|_, device| {
            let is_of_other = *device.socket != *socket;
            changed |= !is_of_other && device.health != DeviceHealth::Unknown;
            is_of_other
        });
        if driver_devices.is_empty() {
            self.drivers.remove(driver);
        }
        changed
    }

    /// Takes the complete list of an instance of a driver. True if any device's health changed.
    fn update(&mut self, driver: &str, socket: &Rc<str>, reports: Vec<Report>, now: Instant) -> bool {
        let driver_devices = self.drivers.entry(driver.to_owned()).or_default();
        let mut changed = false;
        for report in reports.into_iter().take(MAX_DRIVER_DEVICES) {
            let device = report.device.unwrap_or_default();
            let seconds = u64::try_from(report.timeout_seconds).ok().filter(|seconds| *seconds > 0);
            let new = ReportedHealth {
                health: match report.health {
                    1 => DeviceHealth::Healthy,
                    2 => DeviceHealth::Unhealthy,
                    _ => DeviceHealth::Unknown,
                },
                message: shortened(report.message),
                timeout: seconds.map_or(DEVICE_HEALTH_TIMEOUT, Duration::from_secs),
                at: now,
                socket: Rc::clone(socket),
            };
            let shown = |device_health: &ReportedHealth| (device_health.health, device_health.message.clone());
            let key = (device.pool_name, device.device_name);
            if driver_devices.len() >= MAX_DRIVER_DEVICES && !driver_devices.contains_key(&key) {
                continue;
            }
            let is_new =
                |old: Option<ReportedHealth>, new: (DeviceHealth, String)| old.map(|old| shown(&old)) != Some(new);
            let now_shown = shown(&new);
            changed |= is_new(driver_devices.insert(key, new), now_shown);
        }
        changed | self.expire(driver, now)
    }

    /// Reports that are too old become unknown. True if any did.
    fn expire(&mut self, driver: &str, now: Instant) -> bool {
        let mut changed = false;
        for device in self.drivers.get_mut(driver).into_iter().flat_map(|driver_devices| driver_devices.values_mut()) {
            if device.health != DeviceHealth::Unknown && now.saturating_duration_since(device.at) >= device.timeout {
                device.health = DeviceHealth::Unknown;
                device.message.clear();
                changed = true;
            }
        }
        changed
    }

    /// When the next report of the driver expires.
    fn next_expiry(&self, driver: &str) -> Option<Instant> {
        let driver_devices = self.drivers.get(driver).into_iter().flat_map(|driver_devices| driver_devices.values());
        driver_devices
            .filter(|device| device.health != DeviceHealth::Unknown)
            .filter_map(|device| device.at.checked_add(device.timeout))
            .min()
    }
}

fn shortened(mut message: String) -> String {
    if message.len() > MAX_HEALTH_MESSAGE_BYTES {
        let end =
            (0..=MAX_HEALTH_MESSAGE_BYTES - 3).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
        message.truncate(end);
        message.push_str("...");
    }
    message
}

/// Follows the plugin's connection and the health of its devices, for as long as it is registered.
pub(super) async fn follow(manager: Rc<DraManager>, plugin: Rc<Plugin>) {
    loop {
        let mut watch = plugin.client.watch();
        let mut has_no_health = false;
        for method in HEALTH_METHODS {
            let ended = watch_resources(&manager, &plugin, method).await;
            let code = ended.err().and_then(|error| Some(error.status()?.code));
            has_no_health = code == Some(Code::Unimplemented);
            if !has_no_health {
                break;
            }
        }
        if has_no_health {
            // It has answered, so it is connected, although it reports no health.
            manager.set_connected(&plugin, true);
            // Until the connection is lost.
            while watch.changed().await {}
        }
        manager.set_connected(&plugin, false);
        // Another instance of the driver may still report.
        let changed = manager.health.borrow_mut().forget(&plugin.driver, &plugin.socket);
        if changed {
            manager.health_changed().await;
        }
        rt::sleep(HEALTH_STREAM_RETRY_DELAY).await;
    }
}

/// Newest first.
const HEALTH_METHODS: [&str; 2] =
    ["/v1.DRAResourceHealth/NodeWatchResources", "/v1alpha1.DRAResourceHealth/NodeWatchResources"];

async fn watch_resources(manager: &DraManager, plugin: &Plugin, method: &'static str) -> Result<(), Error> {
    let mut reports = plugin.client.server_streaming(method, encode(&Empty {})).await?;
    manager.set_connected(plugin, true);
    let driver = plugin.driver.as_str();
    loop {
        let expiry = manager.health.borrow().next_expiry(driver);
        let expires = async {
            match expiry {
                Some(time) => rt::sleep_until(time).await,
                None => std::future::pending().await,
            }
            Ok(Some(None))
        };
        let next = async { reports.next().await.map(|message| message.map(Some)) };
        let changed = match rt::either(next, expires).await? {
            None => return Ok(()),
            Some(None) => manager.health.borrow_mut().expire(driver, rt::now()),
            Some(Some(message)) => {
                let list: HealthResponse = decode(&message).map_err(|_| Error::Protocol("malformed health report"))?;
                manager.health.borrow_mut().update(driver, &plugin.socket, list.devices, rt::now())
            }
        };
        if changed {
            manager.health_changed().await;
        }
    }
}

impl DraManager {
    fn set_connected(&self, plugin: &Plugin, is_connected: bool) {
        if plugin.is_connected.replace(is_connected) != is_connected {
            self.changed.notify();
        }
    }

    /// Has the statuses of pods with claims recomputed.
    async fn health_changed(&self) {
        if !self.cache.borrow().claims.is_empty() {
            // The receiver is gone only at shutdown.
            let _ = self.inbox.send(SyncEvent::DevicesChanged).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::v1::DeviceIdentifier;
    use super::*;

    fn report(device: &str, health: i32, message: &str) -> Report {
        let device = DeviceIdentifier { pool_name: "pool".to_owned(), device_name: device.to_owned() };
        Report { device: Some(device), health, timeout_seconds: 0, message: message.to_owned() }
    }

    #[test]
    fn health_is_unknown_before_a_report_and_after_it_expires() {
        let told = rt::simulate(1, |_| async {
            let (mut cache, socket, begun) = (HealthCache::default(), Rc::from("/one"), rt::now());
            assert_eq!(cache.of("d", "pool", "a"), (DeviceHealth::Unknown, ""));
            assert!(cache.update("d", &socket, vec![report("a", 2, "too hot")], begun));
            assert_eq!(cache.of("d", "pool", "a"), (DeviceHealth::Unhealthy, "too hot"));
            assert!(!cache.update("d", &socket, vec![report("a", 2, "too hot")], begun), "nothing new");
            let end = begun + DEVICE_HEALTH_TIMEOUT;
            assert_eq!(cache.next_expiry("d"), Some(end));
            assert!(cache.expire("d", end) && !cache.expire("d", end));
            assert_eq!(cache.of("d", "pool", "a"), (DeviceHealth::Unknown, ""));
            assert_eq!(cache.next_expiry("d"), None);
        });
        assert_eq!(told, Ok(()));
    }

    #[test]
    fn instance_takes_only_its_own_reports_with_it() {
        let told = rt::simulate(1, |_| async {
            let (mut cache, begun) = (HealthCache::default(), rt::now());
            let [former, next] = ["/former", "/next"].map(Rc::<str>::from);
            cache.update("d", &former, vec![report("a", 1, ""), report("b", 1, "")], begun);
            cache.update("d", &next, vec![report("a", 1, "")], begun);
            assert!(cache.forget("d", &former), "nothing reports b");
            assert_eq!(cache.of("d", "pool", "b"), (DeviceHealth::Unknown, ""));
            assert!(!cache.forget("d", &former), "each failed connection changed the health");
            assert_eq!(cache.of("d", "pool", "a"), (DeviceHealth::Healthy, ""));
            assert!(cache.forget("d", &next) && cache.drivers.is_empty());
        });
        assert_eq!(told, Ok(()));
    }

    #[test]
    fn long_messages_are_cut_as_upstream_does() {
        assert_eq!(shortened("a".repeat(1024)).len(), 1024);
        let cut = shortened("é".repeat(600));
        assert!(cut.len() <= 1024 && cut.ends_with("é..."), "{}", cut.len());
    }
}
