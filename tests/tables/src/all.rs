//! Every table, by family.

use crate::{
    cyclonus,
    table::{Table, read},
};

/// A family of tables: its name, and how they are made.
pub type Family = (&'static str, fn() -> Vec<Table>);

/// All of them.
pub const FAMILIES: &[Family] = &[
    ("upstream", || read(include_str!("../yaml/upstream.yaml"))),
    ("recipes", || read(include_str!("../yaml/recipes.yaml"))),
    ("tiers", || read(include_str!("../yaml/tiers.yaml"))),
    ("cases", || read(include_str!("../yaml/cases.yaml"))),
    ("cilium", || read(include_str!("../yaml/cilium.yaml"))),
    ("services", || read(include_str!("../yaml/services.yaml"))),
    ("dns", || read(include_str!("../yaml/dns.yaml"))),
    ("cyclonus steps", || read(include_str!("../yaml/cyclonus.yaml"))),
    ("cyclonus peers", cyclonus::peers),
    ("cyclonus ports", cyclonus::ports),
    ("cyclonus rules", cyclonus::rules),
    ("cyclonus conflicts", cyclonus::conflicts),
    ("cyclonus targets", cyclonus::targets),
];

/// The tables of a family.
///
/// # Panics
/// When there is none of this name.
#[must_use]
pub fn family(name: &str) -> Vec<Table> {
    let (_, make) = FAMILIES.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no family {name}"));
    make()
}

/// Whether the family's tables come from shapes that are put together, not from a text.
#[must_use]
pub fn is_generated(name: &str) -> bool {
    name.starts_with("cyclonus") && name != "cyclonus steps"
}
