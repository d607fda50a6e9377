//! `xtask tidy`: conventions that no compiler checks. Errors fail, warnings are a list to shorten.

mod manifest;
mod scrub;
mod source;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::sh;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
enum Level {
    Warning,
    Error,
}

/// Something that breaks a convention.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Finding {
    level: Level,
    /// From 1.
    line: usize,
    text: String,
}

impl Finding {
    fn error(line: usize, text: impl Into<String>) -> Self {
        Self { level: Level::Error, line, text: text.into() }
    }

    fn warning(line: usize, text: impl Into<String>) -> Self {
        Self { level: Level::Warning, line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Warning => "warning",
            Level::Error => "error",
        };
        write!(f, "{}: {level}: {}", self.line, self.text)
    }
}

/// Checks every source and manifest of the workspace.
pub(crate) fn run() -> Result<()> {
    let root = sh::workspace();
    let mut files = Vec::new();
    walk(root, &mut files)?;
    files.sort();
    let (mut errors, mut warnings) = (0, 0);
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let shown = file.strip_prefix(root).unwrap_or(file);
        for finding in check(shown, &text) {
            println!("{}:{finding}", shown.display());
            match finding.level {
                Level::Warning => warnings += 1,
                Level::Error => errors += 1,
            }
        }
    }
    println!("tidy: {} files, {errors} errors, {warnings} warnings", files.len());
    if errors > 0 {
        bail!("tidy found {errors} errors");
    }
    Ok(())
}

fn check(file: &Path, text: &str) -> Vec<Finding> {
    match file.file_name().and_then(|name| name.to_str()) {
        Some("Cargo.toml") => manifest::check(text),
        _ => source::check(text),
    }
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                walk(&path, files)?;
            }
        } else if name == "Cargo.toml" || name.ends_with(".rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_read_like_compiler_messages() {
        assert_eq!(Finding::error(3, "no").to_string(), "3: error: no");
        assert_eq!(Finding::warning(1, "long").to_string(), "1: warning: long");
    }

    #[test]
    fn manifests_and_sources_are_told_apart() {
        assert_eq!(check(Path::new("a/Cargo.toml"), "[package]\n"), []);
        assert_eq!(check(Path::new("a/lib.rs"), "fn f() {}\n").len(), 1);
    }
}
