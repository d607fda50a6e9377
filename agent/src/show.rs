//! What the agent tells, printed: tables with the columns that users of Cilium know, or JSON.

mod check;
mod explain;
mod table;

use std::io::Write;
use std::net::IpAddr;

use egret_core::labels::printed;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{self, Request, client};
use crate::cli::{
    BpfCommand, CacheCommand, EndpointCommand, Format, FqdnCommand, IdentityCommand, PolicyCommand, Probe,
    StatusArgs, View,
};
use crate::exit::{self, Refusal};
pub(crate) use check::read_file;
use table::Table;

/// `egret status`: 0 when all is well, 69 when somebody should look.
pub fn status(args: &StatusArgs) -> Result<u8, Refusal> {
    let view = &args.view;
    if let Some(probe) = args.probe {
        return Ok(self::probe(probe, view));
    }
    let status: api::Status = show(view, &Request::Status, status_text)?;
    Ok(if status.problems.is_empty() { 0 } else { exit::UNAVAILABLE })
}

/// `egret status --probe`: 0 or 1. Something to look at, such as a bad policy, is no reason to restart an agent.
fn probe(probe: Probe, view: &View) -> u8 {
    let (line, good) = match client::ask::<api::Status>(&view.socket, &Request::Status) {
        Ok(status) => (status.state.clone(), probe == Probe::Live || status.state != "starting"),
        Err(refusal) => (refusal.to_string(), false),
    };
    print(&(line + "\n"));
    u8::from(!good)
}

/// `egret endpoint`.
pub fn endpoint(command: &EndpointCommand) -> Result<u8, Refusal> {
    match command {
        EndpointCommand::List(view) => show(view, &Request::Endpoints, endpoints_text).map(|_: Vec<_>| 0),
        EndpointCommand::Get(get) => {
            show(&get.view, &Request::Endpoint { id: get.id }, endpoint_text).map(|_| 0)
        }
    }
}

/// `egret identity`.
pub fn identity(command: &IdentityCommand) -> Result<u8, Refusal> {
    let IdentityCommand::List(view) = command;
    show(view, &Request::Identities, identities_text).map(|_: Vec<_>| 0)
}

/// `egret fqdn`.
pub fn fqdn(command: &FqdnCommand) -> Result<u8, Refusal> {
    let FqdnCommand::Cache(CacheCommand::List { endpoint, matchpattern, view }) = command;
    let request = Request::Names { endpoint: *endpoint, pattern: matchpattern.clone() };
    show(view, &request, names_text).map(|_: Vec<_>| 0)
}

/// `egret policy`.
pub fn policy(command: &PolicyCommand) -> Result<u8, Refusal> {
    match command {
        PolicyCommand::Get(view) => show(view, &Request::Policies, policies_text).map(|_| 0),
        PolicyCommand::Check(args) => check::check(args),
        PolicyCommand::Explain(args) => explain::explain(args),
    }
}

/// `egret bpf`.
pub fn bpf(command: &BpfCommand) -> Result<u8, Refusal> {
    let BpfCommand::Dump(dump) = command;
    show(&dump.view, &Request::Maps { map: dump.map.clone() }, maps_text).map(|_: Vec<_>| 0)
}

fn show<T: DeserializeOwned + Serialize>(
    view: &View,
    request: &Request,
    text: impl FnOnce(&T) -> String,
) -> Result<T, Refusal> {
    let answer: T = client::ask(&view.socket, request)?;
    print(&match view.output {
        Format::Table => text(&answer),
        Format::Json => json(&answer),
    });
    Ok(answer)
}

fn json(of: &impl Serialize) -> String {
    // These types have no value that JSON cannot say.
    serde_json::to_string_pretty(of).unwrap_or_default() + "\n"
}

/// A reader that has seen enough is no error.
fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

fn status_text(status: &api::Status) -> String {
    let mut table = Table::plain();
    let adopted = if status.adopted { ", went on with the maps of an earlier one" } else { "" };
    table.row(["Egret", &format!("{} {} (pid {})", status.state, status.version, status.pid)]);
    table.row(["Node", &status.node]);
    table.row(["Source", &status.source]);
    table.row(["Started", &format!("{}{adopted}", status.started)]);
    table.row(["Datapath", &format!("{}, {}", status.datapath, status.mode)]);
    table.row(["Startup", &format!("{}; {} packets dropped", status.startup, status.unknown_drops)]);
    table.row(["Endpoints", &format!("{} of {} ready", status.endpoints_ready, status.endpoints)]);
    table.row(["Identities", &status.identities.to_string()]);
    table.row(["Policies", &format!("{}, revision {}", status.policies, status.revision)]);
    table.row(["Resolvers", &status.resolvers.join(", ")]);
    for map in status.maps.iter().filter(|map| map.entries > 0) {
        table.row(["Map", &format!("{} {} of {}", map.name, map.entries, map.capacity)]);
    }
    for (kind, count) in status.lost.iter().filter(|(_, count)| **count > 0) {
        table.row(["Lost", &format!("{count} {kind}")]);
    }
    for problem in &status.problems {
        table.row(["Problem", problem]);
    }
    table.text()
}

const ENDPOINT_COLUMNS: [&str; 9] = [
    "ENDPOINT",
    "POLICY (ingress) ENFORCEMENT",
    "POLICY (egress) ENFORCEMENT",
    "IDENTITY",
    "LABELS (source:key[=value])",
    "IPv6",
    "IPv4",
    "STATUS",
    "POD",
];

