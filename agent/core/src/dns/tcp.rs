//! DNS messages out of TCP segments as a program saw them pass (RFC 7766 8: two octets of length, then the message).
//!
//! Owns: order, gaps, overlaps, several messages per segment and several segments per message. Bounded per stream and
//! over all streams. Must not know: what a message says.

use std::collections::BTreeMap;

/// Bytes that one stream may hold while it waits for a gap to close: two messages of the largest size.
const STREAM_BYTES: usize = 2 * (u16::MAX as usize + 2);
/// Segments that one stream may hold out of order.
const STREAM_SEGMENTS: usize = 64;
/// A segment so far from where a stream stands belongs to a later connection with the same ports: no window is
/// larger (RFC 7323 2.3).
const ANOTHER_STREAM: u32 = 1 << 30;

/// One direction of one connection.
#[derive(Debug, Clone, Default)]
struct Stream {
    /// Sequence number of the byte after `ready`.
    next: u32,
    /// Bytes in order that make no whole message yet.
    ready: Vec<u8>,
    /// Segments behind a gap.
    waiting: Vec<(u32, Vec<u8>)>,
    /// A message has been taken: the stream's beginning is certain.
    settled: bool,
    /// Bytes are missing that will not come again.
    broken: bool,
    /// When it was last used, in calls.
    used: u64,
}

/// All streams, by a key that names connection and direction.
#[derive(Debug, Clone)]
pub struct Reassembly<K> {
    streams: BTreeMap<K, Stream>,
    capacity: usize,
    clock: u64,
    lost: u64,
}

impl<K: Ord + Clone> Reassembly<K> {
    /// Holds at most `capacity` streams; the one unused for longest makes room.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { streams: BTreeMap::new(), capacity: capacity.max(1), clock: 0, lost: 0 }
    }

    /// Takes a segment: sequence number of its first byte, and its payload. `whole` is false if the payload was cut
    /// when it was copied: then the stream cannot be followed any further. Returns the messages that are complete
    /// now, without their length.
    pub fn push(&mut self, key: &K, seq: u32, payload: &[u8], whole: bool) -> Vec<Vec<u8>> {
        self.clock += 1;
        let another = |s: &Stream| ahead(seq, s.next).unsigned_abs() > ANOTHER_STREAM;
        if self.streams.get(key).is_none_or(another) {
            self.streams.remove(key);
            self.make_room();
            self.streams.insert(key.clone(), Stream { next: seq, ..Stream::default() });
        }
        let Some(stream) = self.streams.get_mut(key) else { return Vec::new() };
        stream.used = self.clock;
        let was_broken = stream.broken;
        let messages = stream.push(seq, payload);
        stream.broken |= !whole;
        if stream.broken && !was_broken {
            stream.ready = Vec::new();
            stream.waiting = Vec::new();
            self.lost += 1;
        }
        messages
    }

    /// The connection has ended.
    pub fn end(&mut self, key: &K) {
        self.streams.remove(key);
    }

    /// Streams given up before their end: too many at once, too large a gap, or a segment that was cut.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn make_room(&mut self) {
        if self.streams.len() < self.capacity {
            return;
        }
        let oldest = self.streams.iter().min_by_key(|(_, s)| s.used).map(|(key, _)| key.clone());
        if let Some(stream) = oldest.and_then(|key| self.streams.remove(&key)) {
            self.lost += u64::from(!stream.broken && stream.held() > 0);
        }
    }
}

impl Stream {
    fn push(&mut self, seq: u32, payload: &[u8]) -> Vec<Vec<u8>> {
        if self.broken || payload.is_empty() {
            return Vec::new();
        }
        self.begin_earlier(seq);
        self.waiting.push((seq, payload.to_vec()));
        while let Some(at) = self.waiting.iter().position(|(seq, _)| ahead(*seq, self.next) <= 0) {
            let (seq, payload) = self.waiting.swap_remove(at);
            let known = self.next.wrapping_sub(seq) as usize;
            if let Some(fresh) = payload.get(known..) {
                self.ready.extend_from_slice(fresh);
                self.next = self.next.wrapping_add(fresh.len() as u32);
            }
        }
        let messages = self.take_messages();
        self.broken = self.held() > STREAM_BYTES || self.waiting.len() > STREAM_SEGMENTS;
        messages
    }

    /// Bytes that wait for more.
    fn held(&self) -> usize {
        self.ready.len() + self.waiting.iter().map(|(_, p)| p.len()).sum::<usize>()
    }

