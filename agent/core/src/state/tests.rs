//! Events in, steps and grants out.

use std::collections::BTreeSet;

use egret_common::{
    grant::ticks_of_secs,
    ids::{CLASS_CLUSTER, CLASS_QUERY_ONLY, CLASS_SEARCHED, CLASS_UNSURE, is_name_class},
    maps::CONFIG_SLOW_PATTERNS,
};

use super::*;
use crate::{
    allow::AllowRule,
    compile::NamesAsk,
    dns::{
        lifetime::Lifetime,
        parse::{Answer, parse_answer},
    },
    policy::Policy,
};

const NOW: GrantTime = 100_000;

fn spec(allow: &[&str]) -> EndpointSpec {
    let rules: Vec<_> = allow.iter().map(|a| AllowRule::parse(a).unwrap()).collect();
    let policies = vec![Policy::from_allow(&rules)].into();
    EndpointSpec {
        id: 1,
        identity: 0,
        flags: 0,
        lifetime: Lifetime::default(),
        ports: BTreeMap::new(),
        policies,
    }
}

fn state(allow: &[&str]) -> State {
    let world = World {
        search: vec![Name::parse("svc.cluster.local").unwrap()],
        cluster_domain: None,
        resolvers: BTreeSet::new(),
        identities: BTreeMap::new(),
        peers: BTreeMap::new(),
        names_ask: NamesAsk::Yes,
        seen_names: BTreeSet::new(),
    };
    State::new(world, vec![spec(allow)], Limits::default()).unwrap()
}

fn name(n: &str) -> Name {
    Name::parse(n).unwrap()
}

/// `name` answered with aliases and addresses of 192.0.2.0/24.
fn answer(question: &str, aliases: &[&str], hosts: &[u8]) -> Answer {
    let wire = |n: &str| name(n).to_wire();
    let mut m = vec![0, 7, 0x80, 0, 0, 1, 0, (aliases.len() + hosts.len()) as u8, 0, 0, 0, 0];
    m.extend(wire(question));
    m.extend([0, 1, 0, 1]);
    let mut owner = question;
    for alias in aliases {
        let target = wire(alias);
        m.extend(wire(owner));
        m.extend([0, 5, 0, 1, 0, 0, 0, 60, 0, target.len() as u8]);
        m.extend(target);
        owner = alias;
    }
    for host in hosts {
        m.extend(wire(owner));
        m.extend([0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, *host]);
    }
    parse_answer(&m).unwrap()
}

fn granted(lesson: &Lesson) -> Vec<(IpAddr, u32)> {
    let ip = |g: &Grant| IpAddr::from(g.key.addr.octets()).to_canonical();
    lesson.grants.iter().map(|g| (ip(g), g.expires - NOW)).collect()
}

fn learn(state: &mut State, answer: &Answer) -> Lesson {
    state.see_answer(1, answer, KernelDid::default(), NOW).unwrap()
}

#[test]
fn w_a02_only_the_question_opens_and_every_name_is_known() {
    let mut s = state(&["host.example.com:443"]);
    let alias = learn(&mut s, &answer("database.example.com", &["host.example.com"], &[20]));
    assert_eq!(granted(&alias), []);
    let direct = learn(&mut s, &answer("host.example.com", &[], &[20]));
    assert_eq!(granted(&direct), [("192.0.2.20".parse().unwrap(), ticks_of_secs(90))]);
    let names: Vec<_> = s.names_of(1, "192.0.2.20".parse().unwrap()).map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["database.example.com", "host.example.com"]);
}

#[test]
fn w_a03_autopath_grants_the_bare_name() {
    let mut s = state(&["api.partner.example"]);
    let lesson =
        learn(&mut s, &answer("api.partner.example.svc.cluster.local", &["api.partner.example"], &[30]));
    assert_eq!(lesson.bare, Some(name("api.partner.example")));
    assert_eq!(granted(&lesson).len(), 1);
    let evil = learn(&mut s, &answer("api.partner.example.evil.example", &["api.partner.example"], &[31]));
    assert_eq!((evil.bare, evil.grants), (None, vec![]));
}

#[test]
fn w_a12_a_searched_name_opens_nothing() {
    let mut s = state(&["api.example"]);
    let lesson = learn(&mut s, &answer("api.example.svc.cluster.local", &[], &[1]));
    assert_eq!(lesson.grants, []);
    assert_ne!(s.desired().name_class(&name("api.example.svc.cluster.local")), 0, "it may be asked for");
}