fn endpoints_text(endpoints: &Vec<api::Endpoint>) -> String {
    let mut table = Table::new(ENDPOINT_COLUMNS);
    for e in endpoints {
        let family = |v6: bool| -> Vec<String> {
            e.addresses.iter().filter(|ip| IpAddr::is_ipv6(ip) == v6).map(ToString::to_string).collect()
        };
        let one = |text: &str| vec![text.to_owned()];
        table.cells([
            one(&e.id.to_string()),
            one(&e.ingress),
            one(&e.egress),
            one(&e.identity.to_string()),
            labels(e),
            family(true),
            family(false),
            one(&e.state),
            one(&e.pod),
        ]);
    }
    table.text()
}

fn labels(endpoint: &api::Endpoint) -> Vec<String> {
    printed(&endpoint.labels).collect()
}

fn endpoint_text(e: &api::Endpoint) -> String {
    let mut table = Table::plain();
    table.row(["Endpoint", &e.id.to_string()]);
    table.row(["Pod", &e.pod]);
    table.row(["UID", &e.uid]);
    table.row(["Status", &format!("{}: {}", e.state, e.at)]);
    table.row(["Identity", &e.identity.to_string()]);
    labels(e).iter().for_each(|label| table.row(["Label", label]));
    e.addresses.iter().for_each(|ip| table.row(["Address", &ip.to_string()]));
    table.row(["Ingress", &e.ingress]);
    table.row(["Egress", &e.egress]);
    e.policies.iter().for_each(|policy| table.row(["Policy", policy]));
    for c in &e.counters {
        let line = format!("{} {}: {} packets, {} bytes", c.direction, c.reason, c.packets, c.bytes);
        table.row(["Counter", &line]);
    }
    table.text()
}

fn identities_text(identities: &Vec<api::Identity>) -> String {
    let mut table = Table::new(["ID", "LABELS"]);
    for identity in identities {
        table.cells([vec![identity.id.to_string()], identity.labels.clone()]);
    }
    table.text()
}

fn names_text(names: &Vec<api::Told>) -> String {
    let mut table = Table::new(["Endpoint", "Source", "FQDN", "TTL", "ExpirationTime", "IPs"]);
    for n in names {
        let ips: Vec<String> = n.ips.iter().map(ToString::to_string).collect();
        let (id, ttl) = (n.endpoint.to_string(), n.ttl.to_string());
        table.row([&*id, &n.source, &n.fqdn, &ttl, &n.expiration_time, &ips.join(",")]);
    }
    table.text()
}

fn policies_text(policies: &api::Policies) -> String {
    let mut text = policy_table(&policies.policies);
    policies.diagnostics.iter().for_each(|line| text += &format!("{line}\n"));
    text + &format!("Revision: {}\n", policies.revision)
}

fn policy_table(policies: &[api::Policy]) -> String {
    let mut table = Table::new(["POLICY", "TIER", "SUBJECT", "DEFAULT DENY", "RULES", "SELECTS"]);
    for p in policies {
        let one = |text: &str| vec![text.to_owned()];
        let subject = if p.subject.is_empty() { "<everybody>" } else { &p.subject };
        let isolates = if p.isolates.is_empty() { "none".to_owned() } else { p.isolates.join(", ") };
        let none = one("<none>");
        let selects = if p.selects.is_empty() { none } else { p.selects.clone() };
        let tier = p.priority.map_or_else(|| p.tier.clone(), |priority| format!("{} {priority}", p.tier));
        let rules = p.rules.len().to_string();
        table.cells([one(&p.name), one(&tier), one(subject), one(&isolates), one(&rules), selects]);
    }
    table.text()
}

fn maps_text(maps: &Vec<api::Map>) -> String {
    let mut table = Table::new(["MAP", "ENTRY"]);
    for map in maps {
        map.entries.iter().for_each(|entry| table.row([&*map.name, entry]));
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_ciliums_columns() {
        let endpoint = api::Endpoint {
            id: 3,
            pod: "shop/web".into(),
            state: "ready".into(),
            ingress: "Disabled".into(),
            egress: "Enabled".into(),
            identity: 256,
            labels: [("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "a".to_owned())].into(),
            addresses: vec![[10, 0, 0, 1].into(), "2001:db8::1".parse().expect("an address")],
            ..api::Endpoint::default()
        };
        let text = endpoints_text(&vec![endpoint]);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(lines[0], ENDPOINT_COLUMNS);
        let first = [
            "3",
            "Disabled",
            "Enabled",
            "256",
            "k8s:app=web",
            "2001:db8::1",
            "10.0.0.1",
            "ready",
            "shop/web",
        ];
        assert_eq!(lines[1..], [&first[..], &["k8s:tier=a"]]);
    }

    #[test]
    fn names_and_policies_are_rows() {
        let told = api::Told {
            endpoint: 1,
            fqdn: "a.example.".into(),
            ips: vec![[192, 0, 2, 1].into()],
            ..api::Told::default()
        };
        assert!(names_text(&vec![told]).lines().nth(1).is_some_and(|line| line.contains("a.example.")));
        let policy = api::Policy { name: "CiliumNetworkPolicy/ns/web".into(), ..api::Policy::default() };
        let tiered = api::Policy { tier: "Admin".into(), priority: Some(10), ..api::Policy::default() };
        let text = policy_table(&[policy, tiered]);
        assert!(text.contains("Admin 10"), "{text}");
        assert!(text.contains("<everybody>") && text.contains("<none>"), "{text}");
        assert!(json(&api::Status::default()).contains("\"state\""));
    }
}
