//! Fields that there are for the sender and for the receiver.

use super::{FilterError, SideFilter, Tests, label::Selector, text};
use crate::flow::{CLUSTER, Flow, Side};

/// Which end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Which {
    Source,
    Destination,
}

impl Which {
    fn of(self, flow: &Flow) -> &Side {
        match self {
            Self::Source => &flow.source,
            Self::Destination => &flow.destination,
        }
    }

    fn port(self, flow: &Flow) -> Option<u16> {
        let (source, destination) = flow.l4.ports()?;
        Some(match self {
            Self::Source => source,
            Self::Destination => destination,
        })
    }

    /// The field's name for this end.
    fn name(self, source: &'static str, destination: &'static str) -> &'static str {
        match self {
            Self::Source => source,
            Self::Destination => destination,
        }
    }
}

pub(super) fn add(filter: &SideFilter, which: Which, tests: &mut Tests<'_>) -> Result<(), FilterError> {
    let field = which.name("source_ip", "destination_ip");
    tests.any_read(field, &filter.ip, text::net, move |net, flow| {
        which.of(flow).ip.is_some_and(|ip| net.contains(&ip))
    })?;
    let field = which.name("source_fqdn", "destination_fqdn");
    tests.any_regex(field, &filter.fqdn, text::fqdn, move |pattern, flow| {
        which.of(flow).names.iter().any(|name| pattern.is_match(name))
    })?;
    let field = which.name("source_label", "destination_label");
    tests.any_read(field, &filter.label, Selector::parse, move |selector, flow| {
        selector.matches(&which.of(flow).labels)
    })?;
    let field = which.name("source_port", "destination_port");
    tests.any_read(field, &filter.port, text::port, move |port, flow| which.port(flow) == Some(*port))?;
    let field = which.name("source_identity", "destination_identity");
    tests.any_of(field, &filter.identity, move |number, flow| which.of(flow).identity == *number)?;
    let field = which.name("source_cluster_name", "destination_cluster_name");
    tests.any_read(field, &filter.cluster_name, text::word, move |name, flow| {
        !which.of(flow).pod.is_empty() && name == CLUSTER
    })?;
    objects(filter, which, tests)
}

fn objects(filter: &SideFilter, which: Which, tests: &mut Tests<'_>) -> Result<(), FilterError> {
    let field = which.name("source_pod", "destination_pod");
    tests.any_read(field, &filter.pod, text::Object::parse, move |pod, flow| {
        let side = which.of(flow);
        pod.matches(&side.namespace, &side.pod)
    })?;
    let field = which.name("source_service", "destination_service");
    tests.any_read(field, &filter.service, text::Object::parse, move |wanted, flow| {
        let service = which.of(flow).service.as_ref();
        service.is_some_and(|service| wanted.matches(&service.namespace, &service.name))
    })?;
    let field = which.name("source_workload", "destination_workload");
    tests.any_of(field, &filter.workload, move |wanted, flow| {
        let same = |wanted: &str, there: &str| wanted.is_empty() || wanted == there;
        let workloads = &which.of(flow).workloads;
        workloads.iter().any(|w| same(&wanted.name, &w.name) && same(&wanted.kind, &w.kind))
    })
}