#[test]
fn w_a12_classes_that_open_nothing_say_so_to_the_kernel() {
    let asked = policy_that_asks("ask.example");
    let mut spec = spec(&["api.example", "sub*.example"]);
    spec.policies = spec.policies.iter().cloned().chain([asked.into()]).collect();
    let mut s = state(&[]);
    s.replace(vec![spec], NOW).unwrap();
    let mut check = |n: &str, bits: u32| {
        s.see_query(&name(n)).unwrap();
        let class = s.desired().name_class(&name(n));
        assert!(is_name_class(class), "{n}: {class:#x}");
        assert_eq!(class & (CLASS_QUERY_ONLY | CLASS_SEARCHED), bits, "{n}: {class:#x}");
        assert!(s.patterns(class).count() > 0, "{n}");
    };
    check("api.example", 0);
    check("sub1.example", 0);
    check("api.example.svc.cluster.local", CLASS_QUERY_ONLY | CLASS_SEARCHED);
    check("sub1.example.svc.cluster.local", CLASS_QUERY_ONLY | CLASS_SEARCHED);
    check("ask.example", CLASS_QUERY_ONLY);
    check("ask.example.svc.cluster.local", CLASS_QUERY_ONLY | CLASS_SEARCHED);
}

fn policy_that_asks(pattern: &str) -> Policy {
    let pattern = Pattern::match_pattern(pattern).unwrap();
    let resolvers = Policy::to_resolvers(&BTreeSet::from(["192.0.2.53:53".parse().unwrap()]));
    let mut rules = resolvers.rules().to_vec();
    rules[0].dns = Some(vec![pattern]);
    Policy::new(resolvers.origin().clone(), resolvers.subject().clone(), resolvers.isolates(), rules)
}

#[test]
fn identities_follow_the_host() {
    let mut s = state(&["a.example"]);
    let one = BTreeMap::from([("10.0.0.1".parse().unwrap(), 1)]);
    let shown = |ops: Vec<MapOp>| ops.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(s.set_identities(one.clone()).unwrap()), ["+ IDENTITIES 10.0.0.1 -> 1"]);
    assert_eq!(s.set_identities(one).unwrap(), []);
    assert_eq!(shown(s.set_identities(BTreeMap::new()).unwrap()), ["- IDENTITIES 10.0.0.1 -> 1"]);
}

#[test]
fn n_a01_slow_patterns_get_an_entry_when_the_name_is_asked_for() {
    let mut s = state(&["sub*.example.com", "*.example.com:8443"]);
    assert_eq!(s.config_flags(), CONFIG_SLOW_PATTERNS);
    assert_eq!(s.see_query(&name("www.example.org")).unwrap(), []);
    let shown: Vec<String> =
        s.see_query(&name("www.example.com")).unwrap().iter().map(ToString::to_string).collect();
    assert!(shown.last().unwrap().starts_with("+ NAME_EXACT www.example.com -> 0x1"), "sure now: {shown:?}");
    let ops = s.see_query(&name("sub1.example.com")).unwrap();
    let shown: Vec<String> = ops.iter().map(ToString::to_string).collect();
    assert!(shown.last().unwrap().starts_with("+ NAME_EXACT sub1.example.com -> 0x1"), "{shown:?}");
    assert!(shown[0].starts_with("+ RULES"), "the class is new: {shown:?}");
    assert_eq!(s.see_query(&name("sub1.example.com")).unwrap(), []);
    assert_eq!(s.see_query(&name("sub2.example.com")).unwrap().len(), 1, "the class is known");
    assert_eq!(
        granted(&learn(&mut s, &answer("sub3.example.com", &[], &[3]))).len(),
        1,
        "also without a query"
    );
}

#[test]
fn n_a01_names_that_end_like_a_slow_pattern_may_be_asked_for_until_they_are_known() {
    let mut s = state(&["api*.example.com", "*example.org", "a.*.example.net", "**.b*.example.net"]);
    let class = |s: &State, n: &str| s.desired().name_class(&name(n));
    let unsure = CLASS_UNSURE | CLASS_QUERY_ONLY;
    for (n, asks) in [
        ("api1.example.com", true),
        ("other.example.com", true),
        ("a.api1.example.com", false),
        ("example.com", false),
        ("example.org", true),
        ("myexample.org", true),
        ("a.myexample.org", false),
        ("a.b.example.net", true),
        ("a.b.c.example.net", true),
        ("b.example.net", false),
        ("other.example", false),
    ] {
        let bits = class(&s, n) & (CLASS_UNSURE | CLASS_QUERY_ONLY);
        assert_eq!(bits, if asks { unsure } else { 0 }, "{n}: {:#x}", class(&s, n));
        assert_eq!(class(&s, n) != 0, asks, "{n}");
    }
    s.see_query(&name("api1.example.com")).unwrap();
    assert_eq!(class(&s, "api1.example.com") & unsure, 0, "it is the pattern's");
    let shown: Vec<String> =
        s.see_query(&name("other.example.com")).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["+ NAME_EXACT other.example.com -> 0x0"], "refused from now on");
    assert_eq!(class(&s, "other.example.com"), 0);
}

#[test]
fn what_the_kernel_granted_is_not_granted_again() {
    let mut s = state(&["a.example"]);
    let class = s.desired().name_class(&name("a.example"));
    let a = answer("a.example", &[], &[1]);
    assert_eq!(s.see_answer(1, &a, KernelDid { learned: true, class }, NOW).unwrap().grants, []);
    assert_eq!(
        s.see_answer(1, &a, KernelDid { learned: true, class: class + 1 }, NOW).unwrap().grants.len(),
        1
    );
    assert_eq!(s.names_of(1, "192.0.2.1".parse().unwrap()).count(), 1);
}

