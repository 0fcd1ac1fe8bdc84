//! Long polling: the offset moves only after what is before it was stored.

use std::collections::HashMap;
use std::time::Duration;

use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::platform::{Bot, Change, Inlet, ListenEnd};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::Telegram;
use super::api::{Api, ApiError};
use super::inspect::WebhookInfo;
use super::normalize::{Meaning, Pressed, meaning_of, merge, unreadable};
use super::update::{ALLOWED_UPDATES, Update, User};

/// The longest time limit of the guarded client is 30 s.
const POLL_S: u64 = 25;
const POLL_LIMIT: Duration = Duration::from_secs(30);
/// The messages of an album come one by one. Without a new one for this time it is complete.
const ALBUM_PAUSE: Duration = Duration::from_secs(1);
const ALBUM_MAX: usize = 10;
/// A bot that has to wait longer than this is reported as one that does not listen.
const RETRY_MAX_S: u64 = 600;
/// Updates that one poll returns at most.
const PAGE: usize = 100;
const PRESSES_AT_ONCE: usize = 8;
const PRESSES_LIMIT: Duration = Duration::from_secs(5);

/// An update that was read, or why it was not.
pub(super) struct Read {
    pub(super) id: i64,
    pub(super) meaning: Result<Meaning, String>,
}

impl Read {
    /// `None`: it has no number.
    pub(super) fn of(update: Value, me: &User, bot: &Bot) -> Option<Self> {
        let id = update.get("update_id").and_then(Value::as_i64)?;
        let meaning = serde_json::from_value::<Update>(update).map(|update| meaning_of(update, me, bot));
        Some(Self { id, meaning: meaning.map_err(|error| error.to_string()) })
    }

    fn album(&self) -> Option<&str> {
        self.meaning.as_ref().ok()?.album.as_deref()
    }
}

