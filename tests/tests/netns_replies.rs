//! Answers that the programs at a pod's interface make of denied packets, on the wire: they must arrive whichever side has
//! its checksums offloaded. And the mark that stands on them opens nothing for others.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use egret_tests::agent::Agent;
use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::exec::Cmd;
use egret_tests::netns::{World, WorldBuilder};
use egret_tests::wait;

/// A denied connect must not wait for a second SYN.
const AT_ONCE: Duration = Duration::from_millis(500);
const SERVERS: [&str; 2] = ["10.8.2.2", "2001:db8:82::2"];
const OPEN: u16 = 8080;
const CLOSED: u16 = 8081;

fn pod(name: &str, n: u8) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: shop\n  labels: {{app: {name}}}\n  \
         annotations: {{egret.dev/interface: v{name}}}\nspec: {{nodeName: n1}}\nstatus:\n  phase: Running\n  \
         podIPs: [{{ip: 10.8.{n}.2}}, {{ip: \"2001:db8:8{n}::2\"}}]\n"
    )
}

/// `a` may reach `b` at the open port, and ask it for one name.
const POLICY: &str = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: a, namespace: shop}
spec:
  endpointSelector: {matchLabels: {app: a}}
  egress:
  - toEndpoints: [{matchLabels: {app: b}}]
    toPorts:
    - ports: [{port: \"8080\", protocol: TCP}]
    - ports: [{port: \"53\", protocol: UDP}]
      rules: {dns: [{matchName: api.example}]}
";

/// Nobody may begin a flow to `b`.
const CLOSED_B: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}
";

fn hold(world: &World, policy: &str) -> Agent {
    let mut agent = Agent::new(world, "h").args(&["--on-deny", "reject"]);
    agent.put("a.yaml", &pod("a", 1));
    agent.put("b.yaml", &pod("b", 2));
    agent.put("policy.yaml", policy);
    agent.start();
    agent.expect_ready("shop/a");
    agent.expect_ready("shop/b");
    agent
}

fn at(server: &str, port: u16) -> SocketAddr {
    SocketAddr::new(server.parse().expect("an address"), port)
}

fn connect(world: &World, server: &str, port: u16) -> Result<Duration, ErrorKind> {
    let start = Instant::now();
    let connected =
        world.ns("a").run(|| TcpStream::connect_timeout(&at(server, port), Duration::from_secs(3)));
    connected.map(|_| start.elapsed()).map_err(|error| error.kind())
}

/// Sends a datagram from `a` and gives what comes back: an answer, or the error that an ICMP message left.
fn datagram(world: &World, to: SocketAddr, payload: &[u8]) -> std::io::Result<Vec<u8>> {
    world.ns("a").run(|| {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(Duration::from_secs(3)))?;
        socket.send(payload)?;
        let mut buffer = [0; 512];
        let size = socket.recv(&mut buffer)?;
        Ok(buffer[..size].to_vec())
    })
}

#[test]
fn w_a12_made_answers_arrive_with_and_without_offloads() {
    let world = WorldBuilder::node().build();
    let agent = hold(&world, POLICY);
    // What is denied would be served: a refusal is Egret's.
    let listen = |port| move |server: &&str| TcpListener::bind(at(server, port)).expect("bound");
    let _servers =
        world.ns("b").run(|| [OPEN, CLOSED].map(|port| SERVERS.iter().map(listen(port)).collect::<Vec<_>>()));
    for (place, device) in [("h", ""), ("a", "eth0"), ("h", "va")] {
        if !device.is_empty() {
            let off = Cmd::new(["ethtool", "-K", device, "tx", "off"]);
            world.place(place).run(&off).expect_success();
        }
        for server in SERVERS {
            let what = format!("{server}, {place} {device:?} without offload");
            connect(&world, server, OPEN).unwrap_or_else(|e| panic!("{what}: {e}: {}", agent.said()));
            let start = Instant::now();
            let refused = connect(&world, server, CLOSED);
            assert_eq!(refused, Err(ErrorKind::ConnectionRefused), "{what}");
            assert!(start.elapsed() < wait::patient(AT_ONCE), "{what}: {:?}", start.elapsed());
            let start = Instant::now();
            let error = datagram(&world, at(server, CLOSED), b"hello").expect_err("denied");
            let wanted = if server.contains(':') { libc::EACCES } else { libc::EHOSTUNREACH };
            assert_eq!(error.raw_os_error(), Some(wanted), "{what}: {error}");
            let query = raw::query(7, "other.example", rtype::A);
            let answer = datagram(&world, at(server, 53), &query).expect("an answer");
            assert_eq!((answer[3] & 15, &answer[4..]), (5, &query[4..]), "{what}: REFUSED");
            assert!(start.elapsed() < wait::patient(AT_ONCE), "{what}: {:?}", start.elapsed());
        }
        if !device.is_empty() {
            let on = Cmd::new(["ethtool", "-K", device, "tx", "on"]);
            world.place(place).run(&on).expect_success();
        }
    }
}

/// The mark of made answers, as `ebpf/src/reply.rs` sets it.
const MARK: &str = "0x0e670e70";

#[test]
fn a_mark_that_the_host_sets_opens_nothing() {
    let world = WorldBuilder::node().build();
    let _agent = hold(&world, CLOSED_B);
    let _server = world.ns("b").run(|| TcpListener::bind(at(SERVERS[0], OPEN))).expect("bound");
    let refused = || (connect(&world, SERVERS[0], OPEN) == Err(ErrorKind::ConnectionRefused)).then_some(());
    assert!(wait::until(Duration::from_secs(5), refused).is_some(), "closed for all");
    let rules = format!(
        "add table inet marks; add chain inet marks forward {{ type filter hook forward priority 0 ; }}; \
         add rule inet marks forward counter meta mark set {MARK}"
    );
    world.place("h").run(&Cmd::new(["nft", &rules])).expect_success();
    assert_eq!(connect(&world, SERVERS[0], OPEN), Err(ErrorKind::ConnectionRefused));
    let seen = world.place("h").run(&Cmd::new(["nft", "list", "ruleset"])).stdout;
    assert!(seen.contains("counter packets") && !seen.contains("counter packets 0"), "marked: {seen}");
}
