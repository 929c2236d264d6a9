//! Percent-encoding of grpc-message. Pure.

/// Leaves malformed escapes as they are, and replaces invalid UTF-8.
pub(super) fn decode(coded: &[u8]) -> String {
    let mut plain = Vec::with_capacity(coded.len());
    let mut rest = coded;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let escaped = match after {
            [high, low, after @ ..] if *first == b'%' => digit(*high).zip(digit(*low)).map(|pair| (pair, after)),
            _ => None,
        };
        match escaped {
            Some(((high, low), after)) => {
                plain.push(high << 4 | low);
                rest = after;
            }
            None => plain.push(*first),
        }
    }
    match String::from_utf8(plain) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

pub(super) fn encode(plain: &str) -> Vec<u8> {
    let mut coded = Vec::with_capacity(plain.len());
    for &byte in plain.as_bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            coded.push(byte);
        } else {
            coded.extend([b'%', hex(byte >> 4), hex(byte & 0xf)]);
        }
    }
    coded
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        b'A'..=b'F' => Some(character - b'A' + 10),
        _ => None,
    }
}

fn hex(digit: u8) -> u8 {
    if digit < 10 { b'0' + digit } else { b'A' + digit - 10 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_round_trips() {
        let all: String = ('\0'..='\u{2ff}').collect();
        let coded = encode(&all);
        assert!(coded.iter().all(|byte| matches!(byte, b' '..=b'~')));
        assert_eq!(decode(&coded), all);
    }

    #[test]
    fn lower_case_digits_are_accepted() {
        assert_eq!(decode(b"a%c3%A9b"), "a\u{e9}b");
    }

    #[test]
    fn malformed_escape_stays_as_it_is() {
        assert_eq!(decode(b"100%"), "100%");
        assert_eq!(decode(b"%4"), "%4");
        assert_eq!(decode(b"%zz%41"), "%zzA");
    }

    #[test]
    fn invalid_utf_8_is_replaced() {
        assert_eq!(decode(b"a%FFb"), "a\u{fffd}b");
    }
}
