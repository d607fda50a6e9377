//! clsact: a filter per hook at the first priority, under a handle that is ours. It outlives this process by itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::{Member, OURS, Place, TcError, TcHook, describe, guard, kernel};
use crate::netlink::{self, Message, Netlink};

/// The first priority there is.
pub const PRIORITY: u16 = 1;
/// Our handle.
pub const HANDLE: u32 = 0xe9;
/// The handle of the program that stands in while ours is moved.
pub const GUARD_HANDLE: u32 = 0xea;

/// `TC_H_CLSACT`.
const CLSACT: u32 = 0xffff_fff1;
/// `ETH_P_ALL`, in network order.
const ALL_PROTOCOLS: u32 = (libc::ETH_P_ALL as u16).to_be() as u32;
/// Length of `struct tcmsg`.
const TCMSG: usize = 20;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_ID: u16 = 11;
/// `TCA_BPF_FLAG_ACT_DIRECT`: the return value is the verdict.
const DIRECT: u32 = 1;

fn parent(hook: TcHook) -> u32 {
    match hook {
        TcHook::FromPod => 0xffff_fff2, // TC_H_MIN_INGRESS
        TcHook::ToPod => 0xffff_fff3,   // TC_H_MIN_EGRESS
    }
}

/// Makes the filter, or puts the program into the one that is there.
pub(super) fn put(place: &Place<'_>, program: BorrowedFd<'_>) -> Result<(), TcError> {
    let mut netlink = open()?;
    add_qdisc(&mut netlink, place.ifindex)?;
    let before = list(&mut netlink, place.ifindex, place.hook)?;
    if let Some(foreign) = before.iter().find(|m| has(m, HANDLE) && !m.name.starts_with(OURS)) {
        return Err(TcError::Foreign(foreign.clone()));
    }
    add(&mut netlink, place, program, HANDLE, &before)?;
    remove(&mut netlink, place, GUARD_HANDLE, &before)
}

/// The newest filter of a priority runs first: ours is made anew. Meanwhile another one drops everything.
pub(super) fn to_front(place: &Place<'_>, program: BorrowedFd<'_>) -> Result<(), TcError> {
    let mut netlink = open()?;
    let before = list(&mut netlink, place.ifindex, place.hook)?;
    remove(&mut netlink, place, GUARD_HANDLE, &before)?;
    add(&mut netlink, place, guard()?.as_fd(), GUARD_HANDLE, &before)?;
    remove(&mut netlink, place, HANDLE, &before)?;
    add(&mut netlink, place, program, HANDLE, &before)?;
    let after = list(&mut netlink, place.ifindex, place.hook)?;
    remove(&mut netlink, place, GUARD_HANDLE, &after)
}

/// Removes our filter; the qdisc may be another tool's as well, and stays.
pub(super) fn take_off(place: &Place<'_>) -> Result<(), TcError> {
    let mut netlink = open()?;
    let before = list(&mut netlink, place.ifindex, place.hook)?;
    [HANDLE, GUARD_HANDLE].into_iter().try_for_each(|handle| remove(&mut netlink, place, handle, &before))
}

pub(super) fn chain(ifindex: u32, hook: TcHook) -> Result<Vec<Member>, TcError> {
    list(&mut open()?, ifindex, hook)
}

fn open() -> Result<Netlink, TcError> {
    Netlink::open().map_err(kernel("opening a netlink socket"))
}

fn add_qdisc(netlink: &mut Netlink, ifindex: u32) -> Result<(), TcError> {
    let mut body = message(ifindex, 0xffff_0000, CLSACT, 0);
    netlink::put(&mut body, TCA_KIND, b"clsact\0");
    match netlink.act(libc::RTM_NEWQDISC, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Err(TcError::NoModule("sch_ingress")),
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
            Err(TcError::Kernel { what: "making the clsact qdisc", error })
        }
        _ => Ok(()),
    }
}

