//! What the agent tells over its socket: one request and one answer per connection, each a line of JSON.
//!
//! ```text
//!  egret status ──Request──> /run/egret/egret.sock ──> the loop that owns the state ──Answer──> table or JSON
//! ```
//! Owns the shapes of requests and answers. Must not know where the values come from, nor maps.

pub mod client;
pub mod server;
pub mod socket;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// What may be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "get", rename_all = "kebab-case")]
pub enum Request {
    /// [`Status`].
    Status,
    /// A list of [`Endpoint`].
    Endpoints,
    /// One [`Endpoint`].
    Endpoint {
        /// Its number.
        id: u32,
    },
    /// A list of [`Identity`].
    Identities,
    /// A list of [`Told`].
    Names {
        /// Of this endpoint only.
        endpoint: Option<u32>,
        /// Only names that match.
        pattern: Option<String>,
    },
    /// [`Policies`].
    Policies,
    /// [`Explanation`].
    Explain {
        /// Who begins the connection, as `egret policy explain --from` takes it.
        from: String,
        /// To whom, as `--to` takes it.
        to: String,
    },
    /// A list of [`Service`].
    Services,
    /// A list of [`Map`].
    Maps {
        /// Only this one.
        map: Option<String>,
    },
}

/// An answer on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// What was asked for.
    Ok(serde_json::Value),
    /// Why there is no answer.
    Error(String),
}

/// How the agent is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `ok`, `degraded` when there is something in `problems`, or `starting`: what an earlier agent left is in force.
    pub state: String,
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The node's name.
    pub node: String,
    /// Where objects come from.
    pub source: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// How pods are held: `tcx` or `clsact`.
    pub datapath: String,
    /// What becomes of pods that start before they are known.
    pub startup: String,
    /// Packets that were dropped since they were nobody's.
    pub unknown_drops: u64,
    /// Maps and programs were there already when it began.
    pub adopted: bool,
    /// `enforce` or `audit`.
    pub mode: String,
    /// Endpoints that are held.
    pub endpoints_ready: usize,
    /// Endpoints in all.
    pub endpoints: usize,
    /// Identities of pods.
    pub identities: usize,
    /// Policy objects in force.
    pub policies: usize,
    /// Counts every change of what is enforced.
    pub revision: u64,
    /// Resolvers whose answers are learned.
    pub resolvers: Vec<String>,
    /// How full maps are whose size is a limit.
    pub maps: Vec<MapFill>,
    /// Records that did not fit, by kind.
    pub lost: BTreeMap<String, u64>,
    /// What somebody should look at.
    pub problems: Vec<String>,
}

/// How full a map is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapFill {
    /// Its name.
    pub name: String,
    /// Entries in use.
    pub entries: usize,
    /// Entries that fit.
    pub capacity: usize,
}

/// A pod, or a cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its number on this node.
    pub id: u32,
    /// Namespace and name.
    pub pod: String,
    /// The object's uid.
    pub uid: String,
    /// `ready`, or `waiting` until it is found.
    pub state: String,
    /// Where it is held, or why it is not.
    pub at: String,
    /// `Enabled`, `Disabled` or `Disabled (Audit)`.
    pub ingress: String,
    /// As `ingress`.
    pub egress: String,
    /// Number of its identity.
    pub identity: u32,
    /// Identity labels.
    pub labels: BTreeMap<String, String>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The policies that select it.
    pub policies: Vec<String>,
    /// What passed and what did not.
    pub counters: Vec<Counter>,
}

/// One line of an endpoint's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// `egress` or `ingress`.
    pub direction: String,
    /// Name of the drop reason; `Forwarded` for what passed.
    pub reason: String,
    /// Packets, connects or queries.
    pub packets: u64,
    /// Bytes from the network header on.
    pub bytes: u64,
}

/// A label set with its number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub id: u32,
    /// Its labels as Cilium prints them: `k8s:app=web`, `reserved:world`.
    pub labels: Vec<String>,
}