    /// Until a message was taken, a segment may turn out to stand before the first one seen.
    fn begin_earlier(&mut self, seq: u32) {
        let begin = self.next.wrapping_sub(self.ready.len() as u32);
        if !self.settled && ahead(seq, begin) < 0 {
            let ready = std::mem::take(&mut self.ready);
            if !ready.is_empty() {
                self.waiting.push((begin, ready));
            }
            self.next = seq;
        }
    }

    fn take_messages(&mut self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while let [high, low, rest @ ..] = self.ready.as_slice() {
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            let Some(message) = rest.get(..len) else { break };
            messages.push(message.to_vec());
            self.ready.drain(..len + 2);
            self.settled = true;
        }
        messages
    }
}

/// How far `seq` lies behind `from` in the stream; negative if before it (RFC 9293 3.4: modulo 2^32).
fn ahead(seq: u32, from: u32) -> i32 {
    seq.wrapping_sub(from) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        messages.iter().flat_map(|m| [&(m.len() as u16).to_be_bytes()[..], m].concat()).collect()
    }

    fn check(segments: &[(u32, &[u8])], want: &[&[u8]]) {
        let mut r = Reassembly::new(4);
        let got: Vec<_> = segments.iter().flat_map(|(seq, p)| r.push(&1, *seq, p, true)).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn w_a08_segments_and_messages() {
        check(&[(0, b"\0\x02hi")], &[b"hi"]);
        check(&[(0, b"\0\x02hi\0\x01x")], &[b"hi", b"x"]);
        check(&[(0, b"\0"), (1, b"\x02h"), (3, b"i\0"), (5, b"\x01x")], &[b"hi", b"x"]);
        check(&[(2, b"hi"), (0, b"\0\x02")], &[b"hi"]);
        check(&[(0, b"\0\x02h"), (0, b"\0\x02hi"), (2, b"hi")], &[b"hi"]);
        check(&[(0, b"\0\x02h"), (4, b"\0\x01x"), (3, b"i")], &[b"hi", b"x"]);
        check(&[(u32::MAX, b"\0\x02hi\0\x01"), (5, b"x")], &[b"hi", b"x"]);
        check(&[(0, b"\0\0\0\x01x")], &[b"", b"x"]);
    }

    #[test]
    fn l_a03_streams_are_bounded() {
        let mut r = Reassembly::new(2);
        for seq in 0..1000u32 {
            assert_eq!(r.push(&1, 10 + seq * 2, b"x", true), Vec::<Vec<u8>>::new());
        }
        assert_eq!(r.lost(), 1);
        assert!(r.streams[&1].waiting.is_empty() && r.streams[&1].ready.is_empty());
        r.push(&2, 0, b"\0\x05a", true);
        r.push(&3, 0, b"\0\x05a", true);
        assert_eq!((r.streams.len(), r.lost()), (2, 1), "the broken stream made room");
        r.push(&4, 0, b"\0\x05a", true);
        assert_eq!((r.streams.len(), r.lost()), (2, 2));
        r.push(&4, 3, b"bc", false);
        assert_eq!((r.push(&4, 5, b"de", true), r.lost()), (vec![], 3));
    }

    #[test]
    fn ports_that_are_used_again_begin_another_stream() {
        check(&[(0, b"\0\x05ab"), (2_000_000_000, b"\0\x02hi")], &[b"hi"]);
    }

    proptest! {
        #[test]
        fn w_a07_any_cut_any_order(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 1..6),
            cuts in proptest::collection::vec(1usize..40, 1..40),
            start in any::<u32>(),
            swaps in proptest::collection::vec((0usize..60, 0usize..4), 0..20),
        ) {
            let bytes = framed(&messages);
            let (mut segments, mut at) = (Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                if at == bytes.len() { break }
                let end = (at + cut).min(bytes.len());
                segments.push((start.wrapping_add(at as u32), &bytes[at..end]));
                at = end;
            }
            // The first stays first: a stream is seen from its beginning.
            for (i, by) in swaps {
                let (i, j) = (1 + i % segments.len(), 1 + i % segments.len() + by);
                if j < segments.len() { segments.swap(i, j) }
            }
            let mut r = Reassembly::new(1);
            let mut got = Vec::new();
            for (seq, payload) in &segments {
                got.extend(r.push(&0, *seq, payload, true));
                got.extend(r.push(&0, *seq, payload, true));
            }
            prop_assert_eq!(got, messages);
            prop_assert_eq!(r.lost(), 0);
        }
    }
}
