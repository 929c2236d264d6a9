use super::random::Random;
use super::*;
use crate::types::sorted::SortedMap;

open_enum! {
    pub(super) enum Colour {
        Red = 0,
        Green = 1,
        Blue = 2,
    }
}

message! {
    struct Everything {
        1 => small: i32,
        2 => text: String,
        3 => inner: Option<Inner>,
        4 => numbers: Vec<i32>,
        5 => long_numbers: Vec<i64>,
        6 => map: SortedMap<String, String>,
        7 => colour: Colour,
        8 => wrapped: Option<i64>,
        9 => wrapped_unsigned: Option<u64>,
        10 => texts: Vec<String>,
        11 => bytes: Vec<u8>,
        12 => fraction: f64,
        13 => flag: bool,
        14 => unsigned: u32,
        15 => long_unsigned: u64,
        16 => long: i64,
        17 => list: Vec<Inner>,
    }

    struct Inner {
        1 => small: i32,
        2 => text: String,
    }

    struct Node {
        1 => number: i64,
        2 => children: Vec<Node>,
    }

    /// Small on the wire when empty, and large in memory.
    struct Wide {
        1 => a: Everything,
        2 => rows: Vec<Wide>,
    }
}

impl Field for Everything {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        put_message(number, self, out);
    }

    fn slot(&mut self) -> Option<Slot<'_>> {
        Some(Slot::Message(self))
    }

    fn json(&self) -> Option<serde_json::Value> {
        Some(Message::json(self))
    }
}

fn read(bytes: &[u8]) -> Result<Everything, DecodeError> {
    decode(bytes)
}

/// Asserts that `message` encodes to `bytes` and back.
#[track_caller]
fn vector(message: &Everything, bytes: &[u8]) {
    assert_eq!(encode(message), bytes);
    assert_eq!(read(bytes).as_ref(), Ok(message));
}