/// A name that a workload was told, with its addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The workload.
    pub endpoint: u32,
    /// How it is known: `lookup`.
    pub source: String,
    /// The name, with its final dot.
    pub fqdn: String,
    /// Seconds that new connections are open for; negative when that has ended.
    pub ttl: i64,
    /// When that ends, RFC 3339.
    pub expiration_time: String,
    /// The addresses that end then.
    pub ips: Vec<IpAddr>,
}

/// Policies in force, and what is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policies {
    /// Counts every change of what is enforced.
    pub revision: u64,
    /// Objects in force.
    pub policies: Vec<Policy>,
    /// What there is to tell about objects, those in force and others.
    pub diagnostics: Vec<String>,
}

/// A policy object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Kind, namespace and name.
    pub name: String,
    /// `Admin`, `Normal` or `Baseline`, in the order in which they are asked.
    pub tier: String,
    /// The place in the Admin or Baseline tier, the lowest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u16>,
    /// Whom it is about, as a label selector; empty: everybody.
    pub subject: String,
    /// Directions in which it denies what nothing allows.
    pub isolates: Vec<String>,
    /// Its rules' places in the object.
    pub rules: Vec<String>,
    /// Pods that it selects, of those that are known.
    pub selects: Vec<String>,
}

/// Why a connection passes or does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Counts changes of these fields that are more than additions.
    pub version: u32,
    /// Who begins it.
    pub from: String,
    /// To whom.
    pub to: String,
    /// `443/tcp`.
    pub port: String,
    /// Where the port comes from if none was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_from: Option<String>,
    /// `allowed`, `audited` (it passes, since nothing is held back), `denied` or `unknown`.
    pub verdict: String,
    /// Name of the drop reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What decides.
    pub cause: Cause,
    /// What to do about it.
    pub remedy: String,
    /// What was looked at, in order.
    pub links: Vec<Link>,
}

/// What decides about a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// A word that does not change: `dns-forgotten`.
    pub code: String,
    /// A sentence.
    pub text: String,
}

/// One link of the chain from a workload to a verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// `egress` at the one end, `ingress` at the other.
    pub direction: String,
    /// `endpoint`, `policies`, `resolver`, `query`, `answer`, `rules`, `flows`, `maps` or `agent`.
    pub link: String,
    /// `ok`, `broken` or `unknown`.
    pub state: String,
    /// What was found.
    pub evidence: Vec<String>,
}

/// One port of a Service, with what is behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its address.
    pub vip: IpAddr,
    /// Its port.
    pub port: u16,
    /// `tcp`, `udp` or `sctp`.
    pub proto: String,
    /// Those behind it: of each kind one or two. None: nobody gets through.
    pub backends: Vec<Backend>,
}

/// One of those behind a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// Its address.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
    /// The labels of its identity as Cilium prints them.
    pub labels: Vec<String>,
}

/// A map with its entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// Its name.
    pub name: String,
    /// One line each.
    pub entries: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_lines_that_other_tools_can_write() {
        for (request, text) in [
            (Request::Status, r#"{"get":"status"}"#),
            (Request::Endpoint { id: 7 }, r#"{"get":"endpoint","id":7}"#),
            (Request::Services, r#"{"get":"services"}"#),
            (Request::Maps { map: None }, r#"{"get":"maps","map":null}"#),
        ] {
            assert_eq!(serde_json::to_string(&request).expect("JSON"), text);
            assert_eq!(serde_json::from_str::<Request>(text).expect("a request"), request);
        }
        let maps = serde_json::from_str::<Request>(r#"{"get":"maps"}"#).expect("what is left out is null");
        assert_eq!(maps, Request::Maps { map: None });
        let error = serde_json::to_string(&Answer::Error("no".into())).expect("JSON");
        assert_eq!(error, r#"{"error":"no"}"#);
    }
}
