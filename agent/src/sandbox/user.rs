//! As whom CMD runs: the invoking user behind sudo, `--user`, or no change.
//!
//! Reads the user database before the fork. Knows nothing of capabilities.

use std::ffi::{CString, OsString};
use std::path::PathBuf;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use crate::exit::{self, Refusal};

/// Everything that changing to a user needs, looked up in advance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSpec {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// All supplementary groups, as initgroups(3) would set them.
    pub groups: Vec<u32>,
    /// Login name; the number if the id has no entry.
    pub name: String,
    /// Home directory; `/` if the id has no entry.
    pub home: PathBuf,
    /// Login shell; `/bin/sh` if the id has no entry.
    pub shell: PathBuf,
}

/// Chooses the user for CMD: `--user`, else the one who called sudo, else `None` (no change).
/// Failures leave with `EX_NOUSER`.
pub fn choose(option: Option<&str>) -> Result<Option<UserSpec>, Refusal> {
    if let Some(text) = option {
        return resolve(text).map(Some);
    }
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
    // SUDO_UID says something only when sudo made us root.
    match (Uid::effective().is_root(), number("SUDO_UID")) {
        (true, Some(uid)) => {
            let gid = number("SUDO_GID");
            from_ids(uid, gid).map(Some)
        }
        _ => Ok(None),
    }
}

/// `NAME`, `UID`, `NAME:GROUP`, `UID:GID`.
pub fn resolve(text: &str) -> Result<UserSpec, Refusal> {
    let (user, group) = text.split_once(':').map_or((text, None), |(u, g)| (u, Some(g)));
    let gid = group.map(group_id).transpose()?;
    match User::from_name(user).map_err(lookup_failed)? {
        Some(entry) => from_entry(&entry, gid),
        None => match user.parse::<u32>() {
            Ok(uid) => from_ids(uid, gid),
            Err(_) => Err(Refusal::new(
                exit::NO_USER,
                format!("--user: there is no user {user:?}"),
                "give a login name or a numeric UID[:GID]",
            )),
        },
    }
}

/// The environment for the user: HOME, USER, LOGNAME and SHELL are theirs, and what sudo left behind
/// about itself is gone, since it no longer holds.
pub fn environment(
    env: impl Iterator<Item = (OsString, OsString)>,
    user: Option<&UserSpec>,
) -> Vec<(OsString, OsString)> {
    let Some(user) = user else { return env.collect() };
    let theirs: [(&str, OsString); 4] = [
        ("HOME", user.home.clone().into()),
        ("USER", user.name.clone().into()),
        ("LOGNAME", user.name.clone().into()),
        ("SHELL", user.shell.clone().into()),
    ];
    let gone = ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "SUDO_HOME", "MAIL"];
    let mut out: Vec<_> =
        env.filter(|(k, _)| !gone.iter().any(|g| k == g) && !theirs.iter().any(|(t, _)| k == t)).collect();
    out.extend(theirs.into_iter().map(|(k, v)| (OsString::from(k), v)));
    out
}

fn group_id(text: &str) -> Result<u32, Refusal> {
    if let Some(group) = Group::from_name(text).map_err(lookup_failed)? {
        return Ok(group.gid.as_raw());
    }
    text.parse().map_err(|_| {
        Refusal::new(
            exit::NO_USER,
            format!("--user: there is no group {text:?}"),
            "give a group name or a GID",
        )
    })
}

fn from_ids(uid: u32, gid: Option<u32>) -> Result<UserSpec, Refusal> {
    if let Some(entry) = User::from_uid(Uid::from_raw(uid)).map_err(lookup_failed)? {
        return from_entry(&entry, gid);
    }
    // A number without an entry: as containers do, its own group and nothing else.
    let gid = gid.unwrap_or(uid);
    let (home, shell) = ("/".into(), "/bin/sh".into());
    Ok(UserSpec { uid, gid, groups: vec![gid], name: uid.to_string(), home, shell })
}

fn from_entry(entry: &User, gid: Option<u32>) -> Result<UserSpec, Refusal> {
    let gid = gid.map_or(entry.gid, Gid::from_raw);
    let name = CString::new(entry.name.as_str()).unwrap_or_default();
    let groups = getgrouplist(&name, gid).map_err(lookup_failed)?;
    Ok(UserSpec {
        uid: entry.uid.as_raw(),
        gid: gid.as_raw(),
        groups: groups.into_iter().map(Gid::as_raw).collect(),
        name: entry.name.clone(),
        home: entry.dir.clone(),
        shell: entry.shell.clone(),
    })
}

fn lookup_failed(error: nix::Error) -> Refusal {
    Refusal::new(exit::NO_USER, format!("the user database does not answer: {error}"), "see nsswitch.conf(5)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        let root = resolve("root").expect("root");
        assert_eq!((root.uid, root.gid), (0, 0));
        let unknown = resolve("4000000:4000001").expect("numbers need no entry");
        assert_eq!((unknown.uid, unknown.gid, unknown.groups), (4_000_000, 4_000_001, vec![4_000_001]));
        assert_eq!(resolve("no such user").expect_err("unknown").code, exit::NO_USER);
    }

    #[test]
    fn environment_is_the_users() {
        let user = resolve("root").expect("root");
        let env = [("HOME", "/x"), ("SUDO_UID", "1"), ("PATH", "/bin")].map(|(k, v)| (k.into(), v.into()));
        let out = environment(env.into_iter(), Some(&user));
        let get =
            |k: &str| out.iter().filter(|(key, _)| key == k).map(|(_, v)| v.clone()).collect::<Vec<_>>();
        assert_eq!(get("HOME"), [OsString::from(user.home)]);
        assert_eq!(get("PATH"), [OsString::from("/bin")]);
        assert!(get("SUDO_UID").is_empty());
    }
}
