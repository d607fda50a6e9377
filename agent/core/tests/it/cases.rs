//! CASES as tables: policy text in, verdicts out, by the oracle and by the compiled maps alike.

use std::collections::{BTreeMap, BTreeSet};

use egret_common::{
    decide::{Question, decision_of, may_ask},
    grant,
    maps::{GrantKey, Grants},
    net::Direction,
    verdict::DropReason::{self, *},
};
use egret_core::{
    allow::AllowRule,
    compile::{Book, Compiled, EndpointSpec, NamesAsk, World, addr, compile},
    desired::{Desired, View, diff},
    dns::lifetime::Lifetime,
    eval::{KnownName, Objects, Situation, Verdict, eval, eval_query},
    names::Name,
    policy::{Policy, cilium},
};

const NOW: u32 = 1_000_000;

/// One workload under some policies, read both ways.
struct Bench {
    policies: Vec<Policy>,
    search: Vec<Name>,
    compiled: Compiled,
    book: Book,
}

impl Bench {
    fn new(policies: Vec<Policy>, search: &[&str]) -> Self {
        Self::beside(&["10.7.0.53:53"], policies, search)
    }

    fn beside(resolvers: &[&str], policies: Vec<Policy>, search: &[&str]) -> Self {
        let search: Vec<Name> = search.iter().map(|s| Name::parse(s).unwrap()).collect();
        let world = World {
            search: search.clone(),
            cluster_domain: None,
            resolvers: resolvers.iter().map(|r| r.parse().unwrap()).collect(),
            identities: BTreeMap::new(),
            peers: BTreeMap::new(),
            names_ask: NamesAsk::Yes,
            seen_names: BTreeSet::new(),
        };
        let mut book = Book::default();
        let spec = EndpointSpec {
            id: 1,
            identity: 0,
            flags: 0,
            lifetime: Lifetime::default(),
            ports: BTreeMap::new(),
            policies: policies.clone().into(),
        };
        let compiled = compile(&world, &[spec], &mut book).unwrap();
        Self { policies, search, compiled, book }
    }

    fn yaml(specs: &[&str]) -> Self {
        let mut policies = Vec::new();
        for (i, spec) in specs.iter().enumerate() {
            let spec: String = spec.trim_matches('\n').lines().map(|l| format!("  {l}\n")).collect();
            let head = format!(
                "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {{name: p{i}}}\nspec:\n"
            );
            let loaded = cilium::parse(&(head + &spec));
            assert!(!loaded.has_errors(), "{:?}", loaded.diagnostics);
            policies.extend(loaded.policies);
        }
        Self::new(policies, &[])
    }

    fn allow(rules: &[&str], search: &[&str]) -> Self {
        let rules: Vec<_> = rules.iter().map(|r| AllowRule::parse(r).unwrap()).collect();
        let resolvers = BTreeSet::from(["10.7.0.53:53".parse().unwrap()]);
        Self::new(vec![Policy::from_allow(&rules), Policy::to_resolvers(&resolvers)], search)
    }

    /// `to` is `address port/proto`, with ` as name` or ` was name` (expired) behind it.
    fn check(&mut self, to: &str, want: Result<(), DropReason>) {
        let (to, mut names) = known_names(to);
        // What no policy mentions is never granted.
        names.retain(|known| self.compiled.desired.name_class(&known.name) != 0);
        let (remote, at) = to.split_once(' ').unwrap();
        let (port, proto) = at.split_once('/').unwrap();
        let proto = match proto {
            "tcp" => 6,
            "udp" => 17,
            "sctp" => 132,
            "icmp" => 1,
            other => panic!("{other}"),
        };
        let s = Situation {
            direction: Direction::Egress,
            remote: remote.parse().unwrap(),
            identity: 2,
            pod: None,
            own_ports: &BTreeMap::new(),
            names: &names,
            proto,
            port: port.parse().unwrap(),
            objects: Objects::NONE,
        };
        let want = want.map_or_else(Verdict::Deny, |()| Verdict::Allow);
        assert_eq!(eval(&self.policies, &s), want, "text: {to}");
        assert_eq!(self.by_maps(&s), want, "maps: {to}");
    }

