//! What the probe is told and what it says, a line of JSON each.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A thing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// getaddrinfo by the C library; family 0, 4 or 6.
    Resolve {
        /// Name.
        name: String,
        /// 0 both, 4 or 6.
        family: u8,
    },
    /// Sends DNS messages from one socket and collects what comes back.
    Dns {
        /// Resolver.
        server: SocketAddr,
        /// One TCP connection instead of one UDP socket.
        tcp: bool,
        /// The messages, sent back to back.
        messages: Vec<Vec<u8>>,
        /// How many answers to wait for.
        expect: usize,
        /// Source port, 0 for any.
        port: u16,
        /// Milliseconds.
        timeout: u64,
    },
    /// Connects a TCP socket and keeps it.
    Tcp {
        /// Destination.
        to: SocketAddr,
        /// Use an IPv6 socket and the v4-mapped form of `to`.
        mapped: bool,
        /// Send this with the SYN by MSG_FASTOPEN.
        fast_open: Option<String>,
        /// Source port, 0 for any.
        port: u16,
        /// Milliseconds.
        timeout: u64,
    },
    /// Sends a line on a kept connection and waits for it to come back.
    Echo {
        /// Number of the connection.
        id: u64,
        /// Line without its end.
        text: String,
        /// Milliseconds.
        timeout: u64,
    },
    /// Sends so many bytes and waits for the last line to come back.
    Upload {
        /// Number of the connection.
        id: u64,
        /// Bytes.
        bytes: usize,
        /// Milliseconds.
        timeout: u64,
    },
    /// Closes a kept connection.
    Close {
        /// Number of the connection.
        id: u64,
    },
    /// Sends datagrams from one socket.
    Udp {
        /// How they are sent.
        mode: UdpMode,
        /// Destinations, in order.
        to: Vec<SocketAddr>,
        /// IPv6 socket and v4-mapped destinations.
        mapped: bool,
        /// Payload of each.
        payload: Vec<u8>,
        /// Source port, 0 for any.
        port: u16,
        /// Milliseconds to wait for each echo.
        timeout: u64,
    },
    /// One ICMP echo by a ping socket.
    Ping {
        /// Destination.
        to: IpAddr,
        /// Milliseconds.
        timeout: u64,
    },
    /// Opens a socket of any kind; tells the errno.
    Open {
        /// AF_ number.
        family: i32,
        /// SOCK_ number.
        kind: i32,
        /// Protocol number.
        protocol: i32,
    },
    /// Sends a whole IP packet by a raw socket.
    Raw {
        /// From the IP header on.
        bytes: Vec<u8>,
        /// Its destination.
        to: IpAddr,
    },
    /// Asks for a name's AAAA and connects to the address at once, again and again.
    Cycle {
        /// Resolver.
        server: SocketAddr,
        /// Name.
        name: String,
        /// TCP port.
        port: u16,
        /// Rounds.
        count: usize,
    },
    /// Starts a program as a child of the probe and waits for it.
    Exec {
        /// Program and arguments.
        argv: Vec<String>,
        /// Milliseconds.
        timeout: u64,
    },
}

/// Ways to send datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UdpMode {
    /// connect, then send.
    Connected,
    /// sendto without connect.
    SendTo,
    /// One sendmmsg for all.
    SendMmsg,
}

/// What became of one datagram.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Datagram {
    /// errno of the call that sent it; 0 = sent.
    pub errno: i32,
    /// Its echo came back.
    pub echoed: bool,
}

/// What became of many rounds of look-up and connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycled {
    /// Rounds in which the look-up failed.
    pub unresolved: usize,
    /// errno of each connect that failed, with how often.
    pub failed: std::collections::BTreeMap<i32, usize>,
    /// The slowest look-up in microseconds.
    pub slowest_lookup: u64,
    /// The slowest connect in microseconds.
    pub slowest_connect: u64,
}

/// What the probe says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Addresses, or the EAI_ error's text.
    Resolved {
        /// In the order of the C library.
        addresses: Vec<IpAddr>,
        /// Empty if it went well.
        error: String,
    },
    /// DNS answers in the order in which they came; the errno of a send or connect that failed.
    Dns {
        /// Answers.
        answers: Vec<Vec<u8>>,
        /// 0 = sent.
        errno: i32,
    },
    /// A connection stands.
    Connected {
        /// Number for later requests.
        id: u64,
        /// Our end.
        local: SocketAddr,
    },
    /// The line came back.
    Echoed,
    /// Datagrams in their order.
    Udp(Vec<Datagram>),
    /// The rounds of a cycle.
    Cycled(Cycled),
    /// The program's end.
    Exited {
        /// Exit code, 128 + signal if killed.
        code: i32,
        /// Standard output.
        stdout: String,
        /// Standard error.
        stderr: String,
    },
    /// Done.
    Done,
    /// A call failed; 110 (ETIMEDOUT) also when the probe's own limit passed.
    Failed {
        /// errno.
        errno: i32,
        /// Which call.
        call: String,
    },
}
