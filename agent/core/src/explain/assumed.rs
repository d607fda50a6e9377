//! The verdict about a name that has no address yet: what would become of a connection once it was answered with one of
//! the world that no CIDR rule speaks of.

use egret_common::{
    decide::{Decision, Question, Tables, decision_of},
    grant::{self, GrantTime},
    ids::{CLASS_QUERY_ONLY, ClassId, EndpointId, SetId},
    maps::{Backends, Endpoint, Grants, RuleChunk, RuleKey, ServiceKey},
    net::{Addr, Direction},
};

/// An address of the documentation (RFC 5737): nobody's.
const ANY: [u8; 4] = [192, 0, 2, 1];

/// Tables in which that address has just been learned.
struct Assumed<'a, T> {
    tables: &'a T,
    grants: Grants,
}

/// The verdict for names of this class; 0: no policy speaks of them.
pub(super) fn verdict<T: Tables>(
    tables: &T,
    endpoint: &Endpoint,
    class: ClassId,
    (proto, port): (u8, u16),
) -> Decision {
    let mut grants = Grants::default();
    // The kernel learns nothing of names that open nothing.
    if class != 0 && class & CLASS_QUERY_ONLY == 0 {
        grants.slots[0] = grant::pack(class, GrantTime::MAX);
    }
    let question = Question { remote: Addr::from_v4(ANY), direction: Direction::Egress, proto, port };
    decision_of(&Assumed { tables, grants }, endpoint, &question)
}

impl<T: Tables> Tables for Assumed<'_, T> {
    fn rules(&self, key: &RuleKey) -> Option<&RuleChunk> {
        self.tables.rules(key)
    }

    fn cidr_class(&self, _: SetId, _: &Addr) -> Option<ClassId> {
        None
    }

    fn identity(&self, _: &Addr) -> Option<u32> {
        None
    }

    fn grants(&self, _: EndpointId, _: &Addr) -> Option<&Grants> {
        Some(&self.grants)
    }

    fn grant_now(&self) -> GrantTime {
        self.tables.grant_now()
    }

    fn trusted_resolver(&self, addr: &Addr, port: u16) -> bool {
        self.tables.trusted_resolver(addr, port)
    }

    fn service(&self, _: &ServiceKey) -> Option<&Backends> {
        None
    }

    fn owns(&self, _: EndpointId, _: &Addr) -> bool {
        false
    }

    fn grants_overflowed(&self, _: EndpointId) -> bool {
        false
    }
}
