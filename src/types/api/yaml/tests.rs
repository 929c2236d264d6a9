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
    check_error("a: !!binary aGk=", "line 1, column 4: the tag !!binary is not supported");
    check_error("a:\n- .inf", "line 2, column 3: .inf is a number that JSON cannot hold");
}

#[test]
fn keys_become_strings() {
    check("on: 1\n2: 3\n0x10: 4\n1.5: 5\n'6': 7", json!({"true": 1, "2": 3, "16": 4, "1.5": 5, "6": 7}));
    check("&k a: 1\nb: {*k : 2}", json!({"a": 1, "b": {"a": 2}}));
    check("? a\n: 1", json!({"a": 1}));
    check_error("~: 1", "line 1, column 1: null cannot be a key");
    check_error("[a]: 1", "line 1, column 1: a list or an object cannot be a key");
    check_error("a: &x [1]\n*x : 1", "line 2, column 1: a list or an object cannot be a key");
}

#[test]
fn aliases_repeat_their_anchor() {
    check("a: &x [1, {b: 2}]\nc: *x\nd: [*x, *x]", {
        let x = json!([1, {"b": 2}]);
        json!({"a": x, "c": x, "d": [x, x]})
    });
    check("a: &x 1\nb: &x 2\nc: *x", json!({"a": 1, "b": 2, "c": 2}));
    check_error("a: *x", "line 1, column 4: not YAML: while parsing node, found unknown anchor");
    check_error("a: &x [*x]", "line 1, column 8: an alias refers to no earlier anchor of its document");
    check_error("a: &x 1\n---\nb: *x", "line 3, column 4: an alias refers to no earlier anchor of its document");
}

#[test]
fn merge_keys_add_missing_entries() {
    check(
        "x: &x {a: 1, b: 2}\nz: &z {b: 3, c: 4}\np: {<<: *x, b: 9}\nq: {b: 9, <<: *x}\nr: {<<: [*z, *x]}\ns:\n  <<: {d: 5}\n  <<: *x",
        json!({
            "x": {"a": 1, "b": 2},
            "z": {"b": 3, "c": 4},
            "p": {"a": 1, "b": 9},
            "q": {"a": 1, "b": 9},
            "r": {"a": 1, "b": 3, "c": 4},
            "s": {"a": 1, "b": 2, "d": 5},
        }),
    );
    check("'<<': 1", json!({"<<": 1}));
    check("a: <<", json!({"a": "<<"}));
    check_error("a:\n  <<: 1\n  b: 2", "line 4, column 1: a merge key (<<) needs an object or a list of objects");
    check_error("{<<: [[]]}", "line 1, column 10: a merge key (<<) needs an object or a list of objects");
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
