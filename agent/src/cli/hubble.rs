//! Options about flows.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use egret_core::flow::Ring;

use crate::exit::{self, Refusal};
use crate::observe::{Destination, ExportOptions, Listen, ServerFiles, json};

/// Where flows can be observed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Flows")]
pub struct HubbleArgs {
    /// Where `hubble` asks (`HUBBLE_SERVER=unix://PATH`), as root; default: hubble.sock beside the agent's socket
    #[arg(long, value_name = "PATH")]
    pub hubble_socket: Option<PathBuf>,
    /// Serve flows at this address as well. Without --hubble-tls-client-ca-files, everybody who reaches it may read: then it must
    /// be an address of loopback, such as 127.0.0.1:4245, where `hubble` asks by itself
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen)]
    pub hubble_listen: Option<SocketAddr>,
    /// The certificate to show there, in PEM: what is said is encrypted then. It is read again when it changes
    #[arg(long, value_name = "FILE", requires = "hubble_tls_key_file", requires = "hubble_listen")]
    pub hubble_tls_cert_file: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "hubble_tls_cert_file")]
    pub hubble_tls_key_file: Option<PathBuf>,
    /// Certificates of those who vouch for clients, in PEM: nobody else may read
    #[arg(long, value_name = "FILE", value_delimiter = ',', requires = "hubble_tls_cert_file")]
    pub hubble_tls_client_ca_files: Vec<PathBuf>,
    /// How many flows are kept: 2^n-1, at most 65535
    #[arg(long, value_name = "N", default_value_t = 4095, value_parser = parse_buffer)]
    pub flow_buffer: usize,
    /// The file.
    #[command(flatten)]
    pub export: ExportArgs,
}

impl HubbleArgs {
    /// Where flows are served beside the socket.
    ///
    /// # Errors
    /// 64 for an address at which anybody could read.
    pub fn listen(&self) -> Result<Option<Listen>, Refusal> {
        let Some(address) = self.hubble_listen else { return Ok(None) };
        let authorities = self.hubble_tls_client_ca_files.clone();
        if authorities.is_empty() && !address.ip().to_canonical().is_loopback() {
            let cause = format!("--hubble-listen {address}: everybody could read flows there");
            let remedy = "give --hubble-tls-client-ca-files, or an address of loopback";
            return Err(Refusal::new(exit::USAGE, cause, remedy));
        }
        let files = self.hubble_tls_cert_file.clone().zip(self.hubble_tls_key_file.clone());
        let tls = files.map(|(certificate, key)| ServerFiles { certificate, key, authorities });
        Ok(Some(Listen { address, tls }))
    }
}

/// A file of flows.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Export of flows")]
pub struct ExportArgs {
    /// Write flows to this file as well, a line of JSON each as `egret observe -o json` prints it; `stdout`: to standard output;
    /// default: nowhere. Full files are put aside as FILE-TIME
    #[arg(long, value_name = "FILE|stdout")]
    pub hubble_export_file_path: Option<OsString>,
    /// Megabytes of the file before it is put aside
    #[arg(long, value_name = "MB", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    pub hubble_export_file_max_size_mb: u64,
    /// How many files that were put aside are kept; 0: none
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub hubble_export_file_max_backups: u16,
    /// Pack them with gzip
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = false,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub hubble_export_file_compress: bool,
    /// Export what one of these filters of Hubble's API asks for; several may follow each other
    #[arg(long, value_name = "JSON")]
    pub hubble_export_allowlist: Vec<String>,
    /// But nothing that one of these asks for
    #[arg(long, value_name = "JSON")]
    pub hubble_export_denylist: Vec<String>,
    /// Export these fields alone, such as `time source.namespace verdict`; names, direction, policies and reasons are always there
    #[arg(long, value_name = "FIELD..", value_delimiter = ' ')]
    pub hubble_export_fieldmask: Vec<String>,
}

impl ExportArgs {
    /// What is to be exported; `None`: nothing.
    ///
    /// # Errors
    /// 64 for a filter or a field that makes no sense.
    pub fn options(&self) -> Result<Option<ExportOptions>, Refusal> {
        let usage = |error: String| Refusal::new(exit::USAGE, error, "see `egret agent --help`");
        let read = |name: &str, list: &[String]| {
            let read = list.iter().map(|text| json::read_filters(text)).collect::<Result<Vec<_>, _>>();
            read.map(|lists| lists.concat())
                .map_err(|error| usage(format!("--hubble-export-{name}: {error}")))
        };
        let path = self.hubble_export_file_path.clone().filter(|path| !path.is_empty());
        let Some(path) = path else { return Ok(None) };
        let options = ExportOptions {
            to: if path == "stdout" { Destination::Stdout } else { Destination::File(path.into()) },
            max_size: self.hubble_export_file_max_size_mb << 20,
            backups: self.hubble_export_file_max_backups.into(),
            compress: self.hubble_export_file_compress,
            allow: read("allowlist", &self.hubble_export_allowlist)?,
            deny: read("denylist", &self.hubble_export_denylist)?,
            fields: self.hubble_export_fieldmask.iter().filter(|path| !path.is_empty()).cloned().collect(),
        };
        options.check().map_err(|error| usage(format!("--hubble-export-..: {error}")))?;
        Ok(Some(options))
    }
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDR:PORT, such as 127.0.0.1:4245".to_owned())
}

