//! Lines, as `hubble` prints them.

use egret_common::verdict::{DropReason, Verdict};
use egret_core::flow::{Dns, Entry, Flow as Seen, Kind, L4, Lost, LostSource, Match, Side};

use super::*;
use crate::cli::{Command, parse_from};
use crate::flows::read::tests::full;
use crate::observe::message;

fn answer(seen: &Seen) -> GetFlowsResponse {
    message::response(&Entry::Flow(std::sync::Arc::new(seen.clone())), "n1", None)
}

fn printed(answers: &[GetFlowsResponse], line: &str) -> String {
    let args = ["egret", "observe"].into_iter().chain(line.split_whitespace());
    let Ok(Command::Observe(args)) = parse_from(args).map(|cli| cli.command) else { panic!("{line}") };
    let mut out = Vec::new();
    let mut printer = Printer::new(&mut out, &args.style, args.style.color == crate::cli::ColorWhen::Always);
    answers.iter().try_for_each(|answer| printer.print(answer)).expect("printed");
    printer.end().expect("printed");
    String::from_utf8(out).expect("text")
}

/// A flow of `shop/web` to an address outside.
fn seen() -> Seen {
    let full = full();
    let outside =
        Side { ip: full.destination.ip, identity: 2, names: vec!["api.example".into()], ..Side::default() };
    let source = Side { service: None, ..full.source.clone() };
    Seen { source, destination: outside, ..full }
}

#[track_caller]
fn check(args: &str, change: impl FnOnce(&mut Seen), want: &str) {
    let mut flow = seen();
    change(&mut flow);
    assert_eq!(printed(&[answer(&flow)], args), format!("{want}\n"), "{args}");
}

#[test]
fn a_line_for_each_flow() {
    check(
        "",
        |_| {},
        "Dec  1 15:10:02.123: shop/web:40000 (ID:301) <> api.example:443 (world) policy-verdict:L3-L4 EGRESS DENIED (TCP Flags: SYN, ACK, NS; NameExpired 31 s ago)",
    );
    check(
        "--why --print-policy-names --print-node-name --time-format rfc3339milli",
        |_| {},
        "2025-12-01T15:10:02.123Z [n1]: shop/web:40000 (ID:301) <> api.example:443 (world) policy-verdict:L3-L4 EGRESS DENIED BY a (CiliumNetworkPolicy), b (CiliumNetworkPolicy), c (CiliumNetworkPolicy) (TCP Flags: SYN, ACK, NS; NameExpired 31 s ago)\n    NameExpired: The address was learned. It expired 31 s ago.",
    );
    check(
        "--why",
        |f| {
            (f.verdict, f.reason, f.why, f.is_reply) = (Verdict::Forwarded, None, None, Some(false));
            (f.l4, f.summary, f.matched) = (L4::Udp(5, 53), "UDP".into(), Some(Match::All));
        },
        "Dec  1 15:10:02.123: shop/web:5 (ID:301) -> api.example:53 (world) policy-verdict:all EGRESS ALLOWED (UDP)",
    );
    check(
        "",
        |f| (f.verdict, f.is_reply) = (Verdict::Audited, Some(false)),
        "Dec  1 15:10:02.123: shop/web:40000 (ID:301) -> api.example:443 (world) policy-verdict:L3-L4 EGRESS AUDITED (TCP Flags: SYN, ACK, NS; NameExpired 31 s ago)",
    );
    check(
        "",
        |f| (f.kind, f.matched) = (Kind::Drop, None),
        "Dec  1 15:10:02.123: shop/web:40000 (ID:301) <> api.example:443 (world) Policy denied DROPPED (TCP Flags: SYN, ACK, NS; NameExpired 31 s ago)",
    );
}

#[test]
fn answers_are_turned_round() {
    let dns = Dns { response: true, query: "a.example.".into(), qtypes: vec!["A".into()], ..Dns::default() };
    check(
        "",
        |f| {
            std::mem::swap(&mut f.source, &mut f.destination);
            (f.kind, f.verdict, f.is_reply) = (Kind::L7, Verdict::Forwarded, Some(true));
            (f.l4, f.dns, f.summary) = (L4::Udp(53, 40_000), Some(dns), "DNS Answer".into());
        },
        "Dec  1 15:10:02.123: shop/web:40000 (ID:301) <- api.example:53 (world) dns-response kernel FORWARDED (DNS Answer)",
    );
}

#[test]
fn who_is_at_the_ends() {
    let line = |hosts: &str| {
        let (source, destination) = hosts.split_once(' ').expect("two");
        format!(
            "Dec  1 15:10:02.123: {source} (ID:301) <> {destination} (world) policy-verdict:L3-L4 EGRESS DENIED (x)"
        )
    };
    let check = |args: &str, change: &dyn Fn(&mut Seen), hosts: &str| {
        check(
            args,
            |f| {
                f.summary = "x".into();
                change(f)
            },
            &line(hosts),
        );
    };
    check("--numeric", &|_| {}, "192.0.2.1:40000 192.0.2.2:443");
    check("--ip-translation=false", &|_| {}, "192.0.2.1:40000 192.0.2.2:443");
    check("--ip-translation=true", &|_| {}, "shop/web:40000 api.example:443");
    check("", &|f| f.destination.names = vec![], "shop/web:40000 192.0.2.2:443");
    check("", &|f| f.destination.names.push("b.example".into()), "shop/web:40000 api.example,b.example:443");
    check(
        "--numeric",
        &|f| f.destination.ip = "2001:db8::1".parse().ok(),
        "192.0.2.1:40000 [2001:db8::1]:443",
    );
    check("--numeric", &|f| f.l4 = L4::Icmpv4(8, 0), "192.0.2.1 192.0.2.2");
    let service = |f: &mut Seen| {
        f.destination.service =
            Some(egret_core::flow::ServiceRef { namespace: "front".into(), name: "api".into() });
    };
    check("", &service, "shop/web:40000 front/api:443");
    check(
        "",
        &|f| {
            service(f);
            f.destination.pod = "api-1".into()
        },
        "shop/web:40000 front/api-1:443",
    );
    check("", &|f| f.source.namespace.clear(), "web:40000 api.example:443");
}

