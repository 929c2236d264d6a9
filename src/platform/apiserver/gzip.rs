//! Decompresses responses. Pure.

use std::io::Read;

use flate2::bufread::MultiGzDecoder;

use super::ApiError;

/// The content; an error if it has more than `limit` bytes.
pub(super) fn inflate(bytes: &[u8], limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut content = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = MultiGzDecoder::new(bytes).take(most).read_to_end(&mut content);
    read.map_err(|error| ApiError::Malformed(format!("gzip: {error}").into()))?;
    if content.len() > limit {
        return Err(ApiError::Malformed(format!("longer than {limit} bytes").into()));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn content_round_trips() {
        let content = b"pods ".repeat(1000);
        assert_eq!(inflate(&gzip(&content), 5000).unwrap(), content);
    }

    #[test]
    fn truncated_damaged_or_long_content_is_an_error() {
        let zipped = gzip(&b"pods ".repeat(1000));
        assert!(inflate(&zipped, 4999).unwrap_err().to_string().ends_with("longer than 4999 bytes"));
        assert!(inflate(&zipped[..zipped.len() - 1], 5000).is_err());
        assert!(inflate(b"{}", 5000).is_err());
        let mut damaged = zipped;
        let checksum = damaged.len() - 8;
        damaged[checksum] ^= 1;
        assert!(inflate(&damaged, 5000).is_err());
    }
}
