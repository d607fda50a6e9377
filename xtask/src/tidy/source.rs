//! Rules for Rust files.

use super::{Finding, scrub::scrub};

const FILE_LIMIT: usize = 500;
const FN_LIMIT: usize = 80;
const BANNED_MACROS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

/// What is wrong with one file.
pub(super) fn check(source: &str) -> Vec<Finding> {
    let code = scrub(source);
    let code: Vec<&str> = code.lines().collect();
    let mut findings = Vec::new();
    if !has_head(source) {
        findings.push(Finding::error(1, "a file begins with `//!`: what it owns and what it must not know"));
    }
    if code.len() > FILE_LIMIT {
        findings
            .push(Finding::warning(1, format!("{} lines, more than {FILE_LIMIT} (aim for 300)", code.len())));
    }
    for (index, line) in code.iter().enumerate() {
        findings.extend(check_line(index + 1, line));
        if let Some(name) = function(line)
            && let Some(length) = function_length(&code[index..])
            && length > FN_LIMIT
        {
            let text = format!("fn {name}: {length} lines, more than {FN_LIMIT} (aim for 40)");
            findings.push(Finding::warning(index + 1, text));
        }
    }
    findings
}

/// Inner attributes may stand before the module's documentation.
fn has_head(source: &str) -> bool {
    source
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#!["))
        .is_some_and(|line| line.starts_with("//!"))
}

fn check_line(number: usize, line: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if line.contains("#[allow(") || line.contains("#![allow(") {
        findings.push(Finding::error(number, "`allow`: write `#[expect(lint, reason = \"...\")]`"));
    }
    for name in BANNED_MACROS {
        let begins_word = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if line.match_indices(name).any(|(at, _)| begins_word(at)) {
            findings.push(Finding::error(number, format!("`{name}` is left over")));
        }
    }
    findings
}

/// The name, if the line begins a function.
fn function(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let modifier = |word: &str| {
        word.starts_with("pub") || ["const", "async", "unsafe", "extern", "default"].contains(&word)
            // `pub(in a::b)` is two words.
            || word.ends_with(')')
    };
    let first = words.find(|word| !modifier(word))?;
    if first != "fn" {
        return None;
    }
    let name = words.next()?;
    Some(&name[..name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len())])
}

/// Lines from the one with `fn` to the closing brace in its column, as rustfmt sets it; none without a body.
fn function_length(lines: &[&str]) -> Option<usize> {
    let first = lines.first()?;
    let column = first.len() - first.trim_start().len();
    let mut in_body = false;
    for (index, line) in lines.iter().enumerate() {
        let at = line.len() - line.trim_start().len();
        let line = line.trim();
        if at == column && line == "}" {
            return Some(index + 1);
        }
        if !in_body && at == column && line.ends_with(';') {
            return None;
        }
        in_body |= line.ends_with('{');
        if index == 0 && line.ends_with('}') {
            return Some(1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        check(source).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn head_is_asked_for() {
        assert_eq!(texts("//! Head.\n"), [""; 0]);
        assert_eq!(texts("#![no_std]\n\n//! Head.\n"), [""; 0]);
        assert!(texts("use x;\n//! Late.\n")[0].starts_with("1: error: a file begins"));
        assert!(texts("// Not documentation.\n")[0].starts_with("1: error"));
    }

    #[test]
    fn leftovers_are_errors() {
        let check =
            |line: &str, count| assert_eq!(texts(&format!("//! Head.\n{line}\n")).len(), count, "{line}");
        check("    todo!()", 1);
        check("    std::unimplemented!(\"x\")", 1);
        check("    my_dbg!(x);", 0);
        check("    f(\"todo!\"); // dbg!", 0);
        check("#[allow(dead_code)]", 1);
        check("#![allow(dead_code)]", 1);
        check("#[expect(dead_code, reason = \"x\")]", 0);
    }

    #[test]
    fn functions_are_found() {
        assert_eq!(function("    pub(crate) async fn run<T>(x: T) {"), Some("run"));
        assert_eq!(function("pub(in crate::a) const unsafe fn f() {"), Some("f"));
        assert_eq!(function("let f = fn_of(x);"), None);
        assert_eq!(function("type F = fn(u8);"), None);
    }

    #[test]
    fn long_functions_and_files_are_warned_of() {
        let body = "    x();\n".repeat(80);
        assert_eq!(
            texts(&format!("//! H.\nfn f() {{\n{body}}}\nfn g() {{}}\n")),
            ["2: warning: fn f: 82 lines, more than 80 (aim for 40)"]
        );
        assert_eq!(
            texts(&format!("//! H.\ntrait T {{\n    fn f(\n        a: u8,\n    );\n{body}}}\n")),
            [""; 0]
        );
        let long = format!("//! H.\n{}", "use x;\n".repeat(500));
        assert_eq!(texts(&long), ["1: warning: 501 lines, more than 500 (aim for 300)"]);
    }
}
