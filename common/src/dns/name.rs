//! The question's name: validated, lower-cased, hashed and laid out for both name tables in one pass; names
//! elsewhere in a message: checked for validity only.

use super::{Driver, Scratch, Step, WireName};
use crate::ids::ClassId;
use crate::maps::SuffixClasses;

/// Steps for a name: 254 bytes and the root.
pub(super) const NAME_STEPS: u32 = 256;
/// Steps for the labels and pointers of a name.
pub(super) const CHECK_STEPS: u32 = 160;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// The name tables.
pub trait Names {
    /// `NAME_EXACT`.
    fn exact(&self, name: &WireName) -> Option<ClassId>;
    /// `NAME_SUFFIX`: the longest suffix in the table. The key begins at `scratch.rev[start]`, prefix length first.
    fn suffix(&self, scratch: &mut Scratch, start: u32, bits: u32) -> Option<SuffixClasses>;
}

/// Bytes that a policy can name: lower-case letters, digits, hyphen, underscore.
#[inline(always)]
#[must_use]
pub const fn legal(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')
}

/// Class of the question's name; 0 = no policy names it.
#[inline(always)]
pub fn classify<N: Names>(names: &N, scratch: &mut Scratch) -> ClassId {
    if scratch.odd != 0 || scratch.name_len == 0 {
        return 0;
    }
    if let Some(class) = names.exact(&scratch.exact) {
        return class;
    }
    let (start, bits) = scratch.suffix_key();
    match names.suffix(scratch, start, bits) {
        Some(entry) if scratch.labels == entry.labels + 1 => entry.one,
        Some(entry) if scratch.labels > entry.labels => entry.more,
        _ => 0,
    }
}

/// Folds one byte into the question's hash (FNV-1a).
#[inline(always)]
pub(super) const fn fold(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(FNV_PRIME)
}

/// Reads the question at offset 12; false when it is no valid question.
#[inline(always)]
pub(super) fn read_question<D: Driver>(s: &mut Scratch) -> bool {
    D::clear(&mut s.exact);
    s.at = 12;
    s.name_len = 0;
    s.rev_at = 255;
    s.label_left = 0;
    s.labels = 0;
    s.odd = 0;
    s.fault = 1;
    s.question = FNV_OFFSET;
    D::repeat::<QuestionName>(s, NAME_STEPS);
    if s.fault != 0 || s.at + 5 > s.len {
        return false;
    }
    let kind = s.be32(s.at + 1);
    s.qtype = kind >> 16;
    s.question = fold(fold(fold(s.question, (kind >> 24) as u8), (kind >> 16) as u8), kind as u8);
    s.question_end = s.at + 5;
    true
}

/// One byte of the question's name. `fault` is cleared when the root is reached.
struct QuestionName;

impl Step for QuestionName {
    #[inline(always)]
    fn step(s: &mut Scratch) -> bool {
        let at = s.at;
        let len = s.name_len;
        if at >= s.len || len > 253 && s.byte(at) != 0 {
            return false;
        }
        let mut c = s.byte(at);
        let mut text = b'.';
        if s.label_left == 0 {
            if c == 0 {
                s.fault = 0;
                return false;
            }
            if c > 63 {
                return false;
            }
            s.label_left = c as u32;
            s.labels += 1;
        } else {
            s.label_left -= 1;
            if c.wrapping_sub(b'A') < 26 {
                c |= 0x20;
            }
            if !legal(c) {
                s.odd = 1;
            }
            text = c;
        }
        s.exact.0[(len & 255) as usize] = c;
        // Text runs backwards from a fixed place, behind the four bytes of a prefix length.
        s.rev[(4 + (s.rev_at & 255)) as usize] = text;
        s.rev_at = s.rev_at.wrapping_sub(1);
        s.question = fold(s.question, c);
        s.name_len = len + 1;
        s.at = at + 1;
        true
    }
}

/// Checks the name at `at`: labels, pointers to earlier places only, 255 bytes in all. Returns the offset behind
/// it, or 0 when it is invalid. The rules are hickory-proto's: a pointer leads before the piece it ends, and what
/// it leads to must not run into that piece.
#[inline(always)]
pub(super) fn check_name<D: Driver>(s: &mut Scratch, at: u32) -> u32 {
    s.at = at;
    s.name_piece = at;
    s.name_limit = u32::MAX;
    s.name_total = 0;
    s.name_end = 0;
    s.name_done = 0;
    D::repeat::<CheckName>(s, CHECK_STEPS);
    if s.name_done != 0 { s.name_end } else { 0 }
}

/// One label or pointer of a name.
struct CheckName;

impl Step for CheckName {
    #[inline(always)]
    fn step(s: &mut Scratch) -> bool {
        let at = s.at;
        if at >= s.len || at >= s.name_limit {
            return false;
        }
        let c = s.byte(at) as u32;
        if c == 0 {
            if s.name_end == 0 {
                s.name_end = at + 1;
            }
            s.name_done = 1;
            return false;
        }
        if c >= 0xc0 {
            let target = s.be16(at) & 0x3fff;
            if at + 2 > s.len || target >= s.name_piece {
                return false;
            }
            if s.name_end == 0 {
                s.name_end = at + 2;
            }
            s.name_limit = s.name_piece;
            s.name_piece = target;
            s.at = target;
            return true;
        }
        s.name_total += c + 1;
        if c > 63 || s.name_total > 254 {
            return false;
        }
        s.at = at + c + 1;
        true
    }
}
