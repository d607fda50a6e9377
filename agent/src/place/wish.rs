//! The annotations by which a pod object says where it is.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// A network namespace: a path, or a name as `ip netns` knows it.
pub const NETNS: &str = "egret.dev/netns";
/// The host's side of the pod's interface.
pub const INTERFACE: &str = "egret.dev/interface";
/// A cgroup, as a path below the cgroup2 mount.
pub const CGROUP: &str = "egret.dev/cgroup";

/// Where `ip netns` keeps its namespaces.
const NAMED: &str = "/run/netns";
/// `IFNAMSIZ` without the final zero.
const NAME_MAX: usize = 15;

/// Where a pod says that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// In this network namespace.
    Netns(PathBuf),
    /// Behind this interface.
    Interface(String),
    /// In this cgroup, relative to the mount.
    Cgroup(PathBuf),
    /// It says nothing: its uid leads to it.
    Uid,
}

/// An annotation that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metadata.annotations[{annotation}]: {value:?} {why}")]
pub struct WishError {
    annotation: &'static str,
    value: String,
    why: &'static str,
}

impl Wish {
    /// Reads the annotations. The most direct one counts: interface, then namespace; a cgroup stands alone.
    ///
    /// # Errors
    /// [`WishError`] that names the annotation.
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Self, WishError> {
        let get = |key: &str| annotations.get(key).map(String::as_str);
        match (get(CGROUP), get(INTERFACE), get(NETNS)) {
            (Some(value), None, None) => cgroup(value),
            (Some(value), ..) => Err(wrong(
                CGROUP,
                value,
                "stands beside an interface or a network namespace; give one of them",
            )),
            (None, Some(name), _) => interface(name),
            (None, None, Some(value)) => netns(value),
            (None, None, None) => Ok(Self::Uid),
        }
    }
}

fn cgroup(value: &str) -> Result<Wish, WishError> {
    let path: PathBuf = Path::new(value).components().filter(|c| *c != Component::RootDir).collect();
    let plain = path.components().all(|c| matches!(c, Component::Normal(_)));
    if path.as_os_str().is_empty() || !plain {
        return Err(wrong(
            CGROUP,
            value,
            "is no path below the cgroup2 mount, such as system.slice/web.service",
        ));
    }
    Ok(Wish::Cgroup(path))
}

fn interface(name: &str) -> Result<Wish, WishError> {
    let odd = |c: char| c == '/' || c.is_whitespace() || c == '\0';
    if name.is_empty() || name.len() > NAME_MAX || name == "." || name == ".." || name.contains(odd) {
        return Err(wrong(INTERFACE, name, "is no name of an interface"));
    }
    Ok(Wish::Interface(name.to_owned()))
}

fn netns(value: &str) -> Result<Wish, WishError> {
    if value.starts_with('/') {
        return Ok(Wish::Netns(value.into()));
    }
    if value.is_empty() || value.contains('/') || value == "." || value == ".." {
        return Err(wrong(NETNS, value, "is neither an absolute path nor a name"));
    }
    Ok(Wish::Netns(Path::new(NAMED).join(value)))
}

fn wrong(annotation: &'static str, value: &str, why: &'static str) -> WishError {
    WishError { annotation, value: value.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Wish, WishError> {
        Wish::of(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn annotations_say_where_a_pod_is() {
        for (pairs, want) in [
            (&[][..], Wish::Uid),
            (&[("app", "web")], Wish::Uid),
            (&[(NETNS, "blue")], Wish::Netns("/run/netns/blue".into())),
            (&[(NETNS, "/proc/7/ns/net")], Wish::Netns("/proc/7/ns/net".into())),
            (&[(INTERFACE, "veth1.2@x")], Wish::Interface("veth1.2@x".into())),
            (&[(INTERFACE, "v0"), (NETNS, "blue")], Wish::Interface("v0".into())),
            (&[(CGROUP, "/system.slice/web.service/")], Wish::Cgroup("system.slice/web.service".into())),
            (&[(CGROUP, "web")], Wish::Cgroup("web".into())),
        ] {
            assert_eq!(of(pairs), Ok(want), "{pairs:?}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_named() {
        for (pairs, part) in [
            (&[(NETNS, "")][..], "egret.dev/netns"),
            (&[(NETNS, "a/b")], "egret.dev/netns"),
            (&[(NETNS, "..")], "egret.dev/netns"),
            (&[(INTERFACE, "sixteen-letters-")], "egret.dev/interface"),
            (&[(INTERFACE, "a/b")], "egret.dev/interface"),
            (&[(INTERFACE, "")], "egret.dev/interface"),
            (&[(CGROUP, "")], "egret.dev/cgroup"),
            (&[(CGROUP, "/")], "egret.dev/cgroup"),
            (&[(CGROUP, "a/../../b")], "egret.dev/cgroup"),
            (&[(CGROUP, "a"), (INTERFACE, "v0")], "egret.dev/cgroup"),
        ] {
            let error = of(pairs).expect_err("not followed").to_string();
            assert!(error.contains(&format!("metadata.annotations[{part}]")), "{error}");
        }
    }
}
