//! The gRPC health check, `grpc.health.v1.Health/Check`, without TLS.

use std::time::Duration;

use crate::kubelet::probes::outcome::Outcome;
use crate::platform::net::{Dialer, KUBERNETES};
use crate::platform::rpc::{self, call_once};
use crate::platform::rt::{self, TcpStream};
use crate::protocol::grpc::Code;
use crate::protocol::protobuf::{decode, encode, message, open_enum};

message! {
    struct HealthCheckRequest {
        1 => service: String,
    }

    struct HealthCheckResponse {
        1 => status: ServingStatus,
    }
}

open_enum! {
    enum ServingStatus {
        Unknown = 0,
        Serving = 1,
        NotServing = 2,
        ServiceUnknown = 3,
    }
}

/// Delay between connection attempts (gRPC's initial back-off).
const GRPC_PROBE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Longest response. The status takes two bytes; the rest is for fields of later versions.
const MAX_HEALTH_RESPONSE_BYTES: u32 = 4096;

/// Only the status SERVING passes.
pub(super) async fn probe(dialer: &Dialer, host: &str, port: u16, service: &str, limit: Duration) -> Outcome {
    let end = rt::now() + limit;
    let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let within = format!("{}s", limit.as_secs());
    let Ok(stream) = rt::deadline(limit, connect(dialer, host, port, limit)).await else {
        return Outcome::Failed(format!(
            "timeout: failed to connect service {authority:?} within {within}: context deadline exceeded"
        ));
    };
    let request = encode(&HealthCheckRequest { service: service.to_owned() });
    let agent = format!("kube-probe/{KUBERNETES}");
    let call = call_once(stream, agent, authority, "/grpc.health.v1.Health/Check", request, MAX_HEALTH_RESPONSE_BYTES);
    match rt::deadline(end.saturating_duration_since(rt::now()), call).await {
        Ok(response) => outcome(response, &within),
        Err(rt::Elapsed) => Outcome::Failed(format!("timeout: health rpc did not complete within {within}")),
    }
}

/// Retries while the connection is refused: a server that starts within the limit is in time.
async fn connect(dialer: &Dialer, host: &str, port: u16, limit: Duration) -> TcpStream {
    loop {
        if let Ok(stream) = dialer.dial(host, port, limit).await {
            return stream;
        }
        rt::sleep(GRPC_PROBE_RETRY_DELAY).await;
    }
}

fn outcome(response: Result<Vec<u8>, rpc::Error>, within: &str) -> Outcome {
    let failed = |error: &dyn std::fmt::Display| Outcome::Failed(format!("error: health rpc probe failed: {error}"));
    let message = match response {
        Ok(message) => message,
        Err(rpc::Error::Status(status)) => {
            return match status.code {
                Code::Unimplemented => Outcome::Failed(format!(
                    "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                    status.message
                )),
                Code::DeadlineExceeded => {
                    Outcome::Failed(format!("timeout: health rpc did not complete within {within}"))
                }
                code => failed(&format_args!("rpc error: code = {code} desc = {}", status.message)),
            };
        }
        Err(error) => return failed(&format_args!("rpc error: code = Unavailable desc = {error}")),
    };
    match decode::<HealthCheckResponse>(&message) {
        Ok(HealthCheckResponse { status: ServingStatus::Serving }) => Outcome::Passed,
        Ok(HealthCheckResponse { status }) => {
            Outcome::Failed(format!("service unhealthy (responded with {:?})", status.name()))
        }
        Err(error) => failed(&error),
    }
}

