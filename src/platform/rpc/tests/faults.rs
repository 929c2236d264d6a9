//! Peers that fail, misbehave or stay silent.

use std::ops::ControlFlow;

use super::*;
use crate::platform::rt::{AsyncReadExt, AsyncWriteExt, UnixStream};
use crate::protocol::grpc::frame_message;
use crate::protocol::hpack::Field;
use crate::protocol::http2::{Connection, ErrorCode, Event, StreamId};

/// An HTTP/2 server whose `on_event` handles events and may end the connection.
async fn speak(mut stream: UnixStream, mut on_event: impl FnMut(&mut Connection, Event) -> ControlFlow<()>) {
    let mut connection = Connection::server();
    let mut input = [0; 1000];
    loop {
        let mut out = Vec::new();
        connection.transmit(&mut out);
        if !out.is_empty() && stream.write_all(&out).await.is_err() {
            return;
        }
        if out.is_empty() {
            let Ok(len @ 1..) = stream.read(&mut input).await else { return };
            let mut events = Vec::new();
            connection.receive(&input[..len], Instant::now(), &mut events).unwrap();
            for event in events {
                if on_event(&mut connection, event).is_break() {
                    return;
                }
            }
        }
    }
}

/// The outcome of a call to which `respond` responds once the request is complete.
fn call_answered_by(respond: impl FnMut(&mut Connection, StreamId) + 'static) -> Result<Vec<u8>, Error> {
    let socket = Socket::new();
    rt::block_on(async {
        let server = Server::bind(&socket.path()).unwrap();
        let mut response = respond;
        let serving = rt::spawn(async move {
            let stream = server.accept().await.unwrap();
            let on_event = |connection: &mut Connection, event| {
                if let Event::Data { stream, end: true, .. } = event {
                    response(connection, stream);
                }
                ControlFlow::Continue(())
            };
            speak(stream, on_event).await;
        });
        let outcome = socket.client().unary(ECHO, b"x".to_vec(), LONG).await;
        drop(serving);
        outcome
    })
}

fn head() -> Vec<Field> {
    vec![Field::fixed(":status", "200"), Field::fixed("content-type", "application/grpc+proto")]
}

fn status(code: &'static str) -> Vec<Field> {
    vec![Field::fixed("grpc-status", code)]
}

fn message(payload: &[u8]) -> Vec<u8> {
    frame_message(payload.to_vec()).unwrap()
}

