//! The thread that writes. Only it waits for the disk.

use std::io::{self, Write};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::condition::Condition;
use super::file::{Limits, Rotated};
use super::{Batch, Destination, ExportOptions};

/// Takes batches.
#[derive(Debug)]
pub(super) struct Writer {
    to: Destination,
    limits: Limits,
    file: Option<Rotated>,
    condition: Arc<Condition>,
}

impl Writer {
    pub(super) fn new(options: &ExportOptions, condition: Arc<Condition>) -> Self {
        let limits = Limits { size: options.max_size, backups: options.backups, compress: options.compress };
        Self { to: options.to.clone(), limits, file: None, condition }
    }

    /// Until nothing more can come. A file that cannot be had is tried again with each batch: an agent must start without it.
    pub(super) fn run(&mut self, mut queue: mpsc::Receiver<Batch>) {
        if let Err(error) = self.open() {
            self.tell(&error);
        }
        while let Some(batch) = queue.blocking_recv() {
            if batch.lines > 0 {
                self.take(&batch);
            }
        }
    }

    fn take(&mut self, batch: &Batch) {
        match self.write(batch.text.as_bytes()) {
            Ok(()) => {
                self.condition.settle(batch.lines);
                self.condition.set(None);
            }
            Err(error) => {
                self.condition.lose(batch.lines);
                self.tell(&error);
            }
        }
        if let Some(error) = self.file.as_mut().and_then(Rotated::tidy) {
            self.tell(&error);
        }
    }

    fn tell(&self, error: &io::Error) {
        let place = match &self.to {
            Destination::Stdout => "standard output".to_owned(),
            Destination::File(path) => path.display().to_string(),
        };
        self.condition.set(Some(format!("flows are not exported as asked: {place}: {error}")));
    }

    fn open(&mut self) -> io::Result<()> {
        if let (Destination::File(path), None) = (&self.to, &self.file) {
            self.file = Some(Rotated::open(path.clone(), self.limits)?);
        }
        Ok(())
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.open()?;
        let Some(file) = &mut self.file else {
            let mut out = io::stdout().lock();
            return out.write_all(lines).and_then(|()| out.flush());
        };
        let written = file.write(lines);
        if written.is_err() {
            // Perhaps another one can be had.
            self.file = None;
        }
        written
    }
}
