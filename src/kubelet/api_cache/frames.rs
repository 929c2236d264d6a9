//! Splits the content of a watch into events: lines of JSON, or protobuf messages with their lengths. Pure.

use super::encoding::Encoding;

#[derive(Debug)]
pub(super) struct Frames {
    encoding: Encoding,
    unread: Vec<u8>,
    /// The first bytes of `unread`, which have no end of a line.
    searched: usize,
}

/// An event that is larger is not followed: etcd accepts objects up to 1.5 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

const MAX_FRAME_BYTES: usize = 2 << 20;

impl Frames {
    pub(super) fn new(encoding: Encoding) -> Self {
        Self { encoding, unread: Vec::new(), searched: 0 }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next event, once it is complete.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, TooLarge> {
        let (start, end) = match self.encoding {
            Encoding::Json => {
                let line_end = self.unread.iter().skip(self.searched).position(|byte| *byte == b'\n');
                let end = line_end.map(|at| self.searched + at + 1);
                self.searched = self.unread.len();
                (0, end.unwrap_or(usize::MAX))
            }
            Encoding::Protobuf => match self.unread.first_chunk::<4>() {
                None => return Ok(None),
                Some(length) => {
                    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| TooLarge)?;
                    (4, length.saturating_add(4))
                }
            },
        };
        if self.unread.len().min(end) > MAX_FRAME_BYTES || (end != usize::MAX && end > MAX_FRAME_BYTES) {
            return Err(TooLarge);
        }
        if end > self.unread.len() {
            return Ok(None);
        }
        let rest = self.unread.split_off(end);
        let frame = std::mem::replace(&mut self.unread, rest);
        self.searched = 0;
        Ok(Some(frame.get(start..).unwrap_or_default().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(encoding: Encoding, bytes: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let (mut frames, mut found) = (Frames::new(encoding), Vec::new());
        for piece in bytes.chunks(piece) {
            frames.receive(piece);
            while let Some(frame) = frames.next().unwrap() {
                found.push(frame);
            }
        }
        found
    }

    #[test]
    fn frames_do_not_depend_on_the_pieces() {
        for piece in 1..20 {
            assert_eq!(split(Encoding::Json, b"{\"a\":1}\n{}\n{", piece), [&b"{\"a\":1}\n"[..], b"{}\n"], "{piece}");
            let framed = b"\0\0\0\x02ab\0\0\0\x00\0\0\0\x01c\0\0";
            assert_eq!(split(Encoding::Protobuf, framed, piece), [&b"ab"[..], b"", b"c"], "{piece}");
        }
    }

    #[test]
    fn large_frame_is_refused() {
        let mut frames = Frames::new(Encoding::Protobuf);
        frames.receive(&[0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(frames.next(), Err(TooLarge));
        let mut frames = Frames::new(Encoding::Json);
        frames.receive(&vec![b' '; MAX_FRAME_BYTES + 1]);
        assert_eq!(frames.next(), Err(TooLarge));
    }
}
