//! What shall be counted, as users of Hubble write it: `drop dns:query;ignoreAAAA flow:destinationContext=dns|ip`.
//!
//! Owns: the grammar. Metrics stand apart by blanks; after a colon, options by semicolons. What means nothing is an error
//! that names the part: upstream passes over unknown options, and then the label that somebody waits for never comes.

use std::str::FromStr;

use thiserror::Error;

use super::{Context, Handler, Metric};

/// Metrics of protocols that Egret does not read: taken, so that a configuration for Cilium can stay as it is.
const NOTHING: [&str; 3] = ["http", "httpV2", "kafka"];

/// Metrics with their options.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    handlers: Vec<Handler>,
    empty: Vec<&'static str>,
}

/// A part that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{part:?}: {why}")]
pub struct ConfigError {
    /// The part.
    pub part: String,
    /// What is wrong with it.
    pub why: String,
}

impl ConfigError {
    fn new(part: &str, why: impl Into<String>) -> Self {
        Self { part: part.to_owned(), why: why.into() }
    }
}

impl Config {
    /// The metrics among them for which there is never anything to count.
    #[must_use]
    pub fn empty(&self) -> &[&'static str] {
        &self.empty
    }

    pub(super) fn handlers(&self) -> &[Handler] {
        &self.handlers
    }
}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (mut config, mut seen) = (Self::default(), Vec::new());
        for part in text.split_whitespace() {
            let (key, options) = part.split_once(':').unwrap_or((part, ""));
            if seen.contains(&key) {
                return Err(ConfigError::new(part, format!("{key} is there twice")));
            }
            seen.push(key);
            match NOTHING.into_iter().find(|name| *name == key) {
                Some(name) => {
                    // Its options are checked as those of another one; it has more.
                    context(options, |_, _| true)?;
                    config.empty.push(name);
                }
                None => config.handlers.push(handler(key, options)?),
            }
        }
        if seen.is_empty() {
            return Err(ConfigError::new(text, "names no metric"));
        }
        Ok(config)
    }
}

fn handler(key: &str, options: &str) -> Result<Handler, ConfigError> {
    let mut metric = Metric::of(key).ok_or_else(|| {
        let known = Metric::KEYS.into_iter().chain(NOTHING).collect::<Vec<_>>().join(", ");
        ConfigError::new(key, format!("no such metric: there are {known}"))
    })?;
    let context = context(options, |name, value| value.is_none() && metric.set(name))?;
    Ok(Handler { metric, context })
}

/// Reads options. `own` takes those that are not about the ends.
fn context(options: &str, mut own: impl FnMut(&str, Option<&str>) -> bool) -> Result<Context, ConfigError> {
    let mut context = Context::default();
    for option in options.split(';').filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        // Upstream compares names without regard to case.
        let name = name.to_ascii_lowercase();
        match context.set(&name, value.unwrap_or_default()) {
            Some(set) => set.map_err(|why| ConfigError::new(option, why))?,
            None if own(&name, value) => {}
            None => return Err(ConfigError::new(option, "no option of this metric")),
        }
    }
    Ok(context)
}
