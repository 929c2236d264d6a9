//! A single call on a connection of its own.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use super::Error;
use super::call::{Call, Caller, ResponseMode};
use super::drive::drive;
use super::link::{Exchange as _, Link};
use crate::platform::rt::{self, TcpStream};
use crate::protocol::grpc;

/// A unary call without a timeout: the deadline is up to the caller. `limit`: the longest response.
pub(crate) async fn call_once(
    stream: TcpStream,
    agent: String,
    authority: String,
    method: &'static str,
    request: Vec<u8>,
    limit: u32,
) -> Result<Vec<u8>, Error> {
    let request = grpc::frame_message(request).map_err(|_| Error::NeverSent)?;
    let link = Rc::new(Link::<Call>::new(Caller::new(agent, authority), rt::now()));
    let call = async {
        link.ready().await;
        Rc::clone(&link).call(method, request, None, Call::new(ResponseMode::One, limit))?.only().await
    };
    let (mut reader, mut writer) = (stream.clone(), stream);
    let lost = async {
        let ended = drive(&mut reader, &mut writer, &*link).await;
        let cause = Arc::new(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        // Let the call handle what arrived before the end.
        link.end(Call::lost(&cause));
        rt::yield_now().await;
        Err(Error::Lost(cause))
    };
    rt::either(pin!(call), pin!(lost)).await
}