#[test]
fn examples_of_the_encoding_guide() {
    vector(&Everything { small: 150, ..Everything::default() }, &[0x08, 0x96, 0x01]);
    vector(&Everything { text: "testing".to_owned(), ..Everything::default() }, b"\x12\x07testing");
    let inner = Inner { small: 150, text: String::new() };
    vector(&Everything { inner: Some(inner), ..Everything::default() }, &[0x1a, 0x03, 0x08, 0x96, 0x01]);
    let numbers = vec![3, 270, 86942];
    vector(&Everything { numbers, ..Everything::default() }, &[0x22, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
}

#[test]
fn defaults_are_omitted_and_presence_is_kept() {
    vector(&Everything::default(), &[]);
    let present = Everything { inner: Some(Inner::default()), wrapped: Some(0), ..Everything::default() };
    vector(&present, &[0x1a, 0x00, 0x42, 0x00]);
    vector(&Everything { texts: vec![String::new()], ..Everything::default() }, &[0x52, 0x00]);
}

#[test]
fn negative_numbers_take_ten_bytes() {
    let minus_one = b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    vector(&Everything { small: -1, ..Everything::default() }, minus_one);
    // Some senders truncate a negative int32 to 32 bits.
    assert_eq!(read(b"\x08\xff\xff\xff\xff\x0f").unwrap().small, -1);
    // A 32-bit field keeps the low bits of a longer number.
    assert_eq!(read(b"\x08\x81\x80\x80\x80\x10").unwrap().small, 1);
}

#[test]
fn minus_zero_is_not_a_default() {
    vector(&Everything { fraction: -0.0, ..Everything::default() }, b"\x61\0\0\0\0\0\0\0\x80");
}

#[test]
fn packed_unpacked_and_mixed_lists_decode() {
    let mixed = read(b"\x20\x01\x22\x02\x02\x03\x20\x04\x28\x05\x2a\x01\x06").unwrap();
    assert_eq!((mixed.numbers, mixed.long_numbers), (vec![1, 2, 3, 4], vec![5, 6]));
}

#[test]
fn last_value_of_a_field_wins() {
    let message = read(b"\x08\x01\x12\x01a\x08\x02\x12\x00\x38\x02\x38\x01").unwrap();
    assert_eq!((message.small, message.text.as_str(), message.colour), (2, "", Colour::Green));
}

#[test]
fn repeated_occurrences_of_a_message_are_merged() {
    let message = read(b"\x1a\x02\x08\x07\x1a\x03\x12\x01x\x42\x02\x08\x05\x42\x00").unwrap();
    assert_eq!(message.inner, Some(Inner { small: 7, text: "x".to_owned() }));
    assert_eq!(message.wrapped, Some(5));
}

#[test]
fn last_map_entry_of_a_key_wins() {
    let message = read(b"\x32\x06\x0a\x01k\x12\x01a\x32\x06\x12\x01b\x0a\x01k\x32\x00\x32\x03\x0a\x01n").unwrap();
    let entries: Vec<_> = message.map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(entries, [("", ""), ("k", "b"), ("n", "")]);
    let ordered = b"\x32\x04\x0a\0\x12\0\x32\x06\x0a\x01k\x12\x01b\x32\x05\x0a\x01n\x12\0";
    assert_eq!(encode(&message), ordered);
}

#[test]
fn unnamed_enum_numbers_are_kept() {
    vector(&Everything { colour: Colour::Unrecognized(9), ..Everything::default() }, &[0x38, 0x09]);
    assert_eq!(read(&[0x38, 0x02]).unwrap().colour, Colour::Blue);
}

#[test]
fn unknown_fields_of_every_wire_type_are_skipped() {
    let unknown: [&[u8]; 6] = [
        b"\x98\x06\xff\x01",                                         // 99: varint
        b"\x99\x06\x01\x02\x03\x04\x05\x06\x07\x08",                 // 99: fixed64
        b"\x9a\x06\x03abc",                                          // 99: length
        b"\x9d\x06\x01\x02\x03\x04",                                 // 99: fixed32
        b"\x9b\x06\x9c\x06",                                         // 99: an empty group
        b"\x9b\x06\x08\x01\x13\x1d\0\0\0\0\x14\x9a\x06\x00\x9c\x06", // 99: a group with fields and a group
    ];
    for unknown in unknown {
        let around = [b"\x08\x01", unknown, b"\x12\x01x"].concat();
        let expected = Everything { small: 1, text: "x".to_owned(), ..Everything::default() };
        assert_eq!(read(&around), Ok(expected), "{unknown:x?}");
    }
}

#[test]
fn nested_content_of_every_length_round_trips() {
    for length in [0, 1, 126, 127, 128, 129, 16_381, 16_382, 16_383, 16_384, 16_385, 2_097_152] {
        let inner = Inner { small: 1, text: "x".repeat(length) };
        let message = Everything { inner: Some(inner.clone()), long: 5, list: vec![inner], ..Everything::default() };
        assert!(read(&encode(&message)) == Ok(message), "{length}");
    }
    // Nested lengths that all need more than one byte.
    let mut tree = Node::default();
    for number in 0..20 {
        tree = Node { number: number << 40, children: vec![tree.clone(), Node::default()] };
        assert_eq!(decode::<Node>(&encode(&tree)).as_ref(), Ok(&tree));
    }
}

#[test]
fn invalid_messages_are_refused() {
    let table: &[(&[u8], DecodeError)] = &[
        (b"\x08", DecodeError::Truncated),
        (b"\x08\x80", DecodeError::Truncated),
        (b"\x61\0\0\0", DecodeError::Truncated),
        (b"\x12\x05abc", DecodeError::Truncated),
        (b"\x9d\x06\0\0\0", DecodeError::Truncated),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", DecodeError::Truncated),
        (b"\x9a\x06\xff\xff\xff\xff\x0f", DecodeError::Truncated),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", DecodeError::VarintTooLong),
        (b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", DecodeError::VarintTooLong),
        (b"\x00\x01", DecodeError::BadKey),
        (b"\x80\x80\x80\x80\x10\x01", DecodeError::BadKey),
        (b"\x9e\x06", DecodeError::BadKey),
        (b"\x9f\x06", DecodeError::BadKey),
        (b"\x0a\x01a", DecodeError::WrongWireType { field: 1 }),
        (b"\x10\x01", DecodeError::WrongWireType { field: 2 }),
        (b"\x18\x01", DecodeError::WrongWireType { field: 3 }),
        (b"\x60\x01", DecodeError::WrongWireType { field: 12 }),
        (b"\x15\0\0\0\0", DecodeError::WrongWireType { field: 2 }),
        (b"\x0b\x0c", DecodeError::WrongWireType { field: 1 }),
        (b"\x12\x01\xff", DecodeError::NotUtf8 { field: 2 }),
        (b"\x32\x03\x0a\x01\xff", DecodeError::NotUtf8 { field: 1 }),
        (b"\x9c\x06", DecodeError::UnpairedGroup),
        (b"\x9b\x06", DecodeError::UnpairedGroup),
        (b"\x9b\x06\x94\x06", DecodeError::UnpairedGroup),
    ];
    for (bytes, error) in table {
        assert_eq!(read(bytes), Err(*error), "{bytes:x?}");
    }
}

#[test]
fn truncated_messages_are_refused() {
    for seed in 0..20 {
        let mut message = Everything::default();
        Random(seed).fill(&mut message, 3);
        // Inside one field, so that no cut falls between two fields.
        let mut bytes = Vec::new();
        put_message(1, &message, &mut bytes);
        for end in 1..bytes.len() {
            let error = decode::<Wide>(&bytes[..end]).err();
            assert_eq!(error, Some(DecodeError::Truncated), "{end} of {}", bytes.len());
        }
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let mut random = Random(7);
    for _ in 0..20_000 {
        let mut message = Everything::default();
        random.fill(&mut message, 2);
        let mut bytes = encode(&message);
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64 + 1);
            let [damage, ..] = random.next().to_le_bytes();
            bytes.insert(at.try_into().unwrap(), damage);
        }
        // Whatever decodes must round-trip.
        if let Ok(read) = read(&bytes) {
            assert_eq!(encode(&decode::<Everything>(&encode(&read)).unwrap()), encode(&read));
        }
    }
}

#[test]
fn nesting_beyond_the_limit_is_refused() {
    fn nested(depth: usize) -> Result<Node, DecodeError> {
        let mut bytes = Vec::new();
        for _ in 1..depth {
            let mut outer = Vec::new();
            put_bytes(2, &bytes, &mut outer);
            bytes = outer;
        }
        decode(&bytes)
    }
    assert!(nested(32).is_ok());
    assert_eq!(nested(33), Err(DecodeError::TooDeep));
    assert_eq!(nested(10_000), Err(DecodeError::TooDeep));
    assert_eq!(read(&b"\x9b\x06".repeat(1_000_000)), Err(DecodeError::TooDeep));
}

#[test]
fn decoded_memory_is_bounded() {
    let rows = (64 << 20) / size_of::<Wide>() + 1;
    assert!(decode::<Wide>(&b"\x12\x00".repeat(rows / 2)).is_ok());
    assert_eq!(decode::<Wide>(&b"\x12\x00".repeat(rows)), Err(DecodeError::TooLarge));
}

/// `count` entries of field 6, the keys in descending order.
fn descending_map(count: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in (0..count).rev() {
        let map = [(format!("{number:08}"), String::new())].into_iter().collect();
        bytes.extend(encode(&Everything { map, ..Everything::default() }));
    }
    bytes
}

#[test]
fn map_with_keys_in_any_order_takes_linear_time() {
    let bytes = descending_map(200_000);
    let begun = std::time::Instant::now();
    let decoded: Everything = decode(&bytes).unwrap();
    assert_eq!(decoded.map.len(), 200_000);
    // Some 100 ms; moving the later entries for each takes 1 TB of copies.
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn later_entry_of_a_map_wins_over_an_earlier_one() {
    let map = |value: &str| {
        let map = [("k".to_owned(), value.to_owned())].into_iter().collect();
        encode(&Everything { map, ..Everything::default() })
    };
    let decoded: Everything =
        decode(&[map("1"), encode(&Everything { small: 1, ..Default::default() }), map("2")].concat()).unwrap();
    assert_eq!(decoded.map.iter().next(), Some((&"k".to_owned(), &"2".to_owned())));
}

#[test]
fn message_that_is_merged_entry_by_entry_is_bounded() {
    /// `Wide` with the next entry of its map.
    fn part(number: u32) -> Vec<u8> {
        let map = [(format!("{number:08}"), String::new())].into_iter().collect();
        encode(&Wide { a: Everything { map, ..Everything::default() }, rows: Vec::new() })
    }
    let few: Vec<u8> = (0..100).rev().flat_map(part).collect();
    assert_eq!(decode::<Wide>(&few).unwrap().a.map.len(), 100);
    let many: Vec<u8> = (0..50_000).rev().flat_map(part).collect();
    assert!(matches!(decode::<Wide>(&many), Err(DecodeError::TooLarge)));
}
