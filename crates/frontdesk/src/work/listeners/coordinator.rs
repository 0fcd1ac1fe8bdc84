//! Keeps the number of parts of a bot, under the duty of the whole bot. It is changed in order: the new number is announced,
//! the parts of the old one stop, their cursors are divided, and one write makes the new number valid. Each step can be
//! repeated by the next holder of the duty.

use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::inbound::share::PartName;
use frontdesk_core::port::platform::{Bot, Inlet as _, Layout, LayoutStep, ListenEnd, Part, Partitioned};
use frontdesk_core::port::store::StoreError;
use tokio::sync::Notify;

use super::TICK;
use super::duties::Duties;
use super::inlet::TrackedInlet;

/// How often the platform is asked how many parts a bot with several needs.
const CHECK_EVERY: Duration = Duration::from_mins(1);

/// Duties of parts that do not run while their number changes.
#[derive(Default)]
pub(super) struct Taken(Vec<PartName>);

impl Taken {
    pub(super) async fn give_up(&mut self, duties: &Duties) {
        let mut is_away = false;
        for name in std::mem::take(&mut self.0) {
            is_away = is_away || !matches!(tokio::time::timeout(TICK, duties.give_up(&name)).await, Ok(Ok(())));
            if is_away {
                duties.abandon(name);
            }
        }
    }
}

/// Holder of the duty of the whole bot.
pub(super) struct Coordinator<'a> {
    /// Name of the whole bot.
    pub(super) name: &'a PartName,
    pub(super) desk: &'a Desk,
    pub(super) bot: &'a Bot,
    pub(super) inlet: &'a TrackedInlet,
    pub(super) duties: &'a Duties,
    /// Notified when the number changed.
    pub(super) changed: &'a Notify,
    pub(super) partitioned: &'a dyn Partitioned,
}

impl Coordinator<'_> {
    /// Runs while the bot has several parts. Returns when it has one, which then listens under this duty.
    pub(super) async fn keep(&self, taken: &mut Taken) -> Result<(), ListenEnd> {
        let lost = |error: StoreError| ListenEnd::Lost(error.to_string());
        loop {
            let cursor = self.cursor(Part::WHOLE).await.map_err(lost)?;
            let layout = Layout::read(cursor.as_deref());
            let count = if let Some(announced) = layout.next {
                announced
            } else {
                let whole = cursor.as_deref().filter(|_| layout == Layout::WHOLE);
                self.partitioned.count(self.bot, layout.count, whole).await?
            };
            match layout.step(count).map_err(ListenEnd::Misconfigured)? {
                LayoutStep::Listen => return Ok(()),
                LayoutStep::Keep => tokio::time::sleep(CHECK_EVERY).await,
                LayoutStep::Change => {
                    let changed = self.change(layout, cursor, count, taken).await;
                    let why = |error| format!("changing the number of connections to {count} failed: {error}");
                    changed.map_err(|error| ListenEnd::Lost(why(error)))?;
                }
            }
        }
    }

    async fn cursor(&self, part: Part) -> Result<Option<String>, StoreError> {
        self.desk.inbound().cursor(&self.name.platform, self.bot, part).await
    }

    async fn change(
        &self,
        old: Layout,
        cursor: Option<String>,
        count: u32,
        taken: &mut Taken,
    ) -> Result<(), StoreError> {
        let PartName { platform, bot, .. } = self.name;
        tracing::info!(
            platform,
            bot = bot.as_str(),
            from = old.count,
            to = count,
            "started to change the number of connections of a bot"
        );
        // Also if it was announced before.
        if let Some(announced) = old.announce(count, cursor.clone()) {
            self.inlet.save_cursor(announced).await?;
            self.changed.notify_one();
        }
        let mut cursors = Vec::new();
        for part in Part::all(old.count) {
            if part.is_whole() {
                cursors.push(cursor.clone());
                continue;
            }
            self.wait_for(part, taken).await?;
            cursors.push(self.cursor(part).await?);
        }
        let divided = self.partitioned.divide(&cursors, count);
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
            let inlet = self.desk.inbound().listener_inlet(platform, self.bot, part, token);
            let inlet = TrackedInlet { inlet: inlet.into(), tracker: self.inlet.tracker.clone() };
            inlet.save_cursor(cursor).await?;
        }
        self.inlet.save_cursor(whole).await?;
        taken.give_up(self.duties).await;
        self.changed.notify_one();
        Ok(())
    }

    /// Waits until no server listens as this part, and takes its duty. Returns the token.
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
}
