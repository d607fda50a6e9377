//! Flows from whoever serves them: a client of Hubble's API.
//!
//! ```text
//!  --server, --tls-* ──Target──> Client ──GetFlowsRequest──> an agent, or anybody else who serves the API
//!                                  └──GetFlowsResponse──> whoever asked ──read::flow──> egret_core::flow::Flow
//! ```
//! Owns: where a server is, how it is reached and proves who it is, and what messages mean. Must not know: the server's side
//! ([`crate::observe`], but for the messages themselves), nor what is done with flows.

mod address;
mod client;
pub mod read;
mod tls;

pub use address::Server;
pub use client::{Client, Flows};
pub use tls::{Tls, TlsFiles};

/// Where `egret agent` serves flows.
pub const SERVER: &str = "unix:///run/egret/hubble.sock";
/// Names a server where no option does; `hubble` reads it as well.
pub const SERVER_VARIABLE: &str = "HUBBLE_SERVER";
