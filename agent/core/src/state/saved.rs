//! What must outlive the process: the numbers that the kernel's maps hold, and what workloads were told.
//!
//! The kernel grants addresses to name classes by number, so the next process must give each class the same one. Sets
//! begin anew above all old ones: flows that the old ones allowed are judged again, and nothing is dropped for it.

use std::net::IpAddr;

use egret_common::{
    grant::GrantTime,
    ids::{EndpointId, SetId},
};
use serde::{Deserialize, Serialize};

use super::{State, Wiring};
use crate::{
    compile::{Book, ClassKey, CompileError, EndpointSpec, Member, Role, World},
    dns::cache::{Cache, Limits},
    names::{Name, Pattern},
};

/// State as plain values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Name classes.
    pub classes: Vec<SavedClass>,
    /// What workloads were told.
    pub told: Vec<SavedTold>,
}

/// A name class: the place that its number tells, and each member's pattern and role.
pub type SavedClass = (u32, Vec<(String, SavedRole)>);

/// Workload, name, address, expiry (boot time in ticks).
pub type SavedTold = (EndpointId, String, IpAddr, GrantTime);

impl Saved {
    /// One class.
    #[must_use]
    pub fn class(place: u32, key: &ClassKey) -> SavedClass {
        (place, key.iter().map(|m| (m.pattern.to_string(), m.role.into())).collect())
    }

    /// What one workload was told.
    pub fn told(endpoint: EndpointId, cache: &Cache) -> impl Iterator<Item = SavedTold> {
        cache.iter().map(move |(name, ip, expires)| (endpoint, name.to_string(), ip, expires))
    }
}

/// [`Role`] by a name that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SavedRole {
    /// [`Role::Opens`].
    Opens,
    /// [`Role::Asks`].
    Asks,
    /// [`Role::Searched`].
    Searched,
    /// [`Role::Tail`].
    Tail,
    /// [`Role::Cluster`].
    Cluster,
}

impl From<Role> for SavedRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Opens => Self::Opens,
            Role::Asks => Self::Asks,
            Role::Searched => Self::Searched,
            Role::Tail => Self::Tail,
            Role::Cluster => Self::Cluster,
        }
    }
}

impl From<SavedRole> for Role {
    fn from(role: SavedRole) -> Self {
        match role {
            SavedRole::Opens => Self::Opens,
            SavedRole::Asks => Self::Asks,
            SavedRole::Searched => Self::Searched,
            SavedRole::Tail => Self::Tail,
            SavedRole::Cluster => Self::Cluster,
        }
    }
}

impl State {
    /// What the next process needs.
    #[must_use]
    pub fn save(&self) -> Saved {
        let classes = self.book.names().iter().map(|(place, key)| Saved::class(place, key));
        let told = self.caches.iter().flat_map(|(id, cache)| Saved::told(*id, cache));
        Saved { classes: classes.collect(), told: told.collect() }
    }

    /// As [`State::new`], going on where another process stopped: classes keep their numbers, sets begin above
    /// `last_set`. What cannot be read any more ends the numbering there; `None` tells so, and the maps' grants mean
    /// nothing then.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn resume(
        world: World,
        endpoints: Vec<EndpointSpec>,
        wiring: Wiring,
        limits: Limits,
        saved: &Saved,
        last_set: SetId,
    ) -> Result<Option<Self>, CompileError> {
        let mut book = Book::above(last_set);
        for (place, class) in &saved.classes {
            let Some(key) = class.iter().map(member).collect::<Option<ClassKey>>() else { return Ok(None) };
            if !book.names_mut().restore(*place, key) {
                return Ok(None);
            }
        }
        let mut state = Self::begin(world, endpoints, wiring, limits, book)?;
        for (id, name, address, expires) in &saved.told {
            if let Ok(name) = Name::parse(name) {
                let cache = state.caches.entry(*id).or_insert_with(|| Cache::new(limits));
                cache.learn(&name, *address, *expires, 0);
            }
        }
        Ok(Some(state))
    }
}

