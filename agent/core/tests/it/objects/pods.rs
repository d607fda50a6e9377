//! Pods, nodes and who owns which address.

use std::collections::BTreeSet;

use egret_core::cluster::{Change, Cluster, Resolved, read};
use egret_core::dns::lifetime::Lifetime;
use egret_core::identity::IdentityBook;
use egret_core::names::Name;
use egret_core::policy::{Entity, Peers};
use egret_core::tuning::Lifetimes;
use proptest::{collection::vec, prelude::*};

use super::{Lab, full};

const NODES: [&str; 2] = [
    "Node n1: {status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: 'fd00:2::1'}]}}",
    "Node n2: {status: {addresses: [{type: InternalIP, address: 192.0.2.2}]}}",
];

fn with_nodes(objects: &[&str]) -> Lab {
    Lab::new(&[&NODES[..], objects].concat())
}

#[test]
fn k_a07_a_finished_job_owns_no_address() {
    let job = "Pod job-1: {labels: {app: job}} | {spec: {nodeName: n1}, status: {phase: Running, podIP: 10.244.1.9}}";
    let done = job.replace("Running", "Succeeded");
    let web = "Pod web-1: {labels: {app: web}} | {spec: {nodeName: n1}, status: {phase: Running, podIP: 10.244.1.9}}";
    for events in [
        &["ends", "comes", "goes"][..],
        &["ends", "goes", "comes"],
        &["comes", "ends", "goes"],
        &["comes", "goes"],
        &["goes", "comes"],
    ] {
        let mut lab = Lab::new(&[job]);
        assert_eq!(lab.owner("10.244.1.9"), "job");
        let mut came = false;
        for event in events {
            match *event {
                "ends" => lab.put(&done),
                "comes" => lab.put(web),
                _ => lab.delete("Pod job-1"),
            }
            came |= *event == "comes";
            let want = if came { "web" } else { "nobody" };
            assert_eq!(lab.owner("10.244.1.9"), want, "{events:?} at {event}");
        }
        assert!(lab.local("job-1").is_none());
        assert_eq!(lab.local("web-1").unwrap().ips, ["10.244.1.9".parse().unwrap()].into());
        assert_eq!(lab.notes(), [] as [&str; 0]);
    }
}

#[test]
fn k_a07_the_newest_live_pod_has_the_address() {
    let pod = |name: &str, created: &str| {
        let created =
            if created.is_empty() { String::new() } else { format!(", creationTimestamp: '{created}'") };
        format!(
            "Pod {name}: {{labels: {{app: {name}}}{created}}} | {{spec: {{nodeName: n1}}, status: {{podIP: 10.0.0.1}}}}"
        )
    };
    let (old, new) = (pod("a", "2026-01-31T12:00:00Z"), pod("b", "2026-01-31T12:00:01Z"));
    for order in [[&old, &new], [&new, &old]] {
        let mut lab = Lab::new(&order.map(String::as_str));
        assert_eq!(lab.owner("10.0.0.1"), "b");
        assert!(lab.local("a").unwrap().ips.is_empty());
        assert_eq!(
            lab.notes(),
            ["warning: Pod/default/a: 10.0.0.1 is the address of Pod/default/b now, which is newer"]
        );
        lab.delete("Pod b");
        assert_eq!(lab.owner("10.0.0.1"), "a");
    }
    // Without times: whichever came later.
    let mut lab = Lab::new(&[&pod("z", ""), &pod("a", "")]);
    assert_eq!(lab.owner("10.0.0.1"), "a");
    // A change of labels does not make a pod younger.
    lab.put(&pod("z", "").replace("app: z", "app: y"));
    assert_eq!(lab.owner("10.0.0.1"), "a");
}

