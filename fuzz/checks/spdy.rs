//! What a runtime's streaming server sends: the same events however the bytes are cut, and nothing is asked to be kept.
//!
//! The first byte says how the bytes are cut.

use coracle::protocol::spdy::{Event, Incoming, LONGEST};

pub(crate) fn check(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else { return };
    assert_eq!(hear(bytes, usize::MAX), hear(bytes, usize::from(*piece) + 1));
}

/// All that is told, data byte for byte, and whether it was SPDY to the end.
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
        assert!(unread.len() < LONGEST);
    }
    (told, true)
}
