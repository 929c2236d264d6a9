//! HTTP/1 responses to probes and hooks.

use std::mem::{Discriminant, discriminant};

use coracle::protocol::http1::{Malformed, Response};

const LIMIT: usize = 500;

/// The result must not depend on how the bytes are split, and the body must stay within the limit. Errors are compared
/// by variant only, as they quote the part of the line that has arrived.
pub(crate) fn check(data: &[u8]) {
    let whole = read(&[data]);
    let (one, other) = data.split_at(data.len() / 3);
    assert_eq!(read(&[one, other]), whole);
    if let Ok((_, _, body)) = whole {
        assert!(body.len() <= LIMIT);
    }
}

fn read(parts: &[&[u8]]) -> Result<(u16, Option<String>, Vec<u8>), Discriminant<Malformed>> {
    let mut response = Response::new(LIMIT);
    for part in parts {
        response.receive(part).map_err(|error| discriminant(&error))?;
    }
    let location = response.location().map(str::to_owned);
    Ok((response.status(), location, response.into_body()))
}
