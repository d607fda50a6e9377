//! The steps: names, commands, and what must come of them.

use std::time::Duration;

use super::check::{Seen, all as every};
use crate::dnsd::Transport;
use crate::exec::Cmd;
use crate::lab::Lab;
use crate::traffic::python;

/// What was seen: as expected, or not.
pub(super) type Verdict = Result<String, String>;

/// One row of the demonstration.
pub(super) struct Step {
    /// What it is about.
    pub(super) name: &'static str,
    /// Options of `egret run`.
    pub(super) options: &'static [&'static str],
    /// The command as the table shows it.
    pub(super) shown: &'static str,
    /// The command as it is run.
    pub(super) command: Cmd,
    /// What must come of it.
    pub(super) expected: &'static str,
    /// Compares.
    pub(super) check: fn(&Seen<'_>) -> Verdict,
    /// What is refused, to be run without Egret.
    pub(super) control: Option<Cmd>,
    /// Whether it also runs in the VM.
    pub(super) core: bool,
}

/// Names and addresses; each step has its own, so that all can run at the same time.
pub(super) fn furnish(lab: &Lab) {
    lab.zone
        .add("web.example", 60, &["192.0.2.10"])
        .add("elsewhere.example", 60, &["192.0.2.20"])
        .add("direct.example", 60, &["192.0.2.30"])
        .add("port.example", 60, &["192.0.2.40"])
        .rotate("rotate.example", 1, &[&["192.0.2.51"], &["192.0.2.52"]])
        .add("long.example", 1, &["192.0.2.60"])
        .add("udp.example", 60, &["192.0.2.70"])
        .add("six.example", 60, &["2001:db8:a::80"])
        .add("tcp.example", 60, &["192.0.2.90"])
        .add("secret-data.leak.example", 60, &["192.0.2.100"]);
}

/// All steps, in the order of the table.
pub(super) fn all() -> Vec<Step> {
    vec![
        allowed(),
        other_name(),
        direct(),
        other_port(),
        rotation(),
        long_connection(),
        udp(),
        ipv6(),
        tcp_dns(),
        outside(),
    ]
}

/// A shell in which `get URL` is curl, followed by its exit code and time.
fn shell(script: &str) -> Cmd {
    let get = "get() { curl -sS --noproxy '*' --max-time 8 -w '%{exitcode} %{time_total}\\n' \"$1\"; }";
    Cmd::sh(&format!("{get}\n{script}")).timeout(Duration::from_secs(90))
}

/// A Python program in which `attempt(f)` calls `f` and prints what came of it.
fn snake(program: &str) -> Cmd {
    let attempt = "import socket, time\n\
        def attempt(f):\n\
        \x20   start, code = time.time(), 0\n\
        \x20   try: print(f(), end='')\n\
        \x20   except OSError as error: code = error.errno or 255\n\
        \x20   print(code, time.time() - start, flush=True)\n";
    python(&format!("{attempt}{program}")).timeout(Duration::from_secs(90))
}

fn allowed() -> Step {
    Step {
        name: "allowed name",
        options: &["--allow", "web.example"],
        shown: "curl http://web.example/",
        command: shell("get http://web.example/"),
        expected: "reached",
        check: |seen| seen.reaches(0, "192.0.2.10:80"),
        control: None,
        core: true,
    }
}

fn other_name() -> Step {
    Step {
        name: "another name",
        options: &["--allow", "web.example"],
        shown: "curl http://elsewhere.example/",
        command: shell("get http://elsewhere.example/"),
        expected: "look-up refused at once",
        check: |seen| every(&[seen.refused(0, 6), seen.never_asked("elsewhere")]),
        control: Some(shell("get http://elsewhere.example/")),
        core: true,
    }
}

fn direct() -> Step {
    Step {
        name: "address without look-up",
        options: &["--allow", "direct.example"],
        shown: "curl http://192.0.2.30/",
        command: shell("get http://192.0.2.30/"),
        expected: "refused at once, name listed or not",
        check: |seen| {
            let reason = seen.reason("tcp", "192.0.2.30:80", "NameUnresolved");
            every(&[seen.refused(0, 7), reason, seen.nothing_arrived("192.0.2.30")])
        },
        control: Some(shell("get http://192.0.2.30/")),
        core: true,
    }
}

fn other_port() -> Step {
    Step {
        name: "another port",
        options: &["--allow", "port.example:443"],
        shown: "curl http://port.example:8080/",
        command: shell("get http://port.example:8080/"),
        expected: "resolved, connect refused at once",
        check: |seen| {
            let reason = seen.reason("tcp", "192.0.2.40:8080", "NamePortMismatch");
            every(&[seen.refused(0, 7), reason, seen.nothing_arrived("192.0.2.40")])
        },
        control: Some(shell("get http://port.example:8080/")),
        core: true,
    }
}

