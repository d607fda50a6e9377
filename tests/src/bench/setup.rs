//! What is loaded for a measurement: an arena with a policy in its maps, packets, and the look-up of flows to
//! delete.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use aya::maps::{HashMap, Map, MapData};
use egret::datapath::Sizes;
use egret_common::{
    ABI_VERSION,
    maps::{ENDPOINT_POD, FlowEntry, FlowKey},
    net::Addr,
};
use egret_core::{
    allow::AllowRule,
    compile::{EndpointSpec, NamesAsk, World},
    desired::{Desired, Entry, MapOp, diff},
    dns::{cache::Limits, lifetime::Lifetime},
    policy::Policy,
    state::State,
};
use egret_tests::arena::{Arena, ENDPOINT};
use egret_tests::packet::{Frame, L4, Packet};

/// The workload.
pub(crate) const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
/// Its resolver.
pub(crate) const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 53);
/// How many flows are met in turn.
pub(crate) const FLOWS: u16 = 4096;

/// Where the programs stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// At this process's cgroup, as under `egret run`.
    Cgroup,
    /// At a pod's interface: a test run happens at the loopback device.
    Tc,
}

/// The loopback device.
const LOOPBACK: u32 = 1;

impl Hook {
    /// The program that sees what the workload sends, or what it gets.
    pub(crate) fn program(self, out: bool) -> &'static str {
        match (self, out) {
            (Self::Cgroup, true) => "egret_egress",
            (Self::Cgroup, false) => "egret_ingress",
            (Self::Tc, true) => "egret_from_pod",
            (Self::Tc, false) => "egret_to_pod",
        }
    }

    /// A floor program.
    pub(crate) fn floor(self, path: &str) -> String {
        match self {
            Self::Cgroup => format!("floor_{path}"),
            Self::Tc => format!("floor_tc_{path}"),
        }
    }

    /// What a program returns for a packet that passes.
    pub(crate) fn pass(self) -> u32 {
        match self {
            Self::Cgroup => 1,
            Self::Tc => u32::MAX,
        }
    }

    /// What Egret returns for one that does not.
    pub(crate) fn drop(self) -> u32 {
        2
    }

    /// `ENDPOINT_*` bits that come with the place.
    pub(crate) fn flags(self) -> u32 {
        match self {
            Self::Cgroup => 0,
            Self::Tc => ENDPOINT_POD,
        }
    }

    /// An arena with its programs and a policy.
    pub(crate) fn arena(self, config_flags: u32, events: u32, allow: &[String]) -> (Arena, State) {
        let mut arena = Arena::load_with(config_flags, Sizes::node(), events, self == Self::Tc);
        let state = apply(&mut arena, allow, self.flags());
        if self == Self::Tc {
            arena.bind_interface(LOOPBACK, Some(ENDPOINT)).expect("bound");
            let own = Entry::Address(Addr::from_v4(LOCAL.octets()), ENDPOINT);
            arena.apply(&[MapOp::Put(own)]).expect("a written address");
        }
        (arena, state)
    }
}

/// Fills the maps with the policy that these `--allow` arguments make, and gives the agent's state back.
pub(crate) fn apply(arena: &mut Arena, allow: &[String], flags: u32) -> State {
    let rules: Vec<AllowRule> =
        allow.iter().map(|text| AllowRule::parse(text).expect("a valid argument")).collect();
    let resolvers = BTreeSet::from([SocketAddr::new(RESOLVER.into(), 53)]);
    let policies = vec![Policy::from_allow(&rules), Policy::to_resolvers(&resolvers)].into();
    let world = World {
        search: Vec::new(),
        cluster_domain: None,
        resolvers,
        identities: BTreeMap::new(),
        peers: BTreeMap::new(),
        names_ask: NamesAsk::Yes,
        seen_names: BTreeSet::new(),
    };
    let spec = EndpointSpec {
        id: ENDPOINT,
        identity: 0,
        flags,
        lifetime: Lifetime::default(),
        ports: BTreeMap::new(),
        policies,
    };
    let state = State::new(world, vec![spec], Limits::default()).expect("a policy that compiles");
    arena.apply(&diff(&Desired::default(), state.desired())).expect("written maps");
    state
}