    fn by_maps(&mut self, s: &Situation<'_>) -> Verdict {
        let mut slots = [0; 8];
        for (slot, known) in slots.iter_mut().zip(s.names) {
            let class = self.book.class_id(self.compiled.index.classify(&known.name));
            let ends = if known.expired { NOW - 1 } else { NOW + 1 };
            *slot = if class == 0 { 0 } else { grant::pack(class, ends) };
        }
        let key = GrantKey { addr: addr(s.remote), endpoint: 1, pad: 0 };
        let grants = BTreeMap::from([(key, Grants { slots })]);
        let view = View { desired: &self.compiled.desired, grants: &grants, now: NOW };
        let question =
            Question { remote: addr(s.remote), direction: s.direction, proto: s.proto, port: s.port };
        match decision_of(&view, &self.compiled.desired.endpoints[&1], &question).reason() {
            None => Verdict::Allow,
            Some(reason) => Verdict::Deny(reason),
        }
    }

    fn check_query(&self, name: &str, want: bool) {
        let text = eval_query(&self.policies, &Name::parse(name).unwrap(), 53, &self.search, NamesAsk::Yes);
        assert_eq!((text, self.may_ask(name, 53)), (want, want), "text, maps: {name}");
    }

    fn may_ask(&self, name: &str, port: u16) -> bool {
        let view = View { desired: &self.compiled.desired, grants: &BTreeMap::new(), now: NOW };
        let class = self.compiled.desired.name_class(&Name::parse(name).unwrap());
        may_ask(&view, &self.compiled.desired.endpoints[&1], class, port)
    }
}

fn known_names(to: &str) -> (&str, Vec<KnownName>) {
    for (word, expired) in [(" as ", false), (" was ", true)] {
        if let Some((to, name)) = to.split_once(word) {
            return (to, vec![KnownName { name: Name::parse(name).unwrap(), expired }]);
        }
    }
    (to, Vec::new())
}

#[test]
fn k_a01_except() {
    let mut b = Bench::yaml(&[
        "egress: [{toCIDRSet: [{cidr: 0.0.0.0/0, except: [169.254.169.254/32, 10.0.0.0/8]}]}]",
    ]);
    b.check("169.254.169.254 80/tcp", Err(NoRule));
    b.check("10.1.1.1 80/tcp", Err(NoRule));
    b.check("10.255.255.255 80/tcp", Err(NoRule));
    b.check("11.0.0.0 80/tcp", Ok(()));
    b.check("11.0.0.0 2048/icmp", Ok(()));
    b.check("2001:db8::1 80/tcp", Err(NoRule));
}

#[test]
fn k_a02_union_in_every_order_and_spread() {
    let rules = [
        "{toCIDR: [0.0.0.0/0], toPorts: [{ports: [{port: '53', protocol: UDP}, {port: '53', protocol: TCP}]}]}",
        "{toCIDRSet: [{cidr: 0.0.0.0/0, except: [10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16]}]}",
        "{toCIDR: [172.16.0.0/12]}",
    ];
    let check = |specs: &[String]| {
        let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
        let mut b = Bench::yaml(&specs);
        b.check("10.0.0.53 53/udp", Ok(()));
        b.check("10.0.0.53 443/tcp", Err(NoRule));
        b.check("172.16.9.9 8443/tcp", Ok(()));
        b.check("203.0.113.9 8443/tcp", Ok(()));
    };
    for [a, b, c] in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let [a, b, c] = [rules[a], rules[b], rules[c]];
        check(&[format!("egress: [{a}, {b}, {c}]")]);
        check(&[format!("egress: [{a}]"), format!("egress: [{b}, {c}]")]);
        check(&[format!("egress: [{a}, {b}]"), format!("egress: [{c}]")]);
        check(&[format!("egress: [{a}]"), format!("egress: [{b}]"), format!("egress: [{c}]")]);
    }
}

