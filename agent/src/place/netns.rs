//! From a network namespace to the interface on the host's side.
//!
//! Owns entering a namespace, the list of its interfaces, and which of them is the pod's.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sched::{CloneFlags, setns};

use crate::netlink::{self, Message, Netlink};

/// Length of `struct ifinfomsg`.
const IFINFOMSG: usize = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// `veth`, `netkit`...; empty for a device of its own.
    pub kind: String,
    /// Number of its other end, in that end's network namespace; 0 = none.
    pub peer: u32,
}

/// All interfaces of this thread's network namespace.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let found = Netlink::open()?.dump(libc::RTM_GETLINK, &[0; IFINFOMSG])?;
    Ok(found.iter().filter_map(interface).collect())
}

fn interface(message: &Message) -> Option<Interface> {
    let attributes = message.body.get(IFINFOMSG..)?;
    let info = netlink::attribute(attributes, IFLA_LINKINFO).unwrap_or_default();
    Some(Interface {
        ifindex: netlink::u32_at(&message.body, 4)?,
        name: netlink::attribute(attributes, IFLA_IFNAME).map(netlink::text)?,
        kind: netlink::attribute(info, IFLA_INFO_KIND).map(netlink::text).unwrap_or_default(),
        peer: netlink::attribute(attributes, IFLA_LINK).and_then(|v| netlink::u32_at(v, 0)).unwrap_or(0),
    })
}

/// The interfaces of another network namespace.
///
/// # Errors
/// What opening or entering it says.
pub fn interfaces_of(netns: &Path) -> io::Result<Vec<Interface>> {
    let file = File::open(netns)?;
    let inside = || {
        setns(&file, CloneFlags::CLONE_NEWNET)?;
        interfaces()
    };
    // A thread of its own: what enters a namespace stays there.
    std::thread::scope(|scope| scope.spawn(inside).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
}

/// Whether two files are the same network namespace.
pub fn same(a: &Path, b: &Path) -> io::Result<bool> {
    let id = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino()));
    Ok(id(a)? == id(b)?)
}

/// The host's side of the pair whose inner side is the pod's: `eth0`, or the only interface that has another side. Both
/// ends must name each other: a number alone may belong to another namespace.
#[must_use]
pub fn pair<'a>(inside: &[Interface], host: &'a [Interface]) -> Option<&'a Interface> {
    let other = |inner: &Interface| {
        let outer = host.iter().find(|h| h.ifindex == inner.peer)?;
        (outer.peer == inner.ifindex && outer.kind == inner.kind && !outer.kind.is_empty()).then_some(outer)
    };
    if let Some(outer) = inside.iter().filter(|i| i.name == "eth0").find_map(other) {
        return Some(outer);
    }
    let mut all = inside.iter().filter_map(other);
    all.next().filter(|_| all.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn veth(ifindex: u32, name: &str, peer: u32) -> Interface {
        Interface { ifindex, name: name.into(), kind: "veth".into(), peer }
    }

    #[test]
    fn both_ends_must_name_each_other() {
        let host = [veth(7, "va", 2), veth(8, "vb", 3), veth(9, "vc", 2)];
        let check = |inside: &[Interface], want: Option<&str>| {
            assert_eq!(pair(inside, &host).map(|i| i.name.as_str()), want, "{inside:?}");
        };
        check(&[veth(2, "eth0", 7)], Some("va"));
        check(&[veth(3, "net1", 8)], Some("vb"));
        check(&[veth(2, "eth0", 7), veth(3, "net1", 8)], Some("va"));
        check(&[veth(2, "net0", 7), veth(3, "net1", 8)], None);
        check(&[veth(4, "eth0", 7)], None);
        check(&[veth(2, "eth0", 77)], None);
        check(&[Interface { kind: "macvlan".into(), ..veth(2, "eth0", 7) }], None);
        check(&[], None);
    }

    #[test]
    fn loopback_is_everywhere() {
        let all = interfaces().expect("asked");
        assert!(all.iter().any(|i| i.name == "lo" && i.ifindex == 1 && i.peer == 0), "{all:?}");
        let own = Path::new("/proc/self/ns/net");
        assert!(same(own, own).expect("asked"));
    }
}
