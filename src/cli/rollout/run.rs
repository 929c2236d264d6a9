//! The rounds of a rollout: read, decide, store, write, wait. All it knows is in the cluster, so that a command that is
//! killed anywhere is continued by the next one.

use std::time::Duration;

use super::decide::Figures;
use super::observe::Picture;
use super::report::progress_line;
use super::state::Phase;
use super::store::{self, ApiWrite, Obstacle, Stored};
use crate::cli::fleet::{Operator, eprint_line};
use crate::platform::rt;

pub(super) struct Run<'a> {
    pub(super) operator: &'a mut Operator,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) interval: Duration,
    /// Goes on until the last board that sleeps has its change.
    pub(super) waits: bool,
}

/// How the rounds ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Finished(Figures),
    /// By its owner, or because of what it found. Has the reason.
    Halted(Phase, String),
    /// All that is left sleeps.
    Asleep(Figures),
}

impl Run<'_> {
    pub(super) async fn run(mut self) -> Result<Ending, Obstacle> {
        let mut shown = String::new();
        loop {
            match self.round(&mut shown).await {
                Ok(Some(ending)) => return Ok(ending),
                Ok(None) => rt::sleep(self.interval).await,
                Err(obstacle) if obstacle.passes => {
                    eprint_line(&format!("{}; tried again", obstacle.line));
                    rt::sleep(self.interval).await;
                }
                Err(obstacle) => return Err(obstacle),
            }
        }
    }

    /// Lists everything: a watch would have to be resumed and aged, and a round that begins from nothing is right after
    /// every interruption.
    async fn round(&mut self, shown: &mut String) -> Result<Option<Ending>, Obstacle> {
        let stored = self.stored().await?;
        if !matches!(stored.state.phase, Phase::Running | Phase::Finished) {
            return Ok(Some(Ending::Halted(stored.state.phase, stored.state.reason)));
        }
        let picture = Picture::take(self.operator, self.name, &stored.plan, &stored.state).await?;
        let decision = picture.decide(&stored.plan, &stored.state);
        if decision.state != stored.state {
            match stored.update(self.namespace, &decision.state).send(self.operator).await {
                Ok(_) => {}
                // Another command has written in between: the next round sees it.
                Err(error) if error.is_conflict() => return Ok(None),
                Err(error) => return Err(Obstacle::of("store the state", &error)),
            }
        }
        let line = progress_line(&decision.figures);
        if *shown != line {
            eprint_line(&line);
            *shown = line;
        }
        for write in picture.writes(&stored.plan, &decision.writes) {
            self.carry_out(&write).await?;
        }
        let figures = decision.figures;
        Ok(match decision.state.phase {
            Phase::Finished => Some(Ending::Finished(figures)),
            Phase::Running if figures.waits_for_sleepers && decision.writes.is_empty() && !self.waits => {
                Some(Ending::Asleep(figures))
            }
            Phase::Running => None,
            phase => Some(Ending::Halted(phase, decision.state.reason)),
        })
    }

    async fn stored(&mut self) -> Result<Stored, Obstacle> {
        let stored = store::read(self.operator, self.namespace, self.name).await?;
        stored.ok_or_else(|| Obstacle::lasting(format!("rollout {} not found", self.name)))
    }

    /// A board that has changed meanwhile is seen again in the next round.
    async fn carry_out(&mut self, write: &ApiWrite) -> Result<(), Obstacle> {
        match write.send(self.operator).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
            Err(error) => Err(Obstacle::of(&write.to_string(), &error)),
        }
    }
}
