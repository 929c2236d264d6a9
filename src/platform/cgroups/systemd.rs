//! systemd as the cgroup manager: slices and their limits.
//!
//! systemd overwrites the files of its slices when it reloads its units, so limits must be set through it. This uses
//! systemd's private socket, as `systemctl` does, and so needs no bus.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::values::{Limit, Values};
use crate::platform::dbus::{CallError, Connection};
use crate::platform::rt;
use crate::protocol::dbus::{Body, Call, Value, Variant};

/// The socket that systemd has for `systemctl`: no bus has to run.
pub(super) const SYSTEMD_SOCKET: &str = "/run/systemd/private";
/// For one call, which takes systemd milliseconds.
const SYSTEMD_CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// For one job, including other jobs that systemd runs before it.
const SYSTEMD_JOB_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to systemd.
#[derive(Debug)]
pub(super) struct Systemd {
    connection: Connection,
}

impl Systemd {
    pub(super) fn connect(socket: &Path) -> io::Result<Self> {
        let mut systemd = Self { connection: Connection::with_peer(socket, SYSTEMD_CALL_TIMEOUT)? };
        // Without it systemd sends no JobRemoved signals.
        systemd.call("Subscribe", "", &Body::default())?;
        Ok(systemd)
    }

    /// Starts a slice with these limits, or sets them if it runs.
    pub(super) fn start_slice(&mut self, unit: &str, parent: Option<&str>, values: &Values) -> io::Result<()> {
        let parents: Vec<&str> = parent.into_iter().collect();
        let limits = properties(values);
        // A transient unit: a reload of systemd overwrites limits that only the files of a slice have.
        let mut slice_properties = vec![
            ("Description", Variant::Text("pods of Kubernetes")),
            // As in runc: default dependencies would stop the slice, with its pods, when a shutdown begins.
            ("DefaultDependencies", Variant::Bool(false)),
            ("CPUAccounting", Variant::Bool(true)),
            ("MemoryAccounting", Variant::Bool(true)),
            ("TasksAccounting", Variant::Bool(true)),
            ("IOAccounting", Variant::Bool(true)),
        ];
        if !parents.is_empty() {
            slice_properties.push(("Wants", Variant::Texts(&parents)));
        }
        slice_properties.extend_from_slice(&limits);
        let mut body = Body::default();
        body.text(unit);
        body.text("replace");
        body.properties(&slice_properties);
        body.no_structures();
        match self.call("StartTransientUnit", "ssa(sv)a(sa(sv))", &body) {
            Ok(job) => self.wait_for(&job, unit),
            Err(CallError::Refused { name, .. }) if name.ends_with(".UnitExists") => self.set(unit, values),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Changes the limits of a slice.
    pub(super) fn set(&mut self, unit: &str, values: &Values) -> io::Result<()> {
        let limits = properties(values);
        if limits.is_empty() {
            return Ok(());
        }
        let mut body = Body::default();
        body.text(unit);
        // Runtime only: until the next reboot.
        body.bool(true);
        body.properties(&limits);
        self.call("SetUnitProperties", "sba(sv)", &body)?;
        Ok(())
    }

    /// Stops a slice with everything in it. An unknown slice is no error.
    pub(super) fn stop(&mut self, unit: &str) -> io::Result<()> {
        let mut body = Body::default();
        body.text(unit);
        body.text("replace");
        match self.call("StopUnit", "ss", &body) {
            Ok(job) => self.wait_for(&job, unit),
            Err(CallError::Refused { name, .. }) if name.ends_with(".NoSuchUnit") => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    fn wait_for(&mut self, job: &str, unit: &str) -> io::Result<()> {
        let end = rt::now() + SYSTEMD_JOB_TIMEOUT;
        loop {
            let signal = self.connection.signal_before(end)?;
            if let ("JobRemoved", [Value::U32(_), Value::Text(ended), Value::Text(_), Value::Text(result)]) =
                (signal.member.as_str(), signal.arguments.as_slice())
            {
                match result == "done" {
                    _ if ended != job => {}
                    true => return Ok(()),
                    false => return Err(io::Error::other(format!("systemd job for {unit} ended with {result:?}"))),
                }
            }
        }
    }

    /// Calls a method and returns the first string of the reply.
    fn call(&mut self, member: &str, signature: &str, body: &Body) -> Result<String, CallError> {
        let call = Call {
            destination: "org.freedesktop.systemd1",
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            member,
            signature,
        };
        let response = self.connection.call(&call, body)?;
        let text = response.arguments.into_iter().find_map(|value| match value {
            Value::Text(text) => Some(text),
            _ => None,
        });
        Ok(text.unwrap_or_default())
    }
}

/// The limits for which systemd has a property; the others are only written to the files.
fn properties(values: &Values) -> Vec<(&'static str, Variant<'static>)> {
    let number = |limit| match limit {
        Limit::Max => u64::MAX,
        Limit::At(limit) => limit,
    };
    let mut unit_properties = Vec::new();
    if let Some(weight) = values.cpu_weight {
        unit_properties.push(("CPUWeight", Variant::U64(weight)));
    }
    if let Some(max) = values.cpu_max {
        unit_properties.push(("CPUQuotaPeriodUSec", Variant::U64(max.period)));
        unit_properties.push(("CPUQuotaPerSecUSec", Variant::U64(quota_of_second(max.quota, max.period))));
    }
    if let Some(max) = values.memory_max {
        unit_properties.push(("MemoryMax", Variant::U64(number(max))));
    }
    for (property, bytes) in [("MemoryMin", values.memory_min), ("MemoryLow", values.memory_low)] {
        unit_properties.extend(bytes.map(|bytes| (property, Variant::U64(bytes))));
    }
    if let Some(max) = values.pids_max {
        unit_properties.push(("TasksMax", Variant::U64(number(max))));
    }
    unit_properties
}

/// Microseconds per second. systemd rounds to whole percents, and its limit must not be below ours.
fn quota_of_second(quota: Limit, period: u64) -> u64 {
    match quota {
        Limit::Max => u64::MAX,
        Limit::At(quota) => {
            let of_second = u128::from(quota) * 1_000_000 / u128::from(period.max(1));
            u64::try_from(of_second.div_ceil(10_000) * 10_000).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::values::CpuMax;
    use super::*;

    #[test]
    fn limits_are_converted_to_systemd_properties() {
        let values = Values {
            cpu_weight: Some(4),
            cpu_max: Some(CpuMax { quota: Limit::At(25_050), period: 100_000 }),
            memory_max: Some(Limit::At(1 << 20)),
            memory_min: Some(1 << 19),
            memory_low: None,
            pids_max: Some(Limit::Max),
            huge_pages: vec![(2 << 20, Limit::At(0))],
        };
        let expected = [
            ("CPUWeight", Variant::U64(4)),
            ("CPUQuotaPeriodUSec", Variant::U64(100_000)),
            ("CPUQuotaPerSecUSec", Variant::U64(260_000)),
            ("MemoryMax", Variant::U64(1 << 20)),
            ("MemoryMin", Variant::U64(1 << 19)),
            ("TasksMax", Variant::U64(u64::MAX)),
        ];
        assert_eq!(properties(&values), expected);
        assert_eq!(quota_of_second(Limit::At(25_000), 100_000), 250_000);
        assert_eq!(quota_of_second(Limit::At(u64::MAX), 0), u64::MAX);
    }
}
