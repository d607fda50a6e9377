//! From what the rules of one class claim to disjoint port intervals in the order that `decide` reads them.

use std::collections::BTreeSet;

use egret_common::{
    maps::{
        COOKIE_DNS, MAX_CHUNKS, OUTCOME_ALLOW, OUTCOME_DENY, OUTCOME_NONE, PortRule, RULES_PER_CHUNK,
        RuleChunk,
    },
    net::proto,
};

use crate::policy::Effect;

/// What one rule says about one range of ports of one protocol number; [`proto::ANY`] is always the whole range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) proto: u8,
    pub(super) lo: u16,
    pub(super) hi: u16,
    pub(super) effect: Effect,
    pub(super) cookie: u32,
}

impl Claim {
    fn covers(&self, protocol: u8, port: u16) -> bool {
        let proto = self.proto == protocol || (self.proto == proto::ANY && protocol != proto::DNS_QUERY);
        proto && (self.lo..=self.hi).contains(&port)
    }
}

/// More intervals than the map's chunks can hold, even without telling rules apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMany(pub(super) usize);

/// The chunks of a class; empty if nothing is claimed.
pub(super) fn chunks(claims: &[Claim]) -> Result<Vec<RuleChunk>, TooMany> {
    let limit = MAX_CHUNKS as usize * RULES_PER_CHUNK;
    let mut rules = intervals(claims, true);
    if rules.len() > limit {
        rules = intervals(claims, false);
    }
    if rules.len() > limit {
        return Err(TooMany(rules.len()));
    }
    let groups = rules.chunks(RULES_PER_CHUNK);
    let last = groups.len().saturating_sub(1);
    Ok(groups.enumerate().map(|(i, group)| chunk(group, i < last)).collect())
}

fn chunk(group: &[PortRule], more: bool) -> RuleChunk {
    let mut rules = [PortRule::default(); RULES_PER_CHUNK];
    rules[..group.len()].copy_from_slice(group);
    RuleChunk { count: group.len() as u32, more: u32::from(more), rules }
}

/// Exact protocols first; each of them complete if there is a claim for any protocol, which follows. The right to ask
/// (which "any protocol" does not include) stands last: a class that begins with it opens no address.
fn intervals(claims: &[Claim], tell_rules_apart: bool) -> Vec<PortRule> {
    let mut protos: BTreeSet<u8> = claims.iter().map(|c| c.proto).collect();
    let any = protos.remove(&proto::ANY);
    let asks = protos.remove(&proto::DNS_QUERY);
    let mut out = Vec::new();
    for protocol in protos {
        out.extend(intervals_of(claims, protocol, tell_rules_apart));
    }
    if any {
        out.extend(
            resolve(claims, proto::ANY, 0)
                .map(|(normal, cookie)| rule(proto::ANY, 0, u16::MAX, normal, cookie)),
        );
    }
    if asks {
        out.extend(intervals_of(claims, proto::DNS_QUERY, tell_rules_apart));
    }
    out
}

fn intervals_of(claims: &[Claim], protocol: u8, tell_rules_apart: bool) -> Vec<PortRule> {
    let mut starts = BTreeSet::from([0]);
    for c in claims.iter().filter(|c| c.proto == protocol) {
        starts.insert(c.lo);
        starts.extend(c.hi.checked_add(1));
    }
    let starts: Vec<u16> = starts.into_iter().collect();
    let mut out: Vec<PortRule> = Vec::new();
    for (i, &lo) in starts.iter().enumerate() {
        let hi = starts.get(i + 1).map_or(u16::MAX, |next| next - 1);
        let Some((normal, cookie)) = resolve(claims, protocol, lo) else { continue };
        match out.last_mut() {
            Some(last)
                if last.hi.checked_add(1) == Some(lo)
                    && last.normal == normal
                    && (last.cookie == cookie || !tell_rules_apart && dns(last.cookie) == dns(cookie)) =>
            {
                last.hi = hi;
            }
            _ => out.push(rule(protocol, lo, hi, normal, cookie)),
        }
    }
    out
}

/// Deny beats allow; the lowest cookie of the winning side is named; DNS is learned if any allowing rule says so.
fn resolve(claims: &[Claim], protocol: u8, port: u16) -> Option<(u8, u32)> {
    let covering = || claims.iter().filter(|c| c.covers(protocol, port));
    let named = |c: &Claim| c.cookie & !COOKIE_DNS;
    if let Some(cookie) = covering().filter(|c| c.effect == Effect::Deny).map(named).min() {
        return Some((OUTCOME_DENY, cookie));
    }
    let cookie = covering().map(named).min()?;
    Some((OUTCOME_ALLOW, cookie | covering().fold(0, |bits, c| bits | dns(c.cookie))))
}

fn dns(cookie: u32) -> u32 {
    cookie & COOKIE_DNS
}

fn rule(proto: u8, lo: u16, hi: u16, normal: u8, cookie: u32) -> PortRule {
    PortRule {
        lo,
        hi,
        proto,
        normal,
        admin: OUTCOME_NONE,
        baseline: OUTCOME_NONE,
        cookie,
        ..PortRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(proto: u8, lo: u16, hi: u16, effect: Effect, cookie: u32) -> Claim {
        Claim { proto, lo, hi, effect, cookie }
    }

    fn check(claims: &[Claim], want: &[(u8, u16, u16, u8, u32)]) {
        let got: Vec<_> =
            intervals(claims, true).iter().map(|r| (r.proto, r.lo, r.hi, r.normal, r.cookie)).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn k_a02_claims_become_disjoint_intervals() {
        use Effect::{Allow, Deny};
        check(&[], &[]);
        check(&[claim(6, 443, 443, Allow, 1)], &[(6, 443, 443, 1, 1)]);
        check(
            &[claim(6, 80, 90, Allow, 1), claim(6, 85, 100, Allow, 2)],
            &[(6, 80, 90, 1, 1), (6, 91, 100, 1, 2)],
        );
        check(
            &[claim(6, 0, 65535, Allow, 1), claim(6, 22, 22, Deny, 2)],
            &[(6, 0, 21, 1, 1), (6, 22, 22, 2, 2), (6, 23, 65535, 1, 1)],
        );
        // Any protocol: the exact ones are complete and stand first.
        check(
            &[claim(0, 0, 65535, Allow, 1), claim(6, 22, 22, Deny, 2), claim(17, 53, 53, Allow, 3)],
            &[
                (6, 0, 21, 1, 1),
                (6, 22, 22, 2, 2),
                (6, 23, 65535, 1, 1),
                (17, 0, 65535, 1, 1),
                (0, 0, 65535, 1, 1),
            ],
        );
        // The right to ask is not part of "any protocol".
        check(
            &[claim(0, 0, 65535, Deny, 1), claim(255, 53, 53, Allow, 2)],
            &[(0, 0, 65535, 2, 1), (255, 53, 53, 1, 2)],
        );
    }

    #[test]
    fn a_class_has_a_limit() {
        let scattered = |n: u16| -> Vec<Claim> {
            (0..n).map(|i| claim(6, i * 2, i * 2, Effect::Allow, u32::from(i) + 1)).collect()
        };
        assert_eq!(chunks(&scattered(128)).map(|c| c.len()), Ok(16));
        assert_eq!(chunks(&scattered(129)), Err(TooMany(129)));
        let touching: Vec<Claim> =
            (0..500).map(|i| claim(6, i, i, Effect::Allow, u32::from(i) + 1)).collect();
        let merged = chunks(&touching).unwrap();
        assert_eq!((merged.len(), merged[0].count, merged[0].more, merged[0].rules[0].hi), (1, 1, 0, 499));
    }
}
