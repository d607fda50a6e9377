//! Proofs: whom a client believes, and who it is.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::exit::{self, Refusal};

/// Bytes of a file with certificates or a key at most.
const MOST: u64 = 1 << 20;

/// The files, as options name them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of those who vouch for the server.
    pub authorities: Vec<PathBuf>,
    /// The client's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server must prove; `None`: that of its address.
    pub server_name: Option<String>,
}

/// What they say.
#[derive(Debug, Clone)]
pub struct Tls(pub(super) ClientTlsConfig);

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// 66 for a file that cannot be read.
    pub fn read(files: &TlsFiles) -> Result<Self, Refusal> {
        let mut config = ClientTlsConfig::new();
        for path in &files.authorities {
            config = config.ca_certificate(Certificate::from_pem(pem(path)?));
        }
        if let Some((certificate, key)) = &files.identity {
            config = config.identity(Identity::from_pem(pem(certificate)?, pem(key)?));
        }
        if let Some(name) = &files.server_name {
            config = config.domain_name(name);
        }
        Ok(Self(config))
    }
}

/// The text of a file in PEM.
///
/// # Errors
/// 66 with the file's name.
pub(crate) fn pem(path: &Path) -> Result<Vec<u8>, Refusal> {
    let read = || {
        let mut text = Vec::new();
        File::open(path)?.take(MOST + 1).read_to_end(&mut text)?;
        match text.len() as u64 {
            0 => Err(io::Error::other("it is empty")),
            length if length > MOST => Err(io::Error::other("it is too long")),
            _ => Ok(text),
        }
    };
    read().map_err(|error| {
        let cause = format!("cannot read {}: {error}", path.display());
        Refusal::new(exit::NO_INPUT, cause, "give a file in PEM")
    })
}
