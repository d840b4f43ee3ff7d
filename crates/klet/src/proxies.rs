//! Proxies that the environment names, which klet does not use.
//!
//! Upstream's client goes through them; whoever relies on that is told, at the start and
//! by `klet check`, as a kubeconfig with `proxy-url` is refused by that name.

use kubelet_config::{Outcome, Warning};

/// What Go's clients read for servers of https and http, in either case of letters.
const NAMES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];

/// Adds what is worth knowing to the outcome of loading.
pub fn note(outcome: &mut Outcome) {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    outcome.warnings.extend(advice(outcome.flags.kubeconfig.is_some(), &is_set));
}

/// A node on its own asks no API server. `NO_PROXY` alone changes nothing.
fn advice(joins: bool, is_set: &dyn Fn(&str) -> bool) -> Option<Warning> {
    let set: Vec<&str> = NAMES.into_iter().filter(|name| joins && is_set(name)).collect();
    (!set.is_empty()).then(|| Warning::Advice {
        subject: set.join(", "),
        message: "set in the environment, and not used: klet connects to the API server without \
                  a proxy; see that the node reaches it directly"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proxy_to_an_api_server_is_worth_a_word() {
        let told = |joins, set: &[&str]| {
            let advice = advice(joins, &|name| set.contains(&name));
            advice.map(|advice| advice.to_string())
        };
        assert_eq!(told(true, &[]), None);
        assert_eq!(told(true, &["NO_PROXY"]), None);
        assert_eq!(told(false, &["HTTPS_PROXY"]), None);
        let both = told(true, &["https_proxy", "HTTPS_PROXY", "NO_PROXY"]).unwrap();
        assert!(both.starts_with("HTTPS_PROXY, https_proxy: set in the environment"), "{both}");
        assert!(told(true, &["http_proxy"]).is_some());
    }
}
