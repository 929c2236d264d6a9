//! D-Bus connections: to systemd's private socket, and to the system bus.
//!
//! Everything here blocks: for at most the timeout of a reply, and for as long as a signal that has begun to arrive
//! takes.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, recvmsg, socket_with,
};

use crate::platform::rt;
use crate::protocol::dbus::{self, Body, Call, FIXED_HEADER_BYTES, Kind, Message, Value};

/// The socket of the system bus, unless `DBUS_SYSTEM_BUS_ADDRESS` is set.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
const ADDRESS_VARIABLE: &str = "DBUS_SYSTEM_BUS_ADDRESS";
/// No method called here returns more than one.
const MAX_MESSAGE_FDS: usize = 4;
/// Most signals queued during a call; more are a flood.
const MAX_QUEUED_SIGNALS: usize = 1000;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    patience: Duration,
    serial: u32,
    /// Signals that arrived during a call.
    aside: VecDeque<Signal>,
    /// The file descriptors of the last message.
    fds: Vec<OwnedFd>,
}

/// A received signal.
#[derive(Debug)]
pub(crate) struct Signal {
    /// The unique name of the sender, which the bus guarantees; empty without a bus.
    pub(crate) sender: String,
    pub(crate) member: String,
    pub(crate) arguments: Vec<Value>,
}

#[derive(Debug)]
pub(crate) struct MethodReturn {
    pub(crate) sender: String,
    pub(crate) arguments: Vec<Value>,
    pub(crate) fd: Option<OwnedFd>,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum CallError {
    Refused { by: String, name: String, text: String },
    Io(io::Error),
}

impl Connection {
    /// Connects to a peer's own socket. `patience` is the timeout of each reply.
    pub(crate) fn with_peer(socket: &Path, patience: Duration) -> io::Result<Self> {
        Self::open(socket, patience, "")
    }

    /// Connects to the system bus.
    pub(crate) fn with_system_bus(patience: Duration) -> io::Result<Self> {
        let socket = system_bus(std::env::var(ADDRESS_VARIABLE).ok().as_deref());
        let mut connection = Self::open(&socket, patience, "NEGOTIATE_UNIX_FD\r\n")?;
        connection.call(&bus_call("Hello", ""), &Body::default())?;
        Ok(connection)
    }

    fn open(socket: &Path, patience: Duration, ask: &str) -> io::Result<Self> {
        let stream = connect_within(socket, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut connection = Self::of_stream(stream, patience);
        connection.authenticate(ask)?;
        Ok(connection)
    }

    fn of_stream(stream: UnixStream, patience: Duration) -> Self {
        Self { stream, patience, serial: 0, aside: VecDeque::new(), fds: Vec::new() }
    }

    /// Authenticates with the uid that the kernel reports (D-Bus specification, "Authentication Protocol").
    fn authenticate(&mut self, ask: &str) -> io::Result<()> {
        let user: String = nix::unistd::geteuid().to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        // BEGIN follows at once: systemd ignores a message read together with BEGIN until more data arrives.
        self.stream.write_all(format!("\0AUTH EXTERNAL {user}\r\n{ask}BEGIN\r\n").as_bytes())?;
        if !self.line()?.starts_with(b"OK ") {
            return Err(io::Error::other("D-Bus authentication refused"));
        }
        if !ask.is_empty() && self.line()? != b"AGREE_UNIX_FD\r\n" {
            return Err(io::Error::other("D-Bus server does not pass file descriptors"));
        }
        Ok(())
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        // Byte by byte: what follows the line may be the first message.
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            line.extend_from_slice(&byte);
            if line.len() > 512 {
                return Err(io::Error::other("not a D-Bus server"));
            }
        }
        Ok(line)
    }

