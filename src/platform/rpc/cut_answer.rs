//! The response to a unary call of which only the start of each string is kept. Pure.

use crate::protocol::grpc;
use crate::protocol::protobuf::Cutter;

/// The framed message so far.
#[derive(Debug)]
pub(super) struct CutAnswer {
    /// The start of the frame, until it is complete.
    head: Vec<u8>,
    /// Bytes of the message that are still missing; `None` before the frame's head.
    bytes_left: Option<usize>,
    cutter: Cutter,
}

/// The bytes of all kept strings, with keys and numbers.
const MAX_KEPT_TEXT_BYTES: usize = 64 * 1024;
const RPC_ANSWER_HEADER_BYTES: usize = 5;

impl CutAnswer {
    pub(super) fn new(limit: usize) -> Self {
        Self { head: Vec::new(), bytes_left: None, cutter: Cutter::new(limit, MAX_KEPT_TEXT_BYTES) }
    }

    pub(super) fn take(&mut self, mut data: &[u8], limit: u32) -> Result<(), &'static str> {
        let missing = RPC_ANSWER_HEADER_BYTES.saturating_sub(self.head.len());
        if missing > 0 {
            let (head, rest) = data.split_at_checked(missing).unwrap_or((data, &[]));
            self.head.extend_from_slice(head);
            data = rest;
        }
        let Some((&flag, length)) = self.head.split_first() else { return Ok(()) };
        if flag != 0 {
            return Err("response is compressed");
        }
        if self.bytes_left.is_none() {
            let Ok(length) = <[u8; 4]>::try_from(length) else { return Ok(()) };
            let length = u32::from_be_bytes(length);
            let length = usize::try_from(length).ok().filter(|_| length <= limit);
            self.bytes_left = Some(length.ok_or("response is too long")?);
        }
        let bytes_left = self.bytes_left.unwrap_or(0).checked_sub(data.len()).ok_or("more than one response")?;
        self.bytes_left = Some(bytes_left);
        self.cutter.take(data).map_err(|_| "response is not a message")
    }

    /// The framed message, once it is complete.
    pub(super) fn whole(self) -> Option<Vec<u8>> {
        if self.bytes_left != Some(0) {
            return None;
        }
        grpc::frame_message(self.cutter.finish().ok()?).ok()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.bytes_left == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_with_many_strings_is_refused_while_it_arrives() {
        // Each string is short enough to be kept whole.
        let string = [&[0x0a, 100][..], &[b'x'; 100]].concat();
        let message = grpc::frame_message(string.repeat(1000)).unwrap();
        let mut cut = CutAnswer::new(10_240);
        let ends = message.chunks(1000).map(|piece| cut.take(piece, 16 << 20)).find(Result::is_err);
        assert_eq!(ends, Some(Err("response is not a message")));
    }
}
