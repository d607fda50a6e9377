//! The sockets and threads of a resolver.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::{Action, Handler, Query, QueryLog, Transport, tcp};
use crate::netns::Ns;
use crate::wait::Stop;

/// A running resolver; ends when dropped.
#[derive(Debug)]
pub struct Dnsd {
    log: QueryLog,
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl Dnsd {
    /// Serves UDP and TCP on each address inside `ns`.
    pub fn start(ns: &Ns, addresses: &[SocketAddr], handler: Handler) -> Self {
        let log = QueryLog::default();
        let stop = Stop::new();
        let connections = Arc::new(AtomicU64::new(1));
        let mut threads = Vec::new();
        for &address in addresses {
            let (udp, listener) = ns.run(|| (bind_udp(address), bind_tcp(address)));
            let (h, l, s) = (handler.clone(), log.clone(), stop.clone());
            threads.push(thread::spawn(move || serve_udp(&Arc::new(udp), address, &h, &l, &s)));
            let (h, l, s, count) = (handler.clone(), log.clone(), stop.clone(), connections.clone());
            threads.push(thread::spawn(move || serve_tcp(&listener, &h, &l, &s, &count)));
        }
        Self { log, stop, threads }
    }

    /// What it was asked.
    pub fn log(&self) -> &QueryLog {
        &self.log
    }
}

impl Drop for Dnsd {
    fn drop(&mut self) {
        self.stop.raise();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn bind_udp(address: SocketAddr) -> UdpSocket {
    UdpSocket::bind(address).unwrap_or_else(|error| panic!("DNS on udp {address}: {error}"))
}

fn bind_tcp(address: SocketAddr) -> TcpListener {
    TcpListener::bind(address).unwrap_or_else(|error| panic!("DNS on tcp {address}: {error}"))
}

fn serve_udp(socket: &Arc<UdpSocket>, to: SocketAddr, handler: &Handler, log: &QueryLog, stop: &Stop) {
    let mut buffer = vec![0; 65536];
    while stop.readable(&[socket.as_fd()]).is_some() {
        let Ok((count, from)) = socket.recv_from(&mut buffer) else { continue };
        let bytes = buffer[..count].to_vec();
        let query = Query { transport: Transport::Udp, from, to, bytes, connection: 0, at: Instant::now() };
        log.push(query.clone());
        let actions = handler(&query);
        if actions.iter().any(|action| matches!(action, Action::Delay(_))) {
            // One slow answer must not hold up the others.
            let (socket, stop) = (socket.clone(), stop.clone());
            thread::spawn(move || answer_udp(&socket, from, actions, &stop));
        } else {
            answer_udp(socket, from, actions, stop);
        }
    }
}

fn answer_udp(socket: &UdpSocket, to: SocketAddr, actions: Vec<Action>, stop: &Stop) {
    for action in actions {
        match action {
            Action::Send(bytes) | Action::Raw(bytes) | Action::AfterNext(bytes) => {
                if let Err(error) = socket.send_to(&bytes, to) {
                    eprintln!("resolver: answer of {} bytes to {to}: {error}", bytes.len());
                }
            }
            Action::Delay(pause) => {
                if stop.stopped_within(pause) {
                    return;
                }
            }
            Action::Close => return,
        }
    }
}

fn serve_tcp(listener: &TcpListener, handler: &Handler, log: &QueryLog, stop: &Stop, count: &AtomicU64) {
    let mut served = Vec::new();
    while stop.readable(&[listener.as_fd()]).is_some() {
        let Ok((stream, _)) = listener.accept() else { continue };
        let number = count.fetch_add(1, Ordering::Relaxed);
        let (handler, log, stop) = (handler.clone(), log.clone(), stop.clone());
        served.push(thread::spawn(move || tcp::serve(stream, number, &handler, &log, &stop)));
    }
    for thread in served {
        let _ = thread.join();
    }
}
