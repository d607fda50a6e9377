//! The probe's loop: a request per line in, a reply per line out.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::proto::{Reply, Request};
use super::sockaddr::{errno, open, target};
use super::{cycle, dns, ops};
use crate::wait;

/// Obeys standard input until it ends.
pub fn serve() {
    let mut kept = Kept::default();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let reply = match serde_json::from_str(&line) {
            Ok(request) => kept.obey(request),
            Err(error) => Reply::Failed { errno: libc::EINVAL, call: error.to_string() },
        };
        let text = serde_json::to_string(&reply).expect("a reply is JSON");
        let mut out = io::stdout().lock();
        if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

#[derive(Default)]
struct Kept {
    connections: HashMap<u64, TcpStream>,
    next: u64,
}

impl Kept {
    fn obey(&mut self, request: Request) -> Reply {
        match request {
            Request::Resolve { name, family } => dns::resolve(&name, family),
            Request::Dns { server, tcp, messages, expect, port, timeout } => {
                dns::exchange(server, tcp, &messages, expect, port, ms(timeout))
            }
            Request::Tcp { to, mapped, fast_open, port, timeout } => {
                let to = target(to, mapped);
                let made = match fast_open {
                    Some(data) => ops::fast_open(to, port, data.as_bytes(), ms(timeout)),
                    None => ops::connect(to, port, ms(timeout)),
                };
                outcome("connect", made.and_then(|stream| self.keep(stream)))
            }
            Request::Echo { id, text, timeout } => {
                self.with(id, |stream| ops::echo(stream, &text, ms(timeout)))
            }
            Request::Upload { id, bytes, timeout } => {
                self.with(id, |stream| ops::upload(stream, bytes, ms(timeout)))
            }
            Request::Close { id } => {
                self.connections.remove(&id);
                Reply::Done
            }
            Request::Udp { mode, to, mapped, payload, port, timeout } => {
                let to: Vec<_> = to.into_iter().map(|to| target(to, mapped)).collect();
                outcome("send", ops::datagrams(mode, &to, &payload, port, ms(timeout)).map(Reply::Udp))
            }
            Request::Ping { to, timeout } => {
                outcome("ping", ops::ping(to, ms(timeout)).map(|()| Reply::Echoed))
            }
            Request::Open { family, kind, protocol } => {
                outcome("socket", open(family, kind, protocol).map(|_| Reply::Done))
            }
            Request::Raw { bytes, to } => outcome("raw", ops::raw(&bytes, to).map(|()| Reply::Done)),
            Request::Cycle { server, name, port, count } => {
                outcome("cycle", cycle::run(server, &name, port, count).map(Reply::Cycled))
            }
            Request::Exec { argv, timeout } => outcome("exec", exec(&argv, ms(timeout))),
        }
    }

    fn keep(&mut self, stream: TcpStream) -> io::Result<Reply> {
        self.next += 1;
        let local = stream.local_addr()?;
        self.connections.insert(self.next, stream);
        Ok(Reply::Connected { id: self.next, local })
    }

    fn with(&self, id: u64, act: impl FnOnce(&TcpStream) -> io::Result<()>) -> Reply {
        let result = match self.connections.get(&id) {
            Some(stream) => act(stream),
            None => Err(io::Error::from_raw_os_error(libc::EBADF)),
        };
        outcome("echo", result.map(|()| Reply::Echoed))
    }
}

fn exec(argv: &[String], limit: Duration) -> io::Result<Reply> {
    let (program, args) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    // Ends a program that hangs; the descriptor is gone once it has ended, so no other is hit.
    let done = wait::Stop::new();
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            if !done.stopped_within(limit) {
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            }
        });
        let output = child.wait_with_output();
        done.raise();
        output
    })?;
    let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Reply::Exited { code, stdout: text(&output.stdout), stderr: text(&output.stderr) })
}

fn outcome(call: &str, result: io::Result<Reply>) -> Reply {
    result.unwrap_or_else(|error| Reply::Failed { errno: errno(&error), call: format!("{call}: {error}") })
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}
