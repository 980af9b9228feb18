use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn keys(path: &str) -> Vec<String> {
    path.split('.').map(str::to_owned).collect()
}

fn told(text: &str, piece: usize) -> Option<u64> {
    let mut meter = Meter::of_body(&keys("usage.total_tokens"), false);
    text.as_bytes().chunks(piece).for_each(|octets| meter.see(octets));
    meter.told()
}

#[test]
fn the_number_is_taken_from_its_place_alone() {
    for (text, number) in [
        (r#"{"id":"x","usage":{"prompt_tokens":3,"total_tokens":12,"more":[1]},"z":0}"#, Some(12)),
        (r#"{ "usage" : { "total_tokens" : 7 } }"#, Some(7)),
        (
            r#"{"choices":[{"message":{"content":"\"usage\":{\"total_tokens\":1}"}}],"usage":{"total_tokens":900}}"#,
            Some(900),
        ),
        (r#"{"choices":[{"usage":{"total_tokens":1}}],"usage":{"total_tokens":900}}"#, Some(900)),
        (r#"{"usage":{"total_tokens":900},"usage":{"total_tokens":1}}"#, Some(900)),
        (r#"{"usage":{"details":{"total_tokens":1},"total_tokens":5}}"#, Some(5)),
        (r#"{"text":"{\"usage\":{\"total_tokens\":1}}"}"#, None),
        (r#"{"a":{"usage":{"total_tokens":1}}}"#, None),
        (r#"{"usage":null}"#, None),
        (r#"{"usage":{"total_tokens":"9"}}"#, None),
        (r#"{"usage":{"total_tokens":-9}}"#, None),
        (r#"{"usage":{"total_tokens":1e0}}"#, None),
        (r#"{"usage":[{"total_tokens":9}]}"#, None),
        (r#"{"usage":{"xtotal_tokens":9,"total_token":8,"total_tokensx":7}}"#, None),
        (r#"[{"usage":{"total_tokens":1}}]"#, None),
        (r#"usage total_tokens 9 {"usage":{"total_tokens":1}}"#, None),
        (r#"{"\u0075sage":{"total_tokens":1},"usage":{"total_tokens":2}}"#, Some(2)),
        ("", None),
    ] {
        for piece in [1, 2, 7, 1_000] {
            assert_eq!(told(text, piece), number, "{text}");
        }
    }
}

#[test]
fn events_tell_one_by_one_or_count_themselves() {
    let see = |text: &str, piece: usize| {
        let mut meter = Meter::of_body(&keys("usage.total_tokens"), true);
        text.as_bytes().chunks(piece).for_each(|octets| meter.see(octets));
        (meter.told(), meter.events())
    };
    let say = |end: &str| {
        let lines = [
            ": hello",
            "",
            "event: x",
            r#"data: {"choices":[{"delta":{"content":"\n\ndata: {\"usage\":{\"total_tokens\":1}}\n\n"}}]}"#,
            "",
            r#"data: {"usage":null}"#,
            "",
            r#"data: {"choices":[],"#,
            r#"data: "usage":{"total_tokens":44}}"#,
            "",
            "data: [DONE]",
            "",
            "",
        ];
        lines.join(end)
    };
    for end in ["\n", "\r\n", "\r"] {
        for piece in [1, 3, 1_000] {
            assert_eq!(see(&say(end), piece), (Some(44), 4), "{end:?} {piece}");
        }
        let silent = say(end).replace("44", "null");
        assert_eq!(see(&silent, 5), (None, 4), "{end:?}");
    }
}

#[test]
fn a_header_tells_a_number_or_nothing() {
    for (value, number) in [(&b" 12 "[..], Some(12)), (b"x", None), (b"-1", None), (b"\xff", None)] {
        assert_eq!(Meter::of_header(Some(value)).told(), number);
    }
    assert_eq!(Meter::of_header(None).told(), None);
}

#[test]
fn words_of_routes_print_as_they_are_read() {
    for (key, value) in [("units", "usage.total_tokens:50/s"), ("units", "n:1/s"), ("units_header", "x-cost:1000000/s")]
    {
        let units = Units::from_word(key, value).unwrap();
        assert_eq!(units.to_string(), format!("{key}={value}"));
    }
    for (key, value) in [
        ("units", "usage:0/s"),
        ("units", "usage"),
        ("units", ".a:1/s"),
        ("units", "a\"b:1/s"),
        ("units_header", "a b:1/s"),
        ("x", "a:1/s"),
    ] {
        assert_eq!(Units::from_word(key, value), None, "{key}={value}");
    }
    let units = Units::from_word("units", "n:50/s").unwrap();
    assert_eq!((units.cost(100), units.cost(u64::MAX)), (Duration::from_secs(2), MOST));
}

fn document() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec!["usage", "total_tokens", "x", "us\"age", ""]);
    let leaf = prop_oneof![
        any::<u32>().prop_map(Value::from),
        "[\\PC\"\\\\{}:,]{0,12}".prop_map(Value::from),
        Just(Value::Null),
        Just(Value::Bool(true)),
        any::<i16>().prop_map(|number| Value::from(f64::from(number) / 8.0 - 9_000.5)),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|pairs| Value::Object(
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn a_walk_finds_what_a_parser_finds(document in document(), pretty: bool, piece in 1_usize..50) {
        let text = if pretty { serde_json::to_string_pretty(&document) } else { serde_json::to_string(&document) }.unwrap();
        let place = document.get("usage").and_then(|usage| usage.get("total_tokens"));
        prop_assert_eq!(told(&text, piece), place.and_then(Value::as_u64), "{}", text);
    }

    #[test]
    fn any_octets_are_walked(octets in prop::collection::vec(any::<u8>(), 0..400)) {
        for events in [false, true] {
            let mut meter = Meter::of_body(&keys("a.b"), events);
            meter.see(&octets);
        }
    }
}
