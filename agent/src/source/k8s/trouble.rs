//! What stands between the agent and the API server, by kind, in words.
//!
//! Owns when a trouble is over: a watch that goes on where it broke off says nothing about it, so one that is not heard
//! of again for a while is. Must not know: what is done about it.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use egret_core::cluster::Kind;

/// Longer than any pause between two attempts.
const OVER: Duration = Duration::from_secs(75);

/// Shared by all watches.
#[derive(Debug, Clone, Default)]
pub(super) struct Troubles(Arc<Mutex<BTreeMap<Kind, Trouble>>>);

#[derive(Debug)]
struct Trouble {
    what: String,
    times: u32,
    last: Instant,
}

impl Troubles {
    /// Something failed.
    pub(super) fn note(&self, kind: Kind, what: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = all.get(&kind).map_or(0, |trouble| trouble.times) + 1;
        all.insert(kind, Trouble { what, times, last: Instant::now() });
    }

    /// Something of the kind has come.
    pub(super) fn over(&self, kind: Kind) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&kind);
    }

    /// All of it, as one line. A failure that was not repeated is no trouble: servers end watches as they like.
    pub(super) fn text(&self) -> Option<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, trouble| trouble.last.elapsed() < OVER);
        let mut kinds: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (kind, trouble) in all.iter().filter(|(_, trouble)| trouble.times > 1) {
            kinds.entry(&trouble.what).or_default().push(kind.to_string());
        }
        let lines: Vec<String> =
            kinds.iter().map(|(what, kinds)| format!("{}: {what}", kinds.join(", "))).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

/// The innermost cause, which is what an operator can do something about.
pub(super) fn cause(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    loop {
        if let Some(kube::Error::Api(status)) = at.downcast_ref::<kube::Error>() {
            let mut text = format!("{} {}", status.code, status.reason);
            if !status.message.is_empty() {
                let _ = write!(text, ": {}", status.message);
            }
            return text;
        }
        match at.source() {
            Some(source) => at = source,
            None => return at.to_string(),
        }
    }
}
