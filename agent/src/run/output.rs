//! Files that a run writes. They are opened before CMD starts: a report that cannot be written is known in time, and
//! CMD, which may own the directory, cannot lead egret to another file later.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::report::Report;
use crate::cli::{Output, ReportFormat, RunArgs};
use crate::exit::{self, Refusal};

/// The open files of a run.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    report: Option<File>,
    policy: Option<File>,
    to_stdout: bool,
    json: bool,
}

impl Outputs {
    /// Opens and empties them. Code 73.
    pub(super) fn open(args: &RunArgs) -> Result<Self, Refusal> {
        let report = match &args.report {
            Some(Output::File(path)) => Some(create(path, "--report")?),
            _ => None,
        };
        let policy = args.write_policy.as_deref().map(|path| create(path, "--write-policy")).transpose()?;
        let to_stdout = args.report == Some(Output::Stdout);
        Ok(Self { report, policy, to_stdout, json: args.report_format == ReportFormat::Json })
    }

    /// Whether `--write-policy` was given.
    #[must_use]
    pub(super) fn wants_policy(&self) -> bool {
        self.policy.is_some()
    }

    /// Writes the report.
    pub(super) fn write_report(&mut self, report: &Report) -> io::Result<()> {
        let text = if self.json { report.json() } else { report.text() };
        if self.to_stdout {
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())?;
        }
        self.report.as_mut().map_or(Ok(()), |file| file.write_all(text.as_bytes()))
    }

    /// Writes the policy.
    pub(super) fn write_policy(&mut self, text: &str) -> io::Result<()> {
        self.policy.as_mut().map_or(Ok(()), |file| file.write_all(text.as_bytes()))
    }
}

fn create(path: &Path, option: &str) -> Result<File, Refusal> {
    File::create(path).map_err(|error| {
        let cause = format!("{option} {}: {error}", path.display());
        Refusal::new(exit::CANNOT_CREATE, cause, "give a file in a directory that can be written")
    })
}
