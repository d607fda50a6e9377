//! The kernel's tick rate (`CONFIG_HZ`), measured: no file and no system call tells it (USER_HZ is always 100).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use super::bpf_sys;

/// What kernels are built with.
const KNOWN: [u32; 4] = [100, 250, 300, 1000];
/// `BPF_PROG_TYPE_SCHED_CLS`: its return value may be any number.
const SCHED_CLS: u32 = 3;
/// `bpf_jiffies64`; exit.
const PROGRAM: [u64; 2] = [118 << 32 | 0x85, 0x95];
/// The time between the two ticks that are compared.
const SPAN: Duration = Duration::from_millis(15);
/// For so long ticks are looked for.
const PATIENCE: Duration = Duration::from_secs(1);
/// A tick is seen to within this; otherwise this process was not running meanwhile.
const SHARP: Duration = Duration::from_micros(400);

/// Ticks per second: takes 20 to 40 ms; up to a second where this process hardly runs.
///
/// # Errors
/// What the kernel says to the program.
pub(super) fn measure() -> io::Result<u32> {
    let program = bpf_sys::prog_load(SCHED_CLS, 0, "egret_hz", &PROGRAM)?;
    let (first, begin) = (bpf_sys::test_run(program.as_fd())?, Instant::now());
    match sharply(program.as_fd(), begin + PATIENCE) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            // Over so long a time it hardly matters that a tick was seen late.
            let last = bpf_sys::test_run(program.as_fd())?;
            Ok(nearest(f64::from(last.wrapping_sub(first)) / begin.elapsed().as_secs_f64()))
        }
        other => other,
    }
}

/// From two ticks seen at the moment they came; `TimedOut` when there are none.
fn sharply(program: BorrowedFd<'_>, deadline: Instant) -> io::Result<u32> {
    let (first, begin) = tick(program, deadline)?;
    loop {
        let (last, end) = tick(program, deadline)?;
        if end - begin >= SPAN {
            let rate = f64::from(last.wrapping_sub(first)) / (end - begin).as_secs_f64();
            return Ok(nearest(rate));
        }
    }
}

/// Waits for the next tick: its number, and when it came.
fn tick(program: BorrowedFd<'_>, deadline: Instant) -> io::Result<(u32, Instant)> {
    let mut before = Instant::now();
    let mut old = bpf_sys::test_run(program)?;
    loop {
        let now = bpf_sys::test_run(program)?;
        let after = Instant::now();
        if now == old.wrapping_add(1) && after - before < SHARP {
            return Ok((now, after));
        }
        if after > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        (before, old) = (after, now);
    }
}

/// The known rate that is nearest in proportion.
fn nearest(rate: f64) -> u32 {
    let distance = |known: u32| (rate / f64::from(known)).ln().abs();
    KNOWN.into_iter().min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(KNOWN[1])
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn rates_are_told_apart() {
        for (rate, known) in [(98.0, 100), (244.0, 250), (262.0, 250), (291.0, 300), (1040.0, 1000)] {
            assert_eq!(nearest(rate), known, "{rate}");
        }
    }
}
