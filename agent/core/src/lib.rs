//! # Egret's core
//!
//! Names, policies, the compiler, DNS knowledge and the oracle: everything that Egret knows and decides outside the
//! kernel, as values and functions.
//!
//! ## Bird's eye
//! ```text
//!  --allow, YAML ──allow, policy──> Policy ──compile──> Desired ──diff──> [MapOp] ──> the shell writes the maps
//!                                      │                   │
//!                                      └──eval (oracle)    └──View──> egret_common::decide   (tests: both agree)
//!  DNS records ──dns::tcp, dns::parse──> Answer ──State::see_answer──> Lesson: MapOps and grants
//! ```
//! A policy is text until [`policy`] or [`allow`] has read it; from then on it is a [`policy::Policy`] that cannot say
//! anything Egret does not enforce. [`compile`] turns the policies of all workloads into a [`desired::Desired`]: typed
//! map entries, nothing else. [`desired::diff`] gives the steps from one to the next. [`state::State`] holds it all
//! together and turns events into steps.
//!
//! ## Code map
//! | module | what |
//! |---|---|
//! | [`names`] | [`names::Name`], [`names::Pattern`]: canonical names, the wildcard grammars, the reference matcher |
//! | [`labels`], [`identity`] | labels and selectors; which labels make an identity, and its number |
//! | [`cluster`] | pods, services, nodes and policies as objects, from files (`source`) or lists and watches (`feed`); who owns which address |
//! | [`ports`], [`net`] | protocols, port ranges, named ports; CIDRs and their canonical form |
//! | [`allow`] | `NAME[:PORT[/PROTO]]` |
//! | `numbering` | numbers for identities, sets, classes and rules, and when one may be given again |
//! | [`tuning`] | annotations: audit, reject, lifetimes |
//! | `problem` | what is wrong with a YAML value, for all readers |
//! | [`policy`] | the model; `kubernetes`, `cluster_network` and `cilium` read, `write` writes, diagnostics carry the field's path |
//! | [`compile`] | rule sets, name classes, CIDR classes, and the [`compile::Book`] of their numbers |
//! | [`desired`] | content of the maps, diff, and [`desired::View`], through which `decide` reads it |
//! | [`eval`] | the oracle: what the text of the policies says, read slowly |
//! | [`dns`] | full parser, TCP reassembly, cache per workload, journal of look-ups, lifetimes |
//! | [`explain`] | why a connection passes or not, link by link, with cause and remedy |
//! | [`flow`] | flows in the words of Hubble's API: the ring, selection, filters |
//! | [`propose`] | policies from flows, and what policies would do with flows |
//! | [`state`] | the one owner of all of it |
//!
//! ## Invariants, as absences
//! - Nothing here reads a clock, a file, a socket or an environment variable; time is an argument, in the ticks of
//!   `egret_common::grant`.
//! - Nothing here locks, waits, spawns or logs. A function either returns what follows or an error.
//! - No type of YAML, of the DNS library or of the kernel's interface is part of a public signature, except the map
//!   entries of `egret-common`.
//! - A rule set is never changed into another one: other rules, another number. A class number does not change its meaning
//!   as long as a map holds it, and is given again only after all others.
//! - [`eval`] uses nothing of [`compile`] but the switch that says which question is asked.
//! - No input makes anything here panic, and nothing grows without a bound but the policies themselves.

pub mod allow;
pub mod cluster;
pub mod compile;
pub mod desired;
pub mod dns;
pub mod eval;
pub mod explain;
pub mod flow;
pub mod identity;
pub mod labels;
pub mod names;
pub mod net;
mod numbering;
pub mod policy;
pub mod ports;
mod problem;
pub mod propose;
pub mod state;
pub mod tuning;
