//! Messages as JSON, the way protobuf defines it and `hubble observe -o json` prints it: names as in the `.proto`, numbers of
//! 64 bits as text, enumerations by name, times as RFC 3339, and nothing that has no value.

use std::sync::OnceLock;

use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions,
};

use super::proto::DESCRIPTION;
use super::proto::flow::FlowFilter;
use super::proto::observer::GetFlowsResponse;
use crate::tell;

/// Whole answer, as one line without its end. A file and a terminal get the same: no byte of it is a command to a terminal.
pub(crate) fn response(response: &GetFlowsResponse) -> String {
    write("observer.GetFlowsResponse", response)
}

/// The same of a filter.
pub(crate) fn filter(filter: &FlowFilter) -> String {
    write("flow.FlowFilter", filter)
}

/// Reads what [`response`] writes; fields that are not known are passed over.
pub(crate) fn read_response(line: &str) -> Result<GetFlowsResponse, String> {
    let mut json = serde_json::Deserializer::from_str(line);
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = descriptor("observer.GetFlowsResponse")?;
    let read = DynamicMessage::deserialize_with_options(message, &mut json, &options);
    let read = read.map_err(|error| error.to_string())?;
    json.end().map_err(|error| error.to_string())?;
    read.transcode_to().map_err(|error| error.to_string())
}

/// Reads filters that follow each other. A field that there is not is an error: a filter must not be weaker than it was meant.
pub(crate) fn read_filters(text: &str) -> Result<Vec<FlowFilter>, String> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let one = |value: Result<serde_json::Value, serde_json::Error>| {
        let value = value.map_err(|error| error.to_string())?;
        let read = DynamicMessage::deserialize(descriptor("flow.FlowFilter")?, value);
        let read = read.map_err(|error| error.to_string())?;
        read.transcode_to::<FlowFilter>().map_err(|error| error.to_string())
    };
    let all: Vec<FlowFilter> = values.map(one).collect::<Result<_, String>>()?;
    if all.is_empty() { Err("it is empty".to_owned()) } else { Ok(all) }
}

fn write(name: &str, message: &impl Message) -> String {
    let options = SerializeOptions::new().use_proto_field_name(true);
    let mut json = serde_json::Serializer::new(Vec::new());
    let written = descriptor(name).and_then(|descriptor| {
        let mut dynamic = DynamicMessage::new(descriptor);
        dynamic.transcode_from(message).map_err(|error| error.to_string())?;
        dynamic.serialize_with_options(&mut json, &options).map_err(|error| error.to_string())
    });
    // The description is that of this very message: nothing of it is unknown.
    debug_assert!(written.is_ok(), "{written:?}");
    harmless(&String::from_utf8(json.into_inner()).unwrap_or_default())
}

/// JSON escapes the control characters of ASCII alone; whatever is left of others stands inside a text.
fn harmless(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if tell::is_command(c) { text.push_str(&format!("\\u{:04x}", c as u32)) } else { text.push(c) }
    }
    text
}

fn descriptor(name: &str) -> Result<MessageDescriptor, String> {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| DescriptorPool::decode(DESCRIPTION).unwrap_or_default());
    pool.get_message_by_name(name).ok_or_else(|| format!("no message {name}"))
}

#[cfg(test)]
mod tests {
    use egret_common::verdict::DropReason;
    use egret_core::flow::{Entry, Lost, LostSource};

    use super::super::{message, proto::flow as wire};
    use super::*;
    use crate::flows::read;

    fn full() -> GetFlowsResponse {
        message::response(&Entry::Flow(std::sync::Arc::new(read::tests::full())), "n1", None)
    }

