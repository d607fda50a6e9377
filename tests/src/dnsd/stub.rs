//! A local stub resolver as Ubuntu's 127.0.0.53: answers from its cache, else asks the real one from
//! its own process.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Action, Dnsd, Query, QueryLog, handler};
use crate::netns::Ns;

/// A forwarding, caching resolver on a loopback address.
#[derive(Debug)]
pub struct Stub {
    server: Dnsd,
    forwarded: Arc<Mutex<usize>>,
}

impl Stub {
    /// Listens on 127.0.0.53:53 inside `ns` and asks `upstream`.
    pub fn start(ns: &Arc<Ns>, upstream: SocketAddr) -> Self {
        Self::start_on(ns, SocketAddr::from(([127, 0, 0, 53], 53)), upstream)
    }

    /// Listens on any address inside `ns`.
    pub fn start_on(ns: &Arc<Ns>, listen: SocketAddr, upstream: SocketAddr) -> Self {
        let cache = Mutex::new(HashMap::<Vec<u8>, Vec<u8>>::new());
        let forwarded = Arc::new(Mutex::new(0));
        let (inside, count) = (ns.clone(), forwarded.clone());
        let answer = handler(move |query| {
            let key = query.question().to_ascii_lowercase();
            let known = cache.lock().expect("stub cache").get(&key).cloned();
            let answer = known.or_else(|| {
                *count.lock().expect("stub counter") += 1;
                let fresh = forward(&inside, upstream, query)?;
                cache.lock().expect("stub cache").insert(key, fresh.clone());
                Some(fresh)
            });
            answer.map(|bytes| vec![Action::Send(as_answer_to(query, bytes))]).unwrap_or_default()
        });
        Self { server: Dnsd::start(ns, &[listen], answer), forwarded }
    }

    /// What its clients asked.
    pub fn log(&self) -> &QueryLog {
        self.server.log()
    }

    /// How often it had to ask the real resolver.
    pub fn forwarded(&self) -> usize {
        *self.forwarded.lock().expect("stub counter")
    }
}

fn forward(ns: &Ns, upstream: SocketAddr, query: &Query) -> Option<Vec<u8>> {
    let any = if upstream.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = ns.run(|| UdpSocket::bind(any)).ok()?;
    socket.connect(upstream).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    socket.send(&query.bytes).ok()?;
    let mut buffer = vec![0; 65536];
    let count = socket.recv(&mut buffer).ok()?;
    buffer.truncate(count);
    Some(buffer)
}

/// The cached bytes with this query's id and this query's spelling of the name.
fn as_answer_to(query: &Query, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[..2].copy_from_slice(&query.id().to_be_bytes());
    let question = query.question();
    if bytes.len() >= 12 + question.len() {
        bytes[12..12 + question.len()].copy_from_slice(question);
    }
    bytes
}
