//! Running qemu: the serial line to the terminal, the exit code out of it, a hard end.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::init::EXIT_MARK;
use crate::{sh, tally::Tally};

/// Boots, passes the output on and returns the code that the VM told.
pub(crate) fn run(kernel: &Path, initramfs: &Path, timeout: Duration, tally: &mut Tally) -> Result<i32> {
    let mut command = qemu(kernel, initramfs);
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", sh::show(&command)))?;
    let serial = child.stdout.take().context("qemu has no output")?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(serial).split(b'\n').map_while(|line| line.ok()) {
            if sender.send(String::from_utf8_lossy(&line).replace('\r', "")).is_err() {
                break;
            }
        }
    });
    let mut code = None;
    let mut out = std::io::stdout().lock();
    let timed_out = loop {
        match lines.recv_timeout(timeout.saturating_sub(start.elapsed())) {
            Ok(line) => {
                *tally += Tally::of_line(&line);
                match exit_code(&line) {
                    Some(told) => code = Some(told),
                    None => writeln!(out, "{line}")?,
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break false,
            Err(mpsc::RecvTimeoutError::Timeout) => break true,
        }
    };
    if timed_out {
        // It may have ended meanwhile; then there is nothing to end.
        drop(child.kill());
    }
    child.wait().context("waiting for qemu")?;
    writeln!(out, "vm: {:.0} s", start.elapsed().as_secs_f64())?;
    match code {
        Some(code) => Ok(code),
        None if timed_out => bail!("the VM was ended after {} s", timeout.as_secs()),
        None => bail!("the VM stopped before its jobs were done (see its last lines)"),
    }
}

fn qemu(kernel: &Path, initramfs: &Path) -> Command {
    let mut command = sh::command("qemu-system-x86_64");
    command
        .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "4096"])
        .args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"])
        .args(["-append", "console=ttyS0 quiet panic=-1 rdinit=/init mitigations=off"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs);
    command
}

/// The code in the VM's exit line; kernel messages may stand before it.
fn exit_code(line: &str) -> Option<i32> {
    line.split_once(EXIT_MARK)?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_line_is_read() {
        assert_eq!(exit_code("EGRET-VM-EXIT 0"), Some(0));
        assert_eq!(exit_code("[   3.1] veth0: up EGRET-VM-EXIT 101"), Some(101));
        assert_eq!(exit_code("EGRET-VM-EXIT"), None);
        assert_eq!(exit_code("test result: ok"), None);
    }
}