#[test]
fn k_a08_labels_namespace_and_account_make_the_identity() {
    let pod = |more: &str, spec: &str| {
        format!(
            "Pod x/c: {{labels: {{app: c{more}}}}} | {{spec: {{nodeName: n1{spec}}}, status: {{podIP: 10.0.0.1}}}}"
        )
    };
    let mut lab = Lab::new(&[&pod("", "")]);
    let plain = lab.local("c").unwrap().identity;
    assert_eq!(plain, 256);
    for (object, differs) in [
        (pod(", role: frontend", ""), true),
        (pod("", ""), false),
        (pod(", pod-template-hash: abc", ""), false),
        (pod("", ", serviceAccountName: admin"), true),
        (pod("", ", serviceAccountName: default"), false),
        (pod("", ", containers: [{ports: [{name: web, containerPort: 80}]}]"), true),
        (pod("", ""), false),
        ("Namespace x: {labels: {team: red}} | {status: {}}".to_owned(), true),
        ("Namespace x: {labels: {kubernetes.io/metadata.name: x}} | {status: {}}".to_owned(), false),
    ] {
        lab.put(&object);
        let local = lab.local("c").unwrap();
        assert_eq!(local.identity != plain, differs, "{object}");
        let resolved = lab.resolve();
        assert_eq!(
            resolved.world_identities.values().copied().collect::<Vec<_>>(),
            [local.identity],
            "{object}"
        );
        assert_eq!(
            resolved.peers.keys().copied().collect::<Vec<_>>(),
            [local.identity],
            "nothing is left over"
        );
        assert_eq!(resolved.peers[&local.identity].labels, local.profile.labels, "{object}");
    }
    for _ in 0..50 {
        lab.put(&pod(", role: frontend", ""));
        assert_ne!(lab.local("c").unwrap().identity, plain);
        lab.put(&pod("", ""));
        assert_eq!(lab.local("c").unwrap().identity, plain);
    }
    assert_eq!(lab.book.len(), 5, "the same labels have the same number again");
}

#[test]
fn k_a08_own_policies_follow_the_labels() {
    let pod = |app: &str| format!("Pod c: {{labels: {{app: {app}}}}} | {{spec: {{nodeName: n1}}}}");
    let policy =
        |name: &str| format!("CiliumNetworkPolicy {name}: {{spec: {{egress: [{{toEntities: [world]}}]}}}}");
    let mut lab = Lab::new(&[&pod("c"), &policy("all"), &policy("role")]);
    let names = |lab: &mut Lab| -> Vec<String> {
        lab.local("c").unwrap().policies.iter().map(|p| p.origin().name.clone()).collect()
    };
    assert_eq!(names(&mut lab), ["all"]);
    lab.put(&pod("role"));
    assert_eq!(names(&mut lab), ["all", "role"]);
    lab.delete("CiliumNetworkPolicy all");
    assert_eq!(names(&mut lab), ["role"]);
    lab.put(&pod("c"));
    assert_eq!(names(&mut lab), [] as [&str; 0]);
}

#[test]
fn k_a09_a_nodes_address_is_the_nodes() {
    let agent = "{spec: {nodeName: n2, hostNetwork: true}, status: {podIP: 192.0.2.2}}";
    let mut lab = with_nodes(&[
        &format!("Pod agent: {{labels: {{app: node-agent}}}} | {agent}"),
        // Says that it has a network of its own, and claims a node's address all the same.
        "Pod liar: {labels: {app: liar}} | {spec: {nodeName: n1}, status: {podIPs: [{ip: 192.0.2.1}, {ip: 10.0.0.7}]}}",
    ]);
    let owners = ["192.0.2.1", "fd00:2::1", "192.0.2.2", "10.0.0.7"].map(|ip| lab.owner(ip));
    assert_eq!(owners, ["1", "1", "6", "liar"]);
    let liar = "warning: Pod/default/liar: 192.0.2.1 is a node's address and stays the node's";
    assert_eq!(lab.notes(), [liar]);
    let resolved = lab.resolve();
    let apps: Vec<&String> = resolved.peers.values().map(|p| &p.labels["app"]).collect();
    assert_eq!(apps, ["liar"], "no selector can mean a host-network pod");
}

