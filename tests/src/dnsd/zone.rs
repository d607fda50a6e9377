//! Names with their records: the convenient way to answer. Mutable while the resolver runs.

use std::collections::HashMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::svcb::{Alpn, IpHint, SVCB, SvcParamKey, SvcParamValue};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, HTTPS, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::{Action, Handler, Query, Transport, handler};

type Choose = Arc<dyn Fn(RecordType) -> Vec<IpAddr> + Send + Sync>;

/// A table of names. Clones show the same table. Unknown names get NXDOMAIN, known names without the
/// type get an empty answer; CNAMEs are followed inside the table.
#[derive(Clone, Default)]
pub struct Zone(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    nodes: HashMap<String, Node>,
    tc_above: Option<usize>,
    delay: Duration,
}

#[derive(Clone, Default)]
struct Node {
    records: Vec<(u32, RData)>,
    choose: Option<(u32, Choose)>,
    additional: Vec<Record>,
    rcode: Option<ResponseCode>,
}

impl Zone {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds addresses of either family to a name.
    pub fn add(&self, name: &str, ttl: u32, addresses: &[&str]) -> &Self {
        for address in addresses {
            self.record(name, ttl, rdata(parse(address)));
        }
        self
    }

    /// Replaces all of a name by these addresses.
    pub fn set(&self, name: &str, ttl: u32, addresses: &[&str]) -> &Self {
        self.remove(name).add(name, ttl, addresses)
    }

    /// Adds an alias.
    pub fn cname(&self, name: &str, ttl: u32, target: &str) -> &Self {
        self.record(name, ttl, RData::CNAME(CNAME(fqdn(target))))
    }

    /// Adds an SRV record, and the target's addresses to the additional section if it has any.
    pub fn srv(&self, name: &str, ttl: u32, port: u16, target: &str) -> &Self {
        let glue = self.lookup(target);
        self.table().node(name).additional.extend(glue);
        self.record(name, ttl, RData::SRV(SRV::new(0, 0, port, fqdn(target))))
    }

    /// Adds an HTTPS record (priority 1, target the owner, ALPN h3 and h2) with address hints.
    pub fn https(&self, name: &str, ttl: u32, hints: &[&str]) -> &Self {
        let hints: Vec<IpAddr> = hints.iter().map(|hint| parse(hint)).collect();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        hints.iter().for_each(|hint| match hint {
            IpAddr::V4(address) => v4.push(A(*address)),
            IpAddr::V6(address) => v6.push(AAAA(*address)),
        });
        let alpn = SvcParamValue::Alpn(Alpn(vec!["h3".into(), "h2".into()]));
        let mut params = vec![(SvcParamKey::Alpn, alpn)];
        if !v4.is_empty() {
            params.push((SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(v4))));
        }
        if !v6.is_empty() {
            params.push((SvcParamKey::Ipv6Hint, SvcParamValue::Ipv6Hint(IpHint(v6))));
        }
        self.record(name, ttl, RData::HTTPS(HTTPS(SVCB::new(1, Name::root(), params))))
    }

    /// Adds a TXT record.
    pub fn txt(&self, name: &str, ttl: u32, text: &str) -> &Self {
        self.record(name, ttl, RData::TXT(TXT::new(vec![text.into()])))
    }

    /// Adds any record.
    pub fn record(&self, name: &str, ttl: u32, data: RData) -> &Self {
        self.table().node(name).records.push((ttl, data));
        self
    }

    /// Each further query of a type gets the next of `sets`, then again the first.
    pub fn rotate(&self, name: &str, ttl: u32, sets: &[&[&str]]) -> &Self {
        let sets: Vec<Vec<IpAddr>> =
            sets.iter().map(|set| set.iter().map(|text| parse(text)).collect()).collect();
        let asked = Mutex::new(HashMap::<RecordType, usize>::new());
        self.choose(name, ttl, move |rtype| {
            let mut asked = asked.lock().expect("rotation");
            let turn = asked.entry(rtype).or_default();
            *turn += 1;
            sets[(*turn - 1) % sets.len()].clone()
        })
    }

    /// The addresses of a name come from `choose`, per query; those of the other family are left out.
    pub fn choose(
        &self,
        name: &str,
        ttl: u32,
        choose: impl Fn(RecordType) -> Vec<IpAddr> + Send + Sync + 'static,
    ) -> &Self {
        self.table().node(name).choose = Some((ttl, Arc::new(choose)));
        self
    }

    /// The name is answered by this code alone.
    pub fn rcode(&self, name: &str, code: ResponseCode) -> &Self {
        self.table().node(name).rcode = Some(code);
        self
    }

    /// Forgets a name.
    pub fn remove(&self, name: &str) -> &Self {
        self.table().nodes.remove(&key(name));
        self
    }

    /// UDP answers longer than this are cut to their question, with TC set.
    pub fn tc_above(&self, limit: Option<usize>) -> &Self {
        self.table().tc_above = limit;
        self
    }

    /// Every answer waits this long.
    pub fn delay(&self, pause: Duration) -> &Self {
        self.table().delay = pause;
        self
    }

    /// The answer to `query`, compressed, its question's bytes as they came.
    pub fn answer(&self, query: &Query) -> Vec<u8> {
        let Ok(asked) = Message::from_vec(&query.bytes) else {
            return super::raw::Message::reply(query, 0x8181).finish();
        };
        let table = self.table();
        let mut answer = table.message(&asked);
        let mut bytes = answer.to_vec().expect("encode an answer");
        if query.transport == Transport::Udp && table.tc_above.is_some_and(|limit| bytes.len() > limit) {
            answer = answer.truncate();
            answer.metadata.truncation = true;
            bytes = answer.to_vec().expect("encode a truncated answer");
        }
        let question = query.question();
        bytes[12..12 + question.len()].copy_from_slice(question);
        bytes
    }

    /// This table as a handler.
    pub fn handler(&self) -> Handler {
        let zone = self.clone();
        handler(move |query| {
            let pause = zone.table().delay;
            let answer = Action::Send(zone.answer(query));
            if pause.is_zero() { vec![answer] } else { vec![Action::Delay(pause), answer] }
        })
    }

    fn lookup(&self, name: &str) -> Vec<Record> {
        let table = self.table();
        let records = table.nodes.get(&key(name)).map(|node| node.records.clone()).unwrap_or_default();
        records.into_iter().map(|(ttl, data)| Record::from_rdata(fqdn(name), ttl, data)).collect()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().expect("zone")
    }
}

