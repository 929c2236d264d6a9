//! PING, GOAWAY, RST_STREAM and WINDOW_UPDATE (RFC 9113 sections 6.4 and 6.7 to 6.9). Pure.

use super::super::error::{self, Error, ErrorCode, Fault};
use super::super::frame::{Flags, Kind, write_frame};
use super::super::stream::State;
use super::super::stream_id::StreamId;
use super::receive::ReceivedFrame;
use super::{Connection, Ending, Event};

impl Connection {
    pub(super) fn on_ping(&mut self, arrival: ReceivedFrame<'_>) -> Result<(), Error> {
        if arrival.frame.stream != StreamId::CONNECTION {
            return Err(error::protocol("PING on a stream"));
        }
        if arrival.frame.payload.len() != 8 {
            return Err(error::frame_size("PING with a wrong length"));
        }
        self.flood.idle_frame(arrival.frame.payload.len(), arrival.now)?;
        if arrival.frame.flags.has(Flags::ACK) {
            return Ok(());
        }
        write_frame(Kind::PING, Flags::ACK, StreamId::CONNECTION, arrival.frame.payload, &mut self.control);
        self.count_reply()
    }

    pub(super) fn on_go_away(&mut self, arrival: ReceivedFrame<'_>) -> Result<(), Error> {
        if arrival.frame.stream != StreamId::CONNECTION {
            return Err(error::protocol("GOAWAY on a stream"));
        }
        let Some((&[s, t, u, v, a, b, c, d], _)) = arrival.frame.payload.split_first_chunk::<8>() else {
            return Err(error::frame_size("GOAWAY too short"));
        };
        self.flood.idle_frame(arrival.frame.payload.len(), arrival.now)?;
        let last = StreamId::read([s, t, u, v]);
        self.refused_new = true;
        arrival.events.push(Event::GoAway { code: ErrorCode(u32::from_be_bytes([a, b, c, d])) });
        // A later GOAWAY may lower the last stream, and never revives streams that this one has ended.
        let mut kept = Vec::new();
        for stream in std::mem::take(&mut self.streams) {
            if self.is_own(stream.id) && (stream.id > last || stream.state == State::Waiting) {
                arrival.events.push(Event::Reset { stream: stream.id, ending: Ending::NotProcessed });
            } else {
                kept.push(stream);
            }
        }
        self.streams = kept;
        Ok(())
    }

    pub(super) fn on_reset(&mut self, arrival: ReceivedFrame<'_>) -> Result<(), Fault> {
        let id = arrival.frame.stream;
        let &[a, b, c, d] = arrival.frame.payload else {
            return Err(error::frame_size("RST_STREAM with a wrong length").into());
        };
        if id == StreamId::CONNECTION || self.is_idle(id) {
            return Err(error::protocol("RST_STREAM on an idle stream").into());
        }
        self.flood.idle_frame(arrival.frame.payload.len(), arrival.now)?;
        if self.remove(id).is_some() {
            let ending = match ErrorCode(u32::from_be_bytes([a, b, c, d])) {
                ErrorCode::REFUSED_STREAM => Ending::NotProcessed,
                code => Ending::ByPeer(code),
            };
            arrival.events.push(Event::Reset { stream: id, ending });
        }
        Ok(())
    }

    pub(super) fn on_window_update(&mut self, arrival: ReceivedFrame<'_>) -> Result<(), Fault> {
        let id = arrival.frame.stream;
        let &[a, b, c, d] = arrival.frame.payload else {
            return Err(error::frame_size("WINDOW_UPDATE with a wrong length").into());
        };
        self.flood.idle_frame(arrival.frame.payload.len(), arrival.now)?;
        let increment = u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff;
        if id == StreamId::CONNECTION {
            if increment == 0 {
                return Err(error::protocol("WINDOW_UPDATE with an increment of 0").into());
            }
            let widened = self.send_window.widen(i64::from(increment));
            return Ok(widened.map_err(|_| error::flow_control("connection's window too large"))?);
        }
        if self.is_idle(id) {
            return Err(error::protocol("WINDOW_UPDATE on an idle stream").into());
        }
        let Some(stream) = self.stream(id) else { return Ok(()) };
        if increment == 0 {
            return Err(Fault::Stream(id, ErrorCode::PROTOCOL_ERROR, "WINDOW_UPDATE with an increment of 0"));
        }
        let too_large = Fault::Stream(id, ErrorCode::FLOW_CONTROL_ERROR, "stream's window too large");
        stream.send_window.widen(i64::from(increment)).map_err(|_| too_large)
    }
}
