//! Keeps the number of parts of a bot, under the duty of the whole bot. It is changed in order: the new number is announced,
//! the parts of the old one stop, their cursors are divided, and one write makes the new number valid. Each step can be
//! repeated by the next holder of the duty.

use std::time::Duration;

use frontdesk_core::port::platform::{Ended, Inlet as _, Layout, PARTS_MAX, Part, Partitioned};
use frontdesk_core::port::store::StoreError;

use super::listener::{Listener, TrackedInlet};
use super::{Name, TICK};

/// How often the platform is asked how many parts a bot with several needs.
const CHECK_EVERY: Duration = Duration::from_mins(1);

/// Duties of parts that stand still while their number changes.
#[derive(Default)]
pub(super) struct Taken(Vec<Name>);

impl Listener {
    /// Listens, if the bot has one part; if there are several, others listen, and this keeps their number.
    pub(super) async fn keep(
        &self,
        partitioned: &dyn Partitioned,
        mut cursor: Option<String>,
        taken: &mut Taken,
    ) -> Ended {
        loop {
            let layout = Layout::read(cursor.as_deref());
            let whole = cursor.as_deref().filter(|_| layout == Layout::WHOLE);
            let count = match layout.next {
                Some(announced) => announced,
                None => match partitioned.count(&self.bot, layout.count, whole).await {
                    Ok(count) if (1..=PARTS_MAX).contains(&count) => count,
                    Ok(count) => {
                        let why =
                            format!("the platform wants {count} connections, and this server opens 1 to {PARTS_MAX}");
                        return Ended::Misconfigured(why);
                    }
                    Err(ended) => return ended,
                },
            };
            if layout == Layout::WHOLE && count == 1 {
                return self.platform.listen(&self.bot, Part::WHOLE, cursor, &self.inlet).await;
            }
            if layout == (Layout { count, next: None }) {
                tokio::time::sleep(CHECK_EVERY).await;
            } else if let Err(error) = self.change(partitioned, layout, cursor, count, taken).await {
                return Ended::Lost(format!("changing the number of connections to {count} failed: {error}"));
            }
            cursor = match self.cursor(Part::WHOLE).await {
                Ok(cursor) => cursor,
                Err(error) => return Ended::Lost(error.to_string()),
            };
        }
    }

    async fn change(
        &self,
        partitioned: &dyn Partitioned,
        old: Layout,
        cursor: Option<String>,
        count: u32,
        taken: &mut Taken,
    ) -> Result<(), StoreError> {
        let (platform, bot) = (&self.name.platform, &self.name.bot);
        tracing::info!(platform, bot, from = old.count, to = count, "the number of connections of a bot changes");
        // Also if it was announced before: from here on no earlier holder of the duty can change it.
        let announced = match (old.count, cursor.clone()) {
            (1, None) => None,
            (1, cursor) => cursor,
            (count_now, _) => Some(Layout { count: count_now, next: Some(count) }.text()),
        };
        if let Some(announced) = announced {
            self.inlet.save_cursor(announced).await?;
            self.changed.notify_one();
        }
        let mut cursors = Vec::new();
        for part in Part::all(old.count).filter(|part| !part.is_whole()) {
            self.wait_for(part, taken).await?;
            cursors.push(self.cursor(part).await?);
        }
        if old.count == 1 {
            cursors.push(cursor);
        }
        let divided = partitioned.divide(&cursors, count);
        if divided.len() != count as usize {
            let text = format!("the platform made {} cursors for {count} connections; report this", divided.len());
            return Err(StoreError::Corrupt(text));
        }
        let mut whole = Layout { count, next: None }.text();
        for (part, cursor) in Part::all(count).zip(divided) {
            if part.is_whole() {
                whole = cursor;
                continue;
            }
            let token = self.wait_for(part, taken).await?;
            let inlet = self.desk.inbound().listener_inlet(platform, &self.bot, part, token);
            let inlet = TrackedInlet { inlet: inlet.into(), tracker: self.inlet.tracker.clone() };
            inlet.save_cursor(cursor).await?;
        }
        self.inlet.save_cursor(whole).await?;
        self.give_up(taken).await;
        self.changed.notify_one();
        Ok(())
    }

    /// Until nobody listens as this part, here or elsewhere.
    async fn wait_for(&self, part: Part, taken: &mut Taken) -> Result<u64, StoreError> {
        let name = self.name.with(part);
        loop {
            if let Some((_, token)) = self.duties.take(&name).await? {
                taken.0.push(name);
                return Ok(token);
            }
            tokio::time::sleep(TICK).await;
        }
    }

    pub(super) async fn give_up(&self, taken: &mut Taken) {
        for name in std::mem::take(&mut taken.0) {
            let given_up = tokio::time::timeout(TICK, self.duties.give_up(&name)).await;
            if !matches!(given_up, Ok(Ok(()))) {
                // This desk still has it, and takes it as soon as it is wanted, or loses it with its lease.
                self.duties.release(&name);
            }
        }
    }
}