fn member((pattern, role): &(String, SavedRole)) -> Option<Member> {
    Some(Member { pattern: Pattern::match_pattern(pattern).ok()?, role: (*role).into() })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::{allow::AllowRule, compile::NamesAsk, dns::lifetime::Lifetime, policy::Policy};

    fn world() -> World {
        World {
            search: vec![Name::parse("ns.svc.cluster.local").expect("a name")],
            cluster_domain: None,
            resolvers: BTreeSet::new(),
            identities: BTreeMap::new(),
            peers: BTreeMap::new(),
            names_ask: NamesAsk::Yes,
            seen_names: BTreeSet::new(),
        }
    }

    fn endpoint(allow: &[&str]) -> EndpointSpec {
        let rules: Vec<_> = allow.iter().map(|a| AllowRule::parse(a).expect("valid")).collect();
        let policies = vec![Policy::from_allow(&rules)].into();
        EndpointSpec {
            id: 1,
            identity: 256,
            flags: 0,
            lifetime: Lifetime::default(),
            ports: BTreeMap::new(),
            policies,
        }
    }

    const ALLOW: [&str; 5] = ["a.example", "*.b.example", "**.c.example:443", "x*y.d.example", "**"];

    fn state(allow: &[&str]) -> State {
        State::new(world(), vec![endpoint(allow)], Limits::default()).expect("compiles")
    }

    #[test]
    fn l_a01_classes_keep_their_numbers_over_a_restart() {
        let mut old = state(&ALLOW);
        let (ip, name) = (IpAddr::from([192, 0, 2, 1]), Name::parse("a.example").expect("a name"));
        old.caches.entry(1).or_insert_with(|| Cache::new(Limits::default())).learn(&name, ip, 500, 0);
        old.see_query(&Name::parse("xzy.d.example").expect("a name")).expect("compiles");
        let saved = old.save();
        assert!(saved.classes.len() >= ALLOW.len(), "{saved:?}");
        // Other policies first: whatever comes up, the old numbers stand.
        for allow in [&ALLOW[..], &["new.example", "a.example"], &[]] {
            let new = State::resume(
                world(),
                vec![endpoint(allow)],
                Wiring::default(),
                Limits::default(),
                &saved,
                40,
            );
            let new = new.expect("compiles").expect("readable");
            for (place, key) in old.book.names().iter() {
                assert!(new.book.names().iter().any(|class| class == (place, key)), "{place}");
            }
            let sets = new.desired().endpoints.values().flat_map(|e| [e.egress_set, e.ingress_set]);
            assert!(sets.into_iter().all(|set| set > 40));
            assert_eq!(new.names_of(1, ip).collect::<Vec<_>>(), [(&name, 500)]);
            assert_eq!(new.save().classes[..saved.classes.len()], saved.classes);
        }
        let number = |state: &State| state.desired().name_exact.get(&name).copied();
        let new = State::resume(
            world(),
            vec![endpoint(&["a.example"])],
            Wiring::default(),
            Limits::default(),
            &saved,
            0,
        );
        // In the old process `**` was a reason too: the class differs, and so does its number.
        assert_ne!(number(&new.expect("compiles").expect("readable")), number(&old));
    }

    #[test]
    fn what_cannot_be_read_is_not_gone_on_with() {
        let mut saved = state(&ALLOW).save();
        saved.classes[1].1 = vec![("a..b".into(), SavedRole::Opens)];
        let resumed = State::resume(world(), Vec::new(), Wiring::default(), Limits::default(), &saved, 0)
            .expect("compiles");
        assert!(resumed.is_none());
        let mut saved = state(&ALLOW).save();
        saved.classes[1].1 = saved.classes[0].1.clone();
        let resumed = State::resume(world(), Vec::new(), Wiring::default(), Limits::default(), &saved, 0)
            .expect("compiles");
        assert!(resumed.is_none(), "two places for one class");
    }
}
