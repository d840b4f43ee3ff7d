//! Which certificates an ask comes to, given all bundles. Pure.
//!
//! Upstream: GetTrustAnchorsByName, GetTrustAnchorsBySigner and normalizeTrustAnchors in
//! pkg/kubelet/clustertrustbundle.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubelet_model::quote;
use kubelet_model::trust::TrustAsk;
use serde_json::Value;

use super::TrustError;
use crate::pem;

/// Longest selector, as one line of text; as long as upstream's.
const SELECTOR_BYTES_MAX: usize = 100 * 1024;

/// A ClusterTrustBundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bundle {
    pub(super) signer: String,
    labels: BTreeMap<String, String>,
    text: String,
}

/// Bundles by name.
pub(super) type Bundles = BTreeMap<String, Bundle>;

/// The name of an object, and the bundle that it is.
pub(super) fn read(object: &Value) -> Option<(String, Bundle)> {
    let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty())?;
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    let text = |key: &str| object["spec"][key].as_str().unwrap_or_default().to_owned();
    let bundle =
        Bundle { signer: text("signerName"), labels: labels.collect(), text: text("trustBundle") };
    Some((name.to_owned(), bundle))
}

/// The certificates, each once, in an order of `draw`'s choosing: a number below the one
/// it is given. `None` if there are none.
pub(super) fn anchors(
    ask: &TrustAsk,
    bundles: &Bundles,
    draw: &dyn Fn(usize) -> usize,
) -> Result<Option<Vec<u8>>, TrustError> {
    let chosen: Vec<&Bundle> = match ask {
        TrustAsk::Name(name) => bundles.get(name).into_iter().collect(),
        TrustAsk::Signer { name, selector } => {
            check(selector.as_ref())?;
            let of_signer = bundles.values().filter(|bundle| bundle.signer == *name);
            of_signer.filter(|bundle| selects(selector.as_ref(), &bundle.labels)).collect()
        }
    };
    let all: BTreeSet<Vec<u8>> =
        chosen.into_iter().flat_map(|bundle| pem::blocks(&bundle.text)).collect();
    if all.is_empty() {
        return Ok(None);
    }
    let mut all: Vec<Vec<u8>> = all.into_iter().collect();
    for last in (1..all.len()).rev() {
        all.swap(last, draw(last + 1).min(last));
    }
    let text: String = all.iter().map(|bytes| pem::block(pem::CERTIFICATE, bytes)).collect();
    Ok(Some(text.into_bytes()))
}

/// May a change of this bundle change what an ask comes to?
pub(super) fn concerns(ask: &TrustAsk, name: &str, bundle: &Bundle) -> bool {
    match ask {
        TrustAsk::Name(wanted) => wanted == name,
        TrustAsk::Signer { name, .. } => *name == bundle.signer,
    }
}

