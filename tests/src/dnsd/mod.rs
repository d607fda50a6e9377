//! A resolver that sends exactly the bytes a test gives it, when the test wants them. Knows the DNS wire
//! format; knows nothing of policies.

mod log;
mod query;
pub mod raw;
mod server;
mod stub;
mod tcp;
mod zone;

use std::sync::Arc;
use std::time::Duration;

pub use log::QueryLog;
pub use query::{Query, Transport};
pub use server::Dnsd;
pub use stub::Stub;
pub use zone::Zone;

/// One thing to do about a query, in order.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends a message; over TCP with its length in front.
    Send(Vec<u8>),
    /// Sends bytes as they are: over TCP a part of a message, or anything else.
    Raw(Vec<u8>),
    /// Over TCP: holds the message back until the next query of the connection was answered.
    AfterNext(Vec<u8>),
    /// Waits.
    Delay(Duration),
    /// Closes the TCP connection.
    Close,
}

/// What decides about queries. No action at all is silence.
pub type Handler = Arc<dyn Fn(&Query) -> Vec<Action> + Send + Sync>;

/// Wraps a closure as a [`Handler`].
pub fn handler(decide: impl Fn(&Query) -> Vec<Action> + Send + Sync + 'static) -> Handler {
    Arc::new(decide)
}

/// A TCP message cut into pieces of at most `size` bytes, its length prefix included, with a pause after
/// each so that each travels as its own segment.
pub fn chunked(message: &[u8], size: usize, pause: Duration) -> Vec<Action> {
    let mut framed = u16::try_from(message.len()).expect("a DNS message").to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    framed.chunks(size).flat_map(|piece| [Action::Raw(piece.to_vec()), Action::Delay(pause)]).collect()
}
