//! How many entries each map has: small for one command, large for a node.

/// Entries per map. Ring sizes in bytes: a power of two times the page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// `ENDPOINTS` and `ENDPOINT_STATE`: the highest endpoint id plus one. `COUNTERS` follows from it.
    pub endpoints: u32,
    /// `ENDPOINT_BY_CGROUP`.
    pub cgroups: u32,
    /// `ENDPOINT_BY_IFINDEX`; `ADDRESSES` has two for each.
    pub interfaces: u32,
    /// `SERVICES`.
    pub services: u32,
    /// `IDENTITIES`.
    pub identities: u32,
    /// `CIDR_CLASSES`.
    pub cidrs: u32,
    /// `NAME_EXACT` and `NAME_SUFFIX`, each.
    pub names: u32,
    /// `GRANTS`.
    pub grants: u32,
    /// `RULES`.
    pub rules: u32,
    /// `FLOWS`.
    pub flows: u32,
    /// `FRAGMENTS`.
    pub fragments: u32,
    /// `DNS_QUERIES`.
    pub queries: u32,
    /// `DESTINATIONS`.
    pub destinations: u32,
    /// Bytes of `FLOW_EVENTS`.
    pub flow_ring: u32,
    /// Bytes of `DNS_EVENTS`.
    pub dns_ring: u32,
}

impl Sizes {
    /// For one command: about 12 MB of kernel memory.
    #[must_use]
    pub const fn run() -> Self {
        Self {
            endpoints: 2,
            cgroups: 16,
            interfaces: 1,
            services: 1,
            identities: 1024,
            cidrs: 16_384,
            names: 16_384,
            grants: 16_384,
            rules: 16_384,
            flows: 16_384,
            fragments: 1024,
            queries: 4096,
            destinations: 8192,
            flow_ring: 256 << 10,
            dns_ring: 1 << 20,
        }
    }

    /// For a node: the sizes that stand in the programs.
    #[must_use]
    pub const fn node() -> Self {
        Self {
            endpoints: 4096,
            cgroups: 4096,
            interfaces: 4096,
            services: 16_384,
            identities: 65_536,
            cidrs: 65_536,
            names: 16_384,
            grants: 65_536,
            // 200 endpoints of their own under 1,000 identities make 33,000, and for a moment the old ones are beside the new.
            rules: 131_072,
            flows: 131_072,
            fragments: 4096,
            queries: 16_384,
            destinations: 16_384,
            flow_ring: 1 << 20,
            dns_ring: 4 << 20,
        }
    }

    /// Where the counts of endpoints are kept that are gone, so that a node's sums never go back: an endpoint's number that
    /// is nobody's. `None`: there are too few numbers for that.
    #[must_use]
    pub const fn gone(&self) -> Option<u32> {
        if self.endpoints > 2 { Some(self.endpoints - 1) } else { None }
    }

    /// Map and entries, for the maps whose size may change.
    pub(super) fn entries(&self) -> [(&'static str, u32); 19] {
        let slots = 2 * egret_common::verdict::REASON_SLOTS;
        [
            ("ENDPOINTS", self.endpoints),
            ("ENDPOINT_STATE", self.endpoints),
            ("COUNTERS", self.endpoints * slots),
            ("ENDPOINT_BY_CGROUP", self.cgroups),
            ("ENDPOINT_BY_IFINDEX", self.interfaces),
            ("ADDRESSES", 2 * self.interfaces),
            ("SERVICES", self.services),
            ("IDENTITIES", self.identities),
            ("CIDR_CLASSES", self.cidrs),
            ("NAME_EXACT", self.names),
            ("NAME_SUFFIX", self.names),
            ("GRANTS", self.grants),
            ("RULES", self.rules),
            ("FLOWS", self.flows),
            ("FRAGMENTS", self.fragments),
            ("DNS_QUERIES", self.queries),
            ("DESTINATIONS", self.destinations),
            ("FLOW_EVENTS", self.flow_ring),
            ("DNS_EVENTS", self.dns_ring),
        ]
    }
}
