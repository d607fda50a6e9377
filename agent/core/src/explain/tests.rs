//! Each link broken by itself, over maps that were compiled from policies.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use egret_common::{
    grant,
    ids::{CLASS_QUERY_ONLY, identity},
    maps::{ENDPOINT_AUDIT, ENDPOINT_QUERY_FILTER, GrantKey, Grants},
    net::{Direction, proto},
    verdict::DropReason,
};

use super::*;
use crate::{
    compile::{EndpointSpec, NamesAsk, World, addr},
    desired::View,
    dns::{
        cache::Limits,
        journal::{Answered, Asked, Journal},
        lifetime::Lifetime,
    },
    flow::{Flow, Kind, L4, Side},
    names::Name,
    policy::{Policies, parse},
    state::{Saved, State, Wiring},
};

const ID: u32 = 3;
const SECOND: u64 = 1_000_000_000;
/// Boot time now.
const NOW: u64 = 1000 * SECOND;

struct Nobody;

impl Known for Nobody {
    fn owner(&self, _: IpAddr) -> Owner {
        Owner { name: "world".into(), identity: identity::WORLD, ..Owner::default() }
    }

    fn differences(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What is known when somebody asks.
struct Desk {
    policies: Policies,
    state: State,
    grants: BTreeMap<GrantKey, Grants>,
    journal: Journal,
    flows: Vec<Arc<Flow>>,
    held: Held,
    labels: Vec<String>,
}

const RESOLVER: &str = "192.0.2.53";

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A policy for everybody that may look up `dns` at the resolver, and reach `names` at port 443.
fn names_policy(dns: &str, names: &str) -> String {
    format!(
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: p, namespace: ns}}\nspec:\n  \
         endpointSelector: {{}}\n  egress:\n  - toCIDR: [{RESOLVER}/32]\n    \
         toPorts: [{{ports: [{{port: \"53\", protocol: ANY}}], rules: {{dns: [{dns}]}}}}]\n  \
         - toFQDNs: [{names}]\n    toPorts: [{{ports: [{{port: \"443\", protocol: TCP}}]}}]\n"
    )
}

const ALLOWED: &str = "{matchName: a.example}";

impl Desk {
    fn new(text: &str) -> Self {
        Self::with(text, ENDPOINT_QUERY_FILTER, &[])
    }

    fn with(text: &str, flags: u32, told: &[(&str, &str, u64)]) -> Self {
        let loaded = if text.is_empty() { Vec::new() } else { parse(text).policies };
        assert_eq!(loaded.is_empty(), text.is_empty(), "{text}");
        let policies = Policies::from(loaded);
        let world = World {
            search: Vec::new(),
            cluster_domain: None,
            resolvers: [(ip(RESOLVER), 53).into()].into(),
            identities: BTreeMap::new(),
            peers: BTreeMap::new(),
            names_ask: NamesAsk::No,
            seen_names: BTreeSet::new(),
        };
        let spec = EndpointSpec {
            id: ID,
            identity: 300,
            flags,
            lifetime: Lifetime::default(),
            ports: Default::default(),
            policies: policies.clone(),
        };
        let until = |seconds: u64| grant::ticks(seconds * SECOND);
        let saved = told.iter().map(|(name, address, at)| (ID, (*name).to_owned(), ip(address), until(*at)));
        let saved = Saved { classes: Vec::new(), told: saved.collect() };
        let state = State::resume(world, vec![spec], Wiring::default(), Limits::default(), &saved, 0);
        let state = state.expect("it fits").expect("it is read");
        let mut grants: BTreeMap<GrantKey, Grants> = BTreeMap::new();
        for (text, address, at) in told {
            let class = state.class(&name(text));
            if class != 0 && class & CLASS_QUERY_ONLY == 0 {
                let key = GrantKey { addr: addr(ip(address)), endpoint: ID, pad: 0 };
                let slots = &mut grants.entry(key).or_default().slots;
                let free = slots.iter().position(|slot| *slot == 0).expect("room");
                slots[free] = grant::pack(class, until(*at));
            }
        }
        let labels = vec!["k8s:app=web".to_owned()];
        let (journal, flows, held) = (Journal::default(), Vec::new(), Held::Ready("v0".into()));
        Self { policies, state, grants, journal, flows, held, labels }
    }

    fn asked(mut self, text: &str, resolver: &str, rcode: Option<(u16, usize)>) -> Self {
        let resolver = (ip(resolver), 53).into();
        let asked = Asked { time: NOW - 5 * SECOND, resolver, refused: false };
        self.journal.ask(ID, &name(text), asked);
        if let Some((rcode, addresses)) = rcode {
            let answered = Answered { time: NOW - 4 * SECOND, resolver, rcode, addresses };
            self.journal.answer(ID, &name(text), 1, answered);
        }
        self
    }

    fn explain(&self, to: &str) -> Explanation {
        let (end, port) = written::to(to).expect("an end");
        let mut target = Target { text: to.into(), ..Target::default() };
        match end {
            written::End::Name(name) => target.name = Some(name),
            written::End::Address(ip) => drop(target.addresses.insert(ip)),
            other => panic!("{other:?}"),
        }
        let view = View { desired: self.state.desired(), grants: &self.grants, now: grant::ticks(NOW) };
        let (proto, port) = port.unwrap_or((proto::TCP, 443));
        let case = Case {
            tables: &view,
            state: &self.state,
            journal: Some(&self.journal),
            flows: Some(&self.flows),
            known: &Nobody,
            proto,
            port,
            now: Now { boot: NOW, wall: NOW },
        };
        let local = Local {
            name: "ns/web".into(),
            id: ID,
            endpoint: self.state.desired().endpoints[&ID],
            labels: self.labels.clone(),
            held: self.held.clone(),
            host_network: false,
            spared: false,
            policies: &self.policies,
            counters: Vec::new(),
        };
        explain(&case, (&Target::default(), Some(&local)), (&target, &[]))
    }
}

#[track_caller]
fn check(desk: &Desk, to: &str, cause: Cause, reason: Option<DropReason>, broken: &[&str]) -> Explanation {
    let told = desk.explain(to);
    assert_eq!((told.cause, told.reason), (cause, reason), "{told:#?}");
    let links = told.links.iter().filter(|link| link.state == LinkState::Broken).map(|link| link.name);
    assert_eq!(links.collect::<Vec<_>>(), broken, "{told:#?}");
    told
}

#[test]
fn the_first_broken_link_is_the_cause() {
    use Cause::*;
    use DropReason::*;
    let policy = names_policy(ALLOWED, ALLOWED);
    let desk = || Desk::new(&policy);
    let told = |until| Desk::with(&policy, ENDPOINT_QUERY_FILTER, &[("a.example", "198.51.100.1", until)]);
    check(&desk(), "a.example", NeverAsked, Some(NameUnresolved), &["query", "answer"]);
    let waits = desk().asked("a.example", RESOLVER, None);
    check(&waits, "a.example", NoAnswer, Some(NameUnresolved), &["answer"]);
    let no_name = desk().asked("a.example", RESOLVER, Some((3, 0)));
    let said = check(&no_name, "a.example", AnswerError, Some(NameUnresolved), &["answer"]);
    assert!(said.sentence.contains("NXDOMAIN"), "{said:#?}");
    let barred = desk().asked("a.example", RESOLVER, Some((0, 2)));
    check(&barred, "a.example", ForbiddenAddress, Some(ForbiddenAnswerAddress), &["answer"]);
    check(&desk(), "b.example", Cause::QueryRefused, Some(DropReason::QueryRefused), &["query", "answer"]);
    let good = told(2000).asked("a.example", RESOLVER, Some((0, 1)));
    let said = check(&good, "a.example", RuleAllows, None, &[]);
    assert!(said.sentence.contains("spec.egress[1].toPorts[0] of CiliumNetworkPolicy/ns/p"), "{said:#?}");
    check(&good, "198.51.100.1", RuleAllows, None, &[]);
    let said = check(&good, "a.example:80", WrongPort, Some(NamePortMismatch), &["rules"]);
    assert!(said.sentence.contains("(443/tcp)"), "{said:#?}");
    let old = told(940).asked("a.example", RESOLVER, Some((0, 1)));
    let said = check(&old, "a.example", Expired, Some(NameExpired), &["answer", "rules"]);
    assert!(said.sentence.contains("expired 59 s ago"), "{said:#?}");
    check(&desk(), "198.51.100.1", NeverAsked, Some(NameUnresolved), &["rules"]);
    check(&desk(), "198.51.100.1:80", Cause::NoRule, Some(DropReason::NoRule), &["rules"]);
}

#[test]
fn a_resolver_that_is_closed_or_not_listened_to() {
    let forgotten = names_policy(ALLOWED, ALLOWED).replace(RESOLVER, "192.0.2.54");
    let denied = Some(DropReason::NoRule);
    let desk = Desk::new(&forgotten);
    let said = check(&desk, "a.example", Cause::DnsForgotten, denied, &["resolver", "query", "answer"]);
    assert!(said.remedy.contains("192.0.2.53 at port 53"), "{said:#?}");
    let plain = names_policy(ALLOWED, ALLOWED).replace(", rules: {dns: [{matchName: a.example}]}", "");
    let desk = Desk::with(&plain.replace(RESOLVER, "192.0.2.54"), 0, &[]);
    let desk = desk.asked("a.example", "192.0.2.54", Some((0, 1)));
    let unresolved = Some(DropReason::NameUnresolved);
    check(&desk, "a.example", Cause::UntrustedResolver, unresolved, &["resolver", "answer"]);
    check(&desk, "198.51.100.1", Cause::UntrustedResolver, unresolved, &["rules", "resolver"]);
}

#[test]
fn t_a04_names_that_share_an_address() {
    let policy = names_policy("{matchPattern: \"*.example\"}", ALLOWED);
    let both = [("a.example", "198.51.100.1", 2000), ("b.example", "198.51.100.1", 2000)];
    let one =
        Desk::with(&policy, ENDPOINT_QUERY_FILTER, &both[1..]).asked("b.example", RESOLVER, Some((0, 1)));
    let unresolved = Some(DropReason::NameUnresolved);
    let said = check(&one, "b.example", Cause::OtherName, unresolved, &["rules"]);
    assert!(said.sentence.contains("was told 198.51.100.1 as b.example, which no rule opens"), "{said:#?}");
    check(&one, "198.51.100.1", Cause::OtherName, unresolved, &["rules"]);
    let two = Desk::with(&policy, ENDPOINT_QUERY_FILTER, &both).asked("b.example", RESOLVER, Some((0, 1)));
    let said = check(&two, "b.example", Cause::SharedAddress, None, &[]);
    assert!(said.sentence.contains("open as a.example"), "{said:#?}");
}

#[test]
fn deny_rules_audit_places_and_no_policy() {
    let deny = names_policy(ALLOWED, ALLOWED) + "  egressDeny:\n  - toCIDR: [198.51.100.0/24]\n";
    let told = [("a.example", "198.51.100.1", 2000)];
    let desk = Desk::with(&deny, ENDPOINT_QUERY_FILTER, &told).asked("a.example", RESOLVER, Some((0, 1)));
    let said = check(&desk, "a.example", Cause::DenyRule, Some(DropReason::DenyRule), &["rules"]);
    assert!(said.sentence.contains("spec.egressDeny[0] of CiliumNetworkPolicy/ns/p"), "{said:#?}");
    let audit = Desk::with(&deny, ENDPOINT_QUERY_FILTER | ENDPOINT_AUDIT, &told);
    let said = audit.explain("198.51.100.1");
    assert_eq!((said.outcome, said.reason), (Outcome::Audited, Some(DropReason::DenyRule)));
    let lost = Desk { held: Held::Not("it is nowhere".into()), ..Desk::new(&deny) };
    let said = lost.explain("198.51.100.1");
    assert_eq!((said.outcome, said.cause), (Outcome::Unknown, Cause::Unmanaged));
    let free = Desk::with("", 0, &[]);
    check(&free, "a.example", Cause::NoPolicy, None, &[]);
    check(&free, "198.51.100.1", Cause::NoPolicy, None, &[]);
}

#[test]
fn an_address_that_has_expired_beside_one_that_holds_decides_nothing() {
    let policy = names_policy(ALLOWED, ALLOWED);
    let told = [("a.example", "198.51.100.1", 700), ("a.example", "198.51.100.2", 2000)];
    let desk = Desk::with(&policy, ENDPOINT_QUERY_FILTER, &told).asked("a.example", RESOLVER, Some((0, 1)));
    let said = check(&desk, "a.example", Cause::RuleAllows, None, &[]);
    assert!(said.sentence.contains("198.51.100.2"), "{said:#?}");
    // By the old address the client still fails.
    check(&desk, "198.51.100.1", Cause::Expired, Some(DropReason::NameExpired), &["rules"]);
}

#[test]
fn where_every_address_is_open_no_name_is_needed() {
    let open = names_policy(ALLOWED, ALLOWED)
        + "  - toEntities: [world]\n    toPorts: [{ports: [{port: \"443\"}]}]\n";
    let desk = Desk::with(&open, 0, &[]);
    let said = check(&desk, "b.example", Cause::RuleAllows, None, &["query", "answer"]);
    assert!(said.sentence.contains("spec.egress[2]"), "{said:#?}");
    let foreign = Desk::with(&open, 0, &[]).asked("b.example", "192.0.2.54", Some((0, 1)));
    assert_eq!(foreign.explain("b.example").outcome, Outcome::Allowed);
    // At another port it is.
    let unresolved = Some(DropReason::NoRule);
    assert_eq!(Desk::with(&open, 0, &[]).explain("b.example:444").reason.map(|_| ()), unresolved.map(|_| ()));
}

#[test]
fn what_the_kernel_has_no_entry_of_is_not_another_name() {
    let policy = names_policy(ALLOWED, ALLOWED);
    let lost = |until| {
        let desk = Desk::with(&policy, ENDPOINT_QUERY_FILTER, &[("a.example", "198.51.100.1", until)]);
        Desk { grants: BTreeMap::new(), ..desk }.asked("a.example", RESOLVER, Some((0, 1)))
    };
    let unresolved = Some(DropReason::NameUnresolved);
    check(&lost(940), "198.51.100.1", Cause::Expired, unresolved, &["rules"]);
    check(&lost(2000), "198.51.100.1", Cause::MapFull, unresolved, &["rules"]);
    check(&lost(2000), "a.example", Cause::MapFull, unresolved, &["rules"]);
}

#[test]
fn a_deny_rule_that_closes_dns_is_named() {
    let deny = names_policy(ALLOWED, ALLOWED) + "  egressDeny:\n  - toCIDR: [192.0.2.53/32]\n";
    let said = Desk::new(&deny).explain("a.example");
    assert_eq!((said.cause, said.reason), (Cause::DenyRule, Some(DropReason::DenyRule)), "{said:#?}");
    assert!(said.sentence.contains("spec.egressDeny[0]") && said.sentence.contains("resolver"), "{said:#?}");
}

#[test]
fn what_no_policy_judges_passes() {
    let desk = Desk::new(&names_policy(ALLOWED, ALLOWED));
    check(&desk, "127.0.0.1:80", Cause::Exempt, None, &[]);
    check(&desk, "[fe80::1]:135/icmpv6", Cause::Exempt, None, &[]);
    check(&desk, "[fe80::1]:128/icmpv6", Cause::NoRule, Some(DropReason::NoRule), &["rules"]);
}

#[test]
fn labels_that_were_others_when_it_passed() {
    let policy = names_policy(ALLOWED, ALLOWED);
    let passed = |labels: &[&str]| {
        let labels: Arc<[String]> = labels.iter().map(|label| (*label).to_owned()).collect();
        let source = Side { id: ID, labels, ..Side::default() };
        let destination = Side { ip: Some(ip("198.51.100.9")), ..Side::default() };
        let l4 = L4::Tcp { ports: (40_000, 80), flags: 2 };
        let flow = Flow::new(Kind::Verdict, NOW - 90 * SECOND, Direction::Egress, (source, destination), l4);
        Desk { flows: vec![Arc::new(flow)], ..Desk::new(&policy) }
    };
    let denied = Some(DropReason::NoRule);
    let said = check(&passed(&["k8s:app=old"]), "198.51.100.9:80", Cause::LabelChanged, denied, &["rules"]);
    assert!(
        said.sentence.starts_with(
            "labels of ns/web have changed since it passed 90 s ago: k8s:app=old before, k8s:app=web now"
        ),
        "{said:#?}"
    );
    check(&passed(&["k8s:app=web"]), "198.51.100.9:80", Cause::NoRule, denied, &["rules"]);
    // It passed at another port.
    check(&passed(&["k8s:app=old"]), "198.51.100.9:81", Cause::NoRule, denied, &["rules"]);
}

#[test]
fn causes_have_words_of_their_own() {
    let codes: BTreeSet<&str> = Cause::ALL.iter().map(|cause| cause.code()).collect();
    assert_eq!(codes.len(), Cause::ALL.len());
    assert!(codes.iter().all(|code| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
}
