//! Who is there to hear: open streams of agents, by inbox. A stream reads its letters from the store; here
//! it is only rung, and says how far it has handed them over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::handed::Handed;

/// Open streams of one agent; each is rung for every letter.
pub const SEATS_MAX: usize = 256;

/// One open stream.
pub struct Seat {
    agent: u64,
    /// The session that it is, if it has a name.
    pub session: Option<String>,
    /// Later ones are higher, across streams and sockets.
    pub order: u64,
    pub bell: Notify,
    /// Letters that were handed to its socket.
    pub handed: Handed,
}

impl Seat {
    /// What is for the agent as a whole, or for this session; a stream without a name hears everything.
    pub fn hears(&self, session: Option<&str>) -> bool {
        match (&self.session, session) {
            (Some(own), Some(meant)) => own == meant,
            _ => true,
        }
    }
}

#[derive(Default)]
struct Room {
    seats: Vec<Arc<Seat>>,
    /// The last time something was said to, or by, the agent here.
    traffic_ms: u64,
}

#[derive(Default)]
pub struct Attendance {
    rooms: Mutex<HashMap<u64, Room>>,
}

impl Attendance {
    fn rooms(&self) -> MutexGuard<'_, HashMap<u64, Room>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: as many streams as an agent may have are open.
    pub fn sit_down(&self, agent: u64, session: Option<String>, order: u64, now_ms: u64) -> Option<Arc<Seat>> {
        let seat = Arc::new(Seat { agent, session, order, bell: Notify::new(), handed: Handed::default() });
        let mut rooms = self.rooms();
        let room = rooms.entry(agent).or_default();
        if room.seats.len() >= SEATS_MAX {
            return None;
        }
        room.seats.push(seat.clone());
        room.traffic_ms = now_ms;
        Some(seat)
    }

    pub fn leave(&self, seat: &Seat) {
        seat.handed.end();
        if let Some(room) = self.rooms().get_mut(&seat.agent) {
            room.seats.retain(|other| other.order != seat.order);
        }
    }

    /// Latest first.
    pub fn seats(&self, agent: u64) -> Vec<Arc<Seat>> {
        let mut seats = self.rooms().get(&agent).map(|room| room.seats.clone()).unwrap_or_default();
        seats.sort_by_key(|seat| std::cmp::Reverse(seat.order));
        seats
    }

    pub fn is_attended(&self, agent: u64) -> bool {
        self.rooms().get(&agent).is_some_and(|room| !room.seats.is_empty())
    }

    /// Something was written into the inbox.
    pub fn ring(&self, agent: u64) {
        if let Some(room) = self.rooms().get(&agent) {
            for seat in &room.seats {
                seat.bell.notify_one();
            }
        }
    }

    pub fn note_traffic(&self, agent: u64, now_ms: u64) {
        self.rooms().entry(agent).or_default().traffic_ms = now_ms;
    }

    pub fn traffic_ms(&self, agent: u64) -> u64 {
        self.rooms().get(&agent).map_or(0, |room| room.traffic_ms)
    }

    /// The agent is gone; its streams are rung, so that they notice.
    pub fn forget(&self, agent: u64) {
        if let Some(room) = self.rooms().remove(&agent) {
            room.seats.iter().for_each(|seat| seat.bell.notify_one());
        }
    }

    pub fn open_streams(&self) -> usize {
        self.rooms().values().map(|room| room.seats.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_says_how_far_it_got_and_its_end_is_noticed() {
        let attendance = Attendance::default();
        let first = attendance.sit_down(7, Some("a".into()), 1, 5).unwrap();
        let second = attendance.sit_down(7, None, 2, 6).unwrap();
        let order: Vec<u64> = attendance.seats(7).iter().map(|seat| seat.order).collect();
        assert_eq!((order, attendance.traffic_ms(7)), (vec![2, 1], 6));
        assert!(first.hears(None) && first.hears(Some("a")) && !first.hears(Some("b")) && second.hears(Some("b")));
        first.handed.hand(3);
        first.handed.hand(2);
        assert!(first.handed.took(3).await);
        // Whoever waits holds the seat too, and notices all the same.
        let (waits, ()) = tokio::join!(first.handed.took(4), async { attendance.leave(&first) });
        assert!(!waits && first.handed.took(3).await && !first.handed.took(4).await);
        attendance.leave(&second);
        assert!(!attendance.is_attended(7));
    }
}
