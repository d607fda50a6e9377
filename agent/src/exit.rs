//! Exit codes of `egret`: sysexits(3) for failures of egret itself, the shell's conventions for CMD.
//!
//! CMD's own code passes through unchanged, so a code of 64..=78 can also be CMD's; egret's own
//! failures always come with a line on stderr that begins with `egret:`.

use std::process::ExitCode;

/// `egret learn --check`: a policy would deny something that was seen.
pub const WOULD_DENY: u8 = 1;
/// Wrong use of the command line (`EX_USAGE`).
pub const USAGE: u8 = 64;
/// A pattern or a policy that does not parse (`EX_DATAERR`).
pub const DATA_ERROR: u8 = 65;
/// A policy file that cannot be read (`EX_NOINPUT`).
pub const NO_INPUT: u8 = 66;
/// `--user` names nobody (`EX_NOUSER`).
pub const NO_USER: u8 = 67;
/// The kernel or the host lacks something that enforcement needs (`EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;
/// A bug in egret (`EX_SOFTWARE`).
pub const SOFTWARE: u8 = 70;
/// A system call failed that should not (`EX_OSERR`).
pub const OS_ERROR: u8 = 71;
/// A report or policy that cannot be written (`EX_CANTCREAT`).
pub const CANNOT_CREATE: u8 = 73;
/// `egret uninstall` left something alone, since a run uses it (`EX_TEMPFAIL`).
pub const IN_USE: u8 = 75;
/// No root, or capabilities are missing (`EX_NOPERM`).
pub const NO_PERMISSION: u8 = 77;

/// CMD exists but cannot be executed (as shells report it).
pub const CMD_NOT_EXECUTABLE: u8 = 126;
/// CMD was not found (as shells report it).
pub const CMD_NOT_FOUND: u8 = 127;

/// Default of `--fail-on-deny`: something was denied although CMD itself succeeded.
/// It lies outside sysexits (64..=78) and the shell's own codes (126 and up).
pub const DENIED: u8 = 86;

/// A failure of egret itself: what happened, what to do about it, and the code to leave with.
/// CMD has not been started when one of these is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}; {remedy}")]
pub struct Refusal {
    /// What is wrong, without a full stop.
    pub cause: String,
    /// What the reader can do about it.
    pub remedy: String,
    /// One of the constants of this module.
    pub code: u8,
}

impl Refusal {
    /// A refusal with the given sysexits code.
    pub fn new(code: u8, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { cause: cause.into(), remedy: remedy.into(), code }
    }

    /// The code as the process returns it.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

/// The code egret leaves with, given CMD's and whether something was denied: a denial speaks only
/// when CMD succeeded, so that the reason CMD failed for is never hidden.
#[must_use]
pub fn combine(cmd: u8, denied: bool, fail_on_deny: Option<u8>) -> u8 {
    match fail_on_deny {
        Some(code) if denied && cmd == 0 => code,
        _ => cmd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_speaks_only_when_cmd_succeeded() {
        assert_eq!(combine(0, true, None), 0);
        assert_eq!(combine(0, true, Some(86)), 86);
        assert_eq!(combine(0, false, Some(86)), 0);
        assert_eq!(combine(22, true, Some(86)), 22);
    }
}
