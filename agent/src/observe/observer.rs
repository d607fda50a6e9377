//! The service that `hubble` asks.

use std::pin::Pin;
use std::sync::Arc;

use egret_core::flow::CLUSTER;
use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::events::Events;
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

/// What is answered from.
#[derive(Debug, Clone)]
pub(super) struct From {
    pub(super) store: Arc<Store>,
    pub(super) events: Arc<Events>,
    pub(super) node: String,
}

/// Answers at an address.
#[derive(Debug, Clone)]
pub(super) struct FromRing {
    pub(super) from: From,
    /// Where it serves.
    pub(super) address: String,
    /// It is encrypted there.
    pub(super) tls: bool,
    /// Places for those who read flows.
    pub(super) readers: Arc<Semaphore>,
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
        let place = self.readers.clone().try_acquire_owned();
        let place = place.map_err(|_| Status::resource_exhausted("too many read flows already"))?;
        let request = request.into_inner();
        // With this code a client prints the text alone.
        let filters = request::filters(&request).map_err(|error| Status::unknown(error.to_string()))?;
        let mask = request::mask(&request).filter(|mask| !mask.paths.is_empty());
        let mask = mask.map(|mask| Mask::new(&mask.paths)).transpose().map_err(Status::unknown)?;
        let reading = self.from.store.read(request::query(&request), filters);
        let reading = reading.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let node = self.from.node.clone();
        let state = (reading, node, mask, place);
        let answers = stream::unfold(state, |(mut reading, node, mask, place)| async move {
            let entry = reading.next().await?;
            let answer = message::response(&entry, &node, mask.as_ref());
            Some((Ok(answer), (reading, node, mask, place)))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn get_agent_events(
        &self,
        request: Request<GetAgentEventsRequest>,
    ) -> Result<Response<Self::GetAgentEventsStream>, Status> {
        let reading = self.from.events.read(request::event_query(request.get_ref()));
        let reading = reading.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let node = self.from.node.clone();
        let answers = stream::unfold((reading, node), |(mut reading, node)| async move {
            let (time, event) = reading.next().await?;
            Some((Ok(message::event(time, &event, &node)), (reading, node)))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn get_debug_events(
        &self,
        request: Request<GetDebugEventsRequest>,
    ) -> Result<Response<Self::GetDebugEventsStream>, Status> {
        Ok(Response::new(nothing(request.get_ref().follow)))
    }

    async fn get_nodes(&self, _: Request<GetNodesRequest>) -> Result<Response<GetNodesResponse>, Status> {
        let fill = self.from.store.status();
        let node = Node {
            name: self.from.node.clone(),
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
        let namespaces = self.from.store.namespaces().into_iter().map(one).collect();
        Ok(Response::new(GetNamespacesResponse { namespaces }))
    }

    async fn server_status(
        &self,
        _: Request<ServerStatusRequest>,
    ) -> Result<Response<ServerStatusResponse>, Status> {
        let fill = self.from.store.status();
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
