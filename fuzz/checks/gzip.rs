//! What is read is what flate2's own reader reads, in pieces of any size.

use std::io::Read;

use coracle::protocol::gzip::GzipReader;
use flate2::bufread::MultiGzDecoder;

/// Much longer content comes from small inputs.
const LONGEST: u64 = 1 << 20;

pub(crate) fn check(data: &[u8]) {
    let mut whole = Vec::new();
    let read = GzipReader::new(data).take(LONGEST).read_to_end(&mut whole);
    let size = data.first().map_or(1, |byte| usize::from(*byte).max(1));
    let (mut reader, mut piece, mut pieces) = (GzipReader::new(data).take(LONGEST), vec![0; size], Vec::new());
    let again = loop {
        match reader.read(&mut piece) {
            Ok(0) => break Ok(pieces.len()),
            Ok(count) => pieces.extend_from_slice(&piece[..count]),
            Err(error) => break Err(error.kind()),
        }
    };
    assert_eq!(again, read.as_ref().map(|count| *count).map_err(std::io::Error::kind));
    assert!(pieces == whole);
    if read.is_ok() {
        let mut expected = Vec::new();
        MultiGzDecoder::new(data).take(LONGEST).read_to_end(&mut expected).expect("flate2 reads it as well");
        assert!(whole == expected);
    }
}
