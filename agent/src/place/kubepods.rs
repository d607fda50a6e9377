//! Names of the cgroups that a kubelet makes for pods.
//!
//! ```text
//!  systemd driver   kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid with _>.slice/cri-containerd-<id>.scope
//!  cgroupfs driver  kubepods/burstable/pod<uid>/<container>
//!  kind             kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<uid with _>.slice/...
//! ```
//! Pure: paths in, what they say out.

use std::path::{Component, Path};

/// Levels below the mount at which a tree of pods begins at most.
pub const ROOT_DEPTH: usize = 4;
/// Levels below its beginning at which a pod stands at most: the class of service between them.
pub const POD_DEPTH: usize = 2;

/// Whether a directory of this name begins a tree of pods.
#[must_use]
pub fn is_root(name: &str) -> bool {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    name == "kubepods" || name.ends_with("-kubepods")
}

/// The uid of the pod whose directory has this name, as the API writes it.
#[must_use]
pub fn pod_uid(name: &str) -> Option<String> {
    let (name, slice) = match name.strip_suffix(".slice") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let uid = match slice {
        // Each level repeats those above it, and `-` separates them: the uid has `_` instead.
        true => name.rsplit('-').next()?.strip_prefix("pod")?,
        false => name.strip_prefix("pod")?,
    };
    let valid = !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-' || b == b'_');
    valid.then(|| uid.replace('_', "-"))
}

/// The pod of a path below the cgroup2 mount, if it lies in a tree of pods: of the pod's own directory, or of anything
/// in it.
#[must_use]
pub fn pod_of(path: &Path) -> Option<String> {
    let mut names = path.components().filter_map(|c| match c {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    names.by_ref().take(ROOT_DEPTH).find(|name| is_root(name))?;
    names.take(POD_DEPTH).find_map(pod_uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0f3ab5b9-7a5e-4c5e-9b7a-8d2c1e6f0a11";

    #[test]
    fn paths_of_every_driver_lead_to_the_uid() {
        let scored = UID.replace('-', "_");
        for (path, want) in [
            (format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{scored}.slice"), true),
            (format!("kubepods.slice/kubepods-pod{scored}.slice/cri-containerd-77.scope"), true),
            (
                format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{scored}.slice/a/b"),
                true,
            ),
            (format!("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{scored}.slice"), true),
            (format!("/kubepods/burstable/pod{UID}"), true),
            (format!("kubepods/pod{UID}/0123"), true),
            (format!("a/b/c/kubepods/pod{UID}"), true),
            (format!("system.slice/pod{UID}"), false),
            (format!("user.slice/kubepods-pod{scored}.slice"), false),
            (format!("kubepods/burstable/x/pod{UID}"), false),
            ("kubepods.slice/kubepods-burstable.slice".into(), false),
            ("kubepods/podman".into(), false),
            ("kubepods/pod".into(), false),
            (String::new(), false),
        ] {
            assert_eq!(pod_of(Path::new(&path)), want.then(|| UID.to_owned()), "{path}");
        }
    }

    #[test]
    fn static_pods_have_a_hash_for_a_uid() {
        let name = "kubepods-burstable-pod4be3e37cbd1ab3c6e9ae8a6b4c0c1cd1.slice";
        assert_eq!(pod_uid(name).as_deref(), Some("4be3e37cbd1ab3c6e9ae8a6b4c0c1cd1"));
    }
}
