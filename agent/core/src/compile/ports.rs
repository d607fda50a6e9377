//! From what the rules of one class claim to disjoint port intervals in the order that `decide` reads them, each with
//! what the three tiers say about it.

use std::{collections::BTreeSet, sync::Arc};

use egret_common::{
    maps::{
        COOKIE_DNS, MAX_CHUNKS, OUTCOME_ALLOW, OUTCOME_DENY, OUTCOME_NONE, OUTCOME_PASS, PortRule,
        RULES_PER_CHUNK, RuleChunk, port_key,
    },
    net::proto,
};

use crate::policy::{Effect, Tier};

/// What one rule says about one range of ports of one protocol number; [`proto::ANY`] is always the whole range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Claim {
    pub(super) proto: u8,
    pub(super) lo: u16,
    pub(super) hi: u16,
    pub(super) tier: Tier,
    pub(super) effect: Effect,
    /// In the Admin and Baseline tiers the rule's rank.
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

/// The chunks of a class, shared by all classes to which the same is said.
pub(super) type Chunks = Vec<Arc<RuleChunk>>;

/// The chunks of a class; empty if nothing is claimed.
pub(super) fn chunks(claims: &[Claim]) -> Result<Chunks, TooMany> {
    let (exact, any) = match intervals(claims, true) {
        (exact, any) if fits(&exact, any.is_some()) => (exact, any),
        _ => intervals(claims, false),
    };
    if !fits(&exact, any.is_some()) {
        return Err(TooMany(exact.len()));
    }
    // The interval of every protocol stands last in the first chunk; it takes the place of an exact one.
    let room = RULES_PER_CHUNK - usize::from(any.is_some());
    let (first, rest) = exact.split_at(exact.len().min(room));
    let further: Vec<&[PortRule]> = rest.chunks(RULES_PER_CHUNK).collect();
    let first: Vec<PortRule> = first.iter().copied().chain(any).collect();
    if first.is_empty() {
        return Ok(Vec::new());
    }
    let mut out = vec![chunk(&first)];
    out[0].more = further.len() as u32;
    for (start, group) in out[0].starts.iter_mut().zip(&further) {
        *start = port_key(group[0].proto, group[0].lo);
    }
    out.extend(further.into_iter().map(chunk));
    Ok(out.into_iter().map(Arc::new).collect())
}

fn fits(exact: &[PortRule], any: bool) -> bool {
    exact.len() + usize::from(any) <= MAX_CHUNKS * RULES_PER_CHUNK
}

fn chunk(group: &[PortRule]) -> RuleChunk {
    let mut rules = [PortRule::default(); RULES_PER_CHUNK];
    rules[..group.len()].copy_from_slice(group);
    RuleChunk { count: group.len() as u32, more: 0, starts: [u32::MAX; MAX_CHUNKS - 1], rules }
}

/// The intervals of named protocols in the order of [`port_key`], and the one of every protocol. If there is that
/// one, the named protocols are covered completely, so that it never speaks for them. The right to ask is not part of
/// "every protocol"; a class whose first interval is the right to ask and whose last one is not for every protocol
/// opens no address.
fn intervals(claims: &[Claim], tell_rules_apart: bool) -> (Vec<PortRule>, Option<PortRule>) {
    let mut protos: BTreeSet<u8> = claims.iter().map(|c| c.proto).collect();
    let any = protos.remove(&proto::ANY);
    let exact = protos.into_iter().flat_map(|p| intervals_of(claims, p, tell_rules_apart)).collect();
    let any = if any { resolve(claims, proto::ANY, 0) } else { None };
    (exact, any.map(|said| PortRule { proto: proto::ANY, lo: 0, hi: u16::MAX, ..said }))
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
        let Some(said) = resolve(claims, protocol, lo) else { continue };
        let said = PortRule { proto: protocol, lo, hi, ..said };
        match out.last_mut() {
            Some(last) if last.hi.checked_add(1) == Some(lo) && is_same(last, &said, tell_rules_apart) => {
                last.hi = hi;
            }
            _ => out.push(said),
        }
    }
    out
}

/// Whether two intervals say the same. Which rule of the Normal tier it is need not be told apart; ranks must be.
fn is_same(a: &PortRule, b: &PortRule, tell_rules_apart: bool) -> bool {
    let tiers = |r: &PortRule| (r.admin, r.admin_rank, r.baseline, r.baseline_rank);
    let rules = a.cookie == b.cookie || !tell_rules_apart && dns(a.cookie) == dns(b.cookie);
    a.normal == b.normal && rules && tiers(a) == tiers(b)
}

/// What each tier says, on no ports yet; `None` if none says anything.
fn resolve(claims: &[Claim], protocol: u8, port: u16) -> Option<PortRule> {
    let covering = |tier| claims.iter().filter(move |c| c.tier == tier && c.covers(protocol, port));
    let (normal, cookie) = normal(covering(Tier::Normal));
    let (admin, admin_rank) = first(covering(Tier::Admin));
    let (baseline, baseline_rank) = first(covering(Tier::Baseline));
    let silent = [normal, admin, baseline] == [OUTCOME_NONE; 3];
    let said = PortRule { normal, cookie, admin, admin_rank, baseline, baseline_rank, ..PortRule::default() };
    (!silent).then_some(said)
}

