//! Numbers for things: a thing keeps its number for as long as it is remembered, and a number that was given back is not
//! given again before all others of its range.
//!
//! Owns: which number is free. Must not know: what is numbered.

use std::{collections::BTreeMap, sync::Arc};

/// So many things are remembered that nothing uses, beside as many as are used: what goes and comes back keeps its number.
const SPARE: usize = 1024;

/// Things with their numbers.
#[derive(Debug, Clone)]
pub(crate) struct Numbering<T> {
    numbers: BTreeMap<Arc<T>, u32>,
    things: BTreeMap<u32, Arc<T>>,
    first: u32,
    last: u32,
    next: u32,
}

impl<T: Ord> Numbering<T> {
    /// With the numbers from `first` to `last`.
    pub(crate) fn new(first: u32, last: u32) -> Self {
        Self { numbers: BTreeMap::new(), things: BTreeMap::new(), first, last, next: first }
    }

    /// The number of a thing that has one.
    pub(crate) fn get(&self, thing: &T) -> Option<u32> {
        self.numbers.get(thing).copied()
    }

    /// The number of a thing, new if need be. `None`: all are in use.
    pub(crate) fn number(&mut self, thing: impl Into<Arc<T>>) -> Option<u32> {
        let thing = thing.into();
        if let Some(number) = self.get(&thing) {
            return Some(number);
        }
        if self.things.len() > (self.last - self.first) as usize {
            return None;
        }
        while self.things.contains_key(&self.next) {
            self.next = self.after(self.next);
        }
        let number = self.next;
        self.next = self.after(number);
        self.things.insert(number, thing.clone());
        self.numbers.insert(thing, number);
        Some(number)
    }

    /// Gives a thing the number that it had before. False: one of them is taken, or the number is none of these.
    pub(crate) fn restore(&mut self, number: u32, thing: impl Into<Arc<T>>) -> bool {
        let thing = thing.into();
        let taken = self.things.contains_key(&number) || self.numbers.contains_key(&thing);
        if taken || !(self.first..=self.last).contains(&number) {
            return false;
        }
        self.next = self.next.max(self.after(number));
        self.things.insert(number, thing.clone());
        self.numbers.insert(thing, number);
        true
    }

    /// What has this number.
    pub(crate) fn thing(&self, number: u32) -> Option<&Arc<T>> {
        self.things.get(&number)
    }

    /// All of them, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<T>)> {
        self.things.iter().map(|(number, thing)| (*number, thing))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.things.len()
    }

    /// Whether so many are remembered that those which nothing uses should go, if `used` are used.
    pub(crate) fn is_crowded(&self, used: usize) -> bool {
        self.len() > 2 * used + SPARE
    }

    /// Forgets what is not to be kept; gives it back.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32, &T) -> bool) -> Vec<(u32, Arc<T>)> {
        let gone: Vec<u32> = self.iter().filter(|(n, thing)| !keep(*n, thing)).map(|(n, _)| n).collect();
        let gone = gone.into_iter().filter_map(|n| Some((n, self.things.remove(&n)?)));
        let gone: Vec<(u32, Arc<T>)> = gone.collect();
        self.numbers.retain(|_, number| self.things.contains_key(number));
        gone
    }

    fn after(&self, number: u32) -> u32 {
        if number >= self.last { self.first } else { number + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round() {
        let mut n = Numbering::<&str>::new(5, 8);
        assert_eq!(["a", "b", "a", "c"].map(|t| n.number(t)), [Some(5), Some(6), Some(5), Some(7)]);
        let gone = n.retain(|_, t| *t != "a");
        assert_eq!(gone, [(5, Arc::new("a"))]);
        assert_eq!((n.get(&"a"), n.thing(5), n.len()), (None, None, 2));
        // All others first, and never one that is in use.
        assert_eq!(["d", "e", "f", "b"].map(|t| n.number(t)), [Some(8), Some(5), None, Some(6)]);
    }

    #[test]
    fn restored_numbers_are_not_given_again() {
        let mut n = Numbering::<&str>::new(1, 10);
        assert!(n.restore(4, "d") && n.restore(2, "b"));
        assert!(!n.restore(4, "x") && !n.restore(5, "b") && !n.restore(11, "y"));
        assert_eq!(["b", "new", "d"].map(|t| n.number(t)), [Some(2), Some(5), Some(4)]);
    }
}
