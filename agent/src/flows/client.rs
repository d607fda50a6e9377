//! The connection.

use std::error::Error;
use std::time::Duration;

use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use super::{Server, Tls};
use crate::exit::{self, Refusal};
use crate::observe::proto::observer::observer_client::ObserverClient;
use crate::observe::proto::observer::{GetFlowsRequest, GetFlowsResponse};
use crate::tell::plain;

/// How long a server may take to accept, and to begin to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a silent server is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A connection to a server.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    server: Server,
}

impl Client {
    /// Connects, with TLS if it is given.
    ///
    /// # Errors
    /// 69 when nobody answers or proofs are not enough, 77 without permission.
    pub async fn connect(server: &Server, tls: Option<&Tls>) -> Result<Self, Refusal> {
        let failed = |error: &(dyn Error + 'static)| unreachable_server(server, error);
        let endpoint = endpoint(server, tls).map_err(|error| failed(&error))?;
        let channel = endpoint.connect().await.map_err(|error| failed(&error))?;
        Ok(Self { channel, server: server.clone() })
    }

    /// Asks for flows.
    ///
    /// # Errors
    /// As the server says: 64 for a request that makes no sense, 77 without permission, otherwise 69.
    pub async fn flows(&self, request: GetFlowsRequest) -> Result<Flows, Refusal> {
        let mut client = ObserverClient::new(self.channel.clone());
        let answer = timeout(PATIENCE, client.get_flows(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
        let stream = answer.map_err(|status| refused(&self.server, &status))?.into_inner();
        Ok(Flows { stream, server: self.server.clone() })
    }
}

/// Answers that come one by one.
#[derive(Debug)]
pub struct Flows {
    stream: Streaming<GetFlowsResponse>,
    server: Server,
}

impl Flows {
    /// The next one; `None`: that was all. Giving up the wait loses nothing.
    ///
    /// # Errors
    /// As [`Client::flows`]; 69 also when the server is gone.
    pub async fn next(&mut self) -> Result<Option<GetFlowsResponse>, Refusal> {
        self.stream.message().await.map_err(|status| refused(&self.server, &status))
    }
}

fn endpoint(server: &Server, tls: Option<&Tls>) -> Result<Endpoint, tonic::transport::Error> {
    let uri = match (server, tls) {
        (Server::Unix(path), _) => format!("unix://{}", path.display()),
        (Server::Tcp { authority, .. }, None) => format!("http://{authority}"),
        (Server::Tcp { authority, .. }, Some(_)) => format!("https://{authority}"),
    };
    let endpoint = Endpoint::from_shared(uri)?
        .connect_timeout(PATIENCE)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_while_idle(true);
    match (server, tls) {
        (Server::Tcp { .. }, Some(tls)) => endpoint.tls_config(tls.0.clone().timeout(PATIENCE)),
        _ => Ok(endpoint),
    }
}

fn unreachable_server(server: &Server, error: &(dyn Error + 'static)) -> Refusal {
    let cause = format!("no answer at {server}: {}", plain(&innermost(error).to_string()));
    if is_denied(error) {
        return Refusal::new(exit::NO_PERMISSION, cause, "run it with sudo");
    }
    Refusal::new(exit::UNAVAILABLE, cause, remedy(server))
}

fn remedy(server: &Server) -> &'static str {
    match server {
        Server::Unix(_) => "is `egret agent` running? --server says where to ask",
        Server::Tcp { .. } => {
            "is a server there, with TLS as here, and with certificates that both sides believe?"
        }
    }
}

/// What a server says instead of an answer, or why it says nothing more. The text is the server's.
fn refused(server: &Server, status: &Status) -> Refusal {
    let gone = |why: String| {
        let cause = format!("{server} is gone: {why}");
        Refusal::new(exit::UNAVAILABLE, cause, remedy(server))
    };
    // Only what happened on this side has a cause.
    if let Some(error) = Error::source(status) {
        return gone(plain(&innermost(error).to_string()));
    }
    let text = plain(status.message());
    match status.code() {
        // The codes of a filter or a selection that makes no sense.
        Code::Unknown | Code::InvalidArgument => Refusal::new(exit::USAGE, text, "ask for something else"),
        Code::PermissionDenied | Code::Unauthenticated => {
            Refusal::new(exit::NO_PERMISSION, format!("{server}: {text}"), "show another certificate")
        }
        Code::Unimplemented => Refusal::new(
            exit::UNAVAILABLE,
            format!("{server} does not serve flows: {text}"),
            "--server says where to ask",
        ),
        _ => gone(text),
    }
}

/// The cause of all others: those above it say only that there was one.
fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

fn is_denied(error: &(dyn Error + 'static)) -> bool {
    let io = innermost(error).downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}
