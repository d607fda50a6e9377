//! Colours, and texts whose width does not count them.

/// A text as it is printed, and how many columns it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) width: usize,
}

impl Cell {
    /// Without colour.
    pub(super) fn of(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { width: text.chars().count(), text }
    }

    /// Adds what has no colour.
    pub(super) fn append(&mut self, more: &str) {
        self.text.push_str(more);
        self.width += more.chars().count();
    }
}

/// Whether there is colour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint(pub(super) bool);

impl Paint {
    pub(super) fn host(self, text: &str) -> Cell {
        self.with("36", text)
    }

    pub(super) fn identity(self, text: &str) -> Cell {
        self.with("35", text)
    }

    /// By the number of the verdict: what passed, what did not, what would not have.
    pub(super) fn verdict(self, number: i32, text: &str) -> Cell {
        let colour = match number {
            1 => "32",
            2 | 3 => "31",
            4 | 5 => "33",
            _ => "34",
        };
        self.with(colour, text)
    }

    /// The text is harmless by now.
    fn with(self, colour: &str, text: &str) -> Cell {
        let width = text.chars().count();
        let text = if self.0 { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() };
        Cell { text, width }
    }
}