impl Table {
    fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.entry(key(name)).or_default()
    }

    fn message(&self, asked: &Message) -> Message {
        let mut answer = Message::response(asked.metadata.id, OpCode::Query);
        answer.metadata.recursion_desired = asked.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        let Some(question) = asked.queries.first() else {
            answer.metadata.response_code = ResponseCode::FormErr;
            return answer;
        };
        answer.add_query(question.clone());
        if let Some(edns) = &asked.edns {
            let mut ours = hickory_proto::op::Edns::new();
            ours.set_max_payload(edns.max_payload());
            answer.set_edns(ours);
        }
        self.fill(&mut answer, question.name().clone(), question.query_type());
        answer
    }

    /// Follows the chain of aliases from `owner`, which is written as the question wrote it.
    fn fill(&self, answer: &mut Message, mut owner: Name, rtype: RecordType) {
        for _ in 0..32 {
            let Some(node) = self.nodes.get(&key(&owner.to_ascii())) else {
                if answer.answers.is_empty() {
                    answer.metadata.response_code = ResponseCode::NXDomain;
                    answer.add_authority(soa());
                }
                return;
            };
            if let Some(code) = node.rcode {
                answer.metadata.response_code = code;
                return;
            }
            let found = node.records_of(&owner, rtype);
            answer.add_additionals(node.additional.clone());
            if !found.is_empty() {
                answer.add_answers(found);
                return;
            }
            let alias = node.records.iter().find_map(|(ttl, data)| match data {
                RData::CNAME(CNAME(target)) => Some((*ttl, target.clone())),
                _ => None,
            });
            let Some((ttl, target)) = alias else {
                answer.add_authority(soa());
                return;
            };
            answer.add_answer(Record::from_rdata(owner, ttl, RData::CNAME(CNAME(target.clone()))));
            owner = target;
        }
    }
}

impl Node {
    fn records_of(&self, owner: &Name, rtype: RecordType) -> Vec<Record> {
        let wanted = |data: &RData| data.record_type() == rtype || rtype == RecordType::ANY;
        let chosen = self.choose.iter().flat_map(|(ttl, choose)| {
            if !matches!(rtype, RecordType::A | RecordType::AAAA) {
                return Vec::new();
            }
            choose(rtype).into_iter().map(|address| (*ttl, rdata(address))).collect()
        });
        self.records
            .iter()
            .cloned()
            .chain(chosen)
            .filter(|(_, data)| wanted(data))
            .map(|(ttl, data)| Record::from_rdata(owner.clone(), ttl, data))
            .collect()
    }
}

fn key(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn fqdn(name: &str) -> Name {
    let mut name = Name::from_str(name).unwrap_or_else(|error| panic!("name {name}: {error}"));
    name.set_fqdn(true);
    name
}

fn parse(address: &str) -> IpAddr {
    address.parse().unwrap_or_else(|_| panic!("{address} is no address"))
}

fn rdata(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(v4) => RData::A(A(v4)),
        IpAddr::V6(v6) => RData::AAAA(AAAA(v6)),
    }
}

/// Without it, negative answers are not cached (RFC 2308).
fn soa() -> Record {
    let data = SOA::new(fqdn("ns.test"), fqdn("admin.test"), 1, 3600, 600, 86400, 5);
    Record::from_rdata(Name::root(), 5, RData::SOA(data))
}

impl std::fmt::Debug for Zone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.table().nodes.keys()).finish()
    }
}