fn rotation() -> Step {
    Step {
        name: "address rotation",
        options: &["--allow", "rotate.example", "--ttl-floor", "1", "--grace", "1"],
        shown: "curl NAME; sleep 4; curl NAME; curl OLD",
        command: shell(
            "get http://rotate.example/; sleep 4; get http://rotate.example/; get http://192.0.2.51/",
        ),
        expected: "old, new reached; old refused after TTL + grace",
        check: |seen| {
            let (old, new) = (seen.reaches(0, "192.0.2.51:80"), seen.reaches(1, "192.0.2.52:80"));
            every(&[old, new, seen.refused(2, 7), seen.reason("tcp", "192.0.2.51:80", "NameExpired")])
        },
        control: Some(shell("get http://192.0.2.51/")),
        core: true,
    }
}

fn long_connection() -> Step {
    Step {
        name: "long connection",
        options: &["--allow", "long.example", "--ttl-floor", "1", "--grace", "0"],
        shown: "python3: a line now, one 5 s later",
        command: snake(
            "s = socket.create_connection(('long.example', 80), timeout=5)\n\
             who = lambda: (s.sendall(b'WHO\\n'), s.recv(200).decode())[1]\n\
             attempt(who); time.sleep(5); attempt(who)\n",
        ),
        expected: "answered before and after expiry (1 s)",
        check: |seen| every(&[seen.reaches(0, "192.0.2.60:80"), seen.reaches(1, "192.0.2.60:80")]),
        control: None,
        core: false,
    }
}

fn udp() -> Step {
    let program = |port: u16| {
        format!(
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)\n\
             attempt(lambda: (s.sendto(b'reached udp\\n', (socket.gethostbyname('udp.example'), {port})),\n\
             \x20   s.recv(99).decode())[1])\n"
        )
    };
    Step {
        name: "UDP",
        options: &["--allow", "udp.example:9999/udp"],
        shown: "python3: sendto 9999, sendto 5000",
        command: snake(&format!("{}{}", program(9999), program(5000))),
        expected: "9999 answers, sendto to 5000 fails at once",
        check: |seen| {
            let reason = seen.reason("udp", "192.0.2.70:5000", "NamePortMismatch");
            every(&[seen.reaches(0, "udp"), seen.refused(1, libc::EPERM), reason])
        },
        control: Some(snake(&program(5000))),
        core: true,
    }
}

fn ipv6() -> Step {
    Step {
        name: "IPv6",
        options: &["--allow", "six.example"],
        shown: "curl NAME; curl http://[2001:db8:a::81]/",
        command: shell("get http://six.example/; get http://[2001:db8:a::81]/"),
        expected: "name reached, other address refused at once",
        check: |seen| {
            let reached = seen.reaches(0, "[2001:db8:a::80]:80");
            every(&[reached, seen.refused(1, 7), seen.nothing_arrived("2001:db8:a::81")])
        },
        control: Some(shell("get http://[2001:db8:a::81]/")),
        core: true,
    }
}

fn tcp_dns() -> Step {
    Step {
        name: "DNS over TCP",
        options: &["--allow", "tcp.example"],
        shown: "curl http://$(dig +tcp +short NAME)/",
        command: shell("get http://$(dig +tcp +short +time=5 +tries=1 @10.7.0.53 tcp.example)/"),
        expected: "learned from the TCP answer, reached",
        check: |seen| {
            let by_tcp =
                |q: &crate::dnsd::Query| q.transport == Transport::Tcp && q.name_lower() == "tcp.example";
            let asked = match seen.lab.queries().count_by(by_tcp) {
                0 => Err("no query by TCP".to_string()),
                count => Ok(format!("{count} query by TCP")),
            };
            every(&[asked, seen.reaches(0, "192.0.2.90:80")])
        },
        control: None,
        core: true,
    }
}

fn outside() -> Step {
    let ask = "N=secret-data.leak.example\n";
    Step {
        name: "query outside the list",
        options: &["--allow", "web.example"],
        shown: "getent ahosts N; dig N; dig +tcp N",
        command: shell(&format!(
            "{ask}getent ahosts $N >/dev/null && echo leaked\n\
             dig +time=2 +tries=1 @10.7.0.53 $N | grep -q 192.0.2.100 && echo leaked\n\
             dig +tcp +time=2 +tries=1 @10.7.0.53 $N | grep -q 192.0.2.100 && echo leaked\n\
             echo done"
        )),
        expected: "no query leaves this machine",
        check: |seen| {
            let told = seen.run.outcome.stdout.trim().to_string();
            let tried = if told == "done" { Ok("3 of 3 look-ups failed".into()) } else { Err(told) };
            every(&[tried, seen.never_asked("secret-data")])
        },
        control: Some(shell(&format!("{ask}getent ahosts $N >/dev/null && get http://$N/"))),
        core: true,
    }
}
