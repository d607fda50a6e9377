//! Answers about the state, as values that anybody may have.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use egret_common::grant::{self, GrantTime, secs_of_ticks};
use egret_common::ids::identity;
use egret_common::maps::ENDPOINT_AUDIT;
use egret_common::net::Direction;
use egret_common::verdict::DropReason;
use egret_core::desired::{Desired, MapOp, diff};
use egret_core::labels::printed;
use egret_core::names::Pattern;
use serde::Serialize;

use super::keeper::Keeper;
use super::registry::Entry;
use crate::api::{self, Answer, Request};
use crate::learn::{ip, now};
use crate::run::report::rfc3339;
use crate::source::Drops;

/// Reserved identities, as Cilium names them.
pub(super) const RESERVED: [(u32, &str); 4] = [
    (1, "reserved:host"),
    (2, "reserved:world"),
    (6, "reserved:remote-node"),
    (7, "reserved:kube-apiserver"),
];

/// Reason of a packet that was let through.
const FORWARDED: &str = "Forwarded";

impl Keeper {
    /// Answers one request.
    pub(super) fn answer(&self, request: &Request) -> Answer {
        match request {
            Request::Status => value(self.status()),
            Request::Endpoints => {
                let mut all: Vec<_> = self.registry.iter().map(|entry| self.endpoint(entry)).collect();
                all.sort_by_key(|endpoint| endpoint.id);
                value(all)
            }
            Request::Endpoint { id } => match self.registry.get(*id) {
                Some(entry) => value(self.endpoint(entry)),
                None => Answer::Error(format!("no endpoint {id}")),
            },
            Request::Identities => value(self.identities()),
            Request::Names { endpoint, pattern } => self.names(*endpoint, pattern.as_deref()),
            Request::Policies => value(self.policies()),
            Request::Explain { from, to } => self.explain(from, to),
            Request::Services => value(self.services()),
            Request::Maps { map } => self.maps(map.as_deref()),
        }
    }

    fn status(&self) -> api::Status {
        let problems = self.all_problems();
        let lost = self.datapath.lost();
        let lost = [
            ("flow-events", lost.flow_events),
            ("dns-events", lost.dns_events),
            ("scratch", lost.scratch),
            ("agent-events", self.observer.missed_events()),
        ];
        let not_exported = self.observer.not_exported().map(|count| ("exported-flows", count));
        let fill = self.datapath.fill().into_iter();
        let held = |entry: &&Entry| entry.held.as_ref().is_ok_and(|held| held.attached);
        api::Status {
            state: if problems.is_empty() { "ok" } else { "degraded" }.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            node: self.setting.node.clone(),
            source: self.told.name.clone(),
            started: rfc3339(self.setting.started),
            datapath: self.setting.method.to_string(),
            startup: self.startup(),
            unknown_drops: self.datapath.counters(0).iter().map(|row| row.packets).sum(),
            adopted: self.setting.adopted,
            mode: self.setting.mode().into(),
            endpoints_ready: self.registry.iter().filter(held).count(),
            endpoints: self.registry.iter().count(),
            identities: self.objects.labels(&self.picture).count(),
            policies: self.objects.policies().count(),
            revision: self.revision,
            resolvers: self
                .picture
                .resolvers(&self.setting.trusted)
                .iter()
                .map(ToString::to_string)
                .collect(),
            maps: fill
                .map(|m| api::MapFill { name: m.name.into(), entries: m.entries, capacity: m.capacity })
                .collect(),
            lost: lost
                .into_iter()
                .chain(not_exported)
                .map(|(kind, count)| (kind.to_owned(), count))
                .collect(),
            problems,
        }
    }

    /// What stands between the newest objects and what is in force.
    fn obstacles(&self) -> Vec<String> {
        self.trouble.iter().chain(&self.refused).chain(&self.incomplete).cloned().collect()
    }

