//! Everything a scenario needs, started with one call: the standard world, a resolver with a zone, servers
//! on all outer addresses.

use std::net::SocketAddr;

use crate::dnsd::{Dnsd, Handler, QueryLog, Stub, Zone};
use crate::egret::Egret;
use crate::exec::Place;
use crate::netns::{self, RESOLVER_V4, RESOLVER_V6, World};
use crate::probe::Session;
use crate::residue;
use crate::servers::{Capture, Hits, Servers};

/// The standard resolver as `address:port`.
pub const RESOLVER: &str = "10.7.0.53:53";

/// A world with its servers running.
#[derive(Debug)]
pub struct Lab {
    /// The resolver's names; change them at any time.
    pub zone: Zone,
    dnsd: Dnsd,
    servers: Servers,
    /// The namespaces; last, so that the threads end first.
    pub world: World,
}

impl Lab {
    /// With a zone that is empty but for `api.example.com` (192.0.2.10, 2001:db8:a::10, TTL 60) and
    /// `other.example.com` (192.0.2.99). `None`, and why on stderr, where worlds cannot be made.
    pub fn start() -> Option<Self> {
        Self::furnish(World::standard, None)
    }

    /// With a handler of the test's own in the resolver.
    pub fn scripted(handler: Handler) -> Option<Self> {
        Self::furnish(World::standard, Some(handler))
    }

    /// Alone on this machine, for tests that look for residue.
    pub fn exclusive() -> Option<Self> {
        Self::furnish(World::exclusive, None)
    }

    fn furnish(make: fn() -> World, handler: Option<Handler>) -> Option<Self> {
        if let Some(reason) = netns::unavailable() {
            eprintln!("skipped: {reason}");
            return None;
        }
        residue::ensure_bpffs();
        let world = make();
        let zone = Zone::new();
        zone.add("api.example.com", 60, &["192.0.2.10", "2001:db8:a::10"]);
        zone.add("other.example.com", 60, &["192.0.2.99"]);
        let handler = handler.unwrap_or_else(|| zone.handler());
        let listen = |address: &str| SocketAddr::new(address.parse().expect("an address"), 53);
        let dnsd = Dnsd::start(world.ns("d"), &[listen(RESOLVER_V4), listen(RESOLVER_V6)], handler);
        let servers = Servers::standard(world.ns("w"));
        Some(Self { zone, dnsd, servers, world })
    }

    /// What the resolver was asked.
    pub fn queries(&self) -> &QueryLog {
        self.dnsd.log()
    }

    /// Who reached a server.
    pub fn hits(&self) -> &Hits {
        self.servers.hits()
    }

    /// Packets that arrive at the servers' namespace from now on.
    pub fn capture(&self) -> Capture {
        Capture::start(self.world.ns("w"))
    }

    /// Egret in `c`, with nothing allowed yet.
    pub fn egret(&self) -> Egret {
        Egret::new(&self.world)
    }

    /// A place in `c` without Egret.
    pub fn bare(&self) -> Place {
        self.world.place("c")
    }

    /// A probe in `c` without Egret: the negative control.
    pub fn bare_session(&self) -> Session {
        Session::start(&self.bare())
    }

    /// A stub resolver on 127.0.0.53 in `c` that forwards to the resolver.
    pub fn stub(&self) -> Stub {
        Stub::start(self.world.ns("c"), RESOLVER.parse().expect("an address"))
    }

    /// A further resolver inside `w`, for tests with one that must not be believed.
    pub fn rogue(&self, address: &str, handler: Handler) -> Dnsd {
        Dnsd::start(self.world.ns("w"), &[address.parse().expect("address:port")], handler)
    }
}
