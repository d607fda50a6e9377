//! Many packets through a pair: how many, under which policies, and what came of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use egret::datapath::Sizes;
use egret_common::{maps::CONFIG_EVENTS, net::Direction};
use egret_core::{desired::Desired, state::State};

use super::{Outcome, Pair, setup::Setup};

/// All of them, or an eighth in an emulated machine, which is ten times slower (`cargo xtask test vm`).
pub fn rounds(all: usize) -> usize {
    if std::env::var_os("EGRET_VM").is_some() { all / 8 } else { all }
}

/// Texts as addresses.
pub fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

/// Without policies yet: each of the setups follows in the same maps, since loading takes seconds.
pub fn empty_pair(config_flags: u32) -> Pair {
    Pair::new(Desired::default(), config_flags | CONFIG_EVENTS, Sizes::run())
}

/// A case packet by packet: its name, and its steps.
pub type Case = (&'static str, fn(&mut Pair));

/// Runs the cases under one setup, each from empty tables; a failure comes after its case's name. Gives the pair back.
#[track_caller]
pub fn run_cases(setup: &str, cases: &[Case]) -> Pair {
    let state = Setup::named(setup).state();
    let flags = state.config_flags() | CONFIG_EVENTS;
    let mut pair = Pair::new(state.desired().clone(), flags, Sizes::run());
    for (name, case) in cases {
        eprintln!("{name}");
        case(&mut pair);
        pair.settle_and_clear();
    }
    pair
}

/// From one setup to the next, whose numbers mean other things.
pub fn change(pair: &mut Pair, setup: &Setup) -> State {
    pair.settle_and_clear();
    pair.switch(Desired::default());
    let state = setup.state();
    pair.switch(state.desired().clone());
    state
}

/// What came of all packets, so that a generator gone dull is noticed.
#[derive(Debug, Default)]
pub struct Seen {
    /// Return values per direction.
    pub values: BTreeMap<(&'static str, u32), usize>,
    /// Reasons in flow events; 0 = a flow that began.
    pub reasons: BTreeMap<u8, usize>,
    /// `DNS_*` bits of DNS events.
    pub dns: BTreeMap<u8, usize>,
}

impl Seen {
    /// Adds one packet's outcome.
    pub fn add(&mut self, direction: Direction, outcome: &Outcome) {
        let way = if direction == Direction::Egress { "egress" } else { "ingress" };
        *self.values.entry((way, outcome.value)).or_default() += 1;
        if let Some(event) = &outcome.flow {
            *self.reasons.entry(event.reason).or_default() += 1;
        }
        for (event, _) in &outcome.dns {
            *self.dns.entry(event.flags).or_default() += 1;
        }
    }
}
