//! The kernel's scanner, driven on the host, against the full parser and the compiled name tables: it may know less,
//! never something else.

use std::{cell::RefCell, collections::BTreeSet, str::FromStr};

use egret_common::{
    dns::{ForLoop, Names, Outcome, Scratch, WireName, classify, credited, scan_answer},
    ids::ClassId,
    maps::SuffixClasses,
};
use egret_core::{
    compile::{Book, EndpointSpec, NamesAsk, World, addr, compile},
    desired::{Desired, Suffix},
    dns::{lifetime::Lifetime, parse::parse_answer},
    names::Name,
};
use hickory_proto::{
    op::{Message, OpCode, Query},
    rr::{
        Name as Wire, RData, Record, RecordType,
        rdata::{A, AAAA, CNAME},
    },
};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

/// The name tables as the kernel reads them.
struct Maps<'a>(&'a Desired);

impl Names for Maps<'_> {
    fn exact(&self, name: &WireName) -> Option<ClassId> {
        self.0.name_exact.iter().find(|(n, _)| n.to_key() == name.0).map(|(_, class)| *class)
    }

    fn suffix(&self, scratch: &mut Scratch, start: u32, bits: u32) -> Option<SuffixClasses> {
        let text = &scratch.rev[start as usize + 4..][..bits as usize / 8];
        let text = String::from_utf8(text.to_vec()).unwrap();
        let hits = self.0.name_suffix.iter().filter(|(Suffix(s), _)| text.starts_with(s.as_str()));
        hits.max_by_key(|(Suffix(s), _)| s.len()).map(|(_, classes)| *classes)
    }
}

fn scratch() -> Box<Scratch> {
    Box::new(Scratch::new())
}

fn load(s: &mut Scratch, bytes: &[u8]) {
    s.msg[..bytes.len()].copy_from_slice(bytes);
    s.len = bytes.len() as u32;
}

thread_local! {
    static SCRATCH: RefCell<Box<Scratch>> = RefCell::new(scratch());
}

fn message(question: &str, records: &[(u8, &str, &str, u32)]) -> Vec<u8> {
    let wire = |n: &str| Wire::from_str(&format!("{n}.")).unwrap();
    let mut m = Message::response(7, OpCode::Query);
    m.add_query(Query::query(wire(question), RecordType::A));
    m.add_answers(records.iter().map(|(kind, owner, target, ttl)| {
        let data = match kind {
            0 => RData::CNAME(CNAME(wire(target))),
            1 => RData::A(A([192, 0, 2, *ttl as u8].into())),
            _ => RData::AAAA(AAAA([0x2001, 0xdb8, 0, 0, 0, 0, 0, *ttl as u16].into())),
        };
        Record::from_rdata(wire(owner), *ttl, data)
    }));
    m.to_vec().unwrap()
}

fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let name = || select(&["a.x", "b.x", "c.b.x", "A.X", "y"][..]);
    let record = (0..3u8, name(), name(), 0..90u32);
    (name(), vec(record, 0..6)).prop_map(|(question, records)| message(question, &records))
}

/// Whatever the scanner is sure of, the parser says as well, to the second.
fn agree(bytes: &[u8]) -> Result<bool, TestCaseError> {
    SCRATCH.with_borrow_mut(|s| {
        load(s, bytes);
        if scan_answer::<ForLoop>(s) != Outcome::Proven {
            return Ok(false);
        }
        let answer = match parse_answer(bytes) {
            Ok(answer) => answer,
            Err(e) => {
                prop_assert_eq!(s.address_count, 0, "the parser refuses: {}", e);
                return Ok(false);
            }
        };
        let scanned: BTreeSet<_> =
            (0..s.address_count).map(|i| credited(s, i)).map(|c| (c.addr, c.ttl)).collect();
        let parsed: BTreeSet<_> = answer.addresses.iter().map(|l| (addr(l.address), l.ttl)).collect();
        prop_assert_eq!(scanned, parsed);
        Ok(s.address_count != 0)
    })
}

/// `usual` cases, or what `cargo xtask soak` asks for (`EGRET_FUZZ`).
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("EGRET_FUZZ").ok();
    ProptestConfig::with_cases(asked.map_or(usual, |asked| asked.parse().expect("EGRET_FUZZ is a number")))
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn w_a14_the_scanner_never_knows_more_than_the_parser(bytes in any_message(), edits in vec((any::<Index>(), any::<u8>()), 0..3)) {
        agree(&bytes)?;
        let mut bytes = bytes;
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        agree(&bytes)?;
    }
}

#[test]
fn the_scanner_proves_the_usual_answers() {
    for records in [
        &[(1, "a.x", "", 5)][..],
        &[(0, "a.x", "b.x", 5), (1, "b.x", "", 9)],
        &[(0, "b.x", "c.b.x", 5), (1, "c.b.x", "", 9), (0, "a.x", "b.x", 7)],
        &[(1, "a.x", "", 5), (1, "a.x", "", 6), (2, "a.x", "", 7)],
        // The top bit makes 0 of a TTL before the least one is chosen (W-A13).
        &[(0, "a.x", "b.x", 1 << 31), (0, "b.x", "c.b.x", 5), (1, "c.b.x", "", 9)],
        &[(1, "a.x", "", 1 << 31)],
    ] {
        assert!(agree(&message("a.x", records)).unwrap(), "{records:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn n_a01_the_kernels_look_up_and_the_tables_agree(policies in crate::support::any_policies(), names in vec(crate::support::any_name(), 24)) {
        let world = World {
            search: crate::support::search(),
            cluster_domain: None,
            resolvers: BTreeSet::new(),
            identities: crate::support::identities(),
            peers: Default::default(),
            names_ask: NamesAsk::Yes,
            seen_names: BTreeSet::new(),
        };
        let spec = EndpointSpec { id: 1, identity: 0, flags: 0, lifetime: Lifetime::default(), ports: Default::default(), policies: policies.into() };
        let compiled = compile(&world, &[spec], &mut Book::default()).unwrap();
        for name in names {
            let bytes = message(&name.to_string().to_uppercase(), &[]);
            let class = SCRATCH.with_borrow_mut(|s| {
                load(s, &bytes);
                scan_answer::<ForLoop>(s);
                classify(&Maps(&compiled.desired), s)
            });
            prop_assert_eq!(class, compiled.desired.name_class(&name), "{}", name);
        }
    }
}

#[test]
fn n_a03_the_longest_name_fits_the_key() {
    let long = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
    let key = Name::parse(&long).unwrap().to_key();
    assert_eq!((key[0], key[253], key[254], key[255]), (63, b'b', 0, 0));
}
