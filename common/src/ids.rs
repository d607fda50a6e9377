//! Number spaces: endpoints, rule sets, classes, identities. Plain `u32` in the maps; the ranges are fixed here.

/// Endpoint id: index into `ENDPOINTS`. 0 is never assigned.
pub type EndpointId = u32;
/// Id of an immutable rule set; one per direction. 0 = no policy.
pub type SetId = u32;
/// What a remote address stands for inside a rule set: the any class, an identity, a name class or a CIDR class.
pub type ClassId = u32;

/// The class that every remote belongs to.
pub const CLASS_ANY: ClassId = 0;
/// Union of the ports of all name rules of a set. It opens nothing; a deny consults it for its reason.
pub const CLASS_NAMES_SUMMARY: ClassId = 0x00ff_ffff;
/// First name class. Name classes show as identities 16777216+ in flows, as Cilium's local identities do.
pub const CLASS_NAME_BASE: ClassId = 0x0100_0000;
/// First CIDR class.
pub const CLASS_CIDR_BASE: ClassId = 0x0200_0000;

/// Reserved identities with the numbers that Hubble prints.
pub mod identity {
    /// The node itself; in `egret run` every address of this host.
    pub const HOST: u32 = 1;
    /// Any address that nothing else claims.
    pub const WORLD: u32 = 2;
    /// Another node.
    pub const REMOTE_NODE: u32 = 6;
    /// The API server.
    pub const KUBE_APISERVER: u32 = 7;
    /// First number computed from labels.
    pub const FIRST_DYNAMIC: u32 = 256;
}

/// True for a class that a DNS name stands behind.
#[must_use]
pub const fn is_name_class(class: ClassId) -> bool {
    class >= CLASS_NAME_BASE && class < CLASS_CIDR_BASE
}

/// Bit of a name class whose names may be asked for but open nothing: names of `rules.dns` alone, and policy names with
/// a search domain appended.
pub const CLASS_QUERY_ONLY: ClassId = 0x0080_0000;
/// Bit of such a class with policy names that have a search domain appended: if the resolver walks the search path
/// itself, an alias leads to the name that is meant, which only the agent can tell (CASES W-A03).
pub const CLASS_SEARCHED: ClassId = 0x0040_0000;
/// Bit of a class whose names lie under the cluster's own domain: they may stand for addresses of the cluster (K-A15).
pub const CLASS_CLUSTER: ClassId = 0x0010_0000;
/// Bit of a class whose names end like a pattern that the tables cannot express: only the agent knows which of them the
/// pattern matches. They may be asked for; what an answer opens, the agent decides.
pub const CLASS_UNSURE: ClassId = 0x0020_0000;
