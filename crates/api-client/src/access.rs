//! How to reach a server, and as whom. Pure data.

use std::fmt;
use std::path::PathBuf;

/// A server, and who asks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `https://host:port`, with no slash at the end.
    pub server: String,
    /// Who vouches for the server; the machine's own authorities if nobody is named.
    pub authority: Option<Pem>,
    /// The name in the server's certificate, if it is not that of the address.
    pub server_name: Option<String>,
    /// Whoever answers is believed.
    pub insecure: bool,
    /// A certificate and its key.
    pub certificate: Option<(Pem, Pem)>,
    /// A bearer token.
    pub token: Option<Token>,
    /// A program that knows credentials.
    pub exec: Option<ExecPlugin>,
}

impl Access {
    /// The same server, asked by nobody in particular.
    #[must_use]
    pub fn anonymous(self) -> Self {
        Self { certificate: None, token: None, exec: None, ..self }
    }
}

/// Certificates or a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// As they are.
    Inline(Vec<u8>),
    /// In a file, which may change.
    File(PathBuf),
}

/// Where it is, but never what.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub enum Token {
    /// As it is.
    Inline(String),
    /// In a file, which may change.
    File(PathBuf),
}

/// Where it is, but never what.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("a token"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A program that prints credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct ExecPlugin {
    /// The program; looked for in PATH if it is a name alone.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// What is added to its environment.
    pub env: Vec<(String, String)>,
    /// Version of the talk with it.
    pub api_version: String,
    /// What to tell users who lack it.
    pub install_hint: Option<String>,
    /// The cluster as it is told to the program, if it is.
    pub cluster: Option<serde_json::Value>,
}

/// The environment may hold secrets.
impl fmt::Debug for ExecPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecPlugin").field("command", &self.command).finish_non_exhaustive()
    }
}
