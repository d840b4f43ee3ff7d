//! What a failed pull means. Pure.
//!
//! Runtimes report a registry's answer as text; this tells the usual ones apart.

use crate::image_manager::{BAD_PULL_SECRET, NO_LOGIN_FROM};

/// Why an image could not be pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PullTrouble {
    /// The registry's name does not resolve.
    NoSuchHost,
    /// Nobody listens there.
    Refused,
    /// No answer.
    Timeout,
    /// Certificate trouble, or plain HTTP.
    Tls,
    /// The registry wants other credentials.
    Unauthorized,
    /// The registry knows no such repository or tag.
    NotFound,
    /// The registry asks to slow down.
    TooMany,
    /// No variant for this machine.
    Platform,
    /// No room.
    DiskFull,
    /// The agent's own limit of pulls per second.
    OwnLimit,
    /// A secret of the pod holds no logins that can be read; nobody was asked.
    PullSecret,
    /// Something else.
    Other,
}

/// Classifies the runtime's words.
pub(super) fn classify(message: &str) -> PullTrouble {
    if message.contains(BAD_PULL_SECRET) {
        return PullTrouble::PullSecret;
    }
    // What a credential provider failed of is not what the registry said.
    let text = message.split(NO_LOGIN_FROM).next().unwrap_or_default().to_lowercase();
    let has = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    // Order matters: an answer of the registry often quotes the request that led to it.
    if has(&["no such host", "server misbehaving", "name resolution", "could not resolve"]) {
        PullTrouble::NoSuchHost
    } else if has(&["connection refused"]) {
        PullTrouble::Refused
    } else if has(&["x509", "tls:", "certificate", "http response to https client"]) {
        PullTrouble::Tls
    } else if has(&["no space left"]) {
        PullTrouble::DiskFull
    } else if has(&["qps exceeded"]) {
        PullTrouble::OwnLimit
    } else if has(&["toomanyrequests", "too many requests", "rate limit"]) {
        PullTrouble::TooMany
    } else if has(&["no match for platform", "no matching manifest"]) {
        PullTrouble::Platform
    } else if has(&["manifest unknown", "not found", "name unknown", "repository does not exist"])
        && !has(&["unauthorized", "authorization failed", "access denied", "pull access"])
    {
        PullTrouble::NotFound
    } else if has(&[
        "unauthorized",
        "authorization failed",
        "access denied",
        "pull access denied",
        "insufficient_scope",
        "401",
        "403",
        "forbidden",
        "no basic auth",
    ]) {
        PullTrouble::Unauthorized
    } else if has(&["timeout", "timed out", "deadline exceeded", "unreachable", "no route to host"])
    {
        PullTrouble::Timeout
    } else {
        PullTrouble::Other
    }
}

/// What it means, in a clause.
pub(super) fn meaning(trouble: PullTrouble, image: &str) -> String {
    let host = registry(image);
    match trouble {
        PullTrouble::NoSuchHost => format!("the registry's name {host} cannot be resolved"),
        PullTrouble::Refused => format!("nothing listens at the registry {host}"),
        PullTrouble::Timeout => format!("the registry {host} does not answer"),
        PullTrouble::Tls => {
            format!("the encrypted connection to {host} cannot be set up or trusted")
        }
        PullTrouble::Unauthorized => {
            format!("{host} does not let this node read it, or there is no such image")
        }
        PullTrouble::NotFound => format!("{host} has no such image or tag"),
        PullTrouble::TooMany => format!("{host} limits how often this node may pull"),
        PullTrouble::Platform => "the image has no variant for this machine".to_owned(),
        PullTrouble::DiskFull => "the disk is full".to_owned(),
        PullTrouble::OwnLimit => "klet's own limit of pulls per second was reached".to_owned(),
        PullTrouble::PullSecret => "one of the pod's imagePullSecrets cannot be read".to_owned(),
        PullTrouble::Other => "the runtime could not get it".to_owned(),
    }
}

