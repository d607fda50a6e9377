//! Where objects come from: a folder, or an API server.
//!
//! ```text
//!  files  ──Texts──────────┐
//!  k8s    ──(Kind, News)───┴──> a bounded channel ──> the loop that owns the state
//! ```
//! Each source has a thread of its own: reading, parsing and waiting for servers never hold up the loop. Sources tell what
//! there is; what that means is `egret_core`'s business.

pub mod files;
pub mod folder;
pub mod k8s;

use std::io;
use std::thread;

use egret_core::cluster::{self, Kind};
use tokio::sync::mpsc;

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

/// Something that tells of objects.
pub trait Source: Send + 'static {
    /// How it is called in `egret status`: `dir:/etc/egret`.
    fn name(&self) -> String;

    /// The kinds of which it must have told everything before anything may be enforced. Empty: its first news are all.
    fn kinds(&self) -> Vec<Kind>;

    /// Tells, until nobody listens.
    fn tell(self: Box<Self>, to: &mpsc::Sender<News>);
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
}

/// Sets a source to work.
///
/// # Errors
/// No thread can be had.
pub fn start(source: Box<dyn Source>) -> io::Result<Told> {
    let (to, news) = mpsc::channel(WAITING);
    let (name, kinds) = (source.name(), source.kinds());
    thread::Builder::new().name("egret-source".into()).spawn(move || source.tell(&to))?;
    Ok(Told { name, kinds, news })
}
