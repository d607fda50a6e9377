//! Random policies and random probes: the reading of the text (`eval`), and `decide` over the compiled maps, agree.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::support::{Probe, any_policies, any_probe, identities, own_ports, pods, search};
use egret_common::{
    decide::{Question, decision_of, may_ask},
    grant,
    maps::{COOKIE_DNS, GrantKey, Grants},
    verdict::DropReason,
};
use egret_core::{
    compile::{Book, Compiled, EndpointSpec, NamesAsk, World, addr, compile},
    desired::View,
    dns::lifetime::Lifetime,
    eval::{KnownName, Objects, Situation, Verdict, decided_by, eval, eval_query, mentioned},
    identity::{Identity, NamedPorts},
    policy::{Policy, Rule},
};
use proptest::prelude::*;

const NOW: u32 = 1_000_000;

fn world(names_ask: NamesAsk) -> World {
    World {
        search: search(),
        cluster_domain: None,
        resolvers: BTreeSet::new(),
        identities: identities(),
        peers: pods(),
        names_ask,
        seen_names: BTreeSet::new(),
    }
}

fn spec(policies: &[Policy]) -> EndpointSpec {
    let (lifetime, policies) = (Lifetime::default(), policies.to_vec().into());
    EndpointSpec { id: 1, identity: 0, flags: 0, lifetime, ports: own_ports(), policies }
}

/// What the maps say, given what the workload was told; and the rule that decided, if one of the Admin or Baseline tier
/// did.
fn by_maps(
    compiled: &Compiled,
    book: &mut Book,
    probe: &Probe,
    known: &[KnownName],
) -> (Verdict, Option<Rule>) {
    let mut slots = [0; 8];
    for (slot, k) in slots.iter_mut().zip(known) {
        let class = book.class_id(compiled.index.classify(&k.name));
        *slot = grant::pack(class, if k.expired { NOW - 30 } else { NOW + 30 });
    }
    let key = GrantKey { addr: addr(probe.remote), endpoint: 1, pad: 0 };
    let grants = BTreeMap::from([(key, Grants { slots })]);
    let view = View { desired: &compiled.desired, grants: &grants, now: NOW };
    let question = Question {
        remote: addr(probe.remote),
        direction: probe.direction,
        proto: probe.proto,
        port: probe.port,
    };
    let decision = decision_of(&view, &compiled.desired.endpoints[&1], &question);
    let by_tier = decision.cookie & !COOKIE_DNS >= 1 << 28;
    let rule = book.rule(decision.cookie).map(|(_, rule)| rule.clone());
    assert!(!by_tier || rule.is_some(), "a rank names a rule");
    (decision.reason().map_or(Verdict::Allow, Verdict::Deny), rule.filter(|_| by_tier))
}

fn situation<'a>(
    probe: &Probe,
    known: &'a [KnownName],
    pods: &'a BTreeMap<u32, Arc<Identity>>,
    own_ports: &'a NamedPorts,
) -> Situation<'a> {
    let identity = identities().get(&probe.remote.to_canonical()).copied().unwrap_or(2);
    Situation {
        direction: probe.direction,
        remote: probe.remote,
        identity,
        pod: pods.get(&identity).map(|pod| &**pod),
        own_ports,
        names: known,
        proto: probe.proto,
        port: probe.port,
        objects: Objects::NONE,
    }
}

fn by_text(policies: &[Policy], probe: &Probe, known: &[KnownName]) -> (Verdict, Option<Rule>) {
    let (pods, own_ports) = (pods(), own_ports());
    let s = situation(probe, known, &pods, &own_ports);
    (eval(policies, &s), decided_by(policies, &s).cloned())
}

fn compiled(policies: &[Policy], probes: &[Probe], book: &mut Book) -> Compiled {
    let mut world = world(NamesAsk::Yes);
    world.seen_names = probes.iter().flat_map(|p| p.names.iter().map(|k| k.name.clone())).collect();
    compile(&world, &[spec(policies)], book).unwrap()
}

/// Names that no policy mentions are never granted.
fn granted(policies: &[Policy], probe: &Probe) -> Vec<KnownName> {
    probe.names.iter().filter(|k| mentioned(policies, &k.name)).cloned().collect()
}