#[test]
fn k_a09_a_host_network_pod_is_an_endpoint_without_addresses() {
    let mut lab = with_nodes(&[
        "Pod agent: {labels: {app: agent}} | {spec: {nodeName: n1, hostNetwork: true}, status: {podIP: 192.0.2.1}}",
        "CiliumNetworkPolicy agent: {spec: {egress: [{toEntities: [world]}]}}",
    ]);
    let agent = lab.local("agent").unwrap();
    assert!(agent.host_network && agent.ips.is_empty());
    assert_eq!(agent.policies.len(), 1);
    assert_eq!(lab.owner("192.0.2.1"), "1");
}

#[test]
fn k_a14_both_families_follow_the_status() {
    let pod = |status: &str| {
        format!("Pod p: {{labels: {{app: p}}}} | {{spec: {{nodeName: n1}}, status: {{{status}}}}}")
    };
    let mut lab = Lab::new(&[&pod("podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: 'fd00::1'}]")]);
    let owners = |lab: &mut Lab| ["10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2"].map(|ip| lab.owner(ip));
    assert_eq!(owners(&mut lab), ["p", "p", "nobody", "nobody"]);
    lab.put(&pod("podIP: 'fd00::2', podIPs: [{ip: 'fd00::2'}]"));
    assert_eq!(owners(&mut lab), ["nobody", "nobody", "nobody", "p"]);
    lab.put(&pod("podIP: 'fd00::2', podIPs: [{ip: 'fd00::2'}, {ip: 10.0.0.2}]"));
    assert_eq!(owners(&mut lab), ["nobody", "nobody", "p", "p"]);
    assert_eq!(lab.local("p").unwrap().ips.len(), 2);
}

#[test]
fn k_a06_addresses_of_this_node_are_the_hosts() {
    let mut lab = with_nodes(&["Pod p: {labels: {app: p}} | {status: {podIP: 10.0.0.1}}"]);
    lab.cluster.set_own_addresses(["10.0.0.254".parse().unwrap(), "::ffff:192.0.2.2".parse().unwrap()]);
    assert_eq!(["10.0.0.254", "192.0.2.2", "10.0.0.1"].map(|ip| lab.owner(ip)), ["1", "1", "p"]);
}

#[test]
fn the_api_server_is_where_its_endpoints_are() {
    let slice = |ips: &str| {
        let labels = "{labels: {kubernetes.io/service-name: kubernetes}}";
        format!(
            "EndpointSlice kubernetes: {labels} | {{endpoints: [{{addresses: [{ips}]}}], ports: [{{port: 6443}}]}}"
        )
    };
    let owners = |lab: &mut Lab| {
        let found = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|ip| lab.owner(ip));
        let api = lab.resolve().apiserver;
        (found.join(" "), api.on_host, api.on_nodes)
    };
    let mut lab = with_nodes(&[&slice("192.0.2.3")]);
    assert_eq!(owners(&mut lab), ("1 6 7".to_owned(), false, false));
    lab.put(&slice("192.0.2.2"));
    assert_eq!(owners(&mut lab), ("1 7 nobody".to_owned(), false, true));
    lab.put(&slice("192.0.2.1, 192.0.2.2"));
    assert_eq!(owners(&mut lab), ("1 7 nobody".to_owned(), true, true));
    lab.put(&slice("192.0.2.1"));
    assert_eq!(owners(&mut lab), ("1 6 nobody".to_owned(), true, false));
    // Only that Service counts.
    lab.put(&slice("192.0.2.3").replace("service-name: kubernetes", "service-name: other"));
    assert_eq!(owners(&mut lab), ("1 6 nobody".to_owned(), false, false));
}

