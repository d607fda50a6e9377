//! Who else serves flows: this node alone.

use std::pin::Pin;

use futures_util::stream::{self, Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::proto::peer::peer_server::Peer;
use super::proto::peer::{ChangeNotification, ChangeNotificationType, NotifyRequest, Tls};

/// The one node.
#[derive(Debug, Clone)]
pub(super) struct OneNode {
    pub(super) node: String,
    /// Where it serves.
    pub(super) address: String,
    /// Only with a certificate.
    pub(super) tls: bool,
}

#[tonic::async_trait]
impl Peer for OneNode {
    type NotifyStream = Pin<Box<dyn Stream<Item = Result<ChangeNotification, Status>> + Send>>;

    async fn notify(&self, _: Request<NotifyRequest>) -> Result<Response<Self::NotifyStream>, Status> {
        let change = ChangeNotification {
            name: self.node.clone(),
            address: self.address.clone(),
            r#type: ChangeNotificationType::PeerAdded.into(),
            tls: self.tls.then(|| Tls { server_name: self.node.clone() }),
        };
        // Nothing more ever happens, and a client that sees an end asks again at once.
        Ok(Response::new(Box::pin(stream::iter([Ok(change)]).chain(stream::pending()))))
    }
}
