//! Bounded waiting: a condition to poll, a stop signal to poll beside a socket. Knows nothing of what is
//! waited for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// `limit`, or more of it in the emulated VM (`EGRET_VM`), where everything takes longer. For limits that only end
/// what hangs, and for "at once".
pub fn patient(limit: Duration) -> Duration {
    if std::env::var_os("EGRET_VM").is_some() { limit * 6 } else { limit }
}

/// `usual` repetitions, or what `cargo xtask soak` asks for (`EGRET_SOAK`).
pub fn soak(usual: usize) -> usize {
    let asked = std::env::var("EGRET_SOAK").ok();
    asked.map_or(usual, |asked| asked.parse().expect("EGRET_SOAK is a number"))
}

/// Asks `probe` until it gives a value, at most for `limit`; `None` when the time is over.
///
/// For states that announce themselves by no event (a file that vanishes, a list of program ids).
pub fn until<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = probe() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Like [`until`] for a plain condition; panics with `what` when it does not come true.
pub fn until_true(what: &str, limit: Duration, mut probe: impl FnMut() -> bool) {
    let limit = patient(limit);
    assert!(until(limit, || probe().then_some(())).is_some(), "not within {limit:?}: {what}");
}

/// Lets time pass, where the passing of time is itself what the test waits for (a TTL).
pub fn pass(time: Duration) {
    thread::sleep(time);
}

/// A signal that ends the harness's own threads: readable for ever once raised.
#[derive(Clone, Debug)]
pub struct Stop(Arc<EventFd>);

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// A signal that is not yet raised.
    pub fn new() -> Self {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Self(Arc::new(EventFd::from_value_and_flags(0, flags).expect("eventfd")))
    }

    /// Raises the signal.
    pub fn raise(&self) {
        let _ = self.0.write(1);
    }

    /// Waits until one of `fds` is readable and returns their readiness, or `None` when stopped.
    pub fn readable(&self, fds: &[BorrowedFd<'_>]) -> Option<Vec<bool>> {
        let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        polled.push(PollFd::new(self.0.as_fd(), PollFlags::POLLIN));
        loop {
            match poll(&mut polled, PollTimeout::NONE) {
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => panic!("poll: {error}"),
                Ok(_) => break,
            }
        }
        let ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
        let (stop, others) = polled.split_last()?;
        (!ready(stop)).then(|| others.iter().map(ready).collect())
    }

    /// Waits for `pause`, or less when stopped; true if it was stopped.
    pub fn stopped_within(&self, pause: Duration) -> bool {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, millis(pause)).unwrap_or(0) > 0
    }
}

/// Waits until `fd` is readable; false when `limit` passes first.
pub fn readable_within(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    ready_within(fd, PollFlags::POLLIN, limit)
}

/// Waits until `fd` is writable (a connect has ended); false when `limit` passes first.
pub fn writable_within(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    ready_within(fd, PollFlags::POLLOUT, limit)
}

fn ready_within(fd: BorrowedFd<'_>, flags: PollFlags, limit: Duration) -> io::Result<bool> {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match poll(&mut [PollFd::new(fd, flags)], millis(left)) {
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(count) => return Ok(count > 0),
        }
    }
}

/// Rounded up, so that a wait of microseconds is no busy loop.
fn millis(limit: Duration) -> PollTimeout {
    let whole = limit.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
    PollTimeout::try_from(whole).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_gives_up_and_until_succeeds() {
        assert_eq!(until(Duration::from_millis(5), || None::<u8>), None);
        let mut left = 3;
        assert_eq!(
            until(Duration::from_secs(5), || {
                left -= 1;
                (left == 0).then_some(7)
            }),
            Some(7)
        );
    }

    #[test]
    fn stop_ends_a_wait() {
        let stop = Stop::new();
        assert!(!stop.stopped_within(Duration::from_millis(1)));
        stop.raise();
        assert!(stop.stopped_within(Duration::from_secs(5)));
        assert!(stop.readable(&[]).is_none());
    }
}
