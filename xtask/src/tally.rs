//! Counting tests over several runs, from the closing lines of nextest and libtest.

use std::{
    fmt,
    io::{BufRead, BufReader, Write},
    ops::AddAssign,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::sh;

/// How many tests passed and failed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed, were ended or timed out.
    pub(crate) failed: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

impl Tally {
    /// What one printed line adds; nothing unless it is a closing line.
    pub(crate) fn of_line(line: &str) -> Self {
        // nextest repeats a failed test's own output, libtest's closing line in it, but indents it.
        let closing = line.trim_start().starts_with("Summary [") || line.starts_with("test result: ");
        let mut tally = Self::default();
        if !closing {
            return tally;
        }
        // "Summary [ 0.1s] 9 tests run: 7 passed, 1 failed, 1 timed out, 2 skipped"
        // "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s"
        for part in line.split([',', ';', ':', '.', '(']) {
            let mut words = part.split_whitespace();
            let Some(count) = words.next().and_then(|w| w.parse::<u64>().ok()) else { continue };
            match words.collect::<Vec<_>>().join(" ").as_str() {
                "passed" => tally.passed += count,
                "failed" | "timed out" | "exec failed" => tally.failed += count,
                _ => {}
            }
        }
        tally
    }
}

/// Runs a test runner, passes its output on and adds what its closing lines say to `tally`.
pub(crate) fn run(command: &mut Command, tally: &mut Tally) -> Result<()> {
    let shown = sh::show(command);
    // nextest reports on stderr, libtest on stdout: one pipe keeps their order.
    let (reader, writer) = std::io::pipe().context("making a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn().with_context(|| format!("cannot start `{shown}`"));
    // The command keeps its copies of the writing end; they must go, or the pipe never ends.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut child = child?;
    let mut out = std::io::stdout().lock();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.context("reading the test runner's output")?;
        out.write_all(&line)?;
        out.write_all(b"\n")?;
        *tally += Tally::of_line(&String::from_utf8_lossy(&line));
    }
    out.flush()?;
    sh::check(&shown, child.wait()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted() {
        let check =
            |line, passed, failed| assert_eq!(Tally::of_line(line), Tally { passed, failed }, "{line}");
        check("     Summary [   0.021s] 9 tests run: 7 passed, 1 failed, 1 timed out, 2 skipped", 7, 2);
        check("     Summary [   0.021s] 7 tests run: 7 passed (1 slow), 0 skipped", 7, 0);
        check(
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s",
            3,
            0,
        );
        check("test result: FAILED. 3 passed; 2 failed; 0 ignored", 3, 2);
        check("    test result: FAILED. 0 passed; 1 failed; 0 ignored", 0, 0);
        check("the page says 5 passed, 1 failed", 0, 0);
    }

    #[test]
    fn output_of_both_streams_is_counted() {
        let mut tally = Tally::default();
        let script =
            "echo 'test result: ok. 2 passed; 0 failed'; echo 'Summary [1s] 1 tests run: 1 passed' >&2";
        run(sh::command("sh").args(["-c", script]), &mut tally).unwrap();
        assert_eq!(tally, Tally { passed: 3, failed: 0 });
    }
}