/// What to do about it, best first.
pub(super) fn advice(trouble: PullTrouble, image: &str) -> Vec<String> {
    let host = registry(image);
    let lines: &[String] = &match trouble {
        PullTrouble::NoSuchHost => vec![
            format!("Check the image's name for a typo: the part before the first / is the registry ({host})."),
            format!("If it is right, check this node's DNS: `getent hosts {host}`, /etc/resolv.conf."),
        ],
        PullTrouble::Refused => vec![
            format!("Check the registry's port in {image:?}, and that the registry is running."),
            "A mirror or proxy set in the runtime's configuration may be down too.".to_owned(),
        ],
        PullTrouble::Timeout => vec![
            format!("Check that this node reaches {host}: `curl -v https://{host}/v2/`; look at firewall and proxy."),
            "Behind a proxy, the runtime needs HTTPS_PROXY in its own environment.".to_owned(),
        ],
        PullTrouble::Tls => vec![
            format!("Add the registry's certificate authority to this node and restart the runtime, or mark {host} \
                     as plain HTTP in the runtime's configuration (containerd: hosts.toml)."),
            "A wrong clock makes good certificates look bad: check `date`.".to_owned(),
        ],
        PullTrouble::Unauthorized => vec![
            format!("Check the spelling of {image:?}: registries answer \"denied\" for names that do not exist."),
            format!("If the image is private, log this node in: put credentials for {host} into \
                     <root-dir>/config.json (as `docker login` writes it)."),
        ],
        PullTrouble::NotFound => vec![
            format!("Check name and tag of {image:?}; the tag is the part after the last colon, `latest` if there is none."),
        ],
        PullTrouble::TooMany => vec![
            format!("Log in to {host} (limits are higher then), use a mirror, or wait."),
            "imagePullPolicy: IfNotPresent avoids asking the registry at each start.".to_owned(),
        ],
        PullTrouble::Platform => vec![
            format!("Use an image built for {}.", std::env::consts::ARCH),
        ],
        PullTrouble::DiskFull => vec![
            "Free space where the runtime keeps images (containerd: /var/lib/containerd); `crictl rmi --prune` removes unused ones.".to_owned(),
        ],
        PullTrouble::OwnLimit => vec![
            "It is tried again by itself. Raise registryPullQPS and registryBurst if it happens often.".to_owned(),
        ],
        PullTrouble::PullSecret => vec![
            format!("Correct the Secret that the error names. Its value is what `docker login {host}` writes into \
                     config.json, as base64 in data or as it is in stringData; an auth in it is base64 of user:password."),
            "If the image needs no login, take the Secret out of the pod's imagePullSecrets.".to_owned(),
        ],
        PullTrouble::Other => vec![
            format!("Try it by hand on this node: `crictl pull {image}`."),
        ],
    };
    lines.to_vec()
}

/// What to do about credential providers that gave no login, if some did not.
pub(super) fn provider_advice(message: &str) -> Option<String> {
    let (_, told) = message.split_once(NO_LOGIN_FROM)?;
    let name = told.split(':').next().unwrap_or_default();
    Some(format!(
        "The credential provider {name} gave no login, see above: run its program by hand, in \
         the directory that --image-credential-provider-bin-dir names, with a \
         CredentialProviderRequest on its input."
    ))
}

/// The registry an image comes from, as runtimes read a name.
pub(super) fn registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
        _ => "docker.io",
    }
}

/// What is wrong with a name that no runtime takes.
pub(super) fn name_problem(image: &str) -> String {
    let scheme = image.split_once("://").map(|(scheme, _)| scheme);
    let name = image.split('@').next().unwrap_or(image);
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    if let Some(scheme) = scheme {
        format!("leave out {scheme}://; a name begins with the registry's host")
    } else if image.trim().is_empty() {
        "it is empty".to_owned()
    } else if image.contains(char::is_whitespace) {
        "it holds a space".to_owned()
    } else if path.contains(char::is_uppercase) {
        "upper-case letters are allowed in the tag only".to_owned()
    } else if tag == Some("") {
        "the tag after the colon is empty".to_owned()
    } else if path.ends_with('/') || path.contains("//") || path.starts_with('/') {
        "there is a / too many".to_owned()
    } else {
        "use the form registry/name:tag, in lower-case letters, digits, '.', '_', '-' and '/'"
            .to_owned()
    }
}
