//! Flows from whoever serves them: a client of Hubble's API, and `egret observe`.
//!
//! ```text
//!  --server, --tls-* ──Server, Tls──> Client ──GetFlowsRequest──> an agent, or anybody else who serves the API
//!                                       └──GetFlowsResponse──> whoever asks ──read::flow──> egret_core::flow::Flow
//!
//!  options ──filters, select──> request ──> Client, or a file (input) ──Keep──> print
//! ```
//! Owns: where a server is, how it is reached and proves who it is, what messages mean, and how they look. Must not know: the
//! server's side ([`crate::observe`], but for the messages themselves and their JSON).

mod address;
mod client;
mod filters;
mod input;
mod observe;
mod print;
pub mod read;
mod select;
mod target;
mod tls;
mod when;

pub use address::Server;
pub use client::{Client, Flows};
pub(crate) use input::{Input, Line};
pub use observe::observe;
pub use target::target;
pub(crate) use tls::pem;
pub use tls::{Tls, TlsFiles};
pub(crate) use when::{duration, read as read_time};

/// Where `egret agent` serves flows.
pub const SERVER: &str = "unix:///run/egret/hubble.sock";
/// Names a server where no option does; `hubble` reads it as well.
pub const SERVER_VARIABLE: &str = "HUBBLE_SERVER";
