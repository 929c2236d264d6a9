//! A system bus with a fake logind, for tests of the shutdown inhibitor.
//!
//! It listens on a socket of its own. Clients get its address in `DBUS_SYSTEM_BUS_ADDRESS`. It has its own encoder and
//! decoder of D-Bus, so that it tests those of the program.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const PATIENCE: Duration = Duration::from_secs(20);
const LOGIND: &str = "org.freedesktop.login1";
const BUS: &str = "org.freedesktop.DBus";

/// The bus and logind. Dropping it ends them.
pub(crate) struct FakeLogind {
    socket: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    clients: Vec<UnixStream>,
    shuts_down: bool,
    /// Number of restarts of logind.
    restarts: u32,
    /// Number of held locks, and of all locks ever taken.
    pub(crate) held: usize,
    pub(crate) taken: usize,
    /// The methods of the calls.
    pub(crate) calls: Vec<String>,
    over: bool,
}

impl State {
    fn owner(&self) -> String {
        format!(":1.{}", 7 + self.restarts)
    }

    fn signal(&mut self, sender: &str, member: &str, signature: &str, body: &[u8]) {
        let path = if member == "NameOwnerChanged" { "/org/freedesktop/DBus" } else { "/org/freedesktop/login1" };
        let interface = if member == "NameOwnerChanged" { BUS } else { "org.freedesktop.login1.Manager" };
        let fields = [(1, 'o', path), (2, 's', interface), (3, 's', member), (7, 's', sender)];
        let bytes = message(4, None, &fields, signature, body, 0);
        self.clients.retain_mut(|client| client.write_all(&bytes).is_ok());
    }

    fn tell_owner(&mut self, before: &str, after: &str) {
        let mut body = Vec::new();
        [LOGIND, before, after].iter().for_each(|text| put_text(&mut body, text));
        self.signal(BUS, "NameOwnerChanged", "sss", &body);
    }
}

impl FakeLogind {
    pub(crate) fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("fake-logind-{}-{number}", std::process::id()));
        let listener = UnixListener::bind(&socket).unwrap();
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&served);
                if shared.state.lock().unwrap().over {
                    return;
                }
                // A client may disconnect at any time.
                thread::spawn(move || serve(stream.unwrap(), &shared));
            }
        });
        Self { socket, shared }
    }

    pub(crate) fn address(&self) -> String {
        format!("unix:path={}", self.socket.display())
    }

    /// Begins or cancels a shutdown, and signals it to the clients.
    pub(crate) fn shut_down(&self, begins: bool) {
        self.change(|state| {
            state.shuts_down = begins;
            state.signal(&state.owner(), "PrepareForShutdown", "b", &u32::from(begins).to_le_bytes());
        });
    }

    /// Another client of the bus sends the signal of a shutdown.
    pub(crate) fn lie(&self) {
        self.change(|state| state.signal(":1.99", "PrepareForShutdown", "b", &1u32.to_le_bytes()));
    }

    /// Restarts logind, which forgets a shutdown in progress.
    pub(crate) fn restart(&self) {
        self.change(|state| {
            let before = state.owner();
            state.tell_owner(&before, "");
            state.restarts += 1;
            state.shuts_down = false;
            let after = state.owner();
            state.tell_owner("", &after);
        });
    }

    /// Cuts every connection.
    pub(crate) fn restart_bus(&self) {
        self.change(|state| {
            for client in state.clients.drain(..) {
                client.shutdown(std::net::Shutdown::Both).unwrap();
            }
        });
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, claim: impl Fn(&State) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut state = self.shared.state.lock().unwrap();
        while !claim(&state) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain for {what}; held: {}, calls: {:?}", state.held, state.calls);
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.shared.state.lock().unwrap())
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock().unwrap());
        self.shared.changed.notify_all();
    }
}

impl Drop for FakeLogind {
    fn drop(&mut self) {
        self.change(|state| state.over = true);
        self.restart_bus();
        drop(UnixStream::connect(&self.socket));
        let _ = fs::remove_file(&self.socket);
    }
}

/// A method call of a client.
struct Call {
    serial: u32,
    destination: String,
    member: String,
    texts: Vec<String>,
}

fn serve(mut stream: UnixStream, shared: &Arc<Shared>) -> Option<()> {
    greet(&mut stream)?;
    loop {
        let call = read_call(&mut stream)?;
        let mut state = shared.state.lock().unwrap();
        state.calls.push(call.member.clone());
        let sender = if call.destination == LOGIND { state.owner() } else { call.destination.clone() };
        let answer = |signature: &str, body: &[u8], fds: u32| {
            message(2, Some(call.serial), &[(7, 's', &sender)], signature, body, fds)
        };
        let mut body = Vec::new();
        match (call.member.as_str(), call.texts.last().map_or("", String::as_str)) {
            ("Hello", _) => {
                put_text(&mut body, ":1.42");
                stream.write_all(&answer("s", &body, 0)).ok()?;
                state.clients.push(stream.try_clone().unwrap());
            }
            ("Get", "InhibitDelayMaxUSec") => {
                body.extend(b"\x01t\0\0\0\0\0\0");
                body.extend(600_000_000u64.to_le_bytes());
                stream.write_all(&answer("v", &body, 0)).ok()?;
            }
            ("Get", "PreparingForShutdown") => {
                body.extend(b"\x01b\0\0");
                body.extend(u32::from(state.shuts_down).to_le_bytes());
                stream.write_all(&answer("v", &body, 0)).ok()?;
            }
            ("Inhibit", _) if state.shuts_down => {
                put_text(&mut body, "The operation inhibition has been requested for is already running");
                let fields = [(4, 's', "org.freedesktop.login1.OperationInProgress"), (7, 's', &sender)];
                stream.write_all(&message(3, Some(call.serial), &fields, "s", &body, 0)).ok()?;
            }
            ("Inhibit", "delay") if call.texts[0] == "shutdown" => {
                let (ours, theirs) = UnixStream::pair().unwrap();
                send_with_fd(&stream, &answer("h", &0u32.to_le_bytes(), 1), &theirs);
                state.held += 1;
                state.taken += 1;
                let shared = Arc::clone(shared);
                thread::spawn(move || until_released(ours, &shared));
            }
            ("AddMatch", _) => stream.write_all(&answer("", &[], 0)).ok()?,
            (other, last) => panic!("nobody calls {other} of {} with {last}", call.destination),
        }
        drop(state);
        shared.changed.notify_all();
    }
}

