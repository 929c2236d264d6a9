//! Client and server on a simulated network that delays, cuts and swallows, from many seeds.

use std::rc::Rc;
use std::time::Duration;

use crate::rpc::{Client, Reply, handler, serve_connection};
use crate::rt::{self, Line, UnixStream, World, simulate};

const SOCKET: &str = "/run/simulated/echo.sock";
const LIMIT: Duration = Duration::from_secs(20);

/// A server at `SOCKET` that answers with what it was asked, after up to two seconds.
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
                // Its client may be cut off at any time.
                let _ = serve_connection(UnixStream::Simulated(pipe), echo).await;
            }));
        }
    })
}

/// Ten minutes of a bad network, during which four tasks call all the time; then a good one.
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
                    let answer = client.unary("/test/Echo", vec![number; 3000], LIMIT).await;
                    assert!(rt::elapsed(begun) <= LIMIT + Duration::from_secs(1), "a call outlived its deadline");
                    assert!(answer.is_err() || answer.is_ok_and(|bytes| bytes == [number; 3000]), "another's answer");
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
                // The server is gone, and comes again.
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
    // What waits for the next try to connect is through within its longest wait.
    rt::sleep(Duration::from_secs(10)).await;
    let answer = client.unary("/test/Echo", b"after all".to_vec(), LIMIT).await;
    assert_eq!(answer.ok().as_deref(), Some(&b"after all"[..]), "no answer after the faults");
}

#[test]
fn every_call_ends_in_time_and_the_connection_comes_back_whatever_the_network_does() {
    for seed in 0..60 {
        if let Err(stuck) = simulate(seed, bad_network) {
            panic!("seed {seed}: {stuck}");
        }
    }
}
