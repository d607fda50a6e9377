//! Flows over TCP with certificates: who is served, who is not, and that neither silence nor new certificates stop it.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use egret_tests::cluster::{Cluster, names_of_web};
use egret_tests::egret::binary;
use egret_tests::exec::{Cmd, Outcome};
use egret_tests::pki::{Authority, Pair};
use egret_tests::probe::Session;
use egret_tests::wait;

/// Where the agent serves, on every address of the node.
const ADDRESS: &str = "127.0.0.1:4244";

struct Setup {
    cluster: Cluster,
    servers: Authority,
    clients: Authority,
    server: Pair,
}

fn started() -> Option<Setup> {
    let mut cluster = Cluster::new()?;
    let dir = cluster.world.dir().to_owned();
    let (servers, clients) = (Authority::new(&dir, "servers"), Authority::new(&dir, "clients"));
    let server = servers.vouch("n1.example");
    let path = |path: &std::path::Path| path.display().to_string();
    cluster.agent.put("names.yaml", &names_of_web(&["vendor.example"]));
    cluster = cluster.agent_args(&[
        "--hubble-listen=0.0.0.0:4244",
        "--hubble-tls-cert-file",
        &path(&server.certificate),
        "--hubble-tls-key-file",
        &path(&server.key),
        "--hubble-tls-client-ca-files",
        &path(&clients.certificate()),
    ]);
    cluster.agent.start();
    cluster.agent.expect_ready("shop/web");
    let mut session = Session::start(&cluster.place("web"));
    session.tcp("192.0.2.77:80").denied();
    Some(Setup { cluster, servers, clients, server })
}

impl Setup {
    fn observe(&self, args: &[String]) -> Outcome {
        let program = binary().display().to_string();
        let fixed = [program, "observe".into(), "--all".into()];
        self.cluster.node().run(&Cmd::new(fixed.iter().chain(args)))
    }

    /// As a client that believes `authority`, and shows `pair`.
    fn over_tls(&self, authority: &Authority, pair: Option<&Pair>, name: &str) -> Outcome {
        let mut args = vec![
            "--server".to_owned(),
            format!("tls://{ADDRESS}"),
            format!("--tls-ca-cert-files={}", authority.certificate().display()),
            format!("--tls-server-name={name}"),
        ];
        if let Some(pair) = pair {
            args.push(format!("--tls-client-cert-file={}", pair.certificate.display()));
            args.push(format!("--tls-client-key-file={}", pair.key.display()));
        }
        self.observe(&args)
    }
}

#[track_caller]
fn served(outcome: &Outcome) {
    outcome.expect_success();
    assert!(outcome.stdout.contains("192.0.2.77:80 "), "{outcome:#?}");
}

#[track_caller]
fn refused(outcome: &Outcome) {
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(69), ""), "{outcome:#?}");
}

#[test]
fn only_who_proves_himself_reads_flows() {
    let Some(setup) = started() else { return };
    let reader = setup.clients.vouch("reader");
    let seen = || {
        let outcome = setup.over_tls(&setup.servers, Some(&reader), "n1.example");
        outcome.stdout.contains("192.0.2.77:80 ").then_some(outcome)
    };
    served(&wait::until(wait::patient(Duration::from_secs(10)), seen).expect("served"));

    // A client without a certificate, or with one of somebody else.
    refused(&setup.over_tls(&setup.servers, None, "n1.example"));
    let stranger = setup.servers.vouch("reader");
    refused(&setup.over_tls(&setup.servers, Some(&stranger), "n1.example"));
    // A server that is not who it should be.
    refused(&setup.over_tls(&setup.clients, Some(&reader), "n1.example"));
    refused(&setup.over_tls(&setup.servers, Some(&reader), "n2.example"));
    // In the clear.
    refused(&setup.observe(&["--server".into(), ADDRESS.into()]));

    silence(&setup, &reader);
    new_certificates(&setup, &reader);
}

/// Whoever says nothing has a place for a while, and not for ever.
fn silence(setup: &Setup, reader: &Pair) {
    let connect = || TcpStream::connect(ADDRESS).expect("the kernel's queue has room");
    let mut silent: Vec<TcpStream> = setup.cluster.world.ns("n").run(|| (0..64).map(|_| connect()).collect());
    let begun = Instant::now();
    served(&setup.over_tls(&setup.servers, Some(reader), "n1.example"));
    assert!(begun.elapsed() > Duration::from_secs(1), "all places were taken");
    let last = silent.last_mut().expect("many");
    last.set_read_timeout(Some(wait::patient(Duration::from_secs(10)))).expect("set");
    assert!(!matches!(last.read(&mut [0; 64]), Ok(1..)), "nothing was said to it");
}

/// Files are read again; what makes no sense changes nothing.
fn new_certificates(setup: &Setup, reader: &Pair) {
    fs::write(&setup.server.certificate, "no certificate").expect("written");
    let said = || setup.cluster.agent.said().contains("the certificates from before stay").then_some(());
    assert!(
        wait::until(wait::patient(Duration::from_secs(15)), said).is_some(),
        "{}",
        setup.cluster.agent.said()
    );
    served(&setup.over_tls(&setup.servers, Some(reader), "n1.example"));
    let others = Authority::new(setup.cluster.world.dir(), "others");
    let new = others.vouch("n1.example");
    fs::rename(&new.key, &setup.server.key).expect("in place");
    fs::rename(&new.certificate, &setup.server.certificate).expect("in place");
    let served_anew = || setup.over_tls(&others, Some(reader), "n1.example").success().then_some(());
    assert!(wait::until(wait::patient(Duration::from_secs(15)), served_anew).is_some());
    refused(&setup.over_tls(&setup.servers, Some(reader), "n1.example"));
}

#[test]
fn an_address_for_everybody_needs_certificates() {
    let Some(mut cluster) = Cluster::new() else { return };
    let dir = cluster.world.dir().to_owned();
    let authority = Authority::new(&dir, "servers");
    let pair = authority.vouch("n1.example");
    let (certificate, key) = (pair.certificate.display().to_string(), pair.key.display().to_string());
    let authorities = authority.certificate().display().to_string();
    let server = ["--hubble-tls-cert-file", &certificate, "--hubble-tls-key-file", &key];
    let listen = ["--hubble-listen", "0.0.0.0:4244"];
    let wrong_key = ["--hubble-tls-cert-file", &authorities, "--hubble-tls-key-file", &key];
    let missing = ["--hubble-tls-cert-file", "/nowhere", "--hubble-tls-key-file", &key];
    for (args, code, part) in [
        (listen.to_vec(), 64, "everybody could read"),
        ([&listen[..], &server].concat(), 64, "everybody could read"),
        ([&["--hubble-listen", "127.0.0.1:4244"], &wrong_key[..]].concat(), 65, "servers.pem"),
        ([&["--hubble-listen", "127.0.0.1:4244"], &missing[..]].concat(), 66, "/nowhere"),
    ] {
        cluster.agent.set_args(&args);
        let outcome = cluster.agent.run();
        assert_eq!(outcome.code, Some(code), "{args:?}: {outcome:#?}");
        assert!(outcome.stderr.contains(part), "{args:?}: {outcome:#?}");
    }
}
