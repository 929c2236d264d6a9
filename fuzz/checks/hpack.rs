//! Several header blocks for one decoder: decoded lists must round-trip.

use coracle::protocol::hpack::{Decoded, Decoder, Encoder};

const LIST: usize = 2000;

pub(crate) fn check(mut data: &[u8]) {
    let (mut decoder, mut encoder, mut second) = (Decoder::new(256, LIST), Encoder::new(256), Decoder::new(4096, LIST));
    // Each block is preceded by its length.
    while let Some((len, rest)) = data.split_first() {
        let (block, rest) = rest.split_at_checked(usize::from(*len)).unwrap_or((rest, &[]));
        data = rest;
        let Ok(Decoded { fields, .. }) = decoder.decode(block) else { return };
        assert!(fields.iter().map(|field| field.size()).sum::<usize>() <= LIST);
        encoder.peer_allows(usize::from(*len) * 4);
        let mut written = Vec::new();
        encoder.encode(&fields, &mut written);
        assert_eq!(second.decode(&written), Ok(Decoded { fields, cut: false }));
    }
}
