//! The demonstration's own command line.

use std::time::Duration;

const USAGE: &str = "usage: demo [--json] [--core]\n\
                     --json  print the rows as JSON\n\
                     --core  leave out what takes long on a slow machine";

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// JSON instead of the table.
    pub(super) json: bool,
    /// Only the steps that also run in the VM.
    pub(super) core: bool,
}

impl Options {
    /// Reads the arguments; the error is what to print.
    pub(super) fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        for arg in args {
            match arg.as_str() {
                "--json" => options.json = true,
                "--core" => options.core = true,
                _ => return Err(format!("{arg}: not an option\n{USAGE}")),
            }
        }
        Ok(options)
    }

    /// Seconds within which a refusal counts as one that came at once. A firewall that is silent costs a
    /// program at least the four seconds of its resolver, or the eight of its connect.
    pub(super) fn at_once() -> f64 {
        crate::wait::patient(Duration::from_secs(2)).as_secs_f64().min(3.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let parse = |args: &[&str]| Options::parse(args.iter().map(|arg| (*arg).to_string()));
        assert_eq!(parse(&[]), Ok(Options::default()));
        assert_eq!(parse(&["--core", "--json"]), Ok(Options { json: true, core: true }));
        assert!(parse(&["--fast"]).is_err_and(|text| text.contains("usage")));
    }
}
