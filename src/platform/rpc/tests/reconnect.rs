//! Connections are made on demand, lost, and made again.

use super::*;
use crate::platform::rt::AsyncWriteExt;

#[track_caller]
fn could_not_connect(outcome: Result<Vec<u8>, Error>) {
    match outcome {
        Err(error @ Error::Connect { .. }) => assert!(error.is_retryable() && !error.is_outcome_unknown()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn call_without_a_server_names_the_socket() {
    let socket = Socket::new();
    rt::block_on(async {
        let client = Client::new(&format!("unix://{}", socket.path().display()));
        let begun = Instant::now();
        let error = client.unary(ECHO, Vec::new(), LONG).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(5));
        let shown = crate::types::error::ErrorChain(&error).to_string();
        assert!(shown.contains(&socket.path().display().to_string()) && shown.contains("No such file"), "{shown}");
        could_not_connect(Err(error));
    });
}

/// A server that closes each connection, and how many there were.
fn closing_server(socket: &Socket) -> (rt::Task<()>, Rc<Cell<u32>>) {
    let server = Server::bind(&socket.path()).unwrap();
    let tries = Rc::new(Cell::new(0));
    let count = Rc::clone(&tries);
    let serving = rt::spawn(async move {
        loop {
            drop(server.accept().await.unwrap());
            count.set(count.get() + 1);
        }
    });
    (serving, tries)
}

#[test]
fn calls_share_one_backoff() {
    let socket = Socket::new();
    rt::block_on(async {
        let (serving, tries) = closing_server(&socket);
        let client = socket.client();
        could_not_connect(client.unary(ECHO, Vec::new(), LONG).await);
        assert_eq!(tries.get(), 1);
        let begun = Instant::now();
        let second = rt::spawn({
            let client = client.clone();
            async move { client.unary(ECHO, Vec::new(), LONG).await }
        });
        could_not_connect(client.unary(ECHO, Vec::new(), LONG).await);
        could_not_connect(second.await);
        assert_eq!(tries.get(), 2);
        assert!(begun.elapsed() >= Duration::from_millis(90));
        could_not_connect(client.unary(ECHO, Vec::new(), LONG).await);
        assert!(begun.elapsed() >= Duration::from_millis(290), "the second wait is twice as long");
        drop(serving);
    });
}

#[test]
fn deadlines_apply_during_backoff() {
    let socket = Socket::new();
    rt::block_on(async {
        let (serving, tries) = closing_server(&socket);
        let client = socket.client();
        for _ in 0..3 {
            could_not_connect(client.unary(ECHO, Vec::new(), LONG).await);
        }
        could_not_connect(client.unary(ECHO, Vec::new(), Duration::from_millis(5)).await);
        assert_eq!(tries.get(), 3, "the call ended before the next attempt");
        drop(serving);
    });
}

#[test]
fn call_waits_out_the_backoff() {
    let socket = Socket::new();
    rt::block_on(async {
        let client = socket.client();
        could_not_connect(client.unary(ECHO, Vec::new(), LONG).await);
        let server = socket.serve(echo());
        assert_eq!(client.unary(ECHO, b"x".to_vec(), LONG).await.unwrap(), b"x");
        drop(server);
    });
}

#[test]
fn silent_or_foreign_peer_is_no_connection() {
    for greeting in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", &[0, 0, 0, 6, 0, 0, 0, 0, 0]] {
        let socket = Socket::new();
        rt::block_on(async {
            let server = Server::bind(&socket.path()).unwrap();
            let serving = rt::spawn(async move {
                let mut stream = server.accept().await.unwrap();
                stream.write_all(greeting).await.unwrap();
                std::future::pending::<()>().await;
            });
            could_not_connect(socket.client().unary(ECHO, Vec::new(), Duration::from_millis(200)).await);
            drop(serving);
        });
    }
}

#[test]
fn peer_that_hangs_up_at_once_is_no_connection() {
    let socket = Socket::new();
    rt::block_on(async {
        let server = Server::bind(&socket.path()).unwrap();
        let serving = rt::spawn(async move {
            loop {
                drop(server.accept().await.unwrap());
            }
        });
        could_not_connect(socket.client().unary(ECHO, Vec::new(), LONG).await);
        drop(serving);
    });
}

#[test]
fn restarted_server_is_reconnected_and_reported() {
    let (hang, _) = hanging();
    let socket = Socket::new();
    rt::block_on(async {
        let client = socket.client();
        let mut watch = client.watch();
        let handler = handler(move |request| {
            let hang = hang.clone();
            async move { if request.message.is_empty() { hang(request).await } else { Ok(Reply::Message(request.message)) } }
        });
        for round in 0..3_u8 {
            let server = socket.serve(handler.clone());
            let in_flight = rt::spawn({
                let client = client.clone();
                async move { client.unary(ECHO, Vec::new(), LONG).await }
            });
            assert_eq!(client.unary(ECHO, vec![round], LONG).await.unwrap(), [round]);
            assert!(watch.changed().await, "connected");
            drop(server);
            let error = in_flight.await.unwrap_err();
            assert!(matches!(error, Error::Lost(_)), "{error:?}");
            assert!(!watch.changed().await, "lost");
        }
    });
}

#[test]
fn streams_end_with_the_connection() {
    let socket = Socket::new();
    rt::block_on(async {
        let (keep, receiver) = async_channel::bounded(1);
        let server = socket.serve(handler(move |_| std::future::ready(Ok(Reply::Stream(receiver.clone())))));
        let mut stream = socket.client().server_streaming(ECHO, Vec::new()).await.unwrap();
        keep.send(Ok(b"one".to_vec())).await.unwrap();
        assert_eq!(stream.next().await.unwrap(), Some(b"one".to_vec()));
        drop(server);
        assert!(matches!(stream.next().await, Err(Error::Lost(_))));
    });
}

#[test]
fn new_calls_after_goaway_use_a_new_connection() {
    let socket = Socket::new();
    rt::block_on(async {
        let (arrive, arrived) = async_channel::bounded(2);
        let (release, released) = async_channel::bounded::<()>(1);
        let hold = handler(move |request| {
            arrive.try_send(request.wire.stream()).unwrap();
            let released = released.clone();
            async move {
                released.recv().await.unwrap();
                Ok(Reply::Message(b"from the old one".to_vec()))
            }
        });
        let server = Server::bind(&socket.path()).unwrap();
        let first = rt::spawn(async move {
            let stream = server.accept().await.unwrap();
            serve_connection(stream, hold, ServerLimits::large()).await
        });
        let client = socket.client();
        let call = || {
            let client = client.clone();
            rt::spawn(async move { client.unary(ECHO, b"x".to_vec(), LONG).await })
        };
        let taken = call();
        let mut stream = arrived.recv().await.unwrap();
        let left = call();
        arrived.recv().await.unwrap();
        let successor = socket.serve(echo());
        // GOAWAY with last stream 1.
        stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]).await.unwrap();
        assert_eq!(left.await.unwrap(), b"x");
        release.send(()).await.unwrap();
        assert_eq!(taken.await.unwrap(), b"from the old one");
        // The client closes the old connection after its last call.
        first.await.unwrap();
        drop(successor);
    });
}

#[test]
fn dropped_client_closes_its_connection() {
    let socket = Socket::new();
    rt::block_on(async {
        let server = Server::bind(&socket.path()).unwrap();
        let serving = rt::spawn(async move {
            let stream = server.accept().await.unwrap();
            serve_connection(stream, echo(), ServerLimits::large()).await
        });
        let client = socket.client();
        client.unary(ECHO, Vec::new(), LONG).await.unwrap();
        drop(client);
        serving.await.unwrap();
    });
}
