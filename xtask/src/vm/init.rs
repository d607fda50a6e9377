//! The script that is process 1 in the VM.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use super::{kernel::module_name, root::MODULES};

/// The line by which the VM tells its exit code.
pub(crate) const EXIT_MARK: &str = "EGRET-VM-EXIT";

/// A program to run, one after the other.
pub(crate) struct Job {
    /// What it is called in the output.
    pub(crate) name: String,
    /// Where it starts.
    pub(crate) folder: PathBuf,
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
}

const MOUNTS: &str = r#"#!/bin/busybox sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /sys/fs/cgroup /sys/fs/bpf /run/netns /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debugfs /sys/kernel/debug
mount --make-rshared /
ln -s /proc/self/fd /dev/fd
ip link set lo up
hostname egret-vm
"#;

/// Writes the script: mounts, modules, environment, jobs, the exit line, power off.
pub(crate) fn script(modules: &[PathBuf], env: &[(String, String)], jobs: &[Job]) -> String {
    let mut text = String::from(MOUNTS);
    for module in modules {
        let file = Path::new(MODULES).join(module.file_name().unwrap_or_default());
        writeln!(text, "insmod {}{}", file.display(), options(module)).expect("a String takes all");
    }
    for (name, value) in env {
        writeln!(text, "export {name}={}", quote(value)).expect("a String takes all");
    }
    text += "code=0\necho \"vm: $(uname -sr)\"\n";
    for job in jobs {
        let argv = job.argv.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
        let (name, folder) = (quote(&job.name), quote(&job.folder.display().to_string()));
        writeln!(
            text,
            "echo; echo vm: running {name}; (cd {folder} && exec {argv}) </dev/null; rc=$?\n\
             [ $rc = 0 ] || {{ echo vm: {name} ended with $rc; code=$rc; }}"
        )
        .expect("a String takes all");
    }
    writeln!(text, "echo\necho {EXIT_MARK} $code\nsync\npoweroff -f").expect("a String takes all");
    text
}

/// Some modules make links when they load, which a test would find as residue.
fn options(module: &Path) -> &'static str {
    match module_name(module).as_str() {
        "dummy" => " numdummies=0",
        "ifb" => " numifbs=0",
        _ => "",
    }
}

/// A word that the shell takes as it is.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted() {
        let job = Job { name: "a b".into(), folder: "/w".into(), argv: vec!["/x".into(), "it's".into()] };
        let script = script(&["/k/veth.ko".into()], &[("A".into(), "1 2".into())], &[job]);
        assert!(script.contains("insmod /modules/veth.ko\n"), "{script}");
        assert!(script.contains("export A='1 2'\n"), "{script}");
        assert!(script.contains(r"exec '/x' 'it'\''s'"), "{script}");
        assert!(script.contains("EGRET-VM-EXIT $code"), "{script}");
    }
}