    pub(crate) fn call(&mut self, call: &Call<'_>, body: &Body) -> Result<MethodReturn, CallError> {
        // The specification forbids the serial 0.
        self.serial = self.serial.wrapping_add(1).max(1);
        self.stream.write_all(&dbus::call(call, self.serial, body))?;
        let until = rt::now() + self.patience;
        loop {
            let Message { kind, sender, arguments } = self.receive()?;
            match kind {
                Kind::Return { to } if to == self.serial => {
                    return Ok(MethodReturn { sender, arguments, fd: self.fds.pop() });
                }
                Kind::Error { to, name } if to == self.serial => {
                    let text = match arguments.into_iter().next() {
                        Some(Value::Text(text)) => text,
                        _ => String::new(),
                    };
                    return Err(CallError::Refused { by: call.destination.to_owned(), name, text });
                }
                Kind::Signal { member } => self.aside.push_back(Signal { sender, member, arguments }),
                Kind::Return { .. } | Kind::Error { .. } | Kind::Other => {}
            }
            // Each message restarts the timeout of the socket: a peer that keeps sending needs a deadline.
            if self.aside.len() > MAX_QUEUED_SIGNALS || rt::now() > until {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
    }

    /// Subscribes to the signals that match `rule` (D-Bus specification, "Match Rules").
    pub(crate) fn add_match(&mut self, rule: &str) -> Result<(), CallError> {
        let mut body = Body::default();
        body.text(rule);
        self.call(&bus_call("AddMatch", "s"), &body).map(drop)
    }

    /// The next signal before `end`, even if other messages keep arriving.
    pub(crate) fn signal_before(&mut self, end: Instant) -> io::Result<Signal> {
        loop {
            let time_left = end.saturating_duration_since(rt::now());
            if time_left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Some(signal) = self.aside.pop_front() {
                return Ok(signal);
            }
            self.stream.set_read_timeout(Some(time_left.min(self.patience)))?;
            let received = self.receive();
            self.stream.set_read_timeout(Some(self.patience))?;
            if let Message { kind: Kind::Signal { member }, sender, arguments } = received? {
                return Ok(Signal { sender, member, arguments });
            }
        }
    }

    /// The next message, if it is a signal.
    pub(crate) fn signal_at_hand(&mut self) -> io::Result<Option<Signal>> {
        if let Some(signal) = self.aside.pop_front() {
            return Ok(Some(signal));
        }
        Ok(match self.receive()? {
            Message { kind: Kind::Signal { member }, sender, arguments } => Some(Signal { sender, member, arguments }),
            _ => None,
        })
    }

    /// Whether a signal is queued, for which the socket does not become readable.
    pub(crate) fn has_signal(&self) -> bool {
        !self.aside.is_empty()
    }

    /// For a caller that polls for readability.
    pub(crate) fn stream(&self) -> io::Result<UnixStream> {
        self.stream.try_clone()
    }

    fn receive(&mut self) -> io::Result<Message> {
        let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        // Closes descriptors of a former message that were not taken, so that they do not pile up.
        self.fds.clear();
        let mut header = [0; FIXED_HEADER_BYTES];
        self.fill(&mut header)?;
        let mut message = header.to_vec();
        message.resize(dbus::message_length(&header).map_err(malformed)?, 0);
        let (_, rest) = message.split_at_mut_checked(FIXED_HEADER_BYTES).ok_or(io::ErrorKind::InvalidData)?;
        self.fill(rest)?;
        dbus::read(&message).map_err(malformed)
    }

    /// Fills `buffer`, and collects the file descriptors that arrive with it.
    fn fill(&mut self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MESSAGE_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(buffer)];
            let read = match recvmsg(&self.stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(read) => read.bytes,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    self.fds.extend(fds);
                }
            }
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer = std::mem::take(&mut buffer).get_mut(read..).unwrap_or_default();
        }
        Ok(())
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { by, name, text } => write!(f, "{by} refused the call: {text} ({name})"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CallError {}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<CallError> for io::Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Io(error) => error,
            refused @ CallError::Refused { .. } => Self::other(refused),
        }
    }
}

/// Connects to a socket within `limit`, even if the listener does not accept (unix(7): the send timeout bounds the wait
/// for room in the backlog).
fn connect_within(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

fn bus_call<'a>(member: &'a str, signature: &'a str) -> Call<'a> {
    Call {
        destination: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member,
        signature,
    }
}

/// The socket of the first address with a path (D-Bus specification, "Server Addresses").
fn system_bus(addresses: Option<&str>) -> PathBuf {
    let unix = addresses
        .into_iter()
        .flat_map(|address_list| address_list.split(';'))
        .filter_map(|transport| transport.strip_prefix("unix:"));
    let path = unix.flat_map(|keys| keys.split(',')).find_map(|key| key.strip_prefix("path="));
    PathBuf::from(path.unwrap_or(SYSTEM_BUS))
}

#[cfg(test)]
mod tests {
    use rustix::net::{bind, listen};

    use super::*;

    #[test]
    fn connecting_to_a_full_backlog_times_out() {
        let path = std::env::temp_dir().join(format!("coracle-dbus-backlog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let _first = connect_within(&path, Duration::from_secs(20)).unwrap();
        let second = connect_within(&path, Duration::from_millis(10)).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn stream_of_signals_does_not_extend_the_deadline() {
        let (stream, _peer) = UnixStream::pair().unwrap();
        let mut connection = Connection::of_stream(stream, Duration::from_secs(20));
        for _ in 0..2 {
            let signal = Signal { sender: String::new(), member: "JobRemoved".to_owned(), arguments: Vec::new() };
            connection.aside.push_back(signal);
        }
        assert!(connection.signal_before(rt::now() + Duration::from_secs(20)).is_ok());
        assert_eq!(connection.signal_before(rt::now()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn environment_overrides_the_bus_address() {
        for (given, expected) in [
            (None, SYSTEM_BUS),
            (Some(""), SYSTEM_BUS),
            (Some("tcp:host=a;unix:guid=1,path=/x;unix:path=/y"), "/x"),
            (Some("unix:abstract=z"), SYSTEM_BUS),
        ] {
            assert_eq!(system_bus(given), Path::new(expected), "{given:?}");
        }
    }
}
