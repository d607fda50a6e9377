//! Field masks: which parts of a flow a client wants.
//!
//! Works on the bytes of a message and the description of its fields, so that every path that there is has its meaning,
//! and no list has to be kept. The mask that clients send by themselves leaves out what makes a line plain (names of
//! addresses, direction, policies: cilium/hubble#1781): those fields are sent whatever the mask says.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use prost::Message;
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};
use prost_types::{DescriptorProto, FileDescriptorSet};

use super::proto::DESCRIPTION;
use super::proto::flow::Flow;

/// See the module.
const ALWAYS: [&str; 12] = [
    "source_names",
    "destination_names",
    "traffic_direction",
    "policy_match_type",
    "drop_reason_desc",
    "sock_xlate_point",
    "auth_type",
    "egress_allowed_by",
    "ingress_allowed_by",
    "egress_denied_by",
    "ingress_denied_by",
    "policy_log",
];

/// The wanted fields of a message by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mask(BTreeMap<u32, Want>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Want {
    Whole,
    Part(Mask),
}

/// Fields of a message: number, and the message that a field is.
type Fields = BTreeMap<String, (u32, Option<String>)>;

impl Mask {
    /// Reads paths such as `source.identity`.
    ///
    /// # Errors
    /// The first path that there is not.
    pub(super) fn new(paths: &[String]) -> Result<Self, String> {
        let mut mask = Self::default();
        for path in ALWAYS {
            mask.add(".flow.Flow", path).map_err(|_| path.to_owned())?;
        }
        for path in paths {
            mask.add(".flow.Flow", path)
                .map_err(|()| format!("invalid field mask: no field {path:?} in a flow"))?;
        }
        Ok(mask)
    }

    fn add(&mut self, message: &str, path: &str) -> Result<(), ()> {
        let (field, rest) = path.split_once('.').map_or((path, None), |(field, rest)| (field, Some(rest)));
        let (number, kind) = messages().get(message).and_then(|fields| fields.get(field)).ok_or(())?;
        let Some(rest) = rest else {
            self.0.insert(*number, Want::Whole);
            return Ok(());
        };
        let kind = kind.as_ref().ok_or(())?;
        match self.0.entry(*number).or_insert_with(|| Want::Part(Self::default())) {
            Want::Part(part) => part.add(kind, rest),
            // The path must be one all the same.
            Want::Whole => Self::default().add(kind, rest),
        }
    }

    /// The flow with nothing but the wanted fields.
    pub(super) fn apply(&self, flow: &Flow) -> Flow {
        let mut kept = Vec::new();
        // What was encoded here can be read again.
        match self.copy(&flow.encode_to_vec(), &mut kept) {
            Some(()) => Flow::decode(kept.as_slice()).unwrap_or_default(),
            None => Flow::default(),
        }
    }

    fn copy(&self, mut from: &[u8], to: &mut Vec<u8>) -> Option<()> {
        while !from.is_empty() {
            let field = from;
            let (number, kind) = decode_key(&mut from).ok()?;
            match self.0.get(&number) {
                Some(Want::Part(part)) if kind == WireType::LengthDelimited => {
                    let length = usize::try_from(decode_varint(&mut from).ok()?).ok()?;
                    let (message, rest) = from.split_at_checked(length)?;
                    from = rest;
                    let mut kept = Vec::new();
                    part.copy(message, &mut kept)?;
                    encode_key(number, kind, to);
                    encode_varint(kept.len() as u64, to);
                    to.extend(kept);
                }
                want => {
                    skip_field(kind, number, &mut from, DecodeContext::default()).ok()?;
                    if want.is_some() {
                        to.extend_from_slice(&field[..field.len() - from.len()]);
                    }
                }
            }
        }
        Some(())
    }
}

/// Every message of the description, by its full name.
fn messages() -> &'static BTreeMap<String, Fields> {
    static MESSAGES: OnceLock<BTreeMap<String, Fields>> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        let files = FileDescriptorSet::decode(DESCRIPTION).unwrap_or_default();
        let mut all = BTreeMap::new();
        for file in &files.file {
            for message in &file.message_type {
                all.insert(format!(".{}.{}", file.package(), message.name()), fields(message));
            }
        }
        all
    })
}