    fn all_problems(&self) -> Vec<String> {
        let mut all = self.obstacles();
        all.extend(self.observer.trouble());
        all.extend(self.objects.diagnostics(&self.picture).iter().cloned());
        for entry in self.registry.iter() {
            if let Err(why) = &entry.held {
                all.push(format!("{} is not found: {why}", entry.pod.name));
            }
        }
        all.extend(
            self.registry.crowded_out().iter().map(|pod| format!("{pod} is NOT held: too many endpoints")),
        );
        all.extend(self.problems.iter().map(|(what, count)| format!("{what} ({count} times)")));
        all
    }

    fn endpoint(&self, entry: &Entry) -> api::Endpoint {
        let audit = self.spec(entry).flags & ENDPOINT_AUDIT != 0;
        let enforcement = |direction| {
            let enforced = entry.pod.policies.iter().any(|p| p.may_deny(direction));
            match (enforced, audit) {
                (true, false) => "Enabled",
                (true, true) => "Disabled (Audit)",
                (false, _) => "Disabled",
            }
        };
        let (state, at) = match &entry.held {
            Ok(held) if held.attached => ("ready", held.spot.to_string()),
            Ok(held) => ("not-ready", held.spot.to_string()),
            Err(why) => ("waiting", why.clone()),
        };
        api::Endpoint {
            id: entry.id,
            pod: entry.pod.name.clone(),
            uid: entry.pod.uid.clone(),
            state: state.into(),
            at,
            ingress: enforcement(Direction::Ingress).into(),
            egress: enforcement(Direction::Egress).into(),
            identity: entry.pod.identity,
            labels: entry.pod.profile.labels.clone(),
            addresses: entry.pod.ips.iter().copied().collect(),
            policies: entry.pod.policies.iter().map(|p| p.origin().to_string()).collect(),
            counters: self.counters(entry.id),
        }
    }

    fn counters(&self, id: u32) -> Vec<api::Counter> {
        let name = |reason: u8| match reason {
            0 => FORWARDED,
            _ => DropReason::from_u8(reason).map_or("Unknown", DropReason::name),
        };
        let rows = self.datapath.counters(id).into_iter();
        rows.map(|row| api::Counter {
            direction: row.direction.name().into(),
            reason: name(row.reason).into(),
            packets: row.packets,
            bytes: row.bytes,
        })
        .collect()
    }

    /// Packets of each pod (namespace, name) that were dropped, by reason.
    pub(super) fn drops(&self) -> Drops {
        let mut drops = Drops::new();
        for entry in self.registry.iter() {
            let Some((namespace, name)) = entry.pod.name.split_once('/') else { continue };
            let of_pod = drops.entry((namespace.to_owned(), name.to_owned())).or_default();
            for row in self.counters(entry.id).into_iter().filter(|row| row.reason != FORWARDED) {
                *of_pod.entry(row.reason).or_default() += row.packets;
            }
        }
        drops
    }

    fn identities(&self) -> Vec<api::Identity> {
        let reserved = RESERVED.map(|(id, label)| api::Identity { id, labels: vec![label.to_owned()] });
        let pods = self
            .objects
            .labels(&self.picture)
            .map(|(id, labels)| api::Identity { id, labels: printed(labels).collect() });
        reserved.into_iter().chain(pods).collect()
    }

    fn services(&self) -> Vec<api::Service> {
        let backend = |(ip, port): &(IpAddr, u16)| {
            let (ip, port) = (*ip, *port);
            api::Backend { ip, port, labels: self.labels_at(ip) }
        };
        let services = self.picture.service_entries().iter().map(|entry| api::Service {
            vip: entry.vip,
            port: entry.port,
            proto: entry.proto.to_string(),
            backends: entry.backends.iter().map(backend).collect(),
        });
        services.collect()
    }