/// An arena with a policy in it.
pub(crate) fn arena(config_flags: u32, allow: &[String], flags: u32) -> (Arena, State) {
    let mut arena = Arena::load(config_flags, Sizes::node());
    let state = apply(&mut arena, allow, flags);
    (arena, state)
}

/// Changes the endpoint's flags.
pub(crate) fn set_flags(arena: &mut Arena, state: &State, flags: u32) {
    let mut endpoint = state.desired().endpoints[&ENDPOINT];
    endpoint.flags = flags;
    arena.apply(&[MapOp::Put(Entry::Endpoint(endpoint))]).expect("a written endpoint");
}

/// Opens an address under the class of a name, for an hour.
pub(crate) fn grant(arena: &Arena, state: &State, name: &str, address: Ipv4Addr) {
    let name = egret_core::names::Name::parse(name).expect("a name");
    let class = state.desired().name_class(&name);
    let now = egret_common::grant::ticks(arena.clock().expect("a clock").boot_ns);
    let expires = now + egret_common::grant::ticks_of_secs(3600);
    let address = Addr::from_v4(address.octets());
    assert!(arena.grant(ENDPOINT, address, class, expires).expect("a grant"), "no room");
}

/// A TCP packet from the workload, as a frame.
pub(crate) fn tcp_out(local_port: u16, remote: Ipv4Addr, remote_port: u16, flags: u8) -> Vec<u8> {
    let l4 = L4::Tcp(local_port, remote_port, flags, Vec::new());
    Packet::between(LOCAL.into(), remote.into(), l4).frame(Frame::Ethernet)
}

/// A TCP packet to the workload, as a frame.
pub(crate) fn tcp_in(local_port: u16, remote: Ipv4Addr, remote_port: u16, flags: u8) -> Vec<u8> {
    let l4 = L4::Tcp(remote_port, local_port, flags, Vec::new());
    Packet::between(remote.into(), LOCAL.into(), l4).frame(Frame::Ethernet)
}

/// A datagram between the workload and its resolver, as a frame.
pub(crate) fn dns(out: bool, local_port: u16, message: &[u8]) -> Vec<u8> {
    let (local, resolver): (IpAddr, IpAddr) = (LOCAL.into(), RESOLVER.into());
    let packet = match out {
        true => Packet::between(local, resolver, L4::Udp(local_port, 53, message.into())),
        false => Packet::between(resolver, local, L4::Udp(53, local_port, message.into())),
    };
    packet.frame(Frame::Ethernet)
}

/// The flow table of an arena, opened a second time: to forget flows.
pub(crate) struct FlowTable(HashMap<MapData, FlowKey, FlowEntry>);

impl FlowTable {
    /// By its pin.
    pub(crate) fn open(arena: &Arena) -> Self {
        let path = arena.dir().join(format!("v{ABI_VERSION}")).join("FLOWS");
        let map = MapData::from_pin(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        Self(HashMap::try_from(Map::LruHashMap(map)).expect("the flow table"))
    }

    /// Forgets the flows with these local ports.
    pub(crate) fn forget(&mut self, ports: std::ops::Range<u16>) {
        let keys: Vec<FlowKey> =
            self.0.keys().flatten().filter(|key| ports.contains(&key.local_port)).collect();
        for key in keys {
            let _ = self.0.remove(&key);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.keys().flatten().count()
    }
}

/// Runs a program of Egret on a frame; what it returned and how long one of `repeat` runs took.
#[track_caller]
pub(crate) fn run(arena: &Arena, program: &'static str, frame: &[u8], repeat: u32) -> (u32, u64) {
    let run = arena.test_run(program, frame, repeat).unwrap_or_else(|error| panic!("{error}"));
    (run.value, run.nanoseconds)
}
