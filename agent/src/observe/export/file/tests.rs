//! Files in a folder of their own.

use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("egret-export-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("made");
        Self(dir)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).expect("there").map(|e| e.expect("one").file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().expect("text")).collect();
        names.sort();
        names
    }

    fn open(&self, size: u64, backups: usize, compress: bool) -> io::Result<Rotated> {
        Rotated::open(self.0.join("flows.json"), Limits { size, backups, compress })
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("removed");
    }
}

#[test]
fn full_files_are_put_aside_and_the_oldest_go() {
    let dir = Dir::new("rotate");
    for other in ["flows-x.json", "flows-2025-01-01T00-00-00.000.txt", "xflows-2025-01-01T00-00-00.000.json"]
    {
        fs::write(dir.0.join(other), "other").expect("written");
    }
    let mut file = dir.open(10, 2, false).expect("open");
    for number in 0..10 {
        file.write(format!("line{number}\n").as_bytes()).expect("written");
        assert!(file.tidy().is_none());
    }
    let text = |name: &str| fs::read_to_string(dir.0.join(name)).expect("text");
    let aside: Vec<String> =
        dir.names().into_iter().filter(|n| n.starts_with("flows-20") && !n.ends_with("txt")).collect();
    assert_eq!(aside.len(), 2);
    assert_eq!(
        (text(&aside[0]), text(&aside[1]), text("flows.json")),
        ("line7\n".into(), "line8\n".into(), "line9\n".into())
    );
    assert_eq!(dir.names().len(), 6, "what is not its own is left alone: {:?}", dir.names());
    let mode = fs::metadata(dir.0.join("flows.json")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_was_put_aside_is_packed() {
    let dir = Dir::new("pack");
    // Of an agent that was killed while it packed.
    fs::write(dir.0.join("flows-2025-01-01T00-00-00.000.json.gz.tmp"), "part").expect("written");
    let mut file = dir.open(1000, 1, true).expect("open");
    for number in 0..3 {
        let lines = format!("{number}\n").repeat(400);
        file.write(lines.as_bytes()).expect("written");
        assert!(file.tidy().is_none());
    }
    let names = dir.names();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].ends_with(".json.gz"), "{names:?}");
    let mut text = String::new();
    let packed = File::open(dir.0.join(&names[0])).expect("there");
    assert!(packed.metadata().expect("there").len() < 200);
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).expect("whole");
    assert_eq!(text, "1\n".repeat(400));
}

#[test]
fn a_restart_goes_on_with_the_file() {
    let dir = Dir::new("again");
    fs::write(dir.0.join("flows.json"), "a\nhal").expect("written");
    let mut file = dir.open(100, 1, false).expect("open");
    file.write(b"b\n").expect("written");
    // Moved away, as logrotate does it.
    fs::rename(dir.0.join("flows.json"), dir.0.join("moved")).expect("moved");
    file.write(b"c\n").expect("written");
    let text = |name: &str| fs::read_to_string(dir.0.join(name)).expect("text");
    assert_eq!((text("moved"), text("flows.json")), ("a\nhal\nb\n".into(), "c\n".into()));
}

/// Files of this process, which is the test's own, get no larger.
fn file_limit(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: no handler runs, and the limit is read only.
    unsafe {
        assert_ne!(libc::signal(libc::SIGXFSZ, libc::SIG_IGN), libc::SIG_ERR);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}

#[test]
fn what_somebody_emptied_begins_anew() {
    let dir = Dir::new("emptied");
    let text = || fs::read_to_string(dir.0.join("flows.json")).expect("text");
    let empty = || fs::write(dir.0.join("flows.json"), "").expect("emptied");
    let mut file = dir.open(1000, 1, false).expect("open");
    file.write("a".repeat(900).as_bytes()).expect("written");
    // As `copytruncate` of logrotate does it.
    empty();
    file.write("b".repeat(899).as_bytes()).expect("written");
    assert_eq!((dir.names().len(), text().len()), (1, 899), "there is room again");
    empty();
    file_limit(950);
    file.write("c".repeat(960).as_bytes()).expect_err("no room");
    assert_eq!(text(), "", "nothing of a line that had no room");
}

#[test]
fn what_is_not_a_file_of_its_own_is_left_alone() {
    let dir = Dir::new("links");
    let path = dir.0.join("flows.json");
    fs::write(dir.0.join("secret"), "x").expect("written");
    fs::write(dir.0.join("empty"), "").expect("written");
    for there in ["secret", "empty", "missing"] {
        symlink(dir.0.join(there), &path).expect("linked");
        assert!(dir.open(100, 1, false).is_err(), "{there}");
        fs::remove_file(&path).expect("removed");
    }
    assert!(!dir.0.join("missing").exists());
    fs::hard_link(dir.0.join("secret"), &path).expect("linked");
    assert!(dir.open(100, 1, false).expect_err("refused").to_string().contains("another name"));
    fs::remove_file(&path).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("it runs").success());
    assert!(dir.open(100, 1, false).is_err(), "nobody reads it");
    let _reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).expect("open");
    assert!(dir.open(100, 1, false).expect_err("refused").to_string().contains("no regular file"));
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("made");
    assert!(dir.open(100, 1, false).is_err());
    assert_eq!(fs::read_to_string(dir.0.join("secret")).expect("text"), "x");
    if nix::unistd::geteuid().is_root() {
        fs::remove_dir(&path).expect("removed");
        fs::write(&path, "").expect("written");
        std::os::unix::fs::chown(&path, Some(1), None).expect("given away");
        assert!(dir.open(100, 1, false).expect_err("refused").to_string().contains("another user"));
    }
}
