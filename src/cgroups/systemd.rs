//! systemd as the owner of the groups: it is told of each slice and its limits.
//!
//! What is only written to the files of a slice is undone by systemd when its units are read again, so that it has to
//! be told. This speaks with it directly, on the socket that `systemctl` uses too: no bus is needed for that.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::values::{Limit, Values};
use crate::wire::dbus::{self, Body, Call, FIXED_HEADER, Message, Variant};

pub(super) const SOCKET: &str = "/run/systemd/private";
/// systemd does what is asked here within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// A conversation with systemd.
#[derive(Debug)]
pub(super) struct Systemd {
    stream: UnixStream,
    serial: u32,
    /// Jobs that have ended, and how, while something else was waited for.
    ended: Vec<(String, String)>,
}

impl Systemd {
    pub(super) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut systemd = Self { stream, serial: 0, ended: Vec::new() };
        systemd.authenticate()?;
        // Without this it does not tell of the ends of jobs.
        systemd.call("Subscribe", "", &Body::default())?;
        Ok(systemd)
    }

    /// As the user that the kernel says we are (D-Bus specification, "Authentication Protocol").
    fn authenticate(&mut self) -> io::Result<()> {
        let user: String = nix::unistd::geteuid().to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        // With the last line at once: of what comes in one read with it, systemd looks at no more until more comes.
        self.stream.write_all(format!("\0AUTH EXTERNAL {user}\r\nBEGIN\r\n").as_bytes())?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            line.extend_from_slice(&byte);
            if line.len() > 512 {
                return Err(io::Error::other("systemd does not speak D-Bus"));
            }
        }
        if !line.starts_with(b"OK ") {
            return Err(io::Error::other("systemd refuses to speak with us"));
        }
        Ok(())
    }

    /// Starts a slice with these limits; one that runs is given them.
    pub(super) fn start_slice(&mut self, unit: &str, parent: Option<&str>, values: &Values) -> io::Result<()> {
        let parents: Vec<&str> = parent.into_iter().collect();
        let limits = properties(values);
        let mut all = vec![
            ("Description", Variant::Text("pods of Kubernetes")),
            ("DefaultDependencies", Variant::Bool(false)),
            ("CPUAccounting", Variant::Bool(true)),
            ("MemoryAccounting", Variant::Bool(true)),
            ("TasksAccounting", Variant::Bool(true)),
            ("IOAccounting", Variant::Bool(true)),
        ];
        if !parents.is_empty() {
            all.push(("Wants", Variant::Texts(&parents)));
        }
        all.extend_from_slice(&limits);
        let mut body = Body::default();
        body.text(unit);
        body.text("replace");
        body.properties(&all);
        body.no_structures();
        match self.call("StartTransientUnit", "ssa(sv)a(sa(sv))", &body) {
            Ok(job) => self.wait_for(&job, unit),
            Err(Failure::Refused { name, .. }) if name.ends_with(".UnitExists") => self.set(unit, values),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Gives a slice other limits.
    pub(super) fn set(&mut self, unit: &str, values: &Values) -> io::Result<()> {
        let limits = properties(values);
        if limits.is_empty() {
            return Ok(());
        }
        let mut body = Body::default();
        body.text(unit);
        // Until the next start of the machine.
        body.bool(true);
        body.properties(&limits);
        self.call("SetUnitProperties", "sba(sv)", &body)?;
        Ok(())
    }

    /// Stops a slice, and with it what is in it; one that it does not know is no error.
    pub(super) fn stop(&mut self, unit: &str) -> io::Result<()> {
        let mut body = Body::default();
        body.text(unit);
        body.text("replace");
        match self.call("StopUnit", "ss", &body) {
            Ok(job) => self.wait_for(&job, unit),
            Err(Failure::Refused { name, .. }) if name.ends_with(".NoSuchUnit") => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    fn wait_for(&mut self, job: &str, unit: &str) -> io::Result<()> {
        loop {
            if let Some((_, result)) = self.ended.iter().find(|(ended, _)| ended == job) {
                let done = result == "done";
                let failed = || io::Error::other(format!("systemd's job for {unit} ended as {result:?}"));
                return if done { Ok(()) } else { Err(failed()) };
            }
            let message = self.receive()?;
            self.note(message);
        }
    }

    fn note(&mut self, message: Message) {
        if let Message::Signal { member, arguments } = message {
            if let ("JobRemoved", [job, _, result]) = (member.as_str(), arguments.as_slice()) {
                self.ended.push((job.clone(), result.clone()));
            }
        }
    }

    /// The first text of the answer.
    fn call(&mut self, member: &str, signature: &str, body: &Body) -> Result<String, Failure> {
        self.serial = self.serial.wrapping_add(1).max(1);
        let call = Call {
            destination: "org.freedesktop.systemd1",
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            member,
            signature,
        };
        self.stream.write_all(&dbus::call(&call, self.serial, body))?;
        loop {
            match self.receive()? {
                Message::Return { to, text } if to == self.serial => return Ok(text),
                Message::Error { to, name, text } if to == self.serial => return Err(Failure::Refused { name, text }),
                other => self.note(other),
            }
        }
    }

    fn receive(&mut self) -> io::Result<Message> {
        let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut header = [0; FIXED_HEADER];
        self.stream.read_exact(&mut header)?;
        let mut message = header.to_vec();
        message.resize(dbus::message_length(&header).map_err(malformed)?, 0);
        let (_, rest) = message.split_at_mut_checked(FIXED_HEADER).ok_or(io::ErrorKind::InvalidData)?;
        self.stream.read_exact(rest)?;
        dbus::read(&message).map_err(malformed)
    }
}

/// Why a call had no answer, or which one.
enum Failure {
    Refused { name: String, text: String },
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused { name, text } => Self::other(format!("systemd refuses: {text} ({name})")),
            Failure::Io(error) => error,
        }
    }
}

/// The limits that systemd has a property for; the others are the files' alone.
fn properties(values: &Values) -> Vec<(&'static str, Variant<'static>)> {
    let number = |limit| match limit {
        Limit::Max => u64::MAX,
        Limit::At(limit) => limit,
    };
    let mut all = Vec::new();
    if let Some(weight) = values.cpu_weight {
        all.push(("CPUWeight", Variant::U64(weight)));
    }
    if let Some(max) = values.cpu_max {
        all.push(("CPUQuotaPeriodUSec", Variant::U64(max.period)));
        all.push(("CPUQuotaPerSecUSec", Variant::U64(quota_of_second(max.quota, max.period))));
    }
    if let Some(max) = values.memory_max {
        all.push(("MemoryMax", Variant::U64(number(max))));
    }
    if let Some(max) = values.pids_max {
        all.push(("TasksMax", Variant::U64(number(max))));
    }
    all
}

/// Microseconds of each second. systemd counts in percent: the limit that it makes of it must not be below ours.
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
    fn limits_are_told_in_systemds_units() {
        let values = Values {
            cpu_weight: Some(4),
            cpu_max: Some(CpuMax { quota: Limit::At(25_050), period: 100_000 }),
            memory_max: Some(Limit::At(1 << 20)),
            pids_max: Some(Limit::Max),
            huge_pages: vec![(2 << 20, Limit::At(0))],
        };
        let expected = [
            ("CPUWeight", Variant::U64(4)),
            ("CPUQuotaPeriodUSec", Variant::U64(100_000)),
            ("CPUQuotaPerSecUSec", Variant::U64(260_000)),
            ("MemoryMax", Variant::U64(1 << 20)),
            ("TasksMax", Variant::U64(u64::MAX)),
        ];
        assert_eq!(properties(&values), expected);
        assert_eq!(quota_of_second(Limit::At(25_000), 100_000), 250_000);
        assert_eq!(quota_of_second(Limit::At(u64::MAX), 0), u64::MAX);
    }
}
