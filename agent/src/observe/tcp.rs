//! Flows over TCP, with or without TLS.
//!
//! Certificates are read again when their files change, so that a new one needs no restart. Connections keep what they began with.

use std::fs::Metadata;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tonic::transport::server::ServerTlsConfig;
use tonic::transport::{Certificate, Identity, Server};

use super::observer::From;
use super::seat::{Seated, Turns};
use super::serve::{END, Listen, places, services};
use crate::exit::{self, Refusal};
use crate::flows::pem;
use crate::tell;

/// How long a client may take to prove who it is: it has a place meanwhile.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How often it is looked whether files have changed.
const LOOK: Duration = Duration::from_secs(5);

/// Inode and time of the last change; `None`: there is no such file.
type Stamp = Option<(u64, i64, i64)>;

/// What a server shows, and whom it believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its certificate.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
    /// Certificates of those who vouch for clients; none: clients show nothing.
    pub authorities: Vec<PathBuf>,
}

impl ServerFiles {
    /// What they say, if it makes sense.
    fn read(&self) -> Result<ServerTlsConfig, Refusal> {
        let identity = Identity::from_pem(pem(&self.certificate)?, pem(&self.key)?);
        let mut config = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE);
        if !self.authorities.is_empty() {
            let mut all = Vec::new();
            for path in &self.authorities {
                all.extend(pem(path)?);
                all.push(b'\n');
            }
            config = config.client_ca_root(Certificate::from_pem(all));
        }
        match Server::builder().tls_config(config.clone()) {
            Ok(_) => Ok(config),
            Err(error) => {
                let cause = format!("{}: {}", self.certificate.display(), innermost(&error));
                Err(Refusal::new(
                    exit::DATA_ERROR,
                    cause,
                    "give a certificate, its key, and authorities in PEM",
                ))
            }
        }
    }

    /// Which they are, and when they were changed last.
    fn stamps(&self) -> Vec<Stamp> {
        let stamp = |there: Metadata| (there.ino(), there.mtime(), there.mtime_nsec());
        let all = [&self.certificate, &self.key].into_iter().chain(&self.authorities);
        all.map(|path| std::fs::metadata(path).ok().map(stamp)).collect()
    }
}

/// The cause of all others.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| tell::plain(&error.to_string()), innermost)
}

/// An address that is listened at.
#[derive(Debug)]
pub(super) struct Tcp {
    address: SocketAddr,
    listener: TcpListener,
    tls: Option<Tls>,
}

/// Files, and what they said.
#[derive(Debug)]
struct Tls {
    files: ServerFiles,
    stamps: Vec<Stamp>,
    config: ServerTlsConfig,
}

impl Tcp {
    /// Listens.
    ///
    /// # Errors
    /// The address cannot be had, or the files make no sense.
    pub(super) fn bind(listen: Listen) -> Result<Self, Refusal> {
        let address = listen.address;
        let tls = listen.tls.map(|files| {
            let (stamps, config) = (files.stamps(), files.read()?);
            Ok(Tls { files, stamps, config })
        });
        let tls = tls.transpose()?;
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = bind().map_err(|error: io::Error| {
            let cause = format!("--hubble-listen {address}: {error}");
            Refusal::new(exit::OS_ERROR, cause, "give an address that nobody else has")
        })?;
        Ok(Self { address, listener, tls })
    }

    /// Serves.
    pub(super) async fn serve(self, from: &From) -> io::Result<()> {
        let Self { address, listener, mut tls } = self;
        let listener = Arc::new(tokio::net::TcpListener::from_std(listener)?);
        let places = places();
        loop {
            let mut server = Server::builder();
            let turns = if tls.is_some() { Turns::TLS } else { Turns::CLEAR };
            if let Some(tls) = &tls {
                server = server.tls_config(tls.config.clone()).map_err(io::Error::other)?;
            }
            let services = services(server, from, address.to_string(), tls.is_some()).await;
            tokio::select! {
                ended = services.serve_with_incoming(clients(listener.clone(), places.clone(), turns)) => {
                    return ended.map_err(io::Error::other);
                }
                () = changed(&mut tls) => {}
            }
        }
    }
}

/// Waits until files say something else that makes sense.
async fn changed(tls: &mut Option<Tls>) {
    let Some(tls) = tls else { return std::future::pending().await };
    loop {
        tokio::time::sleep(LOOK).await;
        let stamps = tls.files.stamps();
        if stamps == tls.stamps {
            continue;
        }
        tls.stamps = stamps;
        match tls.files.read() {
            Ok(config) => {
                tell::line("flows are served with the new certificates");
                tls.config = config;
                return;
            }
            Err(refusal) => {
                tell::line(format_args!("warning: {}; the certificates from before stay", refusal.cause));
            }
        }
    }
}

fn clients(
    listener: Arc<tokio::net::TcpListener>,
    places: Arc<Semaphore>,
    turns: Turns,
) -> impl Stream<Item = io::Result<Seated<TcpStream>>> {
    stream::unfold((listener, places), move |(listener, places)| async move {
        loop {
            let place = places.clone().acquire_owned().await.ok()?;
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Slower without, but served.
                    let _ = stream.set_nodelay(true);
                    return Some((Ok(Seated::new(stream, place, turns)), (listener, places)));
                }
                // No descriptor is left: one comes free when a client goes.
                Err(_) => tokio::time::sleep(END).await,
            }
        }
    })
}
