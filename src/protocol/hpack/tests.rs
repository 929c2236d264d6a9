use super::huffman;
use super::primitive::{Reader, write_integer};
use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

fn fields(lines: &[&'static str]) -> Vec<Field> {
    let field = |line: &&'static str| {
        let (name, value) = line.split_once(": ").unwrap();
        Field::fixed(name, value)
    };
    lines.iter().map(field).collect()
}

#[track_caller]
fn decodes(decoder: &mut Decoder, block: &str, list: &[&'static str], table: &[&'static str], size: usize) {
    let decoded = decoder.decode(&bytes(block)).unwrap();
    assert_eq!(decoded, Decoded { fields: fields(list), cut: false });
    assert_eq!(decoder.table.fields().cloned().collect::<Vec<_>>(), fields(table));
    assert_eq!(decoder.table.size(), size);
}

#[track_caller]
fn integer(value: usize, bits: u32, hex: &str) {
    let mut written = Vec::new();
    write_integer(value, bits, 0, &mut written);
    assert_eq!(written, bytes(hex));
    let mut reader = Reader::new(&written);
    let first = reader.byte().unwrap();
    assert_eq!(reader.integer(first, bits), Ok(value));
    assert_eq!(reader.byte(), None);
}

#[test]
fn rfc_7541_c_1_integers() {
    integer(10, 5, "0a");
    integer(1337, 5, "1f9a0a");
    integer(42, 8, "2a");
}

#[test]
fn integers_at_prefix_boundaries_round_trip() {
    integer(30, 5, "1e");
    integer(31, 5, "1f00");
    integer(32, 5, "1f01");
    integer(158, 5, "1f7f");
    integer(159, 5, "1f8001");
    integer(255, 8, "ff00");
}

#[test]
fn rfc_7541_c_2_single_fields() {
    let new = || Decoder::new(4096, 65536);
    let custom = "400a637573746f6d2d6b65790d637573746f6d2d686561646572";
    decodes(&mut new(), custom, &["custom-key: custom-header"], &["custom-key: custom-header"], 55);
    decodes(&mut new(), "040c2f73616d706c652f70617468", &[":path: /sample/path"], &[], 0);
    decodes(&mut new(), "100870617373776f726406736563726574", &["password: secret"], &[], 0);
    decodes(&mut new(), "82", &[":method: GET"], &[], 0);
}

fn requests(blocks: [&str; 3]) {
    let mut decoder = Decoder::new(4096, 65536);
    let [first, second, third] = blocks;
    decodes(
        &mut decoder,
        first,
        &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"],
        &[":authority: www.example.com"],
        57,
    );
    decodes(
        &mut decoder,
        second,
        &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"],
        &["cache-control: no-cache", ":authority: www.example.com"],
        110,
    );
    decodes(
        &mut decoder,
        third,
        &[
            ":method: GET",
            ":scheme: https",
            ":path: /index.html",
            ":authority: www.example.com",
            "custom-key: custom-value",
        ],
        &["custom-key: custom-value", "cache-control: no-cache", ":authority: www.example.com"],
        164,
    );
}

#[test]
fn rfc_7541_c_3_requests_without_huffman() {
    requests([
        "828684410f7777772e6578616d706c652e636f6d",
        "828684be58086e6f2d6361636865",
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
    ]);
}

#[test]
fn rfc_7541_c_4_requests_with_huffman() {
    requests([
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    ]);
}

fn responses(blocks: [&str; 3]) {
    let mut decoder = Decoder::new(256, 65536);
    let [first, second, third] = blocks;
    decodes(
        &mut decoder,
        first,
        &[
            ":status: 302",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "location: https://www.example.com",
        ],
        &[
            "location: https://www.example.com",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "cache-control: private",
            ":status: 302",
        ],
        222,
    );
    decodes(
        &mut decoder,
        second,
        &[
            ":status: 307",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "location: https://www.example.com",
        ],
        &[
            ":status: 307",
            "location: https://www.example.com",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "cache-control: private",
        ],
        222,
    );
    let cookie = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    decodes(
        &mut decoder,
        third,
        &[
            ":status: 200",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:22 GMT",
            "location: https://www.example.com",
            "content-encoding: gzip",
            cookie,
        ],
        &[cookie, "content-encoding: gzip", "date: Mon, 21 Oct 2013 20:13:22 GMT"],
        215,
    );
}

#[test]
fn rfc_7541_c_5_responses_without_huffman() {
    responses([
        "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e17
         68747470733a2f2f7777772e6578616d706c652e636f6d",
        "4803333037c1c0bf",
        "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d41
         53444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f
         6e3d31",
    ]);
}

#[test]
fn rfc_7541_c_6_responses_with_huffman() {
    responses([
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8
         e9ae82ae43d3",
        "4883640effc1c0bf",
        "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b
         3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
    ]);
}

#[test]
fn every_byte_round_trips_through_huffman() {
    let all: Vec<u8> = (0..=255).collect();
    for text in all.chunks(1).chain(all.chunks(7)).chain([&all[..]]) {
        let mut coded = Vec::new();
        huffman::encode(text, &mut coded);
        assert_eq!(coded.len(), huffman::encoded_len(text));
        let mut plain = Vec::new();
        huffman::decode(&coded, &mut plain).unwrap();
        assert_eq!(plain, text);
    }
}

