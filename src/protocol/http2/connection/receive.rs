//! Splits bytes into frames and dispatches them by type. Pure.

use std::time::Instant;

use super::super::error::{self, ErrorCode, Fault};
use super::super::frame::{Flags, Frame, Kind, take_frame};
use super::super::limits;
use super::super::stream_id::StreamId;
use super::{CLIENT_PREFACE, Connection, Ending, Error, Event, Greeting};

/// A received frame and the context of its handler.
pub(super) struct ReceivedFrame<'a> {
    pub(super) frame: Frame<'a>,
    pub(super) now: Instant,
    pub(super) events: &'a mut Vec<Event>,
}

impl Connection {
    /// Takes bytes from the peer, split anywhere, and appends the resulting events.
    ///
    /// After an error the connection is closed: `transmit` still returns the GOAWAY for the peer. Events from before
    /// the error remain valid.
    pub fn receive(&mut self, bytes: &[u8], now: Instant, events: &mut Vec<Event>) -> Result<(), Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let taken = self.take_frames(&input, now, events);
        if let Err(error) = taken {
            self.failed = Some(error);
            self.write_go_away(error.code);
            return Err(error);
        }
        let used = input.len() - taken.unwrap_or_default();
        if used < input.len() {
            input.drain(..used);
            self.input = input;
        }
        Ok(())
    }

    /// Handles every complete frame of `input`. Returns the number of bytes left over.
    fn take_frames(&mut self, input: &[u8], now: Instant, events: &mut Vec<Event>) -> Result<usize, Error> {
        let mut rest = input;
        if self.greeting == Greeting::Magic {
            let len = CLIENT_PREFACE.len().min(rest.len());
            let (magic, after) = rest.split_at_checked(len).unwrap_or_default();
            if !CLIENT_PREFACE.starts_with(magic) {
                return Err(error::protocol("invalid connection preface"));
            }
            if len < CLIENT_PREFACE.len() {
                return Ok(rest.len());
            }
            self.greeting = Greeting::Settings;
            rest = after;
        }
        while let Some((frame, after)) = take_frame(rest)? {
            rest = after;
            match self.on_frame(ReceivedFrame { frame, now, events }) {
                Ok(()) => {}
                Err(Fault::Connection(error)) => return Err(error),
                Err(Fault::Stream(id, code, violation)) => self.end_faulty(id, code, violation, now, events)?,
            }
        }
        Ok(rest.len())
    }

    fn on_frame(&mut self, arrival: ReceivedFrame<'_>) -> Result<(), Fault> {
        let Frame { kind, flags, stream, payload } = arrival.frame;
        if self.greeting == Greeting::Settings {
            if kind != Kind::SETTINGS || flags.has(Flags::ACK) {
                return Err(error::protocol("first frame is not SETTINGS").into());
            }
            self.greeting = Greeting::Done;
            arrival.events.push(Event::Ready);
        }
        if self.block.is_some() && kind != Kind::CONTINUATION {
            return Err(error::protocol("frame inside a header block").into());
        }
        match kind {
            Kind::DATA => self.on_data(arrival),
            Kind::HEADERS => self.on_headers(arrival),
            Kind::PRIORITY => {
                // PRIORITY is deprecated, but its form must still be checked (RFC 9113 section 6.3).
                if stream == StreamId::CONNECTION {
                    return Err(error::protocol("PRIORITY without a stream").into());
                }
                if payload.len() != 5 {
                    return Err(Fault::Stream(stream, ErrorCode::FRAME_SIZE_ERROR, "PRIORITY with a wrong length"));
                }
                Ok(self.flood.idle_frame(arrival.frame.payload.len(), arrival.now)?)
            }
            Kind::RST_STREAM => self.on_reset(arrival),
            Kind::SETTINGS => Ok(self.on_settings(arrival)?),
            Kind::PUSH_PROMISE => Err(error::protocol("PUSH_PROMISE although push is disabled").into()),
            Kind::PING => Ok(self.on_ping(arrival)?),
            Kind::GOAWAY => Ok(self.on_go_away(arrival)?),
            Kind::WINDOW_UPDATE => self.on_window_update(arrival),
            Kind::CONTINUATION => self.on_continuation(arrival),
            // RFC 9113 section 5.5: unknown frames are ignored.
            _ => Ok(self.flood.idle_frame(arrival.frame.payload.len(), arrival.now)?),
        }
    }

    /// Resets a stream on which the peer violated the protocol, and reports it if the user knew the stream.
    fn end_faulty(
        &mut self,
        id: StreamId,
        code: ErrorCode,
        violation: &'static str,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        self.flood.idle_frame(0, now)?;
        if self.remove(id).is_some() {
            events.push(Event::Reset { stream: id, ending: Ending::Violation(violation) });
        }
        self.write_reset(id, code);
        self.count_reply()
    }

    /// Counts answers to the peer's frames, to detect a peer that does not read them.
    pub(super) fn count_reply(&mut self) -> Result<(), Error> {
        self.answers += 1;
        if self.answers > limits::MAX_UNREAD_ANSWERS {
            return Err(error::too_much("peer does not read the answers to its frames"));
        }
        Ok(())
    }
}
