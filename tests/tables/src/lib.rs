//! # Truth tables
//!
//! A table is a small cluster, some steps (policies, labels, pods, DNS answers, time) and after each step who may reach
//! whom. The expectations are written from the APIs' descriptions; every probe is read in three ways that must agree
//! with them and with one another.
//!
//! ```text
//!  yaml/*.yaml ──table──┐                      ┌──text──> egret_core::eval over the policies' text (the oracle)
//!  cyclonus (generated) ┴> Table ──run──> Scene┤
//!                                              └──node──> objects -> Cluster -> State ──Way──> Maps: decide over Desired
//!                                                                                     └──> the loaded programs (egret-tests)
//! ```
//! | module | what |
//! |---|---|
//! | [`table`] | a table as it is written |
//! | [`line`] | lines of expectations, and the probes that they are about |
//! | [`scene`] | the cluster of a table as its steps change it, and its objects as YAML |
//! | [`text`] | what the text of the policies says about a probe |
//! | [`node`] | from objects to what a `State` takes, as the agent does it |
//! | [`maps`] | a [`run::Way`]: what `decide` says over the compiled maps |
//! | [`run`] | runs a table and compares |
//! | [`dns`] | what was asked and answered |
//! | [`cyclonus`] | tables that are generated, each with its own meaning |
//! | [`all`] | every table by family |
//!
//! Nothing here loads a program or needs a privilege. [`text`] uses nothing of what it judges: neither identities nor
//! Services nor lifetimes of the code under test.

pub mod all;
pub mod cyclonus;
pub mod dns;
pub mod line;
pub mod maps;
pub mod node;
pub mod run;
pub mod scene;
pub mod table;
pub mod text;
