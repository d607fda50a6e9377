//! Policies to try kernel and model under: small ones that meet every branch of the decision.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use egret_common::{
    ids::CLASS_QUERY_ONLY,
    maps::{
        ENDPOINT_AUDIT, ENDPOINT_KEEP, ENDPOINT_LOOPBACK, ENDPOINT_QUERY_FILTER, ENDPOINT_REJECT,
        ENDPOINT_REPORT,
    },
};
use egret_core::{
    allow::AllowRule,
    compile::{EndpointSpec, NamesAsk, World},
    dns::{cache::Limits, lifetime::Lifetime},
    names::Name,
    policy::{Policy, cilium},
    state::State,
};

use crate::arena::ENDPOINT;

/// Addresses of the endpoint in random packets.
pub const LOCALS: [&str; 2] = ["10.0.0.1", "2001:db8::1"];
/// Addresses of its peers.
pub const REMOTES: [&str; 17] = [
    "10.0.0.1",
    "10.7.0.53",
    "10.7.0.54",
    "192.0.2.1",
    "192.0.2.200",
    "198.51.100.7",
    "203.0.113.1",
    "203.0.113.6",
    "127.0.0.1",
    "169.254.169.254",
    "224.0.0.1",
    "2001:db8:7::53",
    "2001:db8::1",
    "2001:db8:a::1",
    "2001:db8:b::1",
    "::1",
    "fe80::1",
];
/// Ports worth asking for.
pub const PORTS: [u16; 12] = [53, 443, 80, 5353, 8080, 22, 1001, 1999, 3000, 30_007, 0, 65_535];
/// Below it lie names of the cluster.
pub const CLUSTER_DOMAIN: &str = "many.example";
/// Names that policies mention, and some that they do not.
pub const NAMES: [&str; 12] = [
    "api.example",
    "API.Example",
    "a.wild.example",
    "a.b.wild.example",
    "deep.many.example",
    "x.y.many.example",
    "wild.example",
    "other.test",
    "api.example.corp.test",
    "sub1.slow.example",
    "example",
    "_srv._tcp.api.example",
];

/// One policy with the endpoint's flags.
#[derive(Clone, Debug)]
pub struct Setup {
    /// For messages.
    pub name: &'static str,
    flags: u32,
    names_ask: NamesAsk,
    policies: Vec<Policy>,
}

impl Setup {
    /// All of them: `egret run` enforcing, silent and in audit mode, policies for both directions, and none.
    pub fn all() -> Vec<Self> {
        let run = ENDPOINT_QUERY_FILTER | ENDPOINT_LOOPBACK | ENDPOINT_REPORT;
        let setup = |name, flags, names_ask, policies| Self { name, flags, names_ask, policies };
        vec![
            setup("run", run | ENDPOINT_REJECT, NamesAsk::Yes, allow(&ALLOW)),
            setup("run, silent", run, NamesAsk::Yes, allow(&ALLOW)),
            setup("audit", run | ENDPOINT_AUDIT | ENDPOINT_REJECT, NamesAsk::Yes, allow(&ALLOW)),
            setup("policies", ENDPOINT_QUERY_FILTER, NamesAsk::No, yaml(POLICIES)),
            setup("policies, no filter", ENDPOINT_REPORT | ENDPOINT_REJECT, NamesAsk::No, yaml(POLICIES)),
            setup("audited policies", ENDPOINT_AUDIT, NamesAsk::No, yaml(POLICIES)),
            setup("kept", ENDPOINT_QUERY_FILTER | ENDPOINT_KEEP, NamesAsk::No, yaml(POLICIES)),
            setup("nothing", 0, NamesAsk::No, Vec::new()),
        ]
    }

    /// The setup of that name.
    #[track_caller]
    pub fn named(name: &str) -> Self {
        Self::all().into_iter().find(|setup| setup.name == name).expect("a setup's name")
    }

