//! What a pod belongs to, from the owner that controls it.
//!
//! Owns: how controllers name what they make. A ReplicaSet of a Deployment and a Job of a CronJob are not objects that are
//! read: their own owners are told from their names. Must not know: what a workload is good for; so nothing here that
//! cannot be read loses a pod.

use super::field::Field;
use crate::{flow::Workload, labels::Labels};

/// What a Deployment calls its pods' version; its ReplicaSets' names end in it.
const TEMPLATE: &str = "pod-template-hash";
/// A CronJob's Jobs end in the minutes since 1970 of their time: eight digits until 2160.
const MINUTES: usize = 8;

/// The workload of a pod with this metadata and these labels.
pub(super) fn workload(metadata: &Field<'_>, labels: &Labels) -> Option<Workload> {
    let owners = metadata.get("ownerReferences").ok()?.items().ok()?;
    let controls = |owner: &Field<'_>| owner.get("controller").and_then(|c| c.boolean()).unwrap_or(false);
    let owner = owners.into_iter().find(controls)?;
    let text = |name: &str| owner.get(name).ok()?.need_text().ok();
    let (kind, name) = (text("kind")?, text("name")?);
    let (kind, name) = match kind {
        "ReplicaSet" => deployment(name, labels).map_or((kind, name), |name| ("Deployment", name)),
        "Job" => cron_job(name).map_or((kind, name), |name| ("CronJob", name)),
        _ => (kind, name),
    };
    Some(Workload { name: name.to_owned(), kind: kind.to_owned() })
}

/// The name of the Deployment whose ReplicaSet has this name.
fn deployment<'a>(name: &'a str, labels: &Labels) -> Option<&'a str> {
    let hash = labels.get(TEMPLATE).filter(|hash| !hash.is_empty())?;
    name.strip_suffix(hash.as_str())?.strip_suffix('-').filter(|name| !name.is_empty())
}

/// The name of the CronJob whose Job has this name.
fn cron_job(name: &str) -> Option<&str> {
    let (name, minutes) = name.rsplit_once('-')?;
    let digits = minutes.len() >= MINUTES && minutes.bytes().all(|b| b.is_ascii_digit());
    (digits && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owners as YAML, the pod's `pod-template-hash`, and what is made of them.
    #[track_caller]
    fn check(owners: &str, hash: &str, want: &str) {
        let text = format!("{{ownerReferences: {owners}}}");
        let metadata = serde_yaml_ng::from_str(&text).expect("YAML");
        let labels = [(TEMPLATE.to_owned(), hash.to_owned())];
        let labels = labels.into_iter().filter(|(_, hash)| hash != "-").collect();
        let found = workload(&Field::root(&metadata), &labels);
        assert_eq!(
            found.map_or(String::new(), |w| format!("{}/{}", w.kind, w.name)),
            want,
            "{owners}, {hash}"
        );
    }

    #[test]
    fn the_controller_names_the_workload() {
        let owner =
            |kind: &str, name: &str| format!("[{{kind: {kind}, name: \"{name}\", controller: true}}]");
        for (kind, name, hash, want) in [
            ("ReplicaSet", "web-6b5f", "6b5f", "Deployment/web"),
            ("ReplicaSet", "a-b-6b5f", "6b5f", "Deployment/a-b"),
            // A ReplicaSet of its own, of another owner, or with a label that only looks like it.
            ("ReplicaSet", "web-6b5f", "-", "ReplicaSet/web-6b5f"),
            ("ReplicaSet", "web-6b5f", "\"\"", "ReplicaSet/web-6b5f"),
            ("ReplicaSet", "web-6b5f", "b5f", "ReplicaSet/web-6b5f"),
            ("ReplicaSet", "web6b5f", "6b5f", "ReplicaSet/web6b5f"),
            ("ReplicaSet", "-6b5f", "6b5f", "ReplicaSet/-6b5f"),
            ("ReplicaSet", "web-6b5f-x", "6b5f", "ReplicaSet/web-6b5f-x"),
            ("ReplicaSet", "web", "web", "ReplicaSet/web"),
            ("Job", "nightly-29012345", "-", "CronJob/nightly"),
            ("Job", "a-nightly-290123456", "-", "CronJob/a-nightly"),
            ("Job", "nightly-2901234", "-", "Job/nightly-2901234"),
            ("Job", "nightly-2901234x", "-", "Job/nightly-2901234x"),
            ("Job", "nightly", "-", "Job/nightly"),
            ("Job", "-29012345", "-", "Job/-29012345"),
            ("StatefulSet", "db-29012345", "29012345", "StatefulSet/db-29012345"),
            ("DaemonSet", "agent", "6b5f", "DaemonSet/agent"),
            ("Workflow", "build", "-", "Workflow/build"),
        ] {
            check(&owner(kind, name), hash.trim_matches('"'), want);
        }
    }

    #[test]
    fn whoever_does_not_control_is_not_meant() {
        check("[{kind: DaemonSet, name: d}]", "-", "");
        check("[{kind: A, name: a, controller: false}, {kind: B, name: b, controller: true}]", "-", "B/b");
        check("[]", "-", "");
        // What cannot be read is nobody.
        for odd in ["7", "[7]", "[{kind: A, controller: true}]", "[{kind: [], name: a, controller: true}]"] {
            check(odd, "-", "");
        }
    }
}
