//! Asking the agent.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{Answer, Request};
use crate::exit::{self, Refusal};

/// How long the agent may take: a dump of full maps is the longest.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks, and reads the answer.
///
/// # Errors
/// 69 when no agent answers, 77 without permission, 65 for an answer that says no.
pub fn ask<T: DeserializeOwned>(socket: &Path, request: &Request) -> Result<T, Refusal> {
    let text = exchange(socket, request).map_err(|error| unreachable_agent(socket, &error))?;
    let odd = |error: serde_json::Error| {
        Refusal::new(
            exit::SOFTWARE,
            format!("the answer of the agent cannot be read: {error}"),
            "agent and command must be of one version",
        )
    };
    match serde_json::from_str(&text).map_err(odd)? {
        Answer::Ok(value) => serde_json::from_value(value).map_err(odd),
        Answer::Error(why) => Err(Refusal::new(exit::DATA_ERROR, why, "see what the lists show")),
    }
}

fn exchange(socket: &Path, request: &Request) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{}\n", serde_json::to_string(request)?).as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn unreachable_agent(socket: &Path, error: &io::Error) -> Refusal {
    let cause = format!("no answer at {}: {error}", socket.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::new(exit::NO_PERMISSION, cause, "run it with sudo"),
        _ => Refusal::new(exit::UNAVAILABLE, cause, "is `egret agent` running? --socket says where to ask"),
    }
}