impl Telegram {
    pub(super) async fn poll(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> ListenEnd {
        let Some(api) = Api::of(&*self.outcall, bot) else {
            return ListenEnd::Misconfigured("the bot has no token".into());
        };
        let me = match self.me(&api, bot).await {
            Ok(me) => me,
            Err(error) => return ended(&error),
        };
        match self.without_webhook(&api, bot, cursor.is_none()).await {
            Ok(()) => self.poll_as(&api, bot, &me, cursor, inlet).await,
            Err(ended) => ended,
        }
    }

    /// Telegram refuses polls while a webhook is set. A bot that was just added replaces the webhook of its previous
    /// program; a foreign webhook that appears later means that another program uses the bot now.
    async fn without_webhook(&self, api: &Api<'_>, bot: &Bot, is_new: bool) -> Result<(), ListenEnd> {
        let info: WebhookInfo = api.call("getWebhookInfo", &json!({})).await.map_err(|error| ended(&error))?;
        let url = api.redacted(&info.url);
        if info.url.is_empty() {
            return Ok(());
        }
        if !is_new && info.url != self.webhook_url(bot) {
            return Err(ListenEnd::Lost(format!(
                "Telegram sends the updates of this bot to {url}: another program has it; stop that, or use another bot"
            )));
        }
        api.call::<bool>("deleteWebhook", &json!({})).await.map_err(|error| ended(&error))?;
        tracing::warn!(bot = bot.id.as_str(), url, "removed the webhook of a bot that is polled");
        Ok(())
    }

    async fn poll_as(
        &self,
        api: &Api<'_>,
        bot: &Bot,
        me: &User,
        cursor: Option<String>,
        inlet: &dyn Inlet,
    ) -> ListenEnd {
        let mut offset: i64 = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        let mut limit = PAGE;
        // How many messages of each album the last poll had.
        let mut albums: HashMap<String, usize> = HashMap::new();
        loop {
            // Of an album that is not complete we have some updates already: do not wait for more.
            let timeout_s = if albums.is_empty() { POLL_S } else { 0 };
            let asked =
                json!({ "offset": offset, "limit": limit, "timeout": timeout_s, "allowed_updates": ALLOWED_UPDATES });
            let updates = match api.call_for::<Vec<Value>>("getUpdates", &asked, Some(POLL_LIMIT)).await {
                Ok(updates) => updates,
                Err(ApiError::Refused { retry_after_s: Some(seconds), .. }) if seconds <= RETRY_MAX_S => {
                    tokio::time::sleep(Duration::from_secs(seconds.max(1))).await;
                    continue;
                }
                Err(ApiError::TooLarge) if limit > 1 => {
                    limit /= 10; // a page of very long messages
                    continue;
                }
                Err(error) => return ended(&error),
            };
            let count = updates.len();
            let mut read: Vec<Read> = updates.into_iter().filter_map(|update| Read::of(update, me, bot)).collect();
            if read.len() < count {
                return ListenEnd::Lost("Telegram sent an update without a number".into());
            }
            // After a week without updates their numbers begin anew, perhaps below the offset: all of them are taken.
            read.sort_by_key(|update| update.id);
            let waiting = incomplete(&read, count >= limit, &mut albums);
            read.truncate(count - waiting);
            let last = read.last().map(|update| update.id);
            let mut presses = Vec::new();
            for part in between_moves(read) {
                match self.take(bot, me, part, inlet).await {
                    Ok(pressed) => presses.extend(pressed),
                    Err(why) => return ListenEnd::Lost(why),
                }
            }
            if let Some(last) = last {
                offset = last + 1;
                limit = PAGE;
                if let Err(error) = inlet.save_cursor(offset.to_string()).await {
                    return ListenEnd::Lost(format!("saving the offset failed: {error}"));
                }
            }
            self.answer_presses(api, presses).await;
            if waiting > 0 {
                tokio::time::sleep(ALBUM_PAUSE).await;
            }
        }
    }

    /// Bounded in time, so that slow answers do not delay the next poll.
    async fn answer_presses(&self, api: &Api<'_>, presses: Vec<(Pressed, Option<Receipt>)>) {
        let answers = futures_util::stream::iter(&presses);
        let answers = answers.for_each_concurrent(PRESSES_AT_ONCE, |(pressed, receipt)| {
            self.answer_press(api, pressed, receipt.as_ref()) //
        });
        if tokio::time::timeout(PRESSES_LIMIT, answers).await.is_err() {
            tracing::warn!("answering some button presses took too long; the presses are stored");
        }
    }

    /// Stores updates in one commit. Returns the buttons that were pressed, each with its receipt.
    async fn take(
        &self,
        bot: &Bot,
        me: &User,
        read: Vec<Read>,
        inlet: &dyn Inlet,
    ) -> Result<Vec<(Pressed, Option<Receipt>)>, String> {
        let (mut intakes, mut presses): (Vec<Intake>, Vec<(Pressed, Option<usize>)>) = (Vec::new(), Vec::new());
        let mut albums: HashMap<String, usize> = HashMap::new();
        for update in read {
            let meaning = match update.meaning {
                Ok(meaning) => meaning,
                Err(why) => {
                    intakes.push(unreadable(bot, me, update.id, &why));
                    continue;
                }
            };
            for change in meaning.changes {
                inlet.changed(change).await.map_err(|error| error.to_string())?;
            }
            let known = meaning.album.as_ref().and_then(|album| albums.get(album).copied());
            let at = match (meaning.intake, known) {
                (None, _) => None,
                (Some(intake), Some(at)) => {
                    merge(&mut intakes[at], *intake);
                    None
                }
                (Some(intake), None) => {
                    intakes.push(*intake);
                    let at = intakes.len() - 1;
                    albums.extend(meaning.album.map(|album| (album, at)));
                    Some(at)
                }
            };
            presses.extend(meaning.pressed.map(|pressed| (pressed, at)));
        }
        let results = match intakes.is_empty() {
            true => Vec::new(),
            false => inlet.take(intakes).await.map_err(|error| error.to_string())?,
        };
        let with_receipt = |(pressed, at): (Pressed, Option<usize>)| {
            let receipt = at.and_then(|at| results.get(at)).and_then(|result| result.as_ref().ok()).cloned();
            (pressed, receipt)
        };
        Ok(presses.into_iter().map(with_receipt).collect())
    }
}

/// Splits the updates where a chat changes its id: messages from before are decided with the records of the old id.
fn between_moves(read: Vec<Read>) -> Vec<Vec<Read>> {
    let mut parts: Vec<Vec<Read>> = vec![Vec::new()];
    for update in read {
        let is_move = update
            .meaning
            .as_ref()
            .is_ok_and(|meaning| meaning.changes.iter().any(|change| matches!(change, Change::ChatMoved { .. })));
        match parts.last_mut() {
            Some(part) if !is_move => part.push(update),
            _ => parts.push(vec![update]),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The number of updates at the end that must wait, because an album among them may be incomplete. A full page means that
/// Telegram has more updates, and the rest of the last album may be among them.
fn incomplete(read: &[Read], is_full: bool, seen: &mut HashMap<String, usize>) -> usize {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for album in read.iter().filter_map(Read::album) {
        *counts.entry(album.to_owned()).or_default() += 1;
    }
    let is_complete = |album: &str| {
        let count = counts.get(album).copied().unwrap_or(0);
        let is_last = read.last().and_then(Read::album) == Some(album);
        let may_go_on = is_full && is_last && counts.len() > 1;
        count >= ALBUM_MAX || (seen.get(album) == Some(&count) && !may_go_on)
    };
    let first = read.iter().position(|update| update.album().is_some_and(|album| !is_complete(album)));
    let waiting = first.map_or(0, |first| read.len() - first);
    *seen = if waiting == 0 { HashMap::new() } else { counts };
    waiting
}

/// What an error of the Bot API means for the listener.
pub(super) fn ended(error: &ApiError) -> ListenEnd {
    match error.code() {
        Some(401 | 404) => ListenEnd::Misconfigured(format!(
            "Telegram does not know this token ({}); get the right one from @BotFather and repeat `bot add`",
            error.text()
        )),
        Some(409) => ListenEnd::Lost(format!(
            "another program receives the updates of this bot ({}); stop it, or give it a bot of its own",
            error.text()
        )),
        _ => ListenEnd::Lost(error.text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updates(albums: &[Option<&str>]) -> Vec<Read> {
        let one = |(id, album): (usize, Option<&str>)| Read {
            id: i64::try_from(id).unwrap(),
            meaning: Ok(Meaning { album: album.map(str::to_owned), ..Meaning::default() }),
        };
        albums.iter().copied().enumerate().map(one).collect()
    }

    #[test]
    fn an_album_waits_until_nothing_more_of_it_comes() {
        let mut seen = HashMap::new();
        assert_eq!(incomplete(&updates(&[None, Some("a"), Some("a")]), false, &mut seen), 2);
        assert_eq!(
            incomplete(&updates(&[Some("a"), Some("a"), Some("a"), None]), false, &mut seen),
            4,
            "one more came"
        );
        assert_eq!(incomplete(&updates(&[Some("a"), Some("a"), Some("a"), None]), false, &mut seen), 0);
        assert!(seen.is_empty());
        assert_eq!(incomplete(&updates(&[Some("b"); 10]), false, &mut seen), 0, "no album is longer");
        assert_eq!(incomplete(&[], false, &mut seen), 0);
    }

    #[test]
    fn albums_wait_for_each_other_in_order() {
        let mut seen = HashMap::new();
        assert_eq!(incomplete(&updates(&[Some("a"), Some("b")]), false, &mut seen), 2);
        assert_eq!(
            incomplete(&updates(&[Some("a"), Some("b"), Some("b")]), false, &mut seen),
            2,
            "the first one is complete"
        );
    }
}
