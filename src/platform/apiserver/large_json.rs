//! Parses JSON on the blocking pool if it is large, so that a large object delays nothing on the executor's thread.

use serde_json::Value;

use crate::platform::rt;

/// Text up to this length is parsed at once.
const MAX_INLINE_JSON_BYTES: usize = 64 << 10;

pub(super) async fn parse(text: Vec<u8>) -> serde_json::Result<Value> {
    if text.len() <= MAX_INLINE_JSON_BYTES {
        return serde_json::from_slice(&text);
    }
    rt::blocking(move || serde_json::from_slice(&text)).await
}