/// Waits until every copy of the other end is closed.
fn until_released(mut ours: UnixStream, shared: &Shared) {
    let _ = ours.read(&mut [0]);
    shared.state.lock().unwrap().held -= 1;
    shared.changed.notify_all();
}

fn send_with_fd(stream: &UnixStream, bytes: &[u8], fd: &UnixStream) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
}

/// "Authentication Protocol": the client sends all of its lines at once. The replies are separate lines.
fn greet(stream: &mut UnixStream) -> Option<()> {
    let mut said = Vec::new();
    while !said.ends_with(b"BEGIN\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        said.push(byte[0]);
    }
    let said = String::from_utf8(said).unwrap();
    let uid: String = nix::unistd::geteuid().to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
    assert_eq!(said, format!("\0AUTH EXTERNAL {uid}\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n"));
    stream.write_all(b"OK 1234deadbeef\r\nAGREE_UNIX_FD\r\n").ok()
}

fn read_call(stream: &mut UnixStream) -> Option<Call> {
    let mut head = [0; 16];
    stream.read_exact(&mut head).ok()?;
    assert_eq!(head[..4], *b"l\x01\0\x01", "a call in little-endian, version 1");
    let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let (body, serial, fields) = (number(4) as usize, number(8), number(12) as usize);
    let mut rest = vec![0; fields.next_multiple_of(8) + body];
    stream.read_exact(&mut rest).ok()?;
    let (mut at, mut call) = (0, Call { serial, destination: String::new(), member: String::new(), texts: Vec::new() });
    let mut signature = String::new();
    while at < fields {
        at = at.next_multiple_of(8);
        let code = rest[at];
        assert_eq!(rest[at + 1], 1, "a field of one type");
        let kind = rest[at + 2];
        at += 4;
        let value = if kind == b'g' { take_signature(&rest, &mut at) } else { take_text(&rest, &mut at) };
        match code {
            3 => call.member = value,
            6 => call.destination = value,
            8 => signature = value,
            _ => {}
        }
    }
    at = fields.next_multiple_of(8);
    assert!(signature.chars().all(|kind| kind == 's'), "{signature}");
    call.texts = signature.chars().map(|_| take_text(&rest, &mut at)).collect();
    assert_eq!(at, rest.len(), "nothing but the arguments");
    Some(call)
}

fn take_text(bytes: &[u8], at: &mut usize) -> String {
    let start = at.next_multiple_of(4) + 4;
    let length = u32::from_le_bytes(bytes[start - 4..start].try_into().unwrap()) as usize;
    assert_eq!(bytes[start + length], 0);
    *at = start + length + 1;
    String::from_utf8(bytes[start..start + length].to_vec()).unwrap()
}

fn take_signature(bytes: &[u8], at: &mut usize) -> String {
    let (start, length) = (*at + 1, usize::from(bytes[*at]));
    *at = start + length + 1;
    String::from_utf8(bytes[start..start + length].to_vec()).unwrap()
}

fn put_text(into: &mut Vec<u8>, text: &str) {
    into.resize(into.len().next_multiple_of(4), 0);
    into.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
    into.extend(text.bytes().chain([0]));
}

/// "Message Format".
fn message(
    kind: u8,
    answers: Option<u32>,
    texts: &[(u8, char, &str)],
    signature: &str,
    body: &[u8],
    fds: u32,
) -> Vec<u8> {
    let mut fields = Vec::new();
    for (code, number) in [(5, answers), (9, (fds > 0).then_some(fds))] {
        if let Some(number) = number {
            fields.resize(fields.len().next_multiple_of(8), 0);
            fields.extend([code, 1, b'u', 0]);
            fields.extend(number.to_le_bytes());
        }
    }
    for (code, kind, text) in texts {
        fields.resize(fields.len().next_multiple_of(8), 0);
        fields.extend([*code, 1, u8::try_from(*kind).unwrap(), 0]);
        put_text(&mut fields, text);
    }
    if !signature.is_empty() {
        fields.resize(fields.len().next_multiple_of(8), 0);
        fields.extend([8, 1, b'g', 0, u8::try_from(signature.len()).unwrap()]);
        fields.extend(signature.bytes().chain([0]));
    }
    let mut bytes = vec![b'l', kind, 1, 1];
    bytes.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(u32::try_from(fields.len()).unwrap().to_le_bytes());
    bytes.extend(fields);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(body);
    bytes
}
