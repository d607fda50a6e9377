//! A folder of YAML files, looked at again and again.
//!
//! Owns which files count and when one has changed. Looked at rather than believed to events: that sees through symbolic
//! links (a ConfigMap is a chain of them) and through every file system. A file that is being written is read again at the next
//! look, since its size or time is another one then.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Levels of folders that are walked.
const DEPTH: usize = 4;
/// Bytes of a file at most.
const FILE_MAX: u64 = 16 << 20;
/// A file changed so short a time before it was read may change again without another time.
const UNSETTLED: Duration = Duration::from_millis(50);

/// What tells one version of a file from another.
type Stamp = (u64, u64, u64, i64, i64);

/// The folder, and what was read of it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    files: BTreeMap<PathBuf, File>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    stamp: Option<Stamp>,
    text: Arc<str>,
    error: Option<String>,
}

/// What the folder holds now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// Files that can be read.
    pub files: BTreeMap<PathBuf, Arc<str>>,
    /// What cannot be read, with the reason. Its last text stays among `files`.
    pub errors: BTreeMap<PathBuf, String>,
}

impl Folder {
    /// A folder; it is not looked at yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, files: BTreeMap::new() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks. `None`: nothing has changed.
    ///
    /// # Errors
    /// The folder itself cannot be read; what was read before stays.
    pub fn look(&mut self) -> io::Result<Option<Texts>> {
        let mut found = BTreeMap::new();
        walk(&self.path, DEPTH, &mut found)?;
        let files: BTreeMap<PathBuf, File> = found
            .into_iter()
            .map(|(path, metadata)| {
                let file = self.read(&path, &metadata);
                (path, file)
            })
            .collect();
        let same = |(path, file): (&PathBuf, &File)| {
            let before = self.files.get(path);
            before.is_some_and(|before| before.text == file.text && before.error == file.error)
        };
        let changed = files.len() != self.files.len() || !files.iter().all(same);
        self.files = files;
        Ok(changed.then(|| self.texts()))
    }

    fn texts(&self) -> Texts {
        let mut texts = Texts::default();
        for (path, file) in &self.files {
            texts.files.insert(path.clone(), file.text.clone());
            if let Some(error) = &file.error {
                texts.errors.insert(path.clone(), error.clone());
            }
        }
        texts
    }

    fn read(&self, path: &Path, metadata: &Metadata) -> File {
        let stamp = stamp(metadata);
        let before = self.files.get(path);
        if let Some(file) = before.filter(|file| file.stamp == Some(stamp)) {
            return file.clone();
        }
        let settled = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        let stamp = settled.filter(|age| *age > UNSETTLED).map(|_| stamp);
        let read = match metadata.len() > FILE_MAX {
            true => Err(io::Error::other("larger than 16 MiB")),
            false => fs::read_to_string(path),
        };
        match read {
            Ok(text) => File { stamp, text: text.into(), error: None },
            Err(error) => {
                let text = before.map(|file| file.text.clone()).unwrap_or_default();
                File { stamp: None, text, error: Some(error.to_string()) }
            }
        }
    }
}

fn stamp(metadata: &Metadata) -> Stamp {
    (metadata.dev(), metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec())
}

/// Every `*.yaml`, `*.yml` and `*.json` below; hidden ones are somebody's work in progress.
fn walk(dir: &Path, depth: usize, found: &mut BTreeMap<PathBuf, Metadata>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.')) {
            continue;
        }
        // Gone meanwhile, or a link that leads nowhere.
        let Ok(metadata) = fs::metadata(&path) else { continue };
        let counts = path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        if metadata.is_file() && counts {
            found.insert(path, metadata);
        } else if metadata.is_dir() && depth > 1 {
            // A folder that goes while it is read has nothing any more.
            let _ = walk(&path, depth - 1, found);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("egret-folder-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.join(name), text).expect("written");
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("clean up");
        }
    }

    fn names(texts: &Texts) -> Vec<(String, String)> {
        let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
        texts.files.iter().map(|(path, text)| (name(path), text.to_string())).collect()
    }

    #[test]
    fn a_change_is_seen_once() {
        let dir = Dir::new("change");
        let mut folder = Folder::new(dir.0.clone());
        assert_eq!(folder.look().expect("there"), None, "empty as before");
        dir.write("a.yaml", "one");
        dir.write("notes.txt", "not this");
        dir.write(".b.yaml.swp", "nor this");
        let texts = folder.look().expect("there").expect("new");
        assert_eq!(names(&texts), [("a.yaml".into(), "one".into())]);
        assert_eq!(folder.look().expect("there"), None);
        // Same length, at once: the time alone might not tell.
        dir.write("a.yaml", "two");
        assert_eq!(
            names(&folder.look().expect("there").expect("changed")),
            [("a.yaml".into(), "two".into())]
        );
        fs::create_dir(dir.0.join("more")).expect("a folder");
        dir.write("more/c.yml", "three");
        assert_eq!(folder.look().expect("there").expect("new").files.len(), 2);
        fs::remove_file(dir.0.join("a.yaml")).expect("removed");
        assert_eq!(names(&folder.look().expect("there").expect("gone")), [("c.yml".into(), "three".into())]);
    }

    #[test]
    fn what_cannot_be_read_keeps_its_last_text() {
        let dir = Dir::new("broken");
        let mut folder = Folder::new(dir.0.clone());
        dir.write("a.yaml", "good");
        folder.look().expect("there").expect("new");
        fs::write(dir.0.join("a.yaml"), [0xff, 0xfe]).expect("written");
        let texts = folder.look().expect("there").expect("changed");
        assert_eq!(names(&texts), [("a.yaml".into(), "good".into())]);
        assert_eq!(texts.errors.len(), 1);
        assert_eq!(folder.look().expect("there"), None, "told once");
        dir.write("a.yaml", "good");
        assert!(folder.look().expect("there").expect("mended").errors.is_empty());
    }

    #[test]
    fn a_folder_that_is_gone_is_an_error_and_no_change() {
        let mut folder = Folder::new("/nonexistent".into());
        assert!(folder.look().is_err());
    }
}
