use super::super::plan::plan;
use super::super::state::State;
use super::*;

fn sight(name: &str, progress: Progress) -> Sight {
    Sight { name: name.to_owned(), is_awake: true, is_unavailable: false, progress }
}

fn asleep(name: &str, progress: Progress) -> Sight {
    Sight { is_awake: false, ..sight(name, progress) }
}

fn fleet(size: usize) -> Vec<Sight> {
    (0..size).map(|at| sight(&format!("b{at}"), Progress::Absent)).collect()
}

fn state(turns: &[(&str, Turn)]) -> State {
    let boards = turns.iter().map(|(name, turn)| ((*name).to_owned(), turn.clone())).collect();
    State { boards, ..State::new() }
}

#[test]
fn step_takes_no_more_boards_than_its_target_and_may_be_unavailable() {
    for (first, max_unavailable, taken) in [(5, "100%", 5), (5, "2", 2), (20, "10%", 1)] {
        let decision = decide(&plan(first, "100%", max_unavailable), &State::new(), &fleet(10), 7);
        assert_eq!(decision.writes.len(), taken, "{first} {max_unavailable}");
        assert!(decision.state.boards.values().all(|turn| *turn == Turn::Changing(Some(7))));
        assert_eq!(decision.writes[0], "b0", "in the order of the boards");
    }
}

#[test]
fn next_step_begins_when_the_boards_of_the_former_are_done() {
    let plan = plan(2, "50%,100%", "100%");
    let mut boards = fleet(10);
    let mut taken = Vec::new();
    let mut state = State::new();
    for _ in 0..5 {
        let decision = decide(&plan, &state, &boards, 0);
        taken.push(decision.writes.len());
        state = decision.state;
        for board in boards.iter_mut().filter(|board| decision.writes.contains(&board.name)) {
            board.progress = Progress::Healthy;
        }
    }
    assert_eq!((taken.as_slice(), state.phase), (&[2, 3, 5, 0, 0][..], Phase::Finished));
}

#[test]
fn sleeping_board_is_pending_and_another_is_taken() {
    let boards = [asleep("b0", Progress::Absent), sight("b1", Progress::Absent)];
    let decision = decide(&plan(1, "100%", "100%"), &State::new(), &boards, 0);
    assert_eq!(decision.writes, ["b1"]);
    let boards = [asleep("b0", Progress::Absent), sight("b1", Progress::Healthy)];
    let decision = decide(&plan(1, "100%", "100%"), &decision.state, &boards, 0);
    assert_eq!((decision.state.phase, decision.writes.len()), (Phase::Running, 0));
    assert!(decision.figures.waits_for_sleepers);
    assert_eq!((decision.figures.done, decision.figures.asleep), (1, 1));
    // A day later it wakes.
    let boards = [sight("b0", Progress::Absent), sight("b1", Progress::Healthy)];
    assert_eq!(decide(&plan(1, "100%", "100%"), &decision.state, &boards, 86_400).writes, ["b0"]);
}

#[test]
fn sleepers_are_changed_ahead_only_in_the_last_step_when_nothing_else_is_left() {
    let ahead = Plan { is_ahead: true, ..plan(1, "50%,100%", "100%") };
    let boards = |others: Progress| {
        [
            asleep("b0", Progress::Absent),
            sight("b1", others.clone()),
            sight("b2", others),
            asleep("b3", Progress::Absent),
        ]
    };
    let turns = [("b1", Turn::Done), ("b2", Turn::Changing(Some(0)))];
    assert_eq!(decide(&ahead, &state(&turns), &boards(Progress::Written), 1).writes, Vec::<String>::new());
    let done = state(&[("b1", Turn::Done), ("b2", Turn::Done)]);
    let decision = decide(&ahead, &done, &boards(Progress::Healthy), 1);
    assert_eq!(decision.writes, ["b0", "b3"]);
    assert_eq!(decision.state.boards["b0"], Turn::Ahead);
    // Without the choice they are left alone.
    let decision = decide(&plan(1, "50%,100%", "100%"), &done, &boards(Progress::Healthy), 1);
    assert_eq!(decision.writes, Vec::<String>::new());
}

#[test]
fn board_that_sleeps_with_its_change_keeps_its_place_and_its_time() {
    let plan = plan(2, "100%", "1");
    let boards = [asleep("b0", Progress::Written), sight("b1", Progress::Absent)];
    let decision = decide(&plan, &state(&[("b0", Turn::Changing(Some(0)))]), &boards, 10_000);
    assert_eq!((&decision.state.boards["b0"], decision.writes.len()), (&Turn::Changing(None), 0));
    assert!(!decision.figures.waits_for_sleepers, "there is a place in the step");
    let one = decide(&Plan { first: 1, ..plan.clone() }, &decision.state, &boards, 10_000);
    assert!(one.figures.waits_for_sleepers, "the only place of the step is that of the sleeping board");
    let boards = [sight("b0", Progress::Written), sight("b1", Progress::Absent)];
    let decision = decide(&plan, &decision.state, &boards, 20_000);
    assert_eq!(decision.state.boards["b0"], Turn::Changing(Some(20_000)), "its time begins when it wakes");
}

