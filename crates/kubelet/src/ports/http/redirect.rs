//! URLs: which can be fetched, and where a redirect leads. Pure.

use hyper::Uri;
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap, WWW_AUTHENTICATE};
use kubelet_model::base64;
use kubelet_model::manifest::Origin;
use percent_encoding::percent_decode_str;

/// Parses a URL that can be fetched.
pub(super) fn parse(url: &str) -> Result<Uri, String> {
    let url = url.split('#').next().unwrap_or(url);
    let uri: Uri = url.parse().map_err(|error| format!("not a URL: {error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("only http:// and https:// can be fetched".to_owned());
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err("it names a user".to_owned());
    }
    if uri.host().unwrap_or_default().is_empty() {
        return Err("the URL names no host".to_owned());
    }
    Ok(uri)
}

/// A URL without the user and password in it, and these as a header's value.
pub(super) fn take_login(url: &str) -> (String, Option<String>) {
    let whole = || (url.to_owned(), None);
    let Some((scheme, rest)) = url.split_once("://") else { return whole() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some(at) = rest[..end].rfind('@') else { return whole() };
    let (user, password) = rest[..at].split_once(':').unwrap_or((&rest[..at], ""));
    let decoded = |text| percent_decode_str(text).collect::<Vec<u8>>();
    let login = [decoded(user), b":".to_vec(), decoded(password)].concat();
    let value = format!("Basic {}", base64::encode(&login));
    (format!("{scheme}://{}", &rest[at + 1..]), Some(value))
}

/// The URL a `Location` header leads to.
pub(in crate::ports) fn resolve(base: &Uri, location: &str) -> Result<Uri, String> {
    let scheme = base.scheme_str().unwrap_or("http");
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let has_scheme = location.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    });
    let text = if has_scheme {
        location.to_owned()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.starts_with('?') {
        format!("{scheme}://{authority}{}{location}", base.path())
    } else {
        let directory = base.path().rsplit_once('/').map_or("", |(directory, _)| directory);
        format!("{scheme}://{authority}{directory}/{location}")
    };
    parse(&text).map_err(|why| format!("redirected to {:?}: {why}", redact(&text)))
}

/// Takes credentials out of the headers before they reach another host.
pub(super) fn drop_secrets(headers: &mut HeaderMap, from: &Uri, to: &Uri) {
    let (from, to) = (from.host().unwrap_or_default(), to.host().unwrap_or_default());
    let below = to.strip_suffix(from).is_some_and(|rest| rest.ends_with('.'));
    if from.eq_ignore_ascii_case(to) || below {
        return;
    }
    for name in [AUTHORIZATION, COOKIE, WWW_AUTHENTICATE] {
        headers.remove(name);
    }
}

/// The URL without a password, for messages.
pub(super) fn redact(url: &str) -> String {
    Origin::Url(url.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_locations() {
        let base = parse("http://h:1/a/b?x=1").unwrap();
        for (location, expected) in [
            ("https://o/p", "https://o/p"),
            ("//o/p", "http://o/p"),
            ("/p?y", "http://h:1/p?y"),
            ("c", "http://h:1/a/c"),
            ("?z", "http://h:1/a/b?z"),
            ("c#part", "http://h:1/a/c"),
        ] {
            assert_eq!(resolve(&base, location).unwrap().to_string(), expected, "{location}");
        }
        for location in ["ftp://o/p", "file:///etc/passwd", "http://u:p@o/", "http://"] {
            assert!(resolve(&base, location).is_err(), "{location}");
        }
    }

    #[test]
    fn a_login_becomes_a_header() {
        for (url, without, login) in [
            ("http://h/x", "http://h/x", None),
            ("http://h/x@y", "http://h/x@y", None),
            ("http://u:p@h:1/x?q", "http://h:1/x?q", Some("Basic dTpw")),
            ("http://u@h", "http://h", Some("Basic dTo=")),
            ("http://u%3A:p%@h/", "http://h/", Some("Basic dTo6cCU=")),
        ] {
            assert_eq!(take_login(url), (without.to_owned(), login.map(str::to_owned)), "{url}");
        }
    }

    #[test]
    fn keeps_secrets_on_their_host() {
        let secret = |to: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, "s".parse().unwrap());
            drop_secrets(&mut headers, &parse("http://h.io/").unwrap(), &parse(to).unwrap());
            headers.contains_key(AUTHORIZATION)
        };
        assert!(secret("https://H.io/x") && secret("http://a.h.io/"));
        assert!(!secret("http://evil.io/") && !secret("http://evilh.io/"));
    }
}
