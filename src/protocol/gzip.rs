//! Reads gzip (RFC 1952): members one after the other, each with the CRC-32 and the length of its content. Pure.
//!
//! flate2's own reader brings 16 KB of tables for the CRC.

use std::io::{self, BufRead, Read};

use flate2::{Decompress, FlushDecompress, Status};

use crate::protocol::crc32::Crc32;

/// The content of the members in `source`.
#[derive(Debug)]
pub struct GzipReader<R> {
    source: R,
    inflate: Decompress,
    next: Next,
    /// Of the content of this member.
    crc: Crc32,
    /// Modulo 2^32.
    length: u32,
}

/// What comes next in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    FirstMember,
    Content,
    Trailer,
    /// Or the end.
    Member,
}

const MAGIC: [u8; 3] = [0x1f, 0x8b, DEFLATE];
const DEFLATE: u8 = 8;
/// Flags of the header.
const HEADER_CRC: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const RESERVED: u8 = 0xe0;
/// Longest name or comment.
const LONGEST_TEXT: usize = 64 << 10;

impl<R: BufRead> GzipReader<R> {
    /// Reads nothing yet.
    pub fn new(source: R) -> Self {
        let (inflate, crc) = (Decompress::new(false), Crc32::default());
        Self { source, inflate, next: Next::FirstMember, crc, length: 0 }
    }

    fn header(&mut self) -> io::Result<()> {
        // The CRC of the header is that of the bytes before it.
        self.crc = Crc32::default();
        let [magic_1, magic_2, method, flags, _time @ .., _extra_flags, _system] = self.take::<10>()?;
        if [magic_1, magic_2, method] != MAGIC || flags & RESERVED != 0 {
            return Err(invalid("invalid gzip header"));
        }
        if flags & EXTRA != 0 {
            for _ in 0..u16::from_le_bytes(self.take()?) {
                self.take::<1>()?;
            }
        }
        for flag in [NAME, COMMENT] {
            let mut left = LONGEST_TEXT;
            while flags & flag != 0 && self.take()? != [0] {
                left = left.checked_sub(1).ok_or_else(|| invalid("gzip header is too long"))?;
            }
        }
        if flags & HEADER_CRC != 0 {
            let [low, high, ..] = self.crc.sum().to_le_bytes();
            if self.take()? != [low, high] {
                return Err(invalid("gzip header has a wrong checksum"));
            }
        }
        self.inflate.reset(false);
        (self.crc, self.length) = (Crc32::default(), 0);
        Ok(())
    }

    /// The next bytes of the content; 0 at the end of the member.
    fn content(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let input = self.source.fill_buf()?;
            let is_end = input.is_empty();
            let (used, given) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(input, out, FlushDecompress::None);
            let status = status.map_err(|_| invalid("corrupt deflate stream"))?;
            let count = |before: u64, after: u64| usize::try_from(after.saturating_sub(before)).unwrap_or(usize::MAX);
            let used = count(used, self.inflate.total_in());
            let given = count(given, self.inflate.total_out());
            self.source.consume(used);
            let content = out.get(..given).unwrap_or_default();
            self.crc.update(content);
            self.length = self.length.wrapping_add(u32::try_from(given).unwrap_or_default());
            match status {
                Status::StreamEnd => self.next = Next::Trailer,
                Status::Ok | Status::BufError if given > 0 => {}
                Status::Ok | Status::BufError if is_end => return Err(io::ErrorKind::UnexpectedEof.into()),
                Status::Ok | Status::BufError if used == 0 => return Err(invalid("corrupt deflate stream")),
                Status::Ok | Status::BufError => continue,
            }
            return Ok(given);
        }
    }

    fn trailer(&mut self) -> io::Result<()> {
        let (crc, length) = (self.crc.sum(), self.length);
        if self.take()? != crc.to_le_bytes() || self.take()? != length.to_le_bytes() {
            return Err(invalid("gzip content has a wrong checksum"));
        }
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        self.crc.update(&bytes);
        Ok(bytes)
    }
}

