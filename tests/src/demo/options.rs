//! The demonstration's own command line.

use std::time::Duration;

const USAGE: &str = "usage: demo [--json] [--core] [--only run|pods]\n\
                     --json  print the rows as JSON\n\
                     --core  leave out what takes long on a slow machine\n\
                     --only  one part: `egret run`, or `egret agent` and its pods";

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// JSON instead of the table.
    pub(super) json: bool,
    /// Only the steps that also run in the VM.
    pub(super) core: bool,
    /// Leave out the part about `egret run`.
    pub(super) no_run: bool,
    /// Leave out the part about pods.
    pub(super) no_pods: bool,
}

impl Options {
    /// Reads the arguments; the error is what to print.
    pub(super) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--json" => options.json = true,
                "--core" => options.core = true,
                "--only" => match args.next().as_deref() {
                    Some("run") => options.no_pods = true,
                    Some("pods") => options.no_run = true,
                    _ => return Err(format!("--only: of what?\n{USAGE}")),
                },
                _ => return Err(format!("{arg}: not an option\n{USAGE}")),
            }
        }
        match options.no_run && options.no_pods {
            true => Err(format!("--only one part\n{USAGE}")),
            false => Ok(options),
        }
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
        let both = Options { json: true, core: true, ..Options::default() };
        assert_eq!(parse(&["--core", "--json"]), Ok(both));
        let pods = Options { no_run: true, ..Options::default() };
        assert_eq!(parse(&["--only", "pods"]), Ok(pods));
        assert!(parse(&["--only"]).is_err() && parse(&["--only", "run", "--only", "pods"]).is_err());
        assert!(parse(&["--fast"]).is_err_and(|text| text.contains("usage")));
    }
}
