//! One TCP connection of a resolver.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Instant;

use super::{Action, Handler, Query, QueryLog, Transport};
use crate::wait::Stop;

pub(super) fn serve(mut stream: TcpStream, connection: u64, handler: &Handler, log: &QueryLog, stop: &Stop) {
    let (Ok(from), Ok(to)) = (stream.peer_addr(), stream.local_addr()) else { return };
    // Each write its own segment: tests cut messages at chosen places.
    let _ = stream.set_nodelay(true);
    let mut received = Vec::new();
    let mut held: Vec<Vec<u8>> = Vec::new();
    let mut buffer = [0; 16384];
    loop {
        while let Some(bytes) = take_message(&mut received) {
            let query = Query { transport: Transport::Tcp, from, to, bytes, connection, at: Instant::now() };
            log.push(query.clone());
            let before = std::mem::take(&mut held);
            if !answer(&mut stream, handler(&query), &mut held, stop) {
                return;
            }
            for message in before {
                let _ = stream.write_all(&framed(&message));
            }
        }
        if stop.readable(&[stream.as_fd()]).is_none() {
            return;
        }
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => received.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
}

/// Performs the actions; false when the connection is over.
fn answer(stream: &mut TcpStream, actions: Vec<Action>, held: &mut Vec<Vec<u8>>, stop: &Stop) -> bool {
    for action in actions {
        let written = match action {
            Action::Send(bytes) => stream.write_all(&framed(&bytes)),
            Action::Raw(bytes) => stream.write_all(&bytes),
            Action::AfterNext(bytes) => {
                held.push(bytes);
                Ok(())
            }
            Action::Delay(pause) if stop.stopped_within(pause) => return false,
            Action::Delay(_) => Ok(()),
            Action::Close => return false,
        };
        if written.is_err() {
            return false;
        }
    }
    true
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = (message.len() as u16).to_be_bytes().to_vec();
    bytes.extend_from_slice(message);
    bytes
}

/// Cuts one whole message off the front.
fn take_message(received: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_be_bytes([*received.first()?, *received.get(1)?]));
    if received.len() < 2 + length {
        return None;
    }
    let rest = received.split_off(2 + length);
    let message = std::mem::replace(received, rest).split_off(2);
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_off_whole() {
        let mut bytes = framed(b"one");
        bytes.extend(framed(b"two!"));
        bytes.extend([0, 9, 1]);
        assert_eq!(take_message(&mut bytes).as_deref(), Some(&b"one"[..]));
        assert_eq!(take_message(&mut bytes).as_deref(), Some(&b"two!"[..]));
        assert_eq!(take_message(&mut bytes), None);
        assert_eq!(bytes, [0, 9, 1]);
    }
}