fn fields(message: &DescriptorProto) -> Fields {
    let one = |field: &prost_types::FieldDescriptorProto| {
        let number = u32::try_from(field.number()).unwrap_or_default();
        (field.name().to_owned(), (number, field.type_name.clone()))
    };
    message.field.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::proto::flow as wire;
    use super::*;

    fn flow() -> Flow {
        let tcp = wire::Tcp { source_port: 1, destination_port: 443, flags: None };
        Flow {
            verdict: 1,
            uuid: "x".into(),
            node_name: "n1".into(),
            summary: "s".into(),
            traffic_direction: 2,
            destination_names: vec!["a".into(), "b".into()],
            ip: Some(wire::Ip {
                source: "1".into(),
                destination: "2".into(),
                ip_version: 1,
                ..Default::default()
            }),
            l4: Some(wire::Layer4 { protocol: Some(wire::layer4::Protocol::Tcp(tcp)) }),
            source: Some(wire::Endpoint {
                id: 7,
                identity: 300,
                namespace: "shop".into(),
                labels: vec!["k8s:app=web".into(), "k8s:b=c".into()],
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[track_caller]
    fn check(paths: &[&str], keep: impl Fn(&Flow, &mut Flow)) {
        let paths: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
        let whole = flow();
        // These are always there.
        let (names, traffic_direction) = (whole.destination_names.clone(), whole.traffic_direction);
        let mut want = Flow { destination_names: names, traffic_direction, ..Default::default() };
        keep(&whole, &mut want);
        assert_eq!(Mask::new(&paths).expect("valid").apply(&whole), want, "{paths:?}");
    }

    #[test]
    fn paths_keep_what_they_name() {
        check(&[], |_, _| {});
        check(&["verdict", "Summary"], |f, w| (w.verdict, w.summary) = (f.verdict, f.summary.clone()));
        check(&["IP"], |f, w| w.ip = f.ip.clone());
        check(&["IP.destination", "IP.ipVersion"], |f, w| {
            w.ip = f.ip.clone().map(|ip| wire::Ip { source: String::new(), ..ip });
        });
        check(&["source.identity", "source.labels"], |f, w| {
            w.source = f.source.clone().map(|s| wire::Endpoint { id: 0, namespace: String::new(), ..s });
        });
        check(&["source", "source.ID"], |f, w| w.source = f.source.clone());
        check(&["source.ID", "source"], |f, w| w.source = f.source.clone());
        check(&["l4.TCP.destination_port"], |_, w| {
            let tcp = wire::Tcp { destination_port: 443, ..Default::default() };
            w.l4 = Some(wire::Layer4 { protocol: Some(wire::layer4::Protocol::Tcp(tcp)) });
        });
        // A part of what is not there.
        check(&["destination.pod_name"], |_, _| {});
    }

    /// The mask that clients since 1.19 send by themselves.
    const DEFAULT: &str = "time verdict ethernet IP l4 source.identity source.namespace source.pod_name \
        destination.identity destination.namespace destination.pod_name Type node_name l7 event_type source_service \
        destination_service is_reply Summary ip_trace_id";

    #[test]
    fn the_usual_mask_costs_a_line_nothing() {
        let paths: Vec<&str> = DEFAULT.split_whitespace().collect();
        check(&paths, |f, w| {
            *w = f.clone();
            w.uuid = String::new();
            w.source = f.source.clone().map(|s| wire::Endpoint { id: 0, labels: Vec::new(), ..s });
        });
    }

    /// Numbers of the wire, as clients have them.
    #[test]
    fn fields_have_their_numbers() {
        let number = |message: &str, field: &str| {
            messages().get(&format!(".flow.{message}")).and_then(|fields| fields.get(field)).map(|f| f.0)
        };
        for (message, fields) in [
            (
                "Flow",
                "time=1 verdict=2 drop_reason=3 ethernet=4 IP=5 l4=6 source=8 destination=9 Type=10 node_name=11 source_names=13 destination_names=14 l7=15 reply=16 event_type=19 source_service=20 destination_service=21 traffic_direction=22 policy_match_type=23 trace_observation_point=24 drop_reason_desc=25 is_reply=26 debug_capture_point=27 interface=28 proxy_port=29 trace_context=30 sock_xlate_point=31 socket_cookie=32 cgroup_id=33 uuid=34 auth_type=35 trace_reason=36 node_labels=37 file=38 tunnel=39 ip_trace_id=40 emitter=41 egress_allowed_by=21001 ingress_allowed_by=21002 egress_denied_by=21004 ingress_denied_by=21005 policy_log=21006 aggregate=21007 Summary=100000 extensions=150000",
            ),
            ("Endpoint", "ID=1 identity=2 namespace=3 labels=4 pod_name=5 workloads=6 cluster_name=7"),
            ("IP", "source=1 destination=2 ipVersion=3 encrypted=4 source_xlated=5"),
            ("Layer4", "TCP=1 UDP=2 ICMPv4=3 ICMPv6=4 SCTP=5"),
            ("TCPFlags", "FIN=1 SYN=2 RST=3 PSH=4 ACK=5 URG=6 ECE=7 CWR=8 NS=9"),
            ("Layer7", "type=1 latency_ns=2 dns=100 http=101"),
            ("DNS", "query=1 ips=2 ttl=3 cnames=4 observation_source=5 rcode=6 qtypes=7 rrtypes=8"),
            ("Policy", "name=1 namespace=2 labels=3 revision=4 kind=5"),
            ("Service", "name=1 namespace=2"),
            ("LostEvent", "source=1 num_events_lost=2 cpu=3 first=4 last=5"),
            (
                "FlowFilter",
                "source_ip=1 source_pod=2 destination_ip=3 destination_pod=4 verdict=5 event_type=6 source_fqdn=7 destination_fqdn=8 http_status_code=9 source_label=10 destination_label=11 protocol=12 source_port=13 destination_port=14 reply=15 source_service=16 destination_service=17 dns_query=18 source_identity=19 destination_identity=20 http_method=21 http_path=22 tcp_flags=23 node_name=24 ip_version=25 source_workload=26 destination_workload=27 trace_id=28 uuid=29 traffic_direction=30 http_url=31 http_header=32 drop_reason_desc=33 source_ip_xlated=34 interface=35 node_labels=36 source_cluster_name=37 destination_cluster_name=38 ip_trace_id=39 encrypted=40 experimental=999",
            ),
        ] {
            let all: Vec<&str> = fields.split_whitespace().collect();
            for pair in &all {
                let (field, want) = pair.split_once('=').expect("a pair");
                assert_eq!(number(message, field), want.parse().ok(), "{message}.{field}");
            }
            assert_eq!(messages()[&format!(".flow.{message}")].len(), all.len(), "{message}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in ["", "x", "source.x", "verdict.x", "source.", "IP.source.x", "ip"] {
            let error = Mask::new(&[path.to_owned()]).expect_err(path);
            assert!(error.contains(&format!("{path:?}")), "{error}");
        }
    }
}
