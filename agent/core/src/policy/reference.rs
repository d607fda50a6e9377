//! Objects of the cluster that a rule names, and what each stands for as long as nobody has looked it up.
//!
//! Owns: what can be named. Must not know: which objects there are; [`crate::cluster`] puts in what they stand for
//! whenever one of them changes. An object that is not there stands for nobody until it comes.

use std::fmt;

use crate::labels::Selector;

/// An object, or all with certain labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reference {
    /// The addresses of the nodes with these labels.
    Nodes(Selector),
    /// Whatever is behind a service.
    Service {
        /// Its namespace; `None`: any.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// Whatever is behind the services with these labels.
    Services {
        /// Their namespace; `None`: any.
        namespace: Option<String>,
        /// Their labels.
        labels: Selector,
    },
    /// The networks of a CiliumCIDRGroup.
    CidrGroup(String),
    /// The networks of the CiliumCIDRGroups with these labels.
    CidrGroups(Selector),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = |f: &mut fmt::Formatter<'_>, namespace: &Option<String>| match namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        };
        let with = |f: &mut fmt::Formatter<'_>, labels: &Selector| match labels.requirements().next() {
            Some(_) => write!(f, " with labels {labels}"),
            None => Ok(()),
        };
        match self {
            Reference::Nodes(labels) => f.write_str("node").and_then(|()| with(f, labels)),
            Reference::Service { namespace, name } => {
                write!(f, "Service {name}").and_then(|()| within(f, namespace))
            }
            Reference::Services { namespace, labels } => {
                f.write_str("Service").and_then(|()| with(f, labels)).and_then(|()| within(f, namespace))
            }
            Reference::CidrGroup(name) => write!(f, "CiliumCIDRGroup {name}"),
            Reference::CidrGroups(labels) => f.write_str("CiliumCIDRGroup").and_then(|()| with(f, labels)),
        }
    }
}
