//! HEADERS and CONTINUATION (RFC 9113 sections 6.2 and 6.10). Pure.

use std::time::Instant;

use super::super::error::{self, Error, ErrorCode, Fault};
use super::super::fields::{self, BlockKind};
use super::super::frame::{Flags, unpad};
use super::super::limits;
use super::super::stream::{State, Stream};
use super::super::stream_id::StreamId;
use super::receive::ReceivedFrame;
use super::{Connection, Event, Role};
use crate::protocol::hpack::Field;

/// An incomplete header block.
#[derive(Debug)]
pub(super) struct Block {
    stream: StreamId,
    end_stream: bool,
    bytes: Vec<u8>,
    continuations: u32,
}

/// A decoded header list, and its size: decoded or compressed, whichever is larger.
struct ReceivedList {
    fields: Vec<Field>,
    size: usize,
}

impl Connection {
    pub(super) fn on_headers(&mut self, arrival: ReceivedFrame<'_>) -> Result<(), Fault> {
        let (id, flags) = (arrival.frame.stream, arrival.frame.flags);
        if id == StreamId::CONNECTION {
            return Err(error::protocol("HEADERS without a stream").into());
        }
        // Only clients open streams, as push is disabled.
        if self.is_idle(id) && (self.role == Role::Client || self.is_own(id)) {
            return Err(error::protocol("HEADERS on a stream that the peer may not open").into());
        }
        let mut fragment = unpad(&arrival.frame)?;
        if flags.has(Flags::PRIORITY) {
            fragment = fragment.get(5..).ok_or(error::frame_size("HEADERS too short for its priority"))?;
        }
        let end_stream = flags.has(Flags::END_STREAM);
        if flags.has(Flags::END_HEADERS) {
            return self.on_block(id, end_stream, fragment, arrival.now, arrival.events);
        }
        self.block = Some(Block { stream: id, end_stream, bytes: fragment.to_vec(), continuations: 0 });
        Ok(())
    }

    pub(super) fn on_continuation(&mut self, arrival: ReceivedFrame<'_>) -> Result<(), Fault> {
        let Some(mut block) = self.block.take().filter(|block| block.stream == arrival.frame.stream) else {
            return Err(error::protocol("CONTINUATION without its HEADERS").into());
        };
        block.bytes.extend_from_slice(arrival.frame.payload);
        block.continuations += 1;
        if block.bytes.len() > limits::MAX_HEADER_BLOCK_BYTES || block.continuations > limits::MAX_CONTINUATION_FRAMES {
            return Err(error::too_much("header block too long").into());
        }
        if arrival.frame.flags.has(Flags::END_HEADERS) {
            return self.on_block(block.stream, block.end_stream, &block.bytes, arrival.now, arrival.events);
        }
        self.block = Some(block);
        Ok(())
    }

    /// Handles a complete header block. It is decoded even if its stream is gone, to keep the tables in step.
    fn on_block(
        &mut self,
        id: StreamId,
        end: bool,
        block: &[u8],
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        let decoded = self.decoder.decode(block).map_err(|_| Error {
            code: ErrorCode::COMPRESSION_ERROR,
            violation: "header block cannot be decompressed",
        })?;
        let size = block.len().max(decoded.fields.iter().map(Field::size).sum());
        let is_new = self.is_idle(id);
        if is_new {
            self.last_of_peer = id;
        }
        let handled = if decoded.cut {
            Err(Fault::Stream(id, ErrorCode::ENHANCE_YOUR_CALM, "header list too long"))
        } else if is_new {
            self.on_request(id, end, decoded.fields, events)
        } else if self.stream(id).is_some() {
            self.on_later_block(id, end, ReceivedList { fields: decoded.fields, size }, now, events)
        } else {
            // A stream that this side has reset, of which the peer did not know yet.
            Ok(self.flood.idle_frame(size, now)?)
        };
        if let Err(Fault::Stream(..)) = handled {
            self.flood.idle_frame(size, now)?;
        }
        handled
    }

    fn on_request(&mut self, id: StreamId, end: bool, list: Vec<Field>, events: &mut Vec<Event>) -> Result<(), Fault> {
        let most = usize::try_from(limits::MAX_OPEN_STREAMS).unwrap_or(usize::MAX);
        if self.refuses_new || self.streams.len() >= most {
            // As Go's server: a client that knows the limit is to keep to it (RFC 9113 section 5.1.2).
            let is_fault = self.is_acked && !self.refuses_new;
            let code = if is_fault { ErrorCode::PROTOCOL_ERROR } else { ErrorCode::REFUSED_STREAM };
            return Err(Fault::Stream(id, code, "stream refused"));
        }
        let malformed = |violation| Fault::Stream(id, ErrorCode::PROTOCOL_ERROR, violation);
        fields::check(&list, BlockKind::Request).map_err(malformed)?;
        let mut stream = Stream::new(id, State::Open, self.peer.initial_window);
        stream.receive_head(&list, end).map_err(malformed)?;
        self.streams.push(stream);
        events.push(Event::Head { stream: id, fields: list, end });
        Ok(())
    }

    fn on_later_block(
        &mut self,
        id: StreamId,
        end: bool,
        ReceivedList { fields: list, size }: ReceivedList,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        let malformed = |violation| Fault::Stream(id, ErrorCode::PROTOCOL_ERROR, violation);
        let Some(stream) = self.stream(id) else { return Ok(()) };
        if !stream.state.may_receive() {
            return Err(Fault::Stream(id, ErrorCode::STREAM_CLOSED, "HEADERS after the end of its stream"));
        }
        if stream.head_received {
            fields::check(&list, BlockKind::Trailers).map_err(malformed)?;
            if !end {
                return Err(malformed("trailers without END_STREAM"));
            }
            stream.receive_content(0, true).map_err(malformed)?;
            events.push(Event::Trailers { stream: id, fields: list });
        } else {
            fields::check(&list, BlockKind::Response).map_err(malformed)?;
            if fields::is_informational(&list) {
                if end {
                    return Err(malformed("informational response with END_STREAM"));
                }
                if !stream.takes_informational(size) {
                    return Err(Fault::Stream(id, ErrorCode::ENHANCE_YOUR_CALM, "informational responses too long"));
                }
                return Ok(self.flood.idle_frame(size, now)?);
            }
            stream.receive_head(&list, end).map_err(malformed)?;
            events.push(Event::Head { stream: id, fields: list, end });
        }
        self.drop_closed(id);
        Ok(())
    }
}
