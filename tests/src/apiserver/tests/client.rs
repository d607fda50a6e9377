//! A client of a few lines that sees what a real one hides: where the chunks end, and whether they end at all.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use super::ApiServer;
use crate::wait::patient;

/// A response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The object, if the response has this code.
    pub(super) fn expect(&self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// The reason of a failure of this code.
    pub(super) fn reason(&self, code: u16) -> String {
        let status = self.expect(code);
        assert_eq!((&status["kind"], &status["status"]), (&"Status".into(), &"Failure".into()), "{status}");
        assert_eq!(status["code"], code);
        status["reason"].as_str().expect("a reason").into()
    }

    /// A header, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> &str {
        header(&self.head, name)
    }
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value.trim())
}

/// A response under way.
#[derive(Debug)]
pub(super) struct Incoming {
    code: u16,
    head: String,
    /// Bytes left, unless in chunks.
    left: Option<usize>,
    reader: BufReader<TcpStream>,
}

impl Incoming {
    pub(super) fn open(server: &ApiServer, head: &str, body: &str) -> io::Result<Self> {
        let mut stream = TcpStream::connect(server.addr())?;
        stream.set_read_timeout(Some(patient(Duration::from_secs(10))))?;
        let length = body.len();
        write!(stream, "{head}Host: double\r\nContent-Length: {length}\r\n\r\n{body}")?;
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
        Ok(Self { code, left: header(&head, "content-length").parse().ok(), head, reader })
    }

    /// The next chunk, or `None` at the proper end.
    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let length = match self.left {
            Some(left) => left,
            None => {
                let mut line = String::new();
                if self.reader.read_line(&mut line)? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                usize::from_str_radix(line.trim(), 16).expect("the length of a chunk")
            }
        };
        let mut chunk = vec![0; length];
        self.reader.read_exact(&mut chunk)?;
        match self.left {
            Some(_) => self.left = Some(0),
            None => self.reader.read_exact(&mut [0; 2])?,
        }
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }

    pub(super) fn finish(mut self) -> io::Result<Answer> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk()? {
            body.extend(chunk);
        }
        Ok(Answer { code: self.code, head: self.head, body })
    }
}

/// GET.
pub(super) fn get(server: &ApiServer, path: &str) -> Answer {
    try_get(server, path).expect("an answer")
}

pub(super) fn try_get(server: &ApiServer, path: &str) -> io::Result<Answer> {
    Incoming::open(server, &format!("GET {path} HTTP/1.1\r\n"), "")?.finish()
}

/// Any other method. `kind` is the subtype of its content: `json`, `merge-patch+json`, ...
pub(super) fn send(server: &ApiServer, method: &str, path: &str, kind: &str, body: &Value) -> Answer {
    let head = format!("{method} {path} HTTP/1.1\r\nContent-Type: application/{kind}\r\n");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Incoming::open(server, &head, &body).and_then(Incoming::finish).expect("an answer")
}

/// An open watch.
#[derive(Debug)]
pub(super) struct Watching {
    incoming: Incoming,
    buffer: Vec<u8>,
}

/// Begins a watch, which must succeed.
pub(super) fn watch(server: &ApiServer, path: &str) -> Watching {
    let incoming = Incoming::open(server, &format!("GET {path} HTTP/1.1\r\n"), "").expect("an answer");
    assert_eq!(incoming.code, 200, "{path}");
    Watching { incoming, buffer: Vec::new() }
}

impl Watching {
    /// The next event; `None` when the watch was ended properly, an error when it was cut off.
    pub(super) fn try_next(&mut self) -> io::Result<Option<Value>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).expect("JSON")));
            }
            match self.incoming.chunk()? {
                Some(chunk) => self.buffer.extend(chunk),
                None => return Ok(None),
            }
        }
    }

    /// The next event.
    pub(super) fn next(&mut self) -> Value {
        self.try_next().expect("an event in time").expect("an event before the end")
    }

    /// The next event as `ADDED name version`.
    pub(super) fn brief(&mut self) -> String {
        let event = self.next();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &event["object"]["metadata"];
        format!("{} {} {}", text(&event["type"]), text(&metadata["name"]), text(&metadata["resourceVersion"]))
    }

    /// Asserts that the watch ends properly, and with nothing more.
    pub(super) fn ends(&mut self) {
        assert_eq!(self.try_next().expect("a proper end"), None);
    }

    /// Asserts that the next event is the last one and says that the history is gone.
    pub(super) fn ends_gone(&mut self) {
        let event = self.next();
        assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()), "{event}");
        assert_eq!(event["object"]["reason"], "Expired");
        self.ends();
    }
}
