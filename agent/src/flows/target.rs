//! Where to ask, out of options and the environment.

use super::{SERVER, SERVER_VARIABLE, Server, Tls, TlsFiles};
use crate::cli::ServerArgs;
use crate::exit::{self, Refusal};
use crate::tell;

/// Where to ask, and with which proofs.
///
/// # Errors
/// 64 for options that make no sense together, 66 for a file that cannot be read.
pub fn target(args: &ServerArgs) -> Result<(Server, Option<Tls>), Refusal> {
    let variable = || std::env::var(SERVER_VARIABLE).ok().filter(|text| !text.is_empty());
    let text = args.server.clone().or_else(variable).unwrap_or_else(|| SERVER.to_owned());
    let server = Server::parse(&text).map_err(|error| usage(format!("--server {text:?}: {error}")))?;
    let files = TlsFiles {
        authorities: args.tls_ca_cert_files.clone(),
        identity: args.tls_client_cert_file.clone().zip(args.tls_client_key_file.clone()),
        server_name: args.tls_server_name.clone(),
    };
    let wanted = args.tls || matches!(server, Server::Tcp { tls: true, .. });
    if matches!(server, Server::Unix(_)) && wanted {
        return Err(usage("a unix socket has no TLS".to_owned()));
    }
    if wanted && files.authorities.is_empty() {
        return Err(usage("TLS needs --tls-ca-cert-files: who vouches for the server".to_owned()));
    }
    if !wanted && files != TlsFiles::default() {
        return Err(usage("these files are for TLS: give --tls or tls://HOST:PORT as well".to_owned()));
    }
    Ok((server, wanted.then(|| Tls::read(&files)).transpose()?))
}

pub(super) fn usage(error: String) -> Refusal {
    Refusal::new(exit::USAGE, tell::plain(&error), "see `egret observe --help`")
}