fn agree(policies: &[Policy], probes: &[Probe]) -> Result<(), TestCaseError> {
    let mut book = Book::default();
    let compiled = compiled(policies, probes, &mut book);
    for probe in probes {
        let known = granted(policies, probe);
        prop_assert_eq!(
            by_maps(&compiled, &mut book, probe, &known),
            by_text(policies, probe, &known),
            "{:?}",
            probe
        );
    }
    Ok(())
}

/// Five thousand policy sets with fifty probes each, in tests that take seconds without optimisation.
macro_rules! agreeing {
    ($($name:ident)+) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(1_250))]
            $(
                #[test]
                fn $name(policies in any_policies(), probes in proptest::collection::vec(any_probe(), 50)) {
                    agree(&policies, &probes)?;
                }
            )+
        }
    };
}

agreeing! {
    k_a02_text_and_maps_agree_1
    k_a02_text_and_maps_agree_2
    k_a02_text_and_maps_agree_3
    k_a02_text_and_maps_agree_4
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn k_a02_order_and_spreading_mean_nothing(policies in any_policies(), probes in proptest::collection::vec(any_probe(), 32)) {
        let mut spread: Vec<Policy> = policies.iter().flat_map(crate::support::one_rule_each).collect();
        spread.reverse();
        let (mut book, mut other_book) = (Book::default(), Book::default());
        let whole = compiled(&policies, &probes, &mut book);
        let parts = compiled(&spread, &probes, &mut other_book);
        for probe in &probes {
            let known = granted(&policies, probe);
            prop_assert_eq!(
                by_maps(&whole, &mut book, probe, &known), by_maps(&parts, &mut other_book, probe, &known));
        }
    }

    #[test]
    fn w_a12_the_right_to_ask_agrees(policies in any_policies(), names in proptest::collection::vec(crate::support::any_name(), 24), run in any::<bool>()) {
        let names_ask = if run { NamesAsk::Yes } else { NamesAsk::No };
        let mut book = Book::default();
        let mut world = world(names_ask);
        world.seen_names = names.iter().cloned().collect();
        let compiled = compile(&world, &[spec(&policies)], &mut book).unwrap();
        let view = View { desired: &compiled.desired, grants: &BTreeMap::new(), now: NOW };
        for (i, name) in names.iter().enumerate() {
            let port = [53, 5353][i % 2];
            let class = compiled.desired.name_class(name);
            prop_assert_eq!(
                may_ask(&view, &compiled.desired.endpoints[&1], class, port),
                eval_query(&policies, name, port, &search(), names_ask), "{} port {}", name, port);
        }
    }

    #[test]
    fn n_a01_tables_and_index_agree(policies in any_policies(), names in proptest::collection::vec(crate::support::any_name(), 32)) {
        let mut book = Book::default();
        let compiled = compile(&world(NamesAsk::Yes), &[spec(&policies)], &mut book).unwrap();
        for name in &names {
            if !compiled.index.is_slow(name) {
                let class = book.class_id(compiled.index.classify(name));
                prop_assert_eq!(compiled.desired.name_class(name), class, "{}", name);
            }
        }
    }
}

#[test]
fn the_probes_reach_every_reason() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::new();
    for _ in 0..2000 {
        let policies = any_policies().new_tree(&mut runner).unwrap().current();
        let probe = any_probe().new_tree(&mut runner).unwrap().current();
        let known = granted(&policies, &probe);
        let (verdict, rule) = by_text(&policies, &probe, &known);
        *seen.entry(format!("{verdict:?}")).or_insert(0) += 1;
        if rule.is_some() {
            *seen.entry(format!("{verdict:?} by tier")).or_insert(0) += 1;
        }
    }
    use DropReason::*;
    for reason in [NoRule, DenyRule, NameUnresolved, NameExpired, NamePortMismatch] {
        let count = seen.get(&format!("{:?}", Verdict::Deny(reason))).copied().unwrap_or(0);
        assert!(count >= 10, "{reason:?} only {count} times: {seen:?}");
    }
    assert!(seen["Allow"] >= 100, "{seen:?}");
    assert!(seen["Allow by tier"] >= 40 && seen["Deny(DenyRule) by tier"] >= 40, "{seen:?}");
}