#[test]
fn the_entities_mean_the_api_server_wherever_it_runs() {
    let slice = |ip: &str| {
        let labels = "{labels: {kubernetes.io/service-name: kubernetes}}";
        format!(
            "EndpointSlice kubernetes: {labels} | {{endpoints: [{{addresses: [{ip}]}}], ports: [{{port: 6443}}]}}"
        )
    };
    for (ip, entity, host, api, remote) in [
        ("192.0.2.3", "kube-apiserver", false, true, false),
        ("192.0.2.1", "kube-apiserver", true, true, false),
        ("192.0.2.2", "kube-apiserver", false, true, false),
        ("192.0.2.3", "remote-node", false, false, true),
        ("192.0.2.2", "remote-node", false, true, true),
        ("192.0.2.1", "remote-node", false, false, true),
        ("192.0.2.1", "world", false, false, false),
    ] {
        let policy = format!("CiliumNetworkPolicy p: {{spec: {{egress: [{{toEntities: [{entity}]}}]}}}}");
        let mut lab =
            with_nodes(&[&slice(ip), &policy, "Pod p: {labels: {app: p}} | {spec: {nodeName: n1}}"]);
        let pod = lab.local("p").unwrap();
        let Peers::Entities(meant) = &pod.policies[0].rules()[0].peers else { panic!("no entities") };
        let means = [Entity::Host, Entity::KubeApiserver, Entity::RemoteNode].map(|e| meant.contains(&e));
        assert_eq!(means, [host, api, remote], "{entity} with the API server at {ip}");
    }
}

#[test]
fn search_domains_are_those_of_the_cluster_and_the_pods_own() {
    let mut lab = Lab::new(&[
        "Pod shop/p: {labels: {app: p}} | {spec: {nodeName: n1, dnsConfig: {searches: [., corp.example, -x]}}}",
    ]);
    let search = lab.local("p").unwrap().search(&Name::parse("c.test").unwrap());
    let shown: Vec<&str> = search.iter().map(Name::as_str).collect();
    assert_eq!(shown, ["c.test", "corp.example", "shop.svc.c.test", "svc.c.test"]);
}

#[test]
fn annotations_that_cannot_be_read_are_told_and_lose_no_pod() {
    let mut lab = Lab::default();
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {egret.dev/audit: maybe}}\nspec: {nodeName: n1}";
    for change in lab.source.update("f", text) {
        lab.cluster.apply(change);
    }
    let told: Vec<String> = lab.source.diagnostics().iter().map(|(_, d)| d.to_string()).collect();
    let want = "warning: Pod/default/p: metadata.annotations[egret.dev/audit]: `maybe` is neither true nor false; ignored";
    assert_eq!(told, [want]);
    assert!(lab.local("p").is_some());
}

#[test]
fn t_a02_policies_carry_lifetimes() {
    let policy = |value: &str| {
        format!(
            "CiliumNetworkPolicy p: {{annotations: {{egret.dev/grace: {value}, other: 7}}}} | {{spec: {{egress: [{{}}]}}}}"
        )
    };
    let mut lab = Lab::new(&[&policy("'7'"), "Pod p: {labels: {app: p}} | {spec: {nodeName: n1}}"]);
    let pod = lab.local("p").unwrap();
    assert_eq!(Lifetimes::of_policies(pod.policies.each()).or(Lifetime::default()).grace(), 7);
    let (path, text) = full(&policy("soon"));
    lab.source.update(&path, &text);
    let told: Vec<String> = lab.source.diagnostics().iter().map(|(_, d)| d.to_string()).collect();
    let want = "error: CiliumNetworkPolicy/default/p: metadata.annotations[egret.dev/grace]: `soon` is no number of seconds";
    assert!(told.iter().any(|line| line == want), "{told:?}");
    assert_eq!(lab.local("p").unwrap().policies, pod.policies, "the last good version stays");
}

#[test]
fn local_are_the_pods_of_this_node() {
    let mut lab = Lab::new(&[
        "Pod here: {uid: u1, annotations: {egret.dev/interface: veth1, other: x}} | {spec: {nodeName: n1}}",
        "Pod there: {spec: {nodeName: n2}}",
        "Pod nowhere: {status: {phase: Pending}}",
        "Pod plain: {annotations: {egret.dev/cgroup: /system.slice/a.service}} | {spec: {}}",
    ]);
    let names: Vec<String> = lab.resolve().local.into_iter().map(|p| p.key.name).collect();
    assert_eq!(names, ["here", "plain"]);
    let here = lab.local("here").unwrap();
    assert_eq!((here.uid.as_str(), here.annotations.len()), ("u1", 1));
    assert_eq!(lab.resolve().peers.len(), 1, "all four are the same to policies");
}

