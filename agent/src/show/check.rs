//! `egret policy check`: files in, what they mean out, without an agent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{json, policy_table, print};
use crate::agent::Checked;
use crate::cli::{Format, PolicyCheck};
use crate::exit::{self, Refusal};
use crate::tell;

/// Bytes of a file at most.
const FILE_MAX: u64 = 16 << 20;

/// 0; 65 if an object is bad, 66 if a file cannot be read.
pub(super) fn check(args: &PolicyCheck) -> Result<u8, Refusal> {
    let mut files = BTreeMap::new();
    for path in &args.files {
        files.insert(path.clone(), read_file(path)?);
    }
    let checked = Checked::new(files);
    match args.output {
        Format::Json => print(&json(&checked.policies)),
        Format::Table => print(&policy_table(&checked.policies.policies)),
    }
    checked.policies.diagnostics.iter().for_each(tell::line);
    Ok(if checked.bad { exit::DATA_ERROR } else { 0 })
}

/// The text of a file of policies.
///
/// # Errors
/// 66 if it cannot be read, 65 if it is too large.
pub(crate) fn read_file(path: &Path) -> Result<String, Refusal> {
    let refuse = |code, why: &dyn std::fmt::Display| {
        Refusal::new(code, format!("{}: {why}", path.display()), "give a file that can be read")
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(refuse(exit::NO_INPUT, &error)),
        Ok(size) if size as u64 > FILE_MAX => Err(refuse(exit::DATA_ERROR, &"larger than 16 MiB")),
        Ok(_) => Ok(text),
    }
}
