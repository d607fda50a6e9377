//! Blanks comments and literals out of Rust source, so that rules see code only. Lines stay lines.

/// Replaces every character of a comment, string or character literal by a space.
pub(super) fn scrub(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut previous = ' ';
    while let Some(c) = rest.chars().next() {
        let length = literal_length(rest, previous);
        if length == 0 {
            out.push(c);
            previous = c;
            rest = &rest[c.len_utf8()..];
            continue;
        }
        out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        previous = ' ';
        rest = &rest[length..];
    }
    out
}

/// How many bytes at the head of `rest` are a comment or literal; 0 for code.
fn literal_length(rest: &str, previous: char) -> usize {
    let in_word = previous.is_alphanumeric() || previous == '_';
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest);
    }
    if rest.starts_with('\'') {
        return character(rest);
    }
    if !in_word && rest.starts_with('r') {
        return raw(rest, 1);
    }
    if !in_word && (rest.starts_with("br") || rest.starts_with("cr")) {
        return raw(rest, 2);
    }
    0
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let tail = &rest.as_bytes()[at..];
        if tail.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character literal; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // The character after the backslash may itself be a quote.
            chars.next();
            chars.find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1)
        }
        Some(_) => chars.next().filter(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 1),
        None => 0,
    }
}

/// A raw string with a prefix of `prefix` letters; 0 for a word that begins alike.
fn raw(rest: &str, prefix: usize) -> usize {
    let hashes = rest[prefix..].bytes().take_while(|b| *b == b'#').count();
    let open = prefix + hashes;
    if rest.as_bytes().get(open) != Some(&b'"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    rest[open + 1..].find(&close).map_or(rest.len(), |at| open + 1 + at + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let check = |source: &str, code: &str| {
            let scrubbed = scrub(source);
            assert_eq!(scrubbed.split_whitespace().collect::<Vec<_>>().join(" "), code, "{source}");
            assert_eq!(scrubbed.lines().count(), source.lines().count());
        };
        check("a // x\nb", "a b");
        check("a /* x /* y */ z */ b", "a b");
        check(r#"f("a\"b//", c)"#, "f( , c)");
        check("f(r#\"a\"b\"#, c)", "f( , c)");
        check(r"f('\'', 'x', '\u{1f}')", "f( , , )");
        check("fn f<'a>(x: &'a str) -> &'a str", "fn f<'a>(x: &'a str) -> &'a str");
        check("for r in br", "for r in br");
        check("f(br\"x\")", "f( )");
        check("f(\"a\nb\")", "f( )");
    }
}
