//! A rendered file that is checked in.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::chart;
use crate::{setup::Tools, sh};

/// Lines around the first difference that are shown.
const SHOWN: usize = 3;

/// A file and how it comes about.
pub(super) struct Golden {
    /// From the repository's root.
    pub(super) file: PathBuf,
    head: String,
    args: Vec<String>,
}

impl Golden {
    pub(super) fn new(file: impl Into<PathBuf>, what: impl AsRef<str>, args: &[&str]) -> Self {
        let head =
            format!("# Egret: {}.\n# Written by `cargo xtask deploy check --update`.\n", what.as_ref());
        Self { file: file.into(), head, args: args.iter().map(|arg| (*arg).to_owned()).collect() }
    }

    /// What the file should hold.
    pub(super) fn render(&self, tools: &Tools) -> Result<String> {
        Ok(self.head.clone() + &chart::render(tools, &self.args)?)
    }

    pub(super) fn write(&self, rendered: &str) -> Result<()> {
        let path = self.path();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, rendered).with_context(|| format!("writing {}", path.display()))
    }

    /// Where the file differs first, if it does. A file that is not there is an empty one.
    pub(super) fn compare(&self, rendered: &str) -> Result<Option<String>> {
        let path = self.path();
        let have = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("reading {}", path.display()))?,
        };
        Ok(difference(&self.file, &have, rendered))
    }

    fn path(&self) -> PathBuf {
        sh::workspace().join(&self.file)
    }
}

fn difference(file: &Path, have: &str, want: &str) -> Option<String> {
    if have == want {
        return None;
    }
    let (have, want): (Vec<&str>, Vec<&str>) = (have.lines().collect(), want.lines().collect());
    let same = have.iter().zip(&want).take_while(|(a, b)| a == b).count();
    let mut text = format!("{}:{}: differs", file.display(), same + 1);
    for (sign, lines) in [('-', &have), ('+', &want)] {
        for line in lines.iter().skip(same).take(SHOWN) {
            text += &format!("\n  {sign} {line}");
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_shown() {
        let check = |have, want| difference(Path::new("f"), have, want);
        assert_eq!(check("a\nb\n", "a\nb\n"), None);
        assert_eq!(check("a\nb\n", "a\nc\n").as_deref(), Some("f:2: differs\n  - b\n  + c"));
        assert_eq!(check("", "a\n").as_deref(), Some("f:1: differs\n  + a"));
        // Only the end of the last line.
        assert_eq!(check("a", "a\n").as_deref(), Some("f:2: differs"));
    }
}
