//! Egret's shell: everything that touches the kernel, the file system or the network. Decisions live in
//! `egret-core` (pure) and `egret-common` (shared with the programs).

pub mod cli;
pub mod datapath;
pub mod exit;
pub mod sandbox;
