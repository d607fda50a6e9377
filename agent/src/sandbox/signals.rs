//! Passing signals on to CMD.
//!
//! CMD stays in egret's process group: the terminal delivers Ctrl-C, Ctrl-\, Ctrl-Z, hang-up and resize to
//! both by itself. Those must not be delivered twice, so only what a *process* sent to egret is passed on;
//! signalfd tells who sent it. Stop signals are left alone: the shell sees both stop and both go on.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cgroup::Cgroup;
use super::confine::set_signal_mask;
use super::process::Child;

/// What is passed on.
const FORWARDED: [i32; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGCONT,
];

/// A signal that egret received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// The process that sent it; `None` if the kernel did (the terminal), which has reached CMD too.
    pub sender: Option<i32>,
}

/// The signals of `FORWARDED`, blocked in this process and readable here.
#[derive(Debug)]
pub struct Signals {
    file: File,
    /// The mask egret was started with: CMD's (`Spec::signal_mask`).
    pub original_mask: u64,
}

impl Signals {
    /// Blocks the signals in the calling thread. To be called in `main`, before a thread or a runtime
    /// exists: threads inherit the mask.
    pub fn block() -> io::Result<Self> {
        let set: u64 = FORWARDED.iter().map(|s| 1u64 << (s - 1)).sum();
        let original_mask = set_signal_mask(0);
        set_signal_mask(original_mask | set);
        // SAFETY: `set` is one kernel signal set of eight bytes.
        let fd = unsafe {
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            libc::syscall(libc::SYS_signalfd4, -1, &raw const set, size_of::<u64>(), flags)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let file = unsafe { OwnedFd::from_raw_fd(fd as i32) }.into();
        Ok(Self { file, original_mask })
    }

    /// The next one. Needs a tokio runtime with I/O; safe to cancel (`select!`).
    pub async fn next(&self) -> io::Result<Received> {
        // SAFETY: the borrowed descriptor stays open for as long as `self`, which outlives `fd`.
        let fd = unsafe { AsyncFd::register_with_interest(self.file.as_fd(), Interest::READABLE) }?;
        loop {
            let mut guard = fd.readable().await?;
            // `struct signalfd_siginfo`: signo u32, errno i32, code i32, pid u32, ... 128 bytes.
            let mut info = [0u8; 128];
            match (&self.file).read(&mut info) {
                Ok(_) => return Ok(decode(&info)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(e) => return Err(e),
            }
        }
    }
}

fn decode(info: &[u8; 128]) -> Received {
    let word = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    // A code above zero means that the kernel generated it.
    Received { signal: word(0), sender: (word(8) <= 0).then(|| word(12)) }
}

/// Whether to pass a signal on: not what the terminal has delivered already, nor what CMD's own
/// processes sent (to their group, which we are in).
#[must_use]
pub fn to_forward(received: Received, cgroup: &Cgroup) -> bool {
    received.sender.is_some_and(|pid| !cgroup.pids().contains(&pid))
}

/// Passes signals on until CMD has ended, and gives its end. `CMD` that has gone already is no error.
pub async fn supervise(
    child: &Child,
    cgroup: &Cgroup,
    signals: &Signals,
) -> io::Result<super::process::Exit> {
    let end = child.wait();
    tokio::pin!(end);
    loop {
        tokio::select! {
            exit = &mut end => return exit,
            received = signals.next() => {
                let received = received?;
                if to_forward(received, cgroup) {
                    let _ = child.signal(received.signal);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminals_signals_have_no_sender() {
        let mut info = [0u8; 128];
        info[0] = libc::SIGINT as u8;
        info[8..12].copy_from_slice(&0x80i32.to_ne_bytes());
        assert_eq!(decode(&info), Received { signal: libc::SIGINT, sender: None });
        info[8..12].copy_from_slice(&0i32.to_ne_bytes());
        info[12] = 7;
        assert_eq!(decode(&info), Received { signal: libc::SIGINT, sender: Some(7) });
    }
}