    #[test]
    fn the_json_is_that_of_hubble() {
        assert_eq!(
            response(&full()),
            concat!(
                r#"{"flow":{"time":"2025-12-01T15:10:02.123456789Z","verdict":"DROPPED","drop_reason":133,"#,
                r#""IP":{"source":"192.0.2.1","destination":"192.0.2.2","ipVersion":"IPv4"},"#,
                r#""l4":{"TCP":{"source_port":40000,"destination_port":443,"flags":{"SYN":true,"ACK":true,"NS":true}}},"#,
                r#""source":{"ID":1,"identity":301,"namespace":"shop","labels":["k8s:app=web","k8s:x=y"],"pod_name":"web","#,
                r#""workloads":[{"name":"web","kind":"Deployment"}],"cluster_name":"default"},"#,
                r#""destination":{"ID":2,"identity":302,"namespace":"shop","labels":["k8s:app=api","k8s:x=y"],"pod_name":"api","#,
                r#""workloads":[{"name":"api","kind":"Deployment"}],"cluster_name":"default"},"#,
                r#""Type":"L3_L4","node_name":"n1","source_names":["web.example"],"destination_names":["api.example"],"#,
                r#""event_type":{"type":5},"source_service":{"name":"web","namespace":"front"},"#,
                r#""destination_service":{"name":"api","namespace":"front"},"traffic_direction":"EGRESS","#,
                r#""policy_match_type":2,"drop_reason_desc":"POLICY_DENIED","interface":{"index":9,"name":"veth9"},"#,
                r#""uuid":"01234567-89ab-cdef-0123-456789abcdef","node_labels":["zone=a"],"#,
                r#""emitter":{"name":"egret","version":""#,
                env!("CARGO_PKG_VERSION"),
                r#""},"#,
                r#""egress_allowed_by":[{"name":"a","namespace":"shop","revision":"7","kind":"CiliumNetworkPolicy"}],"#,
                r#""egress_denied_by":[{"name":"b","namespace":"shop","revision":"7","kind":"CiliumNetworkPolicy"},"#,
                r#"{"name":"c","namespace":"shop","revision":"7","kind":"CiliumNetworkPolicy"}],"#,
                r#""policy_log":["NameExpired: The address was learned. It expired 31 s ago."],"#,
                r#""Summary":"TCP Flags: SYN, ACK, NS; NameExpired 31 s ago"},"#,
                r#""node_name":"n1","time":"2025-12-01T15:10:02.123456789Z"}"#,
            )
        );
        let lost =
            Lost { source: LostSource::Ring, count: 1 << 40, first: 1_000_000_000, last: 2_500_000_000 };
        assert_eq!(
            response(&message::response(&Entry::Lost(lost), "n1", None)),
            r#"{"lost_events":{"source":"HUBBLE_RING_BUFFER","num_events_lost":"1099511627776","first":"1970-01-01T00:00:01Z","last":"1970-01-01T00:00:02.500Z"},"node_name":"n1","time":"1970-01-01T00:00:02.500Z"}"#
        );
    }

    #[test]
    fn what_is_written_can_be_read() {
        assert_eq!(read_response(&response(&full())), Ok(full()));
        assert!(read_response(r#"{"agent_event":{"type":"AGENT_STARTED"},"flow":{"new":1}}"#).is_ok());
        for bad in ["", "x", "{}{}", "[]", r#"{"flow":1}"#] {
            assert!(read_response(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_pod_cannot_command_a_terminal() {
        let mut evil = full();
        evil.node_name = "\x1b[2J\u{9b}2J\u{202e}\n\"\\".into();
        let line = response(&evil);
        assert!(!line.chars().any(tell::is_command), "{line}");
        assert_eq!(read_response(&line), Ok(evil));
    }

    #[test]
    fn filters_are_read_one_after_the_other() {
        let pod = FlowFilter { source_pod: vec!["shop/web".into()], ..Default::default() };
        let verdict = FlowFilter { verdict: vec![2], drop_reason_desc: vec![181], ..Default::default() };
        assert_eq!(read_filters(r#"{"source_pod":["shop/web"]}"#), Ok(vec![pod.clone()]));
        let two = r#"{"sourcePod":["shop/web"]} {"verdict":["DROPPED"],"drop_reason_desc":["POLICY_DENY"]}"#;
        assert_eq!(read_filters(two), Ok(vec![pod, verdict.clone()]));
        assert_eq!(filter(&verdict), r#"{"verdict":["DROPPED"],"drop_reason_desc":["POLICY_DENY"]}"#);
        for bad in ["", " ", "{", "{}x", "[]", r#"{"source":["x"]}"#, r#"{"verdict":["X"]}"#] {
            assert!(read_filters(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_reason_has_its_name_in_hubble() {
        for reason in DropReason::ALL {
            let number = i32::try_from(reason.hubble()).expect("small");
            assert!(wire::DropReason::try_from(number).is_ok(), "{}", reason.name());
        }
    }
}
