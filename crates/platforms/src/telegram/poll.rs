//! Long polling: the offset moves only after what is before it was stored.

use std::collections::HashMap;
use std::time::Duration;

use frontdesk_core::intake::Intake;
use frontdesk_core::port::platform::{Bot, Ended, Inlet};
use serde_json::{Value, json};

use super::Telegram;
use super::api::{Api, ApiError};
use super::normalize::{Meaning, Pressed, meaning_of, merge, unreadable};
use super::update::{ALLOWED_UPDATES, Update, User};

/// The longest that the guarded client waits is 30 s.
const POLL_S: u64 = 25;
const POLL_LIMIT: Duration = Duration::from_secs(30);
/// The messages of an album come one by one. Nothing new of it for this time: it is complete.
const ALBUM_PAUSE: Duration = Duration::from_secs(1);
const ALBUM_MAX: usize = 10;
/// A bot that is told to wait longer than this is started again by the server instead.
const RETRY_MAX_S: u64 = 60;

/// An update that was read, or why it was not.
struct Read {
    id: i64,
    meaning: Result<Meaning, String>,
}

impl Read {
    fn album(&self) -> Option<&str> {
        self.meaning.as_ref().ok()?.album.as_deref()
    }
}

impl Telegram {
    pub(super) async fn poll(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> Ended {
        let Some(api) = Api::of(&*self.outcall, bot) else {
            return Ended::Misconfigured("the bot has no token".into());
        };
        match self.begin(&api, bot).await {
            Ok(me) => self.poll_as(&api, bot, &me, cursor, inlet).await,
            Err(error) => ended(&error),
        }
    }

    /// While a webhook is set there are no updates to poll.
    async fn begin(&self, api: &Api<'_>, bot: &Bot) -> Result<User, ApiError> {
        let me = self.me(api, bot).await?;
        let _: bool = api.call("deleteWebhook", &json!({})).await?;
        Ok(me)
    }

    async fn poll_as(&self, api: &Api<'_>, bot: &Bot, me: &User, cursor: Option<String>, inlet: &dyn Inlet) -> Ended {
        let mut offset: i64 = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        // How many messages of each album the last poll had.
        let mut albums: HashMap<String, usize> = HashMap::new();
        loop {
            // Of an album that is not complete we have some updates already: do not wait for more.
            let timeout_s = if albums.is_empty() { POLL_S } else { 0 };
            let asked = json!({ "offset": offset, "timeout": timeout_s, "allowed_updates": ALLOWED_UPDATES });
            let updates = match api.call_for::<Vec<Value>>("getUpdates", &asked, Some(POLL_LIMIT)).await {
                Ok(updates) => updates,
                Err(ApiError::Refused { retry_after_s: Some(seconds), .. }) if seconds <= RETRY_MAX_S => {
                    tokio::time::sleep(Duration::from_secs(seconds.max(1))).await;
                    continue;
                }
                Err(error) => return ended(&error),
            };
            let count = updates.len();
            let mut read: Vec<Read> = updates.into_iter().filter_map(|update| read(update, me, bot)).collect();
            read.retain(|update| update.id >= offset);
            if read.is_empty() && count > 0 {
                return Ended::Lost("Telegram sent only updates that were not asked for".into());
            }
            read.sort_by_key(|update| update.id);
            let waiting = incomplete(&read, &mut albums);
            let ready = read.len() - waiting;
            read.truncate(ready);
            if let Some(last) = read.last().map(|update| update.id) {
                if let Err(why) = self.take(api, bot, read, inlet).await {
                    return Ended::Lost(why);
                }
                offset = last + 1;
                if let Err(error) = inlet.save_cursor(offset.to_string()).await {
                    return Ended::Lost(format!("saving the offset failed: {error}"));
                }
            }
            if waiting > 0 {
                tokio::time::sleep(ALBUM_PAUSE).await;
            }
        }
    }

    /// Stores the updates in one commit, then answers the buttons.
    async fn take(&self, api: &Api<'_>, bot: &Bot, read: Vec<Read>, inlet: &dyn Inlet) -> Result<(), String> {
        let (mut intakes, mut presses): (Vec<Intake>, Vec<(Pressed, Option<usize>)>) = (Vec::new(), Vec::new());
        let (mut changes, mut albums): (Vec<_>, HashMap<String, usize>) = (Vec::new(), HashMap::new());
        for update in read {
            let meaning = match update.meaning {
                Ok(meaning) => meaning,
                Err(why) => {
                    intakes.push(unreadable(bot, update.id, &why));
                    continue;
                }
            };
            changes.extend(meaning.changes);
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
        for change in changes {
            inlet.changed(change).await.map_err(|error| error.to_string())?;
        }
        let results =
            if intakes.is_empty() { Vec::new() } else { inlet.take(intakes).await.map_err(|it| it.to_string())? };
        for (pressed, at) in presses {
            let receipt = at.and_then(|at| results.get(at)).and_then(|result| result.as_ref().ok());
            self.answer_press(api, &pressed, receipt).await;
        }
        Ok(())
    }
}

fn read(update: Value, me: &User, bot: &Bot) -> Option<Read> {
    let id = update.get("update_id").and_then(Value::as_i64)?;
    let meaning = serde_json::from_value::<Update>(update).map(|update| meaning_of(update, me, bot));
    Some(Read { id, meaning: meaning.map_err(|error| error.to_string()) })
}

/// How many updates at the end have to wait because an album among them may not be complete.
fn incomplete(read: &[Read], seen: &mut HashMap<String, usize>) -> usize {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for album in read.iter().filter_map(Read::album) {
        *counts.entry(album.to_owned()).or_default() += 1;
    }
    let is_complete = |album: &str| {
        let count = counts.get(album).copied().unwrap_or(0);
        count >= ALBUM_MAX || seen.get(album) == Some(&count)
    };
    let first = read.iter().position(|update| update.album().is_some_and(|album| !is_complete(album)));
    let waiting = first.map_or(0, |first| read.len() - first);
    *seen = if waiting == 0 { HashMap::new() } else { counts };
    waiting
}

/// What an error of the Bot API means for the listener.
pub(super) fn ended(error: &ApiError) -> Ended {
    match error.code() {
        Some(401 | 404) => Ended::Misconfigured(format!(
            "Telegram does not know this token ({}); get the right one from @BotFather and repeat `bot add`",
            error.text()
        )),
        Some(409) => Ended::Lost(format!(
            "another program receives the updates of this bot ({}); stop it, or give it a bot of its own",
            error.text()
        )),
        _ => Ended::Lost(error.text()),
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
        assert_eq!(incomplete(&updates(&[None, Some("a"), Some("a")]), &mut seen), 2);
        assert_eq!(incomplete(&updates(&[Some("a"), Some("a"), Some("a"), None]), &mut seen), 4, "one more came");
        assert_eq!(incomplete(&updates(&[Some("a"), Some("a"), Some("a"), None]), &mut seen), 0);
        assert!(seen.is_empty());
        assert_eq!(incomplete(&updates(&[Some("b"); 10]), &mut seen), 0, "no album is longer");
        assert_eq!(incomplete(&[], &mut seen), 0);
    }

    #[test]
    fn albums_wait_for_each_other_in_order() {
        let mut seen = HashMap::new();
        assert_eq!(incomplete(&updates(&[Some("a"), Some("b")]), &mut seen), 2);
        assert_eq!(incomplete(&updates(&[Some("a"), Some("b"), Some("b")]), &mut seen), 2, "the first one is complete");
    }
}
