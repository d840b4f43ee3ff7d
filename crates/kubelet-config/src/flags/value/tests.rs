//! Flag texts and the values they mean.

use serde_json::json;

use super::*;

fn parse(kind: Kind, given: &[&str]) -> Result<Option<Value>, String> {
    kind.parse(&given.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
}

#[test]
fn values() {
    for (kind, given, value) in [
        (Kind::Text, &["a", "b"][..], json!("b")),
        (Kind::Bool, &["T"], json!(true)),
        (Kind::Bool, &["true", "0"], json!(false)),
        (Kind::Int32, &["-999"], json!(-999)),
        (Kind::Int32, &["0x10"], json!(16)),
        (Kind::Int32, &["010"], json!(8)),
        (Kind::Int64, &["9223372036854775807"], json!(i64::MAX)),
        (Kind::Level, &["4"], json!(4)),
        (Kind::Duration, &["90s"], json!("1m30s")),
        (Kind::Ip, &["::1"], json!("::1")),
        (Kind::Quantity, &["4Ki"], json!("4Ki")),
        (Kind::List, &["a,b", "c"], json!(["a", "b", "c"])),
        (Kind::List, &[r#""a,b",c"#], json!(["a,b", "c"])),
        (Kind::List, &[""], json!([])),
        (Kind::Map, &["a=1, b = 2", "a=3"], json!({"a": "3", "b": "2"})),
        (Kind::Map, &[""], json!({})),
        (Kind::MapOne, &["a=1,2", "b=x"], json!({"a": "1,2", "b": "x"})),
        (Kind::BoolMap, &["A=true,B=f"], json!({"A": true, "B": false})),
        (
            Kind::Thresholds,
            &["memory.available<5%,x<1=2"],
            json!({"memory.available": "5%", "x": "1=2"}),
        ),
        (Kind::Headers, &["a:1,b:x:y", "a:2"], json!({"a": ["1", "2"], "b": ["x:y"]})),
        (Kind::Labels, &["a=1,b", "c=2"], json!({"a": "1", "b": "", "c": "2"})),
        (
            Kind::Taints,
            &["x=y:NoSchedule,z:NoExecute"],
            json!([{"key": "x", "value": "y", "effect": "NoSchedule"}, {"key": "z", "effect": "NoExecute"}]),
        ),
        (Kind::Taints, &[""], json!([])),
        (
            Kind::ReservedMemory,
            &["0:memory=1Gi,hugepages-1Gi=2Gi", "1:memory=1"],
            json!([
                {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1Gi": "2Gi"}},
                {"numaNode": 1, "limits": {"memory": "1"}},
            ]),
        ),
        (
            Kind::VModule,
            &["a=1,b*=2"],
            json!([{"filePattern": "a", "verbosity": 1}, {"filePattern": "b*", "verbosity": 2}]),
        ),
    ] {
        assert_eq!(parse(kind, given), Ok(Some(value)), "{kind:?} {given:?}");
    }
    assert_eq!(parse(Kind::Ip, &[""]), Ok(None));
}

#[test]
fn refusals() {
    for (kind, text) in [
        (Kind::Bool, "yes"),
        (Kind::Int32, "2147483648"),
        (Kind::Int32, "1.5"),
        (Kind::Int32, ""),
        (Kind::Int32, "--1"),
        (Kind::Level, "-1"),
        (Kind::Level, "2147483648"),
        (Kind::Duration, "10"),
        (Kind::Ip, "localhost"),
        (Kind::Quantity, "lots"),
        (Kind::List, "\"a"),
        (Kind::Map, "a"),
        (Kind::MapOne, "a"),
        (Kind::BoolMap, "A=maybe"),
        (Kind::Thresholds, "memory.available=5%"),
        (Kind::Headers, "x"),
        (Kind::Taints, "a=b"),
        (Kind::Taints, "a:Never"),
        (Kind::Taints, "a:NoExecute,a:NoExecute"),
        (Kind::ReservedMemory, "memory=1Gi"),
        (Kind::ReservedMemory, "0:cpu=1"),
        (Kind::VModule, "a"),
        (Kind::VModule, "=1"),
    ] {
        assert!(parse(kind, &[text]).is_err(), "{kind:?} accepted {text:?}");
    }
}

#[test]
fn a_bad_header_is_not_repeated() {
    let error = parse(Kind::Headers, &["hunter2"]).unwrap_err();
    assert!(!error.contains("hunter2"), "{error}");
}
