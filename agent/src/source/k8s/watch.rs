//! One kind, listed and watched for as long as the agent runs.
//!
//! Owns when a server is asked again. The client library lists in pages, resumes watches where they broke off, lists
//! anew when the server has forgotten (410) and waits longer each time.

use std::pin::pin;
use std::time::Duration;

use egret_core::cluster::{Kind, News as OfObject};
use egret_core::tuning::{ANNOTATIONS, REJECT};
use futures_util::StreamExt;
use kube::discovery::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::kinds::Watched;
use super::raw::Raw;
use super::trouble::{Troubles, cause};
use crate::source::News;

/// Events that are handed on at once at most.
const BATCH: usize = 256;
/// The server ends a watch after so many seconds, and the client gives one up that says nothing for a while longer.
const WATCH_SECONDS: u32 = 240;
/// How soon a server is asked again for a kind that it does not have, at first and at most.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(30)];

/// What is the same for all kinds.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) client: Client,
    /// Annotations of pods count as those of the operator.
    pub(super) trust: bool,
    pub(super) troubles: Troubles,
    pub(super) to: mpsc::Sender<News>,
}

/// Nobody listens any more.
pub(super) struct Unheard;

/// Tells of a kind, until nobody listens.
pub(super) async fn follow(watched: &'static Watched, setting: Setting) -> Result<(), Unheard> {
    loop {
        let resource = match watched.resource() {
            Some(resource) => resource,
            None => wait(watched, &setting).await?,
        };
        match follow_as(watched, &resource, &setting).await? {
            Ended::Gone => setting.tell(watched.kind, nothing()).await?,
            Ended::Old => sleep(jittered(AGAIN[0])).await,
        }
    }
}

/// Why a watch has ended.
enum Ended {
    /// The kind itself is gone, and with it every object of it.
    Gone,
    /// The server has forgotten where the watch stood and says so in a way that the library does not understand (410 as the
    /// status of a watch that begins): it would ask the same for ever.
    Old,
}

/// Waits until the server has the kind. Until then there is nothing of it.
async fn wait(watched: &'static Watched, setting: &Setting) -> Result<ApiResource, Unheard> {
    let [mut pause, most] = AGAIN;
    let mut told = false;
    loop {
        match watched.find(&setting.client).await {
            Ok(Some(resource)) => {
                setting.troubles.over(watched.kind);
                return Ok(resource);
            }
            Ok(None) => {
                setting.troubles.over(watched.kind);
                if !told {
                    setting.tell(watched.kind, nothing()).await?;
                    told = true;
                }
            }
            Err(error) => setting.troubles.note(watched.kind, cause(&error)),
        }
        sleep(jittered(pause)).await;
        pause = (2 * pause).min(most);
    }
}

/// Agents that began together do not ask together for ever.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * fastrand::f64())
}

/// Until there is nothing to go on with.
async fn follow_as(
    watched: &'static Watched,
    resource: &ApiResource,
    setting: &Setting,
) -> Result<Ended, Unheard> {
    let api: Api<Raw> = Api::all_with(setting.client.clone(), resource);
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let mut events = pin!(watcher(api, config).default_backoff().ready_chunks(BATCH));
    while let Some(events) = events.next().await {
        let mut news = Vec::with_capacity(events.len());
        let (mut missing, mut old) = (false, false);
        for event in events {
            match event {
                Ok(event) => {
                    setting.troubles.over(watched.kind);
                    news.push(setting.read(event, resource, watched.kind));
                }
                Err(error) => {
                    missing |= status_of(&error) == Some(404);
                    old |= status_of(&error) == Some(410);
                    setting.troubles.note(watched.kind, cause(&error));
                }
            }
        }
        if !news.is_empty() {
            setting.tell(watched.kind, news).await?;
        }
        // Believed only if discovery, asked by itself, says so too: a policy must not vanish by a stray answer.
        if missing && watched.optional && matches!(watched.find(&setting.client).await, Ok(None)) {
            return Ok(Ended::Gone);
        }
        if old {
            return Ok(Ended::Old);
        }
    }
    // The library's streams do not end; whoever lists anew misses nothing.
    Ok(Ended::Old)
}

/// An empty list.
fn nothing() -> Vec<OfObject> {
    vec![OfObject::Begin, OfObject::End]
}

/// With which status a list or a watch was refused.
fn status_of(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

impl Setting {
    async fn tell(&self, kind: Kind, news: Vec<OfObject>) -> Result<(), Unheard> {
        let news = news.into_iter().map(|news| (kind, news)).collect();
        self.to.send(News::Objects(news)).await.map_err(|_| Unheard)
    }

    fn read(&self, event: Event<Raw>, resource: &ApiResource, kind: Kind) -> OfObject {
        let (mut raw, gone) = match event {
            Event::Init => return OfObject::Begin,
            Event::InitDone => return OfObject::End,
            Event::InitApply(raw) | Event::Apply(raw) => (raw, false),
            Event::Delete(raw) => (raw, true),
        };
        if gone {
            let (namespace, name) = (raw.document.metadata("namespace"), raw.document.metadata("name"));
            return OfObject::Gone(egret_core::cluster::Key::new(kind, namespace, name));
        }
        if kind == Kind::Pod && !self.trust {
            // Whoever may make a pod may write its annotations: they may make denials louder, and nothing weaker.
            raw.document.retain_annotations(|key| !key.starts_with(ANNOTATIONS) || key == REJECT);
        }
        OfObject::Put(Box::new(raw.document.read(&resource.api_version, &resource.kind)))
    }
}
