//! Which flows are wanted: options as `hubble observe` takes them, made into filters of the API.
//!
//! Options without a side are met by either end: there are two filters then, one with the value at the sender, one with it at
//! the receiver. What is said of one side stands in both. `--not` puts the next option into a list of what is left out, which
//! has its own two. Reasons of Egret are not of the API: the server is asked for denied flows, and the rest is done here.

mod places;
mod values;

pub(super) use values::{RESERVED, TRACES};

use std::collections::BTreeSet;

use egret_common::verdict::DropReason;
use egret_core::flow::Filters;

use super::read;
use crate::cli::Given;
use crate::observe::json;
use crate::observe::proto::flow::{Flow, FlowFilter, IpVersion, NetworkInterface, Verdict};
use crate::observe::request;
use places::Places;

/// What is wanted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Wanted {
    /// One of these passes; none: everything does.
    pub(super) white: Vec<FlowFilter>,
    /// And none of these.
    pub(super) black: Vec<FlowFilter>,
    /// And one of these reasons stands in it, if there are any here.
    pub(super) reasons: BTreeSet<DropReason>,
}

impl Wanted {
    /// Reads options in their order.
    ///
    /// # Errors
    /// What makes no sense, in a sentence without its end.
    pub(super) fn read(given: &[Given]) -> Result<Self, String> {
        let mut wanted = Self::default();
        let (mut white, mut black) = (Tracker::default(), Tracker::default());
        let (mut allow, mut deny) = (Vec::new(), Vec::new());
        let mut not = false;
        for option in given {
            match option.name {
                "not" if not => return Err("two --not follow each other".to_owned()),
                "not" => {
                    not = true;
                    continue;
                }
                "reason" | "allowlist" | "denylist" if not => {
                    return Err(format!("--not cannot be about --{}", option.name));
                }
                "reason" => {
                    wanted.reasons.insert(values::reason(&option.value)?);
                }
                "allowlist" => allow.extend(raw(option)?),
                "denylist" => deny.extend(raw(option)?),
                _ if not => black.add(option)?,
                _ => white.add(option)?,
            }
            not = false;
        }
        if not {
            return Err("nothing follows --not".to_owned());
        }
        wanted.white = white.filters()?.into_iter().chain(allow).collect();
        wanted.black = black.filters()?.into_iter().chain(deny).collect();
        wanted.ask_for_denials();
        wanted.filters()?;
        Ok(wanted)
    }

    /// The same, to be asked here.
    ///
    /// # Errors
    /// A value that means nothing.
    pub(super) fn filters(&self) -> Result<Filters, String> {
        request::lists(&self.white, &self.black).map_err(|error| error.to_string())
    }

    /// Whether one of the reasons stands in the flow.
    #[must_use]
    pub(super) fn has_reason(&self, flow: &Flow) -> bool {
        self.reasons.is_empty() || read::reason(flow).is_some_and(|reason| self.reasons.contains(&reason))
    }

    /// Nothing else has a reason.
    fn ask_for_denials(&mut self) {
        if self.reasons.is_empty() {
            return;
        }
        if self.white.is_empty() {
            self.white.push(FlowFilter::default());
        }
        for filter in self.white.iter_mut().filter(|filter| filter.verdict.is_empty()) {
            filter.verdict = vec![Verdict::Dropped.into(), Verdict::Audit.into()];
        }
    }
}

fn raw(option: &Given) -> Result<Vec<FlowFilter>, String> {
    json::read_filters(&option.value).map_err(|error| format!("--{}: {error}", option.name))
}

/// Options of which only one kind can be said in a list.
const CONFLICTS: &[&[&str]] = &[
    &["fqdn", "from-fqdn", "ip", "from-ip", "namespace", "from-namespace", "all-namespaces"],
    &["fqdn", "from-fqdn", "ip", "from-ip", "pod", "from-pod"],
    &["fqdn", "to-fqdn", "ip", "to-ip", "namespace", "to-namespace", "all-namespaces"],
    &["fqdn", "to-fqdn", "ip", "to-ip", "pod", "to-pod"],
    &["namespace", "all-namespaces", "from-pod"],
    &["namespace", "all-namespaces", "to-pod"],
    &["pod", "from-namespace"],
    &["pod", "to-namespace"],
    &["label", "from-label"],
    &["label", "to-label"],
    &["service", "from-service"],
    &["service", "to-service"],
    &["workload", "from-workload"],
    &["workload", "to-workload"],
    &["identity", "from-identity"],
    &["identity", "to-identity"],
    &["port", "from-port"],
    &["port", "to-port"],
    &["cluster", "from-cluster"],
    &["cluster", "to-cluster"],
    &["ipv4", "ipv6", "ip-version"],
];

/// The two filters of a list.
#[derive(Debug, Default)]
struct Tracker {
    left: FlowFilter,
    right: FlowFilter,
    said: BTreeSet<&'static str>,
    places: Places,
}

