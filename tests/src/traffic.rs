//! Client programs as people use them: curl, getent, python3, dig. They are values ([`Cmd`]); a place, a
//! session or Egret runs them. For sockets of a chosen kind see [`crate::probe`].

use std::time::Duration;

use crate::exec::Cmd;

/// `curl` that fails on HTTP errors, speaks no proxy and gives up after 8 seconds. Its output is the
/// banner of the server that was reached.
pub fn curl(url: &str) -> Cmd {
    Cmd::new(["curl", "-sS", "--fail", "--noproxy", "*", "--max-time", "8", url])
        .timeout(Duration::from_secs(12))
}

/// `getent ahosts NAME`: both families by the C library.
pub fn getent(name: &str) -> Cmd {
    Cmd::new(["getent", "ahosts", name])
}

/// `dig` with short output; `options` as `+tcp`, `-t`, `TXT`.
pub fn dig(server: &str, name: &str, options: &[&str]) -> Cmd {
    let server = format!("@{server}");
    let mut argv = vec!["dig", "+time=2", "+tries=1", &server, name];
    argv.extend(options);
    Cmd::new(argv)
}

/// A Python program. The system's own interpreter where there is one: a shim of a version manager
/// would start a dozen processes.
pub fn python(program: &str) -> Cmd {
    let system = std::path::Path::new("/usr/bin/python3").exists();
    Cmd::new([if system { "/usr/bin/python3" } else { "python3" }, "-c", program])
}

/// A Python program that opens a TCP connection and prints what the server says about it.
pub fn python_connect(host: &str, port: u16) -> Cmd {
    python(&format!(
        "import socket\ns = socket.create_connection(({host:?}, {port}), timeout=5)\n\
         s.sendall(b'WHO\\n')\nprint(s.recv(200).decode(), end='')"
    ))
}
