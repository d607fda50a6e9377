//! The time before the agent knows the cluster: until every kind was told of once.
//!
//! What an earlier agent left in force stays so meanwhile, however long it takes (CASES L-A04); whoever asks is told what
//! is waited for.

use std::future::Future;
use std::pin::pin;

use tokio::sync::mpsc;

use super::keeper::REQUESTS;
use super::objects::Objects;
use super::start::Ground;
use super::system;
use crate::api::server::Server;
use crate::api::{self, Answer, Request};
use crate::exit::Refusal;
use crate::run::report::rfc3339;
use crate::source::{News, Told};
use crate::tell;

/// The objects, once they are all there. `None`: `end` came first.
pub(super) async fn gather(
    told: &mut Told,
    ground: &Ground,
    end: impl Future<Output = ()>,
    server: &Server,
) -> Result<Option<Objects>, Refusal> {
    let mut end = pin!(end);
    let (asked, mut requests) = mpsc::channel(REQUESTS);
    let mut serve = pin!(server.serve(asked));
    let mut objects = Objects::default();
    let mut trouble: Option<String> = None;
    loop {
        tokio::select! {
            () = &mut end => return Ok(None),
            () = &mut serve => {}
            Some((request, reply)) = requests.recv() => {
                let missing = objects.missing(&told.kinds);
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                let waits = format!("waits for the first list of {}", missing.join(", "));
                let problems = trouble.iter().cloned().chain([waits]).collect();
                // Who asked may have gone.
                let _ = reply.send(answer(&request, ground, &told.name, problems));
            }
            news = told.news.recv() => match news {
                Some(News::Texts(texts)) => drop(objects.read(&texts)),
                Some(News::Objects(news)) => drop(objects.take(news)),
                Some(News::Trouble(now)) => {
                    now.iter().for_each(tell::line);
                    trouble = now;
                    continue;
                }
                None => return Err(system("learn of objects", &"the source has ended")),
            },
        }
        // A folder's first news are all of it.
        if objects.missing(&told.kinds).is_empty() {
            return Ok(Some(objects));
        }
    }
}

fn answer(request: &Request, ground: &Ground, source: &str, problems: Vec<String>) -> Answer {
    if *request != Request::Status {
        return Answer::Error("the agent does not know the cluster yet; see `egret status`".into());
    }
    let setting = ground.setting();
    let status = api::Status {
        state: "starting".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        node: setting.node.clone(),
        source: source.to_owned(),
        started: rfc3339(setting.started),
        datapath: setting.method.to_string(),
        adopted: setting.adopted,
        mode: setting.mode().into(),
        problems,
        ..api::Status::default()
    };
    super::answer::value(status)
}