fn parse_buffer(text: &str) -> Result<usize, String> {
    let flows = text.parse().map_err(|_| "no number".to_owned())?;
    Ring::new(flows).map(|_| flows).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parse_from};

    #[test]
    fn an_export_is_checked_before_it_begins() {
        let export = |args: &[&str]| {
            let args = ["egret", "agent", "--source", "dir:/x"].iter().chain(args);
            parse_from(args.copied()).map(|cli| match cli.command {
                Command::Agent(args) => args.hubble.export.options(),
                _ => panic!("not an agent"),
            })
        };
        const PATH: &str = "--hubble-export-file-path=/x/flows.json";
        for args in [&[][..], &["--hubble-export-file-path", ""], &["--hubble-export-file-compress"]] {
            assert_eq!(export(args).expect("valid").expect("valid").map(|o| o.to), None, "{args:?}");
        }
        let plain = export(&[PATH]).expect("valid").expect("valid").expect("some");
        assert_eq!((plain.max_size, plain.backups, plain.compress), (10 << 20, 5, false));
        assert_eq!(plain.to, Destination::File("/x/flows.json".into()));
        let all = [
            "--hubble-export-file-path=stdout",
            "--hubble-export-file-max-size-mb=1",
            "--hubble-export-file-compress=true",
            r#"--hubble-export-allowlist={"verdict":["DROPPED"]} {"uuid":["x"]}"#,
            r#"--hubble-export-allowlist={"uuid":["y"]}"#,
            "--hubble-export-fieldmask=time source.namespace",
        ];
        let all = export(&all).expect("valid").expect("valid").expect("some");
        assert_eq!((all.to, all.max_size, all.compress), (Destination::Stdout, 1 << 20, true));
        assert_eq!((all.allow.len(), all.deny.len(), all.fields.len()), (3, 0, 2));
        for bad in [
            "--hubble-export-allowlist={",
            r#"--hubble-export-denylist={"source_ip":["x"]}"#,
            "--hubble-export-fieldmask=nothing",
        ] {
            let refused = export(&[PATH, bad]).expect("read").expect_err(bad);
            assert_eq!(refused.code, exit::USAGE, "{bad}");
        }
        assert_eq!(export(&[PATH, "--hubble-export-file-max-size-mb=0"]).err(), Some(exit::USAGE));
    }

    #[test]
    fn nobody_reads_who_is_not_meant_to() {
        let parse = |more: &[&str]| {
            let args = ["egret", "agent", "--source", "dir:/x"].iter().chain(more);
            parse_from(args.copied()).map(|cli| match cli.command {
                Command::Agent(args) => args.hubble,
                _ => panic!("not an agent"),
            })
        };
        let listen = |address: &str, more: &[&str]| {
            let args: Vec<&str> = ["--hubble-listen", address].iter().chain(more).copied().collect();
            parse(&args)?.listen().map_err(|refusal| refusal.code)
        };
        let plain = parse(&[]).expect("valid");
        assert_eq!((plain.hubble_socket.as_ref(), plain.flow_buffer), (None, 4095));
        assert_eq!(plain.listen(), Ok(None));
        let server = ["--hubble-tls-cert-file=c", "--hubble-tls-key-file=k"];
        let mutual = [server[0], server[1], "--hubble-tls-client-ca-files=a,b"];
        for good in ["127.0.0.1:4245", "127.1.2.3:1", "[::1]:4245", "[::ffff:127.0.0.1]:1"] {
            assert!(listen(good, &[]).is_ok_and(|l| l.is_some_and(|l| l.tls.is_none())), "{good}");
            assert!(listen(good, &server).is_ok_and(|l| l.is_some_and(|l| l.tls.is_some())), "{good}");
        }
        for wide in ["0.0.0.0:4245", "[::]:4245", "10.0.0.1:4245"] {
            assert_eq!(listen(wide, &[]), Err(exit::USAGE), "{wide}");
            assert_eq!(listen(wide, &server), Err(exit::USAGE), "{wide}");
            let tls = listen(wide, &mutual).expect(wide).and_then(|listen| listen.tls).expect("TLS");
            assert_eq!(tls.authorities.len(), 2);
        }
        for bad in [":4245", "localhost:4245", "127.0.0.1"] {
            assert_eq!(listen(bad, &mutual), Err(exit::USAGE), "{bad}");
        }
        for half in [&mutual[..1], &mutual[1..2], &mutual[2..], &mutual[1..]] {
            assert_eq!(listen("127.0.0.1:1", half), Err(exit::USAGE), "{half:?}");
        }
        assert_eq!(parse(&server).err(), Some(exit::USAGE), "there is nothing to encrypt");
        for (buffer, good) in [("1", true), ("65535", true), ("0", false), ("4096", false), ("x", false)] {
            assert_eq!(parse(&["--flow-buffer", buffer]).is_ok(), good, "{buffer}");
        }
    }
}
