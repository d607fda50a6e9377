//! The VM: the oldest kernel that Egret supports (6.1, Debian 12's), emulated without KVM.
//!
//! ```text
//! kernel (package, modules) ─┐
//! root (host's files + libs) ┴─> initramfs ─> boot (qemu, serial) ─> "EGRET-VM-EXIT code"
//! ```
//! What runs inside is copied from this machine to the same paths, so a test finds its golden files and the
//! binary under test where it was compiled to look for them, and no second build is needed.

mod boot;
mod init;
mod kernel;
mod root;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use self::{init::Job, root::Root};
use crate::{cargo, setup, sh, tally::Tally};

/// Programs that tests and the demonstration start; every other name is busybox. The shells are real because
/// busybox's prefers its own applets to the real programs.
const PROGRAMS: &[&str] = &[
    "sh", "bash", "ip", "tc", "ss", "curl", "dig", "getent", "python3", "setpriv", "capsh", "nft", "bpftool",
    // What the sandbox is tried with: as on a real host, not busybox, which is one program under many names.
    "cat", "chmod", "cp", "env", "grep", "head", "id", "ls", "mkdir", "mount", "nohup", "nsenter", "rm",
    "setsid", "sleep", "stat", "touch", "true", "umount", "unshare",
];
/// netns tests whose name contains this word also run in the VM: a few, since emulation is slow.
const NETNS_PART: &str = "smoke";
/// The verifier alone takes most of a minute per load there.
const TESTS_TIMEOUT: Duration = Duration::from_secs(2400);

/// Among the names of tests: the core steps of the demonstration of `egret run`. Those of the pods take minutes more.
const DEMO: &str = "demo";
/// Among the names of tests: the core steps of the demonstration's pods.
const DEMO_PODS: &str = "demo-pods";

/// Runs the kernel tier, the sandbox, the smoke part of netns and the demonstration's core steps in the VM; or what
/// `names` picks of them.
pub(crate) fn run_tests(names: &[String], tally: &mut Tally) -> Result<()> {
    let bins = cargo::build_bins(&[])?;
    let tests = cargo::build_tests()?;
    let egret = cargo::binary(&bins, "egret").context("cargo built no binary `egret`")?;
    let mut root = Root::new()?;
    root.add_programs(PROGRAMS)?;
    // The binary under test, and whatever the tests start.
    for bin in bins.iter().filter(|bin| ["egret", "egret-probe", "demo"].contains(&bin.name.as_str())) {
        root.add_binary(&bin.path)?;
    }
    root.add_tree(&sh::workspace().join("tests/golden"))?;

    let mut jobs = Vec::new();
    let ours = |package: &str| package == "egret" || package == "egret-tests";
    let parts = [(DEMO, "run"), (DEMO_PODS, "pods")];
    let is_demo = |name: &String| parts.iter().any(|(part, _)| name == part);
    let filters: Vec<String> = names.iter().filter(|name| !is_demo(name)).cloned().collect();
    let any = names.is_empty() || !filters.is_empty();
    // No cluster is there.
    let local = |name: &str| !name.starts_with("cluster_");
    let picked = tests.iter().filter(|t| any && ours(&t.package) && t.kind == "test" && local(&t.name));
    for test in picked {
        let filter = match filters.as_slice() {
            [] if test.name.starts_with("netns_") => vec![NETNS_PART.to_owned()],
            filters => filters.to_vec(),
        };
        root.add_binary(&test.path)?;
        let mut argv = vec![test.path.display().to_string(), "--test-threads=2".into()];
        argv.extend(filter);
        jobs.push(Job { name: test.name.clone(), folder: test.folder.clone(), argv });
    }
    ensure!(!any || !jobs.is_empty(), "tests/tests holds no test file to run in the VM");
    let demo = cargo::binary(&bins, "demo").context("cargo built no binary `demo`")?;
    for (name, part) in parts.into_iter().filter(|(p, _)| names.is_empty() || names.iter().any(|n| n == p)) {
        let argv = vec![demo.path.display().to_string(), "--core".into(), "--only".into(), part.into()];
        jobs.push(Job { name: name.into(), folder: sh::workspace().into(), argv });
    }
    root.set_env("EGRET_BIN", &egret.path.display().to_string());
    root.set_env("EGRET_VM", "1");
    let before = *tally;
    finish(boot(&mut root, &jobs, TESTS_TIMEOUT, tally)?)?;
    ensure!(!any || tally.passed > before.passed, "no test ran in the VM");
    Ok(())
}

/// Runs one command in the VM, with `files` beside it; its program may be a path or a name on the PATH.
pub(crate) fn run_command(command: &[String], files: &[PathBuf], timeout: Duration) -> Result<()> {
    setup::ensure(&[setup::Tier::Vm])?;
    let (program, args) = command.split_first().context("no command")?;
    let mut root = Root::new()?;
    root.add_programs(PROGRAMS)?;
    for file in files {
        root.add_binary(&std::path::absolute(file)?)?;
    }
    let here = std::env::current_dir()?.join(program);
    let path = if program.contains('/') { Some(here) } else { sh::find(program) };
    let path = path.filter(|p| p.is_file()).with_context(|| format!("{program}: not found"))?;
    root.add_binary(&path)?;
    let mut argv = vec![path.display().to_string()];
    argv.extend(args.iter().cloned());
    let job = Job { name: program.clone(), folder: Path::new("/").into(), argv };
    finish(boot(&mut root, &[job], timeout, &mut Tally::default())?)
}

fn boot(root: &mut Root, jobs: &[Job], timeout: Duration, tally: &mut Tally) -> Result<i32> {
    let kernel = kernel::fetch()?;
    let modules = kernel.modules()?;
    for job in jobs {
        root.add_folder(&job.folder)?;
    }
    root.add_init(&init::script(&modules, root.env(), jobs))?;
    for module in &modules {
        root.add_module(module)?;
    }
    let image = root.pack()?;
    boot::run(&kernel.image, &image, timeout, tally)
}

fn finish(code: i32) -> Result<()> {
    match code {
        0 => Ok(()),
        code => bail!(sh::Failed::new(
            format!("the VM's jobs ended with {code}"),
            u8::try_from(code).unwrap_or(1)
        )),
    }
}
