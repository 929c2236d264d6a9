//! Writes frames: control frames first, then the streams in turn as their windows allow. Pure.

use super::super::frame::{Flags, Kind, write_frame};
use super::super::limits;
use super::super::stream::{Input, State, Stream};
use super::super::stream_id::StreamId;
use super::Connection;
use crate::protocol::hpack::{Encoder, Field};

impl Connection {
    /// Appends the next bytes to send to `out`: nothing if nothing may be sent, otherwise little more than one large
    /// frame, so that a caller who writes between calls queues little.
    pub fn transmit(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        out.append(&mut self.control);
        self.control = Vec::new();
        self.answers = 0;
        if self.failed.is_none() {
            self.send_streams(start, out);
        }
        self.transmitted += count(out.len() - start);
    }

    fn send_streams(&mut self, start: usize, out: &mut Vec<u8>) {
        self.send_waiting(start, out);
        // Each pass sends one frame per stream; the loop ends when no stream has anything to send.
        let mut silent = 0;
        while silent < self.streams.len() && out.len() - start < limits::TRANSMIT_BYTES {
            let before = out.len();
            self.next_sender = if self.next_sender < self.streams.len() { self.next_sender } else { 0 };
            self.send_one(self.next_sender, out);
            silent = if out.len() > before { 0 } else { silent + 1 };
            if self.streams.get(self.next_sender).is_some_and(|stream| stream.state == State::Closed) {
                self.streams.remove(self.next_sender);
                self.flood.stream_completed();
            } else {
                self.next_sender += 1;
            }
        }
    }

    /// Starts waiting streams in order of their ids, as many as the peer allows.
    fn send_waiting(&mut self, start: usize, out: &mut Vec<u8>) {
        let begun = |stream: &&Stream| self.is_own(stream.id) && stream.state != State::Waiting;
        let open = self.streams.iter().filter(begun).count();
        let most = usize::try_from(self.peer.max_streams).unwrap_or(usize::MAX);
        let waiting = self.streams.iter_mut().filter(|stream| stream.state == State::Waiting);
        for stream in waiting.take(most.saturating_sub(open)) {
            let len = out.len() - start;
            if len >= limits::TRANSMIT_BYTES {
                return;
            }
            stream.sent_from = Some(self.transmitted + count(len));
            stream.state = stream.state.next(Input::HeadSent);
            send_head(stream, self.peer.max_frame, &mut self.encoder, out);
        }
    }

    /// Sends what the stream at `index` may send, at most one DATA frame.
    fn send_one(&mut self, index: usize, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(index) else { return };
        if !stream.state.may_send() {
            return;
        }
        let max_frame = self.peer.max_frame;
        if send_head(stream, max_frame, &mut self.encoder, out) {
            return;
        }
        let window = self.send_window.available().min(stream.send_window.available()).min(max_frame);
        let outgoing = &mut stream.outgoing;
        let len = outgoing.unsent().len().min(window);
        let is_last = outgoing.end && len == outgoing.unsent().len();
        if is_last && len == 0 {
            if let Some(fields) = outgoing.trailers.take() {
                write_block(stream.id, &fields, true, max_frame, &mut self.encoder, out);
                stream.state = stream.state.next(Input::EndSent);
                return;
            }
        }
        let end = is_last && outgoing.trailers.is_none();
        if len == 0 && !end {
            return;
        }
        let content = outgoing.unsent().get(..len).unwrap_or_default();
        write_frame(Kind::DATA, Flags::NONE.and(Flags::END_STREAM, end), stream.id, content, out);
        outgoing.mark_sent(len);
        let counted = u32::try_from(len).unwrap_or(u32::MAX);
        self.send_window.spend(counted);
        self.flood.content_sent();
        stream.send_window.spend(counted);
        if end {
            stream.state = stream.state.next(Input::EndSent);
        }
    }
}

/// Sends the stream's head if it is pending; `true` if that ended the stream.
fn send_head(stream: &mut Stream, max_frame: usize, encoder: &mut Encoder, out: &mut Vec<u8>) -> bool {
    let outgoing = &mut stream.outgoing;
    let Some(fields) = outgoing.head.take() else { return false };
    let end = outgoing.end && outgoing.unsent().is_empty() && outgoing.trailers.is_none();
    write_block(stream.id, &fields, end, max_frame, encoder, out);
    if end {
        stream.state = stream.state.next(Input::EndSent);
    }
    end
}

/// Writes a header list as HEADERS and as many CONTINUATION frames as needed.
fn write_block(
    id: StreamId,
    fields: &[Field],
    end_stream: bool,
    max_frame: usize,
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
) {
    let mut block = Vec::new();
    encoder.encode(fields, &mut block);
    let mut kind = Kind::HEADERS;
    let mut flags = Flags::NONE.and(Flags::END_STREAM, end_stream);
    let mut rest = &*block;
    loop {
        let (part, later) = rest.split_at_checked(max_frame).unwrap_or((rest, &[]));
        write_frame(kind, flags.and(Flags::END_HEADERS, later.is_empty()), id, part, out);
        if later.is_empty() {
            return;
        }
        (kind, flags, rest) = (Kind::CONTINUATION, Flags::NONE, later);
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
