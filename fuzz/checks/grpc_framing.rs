//! gRPC message framing and headers.

use coracle::protocol::grpc::{Status, frame_message, read_timeout, take_message, write_timeout};
use coracle::protocol::hpack::Field;

const LIMIT: u32 = 1000;

pub(crate) fn check(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((payload, used))) = take_message(rest, LIMIT) {
        assert!(payload.len() <= 1000);
        assert!(rest.starts_with(&frame_message(payload.to_vec()).expect("payload is short")));
        rest = rest.get(used..).expect("used is within the input");
    }

    if let Some(timeout) = read_timeout(data) {
        let written = write_timeout(timeout);
        assert!(written.len() <= 9 && read_timeout(written.as_bytes()) >= Some(timeout));
    }

    let (code, message) = data.split_at(data.len().min(2));
    let trailers = [Field::new("grpc-status", code), Field::new("grpc-message", message)];
    let status = Status::of_trailers(&trailers).expect("trailers have a status");
    assert_eq!(Status::of_trailers(&status.trailers()), Some(status));
}
