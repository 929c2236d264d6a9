//! Client and server against each other, and against peers that fail, misbehave or stay silent.

mod faults;
mod reconnect;
mod simulated;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::platform::rt;
use crate::protocol::grpc::{Code, Status};

const LONG: Duration = Duration::from_secs(20);
const ECHO: &str = "/test.Echo/Echo";

/// A socket path in a directory of its own, which is removed on drop.
struct Socket {
    dir: PathBuf,
}

impl Socket {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("coracle-rpc-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir(&dir).unwrap();
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("s")
    }

    fn client(&self) -> Client {
        Client::new(&format!("unix://{}", self.path().display()))
    }

    /// Starts a server in a task. Dropping the task closes its connections and frees the path.
    fn serve(&self, handler: Handler) -> rt::Task<()> {
        let _ = std::fs::remove_file(self.path());
        let server = Server::bind(&self.path()).unwrap().with_limits(ServerLimits::large());
        rt::spawn(async move {
            server.serve(handler).await;
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

fn echo() -> Handler {
    handler(|request| async move { Ok(Reply::Message(request.message)) })
}

/// Runs `test` with a client of a server with this handler.
fn with_server(handler: Handler, test: impl AsyncFnOnce(Client)) {
    let socket = Socket::new();
    rt::block_on(async {
        let server = socket.serve(handler);
        let tested = rt::deadline(LONG, test(socket.client())).await;
        drop(server);
        tested.expect("the test hangs");
    });
}

/// Sends a message when dropped.
struct Told(async_channel::Sender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

/// A handler that never replies, and a receiver that is notified when it is stopped.
fn hanging() -> (Handler, async_channel::Receiver<()>) {
    let (sender, receiver) = async_channel::bounded(10);
    let handler = handler(move |_| {
        let told = Told(sender.clone());
        async move {
            std::future::pending::<()>().await;
            drop(told);
            Err(Status::ok())
        }
    });
    (handler, receiver)
}

#[test]
fn many_calls_at_once_share_one_connection() {
    let socket = Socket::new();
    rt::block_on(async {
        let server = Server::bind(&socket.path()).unwrap();
        let accepted = Rc::new(Cell::new(0));
        let count = Rc::clone(&accepted);
        let serving = rt::spawn(async move {
            let mut connections = Vec::new();
            loop {
                let stream = server.accept().await.unwrap();
                count.set(count.get() + 1);
                connections.push(rt::spawn(serve_connection(stream, echo(), ServerLimits::large())));
            }
        });
        let client = socket.client();
        let calls: Vec<_> = (0..250_u32)
            .map(|n| {
                let client = client.clone();
                rt::spawn(async move { client.unary(ECHO, n.to_be_bytes().repeat(500), LONG).await })
            })
            .collect();
        for (n, call) in (0..250_u32).zip(calls) {
            assert_eq!(call.await.unwrap(), n.to_be_bytes().repeat(500));
        }
        assert_eq!(accepted.get(), 1);
        drop(serving);
    });
}

#[test]
fn message_larger_than_the_windows_arrives() {
    with_server(echo(), async |client: Client| {
        let large: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        assert!(client.unary(ECHO, large.clone(), LONG).await.unwrap() == large);
        assert_eq!(client.unary(ECHO, Vec::new(), LONG).await.unwrap(), b"");
    });
}

#[test]
fn handler_sees_method_message_and_timeout() {
    let seen = Rc::new(RefCell::new(None));
    let put = Rc::clone(&seen);
    let handler = handler(move |request| {
        *put.borrow_mut() = Some((request.method, request.message, request.timeout));
        async { Ok(Reply::Message(Vec::new())) }
    });
    with_server(handler, async |client: Client| {
        client.unary(ECHO, b"abc".to_vec(), LONG).await.unwrap();
        let (method, message, timeout) = seen.take().unwrap();
        assert_eq!((&*method, &*message), (ECHO, &b"abc"[..]));
        assert!(timeout.unwrap() <= LONG && timeout.unwrap() > LONG / 2);
    });
}

#[test]
fn errors_have_code_and_message() {
    let status = Status::new(Code::NotFound, "no such container: \u{e9} 100%");
    let answered = status.clone();
    let handler = handler(move |_| std::future::ready(Err(answered.clone())));
    with_server(handler, async |client: Client| {
        let error = client.unary(ECHO, Vec::new(), LONG).await.unwrap_err();
        assert_eq!(error.status(), Some(&status));
        assert!(!error.is_retryable() && !error.is_outcome_unknown());
    });
}

#[test]
fn streamed_messages_arrive_in_order() {
    let handler = handler(|_| async {
        let (sender, receiver) = async_channel::bounded(200);
        for n in 0..100_u32 {
            sender.try_send(Ok(n.to_be_bytes().repeat(1000))).unwrap();
        }
        Ok(Reply::Stream(receiver))
    });
    with_server(handler, async |client: Client| {
        let mut stream = client.server_streaming(ECHO, Vec::new()).await.unwrap();
        for n in 0..100_u32 {
            assert_eq!(stream.next().await.unwrap(), Some(n.to_be_bytes().repeat(1000)), "message {n}");
        }
        assert_eq!(stream.next().await.unwrap(), None);
        assert_eq!(stream.next().await.unwrap(), None);
    });
}

#[test]
fn stream_error_follows_earlier_messages() {
    let handler = handler(|_| async {
        let (sender, receiver) = async_channel::bounded(2);
        sender.try_send(Ok(b"one".to_vec())).unwrap();
        sender.try_send(Err(Status::new(Code::Unavailable, "gone"))).unwrap();
        Ok(Reply::Stream(receiver))
    });
    with_server(handler, async |client: Client| {
        let mut stream = client.server_streaming(ECHO, Vec::new()).await.unwrap();
        assert_eq!(stream.next().await.unwrap(), Some(b"one".to_vec()));
        for _ in 0..2 {
            let error = stream.next().await.unwrap_err();
            assert_eq!(error.status().unwrap().code, Code::Unavailable);
        }
    });
}

#[test]
fn slow_stream_reader_blocks_only_its_sender() {
    let sent = Rc::new(Cell::new(0));
    let count = Rc::clone(&sent);
    let sending = Rc::new(RefCell::new(None));
    let handler = handler(move |request| {
        let (sender, receiver) = async_channel::bounded::<Result<Vec<u8>, Status>>(1);
        if request.message.is_empty() {
            let count = Rc::clone(&count);
            *sending.borrow_mut() = Some(rt::spawn(async move {
                while sender.send(Ok(vec![0; 10_000])).await.is_ok() {
                    count.set(count.get() + 1);
                }
            }));
        }
        let reply = if request.message.is_empty() { Reply::Stream(receiver) } else { Reply::Message(request.message) };
        std::future::ready(Ok(reply))
    });
    with_server(handler, async |client: Client| {
        let mut stream = client.server_streaming(ECHO, Vec::new()).await.unwrap();
        for _ in 0..50 {
            client.unary(ECHO, vec![1; 50_000], LONG).await.unwrap();
        }
        // One window, the channel, and messages in between.
        assert!(sent.get() < 15, "{} messages are kept for a reader that does not read", sent.get());
        for _ in 0..100 {
            assert!(stream.next().await.unwrap().is_some());
        }
        assert!(sent.get() >= 100);
    });
}

#[test]
fn timed_out_call_stops_its_handler() {
    let (handler, stopped) = hanging();
    with_server(handler, async |client: Client| {
        // Enough to connect first on a busy machine.
        let (begun, limit) = (Instant::now(), Duration::from_millis(300));
        let error = client.unary(ECHO, Vec::new(), limit).await.unwrap_err();
        assert!(matches!(error, Error::DeadlineExceeded), "{error:?}");
        assert!(error.is_outcome_unknown() && !error.is_retryable());
        assert!(begun.elapsed() >= limit);
        stopped.recv().await.unwrap();
    });
}

#[test]
fn dropped_call_stops_only_its_handler() {
    let (hang, stopped) = hanging();
    let handler = handler(move |request| {
        let hang = hang.clone();
        async move { if request.message.is_empty() { hang(request).await } else { Ok(Reply::Message(request.message)) } }
    });
    with_server(handler, async |client: Client| {
        let dropped = {
            let client = client.clone();
            rt::spawn(async move { client.unary(ECHO, Vec::new(), LONG).await })
        };
        assert_eq!(client.unary(ECHO, b"x".to_vec(), LONG).await.unwrap(), b"x");
        assert!(stopped.is_empty());
        drop(dropped);
        stopped.recv().await.unwrap();
        assert_eq!(client.unary(ECHO, b"x".to_vec(), LONG).await.unwrap(), b"x");
    });
}

#[test]
fn dropped_stream_stops_its_sender() {
    let (told, stopped) = async_channel::bounded::<()>(1);
    let sending = Rc::new(RefCell::new(None));
    let handler = handler(move |_| {
        let (sender, receiver) = async_channel::bounded(1);
        let told = Told(told.clone());
        *sending.borrow_mut() = Some(rt::spawn(async move {
            while sender.send(Ok(vec![0; 10])).await.is_ok() {}
            drop(told);
        }));
        std::future::ready(Ok(Reply::Stream(receiver)))
    });
    with_server(handler, async |client: Client| {
        let mut stream = client.server_streaming(ECHO, Vec::new()).await.unwrap();
        assert!(stream.next().await.unwrap().is_some());
        drop(stream);
        stopped.recv().await.unwrap();
    });
}
