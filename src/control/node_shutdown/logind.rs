//! systemd-logind: delays the shutdown of the machine with an inhibitor lock and reports when one begins.
//!
//! <https://systemd.io/INHIBITOR_LOCKS/>: a "delay" lock delays the shutdown by at most logind's own configured time.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use async_channel::Sender;

use super::Inhibitor;
use crate::platform::dbus::{CallError, Connection, MethodReturn};
use crate::platform::host::directories;
use crate::platform::rt;
use crate::protocol::dbus::{Body, Call, Value};
use crate::state::pods::SyncEvent;
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

/// Deadline of calls: bus and logind answer within milliseconds, but logind may have to be started first.
const LOGIND_CALL_TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_LOGIND_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_LOGIND_RETRY_DELAY: Duration = Duration::from_secs(60);
const LOGIND: &str = "org.freedesktop.login1";
const BUS: &str = "org.freedesktop.DBus";
/// Below /run, because /etc may be read-only and every start writes the file. Sorts after the upstream kubelet's
/// 99-kubelet.conf in /etc.
const DROP_INS: &str = "/run/systemd/logind.conf.d";
const DROP_IN: &str = "99-node-shutdown.conf";
/// logind reloads its configuration asynchronously and sends no signal when it is done.
const MAX_RELOAD_CHECKS: u32 = 20;
const RELOAD_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Takes an inhibitor lock and reports each shutdown to the sync loop; `wanted` is the time that a shutdown may take.
/// Returns only if there is no D-Bus.
pub(crate) async fn follow(wanted: Duration, inhibitor: Inhibitor, inbox: Sender<SyncEvent>) {
    let mut follower = LogindWatch { wanted, inhibitor, inbox, reported: false, met: false, failure: String::new() };
    let mut backoff = Backoff::new(FIRST_LOGIND_RETRY_DELAY, MAX_LOGIND_RETRY_DELAY);
    loop {
        let was_met = std::mem::take(&mut follower.met);
        let Err(error) = follower.converse().await else { return };
        if follower.met {
            backoff.reset();
        } else if !was_met && follower.failure.is_empty() && error.kind() == io::ErrorKind::NotFound {
            log!(warn, "D-Bus is not available, graceful node shutdown is disabled");
            return;
        }
        follower.met |= was_met;
        follower.fail("failed to use the system bus", &error);
        rt::sleep(backoff.next_wait()).await;
    }
}

struct LogindWatch {
    wanted: Duration,
    inhibitor: Inhibitor,
    inbox: Sender<SyncEvent>,
    /// A shutdown has been reported and not cancelled.
    reported: bool,
    /// The bus was reached since the last failure.
    met: bool,
    /// The last logged failure.
    failure: String,
}

impl LogindWatch {
    /// Runs until the connection fails, or returns Ok when the sync loop is gone.
    async fn converse(&mut self) -> io::Result<()> {
        let mut logind = rt::slow(Logind::connect).await?;
        self.met = true;
        let readable = rt::Async::new_nonblocking(logind.connection.stream()?)?;
        let mut event = Some(LogindEvent::Came);
        loop {
            let is_received = match event {
                None => true,
                Some(LogindEvent::ShutsDown(true)) => self.send_event(true).await,
                // The previous lock has been released.
                Some(LogindEvent::Came | LogindEvent::ShutsDown(false)) => {
                    let wanted = self.wanted;
                    let (back, engaged) = rt::slow(move || {
                        let engaged = logind.engage(wanted);
                        (logind, engaged)
                    })
                    .await;
                    logind = back;
                    self.take(engaged).await?
                }
            };
            if !is_received {
                return Ok(());
            }
            if !logind.connection.has_signal() {
                readable.readable().await?;
            }
            let (back, next) = rt::slow(move || {
                let next = logind.next();
                (logind, next)
            })
            .await;
            logind = back;
            event = next?;
        }
    }

