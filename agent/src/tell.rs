//! What egret says: lines on stderr that begin with `egret:`. A closed stderr changes nothing.

use std::fmt::Display;
use std::io::Write;

/// Prints one line.
pub fn line(text: impl Display) {
    // Nobody is left to tell.
    let _ = writeln!(std::io::stderr().lock(), "egret: {text}");
}

/// Prints a text of several lines as it is.
pub fn text(text: &str) {
    // Nobody is left to tell.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The text as one line that no terminal takes for commands: control characters, line ends and what turns the direction of
/// writing are shown as `\u{..}`. For whatever a pod, a DNS zone or a server may have written.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if is_command(c) { plain.extend(c.escape_unicode()) } else { plain.push(c) }
    }
    plain
}

/// Whether a terminal may do something else with it than to show it.
#[must_use]
pub fn is_command(c: char) -> bool {
    // Line and paragraph separators, then marks, embeddings, overrides and isolates of the bidirectional algorithm.
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Makes a bug say so in one line, with the place for the report, instead of Rust's own words.
pub fn instead_of_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let payload = info.payload();
        let what = payload.downcast_ref::<&str>().copied();
        let what =
            what.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        line(format_args!(
            "internal error at {place}: {what}; what was enforced stays enforced; please report this"
        ));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(plain("a.example é 日本"), "a.example é 日本");
        assert_eq!(
            plain("\x1b[31m\r\n\t\u{9b}2J\u{202e}\0"),
            r"\u{1b}[31m\u{d}\u{a}\u{9}\u{9b}2J\u{202e}\u{0}"
        );
    }
}
