//! Fields that there are for the sender and for the receiver.

use super::{FilterError, Matcher, SideFilter, any_of, label::Selector, read, text};
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

pub(super) fn add(filter: &SideFilter, which: Which, tests: &mut Matcher) -> Result<(), FilterError> {
    let nets = read(which.name("source_ip", "destination_ip"), &filter.ip, text::net)?;
    any_of(tests, nets, move |net, flow| which.of(flow).ip.is_some_and(|ip| net.contains(&ip)));

    let pods = read(which.name("source_pod", "destination_pod"), &filter.pod, text::Object::parse)?;
    any_of(tests, pods, move |pod, flow| {
        let side = which.of(flow);
        pod.matches(&side.namespace, &side.pod)
    });

    let field = which.name("source_service", "destination_service");
    let services = read(field, &filter.service, text::Object::parse)?;
    any_of(tests, services, move |wanted, flow| {
        let service = which.of(flow).service.as_ref();
        service.is_some_and(|service| wanted.matches(&service.namespace, &service.name))
    });

    let names = read(which.name("source_fqdn", "destination_fqdn"), &filter.fqdn, text::fqdn)?;
    any_of(tests, names, move |pattern, flow| which.of(flow).names.iter().any(|name| pattern.is_match(name)));

    let selectors = read(which.name("source_label", "destination_label"), &filter.label, Selector::parse)?;
    any_of(tests, selectors, move |selector, flow| selector.matches(&which.of(flow).labels));

    let ports = read(which.name("source_port", "destination_port"), &filter.port, text::port)?;
    any_of(tests, ports, move |port, flow| which.port(flow) == Some(*port));

    any_of(tests, filter.identity.clone(), move |number, flow| which.of(flow).identity == *number);

    any_of(tests, filter.workload.clone(), move |wanted, flow| {
        let same = |wanted: &str, there: &str| wanted.is_empty() || wanted == there;
        let workloads = &which.of(flow).workloads;
        workloads.iter().any(|w| same(&wanted.name, &w.name) && same(&wanted.kind, &w.kind))
    });

    any_of(tests, filter.cluster_name.clone(), move |name, flow| {
        !which.of(flow).pod.is_empty() && name == CLUSTER
    });
    Ok(())
}
