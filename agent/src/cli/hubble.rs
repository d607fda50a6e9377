//! Options about flows.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use egret_core::flow::{MeterConfig, MeterError, Ring};

/// Where flows can be observed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Flows", group(ArgGroup::new("places").multiple(true)))]
pub struct HubbleArgs {
    /// Where `hubble` asks (`HUBBLE_SERVER=unix://PATH`), as root; default: hubble.sock beside the agent's socket
    #[arg(long, value_name = "PATH")]
    pub hubble_socket: Option<PathBuf>,
    /// Serve flows at this address as well, without encryption and to everybody who reaches it: an address of loopback,
    /// such as 127.0.0.1:4245, where `hubble` asks by itself
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen)]
    pub hubble_listen: Option<SocketAddr>,
    /// How many flows are kept: 2^n-1, at most 65535
    #[arg(long, value_name = "N", default_value_t = 4095, value_parser = parse_buffer)]
    pub flow_buffer: usize,
    /// Count flows in Hubble's metrics and in its words: `drop dns:query;ignoreAAAA flow:destinationContext=dns|ip`. Served
    /// beside --metrics, unless --hubble-metrics-server is given
    #[arg(long, value_name = "METRICS", value_parser = parse_metrics, requires = "places")]
    pub hubble_metrics: Option<MeterConfig>,
    /// Serve them at this address, at /metrics, for everybody who can reach it; Cilium has them at port 9965
    #[arg(long, value_name = "IP:PORT", group = "places", requires = "hubble_metrics")]
    pub hubble_metrics_server: Option<SocketAddr>,
}

fn parse_metrics(text: &str) -> Result<MeterConfig, String> {
    text.parse().map_err(|error: MeterError| error.to_string())
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| "write ADDR:PORT, such as 127.0.0.1:4245".to_owned())?;
    if !address.ip().to_canonical().is_loopback() {
        return Err("--hubble-listen has no encryption: only an address of loopback can be served".to_owned());
    }
    Ok(address)
}

fn parse_buffer(text: &str) -> Result<usize, String> {
    let flows = text.parse().map_err(|_| "no number".to_owned())?;
    Ring::new(flows).map(|_| flows).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use crate::cli::{Command, parse_from};
    use crate::exit;

    #[test]
    fn nothing_is_served_in_the_clear_beyond_this_host() {
        let parse = |more: &[&str]| {
            let args = ["egret", "agent", "--source", "dir:/x"].iter().chain(more);
            parse_from(args.copied()).map(|cli| match cli.command {
                Command::Agent(args) => args.hubble,
                _ => panic!("not an agent"),
            })
        };
        let plain = parse(&[]).expect("valid");
        assert_eq!((plain.hubble_socket, plain.hubble_listen, plain.flow_buffer), (None, None, 4095));
        for good in ["127.0.0.1:4245", "127.1.2.3:1", "[::1]:4245", "[::ffff:127.0.0.1]:1"] {
            assert!(parse(&["--hubble-listen", good]).is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:4245", "[::]:4245", "10.0.0.1:4245", ":4245", "localhost:4245", "127.0.0.1"] {
            assert_eq!(parse(&["--hubble-listen", bad]).err(), Some(exit::USAGE), "{bad}");
        }
        for (metrics, good) in [
            (&["--hubble-metrics", "drop flow:sourceContext=ip"][..], false),
            (&["--hubble-metrics", "drop flow:sourceContext=ip", "--metrics", "127.0.0.1:1"], true),
            (&["--hubble-metrics", "drop", "--hubble-metrics-server", "127.0.0.1:1"], true),
            (
                &[
                    "--hubble-metrics",
                    "drop",
                    "--hubble-metrics-server",
                    "127.0.0.1:1",
                    "--metrics",
                    "127.0.0.1:2",
                ],
                true,
            ),
            (&["--hubble-metrics-server", "127.0.0.1:1"], false),
            (&["--hubble-metrics-server", "127.0.0.1:1", "--metrics", "127.0.0.1:2"], false),
            (&["--hubble-metrics", "drops", "--metrics", "127.0.0.1:1"], false),
            (&["--hubble-metrics", "", "--metrics", "127.0.0.1:1"], false),
        ] {
            assert_eq!(parse(metrics).is_ok(), good, "{metrics:?}");
        }
        for (buffer, good) in [("1", true), ("65535", true), ("0", false), ("4096", false), ("x", false)] {
            assert_eq!(parse(&["--flow-buffer", buffer]).is_ok(), good, "{buffer}");
        }
    }
}