#[track_caller]
fn is_protocol_error(outcome: Result<Vec<u8>, Error>) {
    match outcome {
        Err(error @ Error::Protocol(_)) => assert!(error.is_outcome_unknown() && !error.is_retryable()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn valid_response_is_accepted() {
    let outcome = call_answered_by(|connection, stream| {
        connection.respond(stream, head(), false);
        connection.send_data(stream, message(b"yes"), false);
        connection.send_trailers(stream, status("0"));
    });
    assert_eq!(outcome.unwrap(), b"yes");
}

#[test]
fn response_without_a_message_is_an_error() {
    is_protocol_error(call_answered_by(|connection, stream| {
        connection.respond(stream, head(), false);
        connection.send_trailers(stream, status("0"));
    }));
    is_protocol_error(call_answered_by(|connection, stream| {
        connection.respond(stream, [head(), status("0")].concat(), true);
    }));
}

#[test]
fn two_messages_in_a_unary_response_are_an_error() {
    is_protocol_error(call_answered_by(|connection, stream| {
        connection.respond(stream, head(), false);
        connection.send_data(stream, message(b"one").repeat(2), false);
        connection.send_trailers(stream, status("0"));
    }));
}

#[test]
fn truncated_message_is_an_error() {
    is_protocol_error(call_answered_by(|connection, stream| {
        connection.respond(stream, head(), false);
        connection.send_data(stream, message(b"one")[..7].to_vec(), false);
        connection.send_trailers(stream, status("0"));
    }));
}

#[test]
fn response_without_a_status_is_an_error() {
    is_protocol_error(call_answered_by(|connection, stream| {
        connection.respond(stream, head(), false);
        connection.send_data(stream, message(b"one"), true);
    }));
    is_protocol_error(call_answered_by(|connection, stream| {
        connection.respond(stream, head(), false);
        connection.send_data(stream, message(b"one"), false);
        connection.send_trailers(stream, vec![Field::fixed("other", "x")]);
    }));
    is_protocol_error(call_answered_by(|connection, stream| connection.respond(stream, head(), true)));
}

#[test]
fn compressed_and_endless_responses_are_refused() {
    for prefix in [[1, 0, 0, 0, 1], [0, 1, 0, 0, 1]] {
        is_protocol_error(call_answered_by(move |connection, stream| {
            connection.respond(stream, head(), false);
            connection.send_data(stream, prefix.to_vec(), false);
        }));
    }
}

#[test]
fn error_status_after_a_message_wins() {
    let outcome = call_answered_by(|connection, stream| {
        connection.respond(stream, head(), false);
        connection.send_data(stream, message(b"one"), false);
        connection.send_trailers(stream, status("5"));
    });
    assert_eq!(outcome.unwrap_err().status().unwrap().code, Code::NotFound);
}

#[test]
fn http_errors_are_mapped_to_statuses() {
    let outcome =
        call_answered_by(|connection, stream| connection.respond(stream, vec![Field::fixed(":status", "503")], false));
    assert_eq!(outcome.unwrap_err().status().unwrap().code, Code::Unavailable);
    is_protocol_error(call_answered_by(|connection, stream| {
        connection.respond(stream, vec![Field::fixed(":status", "200")], false);
    }));
}

#[test]
fn refused_calls_are_retryable_and_cancelled_ones_not() {
    let error = call_answered_by(|connection, stream| connection.reset(stream, ErrorCode::REFUSED_STREAM)).unwrap_err();
    assert!(matches!(error, Error::NeverSent) && error.is_retryable());
    let error = call_answered_by(|connection, stream| connection.reset(stream, ErrorCode::CANCEL)).unwrap_err();
    assert!(matches!(error, Error::Reset(ErrorCode::CANCEL)) && error.is_outcome_unknown());
}

#[test]
fn truncated_responses_are_never_accepted() {
    let body: Vec<u8> = (0..40).collect();
    let mut complete = 0;
    for cut in 0..200 {
        let response = body.clone();
        let handler = handler(move |request| {
            request.wire.cut_after(cut);
            std::future::ready(Ok(Reply::Message(response.clone())))
        });
        with_server(handler, async |client: Client| match client.unary(ECHO, Vec::new(), LONG).await {
            Ok(message) => {
                assert_eq!(message, body);
                complete += 1;
            }
            Err(error @ Error::Lost(_)) => assert!(error.is_outcome_unknown() && !error.is_retryable()),
            Err(other) => panic!("cut after {cut}: {other:?}"),
        });
    }
    assert!((1..150).contains(&complete), "{complete} of 200");
}

#[test]
fn garbage_during_a_call_loses_the_call() {
    let handler = handler(|request| async move {
        request.wire.stream().write_all(&[0xee; 100]).await.unwrap();
        std::future::pending::<()>().await;
        Err(Status::ok())
    });
    with_server(handler, async |client: Client| {
        let error = client.unary(ECHO, Vec::new(), LONG).await.unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{error:?}");
        let shown = crate::types::error::ErrorChain(&error).to_string();
        assert!(shown.contains("frame longer than allowed"), "{shown}");
    });
}

#[test]
fn call_that_waits_for_a_free_stream_was_never_sent() {
    let socket = Socket::new();
    rt::block_on(async {
        let server = Server::bind(&socket.path()).unwrap();
        let serving = rt::spawn(async move {
            let mut stream = server.accept().await.unwrap();
            // SETTINGS with MAX_CONCURRENT_STREAMS = 0.
            stream.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0]).await.unwrap();
            let mut input = [0; 1000];
            while stream.read(&mut input).await.is_ok_and(|len| len > 0) {}
        });
        let error = socket.client().unary(ECHO, Vec::new(), Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(error, Error::NeverSent) && error.is_retryable(), "{error:?}");
        drop(serving);
    });
}

#[test]
fn server_refuses_requests_other_than_grpc() {
    let socket = Socket::new();
    rt::block_on(async {
        let serving = socket.serve(echo());
        let mut stream = UnixStream::connect(socket.path()).await.unwrap();
        let mut connection = Connection::client();
        let request = |method, kind| {
            let mut fields = vec![Field::fixed(":method", method), Field::fixed(":scheme", "http")];
            fields.extend([Field::fixed(":path", ECHO), Field::fixed("content-type", kind)]);
            fields
        };
        let get = connection.open(request("GET", "application/grpc"), true).unwrap();
        let form = connection.open(request("POST", "text/plain"), false).unwrap();
        let empty = connection.open(request("POST", "application/grpc"), true).unwrap();
        let twice = connection.open(request("POST", "application/grpc"), false).unwrap();
        connection.send_data(twice, message(b"x").repeat(2), true);
        let mut answers = Vec::new();
        let mut input = [0; 1000];
        while answers.len() < 4 {
            let mut out = Vec::new();
            connection.transmit(&mut out);
            stream.write_all(&out).await.unwrap();
            let len = stream.read(&mut input).await.unwrap();
            let mut events = Vec::new();
            connection.receive(&input[..len], Instant::now(), &mut events).unwrap();
            answers.extend(events.into_iter().filter_map(|event| match event {
                Event::Head { stream, fields, .. } => Some((stream, fields)),
                _ => None,
            }));
        }
        let field = |stream, name: &[u8]| {
            let (_, fields) = answers.iter().find(|(of, _)| *of == stream).unwrap();
            let field = fields.iter().find(|field| &*field.name == name).unwrap();
            String::from_utf8(field.value.to_vec()).unwrap()
        };
        assert_eq!(field(get, b":status"), "405");
        assert_eq!(field(form, b":status"), "415");
        assert_eq!(field(empty, b"grpc-status"), "13");
        assert_eq!(field(twice, b"grpc-status"), "13");
        drop(serving);
    });
}