impl<R: BufRead> Read for GzipReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !out.is_empty() {
            match self.next {
                Next::Member if self.source.fill_buf()?.is_empty() => break,
                Next::FirstMember | Next::Member => {
                    self.header()?;
                    self.next = Next::Content;
                }
                Next::Content => match self.content(out)? {
                    0 => {}
                    count => return Ok(count),
                },
                Next::Trailer => {
                    self.trailer()?;
                    self.next = Next::Member;
                }
            }
        }
        Ok(0)
    }
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Write};

    use flate2::write::GzEncoder;
    use flate2::{Compression, GzBuilder};

    use super::*;

    /// Hands out a few bytes at a time.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(out.len());
            self.0.read(&mut out[..most])
        }
    }

    fn member(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn read(zipped: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        GzipReader::new(zipped).read_to_end(&mut content).map(|_| content)
    }

    fn content() -> Vec<u8> {
        (0..200_000_u32).flat_map(|number| (number / 7 * 31 % 1013).to_le_bytes()).collect()
    }

    #[test]
    fn members_are_read_one_after_the_other_in_pieces_of_any_size() {
        let content = content();
        let (first, rest) = content.split_at(123_457);
        let zipped = [member(first), member(b""), member(rest)].concat();
        for size in [1, 2, 7, 1000, usize::MAX] {
            let mut reader = GzipReader::new(BufReader::with_capacity(size.min(4096), Pieces(&zipped, size)));
            let mut found = Vec::new();
            reader.read_to_end(&mut found).unwrap();
            assert!(found == content, "pieces of {size}");
            assert_eq!(reader.read(&mut [0; 9]).unwrap(), 0);
        }
        let mut reader = GzipReader::new(&*zipped);
        assert_eq!(reader.read(&mut []).unwrap(), 0);
        let (mut found, mut small) = (Vec::new(), [0; 3]);
        while let count @ 1.. = reader.read(&mut small).unwrap() {
            found.extend_from_slice(&small[..count]);
        }
        assert!(found == content);
    }

    #[test]
    fn optional_fields_of_the_header_are_skipped_and_its_checksum_is_verified() {
        let header = GzBuilder::new().filename("name").comment("comment").extra(vec![0, 1, 2]).mtime(7);
        let mut encoder = header.write(Vec::new(), Compression::fast());
        encoder.write_all(b"content").unwrap();
        let zipped = encoder.finish().unwrap();
        assert_eq!(read(&zipped).unwrap(), b"content");
        let (head, deflated) = zipped.split_at(10 + 2 + 3 + "name\0comment\0".len());
        let mut head = head.to_vec();
        head[3] |= HEADER_CRC;
        let sum = Crc32::of(&head).to_le_bytes();
        assert_eq!(read(&[&*head, &sum[..2], deflated].concat()).unwrap(), b"content");
        let wrong = read(&[&*head, &[sum[0], sum[1] ^ 1], deflated].concat()).unwrap_err();
        assert_eq!(wrong.to_string(), "gzip header has a wrong checksum");
    }

    #[test]
    fn damage_is_an_error() {
        let zipped = member(b"content");
        for (at, flips, expected) in [
            (0, 1, "invalid gzip header"),
            (1, 1, "invalid gzip header"),
            (2, 1, "invalid gzip header"),
            (3, RESERVED, "invalid gzip header"),
            (10, 6, "corrupt deflate stream"),
            (zipped.len() - 8, 1, "gzip content has a wrong checksum"),
            (zipped.len() - 1, 1, "gzip content has a wrong checksum"),
        ] {
            let mut damaged = zipped.clone();
            damaged[at] ^= flips;
            assert_eq!(read(&damaged).unwrap_err().to_string(), expected, "byte {at}");
        }
        assert_eq!(read(&[&*zipped, b"more"].concat()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read(&[&*zipped, &[0; 20]].concat()).unwrap_err().to_string(), "invalid gzip header");
        let endless = [&[0x1f, 0x8b, 8, NAME, 0, 0, 0, 0, 0, 0], &vec![b'n'; LONGEST_TEXT + 9][..]].concat();
        assert_eq!(read(&endless).unwrap_err().to_string(), "gzip header is too long");
    }

    #[test]
    fn every_truncation_is_an_error() {
        let header = GzBuilder::new().filename("name").extra(vec![0, 1, 2]);
        let mut encoder = header.write(Vec::new(), Compression::best());
        encoder.write_all(&content()[..1000]).unwrap();
        let zipped = encoder.finish().unwrap();
        for length in 0..zipped.len() {
            assert_eq!(read(&zipped[..length]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{length} bytes");
        }
    }
}
