//! One call to the runtime: encode, send, decode.

use std::time::Duration;

use super::Error;
use crate::rpc;
use crate::wire::protobuf::{DecodeError, Message, decode_into};

/// Makes the call `path`; the error tells that it was about `subject`.
pub(super) async fn call<M: Message + Default>(
    client: &rpc::Client,
    path: &'static str,
    subject: &str,
    request: Vec<u8>,
    timeout: Duration,
) -> Result<M, Error> {
    let answer = match client.unary(path, request, timeout).await {
        Ok(answer) => answer,
        Err(error) => return Err(Error::rpc(path, subject, error)),
    };
    let mut message = M::default();
    read(&mut message, &answer, path, subject)?;
    Ok(message)
}

/// Reads an answer to the call `path`.
pub(super) fn read(message: &mut dyn Message, answer: &[u8], path: &'static str, subject: &str) -> Result<(), Error> {
    decode_into(message, answer).map_err(|error: DecodeError| Error::undecodable(path, subject, error))
}

/// The id that an answer must have.
pub(super) fn id(id: String, what: &'static str, path: &'static str, subject: &str) -> Result<String, Error> {
    if id.is_empty() { Err(Error::lacks(path, subject, what)) } else { Ok(id) }
}

/// Whole seconds for the runtime: never less than asked for, and a wait never becomes none.
pub(super) fn whole_seconds(duration: Duration) -> i64 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
