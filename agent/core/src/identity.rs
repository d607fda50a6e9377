//! What a pod is to the policies of others: its identity labels and the names of its ports.
//!
//! Owns: the meaning of an identity number. Must not know: pods' addresses, policies.

use std::collections::BTreeMap;

use crate::{labels::Labels, ports::Proto};

/// The named ports of a pod's containers: name and protocol to number.
pub type NamedPorts = BTreeMap<(String, Proto), u16>;

/// What all pods with the same labels and the same named ports share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// From [`egret_common::ids::identity::FIRST_DYNAMIC`] up; never reused while the process lives.
    pub number: u32,
    /// The identity labels.
    pub labels: Labels,
    /// The named ports.
    pub ports: NamedPorts,
}
