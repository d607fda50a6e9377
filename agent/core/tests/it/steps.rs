//! A change follows from what it touches, and nothing grows for ever: the state after any changes is what a new agent with
//! the same numbers would make of the last world.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use egret_common::net::Direction;
use egret_core::{
    cluster::{Body, Change, Cluster, Key, Kind, Object, Pod},
    compile::{EndpointSpec, NamesAsk, World, compile},
    desired::{Desired, diff},
    dns::{cache::Limits, lifetime::Lifetime},
    identity::{Identity, IdentityBook, NamedPorts},
    labels::Labels,
    names::Name,
    policy::{self, Effect, Isolation, Origin, Peers, Policies, Policy, Rule, Subject},
    ports::{PortRange, Ports, Proto},
    state::{State, Wiring},
};
use proptest::{collection::vec, prelude::*, sample::select};

use crate::support::{any_name, any_policies, identities, named_ports, own_ports, pods, search};

const NOW: u32 = 1_000;

/// What happens to a cluster.
#[derive(Debug, Clone)]
enum Event {
    /// The endpoint has these policies; the same list as before for an index, or a new one.
    Policies(u32, Result<usize, Vec<Policy>>),
    /// The endpoint is gone.
    Gone(u32),
    /// The endpoint's own named ports are these.
    Ports(u32, bool),
    /// The address is this identity's now, or nobody's.
    Address(usize, Option<u32>),
    /// The identity is the one that the other number has, or nobody's.
    Peer(u32, Option<u32>),
    /// A workload asks for a name.
    Query(Name),
    Search(usize),
    /// A policy that does not fit into the maps.
    TooMuch(u32),
}

fn any_event() -> impl Strategy<Value = Event> {
    let endpoint = || 1u32..4;
    let number = || select(&[300u32, 301, 302, 303, 304][..]);
    let policies = prop_oneof![1 => (0usize..4).prop_map(Ok), 2 => any_policies().prop_map(Err)];
    prop_oneof![
        4 => (endpoint(), policies).prop_map(|(e, p)| Event::Policies(e, p)),
        1 => endpoint().prop_map(Event::Gone),
        1 => (endpoint(), any::<bool>()).prop_map(|(e, named)| Event::Ports(e, named)),
        4 => (0usize..12, proptest::option::of(prop_oneof![3 => number(), 1 => select(&[1u32, 6, 7][..])]))
            .prop_map(|(a, n)| Event::Address(a, n)),
        2 => (number(), proptest::option::of(number())).prop_map(|(n, like)| Event::Peer(n, like)),
        2 => any_name().prop_map(Event::Query),
        1 => (0usize..3).prop_map(Event::Search),
        1 => endpoint().prop_map(Event::TooMuch),
    ]
}

/// The cluster that the state shall follow.
struct Model {
    world: World,
    specs: BTreeMap<u32, EndpointSpec>,
    lists: Vec<Policies>,
}

impl Model {
    fn new() -> Self {
        let world = World {
            search: search(),
            cluster_domain: None,
            resolvers: BTreeSet::from(["10.0.0.53:53".parse().unwrap()]),
            identities: identities(),
            peers: pods(),
            names_ask: NamesAsk::No,
            seen_names: BTreeSet::new(),
        };
        Self { world, specs: BTreeMap::new(), lists: Vec::new() }
    }

    fn apply(&mut self, event: &Event) {
        let address = |n: usize| -> IpAddr { identities().into_keys().nth(n % identities().len()).unwrap() };
        match event {
            Event::Policies(id, policies) => {
                let list = match policies {
                    Ok(known) => self.lists.get(*known).cloned().unwrap_or_default(),
                    Err(new) => new.clone().into(),
                };
                self.lists.insert(0, list.clone());
                self.spec(*id).policies = list;
            }
            Event::TooMuch(id) => self.spec(*id).policies = vec![too_much()].into(),
            Event::Gone(id) => drop(self.specs.remove(id)),
            Event::Ports(id, named) => {
                self.spec(*id).ports =
                    if *named { own_ports() } else { named_ports(&[("web", Proto::Tcp, 7)]) }
            }
            Event::Address(n, Some(number)) => drop(self.world.identities.insert(address(*n), *number)),
            Event::Address(n, None) => drop(self.world.identities.remove(&address(*n))),
            Event::Peer(number, like) => {
                let like = like.and_then(|like| pods().get(&like).cloned());
                match like {
                    Some(like) => {
                        let identity = Identity { number: *number, ..(*like).clone() };
                        self.world.peers.insert(*number, Arc::new(identity))
                    }
                    None => self.world.peers.remove(number),
                };
            }
            Event::Query(_) => {}
            Event::Search(count) => {
                self.world.search = search().into_iter().take(*count).collect();
                self.world.cluster_domain = search().into_iter().nth(*count);
            }
        }
    }