#[track_caller]
fn huffman_refuses(coded: &[u8]) {
    assert_eq!(huffman::decode(coded, &mut Vec::new()), Err(Error::Huffman));
}

#[test]
fn huffman_padding_is_less_than_a_byte_of_ones() {
    // "0" is five zeros, followed by three ones of padding.
    assert_eq!(huffman::decode(&[0b0000_0111], &mut Vec::new()), Ok(()));
    huffman_refuses(&[0b0000_0110]);
    huffman_refuses(&[0b0000_0111, 0xff]);
}

#[test]
fn huffman_end_of_string_symbol_is_refused() {
    huffman_refuses(&[0xff, 0xff, 0xff, 0xff]);
    huffman_refuses(&[0xff, 0xff, 0xff, 0xfc]);
}

#[track_caller]
fn refuses(block: &[u8], error: Error) {
    assert_eq!(Decoder::new(4096, 65536).decode(block), Err(error));
}

#[test]
fn truncated_block_is_refused() {
    let block = bytes("828684418cf1e3c2e5f23a6ba0ab90f4ff");
    for end in 4..block.len() {
        refuses(&block[..end], Error::Truncated);
    }
}

#[test]
fn index_beyond_both_tables_is_refused() {
    refuses(&[0x80], Error::UnknownIndex);
    refuses(&[0x80 | 62], Error::UnknownIndex);
    refuses(&[0x40 | 62, 1, b'x'], Error::UnknownIndex);
}

#[test]
fn integer_that_never_ends_is_refused() {
    refuses(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], Error::IntegerTooLarge);
    refuses(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], Error::IntegerTooLarge);
}

#[test]
fn table_size_above_the_announced_one_is_refused() {
    // 4097 with a five-bit prefix.
    refuses(&[0x3f, 0xe2, 0x1f], Error::TableSize);
}

#[test]
fn table_size_after_the_first_field_is_refused() {
    refuses(&[0x82, 0x20], Error::TableSize);
}

#[test]
fn shrinking_the_table_evicts_the_oldest_fields() {
    let mut decoder = Decoder::new(4096, 65536);
    decodes(&mut decoder, "4001610162 4001630164", &["a: b", "c: d"], &["c: d", "a: b"], 68);
    // To 34 bytes, then back to the announced size.
    decodes(&mut decoder, "3f03 3fe11f be", &["c: d"], &["c: d"], 34);
}

#[test]
fn field_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new(40, 65536);
    decodes(&mut decoder, "4001610162", &["a: b"], &["a: b"], 34);
    decodes(&mut decoder, "40016109626262626262626262", &["a: bbbbbbbbb"], &[], 0);
}

#[test]
fn list_over_its_limit_is_cut_and_the_tables_stay_in_step() {
    let mut decoder = Decoder::new(4096, 70);
    let decoded = decoder.decode(&bytes("4001610162 4001630164 4001650166 be")).unwrap();
    assert_eq!(decoded, Decoded { fields: fields(&["a: b", "c: d"]), cut: true });
    decodes(&mut decoder, "be", &["e: f"], &["e: f", "c: d", "a: b"], 102);
}

#[test]
fn encoder_matches_rfc_7541_c_4_1() {
    let mut encoder = Encoder::new(4096);
    let list = fields(&[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"]);
    let mut block = Vec::new();
    encoder.encode(&list, &mut block);
    assert_eq!(block, bytes("828684418cf1e3c2e5f23a6ba0ab90f4ff"));
}

#[test]
fn repeated_request_takes_one_byte_per_field() {
    let mut encoder = Encoder::new(4096);
    let list = fields(&[":method: POST", ":path: /a.b/C", "content-type: application/grpc", "te: trailers"]);
    let mut block = Vec::new();
    encoder.encode(&list, &mut block);
    block.clear();
    encoder.encode(&list, &mut block);
    assert_eq!(block.len(), list.len());
}

#[test]
fn secrets_are_encoded_as_never_indexed() {
    let mut encoder = Encoder::new(4096);
    let mut block = Vec::new();
    encoder.encode(&fields(&["authorization: Bearer x"]), &mut block);
    // Never indexed, with the name at index 23 of the static table.
    assert_eq!(block[..2], [0x1f, 23 - 15]);
    assert_eq!(encoder.table.size(), 0);
}

#[test]
fn lists_round_trip_across_table_size_changes() {
    let mut encoder = Encoder::new(4096);
    let mut decoder = Decoder::new(4096, 65536);
    let sizes = [4096, 0, 100, 50, 8192, 35, 4096, 70];
    for (turn, size) in sizes.into_iter().cycle().take(64).enumerate() {
        if turn % 3 != 0 {
            encoder.peer_allows(size);
            encoder.peer_allows(sizes[turn % 5]);
        }
        let list: Vec<Field> = (0..turn % 7)
            .map(|n| match n % 3 {
                0 => Field::new(":path", format!("/method/{}", (turn + n) % 5)),
                1 => Field::new("grpc-message", "\u{e9}\0 what\n".repeat(n)),
                _ => Field::new("grpc-status", n.to_string()),
            })
            .collect();
        let mut block = Vec::new();
        encoder.encode(&list, &mut block);
        assert_eq!(decoder.decode(&block), Ok(Decoded { fields: list, cut: false }), "turn {turn}");
    }
}
