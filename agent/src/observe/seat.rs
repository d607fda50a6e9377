//! A connection with its place among those that are served at a time: descriptors are the agent's, not its clients'.
//! Who takes a place and says nothing loses it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};
use tonic::transport::server::Connected;

/// How long a client may be silent before it has shown that it speaks HTTP.
const SILENCE: Duration = Duration::from_secs(5);

/// How often a client must speak, after what it was told, before it may be silent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns(u8);

impl Turns {
    /// The first one is HTTP's.
    pub(super) const CLEAR: Self = Self(1);
    /// Two of them are the handshake's. HTTP's must be there even if its beginning came with these: the server's settings want
    /// an answer.
    pub(super) const TLS: Self = Self(3);
}

/// The place comes free with the connection, and that ends when the client does not begin to speak.
#[derive(Debug)]
pub(super) struct Seated<S> {
    stream: S,
    silence: Option<Silence>,
    _place: OwnedSemaphorePermit,
}

/// A client that is still to speak.
#[derive(Debug)]
struct Silence {
    left: u8,
    /// It was told something since it spoke.
    told: bool,
    until: Pin<Box<Sleep>>,
}

impl Silence {
    /// It has spoken. Whether that was the last time that it must.
    fn broken(&mut self) -> bool {
        if std::mem::take(&mut self.told) {
            self.left = self.left.saturating_sub(1);
            self.until.as_mut().reset(Instant::now() + SILENCE);
        }
        self.left == 0
    }
}

impl<S> Seated<S> {
    pub(super) fn new(stream: S, place: OwnedSemaphorePermit, turns: Turns) -> Self {
        // The first one comes unasked.
        let silence = Silence { left: turns.0, told: true, until: Box::pin(sleep(SILENCE)) };
        Self { stream, silence: Some(silence), _place: place }
    }
}

impl<S: Connected> Connected for Seated<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Seated<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        let Some(silence) = &mut this.silence else { return read };
        if buf.filled().len() > before {
            if silence.broken() {
                this.silence = None;
            }
        } else if read.is_pending() && silence.until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Seated<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        if let (Some(silence), Poll::Ready(Ok(1..))) = (&mut this.silence, &written) {
            silence.told = true;
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    use super::*;

    const LONGER: Duration = Duration::from_secs(8);

    fn seated(turns: Turns) -> (Seated<DuplexStream>, DuplexStream) {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("free");
        let (stream, client) = duplex(64);
        (Seated::new(stream, place, turns), client)
    }

    /// Whether a client that speaks so often, after an answer each time, may be silent from then on.
    async fn may_be_silent(turns: Turns, spoken: u8) -> bool {
        let (mut seated, mut client) = seated(turns);
        for _ in 0..spoken {
            // Two parts of one turn.
            for _ in 0..2 {
                client.write_all(b"x").await.expect("there");
                seated.read_u8().await.expect("spoken");
            }
            seated.write_all(b"y").await.expect("there");
            client.read_u8().await.expect("told");
        }
        match timeout(LONGER, seated.read_u8()).await {
            Ok(ended) => {
                assert_eq!(ended.expect_err("silence").kind(), io::ErrorKind::TimedOut);
                false
            }
            Err(_) => true,
        }
    }

    #[tokio::test]
    async fn who_does_not_begin_to_speak_goes() {
        let ask = |turns, spoken| may_be_silent(turns, spoken);
        let (clear, tls) = (Turns::CLEAR, Turns::TLS);
        let clear = async { (ask(clear, 0).await, ask(clear, 1).await) };
        let (clear, none, two, three) = tokio::join!(clear, ask(tls, 0), ask(tls, 2), ask(tls, 3));
        assert_eq!((clear, none, two, three), ((false, true), false, false, true));
    }
}