#[test]
fn pods_with_the_same_labels_share_a_number() {
    let replica = |n: u8| {
        format!(
            "Pod r{n}: {{labels: {{app: r, pod-template-hash: h{n}}}}} | {{status: {{podIP: 10.0.0.{n}}}}}"
        )
    };
    let mut lab = Lab::default();
    (1..=100).for_each(|n| lab.put(&replica(n)));
    let resolved = lab.resolve();
    assert_eq!((resolved.world_identities.len(), resolved.peers.len()), (100, 1));
}

#[derive(Debug, Clone)]
enum Event {
    Pod { name: u8, app: u8, ip: u8, ended: bool, host: bool },
    Gone(u8),
    Namespace(u8),
    NamespaceGone,
}

fn any_event() -> impl Strategy<Value = Event> {
    let pod = (0..5u8, 0..3u8, 0..4u8, prop::bool::weighted(0.2), prop::bool::weighted(0.2))
        .prop_map(|(name, app, ip, ended, host)| Event::Pod { name, app, ip, ended, host });
    prop_oneof![6 => pod, 2 => (0..5u8).prop_map(Event::Gone), 1 => (0..3u8).prop_map(Event::Namespace), 1 => Just(Event::NamespaceGone)]
}

/// The name fixes the time of creation, so that age does not depend on the order.
fn text_of(event: &Event) -> Option<(String, String)> {
    let short = match event {
        Event::Pod { name, app, ip, ended, host } => {
            let phase = if *ended { "Failed" } else { "Running" };
            format!(
                "Pod x/p{name}: {{labels: {{app: a{app}}}, creationTimestamp: '2026-01-31T12:00:0{name}Z'}} | \
                 {{spec: {{nodeName: n1, hostNetwork: {host}}}, status: {{phase: {phase}, podIP: 10.0.0.{}}}}}",
                ip + 1
            )
        }
        Event::Namespace(team) => format!("Namespace x: {{labels: {{team: t{team}}}}} | {{status: {{}}}}"),
        Event::Gone(_) | Event::NamespaceGone => return None,
    };
    Some(full(&short))
}

fn resolve(cluster: &mut Cluster, book: &mut IdentityBook) -> Resolved {
    let mut resolved = cluster.resolve("n1", book);
    resolved.notes.clear();
    resolved
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever happened before, what follows from the objects is what a new agent makes of them.
    #[test]
    fn k_a07_history_does_not_matter(events in vec(any_event(), 0..30)) {
        let mut lab = Lab::default();
        for event in &events {
            let path = match event {
                Event::Gone(name) => format!("Pod x/p{name}"),
                Event::NamespaceGone => "Namespace x".to_owned(),
                other => text_of(other).unwrap().0,
            };
            let changes = match text_of(event) {
                Some((_, text)) => lab.source.update(&path, &text),
                None => lab.source.remove(&path),
            };
            for change in changes {
                prop_assert!(lab.cluster.apply(change));
            }
        }
        let mut last = std::collections::BTreeMap::new();
        for event in &events {
            match (event, text_of(event)) {
                (_, Some((path, text))) => drop(last.insert(path, text)),
                (Event::Gone(name), _) => drop(last.remove(&format!("Pod x/p{name}"))),
                _ => drop(last.remove("Namespace x")),
            }
        }
        let mut fresh = Cluster::default();
        for text in last.values().rev() {
            for object in read(text).objects {
                prop_assert!(fresh.apply(Change::Put(Box::new(object))));
            }
        }
        let now = resolve(&mut lab.cluster, &mut lab.book);
        prop_assert_eq!(&now, &resolve(&mut fresh, &mut lab.book));
        // One owner per address, and it is a live pod of this node with a network of its own.
        let mut seen = BTreeSet::new();
        for pod in &now.local {
            for ip in &pod.ips {
                prop_assert!(seen.insert(*ip));
                prop_assert_eq!(now.world_identities[ip], pod.identity);
            }
            prop_assert!(!pod.host_network || pod.ips.is_empty());
        }
        prop_assert_eq!(seen, now.world_identities.keys().copied().collect());
    }
}

