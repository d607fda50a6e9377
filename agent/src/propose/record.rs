//! A file with the flows that counted, and with what is behind Services: what a policy was made from, to be replayed.
//!
//! Each line is JSON. Those of flows are `hubble`'s; the one about Services has a field of its own, which other readers
//! pass over.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, LineWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use serde::Deserialize;

use crate::api;
use crate::exit::{self, Refusal};
use crate::observe::json;
use crate::observe::proto::observer::GetFlowsResponse;
use crate::tell;

/// The line about Services.
#[derive(Debug, Deserialize)]
struct Line {
    egret_services: Vec<api::Service>,
}

/// Bytes of Services to a line: a reader takes a mebibyte.
const CHUNK: usize = 512 << 10;
/// Bytes of one Service at most: it has a line of its own then.
const MAX_SERVICE: usize = 1_000 << 10;
/// Bytes of lines about Services that are read at most.
const MAX_READ: usize = 64 << 20;
/// Before and behind the Services of a line.
const AROUND: [&str; 2] = ["{\"egret_services\":[", "]}"];

/// The field of such a line.
const FIELD: &str = "\"egret_services\"";

/// A file that is being written. Only its owner may read it: it says who talks to whom.
#[derive(Debug)]
pub(super) struct Record {
    /// Line by line, so that it is good for as much as there is whatever happens.
    file: LineWriter<File>,
    path: String,
}

impl Record {
    /// A file that is there already is emptied; a link is not followed, since this may run as root.
    pub(super) fn create(path: &Path) -> Result<Self, Refusal> {
        let file = open(path);
        let path = path.display().to_string();
        let file = file.map_err(|error| failed(&path, &error))?;
        Ok(Self { file: LineWriter::new(file), path })
    }

    pub(super) fn services(&mut self, services: &[api::Service]) -> Result<(), Refusal> {
        let mut line = String::new();
        for service in services {
            // These types have no value that JSON cannot say.
            let one = serde_json::to_string(service).unwrap_or_default();
            if one.len() > MAX_SERVICE {
                let (vip, port) = (service.vip, service.port);
                tell::line(format_args!(
                    "what is behind the Service {vip} port {port} is too much to record"
                ));
                continue;
            }
            if !line.is_empty() && line.len() + one.len() > CHUNK {
                self.line(&AROUND.join(&line))?;
                line.clear();
            }
            if !line.is_empty() {
                line.push(',');
            }
            line += &one;
        }
        if line.is_empty() { Ok(()) } else { self.line(&AROUND.join(&line)) }
    }

    pub(super) fn answer(&mut self, answer: &GetFlowsResponse) -> Result<(), Refusal> {
        self.line(&json::response(answer))
    }

    pub(super) fn end(mut self) -> Result<(), Refusal> {
        self.file.flush().map_err(|error| failed(&self.path, &error))
    }

    fn line(&mut self, text: &str) -> Result<(), Refusal> {
        writeln!(self.file, "{text}").map_err(|error| failed(&self.path, &error))
    }
}

fn failed(path: &str, error: &std::io::Error) -> Refusal {
    let cause = format!("--record {path}: {error}");
    Refusal::new(
        exit::CANNOT_CREATE,
        cause,
        "give a new file, or one of your own, in a directory that can be written",
    )
}

/// Opens a file for its owner alone.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A pipe without a reader would hold up the program.
    options.write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    let there = file.metadata()?;
    let why = match &there {
        there if !there.is_file() => "it is no regular file",
        there if there.uid() != nix::unistd::geteuid().as_raw() => "it is another user's file",
        there if there.nlink() > 1 => "it has another name",
        _ => "",
    };
    if !why.is_empty() {
        return Err(io::Error::other(why));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}

/// The Services of a file's lines that are not about flows.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    list: Vec<api::Service>,
    /// Bytes so far.
    bytes: usize,
    /// Lines about Services that had no room, or say nothing.
    lost: u64,
}

impl Recorded {
    /// Takes what a line says about Services, if it does.
    pub(super) fn take(&mut self, line: &str) {
        if !line.contains(FIELD) {
            return;
        }
        self.bytes = self.bytes.saturating_add(line.len());
        match serde_json::from_str::<Line>(line).ok().filter(|_| self.bytes <= MAX_READ) {
            Some(line) => self.list.extend(line.egret_services),
            None => self.lost += 1,
        }
    }

    /// All of them; what was lost is told.
    pub(super) fn end(self) -> Vec<api::Service> {
        if self.lost > 0 {
            let (lost, most) = (self.lost, MAX_READ >> 20);
            tell::line(format_args!(
                "{lost} lines about Services were passed over, unreadable or beyond {most} MiB: what is behind them is not known"
            ));
        }
        self.list
    }
}
