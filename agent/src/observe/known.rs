//! What must be known to make a flow of a record.

use std::net::IpAddr;

use egret_common::ids::{ClassId, EndpointId};
use egret_common::net::{Addr, Direction};
use egret_core::flow::{Interface, PolicyRef, Side};
use egret_core::policy::Rule;

/// An endpoint of this node.
#[derive(Debug, Clone, Default)]
pub struct Local {
    /// As one end of a flow, without an address.
    pub side: Side,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Where it is held, if that is an interface.
    pub interface: Option<Interface>,
    /// Nothing is held back.
    pub audit: bool,
}

/// Answers about the moment.
pub trait Known {
    /// The endpoint with this number.
    fn endpoint(&self, id: EndpointId) -> Option<Local>;
    /// Who has the address, as one end of a flow.
    fn owner(&self, address: IpAddr) -> Side;
    /// The names that the endpoint was told for the address.
    fn names(&self, id: EndpointId, address: IpAddr) -> Vec<String>;
    /// The rule behind a cookie, with its object.
    fn rule(&self, cookie: u32) -> Option<(PolicyRef, &Rule)>;
    /// The policies by which this direction of the endpoint is denied unless something allows it.
    fn isolating(&self, id: EndpointId, direction: Direction) -> Vec<PolicyRef>;
    /// Whether answers of this resolver are learned whoever asks: no rule with `rules.dns` has made it one.
    fn trusts(&self, resolver: Addr, port: u16) -> bool;
    /// The patterns behind a name class.
    fn patterns(&self, class: ClassId) -> Vec<String>;
}
