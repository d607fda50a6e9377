//! `cargo xtask bench`: what a packet, a DNS answer and a name cost, beside the floor and beside other tools, in
//! one run. It prints figures; it judges nothing but the budget of the design, and no test depends on it.
//!
//! ```text
//! packets (egret_egress, egret_ingress) ─┐
//! floor   (programs of ebpf/src/bin)  ───┼─ arena: maps, pins, cgroup ─> table
//! dns, names ────────────────────────────┘
//! sockets (TCP_RR, TCP_CRR, UDP, DNS latency): no filter | nftables | egret run, or egret at a pod's veth
//! changes: labels and policies from a text to the kernel's maps, through the agent's own code
//! churn: an API server with a cluster that changes, and an agent of its own process
//! observe: new flows of a pod while an agent reads their events, while it is stopped, and without events
//! ```

mod changes;
mod churn;
mod dns;
mod flood;
mod floor;
mod names;
mod observe;
mod packets;
mod process;
mod setup;
mod sockets;
mod stats;
mod table;

use std::process::ExitCode;

const USAGE: &str = "usage: bench [packets|packets-tc|flood|flood-tc|dns|names|changes|churn|observe|sockets|sockets-tc]...   (none: all)";
/// A section: its name and what runs it.
type Section = (&'static str, fn() -> table::Table);

const SECTIONS: [Section; 11] = [
    ("packets", packets::run),
    ("packets-tc", packets::run_tc),
    ("flood", flood::run),
    ("flood-tc", flood::run_tc),
    ("dns", dns::run),
    ("names", names::run),
    ("changes", changes::run),
    ("churn", churn::run),
    ("observe", observe::run),
    ("sockets", sockets::run),
    ("sockets-tc", sockets::run_tc),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "worker") {
        return sockets::worker(&args[1..]);
    }
    if let Some(bad) = args.iter().find(|arg| !SECTIONS.iter().any(|(name, _)| name == *arg)) {
        eprintln!("bench: {bad}: no such section\n{USAGE}");
        return ExitCode::from(64);
    }
    if let Some(reason) = egret_tests::netns::unavailable() {
        eprintln!("bench: {reason}");
        return ExitCode::from(77);
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("kernel {}, medians; ns are gross, as BPF_PROG_TEST_RUN tells them", release.trim());
    for (name, run) in SECTIONS {
        if args.is_empty() || args.iter().any(|arg| arg == name) {
            print!("\n{}", run());
        }
    }
    ExitCode::SUCCESS
}
