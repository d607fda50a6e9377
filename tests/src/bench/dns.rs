//! Nanoseconds per DNS query and answer through the real programs: the query is remembered, the answer scanned,
//! its addresses granted.

use std::net::Ipv4Addr;

use egret_common::maps::{ENDPOINT_QUERY_FILTER, ENDPOINT_REJECT};
use egret_tests::arena::Arena;
use egret_tests::dnsd::raw::{self, Message, QNAME, rtype};

use super::packets::NAME;
use super::setup;
use super::stats::median;
use super::table::{Budget, Table};

const PAIRS: u16 = 400;
const LOCAL_PORT: u16 = 40_000;

pub(super) fn run() -> Table {
    let flags = ENDPOINT_QUERY_FILTER | ENDPOINT_REJECT;
    let (mut arena, _) = setup::arena(0, &[format!("{NAME}:443")], flags);
    let mut ring = arena.take_dns_ring();
    let mut table = Table::of_ns("DNS over UDP: one query and its answer, single runs");
    for records in [1, 8, 32] {
        let before = arena.grants().len();
        let (mut queries, mut fresh, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for (round, answers) in [&mut fresh, &mut known].into_iter().enumerate() {
            for id in 0..PAIRS {
                let (query, answer) = pair(&arena, id, records);
                queries.push(query);
                answers.push(answer);
                if id % 32 == 0 {
                    ring.drain(|_| ());
                }
            }
            let learned = arena.grants().len() - before;
            assert_eq!(learned, usize::from(PAIRS) * usize::from(records), "round {round}");
        }
        let budget = (records == 1).then_some(Budget { ns: 2000, times: None });
        let query = median(&queries);
        table.ns(&format!("query (answer has {records})"), query, None, None);
        table.ns(&format!("answer, {records} new addresses"), median(&fresh), None, None);
        table.ns(&format!("answer, {records} known addresses"), median(&known), None, None);
        table.ns(&format!("query and answer, {records} new"), query + median(&fresh), None, budget);
    }
    table.note(format!(
        "every answer was learned by the kernel: {} grants; lost {:?}",
        arena.grants().len(),
        arena.lost()
    ));
    table
}

/// Times of a query and of its answer.
fn pair(arena: &Arena, id: u16, records: u8) -> (u64, u64) {
    let query = setup::dns(true, LOCAL_PORT, &raw::query(id, NAME, rtype::A));
    let (passed, asked) = setup::run(arena, "egret_egress", &query, 1);
    let answer = setup::dns(false, LOCAL_PORT, &answer(id, records));
    let (delivered, told) = setup::run(arena, "egret_ingress", &answer, 1);
    assert_eq!((passed, delivered), (1, 1), "a query or its answer did not pass");
    (asked, told)
}

/// `records` addresses that no other answer has.
fn answer(id: u16, records: u8) -> Vec<u8> {
    let mut message = Message::new(id, raw::ANSWER).question(NAME, rtype::A).section(1);
    for record in 0..records {
        // Answers of 1, 8 and 32 have nets of their own.
        let address =
            Ipv4Addr::new(100, 64 + records, 0, 0).to_bits() + u32::from(id) * 64 + u32::from(record);
        message = message.address(QNAME, 300, &Ipv4Addr::from_bits(address).to_string());
    }
    message.finish()
}
