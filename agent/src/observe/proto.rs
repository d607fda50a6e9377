//! Messages, servers and clients that the build makes of `proto/`.
#![expect(
    missing_docs,
    clippy::allow_attributes_without_reason,
    reason = "generated; what a field means stands in the .proto files"
)]

/// Flows.
pub mod flow {
    tonic::include_proto!("flow");
}

/// The service that `hubble` asks.
pub mod observer {
    tonic::include_proto!("observer");
}

/// Who else serves flows.
pub mod peer {
    tonic::include_proto!("peer");
}

/// States of nodes.
pub mod relay {
    tonic::include_proto!("relay");
}

/// The description of all of it.
pub(super) const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hubble.bin"));
