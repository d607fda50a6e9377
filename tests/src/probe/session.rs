//! The test's end of a running probe.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::binary;
use super::outcome::{Answer, Conn, Tried};
use super::proto::{Cycled, Datagram, Reply, Request, UdpMode};
use crate::exec::{Cmd, Outcome, Place, Running};
use crate::wait;

/// Limit of a connect that is expected to fail by silence.
const SHORT: u64 = 1500;

/// A probe that waits for requests; killed when dropped.
#[derive(Debug)]
pub struct Session {
    running: Running,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Session {
    /// Starts a bare probe in `place`.
    pub fn start(place: &Place) -> Self {
        Self::start_under(place, &[])
    }

    /// Starts `prefix... egret-probe serve` in `place`.
    pub fn start_under(place: &Place, prefix: &[String]) -> Self {
        let mut argv = prefix.to_vec();
        argv.extend([binary().display().to_string(), "serve".into()]);
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        place.enter(&mut command);
        let mut child: Child = command.spawn().unwrap_or_else(|error| panic!("start {argv:?}: {error}"));
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let running = Running::new(child, &Cmd::new(&argv));
        Self { running, stdin, stdout }
    }

    /// Tells the probe to do something and waits for its reply.
    #[track_caller]
    pub fn ask(&mut self, request: &Request, limit: Duration) -> Reply {
        let line = serde_json::to_string(request).expect("a request is JSON");
        let mut answer = String::new();
        let told = writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush());
        let ready =
            wait::readable_within(self.stdout.get_ref().as_fd(), wait::patient(limit)).unwrap_or(false);
        let read = if told.is_ok() && ready { self.stdout.read_line(&mut answer).unwrap_or(0) } else { 0 };
        assert!(read > 0, "the probe is gone or hangs at {line}\nstderr: {}", self.running.stderr_so_far());
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("probe said {answer:?}: {error}"))
    }

    /// Resolves in both families by the C library.
    #[track_caller]
    pub fn resolve(&mut self, name: &str) -> Answer {
        self.resolve_family(name, 0)
    }

    /// Resolves in family 4, 6 or 0 (both).
    #[track_caller]
    pub fn resolve_family(&mut self, name: &str, family: u8) -> Answer {
        let start = Instant::now();
        match self.ask(&Request::Resolve { name: name.into(), family }, Duration::from_secs(40)) {
            Reply::Resolved { addresses, error } => Answer { addresses, error, elapsed: start.elapsed() },
            other => panic!("{other:?}"),
        }
    }

    /// Tries a TCP connection.
    #[track_caller]
    pub fn tcp(&mut self, to: &str) -> Tried {
        self.connect(to, false, None, 0)
    }

    /// Panics unless a connection that no test allows is refused: for tests whose other steps would pass
    /// without any firewall too.
    #[track_caller]
    pub fn held(&mut self) {
        self.tcp(crate::report::CONTROL).refused();
    }

    /// Tries a TCP connection with everything that can be chosen.
    #[track_caller]
    pub fn connect(&mut self, to: &str, mapped: bool, fast_open: Option<&str>, port: u16) -> Tried {
        let fast_open = fast_open.map(String::from);
        self.try_tcp(&Request::Tcp { to: parse(to), mapped, fast_open, port, timeout: SHORT })
    }

    /// Tries a TCP connection and leaves it time for retries of the SYN, as where the agent still learns.
    #[track_caller]
    pub fn tcp_patient(&mut self, to: &str) -> Tried {
        let to = parse(to);
        self.try_tcp(&Request::Tcp { to, mapped: false, fast_open: None, port: 0, timeout: 8000 })
    }

    #[track_caller]
    fn try_tcp(&mut self, request: &Request) -> Tried {
        let start = Instant::now();
        let result = match self.ask(request, Duration::from_secs(20)) {
            Reply::Connected { id, local } => Ok(Conn { id, local }),
            Reply::Failed { errno, .. } => Err(errno),
            other => panic!("{other:?}"),
        };
        Tried { result, elapsed: start.elapsed() }
    }

    /// True if a line makes the round trip on a kept connection.
    #[track_caller]
    pub fn echo(&mut self, conn: Conn, text: &str) -> bool {
        let request = Request::Echo { id: conn.id, text: text.into(), timeout: 3000 };
        matches!(self.ask(&request, Duration::from_secs(20)), Reply::Echoed)
    }

    /// True if so many bytes go out and the last line comes back within `limit`.
    #[track_caller]
    pub fn upload(&mut self, conn: Conn, bytes: usize, limit: Duration) -> bool {
        let request = Request::Upload { id: conn.id, bytes, timeout: limit.as_millis() as u64 };
        matches!(self.ask(&request, limit * 2 + Duration::from_secs(5)), Reply::Echoed)
    }

    /// Closes a kept connection.
    pub fn close(&mut self, conn: Conn) {
        self.ask(&Request::Close { id: conn.id }, Duration::from_secs(5));
    }

    /// Sends one datagram by `sendto`.
    #[track_caller]
    pub fn udp(&mut self, to: &str) -> Datagram {
        self.datagrams(UdpMode::SendTo, &[to], false, b"ping").remove(0)
    }

    /// Sends datagrams from one socket.
    #[track_caller]
    pub fn datagrams(&mut self, mode: UdpMode, to: &[&str], mapped: bool, payload: &[u8]) -> Vec<Datagram> {
        self.datagrams_from(mode, to, mapped, payload, 0)
    }

    /// As [`Session::datagrams`], from a given source port.
    #[track_caller]
    pub fn datagrams_from(
        &mut self,
        mode: UdpMode,
        to: &[&str],
        mapped: bool,
        payload: &[u8],
        port: u16,
    ) -> Vec<Datagram> {
        let to: Vec<SocketAddr> = to.iter().map(|to| parse(to)).collect();
        let count = to.len();
        let request = Request::Udp { mode, to, mapped, payload: payload.into(), port, timeout: 1000 };
        match self.ask(&request, Duration::from_secs(20)) {
            Reply::Udp(sent) => sent,
            Reply::Failed { errno, .. } => vec![Datagram { errno, echoed: false }; count],
            other => panic!("{other:?}"),
        }
    }

    /// Sends DNS messages from one socket: answers as they came, and the errno.
    #[track_caller]
    pub fn dns(
        &mut self,
        server: &str,
        tcp: bool,
        messages: &[Vec<u8>],
        expect: usize,
    ) -> (Vec<Vec<u8>>, i32) {
        let messages = messages.to_vec();
        let request = Request::Dns { server: parse(server), tcp, messages, expect, port: 0, timeout: 3000 };
        match self.ask(&request, Duration::from_secs(20)) {
            Reply::Dns { answers, errno } => (answers, errno),
            other => panic!("{other:?}"),
        }
    }

    /// errno of one ICMP echo, 0 if it came back.
    #[track_caller]
    pub fn ping(&mut self, to: &str) -> i32 {
        let to = to.parse().expect("an address");
        match self.ask(&Request::Ping { to, timeout: 1000 }, Duration::from_secs(10)) {
            Reply::Echoed => 0,
            Reply::Failed { errno, .. } => errno,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the probe answers: under Egret that takes as long as its programs take to load.
    #[track_caller]
    pub fn ready(&mut self) {
        let nothing = Request::Open { family: 0, kind: 0, protocol: 0 };
        self.ask(&nothing, Duration::from_secs(60));
    }

    /// errno of opening a socket, 0 if it opens.
    #[track_caller]
    pub fn open(&mut self, family: i32, kind: i32, protocol: i32) -> i32 {
        match self.ask(&Request::Open { family, kind, protocol }, Duration::from_secs(5)) {
            Reply::Failed { errno, .. } => errno,
            _ => 0,
        }
    }

    /// errno of sending a whole IP packet by a raw socket, 0 if it was sent.
    #[track_caller]
    pub fn raw(&mut self, packet: &crate::packet::Packet) -> i32 {
        let request = Request::Raw { bytes: packet.build(), to: packet.destination() };
        match self.ask(&request, Duration::from_secs(5)) {
            Reply::Failed { errno, .. } => errno,
            _ => 0,
        }
    }

    /// Looks up a name's AAAA and connects at once, `count` times.
    #[track_caller]
    pub fn cycle(&mut self, server: &str, name: &str, port: u16, count: usize) -> Cycled {
        let request = Request::Cycle { server: parse(server), name: name.into(), port, count };
        match self.ask(&request, Duration::from_secs(300)) {
            Reply::Cycled(cycled) => cycled,
            other => panic!("{other:?}"),
        }
    }

    /// Runs a program as the probe's child: exit code, standard output, standard error.
    #[track_caller]
    pub fn exec(&mut self, cmd: &Cmd) -> (i32, String, String) {
        let timeout = cmd.timeout.as_millis() as u64;
        let request = Request::Exec { argv: cmd.argv.clone(), timeout };
        match self.ask(&request, cmd.timeout + Duration::from_secs(5)) {
            Reply::Exited { code, stdout, stderr } => (code, stdout, stderr),
            other => panic!("{other:?}"),
        }
    }

    /// The process that was started (Egret, if the probe runs under it).
    pub fn process(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Ends the probe and waits for what was started.
    pub fn finish(self) -> Outcome {
        drop(self.stdin);
        let mut outcome = self.running.wait(Duration::from_secs(20));
        let mut rest = self.stdout;
        let mut line = String::new();
        while matches!(rest.read_line(&mut line), Ok(1..)) {}
        outcome.stdout.push_str(&line);
        outcome
    }
}

fn parse(address: &str) -> SocketAddr {
    address.parse().unwrap_or_else(|_| panic!("{address} is no address:port"))
}
