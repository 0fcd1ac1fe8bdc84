//! The way from one desk to the store: requests and answers get lost, or hang.

use std::collections::VecDeque;
use std::sync::Mutex;

use frontdesk_core::port::store::{StoreError, Stored};
use tokio::sync::oneshot;

use super::book::Book;
use crate::world::dice::Dice;

/// How often each fault happens, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Weather {
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) hang: u64,
}

impl Weather {
    pub(super) const CALM: Self = Self { before: 0, after: 0, hang: 0 };
    pub(super) const ROUGH: Self = Self { before: 8, after: 8, hang: 6 };
    pub(super) const CUT: Self = Self { before: 70, after: 10, hang: 20 };
}

enum Fate {
    Answered,
    /// Nothing was written.
    NotSent,
    /// Written; the answer is lost.
    AnswerLost,
    /// It reaches the store when it is released, also if its caller is gone.
    Late,
    /// Written now; the answer comes when it is released.
    AnswerLate,
}

type Release = Box<dyn FnOnce() + Send>;

struct State {
    dice: Dice,
    weather: Weather,
    /// Those that hang, oldest first.
    hanging: VecDeque<(&'static str, Release)>,
}

pub(super) struct Link {
    pub(super) name: String,
    book: Book,
    state: Mutex<State>,
}

impl Link {
    pub(super) fn new(name: String, book: Book, dice: Dice) -> Self {
        let state = State { dice, weather: Weather::CALM, hanging: VecDeque::new() };
        Self { name, book, state: Mutex::new(state) }
    }

    pub(super) fn set_weather(&self, weather: Weather) {
        self.state.lock().unwrap().weather = weather;
    }

    pub(super) fn hanging(&self) -> usize {
        self.state.lock().unwrap().hanging.len()
    }

    /// The oldest call that hangs continues, or is lost.
    pub(super) fn release(&self, is_lost: bool) {
        let Some((verb, release)) = self.state.lock().unwrap().hanging.pop_front() else { return };
        self.book.say(format!("{} {verb} {}", self.name, if is_lost { "is cut" } else { "goes on" }));
        if !is_lost {
            release();
        }
    }

    pub(super) fn throw(&self, percent: u64) -> bool {
        self.state.lock().unwrap().dice.chance(percent)
    }

    fn fate(&self) -> Fate {
        let mut state = self.state.lock().unwrap();
        let Weather { before, after, hang } = state.weather;
        match state.dice.throw() % 100 {
            throw if throw < before => Fate::NotSent,
            throw if throw < before + after => Fate::AnswerLost,
            throw if throw < before + after + hang => match state.dice.chance(50) {
                true => Fate::Late,
                false => Fate::AnswerLate,
            },
            _ => Fate::Answered,
        }
    }

    fn hang(&self, verb: &'static str, release: Release) {
        self.book.say(format!("{} {verb} hangs", self.name));
        self.state.lock().unwrap().hanging.push_back((verb, release));
    }

    /// Asks the store. `ask` is carried out where it reaches the store, `take_answer` where the answer reaches the desk.
    pub(super) fn pass<'a, Q, T>(
        &'a self,
        verb: &'static str,
        ask: impl FnOnce() -> Result<Q, StoreError> + Send + 'static,
        take_answer: impl FnOnce(Q) -> T + Send + 'static,
    ) -> Stored<'a, T>
    where
        Q: Send + 'static,
        T: Send + 'static,
    {
        Box::pin(async move {
            let lost = || StoreError::Unknown("the answer was lost".into());
            match self.fate() {
                Fate::Answered => ask().map(take_answer),
                Fate::NotSent => {
                    self.book.say(format!("{} {verb} fails", self.name));
                    Err(StoreError::Unavailable("no connection".into()))
                }
                Fate::AnswerLost => {
                    self.book.say(format!("{} {verb} is not answered", self.name));
                    drop(ask());
                    Err(lost())
                }
                Fate::Late => {
                    let (done, answer) = oneshot::channel();
                    // A desk changes its memory also if the caller is gone.
                    self.hang(verb, Box::new(move || drop(done.send(ask().map(take_answer)))));
                    answer.await.unwrap_or_else(|_| Err(lost()))
                }
                Fate::AnswerLate => {
                    let (answered, (done, answer)) = (ask(), oneshot::channel());
                    self.hang(verb, Box::new(move || drop(done.send(answered.map(take_answer)))));
                    answer.await.unwrap_or_else(|_| Err(lost()))
                }
            }
        })
    }
}