#[test]
fn rejected_and_late_boards_stop_the_rollout() {
    let plan = plan(3, "100%", "100%");
    let turns = state(&[("b0", Turn::Changing(Some(0)))]);
    let late = [sight("b0", Progress::Written), sight("b1", Progress::Absent)];
    assert_eq!(decide(&plan, &turns, &late, 600).state.phase, Phase::Running);
    let decision = decide(&plan, &turns, &late, 601);
    assert_eq!((decision.state.phase, decision.writes.len()), (Phase::Stopped, 0));
    assert_eq!(decision.state.reason, "1 board failed, as b0: not healthy within 600 s");
    let rejected = [sight("b0", Progress::Rejected("x".to_owned())), sight("b1", Progress::Absent)];
    let decision = decide(&plan, &turns, &rejected, 1);
    assert_eq!(decision.state.reason, "1 board failed, as b0: x");
    let tolerant = Plan { stop_after: 2, ..plan };
    let decision = decide(&tolerant, &turns, &rejected, 1);
    assert_eq!((decision.state.phase, decision.writes), (Phase::Running, vec!["b1".to_owned()]));
    assert_eq!(decision.state.boards["b0"], Turn::Failed("x".to_owned()));
}

#[test]
fn failed_board_that_recovers_is_done_and_done_ones_may_fail_later() {
    let plan = Plan { stop_after: 9, ..plan(1, "100%", "1") };
    let turns = state(&[("b0", Turn::Failed("x".to_owned())), ("b1", Turn::Done)]);
    let boards = [sight("b0", Progress::Healthy), sight("b1", Progress::Rejected("y".to_owned()))];
    let state = decide(&plan, &turns, &boards, 1).state;
    assert_eq!((&state.boards["b0"], &state.boards["b1"]), (&Turn::Done, &Turn::Failed("y".to_owned())));
}

#[test]
fn boards_that_are_down_anyway_take_no_place_of_others() {
    let mut boards = fleet(3);
    boards[2].is_unavailable = true;
    let decision = decide(&plan(3, "100%", "1"), &State::new(), &boards, 0);
    assert_eq!(decision.writes, ["b2"], "the one place is its own");
    boards[2].progress = Progress::Healthy;
    boards[2].is_unavailable = false;
    assert_eq!(decide(&plan(3, "100%", "1"), &decision.state, &boards, 0).writes, ["b0"]);
}

#[test]
fn only_a_running_rollout_writes_and_a_killed_one_repeats_its_writes() {
    let boards = fleet(2);
    let chosen = decide(&plan(1, "100%", "1"), &State::new(), &boards, 0).state;
    for (phase, _) in Phase::ALL {
        let state = State { phase, ..chosen.clone() };
        let writes = decide(&plan(1, "100%", "1"), &state, &boards, 1).writes;
        assert_eq!(writes.len(), usize::from(phase == Phase::Running), "{phase:?}");
    }
}

#[test]
fn rollout_without_boards_stops_instead_of_finishing() {
    assert_eq!(decide(&plan(1, "100%", "1"), &State::new(), &[], 0).state.phase, Phase::Stopped);
}

#[test]
fn board_that_left_the_fleet_is_forgotten() {
    let turns = state(&[("b0", Turn::Done), ("gone", Turn::Failed("x".to_owned()))]);
    let decision = decide(&plan(1, "100%", "1"), &turns, &[sight("b0", Progress::Healthy)], 0);
    assert_eq!((decision.state.boards.len(), decision.state.phase), (1, Phase::Finished));
}

/// Boards that sleep, wake, take the change, and fail; commands that are killed at any write; a server that refuses
/// writes from an old read.
mod simulated {
    use std::collections::HashMap;

    use super::*;