/// Selectors come from pods, which an API server has checked; one that it should not
/// have let through selects nothing by chance.
fn check(selector: Option<&LabelSelector>) -> Result<(), TrustError> {
    let Some(selector) = selector else { return Ok(()) };
    let bytes = length(selector);
    if bytes > SELECTOR_BYTES_MAX {
        return Err(TrustError::Long { bytes, most: SELECTOR_BYTES_MAX });
    }
    for part in selector.match_expressions.iter().flatten() {
        let values = part.values.iter().flatten().count();
        let why = match part.operator.as_str() {
            "In" | "NotIn" if values == 0 => {
                "for 'in', 'notin' operators, values set can't be empty".to_owned()
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                "values set must be empty for exists and does not exist".to_owned()
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => continue,
            other => format!("{} is not a valid label selector operator", quote::go(other)),
        };
        return Err(TrustError::Selector(why));
    }
    Ok(())
}

/// Bytes of a selector as users write it on a command line: `a=b,c in (d,e),f,!g`.
fn length(selector: &LabelSelector) -> usize {
    let equal = selector.match_labels.iter().flatten();
    let equal = equal.map(|(key, value)| key.len() + "=".len() + value.len());
    let parts = selector.match_expressions.iter().flatten().map(|part| {
        let values = part.values.iter().flatten().map(|value| value.len() + ",".len());
        let values = values.sum::<usize>().saturating_sub(1);
        part.key.len()
            + match part.operator.as_str() {
                "In" => " in ()".len() + values,
                "NotIn" => " notin ()".len() + values,
                "DoesNotExist" => "!".len(),
                _ => 0,
            }
    });
    let all: Vec<usize> = equal.chain(parts).collect();
    all.iter().sum::<usize>() + all.len().saturating_sub(1)
}

/// No selector selects nothing, an empty one everything.
fn selects(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else { return false };
    let equal = selector.match_labels.iter().flatten();
    let is_equal = equal.clone().all(|(key, value)| labels.get(key) == Some(value));
    let parts = selector.match_expressions.iter().flatten();
    is_equal
        && parts.into_iter().all(|part| {
            let own = labels.get(&part.key);
            let listed = own.is_some_and(|own| part.values.iter().flatten().any(|v| v == own));
            match part.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => own.is_some(),
                // Others were refused.
                _ => own.is_none(),
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bundles() -> Bundles {
        let bundle = |name: &str, signer: &str, labels: Value, parts: &[&str]| {
            let text: String = parts.iter().map(|part| pem::block("X", part.as_bytes())).collect();
            let object = json!({"metadata": {"name": name, "labels": labels},
                "spec": {"signerName": signer, "trustBundle": text}});
            read(&object).unwrap()
        };
        Bundles::from([
            bundle("plain", "", json!({}), &["p", "q", "p"]),
            bundle("s:1", "s", json!({"env": "live", "gen": "1"}), &["a", "b"]),
            bundle("s:2", "s", json!({"env": "test"}), &["b", "c"]),
            bundle("t:1", "t", json!({"env": "live"}), &["d"]),
            bundle("void", "", json!({}), &[]),
        ])
    }

    /// What an ask comes to, as one letter for each certificate.
    fn check_ask(ask: Value, draw: &dyn Fn(usize) -> usize) -> String {
        let ask: TrustAsk = serde_json::from_value(ask).unwrap();
        match anchors(&ask, &bundles(), draw) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(text)) => {
                let text = String::from_utf8(text).unwrap();
                assert_eq!(text.matches("BEGIN CERTIFICATE").count(), pem::blocks(&text).len());
                pem::blocks(&text).into_iter().map(|b| String::from_utf8(b).unwrap()).collect()
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn certificates_of_names_and_signers() {
        // As they were.
        let keep = |below: usize| below - 1;
        let signer = |selector: Value| json!({"signer": {"name": "s", "selector": selector}});
        let part = |key: &str, operator: &str, values: Value| {
            signer(
                json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}),
            )
        };
        for (ask, expected) in [
            (json!({"name": "plain"}), "pq"),
            (json!({"name": "s:1"}), "ab"),
            (json!({"name": "none"}), "nothing"),
            (json!({"name": "void"}), "nothing"),
            (signer(json!(null)), "nothing"),
            (signer(json!({})), "abc"),
            (signer(json!({"matchLabels": {"env": "live"}})), "ab"),
            (signer(json!({"matchLabels": {"env": "live", "gen": "2"}})), "nothing"),
            (part("env", "In", json!(["test", "live"])), "abc"),
            (part("env", "In", json!(["test"])), "bc"),
            (part("gen", "NotIn", json!(["1"])), "bc"),
            (part("gen", "Exists", json!([])), "ab"),
            (part("gen", "DoesNotExist", json!([])), "bc"),
            (
                part("gen", "In", json!([])),
                "while parsing label selector: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                part("gen", "Exists", json!(["1"])),
                "while parsing label selector: values set must be empty for exists and does not exist",
            ),
            (
                part("gen", "Gt", json!(["1"])),
                "while parsing label selector: \"Gt\" is not a valid label selector operator",
            ),
            (
                part("gen", "In", json!(["x".repeat(SELECTOR_BYTES_MAX)])),
                "label selector length (102409) is larger than 102400",
            ),
        ] {
            assert_eq!(check_ask(ask.clone(), &keep), expected, "{}", &ask.to_string()[..20]);
        }
    }

    #[test]
    fn selectors_are_as_long_as_users_write_them() {
        let part = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        for (selector, text) in [
            (json!({}), ""),
            (json!({"matchLabels": {"a": "b"}}), "a=b"),
            (json!({"matchLabels": {"a": "b", "cd": ""}}), "a=b,cd="),
            (json!({"matchExpressions": [part("k", "In", &["x", "yz"])]}), "k in (x,yz)"),
            (
                json!({"matchLabels": {"a": "b"}, "matchExpressions": [part("k", "NotIn", &["x"]),
                    part("e", "Exists", &[]), part("n", "DoesNotExist", &[])]}),
                "a=b,k notin (x),e,!n",
            ),
        ] {
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            assert_eq!(length(&selector), text.len(), "{text}");
        }
    }

    #[test]
    fn the_order_is_drawn() {
        let all = json!({"signer": {"name": "s", "selector": {}}});
        assert_eq!(check_ask(all.clone(), &|_| 0), "bca");
        assert_eq!(check_ask(all.clone(), &|below| below - 1), "abc");
        // Whatever is drawn, nothing is lost.
        assert_eq!(check_ask(all, &|_| 99), "abc");
    }

    #[test]
    fn a_bundle_concerns_who_asks_for_it_or_its_signer() {
        let bundles = bundles();
        let by_name = TrustAsk::Name("s:1".to_owned());
        let by_signer = TrustAsk::Signer { name: "s".to_owned(), selector: None };
        let concerned = |ask: &TrustAsk| -> Vec<&str> {
            let all = bundles.iter().filter(|(name, bundle)| concerns(ask, name, bundle));
            all.map(|(name, _)| name.as_str()).collect()
        };
        assert_eq!(concerned(&by_name), ["s:1"]);
        assert_eq!(concerned(&by_signer), ["s:1", "s:2"]);
    }
}
