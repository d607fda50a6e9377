//! A client of Hubble's API, as `hubble` is one: over the agent's socket, with the wire's own messages. Knows no insides of
//! the agent.

use std::path::Path;
use std::time::Duration;

use egret::observe::proto::flow::{Flow, FlowFilter, LostEvent, LostEventSource};
use egret::observe::proto::observer::get_flows_response::ResponseTypes;
use egret::observe::proto::observer::observer_client::ObserverClient;
use egret::observe::proto::observer::{GetFlowsRequest, GetFlowsResponse};
use egret::observe::proto::peer::peer_client::PeerClient;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::wait;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(5);

/// A connection.
#[derive(Debug)]
pub struct Hubble {
    runtime: Runtime,
    channel: Channel,
}

/// A stream that goes on.
#[derive(Debug)]
pub struct Following<'a> {
    runtime: &'a Runtime,
    stream: Streaming<GetFlowsResponse>,
}

impl Hubble {
    /// Over a unix socket.
    pub fn connect(socket: &Path) -> Self {
        Self::at(&format!("unix://{}", socket.display()))
    }

    /// At an address as tonic writes it.
    pub fn at(address: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let endpoint = Endpoint::try_from(address.to_owned()).expect("an address");
        let channel = runtime.block_on(endpoint.connect());
        let channel = channel.unwrap_or_else(|error| panic!("{address}: {error:?}"));
        Self { runtime, channel }
    }

    /// The service itself, for what has no method here.
    pub fn ask<T, F: Future<Output = Result<tonic::Response<T>, Status>>>(
        &self,
        ask: impl FnOnce(ObserverClient<Channel>) -> F,
    ) -> T {
        let answer = ask(ObserverClient::new(self.channel.clone()));
        let answer = self.runtime.block_on(async { timeout(wait::patient(LIMIT), answer).await });
        answer.expect("in time").expect("an answer").into_inner()
    }

    /// Waits for something of this connection.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The first news of [`PeerClient::notify`].
    pub fn peer(&self) -> egret::observe::proto::peer::ChangeNotification {
        self.runtime.block_on(async {
            let mut client = PeerClient::new(self.channel.clone());
            let mut stream =
                client.notify(egret::observe::proto::peer::NotifyRequest {}).await.expect("served");
            stream.get_mut().message().await.expect("news").expect("this node")
        })
    }

    /// What the health service says of `service`: 1 is serving.
    pub fn health(&self, service: &str) -> Result<i32, Status> {
        let request = HealthCheckRequest { service: service.to_owned() };
        let mut client = HealthClient::new(self.channel.clone());
        let answer = self.runtime.block_on(client.check(request))?;
        Ok(answer.into_inner().status)
    }

    /// Every answer to a request that does not follow.
    pub fn answers(&self, request: GetFlowsRequest) -> Result<Vec<GetFlowsResponse>, Status> {
        let mut client = ObserverClient::new(self.channel.clone());
        let all = async {
            let mut stream = client.get_flows(request).await?.into_inner();
            let mut all = Vec::new();
            while let Some(answer) = stream.message().await? {
                all.push(answer);
            }
            Ok(all)
        };
        let all = self.runtime.block_on(async { timeout(wait::patient(LIMIT), all).await });
        all.expect("the stream ends")
    }

    /// The flows among them.
    pub fn flows(&self, request: GetFlowsRequest) -> Vec<Flow> {
        let answers = self.answers(request).expect("valid");
        answers.into_iter().filter_map(|answer| flow(answer).ok()).collect()
    }

    /// The flows that match, oldest first.
    pub fn matching(&self, filter: FlowFilter) -> Vec<Flow> {
        self.flows(GetFlowsRequest { whitelist: vec![filter], ..Default::default() })
    }

    /// Events that were lost on the way from the kernel, as far as the ring tells.
    pub fn lost(&self) -> u64 {
        let answers = self.answers(GetFlowsRequest::default()).expect("valid");
        let lost = answers.into_iter().filter_map(|answer| flow(answer).err());
        let kernel = LostEventSource::PerfEventRingBuffer as i32;
        lost.filter(|lost| lost.source == kernel).map(|lost| lost.num_events_lost).sum()
    }

    /// Waits until some flow matches; panics with all that was seen otherwise.
    #[track_caller]
    pub fn expect(&self, filter: FlowFilter) -> Flow {
        let found = || self.matching(filter.clone()).pop();
        wait::until(wait::patient(LIMIT), found).unwrap_or_else(|| {
            let all = self.flows(GetFlowsRequest::default());
            let lines: Vec<String> = all.iter().map(|f| format!("{f:?}\n")).collect();
            panic!("no flow is {filter:?}:\n{}", lines.concat())
        })
    }

    /// A stream that goes on.
    pub fn follow(&self, request: GetFlowsRequest) -> Following<'_> {
        let mut client = ObserverClient::new(self.channel.clone());
        let request = GetFlowsRequest { follow: true, ..request };
        let stream = self.runtime.block_on(client.get_flows(request)).expect("followed").into_inner();
        Following { runtime: &self.runtime, stream }
    }
}

impl Following<'_> {
    /// What comes next within the limit.
    pub fn next(&mut self, limit: Duration) -> Option<Result<Flow, LostEvent>> {
        let next = self.runtime.block_on(async { timeout(limit, self.stream.message()).await });
        next.ok().map(|message| flow(message.expect("no error").expect("no end")))
    }
}

fn flow(answer: GetFlowsResponse) -> Result<Flow, LostEvent> {
    match answer.response_types {
        Some(ResponseTypes::Flow(flow)) => Ok(*flow),
        Some(ResponseTypes::LostEvents(lost)) => Err(lost),
        other => panic!("neither flow nor loss: {other:?}"),
    }
}
