//! One stream: its state (RFC 9113 section 5.1), its windows and its queued output. Pure.
//!
//! ```text
//!            HeadSent
//!   Waiting -----------> Open <-------- (a request of the peer)
//!                        |  |
//!                EndSent |  | EndReceived
//!                        v  v
//!       HalfClosedLocal      HalfClosedRemote
//!                        |  |
//!            EndReceived |  | EndSent
//!                        v  v
//!                       Closed
//! ```
//!
//! A reset by either side leads to `Closed` from every state. A closed stream is removed at once; late frames are
//! recognized by its id.

use super::fields;
use super::limits;
use super::stream_id::StreamId;
use super::window::{ReceiveWindow, SendWindow};
use crate::protocol::hpack::Field;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Opened here, and held back by the peer's limit on streams. `transmit` sends it.
    Waiting,
    /// Both sides may send.
    Open,
    /// This side has ended; the peer may send.
    HalfClosedLocal,
    /// The peer has ended; this side may send.
    HalfClosedRemote,
    /// Both sides have ended. `Connection` removes it.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    HeadSent,
    EndSent,
    EndReceived,
}

impl State {
    /// The state after `input`. An input that does not apply leaves the state unchanged.
    pub(super) fn next(self, input: Input) -> Self {
        match (self, input) {
            (Self::Waiting, Input::HeadSent) => Self::Open,
            (Self::Open, Input::EndSent) => Self::HalfClosedLocal,
            (Self::Open, Input::EndReceived) => Self::HalfClosedRemote,
            (Self::HalfClosedLocal, Input::EndReceived) => Self::Closed,
            (Self::HalfClosedRemote, Input::EndSent) => Self::Closed,
            (state, _) => state,
        }
    }

    pub(super) fn may_send(self) -> bool {
        matches!(self, Self::Open | Self::HalfClosedRemote)
    }

    pub(super) fn may_receive(self) -> bool {
        matches!(self, Self::Open | Self::HalfClosedLocal)
    }
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) state: State,
    /// Whether the peer's head (request or final response) has arrived.
    pub(super) head_received: bool,
    /// The size of the header lists of informational responses.
    informational: usize,
    /// The bytes missing from the content-length that the peer announced.
    content_left: Option<u64>,
    pub(super) send_window: SendWindow,
    pub(super) receive_window: ReceiveWindow,
    pub(super) outgoing: Outgoing,
    /// The offset of the stream's first byte in the output of `transmit`; `None` while it waits.
    pub(super) sent_from: Option<u64>,
}

/// Output that the user has queued and `transmit` has not sent.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) head: Option<Vec<Field>>,
    data: Vec<u8>,
    /// How many bytes of `data` are sent.
    sent: usize,
    pub(super) trailers: Option<Vec<Field>>,
    /// Whether the output ends with what is queued.
    pub(super) end: bool,
}

impl Outgoing {
    pub(super) fn push(&mut self, data: Vec<u8>) {
        if self.unsent().is_empty() {
            self.data = data;
            self.sent = 0;
        } else {
            self.data.drain(..self.sent);
            self.sent = 0;
            self.data.extend_from_slice(&data);
        }
    }

    pub(super) fn unsent(&self) -> &[u8] {
        self.data.get(self.sent..).unwrap_or_default()
    }

    pub(super) fn mark_sent(&mut self, len: usize) {
        self.sent += len;
        if self.unsent().is_empty() {
            self.data = Vec::new();
            self.sent = 0;
        }
    }
}

impl Stream {
    pub(super) fn new(id: StreamId, state: State, peer_window: u32) -> Self {
        Self {
            id,
            state,
            head_received: false,
            informational: 0,
            content_left: None,
            send_window: SendWindow::new(peer_window),
            receive_window: ReceiveWindow::new(),
            outgoing: Outgoing::default(),
            sent_from: None,
        }
    }

    /// Handles the peer's head, already validated; `end` means that there is no content.
    pub(super) fn receive_head(&mut self, head: &[Field], end: bool) -> Result<(), &'static str> {
        self.head_received = true;
        self.content_left = fields::content_length(head)?;
        self.receive_content(0, end)
    }

    /// Counts an informational response. False if those of the stream are over the limit.
    pub(super) fn takes_informational(&mut self, size: usize) -> bool {
        self.informational = self.informational.saturating_add(size);
        self.informational <= limits::MAX_INFORMATIONAL_BYTES
    }

    /// Handles `len` bytes of content; `end` marks the last (RFC 9113 section 8.1.1).
    pub(super) fn receive_content(&mut self, len: usize, end: bool) -> Result<(), &'static str> {
        if let Some(left) = &mut self.content_left {
            let len = u64::try_from(len).unwrap_or(u64::MAX);
            *left = left.checked_sub(len).filter(|left| !end || *left == 0).ok_or(WRONG_LENGTH)?;
        }
        if end {
            self.state = self.state.next(Input::EndReceived);
        }
        Ok(())
    }
}

const WRONG_LENGTH: &str = "content does not match content-length";

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(state: State) -> u8 {
        match state {
            State::Waiting => 0,
            State::Open => 1,
            State::HalfClosedLocal | State::HalfClosedRemote => 2,
            State::Closed => 3,
        }
    }

    #[test]
    fn no_input_sequence_reverts_a_stream() {
        let inputs = [Input::HeadSent, Input::EndSent, Input::EndReceived];
        for sequence in 0..3_usize.pow(5) {
            let mut state = State::Waiting;
            for step in 0..5_u32 {
                let next = state.next(inputs[sequence / 3_usize.pow(step) % 3]);
                assert!(rank(next) >= rank(state), "{state:?} to {next:?}");
                state = next;
            }
        }
    }

    #[test]
    fn stream_closes_once_both_sides_have_ended() {
        let ended = |first, second| State::Open.next(first).next(second);
        assert_eq!(ended(Input::EndSent, Input::EndReceived), State::Closed);
        assert_eq!(ended(Input::EndReceived, Input::EndSent), State::Closed);
        assert_eq!(ended(Input::EndSent, Input::EndSent), State::HalfClosedLocal);
    }
}
