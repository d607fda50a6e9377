//! What is wrong with a policy object, and where.

use std::fmt;

/// How bad a [`Diagnostic`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The object is enforced as written; the author may have meant something else.
    Warning,
    /// The object is invalid and not enforced at all.
    Error,
}

/// One finding about a policy object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Diagnostic {
    /// Whether the object is enforced nevertheless.
    pub severity: Severity,
    /// The object: kind, namespace, name; or the document's number if it has none.
    pub object: String,
    /// The field, such as `spec.egress[0].toPorts[0].rules.http`; empty for the object as a whole.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}: ", self.object)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}
