//! Objects of which exactly one field may be set, and lists with limits.

use super::{
    super::reader::{Node, Read},
    MAX_ITEMS,
};

/// The one field of `known` that is set, with its value; `None` if none is, whatever else stands there.
pub(super) fn only<'a>(node: &Node<'a>, known: &[&'static str]) -> Read<Option<(&'static str, Node<'a>)>> {
    let mut fields = node.fields()?;
    let set: Vec<&'static str> = known.iter().copied().filter(|name| fields.has(name)).collect();
    let name = match set[..] {
        [] => return Ok(None),
        [name] => name,
        _ => return Err(node.problem(format!("takes only one of {}", set.join(", ")))),
    };
    let value = fields.need(name)?;
    fields.finish()?;
    Ok(Some((name, value)))
}

/// The items of a list of at least `min`.
pub(super) fn items<'a>(node: &Node<'a>, min: usize) -> Read<Vec<Node<'a>>> {
    let items = node.list()?;
    match items.len() {
        n if n < min => Err(node.problem("is empty")),
        n if n > MAX_ITEMS => Err(node.problem(format!("has {n} entries, the limit is {MAX_ITEMS}"))),
        _ => Ok(items),
    }
}
