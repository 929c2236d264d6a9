//! DATA (RFC 9113 section 6.1). Pure.

use super::super::error::{self, ErrorCode, Fault};
use super::super::frame::{Flags, unpad};
use super::super::stream_id::StreamId;
use super::receive::ReceivedFrame;
use super::{Connection, Event};

impl Connection {
    pub(super) fn on_data(&mut self, arrival: ReceivedFrame<'_>) -> Result<(), Fault> {
        let (id, flags) = (arrival.frame.stream, arrival.frame.flags);
        if id == StreamId::CONNECTION {
            return Err(error::protocol("DATA without a stream").into());
        }
        if self.is_idle(id) {
            return Err(error::protocol("DATA on an idle stream").into());
        }
        // Padding counts against the windows as well.
        let counted = u32::try_from(arrival.frame.payload.len()).unwrap_or(u32::MAX);
        self.receive_window.take(counted).map_err(|_| error::flow_control("DATA beyond the connection's window"))?;
        // Per-stream windows and the limit on streams bound the memory. The connection's window is reopened at once, so
        // that a slow reader of one stream does not block the others.
        if let Some(increment) = self.receive_window.consume(counted) {
            self.write_window_update(StreamId::CONNECTION, increment);
        }
        let data = unpad(&arrival.frame)?;
        let Some(stream) = self.stream(id) else {
            // A stream that this side has reset, of which the peer did not know yet.
            return Ok(self.flood.idle_frame(arrival.frame.payload.len(), arrival.now)?);
        };
        if !stream.state.may_receive() {
            return Err(Fault::Stream(id, ErrorCode::STREAM_CLOSED, "DATA after the end of its stream"));
        }
        if !stream.head_received {
            return Err(Fault::Stream(id, ErrorCode::PROTOCOL_ERROR, "DATA before the response"));
        }
        let window = &mut stream.receive_window;
        let beyond = Fault::Stream(id, ErrorCode::FLOW_CONTROL_ERROR, "DATA beyond its stream's window");
        window.take(counted).map_err(|_| beyond)?;
        let end = flags.has(Flags::END_STREAM);
        let malformed = |violation| Fault::Stream(id, ErrorCode::PROTOCOL_ERROR, violation);
        stream.receive_content(data.len(), end).map_err(malformed)?;
        self.consume(id, arrival.frame.payload.len() - data.len());
        if data.is_empty() && !end {
            return Ok(self.flood.idle_frame(arrival.frame.payload.len(), arrival.now)?);
        }
        arrival.events.push(Event::Data { stream: id, data: data.to_vec(), end });
        self.drop_closed(id);
        Ok(())
    }
}