    fn spec(&mut self, id: u32) -> &mut EndpointSpec {
        self.specs.entry(id).or_insert_with(|| EndpointSpec {
            id,
            identity: 300,
            flags: 0,
            lifetime: Lifetime::default(),
            ports: own_ports(),
            policies: Policies::default(),
        })
    }
}

/// 121 ports that do not touch: one more than fits.
fn too_much() -> Policy {
    let ports = Ports::ranges((0..121).map(|n| PortRange::one(Proto::Tcp, n * 2)));
    rule_policy("too-much", Peers::Any, ports)
}

fn rule_policy(name: &str, peers: Peers, ports: Ports) -> Policy {
    let rule = Rule {
        direction: Direction::Egress,
        effect: Effect::Allow,
        peers,
        ports,
        dns: None,
        path: String::new(),
    };
    let origin = Origin { kind: "Test".into(), namespace: None, name: name.into() };
    Policy::new(origin, Subject::This, Isolation { egress: true, ingress: false }, vec![rule])
}

/// What a new agent with the same numbers makes of the state's world. It needs no number that was not given.
fn from_scratch(state: &State) -> Desired {
    let mut book = state.book().clone();
    let compiled = compile(state.world(), state.endpoints(), &mut book).unwrap();
    assert_eq!((book.names().len(), book.sizes()), (state.book().names().len(), state.book().sizes()));
    compiled.desired
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn k_a08_steps_lead_to_what_comes_from_nothing(events in vec(any_event(), 1..20)) {
        let mut model = Model::new();
        let mut state = State::new(model.world.clone(), Vec::new(), Limits::default()).unwrap();
        // After a refused change there may be name classes without rules, until the next change.
        let mut settled = true;
        for event in &events {
            let before = state.desired().clone();
            if let Event::Query(name) = event {
                let mut ops = state.see_query(name).unwrap();
                let mut steps = diff(&before, state.desired());
                ops.sort_by_key(ToString::to_string);
                steps.sort_by_key(ToString::to_string);
                prop_assert!(ops == steps, "{:?}", event);
            } else {
                let (world, specs) = (model.world.clone(), model.specs.clone());
                model.apply(event);
                let new = model.specs.values().cloned().collect();
                match state.update(model.world.clone(), new, Wiring::default(), NOW) {
                    Ok((ops, _)) => {
                        settled = true;
                        prop_assert!(ops == diff(&before, state.desired()), "{:?}", event);
                    }
                    Err(_) => {
                        settled = false;
                        prop_assert!(matches!(event, Event::TooMuch(_)), "{:?}", event);
                        prop_assert!(&before == state.desired());
                        (model.world, model.specs) = (world, specs);
                    }
                }
            }
            if settled {
                let rest = diff(&from_scratch(&state), state.desired());
                let rest: Vec<String> = rest.iter().map(ToString::to_string).collect();
                prop_assert!(rest.is_empty(), "{:?}: {:#?}", event, rest);
            }
        }
    }
}

/// A cluster of 40 pods, four of them on the node, and the state that follows it.
struct Churn {
    cluster: Cluster,
    book: IdentityBook,
    state: State,
}

impl Churn {
    fn new() -> Self {
        let world = Model::new().world;
        let world = World { identities: BTreeMap::new(), peers: BTreeMap::new(), ..world };
        let state = State::new(world, Vec::new(), Limits::default()).unwrap();
        let mut churn = Self { cluster: Cluster::default(), book: IdentityBook::default(), state };
        (0..40).for_each(|n| churn.put_pod(n, 0));
        churn
    }

