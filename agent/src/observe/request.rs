//! What a client asks for, out of its words.

use egret_core::flow::{
    EventTypeFilter, FilterError, Filters, FlowFilter, Interface, Query, SideFilter, Workload,
};
use prost_types::FieldMask;

use super::proto::flow as wire;
use super::proto::observer::{GetAgentEventsRequest, GetFlowsRequest};
use crate::flows::read::{nanoseconds, tcp_flags};

/// Which flows, by number and time.
pub(crate) fn query(request: &GetFlowsRequest) -> Query {
    Query {
        number: request.number,
        first: request.first,
        follow: request.follow,
        since: request.since.as_ref().map(nanoseconds),
        until: request.until.as_ref().map(nanoseconds),
    }
}

/// Which events of the agent.
pub(super) fn event_query(request: &GetAgentEventsRequest) -> Query {
    Query {
        number: request.number,
        first: request.first,
        follow: request.follow,
        since: request.since.as_ref().map(nanoseconds),
        until: request.until.as_ref().map(nanoseconds),
    }
}

/// Which flows, by what they are.
pub(crate) fn filters(request: &GetFlowsRequest) -> Result<Filters, FilterError> {
    lists(&request.whitelist, &request.blacklist)
}

/// The same of two lists.
pub(crate) fn lists(white: &[wire::FlowFilter], black: &[wire::FlowFilter]) -> Result<Filters, FilterError> {
    // One more than there may be is refused; none is copied for that.
    let some =
        |list: &[wire::FlowFilter]| list.iter().take(Filters::MOST + 1).map(filter).collect::<Vec<_>>();
    Filters::new(&some(white), &some(black))
}

/// Which fields of them; clients before 1.19 ask elsewhere.
pub(super) fn mask(request: &GetFlowsRequest) -> Option<&FieldMask> {
    let old = || request.experimental.as_ref().and_then(|old| old.field_mask.as_ref());
    request.field_mask.as_ref().or_else(old)
}

fn filter(f: &wire::FlowFilter) -> FlowFilter {
    let f = f.clone();
    let (source, destination) = sides(&f);
    FlowFilter {
        source,
        destination,
        source_ip_xlated: f.source_ip_xlated,
        verdict: f.verdict,
        drop_reason_desc: f.drop_reason_desc,
        event_type: f.event_type.iter().map(event_type).collect(),
        traffic_direction: f.traffic_direction,
        protocol: f.protocol,
        tcp_flags: f.tcp_flags.iter().map(tcp_flags).collect(),
        ip_version: f.ip_version,
        reply: f.reply,
        dns_query: f.dns_query,
        http_status_code: f.http_status_code,
        http_method: f.http_method,
        http_path: f.http_path,
        http_url: f.http_url,
        http_header: f.http_header.into_iter().map(|header| (header.key, header.value)).collect(),
        node_name: f.node_name,
        node_labels: f.node_labels,
        trace_id: f.trace_id,
        ip_trace_id: f.ip_trace_id,
        uuid: f.uuid,
        interface: f.interface.into_iter().map(|i| Interface { index: i.index, name: i.name }).collect(),
        encrypted: f.encrypted,
        cel_expression: f.experimental.map(|e| e.cel_expression).unwrap_or_default(),
    }
}

fn sides(f: &wire::FlowFilter) -> (SideFilter, SideFilter) {
    let workloads = |list: &[wire::Workload]| {
        list.iter().map(|w| Workload { name: w.name.clone(), kind: w.kind.clone() }).collect()
    };
    let source = SideFilter {
        ip: f.source_ip.clone(),
        pod: f.source_pod.clone(),
        fqdn: f.source_fqdn.clone(),
        label: f.source_label.clone(),
        service: f.source_service.clone(),
        port: f.source_port.clone(),
        identity: f.source_identity.clone(),
        workload: workloads(&f.source_workload),
        cluster_name: f.source_cluster_name.clone(),
    };
    let destination = SideFilter {
        ip: f.destination_ip.clone(),
        pod: f.destination_pod.clone(),
        fqdn: f.destination_fqdn.clone(),
        label: f.destination_label.clone(),
        service: f.destination_service.clone(),
        port: f.destination_port.clone(),
        identity: f.destination_identity.clone(),
        workload: workloads(&f.destination_workload),
        cluster_name: f.destination_cluster_name.clone(),
    };
    (source, destination)
}

fn event_type(f: &wire::EventTypeFilter) -> EventTypeFilter {
    EventTypeFilter { kind: f.r#type, sub: f.match_sub_type.then_some(f.sub_type) }
}

#[cfg(test)]
mod tests;