    async fn take(&mut self, engaged: Result<InhibitorState, CallError>) -> io::Result<bool> {
        match engaged {
            Ok(InhibitorState { lock, shuts_down, waits }) => {
                if let Some(lock) = lock {
                    self.inhibitor.replace(Some(lock));
                    self.failure.clear();
                    log!(info, "shutdown inhibitor lock taken", seconds = waits.as_secs());
                }
                if waits < self.wanted {
                    let (waits, wanted) = (waits.as_secs(), self.wanted.as_secs());
                    log!(
                        warn,
                        "logind's InhibitDelayMaxSec is shorter than the shutdown grace period",
                        seconds = waits,
                        wanted = wanted
                    );
                }
                Ok(self.send_event(shuts_down).await)
            }
            // The bus sends a signal when logind starts.
            Err(error @ CallError::Refused { .. }) => {
                self.fail("failed to take shutdown inhibitor lock", &error);
                Ok(true)
            }
            Err(CallError::Io(error)) => Err(error),
        }
    }

    /// False if the sync loop is gone.
    async fn send_event(&mut self, shuts_down: bool) -> bool {
        let has_changed = std::mem::replace(&mut self.reported, shuts_down) != shuts_down;
        !has_changed || self.inbox.send(SyncEvent::NodeShutsDown(shuts_down)).await.is_ok()
    }

    fn fail(&mut self, message: &str, error: &(dyn std::error::Error + 'static)) {
        let failure = ErrorChain(error).to_string();
        if self.failure != failure {
            log!(warn, message, error = failure);
            self.failure = failure;
        }
    }
}

/// A connection to logind.
struct Logind {
    connection: Connection,
    /// The unique bus name of logind, because any client can send such a signal.
    owner: String,
}

enum LogindEvent {
    /// logind has started or restarted.
    Came,
    ShutsDown(bool),
}

struct InhibitorState {
    /// `None` if a shutdown is already in progress.
    lock: Option<OwnedFd>,
    shuts_down: bool,
    /// How long logind delays the shutdown.
    waits: Duration,
}

impl Logind {
    fn connect() -> io::Result<Self> {
        let mut connection = Connection::with_system_bus(LOGIND_CALL_TIMEOUT)?;
        connection.add_match(&format!(
            "type='signal',sender='{LOGIND}',interface='{LOGIND}.Manager',member='PrepareForShutdown'"
        ))?;
        connection.add_match(&format!("type='signal',sender='{BUS}',member='NameOwnerChanged',arg0='{LOGIND}'"))?;
        Ok(Self { connection, owner: String::new() })
    }

    /// Reads the next message; `None` if it is irrelevant.
    fn next(&mut self) -> io::Result<Option<LogindEvent>> {
        let Some(signal) = self.connection.signal_at_hand()? else { return Ok(None) };
        Ok(match (signal.member.as_str(), signal.arguments.as_slice()) {
            ("PrepareForShutdown", [Value::Bool(begins)]) if signal.sender == self.owner => {
                Some(LogindEvent::ShutsDown(*begins))
            }
            ("NameOwnerChanged", [Value::Text(name), Value::Text(_), Value::Text(owner)])
                if signal.sender == BUS && name == LOGIND =>
            {
                let came = !owner.is_empty() && *owner != self.owner;
                self.owner.clone_from(owner);
                came.then_some(LogindEvent::Came)
            }
            _ => None,
        })
    }

    /// Takes the lock and raises logind's delay to `wanted` if it is shorter.
    fn engage(&mut self, wanted: Duration) -> Result<InhibitorState, CallError> {
        let mut waits = self.delay()?;
        if waits < wanted {
            waits = match self.lengthen(wanted) {
                Ok(waits) => waits,
                Err(error) => {
                    let error = io::Error::from(error);
                    log!(warn, "failed to raise InhibitDelayMaxSec", error = ErrorChain(&error));
                    waits
                }
            };
        }
        let lock = match self.inhibit() {
            Ok(response) => response.fd,
            Err(CallError::Refused { name, .. }) if name.ends_with(".OperationInProgress") => None,
            Err(error) => return Err(error),
        };
        // A signal that came while there was no connection is lost: the property says what holds now.
        let (_, shuts_down) = self.property("PreparingForShutdown")?;
        Ok(InhibitorState { lock, shuts_down: shuts_down == Some(Value::Bool(true)), waits })
    }

