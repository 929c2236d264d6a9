//! Output of a runtime's streaming server: events must not depend on how it is split, and unread bytes must be bounded.
//!
//! The first byte is the piece size.

use coracle::protocol::spdy::{Event, Incoming, MAX_SPDY_HEADER_BYTES};

pub(crate) fn check(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else { return };
    assert_eq!(hear(bytes, usize::MAX), hear(bytes, usize::from(*piece) + 1));
}

/// All events, with data byte by byte, and whether all input was valid.
fn hear(bytes: &[u8], piece: usize) -> (Vec<String>, bool) {
    let (mut incoming, mut unread, mut told) = (Incoming::default(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        unread.extend_from_slice(piece);
        loop {
            let used = match incoming.take(&unread) {
                Ok(Some((event, used))) => {
                    match event {
                        Event::Other => {}
                        Event::Data { stream, bytes } => {
                            told.extend(bytes.iter().map(|byte| format!("{stream} {byte}")))
                        }
                        event => told.push(format!("{event:?}")),
                    }
                    used
                }
                Ok(None) => break,
                Err(_) => return (told, false),
            };
            unread.drain(..used);
        }
        assert!(unread.len() < MAX_SPDY_HEADER_BYTES);
    }
    (told, true)
}
