//! CiliumCIDRGroup.
//!
//! Owns: which fields count. Must not know: who names the group.

use super::{
    super::object::CidrGroup,
    field::{Field, Read},
};
use crate::net::parse_net;

/// A group. One network that cannot be read makes all of it invalid: a rule that denies must not lose a part unseen.
pub(super) fn cidr_group(root: &Field<'_>) -> Read<CidrGroup> {
    let labels = root.get("metadata")?.get("labels")?.labels()?;
    let mut group = CidrGroup { labels, ..CidrGroup::default() };
    for item in root.get("spec")?.get("externalCIDRs")?.items()? {
        let text = item.need_text()?;
        let net = text.contains('/').then(|| parse_net(text)).flatten();
        group.nets.insert(net.ok_or_else(|| item.problem(format!("`{text}` is no CIDR")))?);
    }
    Ok(group)
}
