//! By which name an address was meant, and pods that no selector tells from others.

use super::*;

fn at(seconds: u64, flow: Flow) -> Flow {
    Flow { time: seconds * SECOND, ..flow }
}

fn answered(name: &str, ip: &str) -> Flow {
    let question = ask(kube_dns(), name);
    let dns = Dns { response: true, ips: vec![ip.parse().unwrap()], ..question.dns.clone().unwrap() };
    let (source, destination) = (question.destination.clone(), question.source.clone());
    Flow { dns: Some(dns), is_reply: Some(true), source, destination, ..question }
}

#[test]
fn of_many_names_the_one_that_was_asked_for_last() {
    let all = || world("192.0.2.10", &["a.example", "b.example", "c.example"]);
    let names = |flows: &[Flow]| -> Vec<String> {
        let collected = collected(flows);
        let needs = collected.needs().unwrap();
        needs.keys().filter_map(|need| need.name.as_ref()).map(ToString::to_string).collect()
    };
    let asked = [at(10, ask(kube_dns(), "a.example")), at(12, ask(kube_dns(), "b.example"))];
    let with = |flow: Flow| [&asked[..], &[flow]].concat();
    assert_eq!(names(&with(at(13, connect(all(), 443)))), ["b.example"]);
    assert_eq!(names(&with(at(3000, connect(all(), 443)))), ["b.example"]);
    assert_eq!(names(&with(at(11, connect(all(), 443)))), ["a.example"]);
    // Asked for at once: the later answer with this address counts.
    let tie = |late: &str, early: &str| {
        let connection = at(14, connect(all(), 443));
        names(&[
            at(10, ask(kube_dns(), "a.example")),
            at(10, ask(kube_dns(), "b.example")),
            at(11, answered(early, "192.0.2.10")),
            at(12, answered(late, "192.0.2.10")),
            at(13, answered(early, "192.0.2.99")),
            connection,
        ])
    };
    assert_eq!(tie("a.example", "b.example"), ["a.example"]);
    assert_eq!(tie("b.example", "a.example"), ["b.example"]);
    // No name may open the address of the cloud's metadata.
    assert_eq!(names(&[connect(world("169.254.169.254", &["a.example"]), 80)]), [""; 0]);
    assert_eq!(names(&[connect(world("192.0.2.10", &["a.example"]), 80)]), ["a.example"]);
}

#[test]
fn a_foreign_zone_does_not_get_its_name_into_a_policy() {
    let both = || world("192.0.2.10", &["evil.example", "vendor.example"]);
    let mut flows = vec![
        at(10, ask(kube_dns(), "evil.example")),
        at(11, ask(kube_dns(), "vendor.example")),
        at(12, connect(both(), 443)),
    ];
    let proposal = proposed(&flows, &options());
    let (dns, opened) = proposal.text.split_once("- toFQDNs:").unwrap();
    assert!(opened.contains("vendor.example") && !opened.contains("evil"), "{}", proposal.text);
    let shares = "vendor.example shares its address with evil.example, which is not written";
    assert!(dns.contains(&format!("  # {shares}\n")), "{}", proposal.text);
    assert_eq!(proposal.notes, [format!("shop/web-learned: {shares}")]);
    // Both are really used: each right after its look-up.
    flows.extend([at(13, ask(kube_dns(), "evil.example")), at(14, connect(both(), 8443))]);
    let proposal = proposed(&flows, &options());
    let opened = proposal.text.split_once("- toFQDNs:").unwrap().1;
    let want =
        "- matchName: \"evil.example\" # seen once\n    toPorts:\n    - ports:\n      - port: \"8443\"";
    assert!(opened.contains(want) && opened.contains("\"vendor.example\" # seen once"), "{opened}");
    assert_eq!(proposal.notes, [""; 0]);
    // No look-up was seen: the address is opened, and no name.
    let proposal = proposed(&flows[2..3], &options());
    let want = "\"192.0.2.10/32\" # seen once; which of its names was meant is not known: evil.example, vendor.example";
    assert!(proposal.text.contains(want) && !proposal.text.contains("toFQDNs"), "{}", proposal.text);
    let closed = proposed(&flows[2..3], &Options { addresses: false, ..options() });
    assert!(!closed.text.contains("toCIDR") && !closed.notes.is_empty(), "{}", closed.text);
}

