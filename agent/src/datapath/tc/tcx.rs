//! TCX: one pinned link per hook. A link stands in the chain where it was put; the program in it is replaced.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::{Member, Place, TcError, TcHook, describe, guard, kernel};
use crate::datapath::bpf_sys;

/// First part of the file names.
const PREFIX: &str = "link_tcx_";
/// Last part while a link is being moved.
const NEW: &str = "_new";

fn attach_type(hook: TcHook) -> u32 {
    match hook {
        TcHook::FromPod => 46, // BPF_TCX_INGRESS
        TcHook::ToPod => 47,   // BPF_TCX_EGRESS
    }
}

/// The link's file: an interface is known by its number, since the link is bound to that.
pub(super) fn pin_path(place: &Place<'_>) -> PathBuf {
    place.pins.join(format!("{PREFIX}{}_{}", place.ifindex, place.hook.name()))
}

fn new_path(place: &Place<'_>) -> PathBuf {
    place.pins.join(format!("{PREFIX}{}_{}{NEW}", place.ifindex, place.hook.name()))
}

pub(super) fn query(ifindex: u32, hook: TcHook) -> io::Result<Vec<u32>> {
    bpf_sys::query_tcx(ifindex, attach_type(hook)).map(|query| query.programs)
}

pub(super) fn chain(ifindex: u32, hook: TcHook) -> Result<Vec<Member>, TcError> {
    let ids = match query(ifindex, hook) {
        // No program was ever there.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Vec::new(),
        other => other.map_err(kernel("asking for the programs of an interface"))?,
    };
    let member = |id: u32| Member { id, name: describe(id).name, filter: None };
    Ok(ids.into_iter().map(member).collect())
}

/// Replaces the program in the link that is pinned, or makes and pins one.
pub(super) fn put(place: &Place<'_>, program: BorrowedFd<'_>) -> Result<(), TcError> {
    let path = pin_path(place);
    if update(&path, program)? {
        return Ok(());
    }
    // An agent that was killed while it moved a link has left it under the other name.
    let new = new_path(place);
    if update(&new, program)? {
        return fs::rename(&new, &path).map_err(|error| TcError::Pin { path, error });
    }
    let link = create(place, program)?;
    bpf_sys::pin(link.as_fd(), &path).map_err(|error| TcError::Pin { path, error })
}

/// False: there is no such link, or its interface is gone; then the pin is removed.
fn update(path: &Path, program: BorrowedFd<'_>) -> Result<bool, TcError> {
    let link = match bpf_sys::get(path) {
        Ok(link) => link,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(TcError::Pin { path: path.to_owned(), error }),
    };
    match bpf_sys::link_update(link.as_fd(), program) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => unpin(path).map(|()| false),
        Err(error) => Err(TcError::Kernel { what: "replacing a program", error }),
    }
}

fn create(place: &Place<'_>, program: BorrowedFd<'_>) -> Result<OwnedFd, TcError> {
    bpf_sys::link_create_tcx(program, place.ifindex, attach_type(place.hook))
        .map_err(kernel("attaching a program to an interface"))
}

/// A chain takes each program once, so a stand-in makes the place in front, and then becomes ours. It is pinned first:
/// an agent that is killed here leaves an interface that is closed, not one that is open.
pub(super) fn to_front(place: &Place<'_>, program: BorrowedFd<'_>) -> Result<(), TcError> {
    let (path, new) = (pin_path(place), new_path(place));
    unpin(&new)?;
    let link = create(place, guard()?.as_fd())?;
    bpf_sys::pin(link.as_fd(), &new).map_err(|error| TcError::Pin { path: new.clone(), error })?;
    detach(&path)?;
    bpf_sys::link_update(link.as_fd(), program).map_err(kernel("replacing the program that stands in"))?;
    fs::rename(&new, &path).map_err(|error| TcError::Pin { path, error })
}

pub(super) fn take_off(place: &Place<'_>) -> Result<(), TcError> {
    detach(&new_path(place))?;
    detach(&pin_path(place))?;
    unpin(&new_path(place))?;
    unpin(&pin_path(place))
}

/// At once: the kernel lets go of a link that is only unpinned a moment later.
fn detach(path: &Path) -> Result<(), TcError> {
    let Ok(link) = bpf_sys::get(path) else { return Ok(()) };
    match bpf_sys::link_detach(link.as_fd()) {
        Err(error) if error.raw_os_error() != Some(libc::ENOLINK) => {
            Err(TcError::Kernel { what: "detaching a program", error })
        }
        _ => Ok(()),
    }
}

fn unpin(path: &Path) -> Result<(), TcError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(TcError::Pin { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

pub(super) fn sweep(pins: &Path) -> usize {
    let Ok(entries) = fs::read_dir(pins) else { return 0 };
    let links = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
        .map(|entry| entry.path());
    let gone = |path: &PathBuf| {
        let link = bpf_sys::get(path).and_then(|link| bpf_sys::tcx_link(link.as_fd()));
        link.is_ok_and(|link| link.ifindex == 0)
    };
    links.filter(gone).filter(|path| unpin(path).is_ok()).count()
}