impl ServingStatus {
    fn name(self) -> String {
        match self {
            Self::Unknown => "UNKNOWN".to_owned(),
            Self::Serving => "SERVING".to_owned(),
            Self::NotServing => "NOT_SERVING".to_owned(),
            Self::ServiceUnknown => "SERVICE_UNKNOWN".to_owned(),
            Self::Unrecognized(number) => number.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;
    use crate::protocol::grpc::{GRPC_CONTENT_TYPE, Status, frame_message};
    use crate::protocol::hpack::Field;
    use crate::protocol::http2::{Connection, Event};

    /// Answers one call; returns the request's path, authority and message.
    fn answer_once(listener: &TcpListener, message: &[u8]) -> (String, String, Vec<u8>) {
        let (mut stream, _) = listener.accept().unwrap();
        let mut connection = Connection::server();
        let mut asked = (String::new(), String::new(), Vec::new());
        let mut buffer = [0; 4096];
        loop {
            let len = stream.read(&mut buffer).unwrap();
            if len == 0 {
                return asked;
            }
            let mut events = Vec::new();
            connection.receive(&buffer[..len], Instant::now(), &mut events).unwrap();
            for event in events {
                match event {
                    Event::Head { fields, .. } => {
                        let value = |name: &[u8]| {
                            let field = fields.iter().find(|field| field.name == name).unwrap();
                            String::from_utf8_lossy(&field.value).into_owned()
                        };
                        asked.0 = value(b":path");
                        asked.1 = value(b":authority");
                    }
                    Event::Data { stream, data, end } => {
                        asked.2.extend(data);
                        if end {
                            let content = Field::fixed("content-type", GRPC_CONTENT_TYPE);
                            connection.respond(stream, vec![Field::fixed(":status", "200"), content], false);
                            let response = frame_message(message.to_vec()).unwrap();
                            connection.send_data(stream, response, false);
                            connection.send_trailers(stream, Status::ok().trailers());
                        }
                    }
                    _ => {}
                }
            }
            let mut out = Vec::new();
            connection.transmit(&mut out);
            stream.write_all(&out).unwrap();
        }
    }

    #[test]
    fn service_is_checked_by_name() {
        for (status, outcome) in [
            (ServingStatus::Serving, Outcome::Passed),
            (
                ServingStatus::NotServing,
                Outcome::Failed("service unhealthy (responded with \"NOT_SERVING\")".to_owned()),
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let response = encode(&HealthCheckResponse { status });
            let server = std::thread::spawn(move || answer_once(&listener, &response));
            let made = rt::block_on(probe(&Dialer::new(), "127.0.0.1", port, "db", Duration::from_secs(20)));
            assert_eq!(made, outcome);
            let (path, authority, message) = server.join().unwrap();
            assert_eq!(path, "/grpc.health.v1.Health/Check");
            assert_eq!(authority, format!("127.0.0.1:{port}"));
            assert_eq!(message, frame_message(encode(&HealthCheckRequest { service: "db".to_owned() })).unwrap());
        }
    }

    #[test]
    fn answer_beyond_its_bound_is_a_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut answer = encode(&HealthCheckResponse { status: ServingStatus::Serving });
        // A field of a later version, with 6000 bytes.
        answer.extend([0x7a, 0xf0, 0x2e]);
        answer.resize(answer.len() + 6000, b'x');
        let server = std::thread::spawn(move || answer_once(&listener, &answer));
        let made = rt::block_on(probe(&Dialer::new(), "127.0.0.1", port, "", Duration::from_secs(20)));
        assert!(matches!(&made, Outcome::Failed(text) if text.ends_with("response is too long")), "{made:?}");
        server.join().unwrap();
    }

    #[test]
    fn unreachable_or_silent_server_fails_after_the_timeout() {
        // Another test may get the port as soon as it is free, but not at this address.
        const HOST: &str = "127.71.3.1";
        let listener = TcpListener::bind((HOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let limit = Duration::from_millis(50);
        let silent = rt::block_on(probe(&Dialer::new(), HOST, port, "", limit));
        assert_eq!(silent, Outcome::Failed("timeout: health rpc did not complete within 0s".to_owned()));
        drop(listener);
        let nobody = rt::block_on(probe(&Dialer::new(), HOST, port, "", limit));
        let text = format!("timeout: failed to connect service \"{HOST}:{port}\" within 0s: context deadline exceeded");
        assert_eq!(nobody, Outcome::Failed(text));
    }

    #[test]
    fn broken_connection_is_a_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || drop(listener.accept()));
        let made = rt::block_on(probe(&Dialer::new(), "127.0.0.1", port, "", Duration::from_secs(20)));
        assert!(matches!(&made, Outcome::Failed(text) if text.contains("code = Unavailable")), "{made:?}");
        server.join().unwrap();
    }

    #[test]
    fn only_serving_status_passes() {
        let of = |status| outcome(Ok(encode(&HealthCheckResponse { status })), "1s");
        assert_eq!(of(ServingStatus::Serving), Outcome::Passed);
        for (status, name) in [
            (ServingStatus::NotServing, "NOT_SERVING"),
            (ServingStatus::Unknown, "UNKNOWN"),
            (ServingStatus::Unrecognized(9), "9"),
        ] {
            assert_eq!(of(status), Outcome::Failed(format!("service unhealthy (responded with {name:?})")));
        }
    }

    #[test]
    fn failure_messages_are_upstreams() {
        let of = |code, message: &str| outcome(Err(rpc::Error::Status(Status::new(code, message))), "3s");
        let failed = |text: &str| Outcome::Failed(text.to_owned());
        let unimplemented = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): x";
        assert_eq!(of(Code::Unimplemented, "x"), failed(unimplemented));
        assert_eq!(of(Code::DeadlineExceeded, "x"), failed("timeout: health rpc did not complete within 3s"));
        let not_found = "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service";
        assert_eq!(of(Code::NotFound, "unknown service"), failed(not_found));
    }
}
