//! Starting the image's agent without a container engine: its layer as the root, read only, in mount and network
//! namespaces of its own, with a bpffs of its own. Nothing of the host's is touched. Needs root.

use std::{
    fs, io,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::layer;
use crate::sh;

/// How long the agent may take until it enforces.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// What a runtime does, in the folder that is the first argument; the others are the command. The old root stays in reach
/// below /tmp, which nothing in the image knows.
const ENTER: &str = r#"
set -e
root=$1; shift
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount -t bpf bpf sys/fs/bpf
mount -t tmpfs tmpfs run/egret
mount -o remount,bind,ro "$root"
pivot_root . tmp
exec "$@"
"#;

/// Unpacks the layer, starts the agent with nothing to do, and waits for the answer of the readiness probe.
pub(super) fn run(tar: &[u8]) -> Result<()> {
    if !sh::is_root() {
        bail!(sh::Failed::new("the trial makes namespaces: run it as root", 77));
    }
    let root = sh::target_dir().join("image-trial");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    }
    layer::unpack(tar, &root)?;
    let begin = Instant::now();
    let mut agent = Agent::start(&root)?;
    let result = agent.wait_until_ready(begin + PATIENCE);
    agent.end();
    fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    result?;
    println!("trial:  ready after {:.1} s", begin.elapsed().as_secs_f64());
    Ok(())
}

struct Agent(Child);

impl Agent {
    fn start(root: &Path) -> Result<Self> {
        let mut command = sh::command("unshare");
        command.args(["--mount", "--net", "--propagation", "private", "sh", "-c", ENTER, "sh"]).arg(root);
        // An empty folder of the image, and no pods: whether there is a kubelet on this host makes no difference.
        command.args([
            "/usr/bin/egret",
            "agent",
            "--source",
            "dir:/etc",
            "--node",
            "trial",
            "--startup",
            "allow",
        ]);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
        // unshare and the shell become the agent: this is its process.
        Ok(Self(command.spawn().context("starting the agent")?))
    }

    fn wait_until_ready(&mut self, end: Instant) -> Result<()> {
        let inside = format!("/proc/{}/root", self.0.id());
        loop {
            if let Some(status) = self.0.try_wait()? {
                bail!("the agent ended: {status}");
            }
            let mut probe = Command::new("chroot");
            probe.args([&inside, "/usr/bin/egret", "status", "--probe", "ready"]);
            if probe.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success() {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("the agent is not ready after {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Its namespaces go with it, and the bpffs with its programs.
    fn end(&mut self) {
        let ended: io::Result<()> = self.0.kill().and_then(|()| self.0.wait().map(drop));
        if let Err(error) = ended {
            eprintln!("xtask: ending the agent: {error}");
        }
    }
}
