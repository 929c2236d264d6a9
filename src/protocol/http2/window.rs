//! Flow-control windows (RFC 9113 section 5.2), each way. Pure.

use super::limits;

/// How much may be sent. Negative after the peer has lowered its initial window below what was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWindow(i64);

/// The window would exceed 2^31-1.
#[derive(Debug)]
pub(super) struct Overflow;

impl SendWindow {
    pub(super) const MAX_WINDOW_BYTES: u32 = 0x7fff_ffff;

    pub(super) fn new(size: u32) -> Self {
        Self(i64::from(size))
    }

    pub(super) fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or_default()
    }

    pub(super) fn spend(&mut self, len: u32) {
        self.0 -= i64::from(len);
    }

    pub(super) fn widen(&mut self, by: i64) -> Result<(), Overflow> {
        let wider = self.0.saturating_add(by);
        if wider > i64::from(Self::MAX_WINDOW_BYTES) {
            return Err(Overflow);
        }
        self.0 = wider;
        Ok(())
    }
}

/// How much may still arrive, and how much was consumed without a WINDOW_UPDATE yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveWindow {
    open: u32,
    consumed: u32,
}

impl ReceiveWindow {
    pub(super) fn new() -> Self {
        Self { open: limits::RECEIVE_WINDOW_BYTES, consumed: 0 }
    }

    pub(super) fn take(&mut self, len: u32) -> Result<(), Overflow> {
        self.open = self.open.checked_sub(len).ok_or(Overflow)?;
        Ok(())
    }

    /// Returns consumed bytes to the window. Returns the increment for a WINDOW_UPDATE once it is worth a frame.
    pub(super) fn consume(&mut self, len: u32) -> Option<u32> {
        // Never more than was received, whatever the caller says.
        let missing = limits::RECEIVE_WINDOW_BYTES - self.open;
        self.consumed = self.consumed.saturating_add(len).min(missing);
        if self.consumed < limits::RECEIVE_WINDOW_BYTES / 2 {
            return None;
        }
        let increment = std::mem::take(&mut self.consumed);
        self.open += increment;
        Some(increment)
    }
}
