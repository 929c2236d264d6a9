use serde_json::json;

use super::*;

#[track_caller]
fn values(text: &str) -> Vec<Value> {
    parse(text.as_bytes()).unwrap().into_iter().map(|document| document.value).collect()
}

#[track_caller]
fn check(text: &str, value: Value) {
    assert_eq!(values(text), [value], "{text}");
}

#[track_caller]
fn check_error(text: &str, message: &str) {
    assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), message, "{text}");
}

#[test]
fn scalars_resolve_by_style_and_tag() {
    check("a: 0644", json!({"a": 420}));
    check("a: '0644'", json!({"a": "0644"}));
    check("a: \"yes\"", json!({"a": "yes"}));
    check("a: off", json!({"a": false}));
    check("a: |\n  12\n", json!({"a": "12\n"}));
    check("a: >-\n  12\n  13\n", json!({"a": "12 13"}));
    check("a: !!str 12", json!({"a": "12"}));
    check("a: !!str off", json!({"a": "off"}));
    check("a: !!int '12'", json!({"a": 12}));
    check("a: !!float 12", json!({"a": 12}));
    check("a: !!bool 'on'", json!({"a": true}));
    check("a: !!null ''", json!({"a": null}));
    check("a: !!timestamp 2001-01-01", json!({"a": "2001-01-01"}));
    check("a: !<tag:yaml.org,2002:str> 12", json!({"a": "12"}));
    check("a: ! 12", json!({"a": "12"}));
    check("a: !mine 12", json!({"a": "12"}));
    check("a:\nb: ~", json!({"a": null, "b": null}));
    check_error("a: !!int x", "line 1, column 4: \"x\" is not a !!int");
    check("a: !!str", json!({"a": ""}));
    check("a: !!set x", json!({"a": "x"}));
    check("%TAG !! tag:example.com:\n---\na: !!int x", json!({"a": "x"}));
    check_error("a: !x!y z", "line 1, column 4: not YAML: while parsing a node, found undefined tag handle");
    check_error("a:\n- .inf", "line 2, column 3: .inf is a number that JSON cannot hold");
}

#[test]
fn keys_become_strings() {
    check("on: 1\n2: 3\n0x10: 4\n1.5: 5\n'6': 7", json!({"true": 1, "2": 3, "16": 4, "1.5": 5, "6": 7}));
    check("&k a: 1\nb: {*k : 2}", json!({"a": 1, "b": {"a": 2}}));
    check("? a\n: 1", json!({"a": 1}));
    check_error("~: 1", "line 1, column 1: null cannot be a key");
    check_error(
        "[a]: 1",
        "line 1, column 1: a list or an object cannot be a key: put a text that begins with a bracket in quotes",
    );
    check_error("a: &x [1]\n*x : 1", "line 2, column 1: a list or an object cannot be a key");
}

#[test]
fn aliases_repeat_their_anchor() {
    check("a: &x [1, {b: 2}]\nc: *x\nd: [*x, *x]", {
        let x = json!([1, {"b": 2}]);
        json!({"a": x, "c": x, "d": [x, x]})
    });
    check("a: &x 1\nb: &x 2\nc: *x", json!({"a": 1, "b": 2, "c": 2}));
    let unknown = |position: &str| format!("{position}: the alias *x refers to no earlier anchor of its document");
    check_error("a: *x", &unknown("line 1, column 4"));
    check_error("a: &x [*x]", &unknown("line 1, column 8"));
    check_error("a: &x 1\nb: &x [*x]", &unknown("line 2, column 8"));
    check_error("a: &x 1\n---\nb: *x", &unknown("line 3, column 4"));
}

