//! What pods ask and are answered: as tables say it, as bytes, and as what follows from it (RFC 1035, DESIGN 3.4).

use std::net::IpAddr;

use serde::Deserialize;

/// A question, and the answer that comes if it gets through.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// Who asks.
    pub pod: String,
    /// The name.
    pub ask: String,
    /// `svc:namespace/name`, `namespace/pod` or an address.
    #[serde(default = "kube_dns")]
    pub server: String,
    /// Port of the server.
    #[serde(default = "dns_port")]
    pub port: u16,
    /// Over IPv6.
    #[serde(default)]
    pub v6: bool,
    /// Records, in their order.
    #[serde(default)]
    pub answer: Vec<Record>,
    /// What becomes of the question.
    #[serde(default)]
    pub outcome: Asked,
}

fn kube_dns() -> String {
    "svc:kube-system/kube-dns".to_owned()
}

fn dns_port() -> u16 {
    53
}

/// What becomes of a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asked {
    /// It reaches its server, and the answer comes back.
    #[default]
    Answered,
    /// No rule lets this name be asked for.
    Refused,
    /// No rule lets the server be reached.
    Dropped,
}

/// A record of the answer section. Its owner is the question's name or the target of the alias before it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    cname: Option<String>,
    address: Option<IpAddr>,
    /// Another owner.
    owner: Option<String>,
    /// Seconds.
    ttl: u32,
}

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

impl Exchange {
    /// The query.
    #[must_use]
    pub fn query(&self, id: u16) -> Vec<u8> {
        self.head(id, 0x0100, 0)
    }

    /// The answer.
    #[must_use]
    pub fn response(&self, id: u16) -> Vec<u8> {
        let mut bytes = self.head(id, 0x8180, self.answer.len() as u16);
        for (owner, record) in self.owned() {
            let (kind, data) = match (&record.cname, record.address) {
                (Some(target), None) => (CNAME, wire_name(target)),
                (None, Some(IpAddr::V4(ip))) => (A, ip.octets().to_vec()),
                (None, Some(IpAddr::V6(ip))) => (AAAA, ip.octets().to_vec()),
                _ => panic!("{self:?}: a record is either an alias or an address"),
            };
            bytes.extend(wire_name(owner));
            for word in [kind, 1, (record.ttl >> 16) as u16, record.ttl as u16, data.len() as u16] {
                bytes.extend(word.to_be_bytes());
            }
            bytes.extend(data);
        }
        bytes
    }

    /// Addresses that belong to the question, each with its lifetime: the least of the chain that leads to it.
    #[must_use]
    pub fn told(&self) -> Vec<(IpAddr, u32)> {
        let (mut name, mut least) = (self.ask.as_str(), u32::MAX);
        let mut told = Vec::new();
        for (owner, record) in self.owned() {
            if !owner.eq_ignore_ascii_case(name) {
                continue;
            }
            match (&record.cname, record.address) {
                (Some(target), _) => (name, least) = (target, least.min(record.ttl)),
                (None, address) => told.extend(address.map(|ip| (ip, least.min(record.ttl)))),
            }
        }
        told
    }

    /// The target of the question's own alias.
    #[must_use]
    pub fn first_alias(&self) -> Option<&str> {
        self.answer.first().filter(|r| r.owner.is_none())?.cname.as_deref()
    }

    fn owned(&self) -> Vec<(&str, &Record)> {
        let mut owner = self.ask.as_str();
        let mut out = Vec::new();
        for record in &self.answer {
            out.push((record.owner.as_deref().unwrap_or(owner), record));
            owner = record.cname.as_deref().unwrap_or(owner);
        }
        out
    }

    fn head(&self, id: u16, flags: u16, answers: u16) -> Vec<u8> {
        let kind =
            if self.answer.iter().any(|r| r.address.is_some_and(|ip| ip.is_ipv6())) { AAAA } else { A };
        let mut bytes = Vec::new();
        for word in [id, flags, 1, answers, 0, 0] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(wire_name(&self.ask));
        bytes.extend([kind, 1].map(u16::to_be_bytes).concat());
        bytes
    }
}

fn wire_name(text: &str) -> Vec<u8> {
    let labels = text.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> = labels.flat_map(|l| [&[l.len() as u8], l.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}
