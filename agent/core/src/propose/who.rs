//! Who the ends of a flow are.
//!
//! Owns: how labels, names and reserved identities are read. They come from whoever wrote the flow: what cannot be one of them
//! is refused here. Must not know: what the ends did.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use egret_common::ids::identity;

use super::peers::standing;
use crate::{
    compile::addr,
    flow::Side,
    labels::{Labels, POD_NAMESPACE},
    names::Name,
    policy::write::sanitised,
};

/// Longest key and longest value of a label (apimachinery `validation`: prefix 253, name 63, value 63), with what the
/// keys of namespace labels have in front.
const MAX_KEY: usize = 380;
const MAX_VALUE: usize = 253;
/// Names of one address that count.
pub(super) const MAX_NAMES: usize = 64;
/// Before the name of an identity that no labels make.
const RESERVED: &str = "reserved:";

/// A pod, as far as policies tell it from others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Its namespace.
    pub namespace: String,
    /// Its identity labels.
    pub labels: Labels,
}

/// The other side.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A pod with these identity labels.
    Pod(Labels, IpAddr),
    /// An address of the cluster that is no pod's.
    Entity(Node, IpAddr),
    /// The address of a Service: what is behind it is judged.
    Service {
        /// Namespace and name.
        name: (String, String),
        /// The address.
        ip: IpAddr,
    },
    /// Somebody else.
    World {
        /// The address.
        ip: IpAddr,
        /// Names that the workload was told for it.
        names: BTreeSet<Name>,
    },
    /// Nobody that a policy could mean: why.
    Unknown(String),
}

/// What a [`Peer::Entity`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// The pod's own node.
    Host,
    /// Another node.
    Remote,
    /// The API server.
    ApiServer,
}

impl Peer {
    /// Its address, if it is known.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        let ip = match self {
            Self::Pod(_, ip) | Self::Entity(_, ip) | Self::World { ip, .. } | Self::Service { ip, .. } => *ip,
            Self::Unknown(_) => return None,
        };
        (!ip.is_unspecified()).then_some(ip)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(labels, _) => f.write_str(&pod(labels)),
            Self::Entity(node, ip) => write!(f, "{} {ip}", node.word()),
            Self::Service { name: (namespace, name), ip } => write!(f, "Service {namespace}/{name} {ip}"),
            Self::World { ip, names } => {
                let names: Vec<&str> = names.iter().map(Name::as_str).collect();
                write!(f, "{ip}")?;
                if names.is_empty() { Ok(()) } else { write!(f, " ({})", names.join(", ")) }
            }
            Self::Unknown(who) => f.write_str(who),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&pod(&self.labels))
    }
}

/// Namespace and labels of a pod, as people write them.
fn pod(labels: &Labels) -> String {
    let namespace = labels.get(POD_NAMESPACE).map_or("", String::as_str);
    let own: Vec<String> = standing(labels).iter().map(|(key, value)| format!("{key}={value}")).collect();
    if own.is_empty() { format!("{namespace}/(no labels)") } else { format!("{namespace}/{}", own.join(",")) }
}

impl Node {
    /// The word of the policy language.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Remote => "remote-node",
            Self::ApiServer => "kube-apiserver",
        }
    }

    /// The reserved identity.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Host => identity::HOST,
            Self::Remote => identity::REMOTE_NODE,
            Self::ApiServer => identity::KUBE_APISERVER,
        }
    }
}

impl Subject {
    /// The pod at this end, if it is one.
    #[must_use]
    pub(super) fn of(side: &Side) -> Option<Self> {
        let labels = read_labels(side).ok()?;
        let namespace = labels.get(POD_NAMESPACE).filter(|namespace| !namespace.is_empty())?.clone();
        Some(Self { namespace, labels })
    }
}

/// Whether no name may open the address, whatever DNS says.
pub(super) fn is_forbidden(ip: IpAddr) -> bool {
    addr(ip).is_forbidden_answer()
}

/// Who this end is.
#[must_use]
pub fn peer(side: &Side) -> Peer {
    let has = |name: &str| side.labels.iter().any(|label| label.strip_prefix(RESERVED) == Some(name));
    let ip = side.ip.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ip| ip.to_canonical());
    let of_number = |number| side.identity == number && side.labels.is_empty();
    if has("kube-apiserver") || of_number(identity::KUBE_APISERVER) {
        return Peer::Entity(Node::ApiServer, ip);
    }
    if has("host") || of_number(identity::HOST) {
        return Peer::Entity(Node::Host, ip);
    }
    if has("remote-node") || of_number(identity::REMOTE_NODE) {
        return Peer::Entity(Node::Remote, ip);
    }
    if has("world") || has("world-ipv4") || has("world-ipv6") || of_number(identity::WORLD) {
        let names: BTreeSet<Name> = side.names.iter().filter_map(|name| Name::from_dns(name).ok()).collect();
        let names = names.into_iter().take(MAX_NAMES).collect();
        return if side.ip.is_some() {
            Peer::World { ip, names }
        } else {
            unknown("an address that is not told")
        };
    }
    if let Some(label) = side.labels.iter().find(|label| label.starts_with(RESERVED)) {
        return unknown(&format!("{label}, which no policy can name"));
    }
    match read_labels(side) {
        Ok(labels) if !labels.is_empty() => Peer::Pod(labels, ip),
        Ok(_) => match &side.service {
            Some(service) => Peer::Service { name: (service.namespace.clone(), service.name.clone()), ip },
            None => unknown(&format!("{ip}, of which nothing is known")),
        },
        Err(label) => unknown(&format!("a pod with the label {label}, which is none")),
    }
}

fn unknown(what: &str) -> Peer {
    Peer::Unknown(sanitised(what))
}

/// Labels without their source; those of other sources say nothing about a pod. Where they lack the pod's namespace it is
/// taken from what stands beside them, since policies ask for it.
fn read_labels(side: &Side) -> Result<Labels, String> {
    let own = side.labels.iter().filter_map(|label| label.strip_prefix("k8s:"));
    let read = own.map(|label| {
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        legal(key, value).ok_or_else(|| sanitised(label))
    });
    let mut labels: Labels = read.collect::<Result<_, _>>()?;
    if !labels.is_empty() && !labels.contains_key(POD_NAMESPACE) && !side.namespace.is_empty() {
        labels.extend([legal(POD_NAMESPACE, &side.namespace).ok_or_else(|| sanitised(&side.namespace))?]);
    }
    Ok(labels)
}

fn legal(key: &str, value: &str) -> Option<(String, String)> {
    let legal = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:".contains(&b));
    let fits = !key.is_empty() && key.len() <= MAX_KEY && value.len() <= MAX_VALUE;
    (fits && legal(key) && legal(value)).then(|| (key.to_owned(), value.to_owned()))
}