    /// Of the identity that the address has now.
    fn labels_at(&self, address: IpAddr) -> Vec<String> {
        let number = self.picture.identity(address).unwrap_or(identity::WORLD);
        let reserved = RESERVED.iter().find(|(known, _)| *known == number);
        let pod = self.picture.labels_of(number).into_iter().flat_map(printed);
        reserved.map(|(_, label)| (*label).to_owned()).into_iter().chain(pod).collect()
    }

    fn names(&self, endpoint: Option<u32>, pattern: Option<&str>) -> Answer {
        let pattern = match pattern.map(Pattern::match_pattern).transpose() {
            Ok(pattern) => pattern,
            Err(error) => return Answer::Error(error.to_string()),
        };
        let now = now();
        let mut rows: BTreeMap<(u32, String, GrantTime), Vec<IpAddr>> = BTreeMap::new();
        for (id, cache) in self.learner.state().caches().filter(|(id, _)| endpoint.is_none_or(|e| e == *id)) {
            for (name, ip, expires) in cache.iter() {
                if pattern.as_ref().is_none_or(|p| p.matches(name)) {
                    rows.entry((id, format!("{name}."), expires)).or_default().push(ip);
                }
            }
        }
        let told = rows.into_iter().map(|((endpoint, fqdn, expires), ips)| {
            let ttl = seconds_left(expires, now);
            api::Told {
                endpoint,
                source: "lookup".into(),
                fqdn,
                ttl,
                expiration_time: rfc3339(from_now(ttl)),
                ips,
            }
        });
        value(told.collect::<Vec<_>>())
    }

    fn policies(&self) -> api::Policies {
        let mut diagnostics = self.obstacles();
        diagnostics.extend(self.objects.diagnostics(&self.picture).iter().cloned());
        let policies = self.objects.policies().map(|p| self.objects.describe(p)).collect();
        api::Policies { revision: self.revision, policies, diagnostics }
    }

    fn maps(&self, wanted: Option<&str>) -> Answer {
        let mut maps: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut add = |map: &str, line: String| maps.entry(map.to_owned()).or_default().push(line);
        for op in diff(&Desired::default(), &self.datapath.content()) {
            let MapOp::Put(entry) = op else { continue };
            let text = entry.to_string();
            let (map, line) = text.split_once(' ').unwrap_or((&text, ""));
            add(map, line.to_owned());
        }
        for (ifindex, id) in self.datapath.bound_interfaces() {
            add("ENDPOINT_BY_IFINDEX", format!("{ifindex} -> {id}"));
        }
        for (key, grants) in self.datapath.grants() {
            for slot in grants.slots.iter().filter(|slot| **slot != 0) {
                let (class, left) = (grant::class(*slot), seconds_left(grant::expires(*slot), now()));
                add(
                    "GRANTS",
                    format!("endpoint {} {} -> {class:#x} for {left} s", key.endpoint, ip(key.addr)),
                );
            }
        }
        let mut maps: Vec<api::Map> =
            maps.into_iter().map(|(name, entries)| api::Map { name, entries }).collect();
        if let Some(wanted) = wanted {
            maps.retain(|map| map.name.eq_ignore_ascii_case(wanted));
        }
        value(maps)
    }
}

pub(super) fn value(of: impl Serialize) -> Answer {
    match serde_json::to_value(of) {
        Ok(value) => Answer::Ok(value),
        Err(error) => Answer::Error(error.to_string()),
    }
}

/// Negative: so long ago.
fn seconds_left(expires: GrantTime, now: GrantTime) -> i64 {
    match expires.checked_sub(now) {
        Some(left) => secs_of_ticks(left).into(),
        None => -i64::from(secs_of_ticks(now - expires)),
    }
}

fn from_now(seconds: i64) -> SystemTime {
    let (now, span) = (SystemTime::now(), Duration::from_secs(seconds.unsigned_abs()));
    let then = if seconds < 0 { now.checked_sub(span) } else { now.checked_add(span) };
    then.unwrap_or(now)
}
