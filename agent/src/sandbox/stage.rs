//! The steps between clone and exec, as the child reports the one that failed: number out, words in.

/// Where the child failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Stage {
    Stdio,
    Namespaces,
    Mounts,
    Capabilities,
    User,
    Directory,
    NoNewPrivs,
    Landlock,
    Seccomp,
    Descriptors,
    Exec,
}

impl Stage {
    const ALL: [Self; 11] = [
        Self::Stdio,
        Self::Namespaces,
        Self::Mounts,
        Self::Capabilities,
        Self::User,
        Self::Directory,
        Self::NoNewPrivs,
        Self::Landlock,
        Self::Seccomp,
        Self::Descriptors,
        Self::Exec,
    ];

    pub(super) fn from_number(number: u32) -> Self {
        Self::ALL.into_iter().find(|s| *s as u32 == number).unwrap_or(Self::Exec)
    }

    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Stdio => "replace the standard descriptors",
            Self::Namespaces => "make a mount and a cgroup namespace (CAP_SYS_ADMIN)",
            Self::Mounts => "make the cgroup file systems read-only",
            Self::Capabilities => "drop capabilities (CAP_SETPCAP)",
            Self::User => "change the user (CAP_SETUID, CAP_SETGID)",
            Self::Directory => "change to the working directory",
            Self::NoNewPrivs => "set no_new_privs",
            Self::Landlock => "enter the Landlock domain",
            Self::Seccomp => "install the system-call filter",
            Self::Descriptors => "close inherited descriptors",
            Self::Exec => "execute CMD",
        }
    }
}
