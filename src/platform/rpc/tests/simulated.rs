//! Client and server on a simulated network that delays, resets and drops, with many seeds.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::super::server::serve_accepted;
use super::Socket;
use crate::platform::rpc::{Client, Reply, Server, ServerLimits, handler, serve_connection};
use crate::platform::rt::{self, Line, UnixStream, World, simulate};
use crate::protocol::grpc::Code;

const SOCKET: &str = "/run/simulated/echo.sock";
const LIMIT: Duration = Duration::from_secs(20);

/// An echo server at `SOCKET` with delays of up to two seconds.
fn serve(world: &Rc<World>) -> rt::Task<()> {
    let connections = world.network.host(SOCKET).listen();
    let world = Rc::clone(world);
    rt::spawn(async move {
        let mut serving = Vec::new();
        while let Ok(pipe) = connections.recv().await {
            let world = Rc::clone(&world);
            let echo = handler(move |request| {
                let world = Rc::clone(&world);
                async move {
                    rt::sleep(world.duration_below(Duration::from_secs(2))).await;
                    Ok(Reply::Message(request.message))
                }
            });
            serving.push(rt::spawn(async move {
                // The client may be disconnected at any time.
                let _ = serve_connection(UnixStream::Simulated(pipe), echo, ServerLimits::large()).await;
            }));
        }
    })
}

/// Ten minutes of a faulty network, during which four tasks make calls all the time; then a reliable one.
async fn bad_network(world: Rc<World>) {
    let host = world.network.host(SOCKET);
    let mut server = Some(serve(&world));
    let client = Client::new(SOCKET);
    let callers: Vec<_> = (0..4u8)
        .map(|number| {
            let (client, world) = (client.clone(), Rc::clone(&world));
            rt::spawn(async move {
                while world.passed() < Duration::from_secs(600) {
                    let begun = rt::now();
                    let response = client.unary("/test/Echo", vec![number; 3000], LIMIT).await;
                    assert!(rt::elapsed(begun) <= LIMIT + Duration::from_secs(1), "a call outlived its deadline");
                    assert!(
                        response.is_err() || response.is_ok_and(|bytes| bytes == [number; 3000]),
                        "another's answer"
                    );
                    rt::sleep(world.duration_below(Duration::from_secs(1))).await;
                }
            })
        })
        .collect();
    while world.passed() < Duration::from_secs(600) {
        rt::sleep(world.duration_below(Duration::from_secs(60))).await;
        match world.below(5) {
            0 => host.cut(),
            1 => host.set_line(Line::BlackHole),
            2 => host.set_line(Line::Up),
            3 => host.delay.set(world.duration_below(Duration::from_secs(3))),
            _ => {
                // The server stops, and restarts later.
                server.take();
                host.close();
                rt::sleep(world.duration_below(Duration::from_secs(30))).await;
                server = Some(serve(&world));
            }
        }
    }
    host.delay.set(Duration::ZERO);
    host.set_line(Line::Up);
    for caller in callers {
        caller.await;
    }
    // The longest back-off is over by then.
    rt::sleep(Duration::from_secs(10)).await;
    let response = client.unary("/test/Echo", b"after all".to_vec(), LIMIT).await;
    assert_eq!(response.ok().as_deref(), Some(&b"after all"[..]), "no answer after the faults");
}

#[test]
fn calls_end_in_time_on_a_faulty_network() {
    for seed in 0..60 {
        if let Err(stuck) = simulate(seed, bad_network) {
            panic!("seed {seed}: {stuck}");
        }
    }
}

/// A server with `limits` at `SOCKET` whose first `failures` accepts fail.
fn serve_limited(world: &Rc<World>, limits: ServerLimits, failures: u32) -> rt::Task<()> {
    let connections = world.network.host(SOCKET).listen();
    let failures = Cell::new(failures);
    rt::spawn(async move {
        let accept = async || {
            if let Some(left) = failures.get().checked_sub(1) {
                failures.set(left);
                return Err(io::Error::from_raw_os_error(nix::libc::EMFILE));
            }
            connections.recv().await.map(UnixStream::Simulated).map_err(io::Error::other)
        };
        let echo = handler(|request| async move {
            if request.message.starts_with(b"slow") {
                rt::sleep(Duration::from_secs(5)).await;
            }
            Ok(Reply::Message(request.message))
        });
        match serve_accepted(accept, limits, echo).await {}
    })
}

#[test]
fn failed_accept_does_not_end_the_server() {
    let response = simulate(1, |world| async move {
        let _server = serve_limited(&world, ServerLimits::default(), 3);
        let response = Client::new(SOCKET).unary("/test/Echo", b"x".to_vec(), LIMIT).await.unwrap();
        assert!(world.passed() >= Duration::from_secs(3), "the server spins while it cannot accept");
        response
    });
    assert_eq!(response.unwrap(), b"x");
}

#[test]
fn idle_client_makes_room_for_the_next_one() {
    let answers = simulate(1, |world| async move {
        let _server = serve_limited(&world, ServerLimits { connections: 2, ..ServerLimits::default() }, 0);
        let busy = Client::new(SOCKET);
        let busy = rt::spawn(async move { busy.unary("/test/Echo", b"slow".to_vec(), LIMIT).await.unwrap() });
        rt::sleep(Duration::from_secs(1)).await;
        let _idle = UnixStream::connect(SOCKET).await.unwrap();
        rt::sleep(Duration::from_secs(1)).await;
        let next = Client::new(SOCKET).unary("/test/Echo", b"x".to_vec(), LIMIT).await.unwrap();
        assert!(world.passed() < Duration::from_secs(4));
        (busy.await, next)
    });
    assert_eq!(answers.unwrap(), (b"slow".to_vec(), b"x".to_vec()));
}

#[test]
fn requests_over_the_limits_are_refused() {
    let done = simulate(1, |world| async move {
        let limits = ServerLimits { message: 100, connection: 250, connections: 1 };
        let _server = serve_limited(&world, limits, 0);
        let client = Client::new(SOCKET);
        let call = |message: Vec<u8>| {
            let client = client.clone();
            rt::spawn(async move { client.unary("/test/Echo", message, LIMIT).await })
        };
        let code = |error: crate::platform::rpc::Error| error.status().map(|status| status.code);
        assert_eq!(call(vec![0; 101]).await.map_err(code), Err(Some(Code::ResourceExhausted)));
        let slow = [b"slow".to_vec(), vec![0; 90]].concat();
        let two = [call(slow.clone()), call(slow)];
        rt::sleep(Duration::from_secs(1)).await;
        assert_eq!(call(vec![0; 90]).await.map_err(code), Err(Some(Code::ResourceExhausted)));
        for one in two {
            assert!(one.await.is_ok());
        }
        assert!(call(vec![0; 90]).await.is_ok(), "answered requests leave room");
    });
    assert_eq!(done, Ok(()));
}

#[test]
fn failed_bind_is_retried() {
    let passed = simulate(1, |world| async move {
        let socket = Socket::new();
        let tries = Arc::new(AtomicU32::new(0));
        let prepare = move || match tries.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            _ => Ok(()),
        };
        let _server = Server::bind_prepared(&socket.path(), prepare).await;
        assert!(socket.path().exists());
        world.passed()
    });
    assert_eq!(passed.unwrap().as_secs(), 3);
}
