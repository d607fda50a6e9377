//! Where objects come from: a folder, or an API server.
//!
//! ```text
//!  files  ──Texts──────────┐
//!  k8s    ──(Kind, News)───┴──> a bounded channel ──> the loop that owns the state
//!    └── conditions, events, the node's taint <──── Report ────┘
//! ```
//! Each source has a thread of its own: reading, parsing and waiting for servers never hold up the loop. Sources tell what
//! there is; what that means is `egret_core`'s business.

pub mod files;
pub mod folder;
pub mod k8s;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;

use egret_core::cluster::{self, Key, Kind};
use egret_core::policy::Diagnostic;
use tokio::sync::{mpsc, watch};

use folder::Texts;

/// News that wait to be taken in.
const WAITING: usize = 32;

/// What a source tells.
#[derive(Debug)]
pub enum News {
    /// All files there are now.
    Texts(Texts),
    /// What happened to objects, in this order.
    Objects(Vec<(Kind, cluster::News)>),
    /// What stands between the source and its newest state; `None`: nothing any more.
    Trouble(Option<String>),
}

/// What the agent lets a source know. Only the newest counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What was told is in force: the node may take pods.
    pub ready: bool,
    /// What there is to tell about each policy object, good ones among them, and about each other object that is bad.
    pub objects: Arc<BTreeMap<Key, Vec<Diagnostic>>>,
    /// Packets of each pod (`namespace`, `name`) that were dropped so far, by reason.
    pub drops: Arc<Drops>,
}

/// The newest report.
pub type Reports = watch::Receiver<Report>;

/// Packets by pod (namespace, name) and reason.
pub type Drops = BTreeMap<(String, String), BTreeMap<String, u64>>;

/// Something that tells of objects.
pub trait Source: Send + 'static {
    /// How it is called in `egret status`: `dir:/etc/egret`.
    fn name(&self) -> String;

    /// The kinds of which it must have told everything before anything may be enforced. Empty: its first news are all.
    fn kinds(&self) -> Vec<Kind>;

    /// Tells, until nobody listens.
    fn tell(self: Box<Self>, to: &mpsc::Sender<News>, reports: Reports);
}

/// A source at work.
#[derive(Debug)]
pub struct Told {
    /// [`Source::name`].
    pub name: String,
    /// [`Source::kinds`].
    pub kinds: Vec<Kind>,
    /// What it tells; ends with the source.
    pub news: mpsc::Receiver<News>,
    /// What it is let know.
    pub report: watch::Sender<Report>,
}

/// Sets a source to work.
///
/// # Errors
/// No thread can be had.
pub fn start(source: Box<dyn Source>) -> io::Result<Told> {
    let (to, news) = mpsc::channel(WAITING);
    let (report, reports) = watch::channel(Report::default());
    let (name, kinds) = (source.name(), source.kinds());
    thread::Builder::new().name("egret-source".into()).spawn(move || source.tell(&to, reports))?;
    Ok(Told { name, kinds, news, report })
}
