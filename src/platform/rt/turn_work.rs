//! When a task that has much to do lets others run. Pure.

/// The work of a task since it last let others run.
#[derive(Debug)]
pub struct TurnWork {
    limit: usize,
    done: usize,
}

impl TurnWork {
    /// A turn ends with the piece of work that reaches `limit`.
    pub const fn new(limit: usize) -> Self {
        Self { limit, done: 0 }
    }

    /// Counts a piece of work. True if the turn ends with it.
    pub fn ends_with(&mut self, piece: usize) -> bool {
        self.done = self.done.saturating_add(piece);
        let is_over = self.done >= self.limit;
        if is_over {
            self.done = 0;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_ends_with_the_piece_that_reaches_the_limit() {
        let mut turn = TurnWork::new(10);
        let ends = [9, 1, 9, 30, 5, 4, 1, 0].map(|piece| turn.ends_with(piece));
        assert_eq!(ends, [false, true, false, true, false, false, true, false]);
    }
}