    /// Compiled, as the agent does.
    #[track_caller]
    pub fn state(&self) -> State {
        let world = World {
            search: vec![Name::parse("corp.test").expect("a name")],
            cluster_domain: Some(Name::parse(CLUSTER_DOMAIN).expect("a name")),
            resolvers: RESOLVERS.iter().map(|r| r.parse().expect("a resolver")).collect(),
            identities: IDENTITIES.iter().map(|(ip, id)| (ip.parse().expect("an address"), *id)).collect(),
            peers: Default::default(),
            names_ask: self.names_ask,
            seen_names: BTreeSet::new(),
        };
        State::new(world, vec![self.spec()], Limits::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The endpoint under this setup's policies.
    pub fn spec(&self) -> EndpointSpec {
        EndpointSpec {
            id: ENDPOINT,
            identity: 300,
            flags: self.flags,
            lifetime: Lifetime::default(),
            ports: Default::default(),
            policies: self.policies.clone().into(),
        }
    }

    /// The same without its last policy: other rule sets, so that open flows are judged again.
    #[must_use]
    pub fn with_fewer(mut self) -> Self {
        self.policies.pop();
        self
    }
}

const RESOLVERS: [&str; 4] = ["10.7.0.53:53", "[2001:db8:7::53]:53", "127.0.0.1:53", "10.7.0.54:5353"];
const IDENTITIES: [(&str, u32); 3] = [("203.0.113.1", 1), ("203.0.113.6", 6), ("203.0.113.7", 7)];

const ALLOW: [&str; 8] = [
    "api.example:443",
    "*.wild.example:80/tcp",
    "**.many.example",
    "sub*.slow.example:443",
    "192.0.2.0/25:443",
    "[2001:db8:a::/48]:1000-2000/udp",
    "example:8080",
    "_srv._tcp.api.example:443",
];

fn allow(rules: &[&str]) -> Vec<Policy> {
    let rules = rules.iter().map(|rule| AllowRule::parse(rule).unwrap_or_else(|e| panic!("{rule}: {e}")));
    let resolvers: BTreeSet<SocketAddr> = RESOLVERS.iter().map(|r| r.parse().expect("a resolver")).collect();
    vec![Policy::to_resolvers(&resolvers), Policy::from_allow(&rules.collect::<Vec<_>>())]
}

/// More than eight ports for one peer, exceptions, denials, both directions, entities, names with `rules.dns`.
const POLICIES: &str = r#"
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: egress}
spec:
  endpointSelector: {}
  egress:
    - toCIDR: ["10.7.0.53/32", "2001:db8:7::53/128"]
      toPorts:
        - ports: [{port: "53", protocol: ANY}]
          rules: {dns: [{matchPattern: "*.wild.example"}, {matchName: "api.example"}, {matchPattern: "sub*.slow.example"}]}
    - toFQDNs: [{matchName: "api.example"}, {matchPattern: "*.wild.example"}, {matchPattern: "sub*.slow.example"}]
      toPorts: [{ports: [{port: "443", protocol: TCP}, {port: "3000", endPort: 4000, protocol: UDP}]}]
    - toCIDRSet: [{cidr: "192.0.2.0/24", except: ["192.0.2.128/25"]}, {cidr: "2001:db8::/32"}]
      toPorts:
        - ports:
            - {port: "22", protocol: TCP}
            - {port: "53", protocol: UDP}
            - {port: "80", protocol: TCP}
            - {port: "443", protocol: TCP}
            - {port: "443", protocol: SCTP}
            - {port: "1000", endPort: 1001, protocol: TCP}
            - {port: "1003", endPort: 1999, protocol: UDP}
            - {port: "5353", protocol: UDP}
            - {port: "8080", protocol: TCP}
            - {port: "8082", protocol: TCP}
            - {port: "30000", endPort: 30010, protocol: TCP}
    - toEntities: [host]
  egressDeny:
    - toCIDR: ["192.0.2.1/32", "2001:db8:b::/48"]
      toPorts: [{ports: [{port: "80", protocol: TCP}]}]
---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: ingress}
spec:
  endpointSelector: {}
  ingress:
    - fromCIDR: ["192.0.2.0/24", "2001:db8:a::/48"]
      toPorts: [{ports: [{port: "8080", protocol: TCP}, {port: "5353", protocol: UDP}]}]
    - fromEntities: [host]
  ingressDeny:
    - fromCIDR: ["192.0.2.200/32"]
"#;

fn yaml(text: &str) -> Vec<Policy> {
    let loaded = cilium::parse(text);
    assert!(!loaded.has_errors(), "{:#?}", loaded.diagnostics);
    loaded.policies
}

/// Class of a name under a compiled policy; panics for a name that opens nothing.
#[track_caller]
pub fn class_of(state: &State, name: &str) -> u32 {
    let class = state.desired().name_class(&Name::from_dns(name).expect("a name"));
    assert!(class != 0 && class & CLASS_QUERY_ONLY == 0, "{name} has class {class:#x}");
    class
}

/// Every name class of a compiled policy that opens something.
pub fn classes(state: &State) -> BTreeSet<u32> {
    let class = |name: &&str| Some(state.desired().name_class(&Name::from_dns(name).ok()?));
    NAMES.iter().filter_map(class).filter(|class| *class != 0 && class & CLASS_QUERY_ONLY == 0).collect()
}
