//! Rules for `Cargo.toml`: one table of dependencies, each entry with its reason.

use super::Finding;

/// What is wrong with one manifest.
pub(super) fn check(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut section = Section::Other;
    let mut has_reason = false;
    let mut depth = 0_i32;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let continued = depth > 0;
        depth += nesting(line);
        if continued {
            continue;
        }
        if line.is_empty() {
            has_reason = false;
        } else if line.starts_with('#') {
            has_reason = true;
        } else if let Some(header) = line.strip_prefix('[') {
            depth = 0;
            has_reason = false;
            section = Section::of(header.trim_end_matches(']'));
            if let Section::Entry(name) = &section {
                let text = format!("{name}: write `{name}.workspace = true` in the table of dependencies");
                findings.push(Finding::error(index + 1, text));
            }
        } else if let Some((name, value)) = line.split_once('=') {
            findings.extend(
                section.check(name.trim(), value, has_reason).map(|text| Finding::error(index + 1, text)),
            );
        }
    }
    findings
}

/// Opened minus closed brackets: a value may go on over lines.
fn nesting(line: &str) -> i32 {
    let line = line.split_once('#').map_or(line, |(before, _)| before);
    line.chars().map(|c| i32::from("[{".contains(c)) - i32::from("]}".contains(c))).sum()
}

enum Section {
    /// The workspace's table.
    Workspace,
    /// A member's table.
    Member,
    /// A table of its own for one dependency, which hides it from the one table.
    Entry(String),
    Other,
}

impl Section {
    fn of(header: &str) -> Self {
        if header == "workspace.dependencies" {
            return Self::Workspace;
        }
        let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
        let (rest, last) = header.rsplit_once('.').unwrap_or(("", header));
        if tables.contains(&last) {
            return Self::Member;
        }
        if tables.contains(&rest.rsplit_once('.').map_or(rest, |(_, table)| table)) {
            return Self::Entry(last.to_owned());
        }
        Self::Other
    }

    /// What is wrong with an entry.
    fn check(&self, name: &str, value: &str, has_reason: bool) -> Option<String> {
        match self {
            // The workspace's own crates need no reason.
            Self::Workspace if !has_reason && !value.contains("path") => {
                Some(format!("{name}: say in a comment above why it is needed"))
            }
            Self::Member if !name.ends_with(".workspace") && !value.contains("workspace = true") => {
                Some(format!("{name}: take it from [workspace.dependencies] (`workspace = true`)"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(manifest: &str) -> Vec<String> {
        check(manifest).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn members_take_from_the_table() {
        let good = "[dependencies]\na.workspace = true\nb = { workspace = true, features = [\"x\"] }\n\
                    c = { workspace = true, features = [\n  \"y\",\n] }\n[features]\nx = []\n";
        assert_eq!(texts(good), [""; 0]);
        let bad =
            "[dev-dependencies]\na = \"1\"\n[target.'cfg(unix)'.dependencies]\nb = { version = \"1\" }\n";
        let found = texts(bad);
        assert!(found[0].starts_with("2: error: a: take it"), "{found:?}");
        assert!(found[1].starts_with("4: error: b: take it"), "{found:?}");
        assert!(texts("[dependencies.a]\nversion = \"1\"\n")[0].starts_with("1: error: a: write"));
    }

    #[test]
    fn table_gives_reasons() {
        let good = "[workspace.dependencies]\nours = { path = \"x\" }\n# Errors.\na = \"1\"\nb = \"2\"\n[profile.release]\nlto = true\n";
        assert_eq!(texts(good), [""; 0]);
        let found = texts("[workspace.dependencies]\na = \"1\"\n# Why.\nb = \"1\"\n\nc = \"1\"\n");
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("2: error: a: say"), "{found:?}");
        assert!(found[1].starts_with("6: error: c: say"), "{found:?}");
    }
}
