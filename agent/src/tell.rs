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
