//! What is right or wrong with an object, written where `kubectl describe` shows it: a condition on policies that have a
//! status, an event on every object that is bad.
//!
//! Nothing is written that the object says already, so that another writer, or another agent, repeats nothing.

use std::collections::BTreeMap;

use egret_core::cluster::{Key, Kind};
use egret_core::policy::{Diagnostic, Severity};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::ApiResource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use super::super::kinds::WATCHED;

/// Objects that are looked at in one round.
const ROUND: usize = 64;
/// Characters of a message at most: of an event's note the server takes 1 kB.
const MESSAGE: usize = 900;
/// The condition's type, as Cilium calls it.
const CONDITION: &str = "Valid";

/// What was written.
pub(super) struct Verdicts {
    client: Client,
    reporter: Reporter,
    written: BTreeMap<Key, Verdict>,
    resources: BTreeMap<Kind, ApiResource>,
}

/// What there is to say about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    valid: bool,
    reason: &'static str,
    message: String,
}

impl Verdicts {
    pub(super) fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter, written: BTreeMap::new(), resources: BTreeMap::new() }
    }

    /// Another agent writes.
    pub(super) fn forget(&mut self) {
        self.written.clear();
    }

    /// Writes what is not written yet, as far as one round goes.
    pub(super) async fn write(&mut self, objects: &BTreeMap<Key, Vec<Diagnostic>>) -> kube::Result<()> {
        self.written.retain(|key, _| objects.contains_key(key));
        let all = objects.iter().map(|(key, found)| (key, Verdict::of(found)));
        let new: Vec<_> =
            all.filter(|(key, verdict)| self.written.get(*key) != Some(verdict)).take(ROUND).collect();
        let mut first = Ok(());
        for (key, verdict) in new {
            match self.write_one(key, &verdict).await {
                Ok(()) => drop(self.written.insert(key.clone(), verdict)),
                // One that cannot be written holds up no other.
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    async fn write_one(&mut self, key: &Key, verdict: &Verdict) -> kube::Result<()> {
        let Some(resource) = self.resource(key.kind).await? else { return Ok(()) };
        let api: Api<DynamicObject> = match key.kind.is_namespaced() {
            true => Api::namespaced_with(self.client.clone(), &key.namespace, &resource),
            false => Api::all_with(self.client.clone(), &resource),
        };
        // It may be gone by now.
        let Some(object) = api.get_opt(&key.name).await? else { return Ok(()) };
        let before = object.data.pointer("/status/conditions").and_then(Value::as_array);
        let before = before.cloned().unwrap_or_default();
        let said = before.iter().find(|condition| condition["type"] == CONDITION);
        let has_status = has_conditions(key.kind);
        if said.is_some_and(|said| verdict.is_said_by(said)) {
            return Ok(());
        }
        if has_status {
            let version = &object.metadata.resource_version;
            let conditions = verdict.among(&before);
            // The version makes the server refuse if somebody else has written meanwhile.
            let patch =
                json!({"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}});
            api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        if verdict.message.is_empty() || (has_status && verdict.reason == VALID) {
            return Ok(());
        }
        let event = Event {
            type_: EventType::Warning,
            reason: verdict.reason.to_owned(),
            note: Some(verdict.message.clone()),
            action: "ReadPolicy".to_owned(),
            secondary: None,
        };
        // A recorder of its own: the library would repeat an earlier note about the same object.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        recorder.publish(&event, &object.object_ref(&resource)).await
    }

    async fn resource(&mut self, kind: Kind) -> kube::Result<Option<ApiResource>> {
        if let Some(resource) = self.resources.get(&kind) {
            return Ok(Some(resource.clone()));
        }
        let Some(watched) = WATCHED.iter().find(|watched| watched.kind == kind) else { return Ok(None) };
        let resource = match watched.resource() {
            Some(resource) => Some(resource),
            None => watched.find(&self.client).await?,
        };
        if let Some(resource) = &resource {
            self.resources.insert(kind, resource.clone());
        }
        Ok(resource)
    }
}

const VALID: &str = "PolicyValid";

impl Verdict {
    fn of(found: &[Diagnostic]) -> Self {
        let valid = found.iter().all(|d| d.severity != Severity::Error);
        let texts: Vec<String> = found.iter().map(text).collect();
        let (reason, message) = match (valid, texts.is_empty()) {
            (true, true) => (VALID, "Policy validation succeeded".to_owned()),
            (true, false) => ("PolicyWarning", texts.join("; ")),
            (false, _) => ("PolicyInvalid", texts.join("; ")),
        };
        Self { valid, reason, message: cut(&message) }
    }

    fn status(&self) -> &'static str {
        if self.valid { "True" } else { "False" }
    }

    fn is_said_by(&self, condition: &Value) -> bool {
        condition["status"] == self.status()
            && condition["reason"] == self.reason
            && condition["message"] == self.message.as_str()
    }

    /// These conditions, with this one in the place of an older one of ours.
    fn among(&self, before: &[Value]) -> Vec<Value> {
        let mut all: Vec<Value> = before.iter().filter(|c| c["type"] != CONDITION).cloned().collect();
        let old = before.iter().find(|c| c["type"] == CONDITION && c["status"] == self.status());
        let since = old.map(|c| c["lastTransitionTime"].clone()).filter(Value::is_string);
        let now = || Value::String(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        all.push(json!({
            "type": CONDITION,
            "status": self.status(),
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": since.unwrap_or_else(now),
        }));
        all
    }
}

fn has_conditions(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::CiliumNetworkPolicy | Kind::CiliumClusterwideNetworkPolicy | Kind::ClusterNetworkPolicy
    )
}

fn text(diagnostic: &Diagnostic) -> String {
    match diagnostic.path.as_str() {
        "" => diagnostic.message.clone(),
        path => format!("{path}: {}", diagnostic.message),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MESSAGE) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(severity: Severity, path: &str, message: &str) -> Diagnostic {
        Diagnostic { severity, object: String::new(), path: path.into(), message: message.into() }
    }

    #[test]
    fn a_warning_is_no_error() {
        let check = |found: &[Diagnostic], want: (bool, &str, &str)| {
            let Verdict { valid, reason, message } = Verdict::of(found);
            assert_eq!((valid, reason, message.as_str()), want);
        };
        let warning = told(Severity::Warning, "", "no DNS");
        let error = told(Severity::Error, "spec.egress[0]", "is no rule");
        check(&[], (true, VALID, "Policy validation succeeded"));
        check(std::slice::from_ref(&warning), (true, "PolicyWarning", "no DNS"));
        check(&[error, warning], (false, "PolicyInvalid", "spec.egress[0]: is no rule; no DNS"));
        let long = Verdict::of(&[told(Severity::Error, "", &"ä".repeat(5000))]);
        assert_eq!(long.message.chars().count(), MESSAGE + 3);
    }

    #[test]
    fn conditions_of_others_stay_and_a_time_changes_with_the_status_only() {
        let others = json!({"type": "Other", "status": "True"});
        let old = json!({"type": "Valid", "status": "False", "reason": "x", "lastTransitionTime": "2020-01-01T00:00:00Z"});
        let bad = Verdict::of(&[told(Severity::Error, "", "bad")]);
        let all = bad.among(&[old.clone(), others.clone()]);
        assert_eq!((&all[0], &all[1]["lastTransitionTime"]), (&others, &old["lastTransitionTime"]));
        assert!(bad.is_said_by(&all[1]) && all.len() == 2);
        let good = Verdict::of(&[]).among(&all);
        assert_eq!((good.len(), good[1]["status"].as_str()), (2, Some("True")));
        assert_ne!(good[1]["lastTransitionTime"], old["lastTransitionTime"]);
    }
}
