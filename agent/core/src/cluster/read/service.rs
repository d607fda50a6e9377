//! Services and their endpoints.
//!
//! Owns: which fields count. Must not know: which pods there are.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    super::object::{EndpointSlice, Service, ServicePort, TargetPort},
    field::{Field, Read},
};

/// Label of an EndpointSlice: the service it belongs to.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Labels of Services that kube-proxy leaves alone, whatever they say.
const UNTRANSLATED: [&str; 2] =
    ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"];

/// A service.
pub(super) fn service(root: &Field<'_>) -> Read<Service> {
    let spec = root.get("spec")?;
    let ports = spec.get("ports")?.items()?;
    let mut service = Service {
        labels: root.get("metadata")?.get("labels")?.labels()?,
        selector: spec.get("selector")?.labels()?,
        vips: vips(root, &spec)?,
        ports: ports.iter().map(port).collect::<Read<_>>()?,
    };
    if spec.get("type")?.text()? == Some("ExternalName") {
        // Only a name: nothing is behind an address.
        (service.vips, service.selector) = Default::default();
    }
    if UNTRANSLATED.iter().any(|label| service.labels.contains_key(*label)) {
        // Packets go to the very address: an external one that anybody may write here must open nothing.
        service.vips.clear();
    }
    Ok(service)
}

/// Whatever address the node translates. A headless service has none.
fn vips(root: &Field<'_>, spec: &Field<'_>) -> Read<BTreeSet<IpAddr>> {
    let mut vips = BTreeSet::new();
    let mut cluster = spec.get("clusterIPs")?.items()?;
    cluster.push(spec.get("clusterIP")?);
    for field in cluster {
        if field.text()? != Some("None") {
            vips.extend(field.address()?);
        }
    }
    for field in spec.get("externalIPs")?.items()? {
        vips.extend(field.address()?);
    }
    for ingress in root.get("status")?.get("loadBalancer")?.get("ingress")?.items()? {
        // With `Proxy` the packet goes to the load balancer, as to any other host.
        if ingress.get("ipMode")?.text()? != Some("Proxy") {
            vips.extend(ingress.get("ip")?.address()?);
        }
    }
    Ok(vips)
}

fn port(item: &Field<'_>) -> Read<ServicePort> {
    let number = item.get("port")?;
    let Some(port) = number.port()? else { return Err(number.problem("is missing")) };
    let target = item.get("targetPort")?;
    let target = if target.is_text() {
        TargetPort::Name(target.need_text()?.to_owned())
    } else {
        TargetPort::Number(target.port()?.unwrap_or(port))
    };
    let name = item.get("name")?.text_or_empty()?;
    Ok(ServicePort { name, port, proto: item.get("protocol")?.proto()?, target })
}

/// A part of a service's endpoints.
pub(super) fn endpoint_slice(root: &Field<'_>) -> Read<EndpointSlice> {
    let labels = root.get("metadata")?.get("labels")?.labels()?;
    let service = labels.get(SERVICE_NAME).cloned().unwrap_or_default();
    let mut slice = EndpointSlice { service, ..EndpointSlice::default() };
    if root.get("addressType")?.text()? != Some("FQDN") {
        for endpoint in root.get("endpoints")?.items()? {
            for address in endpoint.get("addresses")?.items()? {
                slice.addresses.extend(address.address()?);
            }
        }
    }
    for item in root.get("ports")?.items()? {
        // Without a number the API means "all ports": nothing that a service's port leads to.
        if let Some(port) = item.get("port")?.port()? {
            slice.ports.push((item.get("name")?.text_or_empty()?, item.get("protocol")?.proto()?, port));
        }
    }
    Ok(slice)
}
