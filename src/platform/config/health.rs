//! Where the agent shows its health, and the watchdog that it feeds. Pure.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::fields::Fields;
use super::flag_values::FlagValues;

/// Health of the agent: `healthzPort` and `healthzBindAddress`; `--page-port`, `--page-address` and `--watchdog-device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthSettings {
    /// `None`: no health endpoint.
    pub(crate) healthz: Option<SocketAddr>,
    /// `None`: no status page.
    pub(crate) status_page: Option<SocketAddr>,
    /// A hardware watchdog.
    pub(crate) watchdog_device: Option<PathBuf>,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            healthz: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10248)),
            status_page: None,
            watchdog_device: None,
        }
    }
}

pub(super) fn read(fields: &Fields<'_>, flags: &FlagValues) -> HealthSettings {
    let page_address = flags.page_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut health = HealthSettings {
        status_page: (flags.page_port > 0).then(|| SocketAddr::new(page_address, flags.page_port)),
        watchdog_device: flags.watchdog_device.clone(),
        ..HealthSettings::default()
    };
    if let (Some(address), Some(port)) = (&mut health.healthz, fields.int("healthzPort")) {
        address.set_port(u16::try_from(port).unwrap_or_default());
    }
    if let (Some(address), Some(ip)) = (&mut health.healthz, fields.text("healthzBindAddress")) {
        if let Ok(ip) = ip.parse() {
            address.set_ip(ip);
        }
    }
    health.healthz = health.healthz.filter(|address| address.port() != 0);
    health
}
