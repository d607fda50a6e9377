//! A scraper as strict as OpenMetrics 1.0 lets one be: HTTP by hand, the text line by line. Knows nothing of Egret but that a
//! counter never goes back while it looks.

mod text;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::netns::{Ns, World};

pub use text::{Family, Kind, Page, Problem, Series};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// 200, 503, ...
    pub status: u16,
    /// Headers by name in lower case.
    pub headers: BTreeMap<String, String>,
    /// The rest.
    pub body: String,
}

/// Asks one address, from inside a namespace.
#[derive(Debug)]
pub struct Scraper {
    ns: Arc<Ns>,
    address: SocketAddr,
    last: Page,
}

impl Scraper {
    /// For what listens at `address` in the namespace `ns`.
    pub fn new(world: &World, ns: &str, address: &str) -> Self {
        let address = address.parse().expect("an address");
        Self { ns: world.ns(ns).clone(), address, last: Page::default() }
    }

    /// A connection that nothing was sent on yet.
    pub fn connect(&self) -> TcpStream {
        let stream = self.ns.run(|| TcpStream::connect_timeout(&self.address, LIMIT)).expect("connected");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        stream
    }

    /// Sends these bytes, and gives what comes back until the other side closes.
    pub fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // Who does not like the beginning may close before the end.
        let _ = stream.write_all(bytes);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        String::from_utf8(reply).expect("text")
    }

    /// Asks by this method for this path.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str) -> Reply {
        let text = self.exchange(format!("{method} {path} HTTP/1.1\r\nHost: egret\r\n\r\n").as_bytes());
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(": "));
        Reply {
            status: status.expect("a status"),
            headers: headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect(),
            body: body.to_owned(),
        }
    }

    /// The page, which must be right in every point; no counter may be less than on the page before, or be gone.
    #[track_caller]
    pub fn scrape(&mut self) -> Page {
        let reply = self.ask("GET", "/metrics");
        assert_eq!(reply.status, 200, "{}", reply.body);
        let kind = reply.headers.get("content-type").map(String::as_str);
        assert_eq!(kind, Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
        let page = Page::parse(&reply.body).unwrap_or_else(|problem| panic!("{problem}\n{}", reply.body));
        for (series, before) in self.last.counters() {
            let now = page.series.get(series);
            assert!(now.is_some_and(|now| now >= before), "{series:?} went from {before} to {now:?}");
        }
        self.last = page.clone();
        page
    }

    /// What is asked now has counters of its own, those of these families excepted.
    pub fn restarted(&mut self, lasting: &[&str]) {
        self.last.series.retain(|(name, _), _| lasting.contains(&name.as_str()));
    }
}