#[test]
fn other_shapes() {
    check(
        "-o dict --why --print-node-name",
        |f| f.summary = "x".into(),
        "  TIMESTAMP: Dec  1 15:10:02.123\n       NODE: n1\n     SOURCE: shop/web:40000\nDESTINATION: api.example:443\n       TYPE: policy-verdict:L3-L4 EGRESS\n    VERDICT: DENIED\n    SUMMARY: x\n        WHY: NameExpired: The address was learned. It expired 31 s ago.",
    );
    let mut short = seen();
    (short.summary, short.source.pod, short.verdict) = ("x".into(), "w".into(), Verdict::Audited);
    let two = [answer(&short), answer(&Seen { summary: "y".into(), verdict: Verdict::Dropped, ..seen() })];
    let want = "\
TIMESTAMP             SOURCE           DESTINATION       TYPE                          VERDICT   SUMMARY
Dec  1 15:10:02.123   shop/w:40000     api.example:443   policy-verdict:L3-L4 EGRESS   AUDITED   x
Dec  1 15:10:02.123   shop/web:40000   api.example:443   policy-verdict:L3-L4 EGRESS   DENIED    y
";
    assert_eq!(printed(&two, "-o table"), want);
    // Colours change no column.
    let bright = printed(&two, "-o table --color always");
    assert!(
        bright.contains("\x1b[36mshop/w:40000\x1b[0m     \x1b[36mapi")
            && bright.contains("\x1b[33mAUDITED\x1b[0m   x"),
        "{bright}"
    );
    assert_eq!(printed(&two, "-o dict").matches("------------\n").count(), 1);
    assert_eq!(printed(&two, "-o json").lines().count(), 2);
    assert_eq!(printed(&two, "-o jsonpb"), printed(&two, "-o json"));
}

#[test]
fn losses_are_shown_in_every_shape() {
    let at = 1_764_601_802_123_456_789;
    let lost = |first| Lost { source: LostSource::Kernel, count: 7, first, last: first };
    let answers = [lost(at), lost(0)].map(|lost| message::response(&Entry::Lost(lost), "n1", None));
    let want = "\
Dec  1 15:10:02.123 EVENTS LOST: PERF_EVENT_RING_BUFFER 7 (first: Dec  1 15:10:02.123, last: Dec  1 15:10:02.123)
N/A EVENTS LOST: PERF_EVENT_RING_BUFFER 7
";
    for args in ["", "-o dict", "-o table"] {
        assert_eq!(printed(&answers, args), want);
    }
    assert_eq!(printed(&answers, "-o json").matches("\"num_events_lost\":\"7\"").count(), 2);
}

#[test]
fn nothing_that_a_flow_says_commands_a_terminal() {
    let evil = "\x1b]0;x\x07\u{9b}31m\r\n\u{202e}";
    let mut flow = seen();
    flow.source.pod = evil.into();
    flow.source.namespace = evil.into();
    flow.destination.names = vec![evil.into()];
    flow.summary = evil.into();
    flow.why = Some(evil.into());
    flow.node = std::sync::Arc::new(egret_core::flow::NodeInfo { name: evil.into(), labels: vec![] });
    flow.denied_by[0].name = evil.into();
    flow.denied_by[0].kind = evil.into();
    let mut l7 = answer(&flow);
    if let Some(ResponseTypes::Flow(flow)) = &mut l7.response_types {
        flow.l7 = Some(crate::observe::proto::flow::Layer7 {
            record: Some(crate::observe::proto::flow::layer7::Record::Dns(
                crate::observe::proto::flow::Dns { observation_source: evil.into(), ..Default::default() },
            )),
            ..Default::default()
        });
        flow.ip = flow.ip.take().map(|_| crate::observe::proto::flow::Ip {
            source: evil.into(),
            destination: evil.into(),
            ..Default::default()
        });
    }
    for output in ["compact", "dict", "table", "json"] {
        for numeric in ["", "--numeric"] {
            let args = format!("-o {output} --why --print-node-name --print-policy-names {numeric}");
            for answer in [answer(&flow), l7.clone()] {
                let text = printed(&[answer], &args);
                let bad = text.chars().find(|c| *c != '\n' && tell::is_command(*c));
                assert_eq!(bad, None, "{args}: {text:?}");
                assert!(text.lines().count() <= 9, "{args}: {text}");
            }
        }
    }
}

#[test]
fn drops_have_words() {
    for reason in DropReason::ALL {
        let text = printed(&[answer(&Seen { kind: Kind::Drop, reason: Some(*reason), ..seen() })], "-o dict");
        let kind = text.lines().find_map(|line| line.trim_start().strip_prefix("TYPE: ")).expect("a type");
        assert!(kind.contains(' ') && !kind.contains('_'), "{}: {kind}", reason.name());
    }
}
