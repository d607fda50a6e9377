//! The test harness: worlds of network namespaces, a resolver that sends any bytes, servers on any
//! address, a probe that makes every kind of socket, packets by hand, and a search for what was left
//! behind.
//!
//! ```text
//!            ┌ d  resolver 10.7.0.53, 2001:db8:7::53      netns    World, Ns, Place (what a process sees)
//!   c ── r ──┤                                            dnsd     Dnsd, Zone, raw messages
//!  client    └ w  192.0.2.0/24 198.51.100.0/24            servers  listeners, echo, capture
//!                 203.0.113.0/24 2001:db8:a::/48          probe    sockets made inside `c`, driven by the test
//! ```
//!
//! [`lab`] puts all of it together for the scenario tests, [`cluster`] does so for pods; nothing of it knows Egret's maps or
//! its compiler: [`egret`] and [`agent`] only start the binary and read what it says. [`apiserver`] stands in for the
//! Kubernetes API, whoever asks, and [`scrape`] for Prometheus; [`anyapi`] holds the tests that run against it and against
//! any real one. The tests against loaded programs
//! stand apart: [`arena`] loads them, [`packet`] and [`dnsd::raw`] make what they are given, [`model`] says what must come
//! of it, and [`tables`] puts them behind the truth tables of `egret-tables`.
//! [`runbook`] compares what a command prints with what a page of `docs/` shows.

pub mod agent;
pub mod anyapi;
pub mod apiserver;
pub mod arena;
pub mod cluster;
pub mod demo;
pub mod dnsd;
pub mod egret;
pub mod exec;
pub mod foreign;
pub mod held;
pub mod hubble;
pub mod lab;
pub mod lock;
pub mod model;
pub mod netns;
pub mod packet;
pub mod pki;
pub mod policy;
pub mod probe;
pub mod report;
pub mod residue;
pub mod runbook;
pub mod scrape;
pub mod servers;
pub mod tables;
pub mod traffic;
pub mod wait;
