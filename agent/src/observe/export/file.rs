//! A file that is put aside when it is full.
//!
//! `flows.json` is put aside as `flows-2025-12-01T15-10-02.123.json`, packed with `.gz` behind. The file is the agent's own: a
//! link, a pipe, a device or another user's file is never written to. A line is written whole or not at all.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// How the time stands in a name: sorted by name is sorted by time.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S%.3f";
/// What it looks like.
const SHAPE: &str = "0000-00-00T00-00-00.000";
/// Behind a name while it is being packed.
const UNFINISHED: &str = ".gz.tmp";

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of a file.
    pub(super) size: u64,
    /// Files that were put aside.
    pub(super) backups: usize,
    /// These are packed.
    pub(super) compress: bool,
}

/// The file, open.
#[derive(Debug)]
pub(super) struct Rotated {
    path: PathBuf,
    limits: Limits,
    file: File,
    size: u64,
    /// When one was put aside last.
    last: Timestamp,
    /// A file was put aside, and is neither packed nor counted yet.
    untidy: bool,
}

impl Rotated {
    /// Goes on with the file, or makes it.
    pub(super) fn open(path: PathBuf, limits: Limits) -> io::Result<Self> {
        let file = open(&path)?;
        let size = file.metadata()?.len();
        let mut file = Self { path, limits, file, size, last: Timestamp::UNIX_EPOCH, untidy: false };
        file.end_line()?;
        Ok(file)
    }

    /// Writes whole lines, or nothing of them.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if !self.is_in_place() {
            // Somebody has moved it away: there shall be a new one.
            *self = Self::open(self.path.clone(), self.limits)?;
        }
        // Somebody may have emptied it after he copied it.
        self.size = self.file.metadata()?.len();
        if self.size > 0 && self.size.saturating_add(lines.len() as u64) > self.limits.size {
            self.put_aside()?;
        }
        if let Err(error) = self.file.write_all(lines) {
            // The part of a line that had room. The file is never made longer.
            if self.file.metadata().is_ok_and(|there| there.len() > self.size) {
                let _ = self.file.set_len(self.size);
            }
            return Err(error);
        }
        self.size += lines.len() as u64;
        Ok(())
    }

    /// Packs and counts what was put aside.
    pub(super) fn tidy(&mut self) -> Option<io::Error> {
        if !std::mem::take(&mut self.untidy) {
            return None;
        }
        let packed = if self.limits.compress { self.pack() } else { Ok(()) };
        packed.and(self.prune()).err()
    }

    fn is_in_place(&self) -> bool {
        let same = |there: fs::Metadata| {
            self.file.metadata().is_ok_and(|here| (here.dev(), here.ino()) == (there.dev(), there.ino()))
        };
        fs::symlink_metadata(&self.path).is_ok_and(same)
    }

    /// An agent that was killed may have left a part of a line.
    fn end_line(&mut self) -> io::Result<()> {
        if self.size == 0 || last_byte(&self.path, self.size)? == b'\n' {
            return Ok(());
        }
        self.file.write_all(b"\n")?;
        self.size += 1;
        Ok(())
    }

    fn put_aside(&mut self) -> io::Result<()> {
        const NEXT: SignedDuration = SignedDuration::from_millis(1);
        // The order of names is that of files, whatever the clock does.
        let mut time = Timestamp::now().max(self.last + NEXT);
        let mut aside = self.aside(time)?;
        while fs::symlink_metadata(&aside).is_ok() {
            time += NEXT;
            aside = self.aside(time)?;
        }
        fs::rename(&self.path, aside)?;
        (self.last, self.untidy) = (time, true);
        self.file = open(&self.path)?;
        self.size = self.file.metadata()?.len();
        Ok(())
    }

    /// The name under which the file is put aside.
    fn aside(&self, time: Timestamp) -> io::Result<PathBuf> {
        let stamp = strtime::format(STAMP, &time.to_zoned(TimeZone::UTC)).map_err(io::Error::other)?;
        let (stem, end) = self.names();
        Ok(self.path.with_file_name(format!("{stem}-{stamp}{end}")))
    }

    /// What stands before and behind the time.
    fn names(&self) -> (String, String) {
        let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let end = self.path.extension().map(|end| format!(".{}", end.to_string_lossy()));
        (text(self.path.file_stem()), end.unwrap_or_default())
    }

    /// Files that were put aside, the oldest first, and those that were not packed to their end.
    fn set_aside(&self) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        let (stem, end) = self.names();
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(dir.unwrap_or(Path::new(".")))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(&stem)?.strip_prefix('-'))
            else {
                continue;
            };
            let Some((stamp, tail)) = rest.split_at_checked(SHAPE.len()) else { continue };
            let Some(tail) = tail.strip_prefix(&end).filter(|_| is_stamp(stamp)) else { continue };
            match tail {
                _ if !entry.file_type()?.is_file() => {}
                "" | ".gz" => whole.push(entry.path()),
                UNFINISHED => parts.push(entry.path()),
                _ => {}
            }
        }
        whole.sort();
        Ok((whole, parts))
    }

    fn prune(&self) -> io::Result<()> {
        let (whole, parts) = self.set_aside()?;
        let over = whole.len().saturating_sub(self.limits.backups);
        whole.iter().take(over).chain(&parts).try_for_each(fs::remove_file)
    }

    fn pack(&self) -> io::Result<()> {
        let (whole, _) = self.set_aside()?;
        // What is over goes anyway.
        let over = whole.len().saturating_sub(self.limits.backups);
        let plain = whole.iter().skip(over).filter(|path| path.extension().is_none_or(|end| end != "gz"));
        plain.into_iter().try_for_each(|path| pack(path))
    }
}

fn is_stamp(text: &str) -> bool {
    let same = |(c, shape): (char, char)| if shape == '0' { c.is_ascii_digit() } else { c == shape };
    text.len() == SHAPE.len() && text.chars().zip(SHAPE.chars()).all(same)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A pipe without a reader would hold up the thread.
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    check(&file)?;
    Ok(file)
}

/// Refuses what is not a file of this user alone.
fn check(file: &File) -> io::Result<()> {
    let there = file.metadata()?;
    let why = match &there {
        there if !there.is_file() => "it is no regular file",
        there if there.uid() != nix::unistd::geteuid().as_raw() => "it is another user's file",
        there if there.nlink() > 1 => "it has another name",
        _ => return Ok(()),
    };
    Err(io::Error::other(why))
}

fn last_byte(path: &Path, size: u64) -> io::Result<u8> {
    use std::os::unix::fs::FileExt;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, size.saturating_sub(1))?;
    Ok(byte[0])
}

/// Puts `PATH.gz` in the file's place.
fn pack(path: &Path) -> io::Result<()> {
    let name = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let (part, whole) = (name(UNFINISHED), name(".gz"));
    let packed = || {
        let mut from =
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
        check(&from)?;
        let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        let mut encoder = GzEncoder::new(to, Compression::default());
        io::copy(&mut from, &mut encoder)?;
        encoder.finish()?;
        fs::rename(&part, &whole)
    };
    if let Err(error) = packed() {
        let _ = fs::remove_file(&part);
        return Err(error);
    }
    fs::remove_file(path)
}

#[cfg(test)]
mod tests;
