//! The service that `hubble` asks.

use std::pin::Pin;
use std::sync::Arc;

use egret_core::flow::CLUSTER;
use futures_util::stream::{self, Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::mask::Mask;
use super::message;
use super::proto::observer::observer_server::Observer;
use super::proto::observer::{
    GetAgentEventsRequest, GetAgentEventsResponse, GetDebugEventsRequest, GetDebugEventsResponse,
    GetFlowsRequest, GetFlowsResponse, GetNamespacesRequest, GetNamespacesResponse, GetNodesRequest,
    GetNodesResponse, Namespace, Node, ServerStatusRequest, ServerStatusResponse, Tls,
};
use super::proto::relay::NodeState;
use super::request;
use super::store::Store;

/// Answers from the ring.
#[derive(Debug, Clone)]
pub(super) struct FromRing {
    pub(super) store: Arc<Store>,
    pub(super) node: String,
    /// Where it serves.
    pub(super) address: String,
    /// It is encrypted there.
    pub(super) tls: bool,
}

/// Answers that come one by one.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Observer for FromRing {
    type GetFlowsStream = Answers<GetFlowsResponse>;
    type GetAgentEventsStream = Answers<GetAgentEventsResponse>;
    type GetDebugEventsStream = Answers<GetDebugEventsResponse>;

    async fn get_flows(
        &self,
        request: Request<GetFlowsRequest>,
    ) -> Result<Response<Self::GetFlowsStream>, Status> {
        let request = request.into_inner();
        // With this code a client prints the text alone.
        let filters = request::filters(&request).map_err(|error| Status::unknown(error.to_string()))?;
        let mask = request::mask(&request).filter(|mask| !mask.paths.is_empty());
        let mask = mask.map(|mask| Mask::new(&mask.paths)).transpose().map_err(Status::invalid_argument)?;
        let reading = self.store.read(request::query(&request), filters);
        let reading = reading.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let node = self.node.clone();
        let answers = stream::unfold((reading, node, mask), |(mut reading, node, mask)| async move {
            let entry = reading.next().await?;
            let answer = message::response(&entry, &node, mask.as_ref());
            Some((Ok(answer), (reading, node, mask)))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn get_agent_events(
        &self,
        request: Request<GetAgentEventsRequest>,
    ) -> Result<Response<Self::GetAgentEventsStream>, Status> {
        Ok(Response::new(nothing(request.get_ref().follow)))
    }

    async fn get_debug_events(
        &self,
        request: Request<GetDebugEventsRequest>,
    ) -> Result<Response<Self::GetDebugEventsStream>, Status> {
        Ok(Response::new(nothing(request.get_ref().follow)))
    }

    async fn get_nodes(&self, _: Request<GetNodesRequest>) -> Result<Response<GetNodesResponse>, Status> {
        let fill = self.store.status();
        let node = Node {
            name: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            address: self.address.clone(),
            state: NodeState::NodeConnected.into(),
            tls: Some(Tls { enabled: self.tls, server_name: String::new() }),
            uptime_ns: fill.uptime,
            num_flows: fill.flows,
            max_flows: fill.most,
            seen_flows: fill.seen,
        };
        Ok(Response::new(GetNodesResponse { nodes: vec![node] }))
    }

    async fn get_namespaces(
        &self,
        _: Request<GetNamespacesRequest>,
    ) -> Result<Response<GetNamespacesResponse>, Status> {
        let one = |namespace| Namespace { cluster: CLUSTER.into(), namespace };
        let namespaces = self.store.namespaces().into_iter().map(one).collect();
        Ok(Response::new(GetNamespacesResponse { namespaces }))
    }

    async fn server_status(
        &self,
        _: Request<ServerStatusRequest>,
    ) -> Result<Response<ServerStatusResponse>, Status> {
        let fill = self.store.status();
        Ok(Response::new(ServerStatusResponse {
            num_flows: fill.flows,
            max_flows: fill.most,
            seen_flows: fill.seen,
            uptime_ns: fill.uptime,
            version: concat!("egret ", env!("CARGO_PKG_VERSION")).into(),
            flows_rate: fill.rate,
            ..ServerStatusResponse::default()
        }))
    }
}

/// No events, until the client goes if it follows.
fn nothing<T: Send + 'static>(follow: bool) -> Answers<T> {
    match follow {
        true => stream::pending().boxed(),
        false => stream::empty().boxed(),
    }
}
