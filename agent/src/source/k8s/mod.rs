//! An API server as a source.
//!
//! ```text
//!  kinds ──where──> watch (one task per kind) ──Raw──> Document ──read──> News::Objects
//!                     └── what fails ──> trouble ──> News::Trouble
//!  Report ──> report: conditions and events (one agent of the cluster writes them), drops, the node's taint
//! ```
//! Only this folder knows the client library. A server that cannot be reached changes nothing: what was told stays, and
//! the trouble is told.

mod kinds;
mod raw;
mod report;
mod trouble;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use egret_core::cluster::Kind;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{News, Reports, Source};
use crate::tell;
use kinds::WATCHED;
pub use report::Writes;
use trouble::Troubles;
use watch::Setting;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a server may say nothing: its bookmarks come once a minute.
const SILENCE: Duration = Duration::from_secs(100);
/// How often troubles are told.
const TROUBLES: Duration = Duration::from_secs(1);

/// A server, not asked yet.
#[derive(Debug)]
pub struct K8s {
    /// Where the server is and who asks; `None`: from `KUBECONFIG`, the user's file, or the pod that this runs in.
    pub kubeconfig: Option<PathBuf>,
    /// `egret.dev/` annotations of pods count.
    pub trust: bool,
    /// This node, and what the agent does about it.
    pub writes: Writes,
}

impl Source for K8s {
    fn name(&self) -> String {
        "k8s".to_owned()
    }

    fn kinds(&self) -> Vec<Kind> {
        WATCHED.iter().map(|watched| watched.kind).collect()
    }

    fn tell(self: Box<Self>, to: &mpsc::Sender<News>, reports: Reports) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return tell::line(format_args!("cannot start the source's event loop: {error}")),
        };
        runtime.block_on(self.follow(to.clone(), reports));
    }
}

impl K8s {
    async fn follow(&self, to: mpsc::Sender<News>, reports: Reports) {
        let Some(client) = self.client(&to).await else { return };
        let troubles = Troubles::default();
        for watched in &WATCHED {
            let (client, troubles, to) = (client.clone(), troubles.clone(), to.clone());
            tokio::spawn(watch::follow(watched, Setting { client, trust: self.trust, troubles, to }));
        }
        tokio::spawn(report::follow(client, self.writes.clone(), reports));
        let mut told = None;
        while !to.is_closed() {
            sleep(TROUBLES).await;
            let text = troubles.text();
            if text != told {
                told.clone_from(&text);
                if to.send(News::Trouble(text)).await.is_err() {
                    return;
                }
            }
        }
    }

    /// A client; waits until there is what it needs, such as the token of the pod.
    async fn client(&self, to: &mpsc::Sender<News>) -> Option<Client> {
        let mut told = None;
        loop {
            let error = match config(self.kubeconfig.as_deref()).await {
                Ok(config) => match Client::try_from(config) {
                    Ok(client) => return Some(client),
                    Err(error) => trouble::cause(&error),
                },
                Err(error) => error,
            };
            let text = Some(format!("no way to the API server: {error}"));
            if text != told {
                told.clone_from(&text);
                to.send(News::Trouble(text)).await.ok()?;
            }
            sleep(CONNECT).await;
            if to.is_closed() {
                return None;
            }
        }
    }
}

async fn config(file: Option<&Path>) -> Result<Config, String> {
    let mut config = match file {
        Some(file) => {
            let read = Kubeconfig::read_from(file).map_err(|error| trouble::cause(&error))?;
            let read = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
            read.map_err(|error| format!("{}: {}", file.display(), trouble::cause(&error)))?
        }
        None => Config::infer().await.map_err(|error| error.to_string())?,
    };
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    let agent = format!("egret/{}", env!("CARGO_PKG_VERSION"));
    config.headers.extend(agent.parse().ok().map(|agent| (http::header::USER_AGENT, agent)));
    Ok(config)
}
