//! What the maps say: `decide` over `Desired`, with the grants that the agent's slow path makes. No kernel.

use std::collections::BTreeMap;

use egret_common::{
    decide::{Decision, Question, Tables as _, may_ask},
    grant::{self, GrantTime, ticks_of_secs},
    ids::EndpointId,
    judge::judge_connect,
    maps::{COOKIE_DNS, ENDPOINT_QUERY_FILTER, Endpoint, GrantKey, Grants},
};
use egret_core::{
    cluster::Resolved,
    compile::addr,
    desired::{Desired, View},
    dns::{
        cache::Limits,
        parse::{parse_answer, parse_query},
    },
    eval::Verdict,
    state::{Grant, KernelDid, State},
};

use crate::{
    dns::{Asked, Exchange},
    node::{Picture, world},
    run::{Side, Way},
    text::Hop,
};

/// When a table begins, in ticks.
const START: GrantTime = 1_000_000;

/// The maps, in memory.
#[derive(Debug)]
pub struct Maps {
    state: State,
    grants: BTreeMap<GrantKey, Grants>,
    now: GrantTime,
}

impl Default for Maps {
    fn default() -> Self {
        Self { state: empty_state(), grants: BTreeMap::new(), now: START }
    }
}

/// A state that knows nothing yet.
///
/// # Panics
/// Never: nothing compiles.
#[must_use]
pub fn empty_state() -> State {
    let world = world(&Resolved::default());
    State::new(world, Vec::new(), Limits::default()).expect("nothing compiles")
}

impl Maps {
    /// What the maps hold.
    #[must_use]
    pub fn desired(&self) -> &Desired {
        self.state.desired()
    }

    fn view(&self) -> View<'_> {
        View { desired: self.state.desired(), grants: &self.grants, now: self.now }
    }

    fn endpoint(&self, id: EndpointId) -> &Endpoint {
        &self.state.desired().endpoints[&id]
    }

    fn decide(&self, id: EndpointId, hop: &Hop) -> Decision {
        let Hop { direction, remote, proto, port } = *hop;
        let mut decision = Decision::default();
        let question = Question { remote: addr(remote), direction, proto, port };
        judge_connect(&self.view(), self.endpoint(id), &question, &mut decision);
        decision
    }

    fn put(&mut self, granted: Vec<Grant>) {
        for Grant { key, class, expires } in granted {
            let slots = self.grants.entry(key).or_default();
            let (at, before) = grant::choose_slot(slots, class, self.now).expect("room for a name");
            let expires =
                if grant::class(before) == class { expires.max(grant::expires(before)) } else { expires };
            slots.slots[at] = grant::pack(class, expires);
        }
    }
}

impl Way for Maps {
    fn update(&mut self, (world, specs, wiring): Picture) {
        let (_, grants) = self.state.update(world, specs, wiring, self.now).expect("it compiles");
        self.put(grants);
    }

    fn wait(&mut self, seconds: u32) {
        self.now += ticks_of_secs(seconds);
    }

    fn judge(&mut self, side: &Side) -> Verdict {
        self.decide(side.endpoint, &side.hop).reason().map_or(Verdict::Allow, Verdict::Deny)
    }

    fn ask(&mut self, side: &Side, exchange: &Exchange) -> Asked {
        let decision = self.decide(side.endpoint, &side.hop);
        if decision.reason().is_some() {
            return Asked::Dropped;
        }
        let endpoint = *self.endpoint(side.endpoint);
        let query = parse_query(&exchange.query(1)).expect("a query");
        let name = query.question.name.expect("a name");
        let class = self.state.desired().name_class(&name);
        let filters = endpoint.flags & ENDPOINT_QUERY_FILTER != 0;
        if filters && !may_ask(&self.view(), &endpoint, class, side.hop.port) {
            return Asked::Refused;
        }
        self.state.see_query(&name).expect("it compiles");
        let trusted = decision.cookie & COOKIE_DNS != 0
            || self.view().trusted_resolver(&addr(side.hop.remote), side.hop.port);
        if trusted {
            let answer = parse_answer(&exchange.response(1)).expect("an answer");
            let kernel = KernelDid::default();
            let lesson =
                self.state.see_answer(side.endpoint, &answer, kernel, self.now).expect("it compiles");
            self.put(lesson.grants);
        }
        Asked::Answered
    }
}
