//! Where a server is, as `hubble --server` takes it.

use std::fmt;
use std::path::PathBuf;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp {
        /// `HOST:PORT`.
        authority: String,
        /// The address asks for TLS.
        tls: bool,
    },
}

impl Server {
    /// Reads `unix:///PATH`, `unix:/PATH`, `HOST:PORT` or `tls://HOST:PORT`.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        const WRITE: &str = "write unix:///PATH, HOST:PORT or tls://HOST:PORT";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let good = path.starts_with('/') && path.len() > 1 && !path.contains('\0');
            return if good { Ok(Self::Unix(path.into())) } else { Err(WRITE.to_owned()) };
        }
        let (authority, tls) = match text.split_once("://") {
            Some(("tls", authority)) => (authority, true),
            Some(_) => return Err(WRITE.to_owned()),
            None => (text, false),
        };
        let parsed: http::uri::Authority = authority.parse().map_err(|_| WRITE.to_owned())?;
        let whole = parsed.port_u16().is_some() && !parsed.host().is_empty() && !authority.contains('@');
        if whole { Ok(Self::Tcp { authority: authority.to_owned(), tls }) } else { Err(WRITE.to_owned()) }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp { authority, tls: false } => f.write_str(authority),
            Self::Tcp { authority, tls: true } => write!(f, "tls://{authority}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_hubble_takes_them() {
        for (text, want) in [
            ("unix:///run/egret/hubble.sock", Some("unix:///run/egret/hubble.sock")),
            ("unix:/run/x", Some("unix:///run/x")),
            ("localhost:4245", Some("localhost:4245")),
            ("[::1]:4245", Some("[::1]:4245")),
            ("tls://n1.example:4244", Some("tls://n1.example:4244")),
            ("/run/egret/hubble.sock", None),
            ("unix://run/x", None),
            ("unix:", None),
            ("localhost", None),
            ("localhost:x", None),
            ("localhost:70000", None),
            (":4245", None),
            ("http://localhost:4245", None),
            ("user@localhost:4245", None),
            ("", None),
        ] {
            assert_eq!(Server::parse(text).ok().map(|s| s.to_string()).as_deref(), want, "{text:?}");
        }
    }
}