    fn put_pod(&mut self, n: u32, version: u32) {
        let label = |(k, v): (&str, String)| (k.to_owned(), v);
        let labels: Labels =
            [("app", format!("a{}", n % 4)), ("version", version.to_string())].map(label).into();
        let pod = Pod {
            labels,
            node: Some(if n < 4 { "n1" } else { "n2" }.to_owned()),
            ips: BTreeSet::from([IpAddr::from([10, 0, 0, n as u8])]),
            ports: NamedPorts::from([(("web".to_owned(), Proto::Tcp), 80 + (version % 900) as u16)]),
            ..Pod::default()
        };
        let key = Key::new(Kind::Pod, "x", &format!("p{n}"));
        self.cluster.apply(Change::Put(Box::new(Object { key, body: Body::Pod(pod) })));
    }

    fn put_policy(&mut self, text: &str) {
        let loaded = policy::parse(text);
        assert!(!loaded.has_errors(), "{text}\n{:?}", loaded.diagnostics);
        let name = loaded.policies[0].origin().name.clone();
        let key = Key::new(Kind::CiliumNetworkPolicy, "x", &name);
        self.cluster.apply(Change::Put(Box::new(Object { key, body: Body::Policies(loaded.policies) })));
    }

    fn follow(&mut self) {
        let resolved = self.cluster.resolve("n1", &mut self.book);
        let world = World {
            identities: resolved.world_identities,
            peers: resolved.peers,
            ..self.state.world().clone()
        };
        let specs = resolved.local.iter().zip(1..).map(|(pod, id)| EndpointSpec {
            id,
            identity: pod.identity,
            flags: 0,
            lifetime: Lifetime::default(),
            ports: pod.profile.ports.clone(),
            policies: pod.policies.clone(),
        });
        self.state.update(world, specs.collect(), Wiring::default(), NOW).unwrap();
    }
}

/// Ten thousand changes, each with labels, ports, names and networks that were never there before.
#[test]
fn nothing_grows_under_endless_changes() {
    let mut churn = Churn::new();
    let policy = |name: &str, spec: &str| {
        format!(
            "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: {name}, namespace: x}}\nspec: {spec}\n"
        )
    };
    for n in 0..10_000u32 {
        match n % 4 {
            0 => churn.put_pod(n / 4 % 40, n),
            1 => churn.put_policy(&policy(
                "names",
                &format!("{{endpointSelector: {{}}, egress: [{{toFQDNs: [{{matchName: n{n}.example}}, {{matchPattern: 'a*.n{n}.example'}}]}}]}}"),
            )),
            2 => churn.put_policy(&policy(
                "pods",
                &format!(
                    "{{endpointSelector: {{}}, egress: [{{toEndpoints: [{{matchLabels: {{version: '{}'}}}}], toPorts: [{{ports: \
                     [{{port: web}}]}}]}}], ingress: [{{fromEndpoints: [{{}}], toPorts: [{{ports: [{{port: '{n}'}}, {{port: web}}]}}]}}]}}",
                    n - 2
                ),
            )),
            _ => churn.put_policy(&policy(
                "nets",
                &format!("{{endpointSelector: {{}}, egress: [{{toCIDR: [10.0.0.0/{}, 192.0.2.{}/32]}}]}}", 8 + n % 20, n % 256),
            )),
        }
        churn.follow();
        if n % 100 == 0 {
            churn.state.forget_classes(BTreeSet::new);
        }
        if n % 2_000 == 0 {
            assert_eq!(churn.state.desired(), &from_scratch(&churn.state), "after {n}");
        }
    }
    assert_eq!(churn.state.desired(), &from_scratch(&churn.state));
    let sizes = churn.state.sizes();
    // 40 pods, 3 policies, 8 sets. As much again is remembered, and 1,024 of each.
    assert!(churn.book.len() < 1_200, "{} identities", churn.book.len());
    assert!(sizes.classes < 1_400, "{sizes:?}");
    let [sets, rules, policies, pods] = sizes.numbers;
    assert!(sets < 1_200 && rules < 1_200 && policies < 10 && pods < 4_000, "{sizes:?}");
    let [kept, lists, in_use, selectors] = sizes.kept;
    assert!(kept <= 8 && lists <= 8 && in_use <= 3 && selectors < 300, "{sizes:?}");
}