    /// logind's current `InhibitDelayMaxUSec`.
    fn delay(&mut self) -> Result<Duration, CallError> {
        match self.property("InhibitDelayMaxUSec")? {
            (owner, Some(Value::U64(delay))) => {
                self.owner = owner;
                Ok(Duration::from_micros(delay))
            }
            (_, Some(_)) => Err(io::Error::other("logind: InhibitDelayMaxUSec: expected a number").into()),
            (_, None) => Err(io::Error::other("logind: InhibitDelayMaxUSec: expected a number, found nothing").into()),
        }
    }

    /// Raises the delay; returns the delay in force afterwards.
    fn lengthen(&mut self, wanted: Duration) -> Result<Duration, CallError> {
        write_drop_in(Path::new(DROP_INS), wanted)?;
        self.reload()?;
        let mut waits = self.delay()?;
        for _ in 0..MAX_RELOAD_CHECKS {
            if waits >= wanted {
                break;
            }
            // On a thread of the slow pool, never the executor's.
            std::thread::sleep(RELOAD_CHECK_INTERVAL);
            waits = self.delay()?;
        }
        Ok(waits)
    }

    fn inhibit(&mut self) -> Result<MethodReturn, CallError> {
        let mut body = Body::default();
        for text in ["shutdown", "coracle", "Graceful termination of pods", "delay"] {
            body.text(text);
        }
        let (interface, member) = ("org.freedesktop.login1.Manager", "Inhibit");
        let path = "/org/freedesktop/login1";
        self.connection.call(&Call { destination: LOGIND, path, interface, member, signature: "ssss" }, &body)
    }

    /// Sends SIGHUP: logind has no method for a reload.
    fn reload(&mut self) -> Result<(), CallError> {
        const HANG_UP: u32 = 1;
        let mut body = Body::default();
        body.text("systemd-logind.service");
        body.text("all");
        body.u32(HANG_UP);
        let call = Call {
            destination: "org.freedesktop.systemd1",
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            member: "KillUnit",
            signature: "ssi",
        };
        self.connection.call(&call, &body).map(drop)
    }

    /// The unique name of the sender, and the value.
    fn property(&mut self, name: &str) -> Result<(String, Option<Value>), CallError> {
        let mut body = Body::default();
        body.text("org.freedesktop.login1.Manager");
        body.text(name);
        let (interface, member) = ("org.freedesktop.DBus.Properties", "Get");
        let path = "/org/freedesktop/login1";
        let call = Call { destination: LOGIND, path, interface, member, signature: "ss" };
        let MethodReturn { sender, arguments, .. } = self.connection.call(&call, &body)?;
        Ok((sender, arguments.into_iter().next()))
    }
}

fn write_drop_in(folder: &Path, wanted: Duration) -> io::Result<()> {
    directories::make(folder, 0o755)?;
    // logind takes whole seconds; rounded up.
    let seconds = wanted.as_secs() + u64::from(wanted.subsec_nanos() > 0);
    let text =
        format!("# Written by coracle: shutdownGracePeriod of the node.\n[Login]\nInhibitDelayMaxSec={seconds}\n");
    let file = folder.join(DROP_IN);
    fs::write(&file, text)?;
    fs::set_permissions(&file, Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_in_has_the_whole_time_rounded_up() {
        let own = "control::node_shutdown::logind::tests::drop_in_has_the_whole_time_rounded_up";
        if !directories::is_under_service_umask(own) {
            return;
        }
        let folder = std::env::temp_dir().join(format!("logind-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        write_drop_in(&folder.join("conf.d"), Duration::from_secs(90)).unwrap();
        write_drop_in(&folder.join("conf.d"), Duration::from_millis(29_001)).unwrap();
        let text = fs::read_to_string(folder.join("conf.d").join(DROP_IN)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let conf = folder.join("conf.d");
        assert_eq!((mode(&conf), mode(&conf.join(DROP_IN))), (0o755, 0o644));
        assert!(text.ends_with("\n[Login]\nInhibitDelayMaxSec=30\n"), "{text}");
        fs::remove_dir_all(folder).unwrap();
    }
}
