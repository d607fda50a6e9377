//! The other end: echoes bytes, takes connections, swallows datagrams. All threads are on the second CPU.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

use egret_tests::netns::Ns;
use egret_tests::wait::Stop;

use super::super::process::pin;

/// One connection, many round trips.
pub(super) const RR: u16 = 5000;
/// One round trip per connection.
pub(super) const CRR: u16 = 5001;
/// Datagrams.
pub(super) const UDP: u16 = 5002;
/// The TCP ports as `--allow` writes them.
pub(super) const PORTS: &str = "5000-5001";

/// Running threads; they end when dropped.
pub(super) struct Server {
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Listens on all addresses of `ns`.
    pub(super) fn start(ns: &Ns) -> Self {
        let stop = Stop::new();
        let listen = |port: u16| ns.run(|| TcpListener::bind(("0.0.0.0", port)).expect("a listener"));
        let (rr, crr) = (listen(RR), listen(CRR));
        let udp = ns.run(|| UdpSocket::bind(("0.0.0.0", UDP)).expect("a UDP socket"));
        let (a, b, c) = (stop.clone(), stop.clone(), stop.clone());
        let threads = vec![
            thread::spawn(move || accept(&rr, &a, |stream| drop(thread::spawn(|| echo(stream))))),
            thread::spawn(move || accept(&crr, &b, echo)),
            thread::spawn(move || swallow(&udp, &c)),
        ];
        Self { stop, threads }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.raise();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Takes connections; `serve` gets each.
fn accept(listener: &TcpListener, stop: &Stop, serve: fn(TcpStream)) {
    pin(0, 1);
    listener.set_nonblocking(true).expect("a listener that does not block");
    while stop.readable(&[listener.as_fd()]).is_some() {
        while let Ok((stream, _)) = listener.accept() {
            serve(stream);
        }
    }
}

/// Sends bytes back until the client closes.
fn echo(mut stream: TcpStream) {
    let _ = (stream.set_nonblocking(false), stream.set_nodelay(true));
    let mut byte = [0];
    while let Ok(1) = stream.read(&mut byte) {
        if stream.write_all(&byte).is_err() {
            return;
        }
    }
}

fn swallow(socket: &UdpSocket, stop: &Stop) {
    pin(0, 1);
    socket.set_nonblocking(true).expect("a socket that does not block");
    let mut buffer = [0; 2048];
    while stop.readable(&[socket.as_fd()]).is_some() {
        while socket.recv(&mut buffer).is_ok() {}
    }
}