#[test]
fn merge_keys_add_missing_entries() {
    check(
        "x: &x {a: 1, b: 2}\nz: &z {b: 3, c: 4}\np: {<<: *x, b: 9}\nq: {b: 9, <<: *x}\nr: {<<: [*z, *x]}\ns:\n  <<: {d: 5}\n  <<: *x",
        json!({
            "x": {"a": 1, "b": 2},
            "z": {"b": 3, "c": 4},
            "p": {"a": 1, "b": 9},
            // As upstream: what is merged replaces what stands before it.
            "q": {"a": 1, "b": 2},
            "r": {"a": 1, "b": 3, "c": 4},
            "s": {"a": 1, "b": 2, "d": 5},
        }),
    );
    check("'<<': 1", json!({"<<": 1}));
    check("!!merge <<: {a: 1}", json!({"a": 1}));
    check("a: <<", json!({"a": "<<"}));
    let strict = parse(b"x: &x {a: 1}\np: {<<: *x, a: 2}").unwrap().remove(0).strict();
    assert_eq!(strict.unwrap()["p"], json!({"a": 2}));
    check_error("a:\n  <<: 1\n  b: 2", "line 2, column 7: a merge key (<<) needs an object or a list of objects");
    check_error("{<<: [[]]}", "line 1, column 9: a merge key (<<) needs an object or a list of objects");
}

#[test]
fn binary_scalars_become_strings() {
    check("a: !!binary aGk=", json!({"a": "hi"}));
    check("a: !!binary |\n  aG\n  k=\n", json!({"a": "hi"}));
    check("a: !!binary 4oL/w6Q=", json!({"a": "\u{fffd}\u{fffd}\u{fffd}ä"}));
    check_error("a: !!binary aGk", "line 1, column 4: the value of !!binary is not base64 with padding");
}

#[test]
fn collections_and_quoted_scalars_may_continue_at_the_keys_column() {
    check("a:\n- command: [\n  sleep\n  , '1'\n]\n  b: {\n}\n", json!({"a": [{"command": ["sleep", "1"], "b": {}}]}));
    check("a:\n  b: \"one\n  two\"\n  c: 'three\n\n\nfour'", json!({"a": {"b": "one two", "c": "three\n\nfour"}}));
}

#[test]
fn tabs_separate_tokens_but_do_not_indent() {
    check("a:\tb\nc:\t[\n\td,\t{\te:\tf\t}\n\t]\t# remark", json!({"a": "b", "c": ["d", {"e": "f"}]}));
    check("a: 'b\n\tc'", json!({"a": "b c"}));
    check_error(
        "a:\n\tb: 1",
        "line 2, column 1: not YAML: while scanning for the next token, found a tab character where indentation with \
         spaces or a token is expected",
    );
}

#[test]
fn colons_belong_to_plain_scalars_unless_a_blank_follows() {
    check("[a:, b:c, http://d:1/?e=f#g, :8080]", json!(["a:", "b:c", "http://d:1/?e=f#g", ":8080"]));
    check("{a: :b, \"c\":d, e:}", json!({"a": ":b", "c": "d", "e:": null}));
    check("[a: 1, ? b : 2]", json!([{"a": 1}, {"b": 2}]));
}

#[test]
fn texts_may_be_utf_16_with_a_mark() {
    let text = "\u{feff}a: ä😀\nb: 1\n";
    let units = || text.encode_utf16();
    let little: Vec<u8> = units().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = units().flat_map(u16::to_be_bytes).collect();
    for bytes in [little.as_slice(), &big, text.as_bytes()] {
        assert_eq!(parse(bytes).unwrap().remove(0).value, json!({"a": "ä😀", "b": 1}));
    }
    let error = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
    let problem = "the text is not UTF-16, although it has the mark of UTF-16";
    assert_eq!(error(&little[..little.len() - 1]), format!("line 2, column 5: {problem}"));
    assert_eq!(error(b"\xfe\xff\xdc\x00\x00a"), format!("line 1, column 1: {problem}"));
    assert_eq!(error(b"\0a\0:"), "line 1, column 1: there is a NUL character in the text");
    assert_eq!(error(b"\xff\xfe{\0\"\0"), "line 1, column 2: not JSON: EOF while parsing a string");
}

