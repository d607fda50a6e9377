//! What is behind Services, from the agent or from a file.

use std::path::Path;

use egret_core::flow::Side;
use egret_core::ports::Proto;
use egret_core::propose::{Backend, Services, peer};

use crate::api::{self, Request, client};
use crate::tell;

/// Asks the agent. Without an answer nothing is known, which is told.
pub(super) fn ask(socket: &Path) -> Vec<api::Service> {
    client::ask(socket, &Request::Services).unwrap_or_else(|refusal| {
        tell::line(format_args!("what is behind Services is not known: {}", refusal.cause));
        Vec::new()
    })
}

/// The same for the core. What makes no sense is left out: then nothing is known about it.
pub(super) fn read(list: &[api::Service]) -> Services {
    let mut services = Services::default();
    for service in list {
        let Some(proto) = Proto::with_ports_from_str(&service.proto) else { continue };
        let backend = |b: &api::Backend| {
            let side = Side { ip: Some(b.ip), labels: b.labels.clone().into(), ..Side::default() };
            Backend { peer: peer(&side), ip: b.ip, port: b.port }
        };
        let backends = service.backends.iter().map(backend).collect();
        services.insert(service.vip, proto, service.port, backends);
    }
    services
}
