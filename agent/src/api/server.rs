//! The socket: root only, one line in, one line out. Requests are handed to the one task that owns the state.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::{Answer, Request, socket};

/// Bytes of a request at most.
const REQUEST_MAX: u64 = 4096;
/// How long a client may take to ask, and to read.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clients at a time.
const CLIENTS: usize = 16;

/// A request, and where its answer goes.
pub type Asked = (Request, oneshot::Sender<Answer>);

/// The listening socket; its file goes with it.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Listens at `path`, whose directory is made; a file that an ended agent left is replaced. Needs a tokio runtime.
    ///
    /// # Errors
    /// What the file system says.
    pub fn listen(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::from_std(socket::listen(path)?)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Serves until dropped, on the current `LocalSet`.
    pub async fn serve(&self, asked: mpsc::Sender<Asked>) {
        let places = Arc::new(Semaphore::new(CLIENTS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = self.listener.accept().await else {
                // No descriptor is left: one comes free when a client goes.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let asked = asked.clone();
            tokio::task::spawn_local(async move {
                // A client that does not ask, or does not read, has itself to blame.
                let _ = timeout(2 * PATIENCE, converse(stream, asked)).await;
                drop(place);
            });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

async fn converse(mut stream: UnixStream, asked: mpsc::Sender<Asked>) -> io::Result<()> {
    let answer = match socket::is_root(&stream) {
        true => answer(&line(&mut stream).await?, asked).await,
        false => Answer::Error("only root may ask".into()),
    };
    let text = serde_json::to_string(&answer)? + "\n";
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

async fn line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_MAX)).read_line(&mut line).await?;
    Ok(line)
}

async fn answer(line: &str, asked: mpsc::Sender<Asked>) -> Answer {
    let request = match serde_json::from_str(line) {
        Ok(request) => request,
        Err(error) => return Answer::Error(format!("no request: {error}")),
    };
    let (reply, answer) = oneshot::channel();
    let gone = || Answer::Error("the agent is ending".into());
    match asked.send((request, reply)).await {
        Ok(()) => answer.await.unwrap_or_else(|_| gone()),
        Err(_) => gone(),
    }
}
