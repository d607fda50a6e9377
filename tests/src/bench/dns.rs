//! Nanoseconds per DNS query and answer through the real programs: the query is remembered, the answer scanned,
//! its addresses granted.

use std::net::Ipv4Addr;

use egret::datapath::{DnsRecord, Ring};
use egret_common::maps::{ENDPOINT_QUERY_FILTER, ENDPOINT_REJECT};
use egret_tests::arena::Arena;
use egret_tests::dnsd::raw::{self, Message, QNAME, rtype};

use super::packets::NAME;
use super::setup;
use super::stats::median;
use super::table::{Budget, Table};

const PAIRS: u16 = 400;
/// An answer that was given is unasked for when it comes again: scanned and handed on, not learned.
const REPEAT: u32 = 32;
const LOCAL_PORT: u16 = 40_000;

pub(super) fn run() -> Table {
    let flags = ENDPOINT_QUERY_FILTER | ENDPOINT_REJECT;
    let (mut arena, _) = setup::arena(0, &[format!("{NAME}:443")], flags);
    let ring = arena.take_dns_ring();
    let mut bench = Bench { arena, ring };
    let mut table =
        Table::of_ns("DNS over UDP: a query and its answer, single runs (cold) where nothing else is said");
    for records in [1, 8, 32] {
        bench.lines(&mut table, records);
    }
    let (grants, lost) = (bench.arena.grants().len(), bench.arena.lost());
    table.note(format!("every answer was learned by the kernel: {grants} grants; {lost:?}"));
    table
}

struct Bench {
    arena: Arena,
    ring: Ring<DnsRecord<'static>>,
}

impl Bench {
    fn lines(&mut self, table: &mut Table, records: u8) {
        let before = self.arena.grants().len();
        let (queries, fresh) = self.pairs(records, |id| id);
        let learned = self.arena.grants().len() - before;
        assert_eq!(learned, usize::from(PAIRS) * usize::from(records), "not every answer was learned");
        let (_, known) = self.pairs(records, |_| 0);
        let frame = setup::dns(false, LOCAL_PORT, &answer(0, 0, records));
        let unasked: Vec<u64> = (0..PAIRS).map(|_| self.run("egret_ingress", &frame, REPEAT)).collect();
        let both = median(&queries) + median(&known);
        let budget = (records == 1).then_some(Budget { ns: 2000, times: None });
        if records == 1 {
            table.ns("query", median(&queries), None, None);
            let frame = setup::dns(true, LOCAL_PORT, &raw::query(0, NAME, rtype::A));
            let times: Vec<u64> = (0..PAIRS).map(|_| self.run("egret_egress", &frame, REPEAT)).collect();
            table.ns("query (repeated)", median(&times), None, None);
        }
        table.ns(&format!("answer, {records} new addresses"), median(&fresh), None, None);
        table.ns(&format!("answer, {records} addresses as before"), median(&known), None, None);
        table.ns(
            &format!("answer, {records} addresses, not asked for (repeated)"),
            median(&unasked),
            None,
            None,
        );
        table.ns(&format!("query and answer, {records} addresses as before"), both, None, budget);
    }

    /// Times of queries and of their answers; `block` says whose addresses an answer has.
    fn pairs(&mut self, records: u8, block: fn(u16) -> u16) -> (Vec<u64>, Vec<u64>) {
        let mut times = (Vec::new(), Vec::new());
        for id in 0..PAIRS {
            let query = setup::dns(true, LOCAL_PORT, &raw::query(id, NAME, rtype::A));
            times.0.push(self.run("egret_egress", &query, 1));
            let answer = setup::dns(false, LOCAL_PORT, &answer(id, block(id), records));
            times.1.push(self.run("egret_ingress", &answer, 1));
        }
        times
    }

    fn run(&mut self, program: &'static str, frame: &[u8], repeat: u32) -> u64 {
        let (value, ns) = setup::run(&self.arena, program, frame, repeat);
        assert_eq!(value, 1, "{program} did not let a message pass");
        self.ring.drain(|_| ());
        ns
    }
}

/// An answer to query `id` with the `block`th `records` addresses.
fn answer(id: u16, block: u16, records: u8) -> Vec<u8> {
    let mut message = Message::new(id, raw::ANSWER).question(NAME, rtype::A).section(1);
    for record in 0..records {
        // Answers of 1, 8 and 32 have nets of their own.
        let net = Ipv4Addr::new(100, 64 + records, 0, 0).to_bits();
        let address = net + u32::from(block) * 64 + u32::from(record);
        message = message.address(QNAME, 300, &Ipv4Addr::from_bits(address).to_string());
    }
    message.finish()
}