fn add(
    netlink: &mut Netlink,
    place: &Place<'_>,
    program: BorrowedFd<'_>,
    handle: u32,
    before: &[Member],
) -> Result<(), TcError> {
    let mut body = filter(place, handle);
    let mut options = Vec::new();
    netlink::put(&mut options, TCA_BPF_FD, &(program.as_raw_fd() as u32).to_ne_bytes());
    let name = if handle == HANDLE { place.hook.program() } else { "egret_guard" };
    netlink::put(&mut options, TCA_BPF_NAME, &[name.as_bytes(), b"\0"].concat());
    netlink::put(&mut options, TCA_BPF_FLAGS, &DIRECT.to_ne_bytes());
    netlink::put(&mut body, TCA_OPTIONS, &options);
    netlink.act(libc::RTM_NEWTFILTER, libc::NLM_F_CREATE, &body).map_err(|error| {
        let first = before.iter().find(|m| m.filter.is_some_and(|(priority, _)| priority == PRIORITY));
        match (error.raw_os_error(), first) {
            (Some(libc::ENOENT), _) => TcError::NoModule("cls_bpf"),
            // A priority is for one kind of filter and one protocol.
            (Some(libc::EINVAL), Some(first)) => TcError::Occupied(first.clone()),
            _ => TcError::Kernel { what: "adding a filter", error },
        }
    })
}

/// Only if it is there and ours.
fn remove(netlink: &mut Netlink, place: &Place<'_>, handle: u32, before: &[Member]) -> Result<(), TcError> {
    if !before.iter().any(|m| has(m, handle) && m.name.starts_with(OURS)) {
        return Ok(());
    }
    match netlink.act(libc::RTM_DELTFILTER, 0, &filter(place, handle)) {
        Err(error) if !is_gone(&error) => Err(TcError::Kernel { what: "removing a filter", error }),
        _ => Ok(()),
    }
}

fn list(netlink: &mut Netlink, ifindex: u32, hook: TcHook) -> Result<Vec<Member>, TcError> {
    let found = match netlink.dump(libc::RTM_GETTFILTER, &message(ifindex, 0, parent(hook), 0)) {
        Err(error) if is_gone(&error) => Vec::new(),
        other => other.map_err(kernel("listing the filters of an interface"))?,
    };
    Ok(found.iter().filter_map(member).collect())
}

/// The interface, the qdisc or the filter is not there.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV))
}

/// `None`: the head of a priority, which is no filter itself.
fn member(message: &Message) -> Option<Member> {
    let handle = netlink::u32_at(&message.body, 8)?;
    let priority = (netlink::u32_at(&message.body, 16)? >> 16) as u16;
    let attributes = message.body.get(TCMSG..)?;
    let kind = netlink::attribute(attributes, TCA_KIND).map(netlink::text).unwrap_or_default();
    let options = netlink::attribute(attributes, TCA_OPTIONS).filter(|_| handle != 0)?;
    let id = netlink::attribute(options, TCA_BPF_ID).and_then(|v| netlink::u32_at(v, 0)).unwrap_or(0);
    // The program's own name: that of a filter may be anything.
    let name = if id == 0 { kind } else { describe(id).name };
    Some(Member { id, name, filter: Some((priority, handle)) })
}

fn has(member: &Member, handle: u32) -> bool {
    member.filter == Some((PRIORITY, handle))
}

fn filter(place: &Place<'_>, handle: u32) -> Vec<u8> {
    let info = u32::from(PRIORITY) << 16 | ALL_PROTOCOLS;
    let mut body = message(place.ifindex, handle, parent(place.hook), info);
    netlink::put(&mut body, TCA_KIND, b"bpf\0");
    body
}

/// `struct tcmsg`: family, pad, interface, handle, parent, info.
fn message(ifindex: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, ifindex, handle, parent, info].iter().flat_map(|word| word.to_ne_bytes()).collect()
}
