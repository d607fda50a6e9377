//! The one layer: a tar of a few files and of the folders above them, all of root and of the year 1970.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result};
use tar::{Archive, Builder, EntryType, Header};

/// A file of the image.
pub(super) struct File<'a> {
    /// Its path, without a slash in front.
    pub(super) path: &'a str,
    /// Its permissions.
    pub(super) mode: u32,
    /// What is in it.
    pub(super) bytes: &'a [u8],
}

/// Folders that are mounted over or written to: there, no runtime has to make them in a root that is read only.
const MOUNT_POINTS: [&str; 7] = ["dev", "etc", "proc", "run", "run/egret", "sys", "tmp"];

/// The files as a tar.
pub(super) fn tar(files: &[File<'_>]) -> Result<Vec<u8>> {
    let mut folders: BTreeSet<&str> = MOUNT_POINTS.into();
    for file in files {
        folders.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
    }
    let mut builder = Builder::new(Vec::new());
    for folder in folders {
        append(&mut builder, EntryType::Directory, &format!("{folder}/"), 0o755, &[])?;
    }
    for file in files {
        append(&mut builder, EntryType::Regular, file.path, file.mode, file.bytes)?;
    }
    builder.into_inner().context("ending a tar")
}

/// Unpacks a layer into a folder that is not there yet.
pub(super) fn unpack(tar: &[u8], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    Archive::new(tar).unpack(folder).with_context(|| format!("unpacking into {}", folder.display()))
}

/// Adds one entry, with nothing in it but what is given here.
pub(super) fn append(
    builder: &mut Builder<Vec<u8>>,
    kind: EntryType,
    path: &str,
    mode: u32,
    bytes: &[u8],
) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes.len() as u64);
    builder.append_data(&mut header, path, bytes).with_context(|| format!("adding {path} to a tar"))
}
