//! Programs in a chosen place: a network namespace, private files in /etc, a cgroup. Knows nothing of
//! what the programs do.
//!
//! Never through `ip netns exec`: that hides bpffs and the cgroup file system from the program.

mod place;
mod running;

pub use place::Place;
pub use running::{Outcome, Running};

use std::time::Duration;

/// A program with its arguments, as a value that can be run in several places.
#[derive(Clone, Debug)]
pub struct Cmd {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Added to the environment.
    pub env: Vec<(String, String)>,
    /// Written to standard input, which is closed then.
    pub stdin: Vec<u8>,
    /// After this long it is killed and the outcome says so.
    pub timeout: Duration,
}

impl Cmd {
    /// A program and its arguments.
    pub fn new<S: AsRef<str>>(argv: impl IntoIterator<Item = S>) -> Self {
        let argv = argv.into_iter().map(|arg| arg.as_ref().to_string()).collect();
        Self { argv, env: Vec::new(), stdin: Vec::new(), timeout: Duration::from_secs(20) }
    }

    /// A line for `sh -c`.
    pub fn sh(line: &str) -> Self {
        Self::new(["sh", "-c", line])
    }

    /// With one more variable.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// With another limit of time.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// With this on standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }
}