#[test]
fn a_pod_without_labels_gets_no_policy_and_is_no_peer() {
    let bare = || labelled("shop", "bare-0", &[]);
    let alone = flow(bare(), world("192.0.2.1", &[]), tcp(80));
    let result = propose(&collected(std::slice::from_ref(&alone)), &services(), &options());
    let told = "shop/bare-0 has no label of its own: label it first";
    assert_eq!(result, Err(ProposeError::Unlabelled(told.into())));
    let into = Flow { direction: Direction::Ingress, ..flow(bare(), web(), tcp(8080)) };
    let flows = [alone.clone(), connect(bare(), 5432), connect(world("192.0.2.2", &[]), 443), into];
    let both = Options { ingress: true, ..options() };
    let proposal = proposed(&flows, &both);
    assert_eq!(proposal.policies.len(), 1, "{}", proposal.text);
    for part in
        ["{}\n    toPorts", "Selector: {}", "serviceaccount", "192.0.2.1/", "matchLabels:\n    toPorts"]
    {
        assert!(!proposal.text.contains(part), "{part}: {}", proposal.text);
    }
    let lack = "the pod 10.244.0.9 of namespace shop has no labels of its own";
    assert!(proposal.text.contains(&format!("  # Not written: {lack}\n")), "{}", proposal.text);
    for note in [told.to_owned(), format!("shop/web-learned: {lack}")] {
        assert!(proposal.notes.contains(&note), "{note}: {:?}", proposal.notes);
    }
    // A service account of its own is given to one kind of workload.
    let mut own = bare();
    own.labels =
        own.labels.iter().map(|l| l.replace("serviceaccount=default", "serviceaccount=runner")).collect();
    let text = proposed(&[Flow { source: own, ..alone.clone() }], &options()).text;
    assert!(text.contains("\"k8s:io.cilium.k8s.policy.serviceaccount\": runner"), "{text}");
    // What comes to it is not asked for: then there is nothing to learn.
    let only_in = Flow { direction: Direction::Ingress, ..flow(web(), bare(), tcp(1)) };
    assert_eq!(propose(&collected(&[only_in]), &services(), &options()), Err(ProposeError::Nothing));
}

#[test]
fn the_namespace_may_stand_beside_the_labels() {
    let short = |labels: &[&str], namespace: &str| Side {
        labels: labels.iter().map(|label| format!("k8s:{label}")).collect(),
        ..labelled(namespace, "web-0", &[])
    };
    let flows = [flow(short(&["app=web"], "shop"), short(&["app=pg"], "db"), tcp(5432))];
    let proposal = proposed(&flows, &options());
    assert!(proposal.text.contains("io.kubernetes.pod.namespace\": db"), "{}", proposal.text);
    let replayed = replay(&proposal.policies, &collected(&flows), &services(), &options()).unwrap();
    assert_eq!((replayed.passed, replayed.denied.len(), replayed.unselected.len()), (1, 0, 0));
    let other = [flow(short(&["app=web"], "shop"), short(&["app=pg"], "db"), tcp(1))];
    let replayed = replay(&proposal.policies, &collected(&other), &services(), &options()).unwrap();
    assert_eq!((replayed.passed, replayed.denied.len()), (0, 1), "the policy is about it");
    let none = [flow(short(&[], "shop"), short(&[], "db"), tcp(1))];
    assert_eq!(propose(&collected(&none), &services(), &options()), Err(ProposeError::NoLabels));
    let evil = [flow(short(&["app=web"], "a\nb"), world("192.0.2.1", &[]), tcp(1))];
    assert_eq!(propose(&collected(&evil), &services(), &options()), Err(ProposeError::Nothing));
}

#[test]
fn only_what_audit_let_through_and_only_what_is_asked_for_is_counted() {
    let mut all = Collected::new(Choice::All, true);
    let into =
        Flow { direction: Direction::Ingress, ..flow(labelled("mon", "p", &["app=p"]), web(), tcp(1)) };
    for flow in [
        connect(world("192.0.2.1", &[]), 1),
        dropped(connect(world("192.0.2.1", &[]), 1)),
        audited(DropReason::NoRule, connect(world("192.0.2.1", &[]), 1)),
        into,
    ] {
        assert!(all.see(&flow));
    }
    let proposal = propose(&all, &services(), &options()).unwrap();
    assert!(
        proposal.text.starts_with("# Learned from flows: 3, of them by audit only: 1\n"),
        "{}",
        proposal.text
    );
    let passed = |options: &Options| replay(&proposal.policies, &all, &services(), options).unwrap().passed;
    assert_eq!((passed(&options()), passed(&Options { ingress: true, ..options() })), (3, 4));
}
