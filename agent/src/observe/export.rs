//! Flows as lines of JSON in a file that is rotated.
//!
//! ```text
//!  Store ──Reading──> Exporter (this thread) ──bounded: lines──> a thread that writes ──> file, FILE-TIME.ext[.gz] ..
//!                                                                        └──Condition──> egret status
//! ```
//! Owns: what is exported, and that a slow or full disk holds up nobody: the writer's queue is bounded, and while it is full the
//! ring goes on; what it forgets meanwhile is told in the file as lost. Must not know: who else reads the ring.

mod condition;
mod file;
mod write;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc as done;
use std::thread;
use std::time::Duration;

use egret_core::flow::{Entry, FilterError, Filters, Query};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::mask::Mask;
use super::proto::flow::FlowFilter;
use super::store::{Reading, Store};
use super::{json, message, request};
pub(super) use condition::Condition;
use write::Writer;

/// Bytes of lines that are written at once.
const BATCH: usize = 64 * 1024;
/// Batches that wait for the disk.
const QUEUE: usize = 16;
/// How long the disk may take for what is left at the end, to take it and to have it.
const END: Duration = Duration::from_secs(1);

/// Where to, and what.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// Where to.
    pub to: Destination,
    /// Bytes of a file at most.
    pub max_size: u64,
    /// Older files that are kept.
    pub backups: usize,
    /// These are packed.
    pub compress: bool,
    /// One of these passes; none: everything does.
    pub allow: Vec<FlowFilter>,
    /// And none of these.
    pub deny: Vec<FlowFilter>,
    /// The fields; none: all of them.
    pub fields: Vec<String>,
}

/// Where flows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// The agent's standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl ExportOptions {
    /// What is wrong with filters and fields.
    ///
    /// # Errors
    /// The first of it.
    pub fn check(&self) -> Result<(), String> {
        self.filters().map_err(|error| error.to_string())?;
        self.mask().map(|_| ())
    }

    fn filters(&self) -> Result<Filters, FilterError> {
        request::lists(&self.allow, &self.deny)
    }

    fn mask(&self) -> Result<Option<Mask>, String> {
        (!self.fields.is_empty()).then(|| Mask::new(&self.fields)).transpose()
    }
}

/// The writing thread; it ends when nobody can give it lines any more.
#[derive(Debug)]
pub(super) struct Export {
    options: ExportOptions,
    lines: Option<mpsc::Sender<Batch>>,
    ended: done::Receiver<()>,
    pub(super) condition: Arc<Condition>,
}

/// Some whole lines.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) text: String,
    pub(super) lines: u64,
}

impl Export {
    /// Starts the thread.
    pub(super) fn start(options: ExportOptions) -> io::Result<Self> {
        let (lines, queue) = mpsc::channel(QUEUE);
        let (end, ended) = done::channel();
        let condition = Arc::new(Condition::default());
        let mut writer = Writer::new(&options, condition.clone());
        thread::Builder::new().name("hubble-export".into()).spawn(move || {
            writer.run(queue);
            // Nobody may wait for it any more.
            let _ = end.send(());
        })?;
        Ok(Self { options, lines: Some(lines), ended, condition })
    }

    /// Somebody who reads the ring from its beginning on.
    pub(super) fn exporter(&mut self, store: &Arc<Store>, node: &str) -> Option<Exporter> {
        let lines = self.lines.take()?;
        // They were checked when the options were read.
        let (filters, mask) = (self.options.filters().ok()?, self.options.mask().ok()?);
        let reading = store.read(Query { follow: true, ..Query::default() }, filters).ok()?;
        let condition = self.condition.clone();
        Some(Exporter { reading, lines, node: node.to_owned(), mask, condition, drained: true })
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        drop(self.lines.take());
        // A disk that hangs must not keep the agent.
        let _ = self.ended.recv_timeout(END);
        self.condition.give_up();
    }
}

/// Turns entries of the ring into lines.
#[derive(Debug)]
pub(super) struct Exporter {
    reading: Reading,
    lines: mpsc::Sender<Batch>,
    node: String,
    mask: Option<Mask>,
    condition: Arc<Condition>,
    /// The ring has nothing more for it.
    drained: bool,
}

impl Exporter {
    /// Goes on until the thread ends. Cancelling loses nothing.
    pub(super) async fn run(&mut self) {
        while !self.drained || self.reading.wait().await {
            // Else what wakes now would be forgotten when the wait for room is cancelled.
            self.drained = false;
            let lines = self.lines.clone();
            let Ok(room) = lines.reserve().await else { return };
            room.send(self.batch());
        }
    }

    /// What is left, as far as the disk takes it in time. The rest is counted as lost.
    pub(super) async fn finish(&mut self) {
        self.drained = false;
        let lines = self.lines.clone();
        let end = Instant::now() + END;
        while !self.drained
            && let Ok(Ok(room)) = timeout_at(end, lines.reserve()).await
        {
            room.send(self.batch());
        }
        let left = std::iter::from_fn(|| self.reading.ready()).map(|entry| match entry {
            Entry::Flow(_) => 1,
            Entry::Lost(lost) => lost.count,
        });
        self.condition.owe(left.fold(0, u64::saturating_add));
    }

    fn batch(&mut self) -> Batch {
        let batch = self.lines_of_some();
        self.condition.owe(batch.lines);
        batch
    }

    fn lines_of_some(&mut self) -> Batch {
        let mut batch = Batch::default();
        while batch.text.len() < BATCH {
            let Some(entry) = self.reading.ready() else {
                self.drained = true;
                break;
            };
            batch.text.push_str(&line(&entry, &self.node, self.mask.as_ref()));
            batch.text.push('\n');
            batch.lines += 1;
        }
        batch
    }
}

fn line(entry: &Entry, node: &str, mask: Option<&Mask>) -> String {
    json::response(&message::response(entry, node, mask))
}

#[cfg(test)]
mod tests;
