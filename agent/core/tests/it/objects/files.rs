//! Files to changes: what is in force while files are edited, broken, renamed.

use std::collections::BTreeMap;

use egret_core::cluster::{Change, Key, Source};
use proptest::{collection::vec, prelude::*};

fn pod(name: &str, app: &str) -> String {
    format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: '{app}'}}}}}}\n---\n")
}

fn broken(name: &str) -> String {
    format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: 7}}\n---\n")
}

/// Changes in short: `+name=app`, `-name`.
fn short(changes: &[Change]) -> Vec<String> {
    let mut out: Vec<String> = changes
        .iter()
        .map(|change| match change {
            Change::Put(object) => format!("+{}={}", object.key.name, app(object)),
            Change::Delete(key) => format!("-{}", key.name),
        })
        .collect();
    out.sort();
    out
}

fn app(object: &egret_core::cluster::Object) -> &str {
    match &object.body {
        egret_core::cluster::Body::Pod(pod) => &pod.labels["app"],
        other => panic!("{other:?}"),
    }
}

fn told(source: &Source) -> Vec<String> {
    source.diagnostics().iter().map(|(path, d)| format!("{path}: {d}")).collect()
}

#[test]
fn an_edit_is_the_difference() {
    let mut source = Source::default();
    let text = pod("a", "1") + &pod("b", "1") + &pod("c", "1");
    assert_eq!(short(&source.update("f", &text)), ["+a=1", "+b=1", "+c=1"]);
    assert_eq!(short(&source.update("f", &text)), [] as [&str; 0]);
    let edited = pod("c", "2") + &pod("b", "1") + &pod("d", "1");
    assert_eq!(short(&source.update("f", &edited)), ["+c=2", "+d=1", "-a"]);
    assert_eq!(short(&source.remove("f")), ["-b", "-c", "-d"]);
    assert_eq!(short(&source.remove("f")), [] as [&str; 0]);
}

#[test]
fn n_a03_a_bad_object_keeps_its_last_good_version() {
    let mut source = Source::default();
    source.update("f", &(pod("a", "1") + &pod("b", "1")));
    assert_eq!(short(&source.update("f", &(broken("a") + &pod("b", "2")))), ["+b=2"]);
    assert_eq!(
        told(&source),
        [
            "f: warning: Pod/default/a: stays in force as it was read last",
            "f: error: Pod/default/a: spec: expected an object, found a number",
        ]
    );
    // Still there after another edit that does not mend it; and a version elsewhere counts before it.
    assert_eq!(short(&source.update("f", &broken("a"))), ["-b"]);
    assert_eq!(short(&source.update("g", &pod("a", "3"))), ["+a=3"]);
    assert_eq!(short(&source.remove("g")), ["+a=1"]);
    assert_eq!(short(&source.update("f", &pod("a", "4"))), ["+a=4"]);
    assert_eq!(told(&source), [] as [&str; 0]);
    source.update("f", &broken("a"));
    assert_eq!(short(&source.remove("f")), ["-a"]);
}

#[test]
fn an_object_that_was_never_good_is_not_there() {
    let mut source = Source::default();
    assert_eq!(short(&source.update("f", &(broken("a") + &pod("b", "1")))), ["+b=1"]);
    assert_eq!(told(&source), ["f: error: Pod/default/a: spec: expected an object, found a number"]);
}

#[test]
fn a_torn_file_loses_nothing() {
    let mut source = Source::default();
    source.update("f", &(pod("a", "1") + &pod("b", "1") + &pod("c", "1")));
    let torn = pod("a", "2") + "kind: [\n";
    assert_eq!(short(&source.update("f", &torn)), ["+a=2"]);
    assert_eq!(told(&source).len(), 3);
    assert_eq!(short(&source.update("f", &pod("a", "2"))), ["-b", "-c"]);
}

#[test]
fn a_policy_that_breaks_stays_in_force() {
    let policy = |entity: &str| {
        format!(
            "{{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {{name: p}}, spec: {{endpointSelector: {{}}, egress: [{{toEntities: [{entity}]}}]}}}}"
        )
    };
    let mut source = Source::default();
    assert_eq!(source.update("f", &policy("world")).len(), 1);
    assert_eq!(source.update("f", &policy("moon")).len(), 0);
    // Not even its kind can be told.
    assert_eq!(source.update("f", &policy("world").replace("cilium.io/v2", "cilium.io/v3")).len(), 0);
    let deleted = source.update("f", "");
    assert!(matches!(&deleted[..], [Change::Delete(Key { name, .. })] if name == "p"));
}

#[test]
fn one_object_in_two_files() {
    let mut source = Source::default();
    source.update("b", &pod("a", "b"));
    assert_eq!(short(&source.update("a", &pod("a", "a"))), ["+a=a"]);
    assert_eq!(told(&source), ["b: warning: Pod/default/a: is in a as well, and that one counts"]);
    assert_eq!(short(&source.update("b", &pod("a", "c"))), [] as [&str; 0]);
    assert_eq!(short(&source.remove("a")), ["+a=c"]);
}

#[test]
fn a_renamed_file_changes_nothing() {
    let text = pod("a", "1");
    for (from, to) in [("x", "y"), ("y", "x")] {
        let mut source = Source::default();
        source.update(from, &text);
        assert_eq!(short(&source.sync([(to, text.as_str())])), [] as [&str; 0]);
        assert_eq!(short(&source.sync([])), ["-a"]);
    }
}

/// A text per step: what each of three objects says, if anything.
fn any_text() -> impl Strategy<Value = Vec<Option<u8>>> {
    vec(prop::option::of(0..3u8), 3)
}

fn text_of(says: &[Option<u8>]) -> String {
    let with_name = says.iter().enumerate().filter_map(|(i, app)| app.map(|app| (i, app)));
    with_name.map(|(i, app)| pod(&format!("p{i}"), &format!("a{app}"))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Applied one after the other, the changes lead to what a new agent reads.
    #[test]
    fn changes_add_up(steps in vec((0..3usize, prop::option::weighted(0.8, any_text())), 0..20)) {
        let mut source = Source::default();
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        let mut held = BTreeMap::new();
        for (file, says) in steps {
            let path = format!("f{file}");
            let changes = match &says {
                Some(says) => source.update(&path, &text_of(says)),
                None => source.remove(&path),
            };
            match says {
                Some(says) => drop(files.insert(path, text_of(&says))),
                None => drop(files.remove(&path)),
            }
            for change in changes {
                match change {
                    Change::Put(object) => {
                        prop_assert_ne!(held.insert(object.key.clone(), object.clone()), Some(object));
                    }
                    Change::Delete(key) => prop_assert!(held.remove(&key).is_some()),
                }
            }
        }
        let mut fresh = Source::default();
        let changes = fresh.sync(files.iter().map(|(path, text)| (path.as_str(), text.as_str())));
        let mut new = BTreeMap::new();
        for change in changes {
            match change {
                Change::Put(object) => drop(new.insert(object.key.clone(), object)),
                Change::Delete(key) => drop(new.remove(&key)),
            }
        }
        prop_assert_eq!(held, new);
        prop_assert_eq!(source.diagnostics(), fresh.diagnostics());
    }
}
