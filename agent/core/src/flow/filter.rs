//! Filters with the semantics of Hubble's FlowFilter: values of one field are alternatives, fields must all match,
//! filters of a list are alternatives; what matches the whitelist and not the blacklist passes.
//!
//! Owns: every field and what it means. A value that means nothing is an error, not a filter that matches nothing. Must
//! not know: protobuf. Who asks need not be trusted: what filters take is bounded before it is taken.

mod budget;
mod fields;
mod label;
mod sides;
mod text;

use std::fmt;

use thiserror::Error;

use super::Flow;
use budget::{Budget, Tests};

/// Letters of a bad value that are told: an answer has little room for them.
const SHOWN: usize = 256;

/// One filter; every list may be empty, which asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlowFilter {
    /// About the sender.
    pub source: SideFilter,
    /// About the receiver.
    pub destination: SideFilter,
    /// Address after translation of the source.
    pub source_ip_xlated: Vec<String>,
    /// Verdicts in Hubble's numbers.
    pub verdict: Vec<i32>,
    /// Drop reasons in Hubble's numbers; only of drops.
    pub drop_reason_desc: Vec<i32>,
    /// Event types.
    pub event_type: Vec<EventTypeFilter>,
    /// Directions in Hubble's numbers.
    pub traffic_direction: Vec<i32>,
    /// Protocols by name.
    pub protocol: Vec<String>,
    /// Sets of TCP flags, of which one must be set whole.
    pub tcp_flags: Vec<u16>,
    /// 1 or 2.
    pub ip_version: Vec<i32>,
    /// Whether a flow is a reply.
    pub reply: Vec<bool>,
    /// Regular expressions over the name that is asked for.
    pub dns_query: Vec<String>,
    /// HTTP status codes, or their beginning and `+`.
    pub http_status_code: Vec<String>,
    /// HTTP methods.
    pub http_method: Vec<String>,
    /// Regular expressions over HTTP paths.
    pub http_path: Vec<String>,
    /// Regular expressions over HTTP URLs.
    pub http_url: Vec<String>,
    /// HTTP headers with their values.
    pub http_header: Vec<(String, String)>,
    /// Patterns of node names.
    pub node_name: Vec<String>,
    /// Label selectors for the node.
    pub node_labels: Vec<String>,
    /// Trace ids.
    pub trace_id: Vec<String>,
    /// IP trace ids.
    pub ip_trace_id: Vec<u64>,
    /// Ids of flows.
    pub uuid: Vec<String>,
    /// Interfaces.
    pub interface: Vec<Interface>,
    /// Whether the packet was encrypted between nodes.
    pub encrypted: Vec<bool>,
    /// Expressions in CEL: refused.
    pub cel_expression: Vec<String>,
}

/// What is asked of one end of a flow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SideFilter {
    /// Addresses or CIDRs.
    pub ip: Vec<String>,
    /// Pods: `ns/prefix`, `ns/`, `/prefix`, or `prefix` in the namespace `default`.
    pub pod: Vec<String>,
    /// Patterns of names.
    pub fqdn: Vec<String>,
    /// Label selectors.
    pub label: Vec<String>,
    /// Services, as pods.
    pub service: Vec<String>,
    /// Ports as decimal numbers.
    pub port: Vec<String>,
    /// Numbers of identities.
    pub identity: Vec<u32>,
    /// Workloads.
    pub workload: Vec<Workload>,
    /// Names of clusters.
    pub cluster_name: Vec<String>,
}

/// An event type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventTypeFilter {
    /// Type; 0: any.
    pub kind: i32,
    /// Subtype, if it counts.
    pub sub: Option<i32>,
}

/// What a pod belongs to; as a filter, an empty field asks for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
}

/// An interface; as a filter, an index of 0 and an empty name ask for nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
}

/// A value that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid {field} {value:?}: {why}")]
pub struct FilterError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong with it.
    pub why: String,
}

impl FilterError {
    fn new(field: &'static str, value: &str, why: impl fmt::Display) -> Self {
        let value = value.chars().take(SHOWN).collect();
        Self { field, value, why: why.to_string() }
    }
}

/// One demand.
type Test = Box<dyn Fn(&Flow) -> bool + Send + Sync>;

/// Demands that must all be met.
type Matcher = Vec<Test>;

/// A whitelist and a blacklist, ready to be asked.
#[derive(Default)]
pub struct Filters {
    white: Vec<Matcher>,
    black: Vec<Matcher>,
}

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filters")
            .field("white", &self.white.len())
            .field("black", &self.black.len())
            .finish_non_exhaustive()
    }
}

impl Filters {
    /// Filters of a list at most.
    pub const MOST: usize = 64;

    /// Reads both lists.
    ///
    /// # Errors
    /// [`FilterError`] of the first bad value, or of what is too much.
    pub fn new(white: &[FlowFilter], black: &[FlowFilter]) -> Result<Self, FilterError> {
        let mut budget = Budget::default();
        let white = matchers("whitelist", white, &mut budget)?;
        Ok(Self { white, black: matchers("blacklist", black, &mut budget)? })
    }

    /// Whether the flow is wanted.
    #[must_use]
    pub fn pass(&self, flow: &Flow) -> bool {
        let any = |list: &[Matcher]| list.iter().any(|tests| tests.iter().all(|test| test(flow)));
        (self.white.is_empty() || any(&self.white)) && !any(&self.black)
    }
}

fn matchers(
    name: &'static str,
    list: &[FlowFilter],
    budget: &mut Budget,
) -> Result<Vec<Matcher>, FilterError> {
    if list.len() > Filters::MOST {
        return Err(FilterError::new(name, "", format_args!("more than {} filters", Filters::MOST)));
    }
    list.iter().map(|filter| matcher(filter, budget)).collect()
}

fn matcher(filter: &FlowFilter, budget: &mut Budget) -> Result<Matcher, FilterError> {
    let mut tests = Tests { tests: Matcher::new(), budget };
    sides::add(&filter.source, sides::Which::Source, &mut tests)?;
    sides::add(&filter.destination, sides::Which::Destination, &mut tests)?;
    fields::add(filter, &mut tests)?;
    Ok(tests.tests)
}

#[cfg(test)]
mod tests;
