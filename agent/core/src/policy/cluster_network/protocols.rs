//! `protocols`: ports by number, by range, or by the name that the destination pod gave them.

use super::{
    super::{
        kubernetes::{read_port_name, read_port_number},
        reader::{Node, Read as ReadResult},
    },
    member::{items, only},
};
use crate::ports::{PortRange, PortSpec, Ports, Proto};

/// What the entries mean together.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) ports: Ports,
    /// Path of a named port.
    pub(super) named: Option<String>,
    /// Path of an entry that says nothing known.
    pub(super) unknown: Option<String>,
}

pub(super) fn read(node: &Node<'_>) -> ReadResult<Read> {
    let (mut specs, mut named, mut unknown) = (Vec::new(), None, None);
    for item in items(node, 1)? {
        let Some((kind, value)) = only(&item, &["tcp", "udp", "sctp", "destinationNamedPort"])? else {
            unknown.get_or_insert_with(|| item.path().to_owned());
            continue;
        };
        match Proto::with_ports_from_str(kind) {
            Some(proto) => specs.push(read_attributes(&value, proto)?.into()),
            None => {
                named.get_or_insert_with(|| value.path().to_owned());
                // Of any protocol: the container port has one.
                specs.push(PortSpec::Named(None, read_port_name(&value)?));
            }
        }
    }
    Ok(Read { ports: Ports::Only(specs), named, unknown })
}

/// What is asked of a protocol. There is nothing but its ports, so they must be there.
fn read_attributes(node: &Node<'_>, proto: Proto) -> ReadResult<PortRange> {
    let mut fields = node.fields()?;
    let port = fields.need("destinationPort")?;
    fields.finish()?;
    match only(&port, &["number", "range"])? {
        Some(("number", number)) => Ok(PortRange::one(proto, read_port_number(&number)?)),
        Some((_, range)) => read_range(&range, proto),
        None => Err(port.problem("needs number or range")),
    }
}

fn read_range(node: &Node<'_>, proto: Proto) -> ReadResult<PortRange> {
    let mut fields = node.fields()?;
    let (start, end) = (fields.need("start")?, fields.need("end")?);
    fields.finish()?;
    let (lo, hi) = (read_port_number(&start)?, read_port_number(&end)?);
    let range = PortRange::new(proto, lo, hi).filter(|_| lo < hi);
    range.ok_or_else(|| end.problem("must be greater than start"))
}
