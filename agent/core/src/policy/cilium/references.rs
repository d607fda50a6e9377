//! Peers that name other objects: `toServices`, `toNodes`, `fromNodes`, and the groups in `toCIDRSet`, `fromCIDRSet`.
//!
//! Owns: how each is named. Must not know: which objects there are.

use std::collections::BTreeSet;

use super::{
    super::{
        Peers, Reference,
        reader::{Fields, Node, Read},
        selector,
    },
    endpoints::key,
};
use crate::labels::Selector;

/// `toNodes`, `fromNodes`: nodes by their labels.
pub(super) fn nodes(node: &Node<'_>) -> Read<Vec<Peers>> {
    let own = |text: &str| key(text.strip_prefix("node:").unwrap_or(text));
    let reference = |item: &Node<'_>| Ok(Reference::Nodes(Selector::all_of(selector::read(item, own)?)));
    objects(node, reference)
}

/// `toServices`: each by name or by labels, in one namespace or in any.
pub(super) fn services(node: &Node<'_>) -> Read<Vec<Peers>> {
    objects(node, |item| {
        let mut fields = item.fields()?;
        let (by_name, by_labels) = (fields.take("k8sService")?, fields.take("k8sServiceSelector")?);
        fields.finish()?;
        match (by_name, by_labels) {
            (Some(service), None) => {
                let mut fields = service.fields()?;
                let name = fields.need("serviceName")?.text()?.to_owned();
                let namespace = namespace(&mut fields)?;
                fields.finish()?;
                Ok(Reference::Service { namespace, name })
            }
            (None, Some(services)) => {
                let mut fields = services.fields()?;
                let labels = Selector::all_of(selector::read(&fields.need("selector")?, key)?);
                let namespace = namespace(&mut fields)?;
                fields.finish()?;
                Ok(Reference::Services { namespace, labels })
            }
            (Some(_), Some(other)) => Err(other.problem("cannot stand beside `k8sService`")),
            (None, None) => Err(item.problem("needs k8sService or k8sServiceSelector")),
        }
    })
}

/// The group that an entry of a CIDR set names, if it names one. It takes no exceptions, as in the API.
pub(super) fn cidr_group(item: &Node<'_>, fields: &mut Fields<'_>) -> Read<Option<Reference>> {
    let (by_name, by_labels) = (fields.take("cidrGroupRef")?, fields.take("cidrGroupSelector")?);
    let set = [fields.has("cidr"), by_name.is_some(), by_labels.is_some()];
    match set.iter().filter(|set| **set).count() {
        0 => return Err(item.problem("needs one of cidr, cidrGroupRef and cidrGroupSelector")),
        1 => {}
        _ => return Err(item.problem("takes only one of cidr, cidrGroupRef and cidrGroupSelector")),
    }
    let reference = match (by_name, by_labels) {
        (Some(name), _) => Reference::CidrGroup(name.text()?.to_owned()),
        (_, Some(labels)) => {
            Reference::CidrGroups(Selector::all_of(selector::read(&labels, selector::plain)?))
        }
        (None, None) => return Ok(None),
    };
    match fields.take("except")? {
        Some(except) => Err(except.problem("only allowed beside `cidr`: a group has no exceptions")),
        None => Ok(Some(reference)),
    }
}

/// Absent or empty: any.
fn namespace(fields: &mut Fields<'_>) -> Read<Option<String>> {
    let text = fields.take("namespace")?.map(|n| n.text().map(str::to_owned)).transpose()?;
    Ok(text.filter(|t| !t.is_empty()))
}

/// An empty list is nobody.
fn objects(node: &Node<'_>, read: impl Fn(&Node<'_>) -> Read<Reference>) -> Read<Vec<Peers>> {
    let references: BTreeSet<Reference> = node.list()?.iter().map(read).collect::<Read<_>>()?;
    Ok(vec![if references.is_empty() { Peers::Nobody } else { Peers::Objects(references) }])
}
