//! The ring buffers, decoded. Records come from programs, but a reader that trusts sizes is one bug away from
//! reading foreign memory: whatever does not fit is passed over.

use std::{
    marker::PhantomData,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

use aya::maps::{MapData, RingBuf};
use egret_common::{
    event::{DnsEvent, FlowEvent},
    net::Addr,
};

use super::Datapath;

/// A DNS message that passed, with what the kernel made of it.
#[derive(Debug, Clone, Copy)]
pub struct DnsRecord<'a> {
    /// The head; its `len` is the payload's length.
    pub event: DnsEvent,
    /// The message, or with `DNS_SEGMENT` a piece of a stream.
    pub payload: &'a [u8],
}

/// What a ring holds.
pub trait Record {
    /// A decoded record.
    type Item<'a>;

    /// Decodes one; `None` when it is not whole.
    fn decode(bytes: &[u8]) -> Option<Self::Item<'_>>;
}

impl Record for DnsRecord<'static> {
    type Item<'a> = DnsRecord<'a>;

    fn decode(bytes: &[u8]) -> Option<DnsRecord<'_>> {
        let mut reader = Reader(bytes);
        let event = reader.dns_event()?;
        let payload = reader.0.get(..event.len as usize)?;
        Some(DnsRecord { event, payload })
    }
}

impl Record for FlowEvent {
    type Item<'a> = FlowEvent;

    fn decode(bytes: &[u8]) -> Option<FlowEvent> {
        Reader(bytes).flow_event()
    }
}

/// The consumer's end of a ring buffer. The file descriptor becomes readable only for urgent records: drain by a
/// timer as well, and always to the end.
pub struct Ring<R> {
    buffer: RingBuf<MapData>,
    record: PhantomData<R>,
}

impl<R> std::fmt::Debug for Ring<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("fd", &self.buffer.as_raw_fd()).finish_non_exhaustive()
    }
}

impl<R: Record> Ring<R> {
    fn new(buffer: RingBuf<MapData>) -> Self {
        Self { buffer, record: PhantomData }
    }

    /// Hands every waiting record to `handle`. Returns how many there were, odd ones included.
    pub fn drain(&mut self, mut handle: impl FnMut(R::Item<'_>)) -> usize {
        let mut count = 0;
        while let Some(item) = self.buffer.next() {
            count += 1;
            if let Some(record) = R::decode(&item) {
                handle(record);
            }
        }
        count
    }
}

impl<R> AsFd for Ring<R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.buffer.as_fd()
    }
}

impl<R> AsRawFd for Ring<R> {
    fn as_raw_fd(&self) -> RawFd {
        self.buffer.as_raw_fd()
    }
}

impl Datapath {
    /// The consumer of `DNS_EVENTS`.
    ///
    /// # Panics
    /// When it was taken before: a ring has one consumer.
    pub fn take_dns_ring(&mut self) -> Ring<DnsRecord<'static>> {
        Ring::new(self.dns_ring.take().expect("the DNS ring is taken once"))
    }

    /// The consumer of `FLOW_EVENTS`.
    ///
    /// # Panics
    /// When it was taken before: a ring has one consumer.
    pub fn take_flow_ring(&mut self) -> Ring<FlowEvent> {
        Ring::new(self.flow_ring.take().expect("the flow ring is taken once"))
    }
}

/// Fields of a record, in their order.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_ne_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn addr(&mut self) -> Option<Addr> {
        self.take().map(Addr::from_octets)
    }

    fn dns_event(&mut self) -> Option<DnsEvent> {
        Some(DnsEvent {
            time: self.u64()?,
            local: self.addr()?,
            remote: self.addr()?,
            question: self.u64()?,
            endpoint: self.u32()?,
            seq: self.u32()?,
            len: self.u32()?,
            full_len: self.u32()?,
            class: self.u32()?,
            pid: self.u32()?,
            local_port: self.u16()?,
            remote_port: self.u16()?,
            proto: self.u8()?,
            direction: self.u8()?,
            flags: self.u8()?,
            granted: self.u8()?,
            comm: self.take()?,
        })
    }

    fn flow_event(&mut self) -> Option<FlowEvent> {
        Some(FlowEvent {
            time: self.u64()?,
            local: self.addr()?,
            remote: self.addr()?,
            endpoint: self.u32()?,
            set: self.u32()?,
            class: self.u32()?,
            cookie: self.u32()?,
            age: self.u32()?,
            pid: self.u32()?,
            len: self.u32()?,
            local_port: self.u16()?,
            remote_port: self.u16()?,
            proto: self.u8()?,
            direction: self.u8()?,
            verdict: self.u8()?,
            reason: self.u8()?,
            tcp_flags: self.u32()?,
            comm: self.take()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_any_size_are_decoded_or_passed_over() {
        let mut bytes = vec![0u8; 96];
        bytes[56..60].copy_from_slice(&7u32.to_ne_bytes());
        for len in 0..96 {
            assert!(FlowEvent::decode(&bytes[..len]).is_none(), "{len}");
            assert!(DnsRecord::decode(&bytes[..len]).is_none(), "{len}");
        }
        assert!(FlowEvent::decode(&bytes).is_some());
        assert!(DnsRecord::decode(&bytes).is_none(), "seven bytes are announced");
        bytes.extend(b"payload-and-padding");
        assert_eq!(DnsRecord::decode(&bytes).map(|r| r.payload), Some(&b"payload"[..]));
    }
}
