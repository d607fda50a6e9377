//! TCP service: HTTP to who speaks it, an echo of lines to others.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;

use nix::sys::socket::{Backlog, listen};

use super::log::{Hits, Proto, plain};
use crate::wait::Stop;

/// One dual-stack listener per port.
pub(super) fn bind_all(ports: &[u16]) -> Vec<TcpListener> {
    let bind = |port: &u16| {
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port));
        let listener = TcpListener::bind(address);
        let listener = listener.unwrap_or_else(|error| panic!("listen on tcp port {port}: {error}"));
        // A short queue would drop SYNs while the machine is busy, which looks like a late grant.
        let backlog = Backlog::new(4096).unwrap_or(Backlog::MAXCONN);
        listen(&listener, backlog).unwrap_or_else(|error| panic!("queue of tcp port {port}: {error}"));
        listener
    };
    ports.iter().map(bind).collect()
}

pub(super) fn serve(listeners: &[TcpListener], hits: &Hits, stop: &Stop) {
    let fds: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    let mut served = Vec::new();
    while let Some(ready) = stop.readable(&fds) {
        for (listener, _) in listeners.iter().zip(ready).filter(|(_, ready)| *ready) {
            let Ok((stream, peer)) = listener.accept() else { continue };
            let Ok(local) = stream.local_addr() else { continue };
            hits.push(Proto::Tcp, local, peer, 0);
            let stop = stop.clone();
            served.push(thread::spawn(move || talk(stream, plain(local), plain(peer), &stop)));
        }
    }
    for thread in served {
        let _ = thread.join();
    }
}

fn talk(mut stream: TcpStream, local: SocketAddr, peer: SocketAddr, stop: &Stop) {
    let _ = stream.set_nodelay(true);
    let banner = format!("reached {local} from {peer}\n");
    let mut received = Vec::new();
    let mut buffer = vec![0; 65536];
    while stop.readable(&[stream.as_fd()]).is_some() {
        let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
        received.extend_from_slice(&buffer[..count]);
        let answer = if is_http(&received) {
            let Some(request) = take_until(&mut received, b"\r\n\r\n") else { continue };
            http(&request, &banner)
        } else {
            let Some(lines) = take_lines(&mut received) else { continue };
            if lines == b"WHO\n" { banner.clone().into_bytes() } else { lines }
        };
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn is_http(bytes: &[u8]) -> bool {
    [&b"GET "[..], b"HEAD ", b"POST ", b"PUT "].iter().any(|method| bytes.starts_with(method))
}

fn http(request: &[u8], banner: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nServer: egret-test\r\n\r\n", banner.len());
    let body = if request.starts_with(b"HEAD ") { "" } else { banner };
    format!("{head}{body}").into_bytes()
}

fn take_until(received: &mut Vec<u8>, end: &[u8]) -> Option<Vec<u8>> {
    let at = received.windows(end.len()).position(|window| window == end)? + end.len();
    let rest = received.split_off(at);
    Some(std::mem::replace(received, rest))
}

/// All whole lines so far. A megabyte without a line end is answered by its last line end only.
fn take_lines(received: &mut Vec<u8>) -> Option<Vec<u8>> {
    let at = received.iter().rposition(|&byte| byte == b'\n')? + 1;
    let rest = received.split_off(at);
    Some(std::mem::replace(received, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_lines_are_cut_whole() {
        let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest".to_vec();
        assert!(is_http(&bytes));
        assert!(take_until(&mut bytes, b"\r\n\r\n").is_some());
        assert_eq!(bytes, b"rest");
        let mut bytes = b"one\ntwo\nthr".to_vec();
        assert_eq!(take_lines(&mut bytes).as_deref(), Some(&b"one\ntwo\n"[..]));
        assert_eq!(bytes, b"thr");
    }
}