#[test]
fn forbidden_answers_are_told_and_not_granted() {
    let mut s = state(&["a.example"]);
    let mut a = answer("a.example", &[], &[1, 2]);
    a.addresses[0].address = "169.254.169.254".parse().unwrap();
    let lesson = learn(&mut s, &a);
    assert_eq!((lesson.forbidden.len(), lesson.grants.len()), (1, 1));
}

#[test]
fn k_a15_only_names_of_the_cluster_open_its_addresses() {
    let patterns = ["db.shop.svc.cluster.local", "api.example", "*.shop.svc.cluster.local"];
    let pod: IpAddr = "192.0.2.1".parse().unwrap();
    for (allowed, asked, opens) in [
        (&patterns[..1], "db.shop.svc.cluster.local", true),
        (&patterns[1..2], "api.example", false),
        (&patterns[2..], "db.shop.svc.cluster.local", true),
        // A name that only looks like one of the cluster.
        (&["*.evil.example"][..], "local.evil.example", false),
    ] {
        let mut s = state(&[]);
        let world = World {
            cluster_domain: Some(name("cluster.local")),
            identities: BTreeMap::from([(pod, 300)]),
            ..s.world.clone()
        };
        let wiring = Wiring::default;
        s.update(world.clone(), vec![spec(allowed)], wiring(), NOW).unwrap();
        let class = s.desired().name_class(&name(asked));
        assert_eq!(class & CLASS_CLUSTER != 0, opens, "what the kernel goes by: {asked}");
        let lesson = learn(&mut s, &answer(asked, &[], &[1]));
        assert_eq!(
            (lesson.grants.len(), lesson.forbidden.is_empty()),
            (usize::from(opens), opens),
            "{asked}"
        );
        // Another address, which becomes a pod's while it is known: the next policy does not open it.
        learn(&mut s, &answer(asked, &[], &[2]));
        let identities = BTreeMap::from([("192.0.2.2".parse().unwrap(), 300)]);
        let world = World { identities, ..world };
        s.update(world.clone(), vec![spec(&["nobody.example"])], wiring(), NOW).unwrap();
        let (_, grants) = s.update(world, vec![spec(allowed)], wiring(), NOW).unwrap();
        assert_eq!(grants.iter().any(|g| g.key.addr == addr("192.0.2.2".parse().unwrap())), opens, "{asked}");
    }
}

#[test]
fn t_a06_an_edit_leaves_the_other_names_alone() {
    let mut s = state(&["a.example", "b.example", "c.example"]);
    for (n, host) in [("a.example", 1), ("b.example", 2), ("c.example", 3)] {
        learn(&mut s, &answer(n, &[], &[host]));
    }
    let before = s.desired().clone();
    let (ops, grants) = s.replace(vec![spec(&["b.example", "c.example"])], NOW).unwrap();
    assert_eq!(grants, []);
    for n in ["b.example", "c.example"] {
        assert_eq!(s.desired().name_class(&name(n)), before.name_class(&name(n)));
    }
    assert_eq!(s.desired().name_class(&name("a.example")), 0);
    let shown: Vec<String> =
        ops.iter().map(|op| op.to_string().split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    let first = |what: &str| shown.iter().position(|s| s == what).unwrap();
    let last = |what: &str| shown.iter().rposition(|s| s == what).unwrap();
    assert!(last("+ RULES") < first("+ ENDPOINTS") && first("+ ENDPOINTS") < first("- RULES"), "{shown:?}");
    let (ops, _) = s.replace(vec![spec(&["b.example", "c.example"])], NOW).unwrap();
    assert_eq!(ops, [], "the same policies again");
}

#[test]
fn t_a06_a_name_that_moves_to_another_class_is_granted_anew() {
    let mut s = state(&["a.example:443"]);
    learn(&mut s, &answer("a.example", &[], &[1]));
    let (_, grants) = s.replace(vec![spec(&["*.example:443", "a.example:443"])], NOW).unwrap();
    assert_eq!(grants.len(), 1);
    assert_eq!(grants[0].class, s.desired().name_class(&name("a.example")));
}

#[test]
fn t_a01_keep_in_use_extends_only_what_is_used() {
    let mut s = state(&["a.example"]);
    learn(&mut s, &answer("a.example", &[], &[1, 2]));
    let used: IpAddr = "192.0.2.1".parse().unwrap();
    let later = NOW + ticks_of_secs(80);
    assert!(!s.has_ending(1, NOW) && s.has_ending(1, later));
    assert_eq!(s.keep_in_use(1, |ip| ip == used, NOW), []);
    let kept = s.keep_in_use(1, |ip| ip == used, later);
    assert_eq!(
        kept.iter().map(|g| (g.key.addr, g.expires)).collect::<Vec<_>>(),
        [(addr(used), later + ticks_of_secs(35))]
    );
}
