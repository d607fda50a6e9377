//! Who is asked for flows, and by which proofs.

use std::path::PathBuf;

use clap::Args;

/// Who is asked.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Source")]
pub struct ServerArgs {
    /// Who is asked: unix:///PATH, HOST:PORT or tls://HOST:PORT; default: $HUBBLE_SERVER, or the agent of this host at
    /// unix:///run/egret/hubble.sock
    #[arg(long, value_name = "ADDR")]
    pub server: Option<String>,
    /// Ask with TLS, as tls://HOST:PORT does
    #[arg(long)]
    pub tls: bool,
    /// Certificates of those who vouch for the server, in PEM; with TLS there must be some: those of the system do not count
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub tls_ca_cert_files: Vec<PathBuf>,
    /// The certificate to show, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_client_key_file")]
    pub tls_client_cert_file: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_client_cert_file")]
    pub tls_client_key_file: Option<PathBuf>,
    /// The name that the server must prove; default: that of its address
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<String>,
}