/// What sigs.k8s.io/yaml reads, over the cases of the public test suite. README.md there says how to make it again.
#[test]
fn test_suite_is_read_as_upstream_reads_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/yaml-test-suite/cases.jsonl");
    let cases = std::fs::read_to_string(path).unwrap();
    let mut read = 0;
    for line in cases.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = &case["id"];
        let result = parse(case["yaml"].as_str().unwrap().as_bytes());
        let upstream = case.get("upstream").cloned();
        if case.get("why").is_none() {
            let value =
                result.ok().map(|documents| documents.into_iter().next().map_or(Value::Null, |first| first.value));
            assert_eq!(value, upstream, "{id}");
        } else if let Some(error) = case.get("coracle_error") {
            assert!(upstream.is_some(), "{id}: no difference");
            assert_eq!(result.unwrap_err().to_string(), *error, "{id}");
        } else {
            assert_ne!(upstream, case.get("coracle").cloned(), "{id}: no difference");
            let value = result.unwrap().into_iter().next().map_or(Value::Null, |first| first.value);
            assert_eq!(Some(&value), case.get("coracle"), "{id}");
        }
        read += 1;
    }
    assert_eq!(read, 402);
}

#[test]
fn empty_documents_are_skipped() {
    assert_eq!(values("---\n# nothing\n---\na: 1\n---\n---\nb: 2\n...\n---\n"), [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(values(""), [] as [Value; 0]);
    assert_eq!(values("# a remark"), [] as [Value; 0]);
    assert_eq!(values("null"), [] as [Value; 0]);
    let lines: Vec<usize> = parse(b"# x\na: 1\n---\n\nb: 2\n---\nc: 3").unwrap().iter().map(|d| d.line).collect();
    assert_eq!(lines, [2, 3, 6]);
}

#[test]
fn duplicate_keys_are_reported_and_fail_strict_parsing() {
    for text in ["a:\n- b: 1\n  c: 2\n  b: 3\n", "{\"a\": [{\"b\": 1, \"c\": 2, \"b\": 3}]}"] {
        let document = parse(text.as_bytes()).unwrap().remove(0);
        assert_eq!(document.value, json!({"a": [{"b": 3, "c": 2}]}));
        assert_eq!(document.duplicates.len(), 1);
        assert_eq!(document.duplicates[0].path, "a[0].b");
        assert!(document.strict().unwrap_err().to_string().ends_with("a[0].b is given twice"));
    }
    let document = parse(b"yes: 1\non: 2").unwrap().remove(0);
    assert_eq!(document.strict().unwrap_err().to_string(), "line 2, column 1: true is given twice");
    assert_eq!(parse(b"a: 1").unwrap().remove(0).strict(), Ok(json!({"a": 1})));
}

#[test]
fn json_and_flow_yaml_are_told_apart() {
    check(
        "{\"a\": \"\\ud83d\\ude00\\/\", \"b\": [1, -2, 1.5, true, null]}",
        json!({"a": "😀/", "b": [1, -2, 1.5, true, null]}),
    );
    check("\u{feff} \n\t{\"a\":\t1}\n", json!({"a": 1}));
    assert_eq!(values("{\"a\": 1}\n{\"b\": 2}"), [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(values("{\"a\": 1}\n---\n{\"b\": yes}"), [json!({"a": 1}), json!({"b": true})]);
    check("{a: 0644, b: [x, z], }", json!({"a": 420, "b": ["x", "z"]}));
    check_error("{\"a\": 1,,}", "line 1, column 9: not JSON: key must be a string");
    for half in ["\\ud83d", "\\ud83d\\u0041", "\\ude00"] {
        let error = parse(format!("{{\"a\": \"{half}\"}}").as_bytes()).unwrap_err().to_string();
        assert!(error.ends_with(": not JSON: half of a surrogate pair, as \\ud83d without the other half"), "{error}");
    }
    check_error("{\"a\": 1", "line 1, column 7: not JSON: EOF while parsing an object");
    assert!(parse(b"{a: [}").unwrap_err().to_string().contains("not YAML"));
}

#[test]
fn errors_have_a_position() {
    check_error("a: 1\n b: 2\n", "line 2, column 3: not YAML: mapping values are not allowed in this context");
    check_error(
        "a: \"x\n",
        "line 1, column 4: not YAML: while scanning a quoted scalar, found unexpected end of stream",
    );
    assert_eq!(parse(b"a: 1\nb: \xff").unwrap_err().to_string(), "line 2, column 4: the text is not UTF-8");
    check_error(
        "a: [1,\n  2\nb: 3",
        "line 3, column 2: not YAML: while parsing a flow sequence of line 1, did not find expected ',' or ']'",
    );
    check_error("a: b\u{1b}c", "line 1, column 5: not YAML: control characters are not allowed, found U+001B");
    check_error(
        "a: \"\\q\"",
        "line 1, column 5: not YAML: while scanning a quoted scalar, found unknown escape character",
    );
    check_error("a: 1\n\0\0", "line 2, column 1: there is a NUL character in the text");
    assert_eq!(parse(&vec![b'#'; MAX_BYTES + 1]).unwrap_err().to_string(), "the text is larger than 10 MiB");
}

#[test]
fn alias_expansion_is_bounded() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..20 {
        let m = n - 1;
        text += &format!("a{n}: &a{n} [*a{m}, *a{m}, *a{m}, *a{m}, *a{m}, *a{m}, *a{m}, *a{m}, *a{m}, *a{m}]\n");
    }
    assert!(parse(text.as_bytes()).unwrap_err().to_string().ends_with("the aliases make the text too large"));

    let long = format!("a: &a {}\nb: [{}]", "x".repeat(1 << 20), "*a, ".repeat(1000));
    assert!(parse(long.as_bytes()).unwrap_err().to_string().ends_with("the aliases make the text too large"));

    let mut deep = "a0: &a0 [x]\n".to_owned();
    for n in 1..200 {
        deep += &format!("a{n}: &a{n} [*a{}]\n", n - 1);
    }
    assert!(parse(deep.as_bytes()).unwrap_err().to_string().ends_with(": lists and objects are nested too deeply"));

    let anchors: String = (0..300_000).rev().map(|n| format!("- &a{n:06}\n")).collect();
    assert!(parse(anchors.as_bytes()).unwrap_err().to_string().ends_with("the text holds too many values"));
}

#[test]
fn scanner_looks_ahead_within_bounds() {
    let key = |length| format!("{}: 1", "k".repeat(length));
    assert_eq!(parse(key(1024).as_bytes()).unwrap().len(), 1);
    assert!(
        parse(key(1025).as_bytes())
            .unwrap_err()
            .to_string()
            .ends_with("mapping values are not allowed in this context")
    );
    assert!(parse("[".repeat(1 << 20).as_bytes()).unwrap_err().to_string().ends_with("nested too deeply"));
    assert!(parse("- ".repeat(1 << 20).as_bytes()).unwrap_err().to_string().ends_with("nested too deeply"));
    assert!(parse("? ".repeat(1 << 20).as_bytes()).is_err());
    let directives = |count: usize| {
        let tags: String = (0..count).map(|n| format!("%TAG !a{n}! x\n")).collect();
        parse(format!("{tags}---\na: 1").as_bytes()).map_err(|error| error.to_string())
    };
    assert_eq!(directives(64).unwrap().len(), 1);
    assert_eq!(directives(65).unwrap_err(), "line 65, column 1: not YAML: found too many %TAG directives");
}

#[test]
fn values_and_depth_fit_a_pool_threads_stack() {
    let work = || {
        for (open, close) in [("[", "]"), ("{\"a\": ", "}")] {
            for json in [true, false] {
                let nested = |depth| match json {
                    true => format!("{{\"x\": {}1{}}}", open.repeat(depth), close.repeat(depth)),
                    false => format!("x: {}1{}", open.repeat(depth), close.repeat(depth)),
                };
                assert_eq!(parse(nested(MAX_YAML_DEPTH - 1).as_bytes()).unwrap().len(), 1);
                let error = parse(nested(MAX_YAML_DEPTH).as_bytes()).unwrap_err().to_string();
                assert!(error.contains("nested too deeply"), "{error}");
                assert!(parse(nested(100_000).as_bytes()).is_err());
            }
        }
    };
    std::thread::Builder::new().stack_size(256 * 1024).spawn(work).unwrap().join().unwrap();
    for text in
        [format!("a: [{}]", "{b: 0}, ".repeat(200_000)), format!("{{\"a\": [{}{{}}]}}", "{\"\":0},".repeat(200_000))]
    {
        let error = parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("the text holds too many values"), "{error}");
    }
}