#[test]
fn k_a03_end_port() {
    let mut b = Bench::yaml(&[
        "egress: [{toEntities: [all], toPorts: [{ports: [{port: '79', endPort: 82, protocol: TCP}]}]}]",
    ]);
    for (port, want) in
        [(78, Err(NoRule)), (79, Ok(())), (80, Ok(())), (81, Ok(())), (82, Ok(())), (83, Err(NoRule))]
    {
        b.check(&format!("192.0.2.1 {port}/tcp"), want);
    }
    b.check("192.0.2.1 80/udp", Err(NoRule));
}

#[test]
fn k_a05_sctp_is_not_tcp() {
    let mut b =
        Bench::yaml(&["egress: [{toEntities: [all], toPorts: [{ports: [{port: '81', protocol: SCTP}]}]}]"]);
    b.check("192.0.2.1 81/sctp", Ok(()));
    b.check("192.0.2.1 81/tcp", Err(NoRule));
}

#[test]
fn n_a04_every_name_is_not_every_address() {
    let mut b = Bench::allow(&["*"], &[]);
    b.check("203.0.113.7 443/tcp as x.example", Ok(()));
    b.check("203.0.113.7 443/tcp", Err(NameUnresolved));
    b.check("203.0.113.7 22/tcp", Err(NoRule));
    b.check_query("x.example", true);
    let mut never = Bench::allow(&["never-resolved.example:80"], &[]);
    never.check("203.0.113.7 80/tcp", Err(NameUnresolved));
    never.check("203.0.113.7 80/tcp as other.example", Err(NameUnresolved));
}

#[test]
fn s_a06_ports_of_a_name() {
    let mut b = Bench::allow(&["api.example", "git.example:22", "all.example:*"], &[]);
    b.check("192.0.2.1 443/tcp as api.example", Ok(()));
    b.check("192.0.2.1 80/tcp as api.example", Ok(()));
    b.check("192.0.2.1 22/tcp as api.example", Err(NamePortMismatch));
    b.check("192.0.2.1 443/udp as api.example", Err(NamePortMismatch));
    b.check("192.0.2.1 443/tcp was api.example", Err(NameExpired));
    b.check("192.0.2.2 22/tcp as git.example", Ok(()));
    b.check("192.0.2.2 443/tcp as git.example", Err(NamePortMismatch));
    b.check("192.0.2.3 2048/icmp as all.example", Ok(()));
    b.check("192.0.2.3 9/sctp as all.example", Ok(()));
    b.check("10.7.0.53 53/udp", Ok(()));
    b.check("10.7.0.53 53/tcp", Ok(()));
    b.check("10.7.0.53 443/tcp", Err(NameUnresolved));
}

#[test]
fn s_a02_an_empty_list_opens_nothing() {
    let mut b = Bench::allow(&[], &[]);
    b.check("192.0.2.1 443/tcp", Err(NoRule));
    b.check("192.0.2.1 443/tcp as x.example", Err(NoRule));
    b.check_query("x.example", false);
}

#[test]
fn w_a11_nat64() {
    let mut b = Bench::yaml(&[
        "egress: [{toFQDNs: [{matchName: six.example}]}]\negressDeny: [{toCIDRSet: [{cidr: 192.0.2.0/24, except: [192.0.2.51/32]}]}]",
    ]);
    b.check("64:ff9b::c000:233 443/tcp as six.example", Ok(()));
    b.check("64:ff9b::c000:233 443/tcp", Err(NameUnresolved));
    b.check("64:ff9b::c000:234 443/tcp as six.example", Err(DenyRule));
    b.check("192.0.2.52 443/tcp as six.example", Err(DenyRule));
}

