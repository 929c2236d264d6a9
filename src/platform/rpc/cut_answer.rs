//! The response to a unary call of which only the start of each string is kept. Pure.

use std::cell::Cell;
use std::rc::Rc;

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
    /// Most bytes that are kept.
    room: usize,
    claim: LongAnswerClaim,
}

/// What a long answer claims of [`MAX_LONG_ANSWER_BYTES`].
#[derive(Debug)]
struct LongAnswerClaim {
    /// The claims of all answers of a client.
    claimed: Rc<Cell<usize>>,
    bytes: usize,
}

/// The bytes of all kept strings, with keys and numbers. Answers that keep more are long.
const MAX_KEPT_TEXT_BYTES: usize = 64 * 1024;
/// Kept bytes of all long answers of a client that arrive at the same time.
const MAX_LONG_ANSWER_BYTES: usize = 8 << 20;
const RPC_ANSWER_HEADER_BYTES: usize = 5;

impl CutAnswer {
    /// `claimed`: the claims of all answers of the client.
    pub(super) fn new(limit: usize, claimed: Rc<Cell<usize>>) -> Self {
        // Two long strings, such as the outputs of a command, and what is around them.
        let room = limit.saturating_mul(2).saturating_add(1024).max(MAX_KEPT_TEXT_BYTES);
        let claim = LongAnswerClaim { claimed, bytes: 0 };
        Self { head: Vec::new(), bytes_left: None, cutter: Cutter::new(limit, room), room, claim }
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
            let length = usize::try_from(length).ok().filter(|_| length <= limit).ok_or("response is too long")?;
            self.claim.take(length.min(self.room))?;
            self.bytes_left = Some(length);
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

impl LongAnswerClaim {
    fn take(&mut self, bytes: usize) -> Result<(), &'static str> {
        if bytes <= MAX_KEPT_TEXT_BYTES {
            return Ok(());
        }
        let claimed = self.claimed.get().saturating_add(bytes);
        if claimed > MAX_LONG_ANSWER_BYTES {
            return Err("too many long responses at the same time");
        }
        self.bytes = bytes;
        self.claimed.set(claimed);
        Ok(())
    }
}

impl Drop for LongAnswerClaim {
    fn drop(&mut self) {
        self.claimed.set(self.claimed.get().saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_responses_that_arrive_together_have_a_bound() {
        let claimed = Rc::new(Cell::new(0));
        let begin = |limit: usize, string: usize| {
            let mut cut = CutAnswer::new(limit, Rc::clone(&claimed));
            let length = u32::try_from(string).unwrap().to_be_bytes();
            cut.take(&[&[0][..], &length].concat(), 16 << 20).map(|()| cut)
        };
        let begun: Vec<_> = (0..10).map_while(|_| begin(1 << 20, 15 << 20).ok()).collect();
        assert_eq!(begun.len(), 3);
        assert_eq!(begin(1 << 20, 15 << 20).unwrap_err(), "too many long responses at the same time");
        // Neither a short response nor the start of a long one counts.
        assert!(begin(1 << 20, 60_000).is_ok() && begin(10_240, 15 << 20).is_ok());
        drop(begun);
        assert_eq!(claimed.get(), 0);
    }

    #[test]
    fn response_with_many_strings_is_refused_while_it_arrives() {
        // Each string is short enough to be kept whole.
        let string = [&[0x0a, 100][..], &[b'x'; 100]].concat();
        let message = grpc::frame_message(string.repeat(1000)).unwrap();
        let mut cut = CutAnswer::new(10_240, Rc::default());
        let ends = message.chunks(1000).map(|piece| cut.take(piece, 16 << 20)).find(Result::is_err);
        assert_eq!(ends, Some(Err("response is not a message")));
    }
}
