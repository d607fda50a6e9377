//! A file with the flows that counted, and with what is behind Services: what a policy was made from, to be replayed.
//!
//! Each line is JSON. Those of flows are `hubble`'s; the one about Services has a field of its own, which other readers
//! pass over.

use std::fs::{File, OpenOptions};
use std::io::{LineWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::api;
use crate::exit::{self, Refusal};
use crate::observe::json;
use crate::observe::proto::observer::GetFlowsResponse;

/// The line about Services.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    egret_services: Vec<api::Service>,
}

/// Services to a line: a reader takes a mebibyte.
const CHUNK: usize = 500;

/// A file that is being written. Only its owner may read it: it says who talks to whom.
#[derive(Debug)]
pub(super) struct Record {
    /// Line by line, so that it is good for as much as there is whatever happens.
    file: LineWriter<File>,
    path: String,
}

impl Record {
    pub(super) fn create(path: &Path) -> Result<Self, Refusal> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
        let path = path.display().to_string();
        let file = file.map_err(|error| failed(&path, &error))?;
        Ok(Self { file: LineWriter::new(file), path })
    }

    pub(super) fn services(&mut self, services: &[api::Service]) -> Result<(), Refusal> {
        services.chunks(CHUNK).try_for_each(|chunk| {
            let line = Line { egret_services: chunk.to_vec() };
            // These types have no value that JSON cannot say.
            self.line(&serde_json::to_string(&line).unwrap_or_default())
        })
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
    Refusal::new(exit::CANNOT_CREATE, cause, "give a file in a directory that can be written")
}

/// The Services of a file's other lines.
pub(super) fn services(others: &[String]) -> Vec<api::Service> {
    let read = others.iter().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    read.flat_map(|line| line.egret_services).collect()
}
