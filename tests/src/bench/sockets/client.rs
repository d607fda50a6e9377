//! The client, a process of its own so that it can run under `egret run`: it obeys orders on standard input and
//! answers each with a line of numbers.

use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use egret_tests::dnsd::raw::{self, rtype};
use egret_tests::exec::Cmd;

use super::super::process::pin;
use super::server::{CRR, RR, UDP};

/// Time per turn.
const SPAN: Duration = Duration::from_millis(100);
/// DNS queries of one turn, one each half millisecond.
const DNS_QUERIES: u16 = 200;
/// Different names that they ask for.
pub(super) const DNS_NAMES: u16 = 500;

/// The `number`th name.
pub(super) fn dns_name(number: u16) -> String {
    format!("n{}.bench.example", number % DNS_NAMES)
}

/// This program, as a client of the server `name` and of a resolver (`address:port`).
pub(super) fn command(name: &str, resolver: &str) -> Cmd {
    let own = std::env::current_exe().expect("own path").display().to_string();
    Cmd::new([own.as_str(), "worker", name, resolver])
}

/// Says `0` when ready, then obeys `rr`, `crr`, `udp` and `dns` until its input ends.
pub(super) fn main(args: &[String]) -> ExitCode {
    pin(0, 0);
    let [name, resolver] = args else { return ExitCode::from(64) };
    match obey(name, resolver) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn obey(name: &str, resolver: &str) -> io::Result<()> {
    let server = (name, 0).to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?.ip();
    let mut stream = TcpStream::connect((server, RR))?;
    stream.set_nodelay(true)?;
    let datagrams = UdpSocket::bind("0.0.0.0:0")?;
    datagrams.connect((server, UDP))?;
    println!("0");
    for order in io::stdin().lock().lines() {
        match order?.as_str() {
            "rr" => println!("{}", per_second(|| exchange(&mut stream))?),
            "crr" => println!("{}", per_second(|| connection(server))?),
            "udp" => println!("{}", per_second(|| datagrams.send(&[0; 64]).map(|_| ()))?),
            "dns" => {
                let times: Vec<String> = dns(resolver)?.iter().map(u64::to_string).collect();
                println!("{}", times.join(" "));
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(())
}

/// Repeats `act` for a turn; how often per second it was done.
fn per_second(mut act: impl FnMut() -> io::Result<()>) -> io::Result<u64> {
    let (start, mut count) = (Instant::now(), 0u64);
    while start.elapsed() < SPAN {
        act()?;
        count += 1;
    }
    Ok((count as f64 / start.elapsed().as_secs_f64()) as u64)
}

fn connection(server: IpAddr) -> io::Result<()> {
    exchange(&mut TcpStream::connect((server, CRR))?)
}

fn exchange(stream: &mut TcpStream) -> io::Result<()> {
    let mut byte = [1];
    stream.write_all(&byte)?;
    stream.read_exact(&mut byte)
}

/// Nanoseconds of each query.
fn dns(resolver: &str) -> io::Result<Vec<u64>> {
    let resolver: SocketAddr = resolver.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(resolver)?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let (start, pace) = (Instant::now(), Duration::from_micros(500));
    let mut times = Vec::new();
    let mut buffer = [0; 2048];
    for number in 0..DNS_QUERIES {
        let query = raw::query(number, &dns_name(number), rtype::A);
        std::thread::sleep((pace * u32::from(number)).saturating_sub(start.elapsed()));
        let asked = Instant::now();
        socket.send(&query)?;
        while socket.recv(&mut buffer)? < 2 || buffer[..2] != query[..2] {}
        times.push(asked.elapsed().as_nanos() as u64);
    }
    Ok(times)
}