/// Deny beats allow; the lowest cookie of the winning side is named; DNS is learned if any allowing rule says so.
fn normal<'a>(covering: impl Iterator<Item = &'a Claim> + Clone) -> (u8, u32) {
    let named = |c: &Claim| c.cookie & !COOKIE_DNS;
    if let Some(cookie) = covering.clone().filter(|c| c.effect == Effect::Deny).map(named).min() {
        return (OUTCOME_DENY, cookie);
    }
    let Some(cookie) = covering.clone().map(named).min() else { return (OUTCOME_NONE, 0) };
    (OUTCOME_ALLOW, cookie | covering.fold(0, |bits, c| bits | dns(c.cookie)))
}

/// Outcome and rank of the rule that is asked first.
fn first<'a>(covering: impl Iterator<Item = &'a Claim>) -> (u8, u32) {
    let Some(first) = covering.min_by_key(|c| c.cookie) else { return (OUTCOME_NONE, 0) };
    let outcome = match first.effect {
        Effect::Allow => OUTCOME_ALLOW,
        Effect::Deny => OUTCOME_DENY,
        Effect::Pass => OUTCOME_PASS,
    };
    (outcome, first.cookie)
}

fn dns(cookie: u32) -> u32 {
    cookie & COOKIE_DNS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(proto: u8, lo: u16, hi: u16, effect: Effect, cookie: u32) -> Claim {
        Claim { proto, lo, hi, tier: Tier::Normal, effect, cookie }
    }

    fn check(claims: &[Claim], want: &[(u8, u16, u16, u8, u32)]) {
        let (exact, any) = intervals(claims, true);
        let got: Vec<_> =
            exact.iter().chain(&any).map(|r| (r.proto, r.lo, r.hi, r.normal, r.cookie)).collect();
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
            &[(255, 53, 53, 1, 2), (0, 0, 65535, 2, 1)],
        );
    }

    #[test]
    fn tiers_stand_side_by_side() {
        use Effect::{Allow, Deny, Pass};
        let at = |tier, claim| Claim { tier, ..claim };
        let claims = [
            at(Tier::Admin, claim(6, 80, 90, Pass, 7)),
            at(Tier::Admin, claim(6, 85, 100, Deny, 8)),
            at(Tier::Baseline, claim(0, 0, 65535, Deny, 9)),
            claim(6, 90, 95, Allow, 1),
        ];
        let (exact, any) = intervals(&claims, true);
        let said =
            |r: &PortRule| (r.lo, r.hi, (r.admin, r.admin_rank), r.normal, (r.baseline, r.baseline_rank));
        let got: Vec<_> = exact.iter().chain(&any).map(said).collect();
        let base = (OUTCOME_DENY, 9);
        let want = [
            (0, 79, (OUTCOME_NONE, 0), OUTCOME_NONE, base),
            (80, 89, (OUTCOME_PASS, 7), OUTCOME_NONE, base),
            (90, 90, (OUTCOME_PASS, 7), OUTCOME_ALLOW, base),
            (91, 95, (OUTCOME_DENY, 8), OUTCOME_ALLOW, base),
            (96, 100, (OUTCOME_DENY, 8), OUTCOME_NONE, base),
            (101, 65535, (OUTCOME_NONE, 0), OUTCOME_NONE, base),
            (0, 65535, (OUTCOME_NONE, 0), OUTCOME_NONE, base),
        ];
        assert_eq!(got, want);
        // Where there are too many, rules of the Normal tier are not told apart, and ranks are.
        let ranked = |i: u16| at(Tier::Admin, claim(6, i, i, Deny, u32::from(i) + 1));
        assert_eq!(chunks(&(0..121).map(ranked).collect::<Vec<_>>()), Err(TooMany(121)));
    }

    #[test]
    fn a_class_has_a_limit() {
        let scattered = |n: u16| -> Vec<Claim> {
            (0..n).map(|i| claim(6, i * 2, i * 2, Effect::Allow, u32::from(i) + 1)).collect()
        };
        assert_eq!(chunks(&scattered(120)).map(|c| c.len()), Ok(15));
        assert_eq!(chunks(&scattered(121)), Err(TooMany(121)));
        let every = claim(0, 0, u16::MAX, Effect::Deny, 999);
        let asks = |n: u16| -> Vec<Claim> {
            (0..n).map(|i| claim(255, i * 2, i * 2, Effect::Allow, u32::from(i) + 1)).chain([every]).collect()
        };
        assert_eq!(chunks(&asks(119)).map(|c| (c.len(), c[0].rules[7].proto)), Ok((15, 0)));
        assert_eq!(chunks(&asks(120)), Err(TooMany(120)));
        let touching: Vec<Claim> =
            (0..500).map(|i| claim(6, i, i, Effect::Allow, u32::from(i) + 1)).collect();
        let merged = chunks(&touching).unwrap();
        assert_eq!((merged.len(), merged[0].count, merged[0].more, merged[0].rules[0].hi), (1, 1, 0, 499));
    }
}
