//! Random messages for tests.

use super::{Message, OpenEnum, Slot};

/// A splitmix64 generator: the same seed gives the same messages on every machine.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A number of random bit length, possibly negative.
    fn number(&mut self) -> i64 {
        let bits = self.below(65);
        let value = if bits == 0 { 0 } else { self.next() >> (64 - bits) };
        i64::from_le_bytes(value.to_le_bytes())
    }

    fn short_number(&mut self) -> i32 {
        let number = self.number();
        i32::try_from(number).unwrap_or_else(|_| i32::try_from(number >> 33).unwrap())
    }

    fn text(&mut self) -> String {
        let longest = if self.below(10) == 0 { 300 } else { 12 };
        let length = self.below(longest);
        (0..length).filter_map(|_| "aZ0/\"\\\né語🛶".chars().nth(self.below(10).try_into().unwrap())).collect()
    }

    /// Sets a random selection of the fields of `message`.
    pub(crate) fn fill(&mut self, message: &mut dyn Message, depth: u32) {
        for (number, _) in message.fields() {
            // Lists get up to three entries; in other fields the last value wins.
            for _ in 0..self.below(4) {
                self.fill_slot(message.slot(*number).unwrap(), depth);
            }
        }
    }

    fn fill_slot(&mut self, slot: Slot<'_>, depth: u32) {
        match slot {
            Slot::Bool(target) => *target = self.below(2) == 1,
            Slot::I32(target) => *target = self.short_number(),
            Slot::I64(target) | Slot::WrappedI64(target) => *target = self.number(),
            Slot::U32(target) => *target = self.short_number().unsigned_abs(),
            Slot::U64(target) | Slot::WrappedU64(target) => *target = self.number().unsigned_abs(),
            Slot::F64(target) => *target = f64::from(self.short_number()) / 8.0,
            Slot::Enum(target) => self.fill_enum(target),
            Slot::String(target) => *target = self.text(),
            Slot::Bytes(target) => *target = self.text().into_bytes(),
            Slot::Message(target) if depth > 0 => self.fill(target, depth - 1),
            Slot::Message(_) => {}
            Slot::I32s(target) => target.push(self.short_number()),
            Slot::I64s(target) => target.push(self.number()),
            Slot::Map(target) => drop(target.insert(self.text(), self.text())),
        }
    }

    /// Mostly numbers that have names.
    fn fill_enum(&mut self, target: &mut dyn OpenEnum) {
        let number = if self.below(8) == 0 { self.short_number() } else { self.below(4).try_into().unwrap() };
        target.set_number(number);
    }
}