#[test]
fn w_a12_search_domains_may_be_asked_and_open_nothing() {
    let mut b = Bench::allow(&["api.example.com", "*.dev.example"], &["corp.example", "svc.cluster.local"]);
    b.check_query("api.example.com", true);
    b.check_query("api.example.com.corp.example", true);
    b.check_query("api.example.com.svc.cluster.local", true);
    b.check_query("api.example.com.evil.example", false);
    b.check_query("x.dev.example.corp.example", true);
    b.check_query("a.x.dev.example.corp.example", false);
    b.check_query("corp.example", false);
    b.check_query("c2vjcmv0.x.attacker.example", false);
    b.check("192.0.2.1 443/tcp as api.example.com.corp.example", Err(NamePortMismatch));
}

#[test]
fn r_a07_dns_rules_permit_questions_and_nothing_else() {
    let mut b = Bench::yaml(&[
        "egress:\n- toEndpoints: [{matchLabels: {k8s-app: kube-dns}}]\n  toPorts: [{ports: [{port: '53', protocol: ANY}], rules: {dns: [{matchPattern: '*.example'}]}}]\n- toFQDNs: [{matchName: api.example}]",
    ]);
    b.check_query("other.example", true);
    b.check_query("a.b.example", false);
    b.check("192.0.2.1 443/tcp as other.example", Err(NamePortMismatch));
    b.check("192.0.2.1 443/tcp as api.example", Ok(()));
}

#[test]
fn r_a02_who_asks_the_service_means_its_pods() {
    // Whether the packet passes is another question: none of these rules but the first opens the pods' port.
    for (port, service, pod) in [(5353, true, true), (53, true, false), (8053, true, false)] {
        let rule = format!(
            "egress:\n- toEntities: [cluster]\n  toPorts: [{{ports: [{{port: '{port}'}}], rules: {{dns: [{{matchName: a.example}}]}}}}]"
        );
        let policies = Bench::yaml(&[&rule]).policies;
        let b = Bench::beside(&["10.96.0.10:53", "10.244.0.53:5353"], policies, &[]);
        assert_eq!((b.may_ask("a.example", 53), b.may_ask("a.example", 5353)), (service, pod), "{port}");
        assert!(!b.may_ask("b.example", 53) && !b.may_ask("a.example", 54));
    }
}

#[test]
fn the_steps_are_readable() {
    let old = Bench::allow(&["a.example:443"], &[]);
    let new = Bench::allow(&["a.example:443", "*.b.example:80"], &[]);
    let shown =
        |from: &Desired, to: &Desired| diff(from, to).iter().map(|op| format!("{op}\n")).collect::<String>();
    insta::assert_snapshot!(shown(&Desired::default(), &old.compiled.desired), @r"
    + RULES set 1 class 0xffffff chunk 0 -> 6:443-443 allow by 0x0;
    + RULES set 1 class 0x1000001 chunk 0 -> 6:443-443 allow by 0x1; 255:0-65535 allow by 0x1;
    + RULES set 1 class 0x2000001 chunk 0 -> 6:53-53 allow by 0x2; 17:53-53 allow by 0x2;
    + CIDR_CLASSES set 1 ::ffff:10.7.0.53/128 -> 0x2000001
    + TRUSTED_RESOLVERS 10.7.0.53 port 53
    + NAME_EXACT a.example -> 0x1000001
    + ENDPOINTS 1 -> egress set 1 (0x200019), ingress set 2 (0x0), flags 0x0
    ");
    assert_eq!(shown(&old.compiled.desired, &old.compiled.desired), "");
    assert!(shown(&old.compiled.desired, &new.compiled.desired).contains("+ NAME_SUFFIX *.b.example"));
}

#[test]
fn ten_thousand_names_compile_in_moments() {
    let rules: Vec<String> = (0..10_000)
        .map(|i| match i % 4 {
            0 => format!("*.z{i}.example:443"),
            1 => format!("**.y{i}.x{}.example", i % 97),
            _ => format!("n{i}.x{}.example:{}", i % 97, 1 + i % 1000),
        })
        .collect();
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let b = Bench::allow(&rules, &["corp.example", "svc.cluster.local"]);
    assert!(b.compiled.desired.name_exact.len() >= 15_000, "{}", b.compiled.desired.name_exact.len());
}
