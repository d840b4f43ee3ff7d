//! Which token, and how it is asked for. Pure.

use std::fmt;

use kubelet_model::quote;
use serde_json::{Value, json};

/// A pod that a token is bound to: it ends with the pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundPod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// Which token. Two that are equal are the same token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenAsk {
    /// Namespace of the account.
    pub namespace: String,
    /// Name of the account.
    pub account: String,
    /// Who is to believe it; the API server if nobody is named.
    pub audiences: Vec<String>,
    /// How long it is to last; as long as the server likes if nothing is said.
    pub expiration_seconds: Option<i64>,
    /// The pod it is bound to.
    pub pod: Option<BoundPod>,
    /// Uid that the account must have; empty if any will do.
    pub account_uid: String,
}

impl TokenAsk {
    /// The request.
    pub(super) fn body(&self) -> Value {
        let mut metadata = json!({});
        if !self.account_uid.is_empty() {
            metadata["uid"] = self.account_uid.as_str().into();
        }
        let mut spec = json!({"audiences": self.audiences});
        if let Some(seconds) = self.expiration_seconds {
            spec["expirationSeconds"] = seconds.into();
        }
        if let Some(BoundPod { name, uid }) = &self.pod {
            spec["boundObjectRef"] =
                json!({"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid});
        }
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "metadata": metadata, "spec": spec})
    }
}

/// As upstream shows its key; nothing of it is secret.
impl fmt::Display for TokenAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, account, audiences, expiration_seconds, pod, account_uid } = self;
        write!(f, "{}/{}/[]string", quote::go(account), quote::go(namespace))?;
        match audiences.as_slice() {
            [] => f.write_str("(nil)")?,
            all => {
                let all: Vec<String> = all.iter().map(|audience| quote::go(audience)).collect();
                write!(f, "{{{}}}", all.join(", "))?;
            }
        }
        let (kind, api_version) = if pod.is_some() { ("Pod", "v1") } else { ("", "") };
        let (name, uid) = pod.as_ref().map(|pod| (pod.name.as_str(), pod.uid.as_str())).unzip();
        write!(
            f,
            "/{}/v1.BoundObjectReference{{Kind:{}, APIVersion:{}, Name:{}, UID:{}}}/{}",
            expiration_seconds.unwrap_or_default(),
            quote::go(kind),
            quote::go(api_version),
            quote::go(name.unwrap_or_default()),
            quote::go(uid.unwrap_or_default()),
            quote::go(account_uid)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_no_more_than_they_must() {
        let mut ask = TokenAsk {
            namespace: "ns".to_owned(),
            account: "default".to_owned(),
            audiences: Vec::new(),
            expiration_seconds: None,
            pod: None,
            account_uid: String::new(),
        };
        let head = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "metadata": {}, "spec": {"audiences": []}});
        assert_eq!(ask.body(), head);
        let nothing = r#"v1.BoundObjectReference{Kind:"", APIVersion:"", Name:"", UID:""}"#;
        assert_eq!(ask.to_string(), format!(r#""default"/"ns"/[]string(nil)/0/{nothing}/"""#));
        ask.audiences = vec!["a".to_owned(), "b\"".to_owned()];
        ask.expiration_seconds = Some(600);
        ask.pod = Some(BoundPod { name: "web".to_owned(), uid: "u".to_owned() });
        ask.account_uid = "s".to_owned();
        let body = ask.body();
        assert_eq!(body["metadata"], json!({"uid": "s"}));
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": "u"});
        let spec = json!({"audiences": ["a", "b\""], "expirationSeconds": 600,
            "boundObjectRef": bound});
        assert_eq!(body["spec"], spec);
        let shown = r#""default"/"ns"/[]string{"a", "b\""}/600/v1.BoundObjectReference{Kind:"Pod", APIVersion:"v1", Name:"web", UID:"u"}/"s""#;
        assert_eq!(ask.to_string(), shown);
    }
}