/// 5,000 pods of 1,000 identities, 200 of them local, 500 services, 200 policies: what one change costs. In moments also
/// in a debug build; the figure of the issue is the bench's affair.
#[test]
fn a_large_cluster_is_resolved_in_moments() {
    let mut cluster = Cluster::default();
    let mut put = |short: String| {
        let (_, text) = full(&short);
        for object in read(&text).objects {
            cluster.apply(Change::Put(Box::new(object)));
        }
    };
    for n in 0..5000 {
        let (ns, app, node) = (n % 50, n % 1000, n % 25);
        put(format!(
            "Pod ns{ns}/p{n}: {{labels: {{app: a{app}, svc: s{}}}}} | {{spec: {{nodeName: n{node}}}, status: {{podIP: 10.{}.{}.7}}}}",
            n % 500,
            n / 250,
            n % 250
        ));
    }
    for n in 0..500 {
        put(format!(
            "Service ns{}/s{n}: {{spec: {{clusterIP: 10.200.{}.{}, selector: {{svc: s{n}}}, ports: [{{port: 80}}]}}}}",
            n % 50,
            n / 250,
            n % 250 + 1
        ));
    }
    for n in 0..200 {
        put(format!(
            "CiliumNetworkPolicy ns{}/a{n}: {{spec: {{egress: [{{toEntities: [world]}}]}}}}",
            n % 50
        ));
    }
    let mut book = IdentityBook::default();
    cluster.resolve("n1", &mut book);
    let begin = std::time::Instant::now();
    let resolved = cluster.resolve("n1", &mut book);
    let took = begin.elapsed();
    eprintln!("resolved in {took:?}");
    assert_eq!((resolved.peers.len(), resolved.local.len(), resolved.services.len()), (1000, 200, 500));
    assert_eq!(resolved.world_identities.len(), 5000);
    // Of the Services whose pods are all on this node, every kind has two (K-A12).
    let with = |count| resolved.services.iter().filter(|s| s.backends.len() == count).count();
    assert_eq!((with(2), with(4)), (480, 20));
    assert!(took.as_secs() < 5, "{took:?}");
}

/// A label that differs from pod to pod is part of an identity as long as a policy asks for it (CASES K-A08).
#[test]
fn k_a08_a_label_counts_where_a_policy_asks_for_it() {
    const NAME: &str = "statefulset.kubernetes.io/pod-name";
    let pod = |n: u8| {
        format!(
            "Pod db-{n}: {{labels: {{app: db, {NAME}: db-{n}}}}} | \
             {{spec: {{nodeName: n1}}, status: {{podIP: 10.1.0.{n}}}}}"
        )
    };
    let mut lab = Lab::new(&[&pod(1), &pod(2)]);
    let identities = |lab: &mut Lab| {
        let local = lab.resolve().local;
        (local[0].identity == local[1].identity, [local[0].policies.len(), local[1].policies.len()])
    };
    assert_eq!(identities(&mut lab), (true, [0, 0]));
    lab.put(&format!(
        "NetworkPolicy p: {{spec: {{podSelector: {{matchLabels: {{{NAME}: db-2}}}}, policyTypes: [Ingress]}}}}"
    ));
    assert_eq!(identities(&mut lab), (false, [0, 1]));
    // As a peer of another policy, too; then the first one goes, and the other.
    lab.put(&format!(
        "ClusterNetworkPolicy q: {{spec: {{tier: Admin, priority: 0, subject: {{namespaces: {{}}}}, egress: [\
         {{action: Deny, to: [{{pods: {{podSelector: {{matchLabels: {{{NAME}: db-1}}}}}}}}]}}]}}}}"
    ));
    lab.delete("NetworkPolicy p");
    assert_eq!(identities(&mut lab), (false, [1, 1]));
    lab.put("ClusterNetworkPolicy q: {spec: {tier: Admin, priority: 0, subject: {namespaces: {}}}}");
    assert_eq!(identities(&mut lab), (true, [1, 1]));
}
