//! Records of a pod `shop/web`, which knows 192.0.2.10 as api.example.

use std::net::IpAddr;

use egret_common::ids::{CLASS_NAME_BASE, ClassId, EndpointId};
use egret_core::flow::{Match, PolicyRef};
use egret_core::policy::{Rule, cilium};

use super::*;
use crate::observe::known::{Known, Local};

/// Knows nothing.
pub(in crate::observe) struct Nobody;

impl Known for Nobody {
    fn endpoint(&self, _: EndpointId) -> Option<Local> {
        None
    }
    fn owner(&self, _: IpAddr) -> Side {
        Side::default()
    }
    fn names(&self, _: EndpointId, _: IpAddr) -> Vec<String> {
        Vec::new()
    }
    fn rule(&self, _: u32) -> Option<(PolicyRef, &Rule)> {
        None
    }
    fn isolating(&self, _: EndpointId, _: Direction) -> Vec<PolicyRef> {
        Vec::new()
    }
    fn trusts(&self, _: Addr, _: u16) -> bool {
        false
    }
    fn patterns(&self, _: ClassId) -> Vec<String> {
        Vec::new()
    }
}

/// Knows the pod, and the rules of a policy by cookies from 1 on.
struct World(Vec<Rule>);

const POLICY: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: names, namespace: shop}
spec:
  endpointSelector: {}
  egress:
  - toFQDNs: [{matchName: api.example}]
    toPorts: [{ports: [{port: \"443\", protocol: TCP}]}]
  - toEntities: [world]
  egressDeny:
  - toCIDR: [192.0.2.66/32]
";

impl World {
    fn new() -> Self {
        let mut policies = cilium::parse(POLICY).policies;
        Self(policies.remove(0).rules().to_vec())
    }
}

fn policy() -> PolicyRef {
    PolicyRef {
        kind: "CiliumNetworkPolicy".into(),
        namespace: "shop".into(),
        name: "names".into(),
        revision: 3,
    }
}

impl Known for World {
    fn endpoint(&self, id: EndpointId) -> Option<Local> {
        let side = Side { id, namespace: "shop".into(), pod: "web".into(), identity: 300, ..Side::default() };
        let ips = vec![[10, 244, 0, 11].into()];
        (id == 7).then_some(Local { side, ips, interface: None, audit: false })
    }
    fn owner(&self, _: IpAddr) -> Side {
        Side { identity: identity::WORLD, ..Side::default() }
    }
    fn names(&self, id: EndpointId, address: IpAddr) -> Vec<String> {
        let known = id == 7 && address == IpAddr::from([192, 0, 2, 10]);
        known.then(|| "api.example".to_owned()).into_iter().collect()
    }
    fn rule(&self, cookie: u32) -> Option<(PolicyRef, &Rule)> {
        Some((policy(), self.0.get(cookie.checked_sub(1)? as usize)?))
    }
    fn isolating(&self, _: EndpointId, direction: Direction) -> Vec<PolicyRef> {
        (direction == Direction::Egress).then(policy).into_iter().collect()
    }
    fn trusts(&self, _: Addr, _: u16) -> bool {
        false
    }
    fn patterns(&self, _: ClassId) -> Vec<String> {
        vec!["*.example".into()]
    }
}

/// An allowed SYN to 192.0.2.10:443.
pub(in crate::observe) fn event() -> FlowEvent {
    FlowEvent {
        time: 1_000,
        local: Addr::from_v4([10, 244, 0, 11]),
        remote: Addr::from_v4([192, 0, 2, 10]),
        endpoint: 7,
        set: 1,
        class: 0,
        cookie: 0,
        age: 0,
        pid: 0,
        len: 60,
        local_port: 40_000,
        remote_port: 443,
        proto: proto::TCP,
        direction: Direction::Egress as u8,
        verdict: 1,
        reason: 0,
        tcp_flags: 2,
        comm: [0; 16],
    }
}

fn common() -> Common {
    Common { node: Arc::new(NodeInfo { name: "n1".into(), labels: Vec::new() }), clock: 5 }
}

fn seen(event: &FlowEvent) -> Vec<Flow> {
    flows(event, &World::new(), &common())
}

fn rule_at(path: &str) -> u32 {
    let rules = World::new().0;
    rules.iter().position(|rule| rule.path.starts_with(path)).expect(path) as u32 + 1
}

#[test]
fn an_allowed_connection_names_ends_rule_and_policy() {
    let allowed =
        seen(&FlowEvent { cookie: rule_at("spec.egress[0]"), class: CLASS_NAME_BASE + 1, ..event() });
    let [flow] = allowed.as_slice() else { panic!("{allowed:#?}") };
    assert_eq!(
        (flow.time, flow.kind, flow.verdict, flow.is_reply),
        (1_005, Kind::Verdict, Verdict::Forwarded, Some(false))
    );
    assert_eq!((flow.source.pod.as_str(), flow.source.ip), ("web", Some([10, 244, 0, 11].into())));
    assert_eq!(flow.destination.names, ["api.example"]);
    // A name class shows as what it is.
    assert_eq!(flow.destination.identity, CLASS_NAME_BASE + 1);
    assert_eq!(&*flow.destination.labels, ["fqdn:*.example".to_owned(), "reserved:world".to_owned()]);
    assert_eq!((flow.matched, &flow.allowed_by), (Some(Match::L3L4), &vec![policy()]));
    assert_eq!((flow.summary.as_str(), flow.denied_by.len()), ("TCP Flags: SYN", 0));
    // By an entity, at every port; and where nothing isolates.
    let open = seen(&FlowEvent { cookie: rule_at("spec.egress[1]"), ..event() });
    assert_eq!((open[0].matched, open[0].destination.identity), (Some(Match::L3Only), identity::WORLD));
    assert_eq!(seen(&event())[0].matched, Some(Match::All));
}

#[test]
fn a_denied_one_is_a_verdict_and_a_drop() {
    let denied = |reason: DropReason| FlowEvent { verdict: 2, reason: reason as u8, ..event() };
    let expired = seen(&FlowEvent { age: 31, ..denied(DropReason::NameExpired) });
    let [verdict, drop] = expired.as_slice() else { panic!("{expired:#?}") };
    assert_eq!((verdict.event_type(), drop.event_type()), ((5, 0), (1, 133)));
    assert_eq!((verdict.is_reply, drop.matched, verdict.matched), (None, None, Some(Match::None)));
    assert_eq!(verdict.denied_by, [policy()], "default denies name who isolates");
    assert_eq!(verdict.summary, "TCP Flags: SYN; NameExpired 31 s ago");
    let why = verdict.why.as_deref().expect("a sentence");
    assert!(
        why.starts_with("NameExpired: ") && why.contains("31 s ago") && why.contains("api.example"),
        "{why}"
    );
    let by_rule = seen(&FlowEvent { cookie: rule_at("spec.egressDeny[0]"), ..denied(DropReason::DenyRule) });
    assert_eq!((by_rule[0].denied_by.len(), by_rule[1].event_type()), (1, (1, 181)));
    assert!(
        by_rule[0]
            .why
            .as_deref()
            .is_some_and(|why| { why.contains("spec.egressDeny[0] of CiliumNetworkPolicy/shop/names") })
    );
    // What is about the packet is no verdict of a policy.
    let odd = seen(&denied(DropReason::InvalidPacket));
    assert_eq!(odd.iter().map(Flow::event_type).collect::<Vec<_>>(), [(1, 134)]);
    // In audit mode nothing is dropped.
    let audited = seen(&FlowEvent { verdict: 4, ..denied(DropReason::NoRule) });
    let [flow] = audited.as_slice() else { panic!("{audited:#?}") };
    assert_eq!((flow.verdict, flow.is_reply, flow.hubble_reason()), (Verdict::Audited, Some(false), 0));
    assert!(seen(&denied(DropReason::QueryRefused)).is_empty(), "the query is shown instead");
}

#[test]
fn directions_and_protocols() {
    let ingress =
        FlowEvent { direction: Direction::Ingress as u8, local_port: 8080, remote_port: 5555, ..event() };
    let flow = &seen(&ingress)[0];
    assert_eq!((flow.destination.pod.as_str(), flow.source.names.len()), ("web", 1));
    assert_eq!(flow.l4.ports(), Some((5555, 8080)));
    // An echo request: type and code stand where the port would.
    let echo = FlowEvent { proto: proto::ICMP, local_port: 8 << 8, remote_port: 8 << 8, ..event() };
    assert_eq!(seen(&echo)[0].l4, L4::Icmpv4(8, 0));
    // At the connect hooks the own address is not known yet.
    let connect = FlowEvent { local: Addr::default(), ..event() };
    assert_eq!(seen(&connect)[0].source.ip, Some([10, 244, 0, 11].into()));
    // A pod that is gone.
    let gone = flows(&event(), &Nobody, &common());
    assert_eq!((gone[0].source.pod.as_str(), gone[0].source.ip), ("", Some([10, 244, 0, 11].into())));
}