/// One end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Source,
    Destination,
}

/// Puts a value into the field for an end.
type Put<'a> = &'a dyn Fn(&mut FlowFilter, End);

impl Tracker {
    fn add(&mut self, option: &Given) -> Result<(), String> {
        self.said.insert(option.name);
        let both = CONFLICTS.iter().find_map(|kinds| {
            let mut said = kinds.iter().filter(|kind| self.said.contains(*kind));
            Some((said.next()?, said.next()?))
        });
        if let Some((one, other)) = both {
            return Err(format!("--{one} cannot be combined with --{other}"));
        }
        let (name, value) = (option.name, &option.value);
        let (end, field) = match name.split_once('-') {
            Some(("from", field)) => (Some(End::Source), field),
            Some(("to", field)) => (Some(End::Destination), field),
            _ => (None, name),
        };
        let bad = |error: String| format!("--{name} {value:?}: {error}");
        if self.places.add(field, end, value) || self.add_side(field, end, value).map_err(bad)? {
            return Ok(());
        }
        for filter in [&mut self.left, &mut self.right] {
            add_whole(filter, name, value).map_err(bad)?;
        }
        Ok(())
    }

    /// Whether the option is about ends.
    fn add_side(&mut self, field: &str, end: Option<End>, value: &str) -> Result<bool, String> {
        let text = || value.to_owned();
        match field {
            "ip" => self.put(end, &|f, end| f.ip(end).push(text())),
            "fqdn" => self.put(end, &|f, end| f.fqdn(end).push(text())),
            "port" => self.put(end, &|f, end| f.port(end).push(text())),
            "label" => self.put(end, &|f, end| f.label(end).push(text())),
            "cluster" => self.put(end, &|f, end| f.cluster(end).push(text())),
            "identity" => {
                let number = values::identity(value)?;
                self.put(end, &|f, end| f.identity(end).push(number));
            }
            "workload" => {
                let workload = values::workload(value)?;
                self.put(end, &|f, end| f.workload(end).push(workload.clone()));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn put(&mut self, end: Option<End>, put: Put<'_>) {
        put(&mut self.left, end.unwrap_or(End::Source));
        put(&mut self.right, end.unwrap_or(End::Destination));
    }

    fn filters(mut self) -> Result<Vec<FlowFilter>, String> {
        if self.said.is_empty() {
            return Ok(Vec::new());
        }
        for end in [None, Some(End::Source), Some(End::Destination)] {
            let (pods, services) = self.places.of(end)?;
            self.put(end, &|f, end| {
                f.pod(end).extend(pods.clone());
                f.service(end).extend(services.clone());
            });
        }
        let Self { left, right, .. } = self;
        Ok(if left == right { vec![left] } else { vec![left, right] })
    }
}

/// Adds what is about the flow as a whole.
fn add_whole(filter: &mut FlowFilter, name: &str, value: &str) -> Result<(), String> {
    let text = || value.to_owned();
    match name {
        "protocol" => filter.protocol.push(value.to_ascii_lowercase()),
        "verdict" => filter.verdict.push(values::verdict(value)?),
        "drop-reason-desc" => filter.drop_reason_desc.push(values::drop_reason(value)?),
        "type" => filter.event_type.push(values::event_type(value)?),
        "traffic-direction" => filter.traffic_direction.push(values::direction(value)?),
        "tcp-flags" => filter.tcp_flags.push(values::tcp_flags(value)?),
        "ip-version" => filter.ip_version.push(values::ip_version(value)?),
        "ipv4" => filter.ip_version.push(IpVersion::IPv4.into()),
        "ipv6" => filter.ip_version.push(IpVersion::IPv6.into()),
        "node-name" => filter.node_name.push(text()),
        "node-label" => filter.node_labels.push(text()),
        "uuid" => filter.uuid.push(text()),
        "interface" => filter.interface.push(NetworkInterface { index: 0, name: text() }),
        _ => return Err("there is no such option".to_owned()),
    }
    Ok(())
}

/// A field for an end.
macro_rules! fields {
    ($($field:ident: $kind:ty, $source:ident, $destination:ident;)+) => {
        impl FlowFilter {
            $(fn $field(&mut self, end: End) -> &mut Vec<$kind> {
                match end {
                    End::Source => &mut self.$source,
                    End::Destination => &mut self.$destination,
                }
            })+
        }
    };
}

fields! {
    ip: String, source_ip, destination_ip;
    pod: String, source_pod, destination_pod;
    fqdn: String, source_fqdn, destination_fqdn;
    label: String, source_label, destination_label;
    service: String, source_service, destination_service;
    port: String, source_port, destination_port;
    identity: u32, source_identity, destination_identity;
    workload: crate::observe::proto::flow::Workload, source_workload, destination_workload;
    cluster: String, source_cluster_name, destination_cluster_name;
}

#[cfg(test)]
mod tests;