    /// xorshift64*.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
        }
    }

    #[derive(Clone, Debug)]
    struct SimulatedBoard {
        is_awake: bool,
        progress: Progress,
        is_bad: bool,
        was_written_ahead: bool,
    }

    struct World {
        plan: Plan,
        /// The ConfigMap, and its resource version.
        stored: State,
        version: u64,
        boards: HashMap<String, SimulatedBoard>,
        now: i64,
    }

    /// What a command has read.
    struct Command {
        version: u64,
        read: State,
        decision: Decision,
    }

    impl World {
        fn new(dice: &mut Dice, size: u64, bad: u64) -> Self {
            let first = 1 + dice.roll(4);
            let unavailable = (1 + dice.roll(4)).to_string();
            let plan = Plan { is_ahead: dice.roll(2) == 0, ..plan(first, "20%,60%,100%", &unavailable) };
            let within = std::time::Duration::from_secs(1_000_000);
            let plan = Plan { stop_after: 1 + dice.roll(3), within, ..plan };
            let boards = (0..size).map(|at| {
                let is_bad = dice.roll(100) < bad;
                let is_awake = dice.roll(3) > 0;
                let board = SimulatedBoard { is_awake, progress: Progress::Absent, is_bad, was_written_ahead: false };
                (format!("b{at:03}"), board)
            });
            let boards = boards.collect();
            Self { plan, stored: State::new(), version: 1, boards, now: 0 }
        }

        fn sights(&self) -> Vec<Sight> {
            let mut sights: Vec<Sight> = self
                .boards
                .iter()
                .map(|(name, board)| Sight {
                    name: name.clone(),
                    is_awake: board.is_awake,
                    is_unavailable: matches!(board.progress, Progress::Written | Progress::Rejected(_)),
                    progress: board.progress.clone(),
                })
                .collect();
            sights.sort_by(|a, b| a.name.cmp(&b.name));
            sights
        }

        fn read(&self) -> Command {
            let decision = decide(&self.plan, &self.stored, &self.sights(), self.now);
            Command { version: self.version, read: self.stored.clone(), decision }
        }

        /// Stores and writes; the command may be killed before each of them.
        fn act(&mut self, command: &Command, dice: &mut Dice, kills: u64) {
            if dice.roll(100) < kills {
                return;
            }
            if command.decision.state != command.read {
                if command.version != self.version {
                    return;
                }
                self.stored = command.decision.state.clone();
                self.version += 1;
            }
            for name in &command.decision.writes {
                if dice.roll(100) < kills {
                    return;
                }
                let board = self.boards.get_mut(name).unwrap();
                // The preconditions of the request.
                if board.progress == Progress::Absent {
                    assert!(self.stored.boards.contains_key(name), "{name} was written before it was stored");
                    // It may fall asleep between the read and the write.
                    board.was_written_ahead = command.decision.state.boards[name] == Turn::Ahead;
                    board.progress = Progress::Written;
                }
            }
        }

        fn live(&mut self, dice: &mut Dice, sleeps: u64) {
            self.now += 60;
            for board in self.boards.values_mut() {
                if dice.roll(100) < sleeps {
                    board.is_awake = !board.is_awake;
                }
                if board.is_awake && board.progress == Progress::Written && dice.roll(3) == 0 {
                    board.progress =
                        if board.is_bad { Progress::Rejected("bad".to_owned()) } else { Progress::Healthy };
                }
            }
        }

        fn check(&self) {
            let total = count(self.boards.len());
            let written = self.boards.values().filter(|board| board.progress != Progress::Absent);
            let under_way =
                written.clone().filter(|board| board.progress == Progress::Written && !board.was_written_ahead);
            let most = self.plan.max_unavailable(total);
            assert!(count(under_way.count()) <= most, "more than {most} change at once");
            // Each step waits for the one before it.
            let concluded = self.stored.count(is_concluded);
            let targets = self.plan.targets(total);
            let target = targets.iter().find(|target| **target > concluded).or(targets.last()).copied().unwrap();
            assert!(count(written.clone().count()) <= target.max(concluded), "more than the step's {target}");
            assert!(
                self.plan.is_ahead || written.clone().all(|board| !board.was_written_ahead),
                "a sleeper was changed"
            );
        }
    }

    fn run(seed: u64, bad: u64) -> World {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let size = 1 + dice.roll(40);
        let mut world = World::new(&mut dice, size, bad);
        // Two operators; each may read, be slow, and act on what it has read.
        let mut commands: [Option<Command>; 2] = [None, None];
        for _ in 0..400 {
            for command in &mut commands {
                match command.take() {
                    None => *command = Some(world.read()),
                    Some(read) if dice.roll(2) == 0 => *command = Some(read),
                    Some(read) => world.act(&read, &mut dice, 10),
                }
                world.check();
            }
            world.live(&mut dice, 5);
        }
        world
    }

    #[test]
    fn fleet_without_bad_boards_is_done_once_all_have_woken() {
        for seed in 0..300 {
            let mut world = run(seed, 0);
            // Everybody wakes, and one command runs.
            let mut dice = Dice(seed | 1);
            for _ in 0..2000 {
                if world.stored.phase == Phase::Finished {
                    break;
                }
                world.boards.values_mut().for_each(|board| board.is_awake = true);
                let command = world.read();
                world.act(&command, &mut dice, 0);
                world.live(&mut dice, 0);
                world.check();
            }
            assert_eq!(world.stored.phase, Phase::Finished, "seed {seed}: {:?}", world.stored);
            assert!(world.boards.values().all(|board| board.progress == Progress::Healthy), "seed {seed}");
        }
    }

    #[test]
    fn bad_change_reaches_no_more_boards_than_may_fail_and_change_at_once() {
        for seed in 0..300 {
            let world = run(seed, 100);
            let total = count(world.boards.len());
            let most = world.plan.stop_after - 1 + world.plan.max_unavailable(total);
            let written = world.boards.values().filter(|board| board.progress != Progress::Absent);
            let reached = count(written.filter(|board| !board.was_written_ahead).count());
            assert!(reached <= most, "seed {seed}: {reached} of {most}");
        }
    }
}
