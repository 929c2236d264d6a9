//! The HTTP/2 connection against the h2 crate, as server and as client.

use std::collections::BTreeMap;
use std::time::Instant;

use coracle::protocol::hpack::Field;
use coracle::protocol::http2::{Connection, Ending, ErrorCode, Event, StreamId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::Random;

/// The peer's settings: small and odd.
#[derive(Clone, Copy, Debug)]
struct Settings {
    window: u32,
    streams: u32,
    header_table: u32,
    /// The capacity of the pipe in bytes.
    pipe: usize,
}

const SETTINGS: [Settings; 4] = [
    Settings { window: 65_535, streams: 100, header_table: 4096, pipe: 100_000 },
    Settings { window: 1, streams: 1, header_table: 0, pipe: 50 },
    Settings { window: 777, streams: 3, header_table: 60, pipe: 1000 },
    Settings { window: 1_000_000, streams: 2, header_table: 65_536, pipe: 7 },
];

const STREAMS: usize = 20;

/// Carries bytes between the pipe and the connection until `on_event` returns true or the peer closes. It reads while
/// it writes, because the peer may write first.
async fn carry(
    pipe: DuplexStream,
    mut connection: Connection,
    mut on_event: impl FnMut(&mut Connection, Event) -> bool,
) {
    let (mut reader, mut writer) = tokio::io::split(pipe);
    let mut input = [0; 4096];
    let mut out = Vec::new();
    loop {
        if out.is_empty() {
            connection.transmit(&mut out);
        }
        let write = async {
            if out.is_empty() {
                std::future::pending::<()>().await;
            }
            Err(writer.write(&out).await)
        };
        let read = async { Ok(reader.read(&mut input).await) };
        match smol::future::or(write, read).await {
            Err(Ok(len)) => drop(out.drain(..len)),
            Ok(Ok(len @ 1..)) => {
                let mut events = Vec::new();
                connection.receive(&input[..len], Instant::now(), &mut events).unwrap();
                for event in events {
                    if !on_event(&mut connection, event) {
                        return;
                    }
                }
            }
            Ok(_) | Err(Err(_)) => return,
        }
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

fn head(list: &[(&'static str, String)]) -> Vec<Field> {
    list.iter().map(|(name, value)| Field::new(name, value.as_str())).collect()
}

fn value<'a>(fields: &'a [Field], name: &str) -> &'a str {
    let field = fields.iter().find(|field| &*field.name == name.as_bytes()).unwrap();
    std::str::from_utf8(&field.value).unwrap()
}

/// Reads a body to its end and releases h2's flow control window.
async fn read_body(mut body: h2::RecvStream) -> (Vec<u8>, Option<http::HeaderMap>) {
    let mut whole = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.unwrap();
        whole.extend_from_slice(&chunk);
        body.flow_control().release_capacity(chunk.len()).unwrap();
    }
    (whole, body.trailers().await.unwrap())
}

/// Answers each request from h2 with the reversed body, and its length in the trailers.
fn echo_server() -> impl FnMut(&mut Connection, Event) -> bool {
    let mut bodies: BTreeMap<StreamId, Vec<u8>> = BTreeMap::new();
    move |connection, event| {
        let (stream, end) = match event {
            Event::Head { stream, fields, end } => {
                let echoed = value(&fields, "x-echo").to_owned();
                connection.respond(stream, head(&[(":status", "200".into()), ("x-echo", echoed)]), false);
                bodies.insert(stream, Vec::new());
                (stream, end)
            }
            Event::Data { stream, data, end } => {
                connection.consume(stream, data.len());
                bodies.get_mut(&stream).unwrap().extend(data);
                (stream, end)
            }
            Event::Trailers { stream, fields } => {
                assert_eq!(value(&fields, "x-end"), "yes");
                (stream, true)
            }
            Event::Ready | Event::GoAway { .. } => return true,
            Event::Reset { .. } => panic!("{event:?}"),
        };
        if end {
            let mut body = bodies.remove(&stream).unwrap();
            body.reverse();
            let length = body.len().to_string();
            connection.send_data(stream, body, false);
            connection.send_trailers(stream, head(&[("x-length", length)]));
        }
        true
    }
}

#[test]
fn h2_as_client_gets_correct_answers() {
    for (seed, settings) in (1..).zip(SETTINGS) {
        run(async move {
            let (ours, theirs) = tokio::io::duplex(settings.pipe);
            let server = tokio::task::spawn_local(carry(ours, Connection::server(), echo_server()));
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(settings.window).header_table_size(settings.header_table);
            let (send, connection) = builder.handshake::<_, std::io::Cursor<Vec<u8>>>(theirs).await.unwrap();
            let driver = tokio::task::spawn_local(connection);
            let mut random = Random(seed);
            let calls: Vec<_> = (0..STREAMS)
                .map(|n| {
                    let body = random.bytes(20_000);
                    tokio::task::spawn_local(h2_calls(send.clone(), n, body))
                })
                .collect();
            for call in calls {
                call.await.unwrap();
            }
            drop(send);
            driver.await.unwrap().unwrap();
            server.await.unwrap();
        });
    }
}

async fn h2_calls(send: h2::client::SendRequest<std::io::Cursor<Vec<u8>>>, n: usize, body: Vec<u8>) {
    let echo = format!("{}-{}", n % 3, "long ".repeat(n * 100).trim_end());
    let request = http::Request::post("http://host/a/b").header("x-echo", &echo).body(()).unwrap();
    let mut send = send.ready().await.unwrap();
    let (response, mut stream) = send.send_request(request, false).unwrap();
    stream.send_data(std::io::Cursor::new(body.clone()), n % 2 == 0).unwrap();
    if n % 2 == 1 {
        let trailers = [(http::HeaderName::from_static("x-end"), http::HeaderValue::from_static("yes"))];
        stream.send_trailers(trailers.into_iter().collect()).unwrap();
    }
    let response = response.await.unwrap();
    assert_eq!(response.headers()["x-echo"], *echo);
    let (mut answer, trailers) = read_body(response.into_body()).await;
    assert_eq!(trailers.unwrap()["x-length"], *answer.len().to_string());
    answer.reverse();
    assert!(answer == body, "stream {n}: {} bytes instead of {}", answer.len(), body.len());
}

/// An h2 server that echoes the body and a header field, with trailers.
async fn h2_server(pipe: DuplexStream, settings: Settings) {
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(settings.window).max_concurrent_streams(settings.streams);
    builder.header_table_size(settings.header_table);
    let mut connection = builder.handshake::<_, std::io::Cursor<Vec<u8>>>(pipe).await.unwrap();
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted.unwrap();
        tokio::task::spawn_local(async move {
            let echo = request.headers()["x-echo"].clone();
            let (body, _) = read_body(request.into_body()).await;
            let response = http::Response::builder().header("x-echo", echo).body(()).unwrap();
            let length = http::HeaderValue::from(body.len());
            let mut stream = respond.send_response(response, false).unwrap();
            stream.send_data(std::io::Cursor::new(body), false).unwrap();
            let trailers = [(http::HeaderName::from_static("x-length"), length)];
            stream.send_trailers(trailers.into_iter().collect()).unwrap();
        });
    }
}

/// By stream: the sent bytes, the received bytes and the echoed field.
type Echoes = BTreeMap<StreamId, (Vec<u8>, Vec<u8>, String)>;

fn open_streams(connection: &mut Connection, random: &mut Random) -> Echoes {
    let mut echoes = BTreeMap::new();
    for n in 0..STREAMS {
        let body = random.bytes(20_000);
        let echo = "long ".repeat(n * 100).trim_end().to_owned();
        let fields = [
            (":method", "POST".to_owned()),
            (":scheme", "http".to_owned()),
            (":authority", "host".to_owned()),
            (":path", format!("/{}", n % 3)),
            ("x-echo", echo.clone()),
        ];
        let stream = connection.open(head(&fields), false).unwrap();
        connection.send_data(stream, body.clone(), true);
        echoes.insert(stream, (body, Vec::new(), echo));
    }
    echoes
}

#[test]
fn h2_as_server_is_understood() {
    for (seed, settings) in (1..).zip(SETTINGS) {
        run(async move {
            let (ours, theirs) = tokio::io::duplex(settings.pipe);
            tokio::task::spawn_local(h2_server(theirs, settings));
            let mut random = Random(seed);
            let mut bodies = BTreeMap::new();
            carry(ours, Connection::client(), |connection, event| {
                match event {
                    // The server would refuse streams above a limit that the client does not know yet.
                    Event::Ready => bodies = open_streams(connection, &mut random),
                    Event::Head { stream, fields, .. } => assert_eq!(value(&fields, "x-echo"), bodies[&stream].2),
                    Event::Data { stream, data, .. } => {
                        connection.consume(stream, data.len());
                        bodies.get_mut(&stream).unwrap().1.extend(data);
                    }
                    Event::Trailers { stream, fields } => {
                        let (sent, received, _) = bodies.remove(&stream).unwrap();
                        assert!(sent == received, "{settings:?}: {} instead of {}", received.len(), sent.len());
                        assert_eq!(value(&fields, "x-length"), sent.len().to_string());
                    }
                    Event::GoAway { .. } => {}
                    Event::Reset { .. } => panic!("{settings:?}: {event:?}"),
                }
                !bodies.is_empty()
            })
            .await;
            assert!(bodies.is_empty(), "{settings:?}: {} streams are open", bodies.len());
        });
    }
}

#[test]
fn h2_and_this_crate_understand_each_others_resets_and_goaways() {
    run(async {
        let (ours, theirs) = tokio::io::duplex(1000);
        let server = tokio::task::spawn_local(async move {
            let mut server = h2::server::handshake(theirs).await.unwrap();
            let (_, mut first) = server.accept().await.unwrap().unwrap();
            first.send_reset(h2::Reason::REFUSED_STREAM);
            let (mut second, _respond) = server.accept().await.unwrap().unwrap();
            server.graceful_shutdown();
            let reset = tokio::task::spawn_local(async move { second.body_mut().data().await });
            while server.accept().await.is_some() {}
            let error: h2::Error = reset.await.unwrap().unwrap().unwrap_err();
            assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
        });
        let mut client = Connection::client();
        let fields = [(":method", "GET".to_owned()), (":scheme", "http".into()), (":path", "/".into())];
        let request = [&fields[..], &[(":authority", "host".into())]].concat();
        let first = client.open(head(&request), false).unwrap();
        let second = client.open(head(&request), false).unwrap();
        let mut seen = Vec::new();
        carry(ours, client, |connection, event| {
            if matches!(event, Event::GoAway { .. }) {
                connection.reset(second, ErrorCode::CANCEL);
            }
            seen.push(event);
            true
        })
        .await;
        assert_eq!(seen[0], Event::Ready);
        assert!(seen.contains(&Event::Reset { stream: first, ending: Ending::NotProcessed }));
        assert!(seen.contains(&Event::GoAway { code: ErrorCode::NO_ERROR }));
        server.await.unwrap();
    });
}
