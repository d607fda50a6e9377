//! `icmps`: types of ICMP, by number or by the API's name.

use super::{
    super::reader::{Node, Read},
    ports::entries,
};
use crate::ports::{PortRange, Proto};

/// One entry of `icmps`.
pub(super) fn read_icmp(node: &Node<'_>) -> Read<Vec<PortRange>> {
    let mut fields = node.fields()?;
    let list = fields.need("fields")?;
    fields.finish()?;
    entries(&list)?.iter().map(read_icmp_field).collect()
}

fn read_icmp_field(node: &Node<'_>) -> Read<PortRange> {
    let mut fields = node.fields()?;
    let proto = match fields.take("family")? {
        None => Proto::Icmp,
        Some(family) => match family.text()? {
            "IPv4" => Proto::Icmp,
            "IPv6" => Proto::Icmpv6,
            other => return Err(family.problem(format!("`{other}` is neither IPv4 nor IPv6"))),
        },
    };
    let kind = fields.need("type")?;
    fields.finish()?;
    let text = kind.text_or_number()?;
    let number = text.parse::<u8>().ok().or_else(|| icmp_type(proto, &text));
    let number = number.ok_or_else(|| kind.problem(format!("`{text}` is no ICMP type of this family")))?;
    Ok(PortRange::icmp(proto, number))
}

/// Names of the API for ICMP types (IANA icmp-parameters, icmpv6-parameters).
fn icmp_type(proto: Proto, name: &str) -> Option<u8> {
    Some(match (proto, name) {
        (Proto::Icmp, "EchoReply") => 0,
        (Proto::Icmp, "DestinationUnreachable") => 3,
        (Proto::Icmp, "Redirect") => 5,
        (Proto::Icmp, "Echo" | "EchoRequest") => 8,
        (Proto::Icmp, "RouterAdvertisement") => 9,
        (Proto::Icmp, "RouterSelection") => 10,
        (Proto::Icmp, "TimeExceeded") => 11,
        (Proto::Icmp, "ParameterProblem") => 12,
        (Proto::Icmp, "Timestamp") => 13,
        (Proto::Icmp, "TimestampReply") => 14,
        (Proto::Icmpv6, "DestinationUnreachable") => 1,
        (Proto::Icmpv6, "PacketTooBig") => 2,
        (Proto::Icmpv6, "TimeExceeded") => 3,
        (Proto::Icmpv6, "ParameterProblem") => 4,
        (Proto::Icmpv6, "EchoRequest") => 128,
        (Proto::Icmpv6, "EchoReply") => 129,
        (Proto::Icmpv6, "MulticastListenerQuery") => 130,
        (Proto::Icmpv6, "MulticastListenerReport") => 131,
        (Proto::Icmpv6, "MulticastListenerDone") => 132,
        (Proto::Icmpv6, "RouterSolicitation") => 133,
        (Proto::Icmpv6, "RouterAdvertisement") => 134,
        (Proto::Icmpv6, "NeighborSolicitation") => 135,
        (Proto::Icmpv6, "NeighborAdvertisement") => 136,
        (Proto::Icmpv6, "RedirectMessage") => 137,
        _ => return None,
    })
}
