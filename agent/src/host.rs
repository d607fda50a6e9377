//! The addresses of this host, and its clock.

use std::collections::BTreeMap;
use std::net::IpAddr;

use egret_common::ids::identity;
use nix::time::{ClockId, clock_gettime};

/// Addresses beyond this number are not told to the kernel (the map has room for 1,024).
const MOST: usize = 1000;

/// Every address of an interface in this network namespace, with the identity of the host.
#[must_use]
pub fn addresses() -> BTreeMap<IpAddr, u32> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return BTreeMap::new() };
    let address = |i: nix::ifaddrs::InterfaceAddress| -> Option<IpAddr> {
        let address = i.address?;
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
    };
    interfaces.filter_map(address).take(MOST).map(|ip| (ip.to_canonical(), identity::HOST)).collect()
}

/// Boot time in nanoseconds: the clock of grants and records.
#[must_use]
pub fn boot_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}
