//! The socket of a shard, opened again whenever it ends. Heartbeats are sent only while it is read, so reading never
//! waits for the store. Each connection is made anew from the state here, because the library would send the token to
//! any address that the latest session named.

use std::collections::VecDeque;
use std::time::Duration;

use frontdesk_core::port::platform::{Bot, Gap, ListenEnd};
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use twilight_gateway::error::ReceiveMessageErrorType;
use twilight_gateway::{ConfigBuilder, Message, Session, Shard, ShardId, ShardState};

use super::backlog::{Backlog, Full, Item, is_event};
use super::listening::Listening;

/// Until the first frame, with the connecting, and from then until the first event.
const GREETING_TIME: Duration = Duration::from_secs(20);
const BEGIN_TIME: Duration = Duration::from_mins(1);
/// Consecutive connections on which nothing was received before the listener ends, so that the failure is reported.
const CONNECTS_MAX: u32 = 3;
/// Above this number of connections per minute, reconnects are slowed down even if each of them worked.
const CONNECTS_A_MINUTE: usize = 12;
const SLOW_PAUSE: Duration = Duration::from_secs(10);
/// Discord lets a bot identify once in this time.
const IDENTIFY_EVERY: Duration = Duration::from_secs(5);

/// Why a connection ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The session can be resumed.
    Cut(String),
    /// Discord does not have the session any more.
    SessionLost(String),
    /// The address could not be reached, or is silent.
    NotConnected(String),
    /// The backlog is full. The session is resumed once there is room for its next frame, which has this size.
    Overflow(usize),
    /// The listener cannot continue.
    Refused(ListenEnd),
}

pub(super) struct Line<'a> {
    listening: &'a Listening<'a>,
    backlog: &'a Backlog,
    session: Option<(String, u64)>,
    resume_url: Option<String>,
    /// Connections in a row on which nothing was received.
    failures: u32,
    /// When the latest connections ended.
    ends: VecDeque<Instant>,
}

impl<'a> Line<'a> {
    pub(super) fn new(listening: &'a Listening<'a>, backlog: &'a Backlog) -> Self {
        let cursor = listening.progress.shard();
        let session = (!cursor.session_id.is_empty()).then_some((cursor.session_id, cursor.sequence));
        let resume_url = Some(cursor.resume_url).filter(|url| !url.is_empty());
        Self { listening, backlog, session, resume_url, failures: 0, ends: VecDeque::new() }
    }

    /// Runs until the listener cannot continue.
    pub(super) async fn keep_open(mut self, push: mpsc::Sender<Item>) -> ListenEnd {
        loop {
            let why = match self.connect(&push).await {
                End::Refused(ended) => return ended,
                End::Overflow(size) => {
                    let (bot, part) = (&self.listening.bot.id, self.listening.part);
                    tracing::warn!(
                        bot = bot.as_str(),
                        %part,
                        "events came faster than they were stored; the session is resumed later"
                    );
                    self.backlog.has_room_for(&push, size).await;
                    tokio::time::sleep(self.slowed()).await;
                    continue;
                }
                End::Cut(why) => why,
                End::NotConnected(why) => {
                    self.resume_url = None;
                    why
                }
                End::SessionLost(why) => {
                    let had_session = self.session.take().is_some();
                    self.resume_url = None;
                    if push.send(Item::SessionLost).await.is_err() {
                        return ListenEnd::Lost("the task that stores events ended".into());
                    }
                    if !had_session {
                        tokio::time::sleep(IDENTIFY_EVERY).await; // it identified too early
                    }
                    why
                }
            };
            self.failures += 1;
            if self.failures >= CONNECTS_MAX {
                return ListenEnd::Lost(why);
            }
            let pause = pause(self.failures).max(self.slowed());
            let Listening { bot, part, .. } = self.listening;
            tracing::info!(bot = bot.id.as_str(), %part, why, ?pause, "the socket ended; connecting again");
            tokio::time::sleep(pause).await;
        }
    }

    /// A connection ended; the pause that is due if that happens too often.
    fn slowed(&mut self) -> Duration {
        let now = Instant::now();
        self.ends.push_back(now);
        while self.ends.front().is_some_and(|end| now.duration_since(*end) > Duration::from_mins(1)) {
            self.ends.pop_front();
        }
        if self.ends.len() > CONNECTS_A_MINUTE { SLOW_PAUSE } else { Duration::ZERO }
    }

    /// One connection.
    async fn connect(&mut self, push: &mpsc::Sender<Item>) -> End {
        let Listening { discord, bot, config, part, gateway, .. } = self.listening;
        let mut config = ConfigBuilder::from(config.clone());
        match &self.session {
            Some((id, sequence)) => {
                config = config.session(Session::new(*sequence, id.clone()));
                if let Some(url) = resume_url(bot, self.resume_url.as_deref()) {
                    config = config.resume_url(url);
                }
            }
            None => {
                if let Err(why) = gateway.permit(discord, bot).await {
                    return End::Cut(why);
                }
            }
        }
        self.read(Shard::with_config(ShardId::new(part.index, part.count), config.build()), push).await
    }

    /// Until the connection ends. The queue is never waited for.
    async fn read(&mut self, mut shard: Shard, push: &mpsc::Sender<Item>) -> End {
        let (mut is_greeted, mut due) = (false, Some(Instant::now() + GREETING_TIME));
        loop {
            let Some(next) = within(due, shard.next()).await else {
                return End::NotConnected(
                    "Discord accepted the connection, but did not start a session in time".into(),
                );
            };
            let Some(item) = next else { return End::Cut("the socket was closed".into()) };
            let text = match item {
                Ok(Message::Text(text)) => text,
                Ok(Message::Close(frame)) => return closed(frame.map_or(1_006, |frame| frame.code)),
                Err(error) => match error.kind() {
                    // The store reports it. After a resume it would be sent again, and later events never.
                    ReceiveMessageErrorType::Deserializing { event }
                        if is_event(event) && shard.session().is_some() =>
                    {
                        event.clone()
                    }
                    // The error itself may hold an event.
                    _ => {
                        let why = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
                        return End::NotConnected(format!("the socket of Discord cannot be reached: {why}"));
                    }
                },
            };
            let is_event = is_event(&text);
            if is_event {
                due = None;
            } else if !is_greeted {
                due = Some(Instant::now() + self.begin_time());
            }
            is_greeted = true;
            match self.backlog.put(push, text) {
                Ok(()) => {}
                Err(Full::ForNow(size)) => return End::Overflow(size),
                Err(Full::TooLarge(size)) => self.passed_over(size),
            }
            self.note(&shard, is_event);
            // It was asked to connect again, and would do it by itself.
            if matches!(shard.state(), ShardState::Disconnected { .. }) {
                return match shard.session() {
                    Some(_) => End::Cut("Discord asked to connect again".into()),
                    None => End::SessionLost("Discord does not have the session any more".into()),
                };
            }
        }
    }

    /// Shards identify one after another, while sessions are resumed at once.
    fn begin_time(&self) -> Duration {
        let before = if self.session.is_some() { 0 } else { self.listening.part.count };
        BEGIN_TIME + IDENTIFY_EVERY * before
    }

    /// Skips a frame that is too large for this server: after a resume Discord would send it again, without end.
    fn passed_over(&self, size: usize) {
        let now_ms = self.listening.discord.env.now_ms();
        let reason = format!("an event of {size} bytes was skipped, because it is larger than this server accepts");
        self.listening.inlet.gap(Gap { since_ms: now_ms, until_ms: now_ms, reason });
    }

    /// Notes the position from which the session can be resumed: later frames were not passed to the store.
    fn note(&mut self, shard: &Shard, is_event: bool) {
        // A hello frame alone does not show that the connection works.
        if is_event {
            self.failures = 0;
        }
        let Some(session) = shard.session() else { return };
        match &mut self.session {
            Some((id, sequence)) if id == session.id() => *sequence = session.sequence(),
            _ => {
                self.session = Some((session.id().to_owned(), session.sequence()));
                self.resume_url = shard.resume_url().map(str::to_owned);
            }
        }
    }
}

/// `None`: it is too late.
async fn within<T>(due: Option<Instant>, awaited: impl Future<Output = T>) -> Option<T> {
    match due {
        Some(due) => timeout_at(due, awaited).await.ok(),
        None => Some(awaited.await),
    }
}

/// At once after a connection that worked, then a little later.
fn pause(failures: u32) -> Duration {
    Duration::from_secs(failures.saturating_sub(1).into())
}

/// Where a session is resumed: at the address that Discord named, if the token may go there. `None`: where sessions begin.
fn resume_url(bot: &Bot, named: Option<&str>) -> Option<String> {
    if bot.setting("gateway_url").is_some() {
        return None; // the operator says where
    }
    let url = named?.trim_end_matches('/');
    let host = url.strip_prefix("wss://")?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':');
    (!host.is_empty() && host.bytes().all(is_plain)).then(|| url.to_owned())
}

fn closed(code: u16) -> End {
    let refused = |text: &str| End::Refused(ListenEnd::Misconfigured(format!("{text} (close code {code})")));
    match code {
        4004 => {
            refused("Discord does not know this token; copy it again from the developer portal, and repeat `bot add`")
        }
        4010 => refused("Discord refuses the number of this connection; that is a defect of this server, report it"),
        // The listener that is started next asks again how many there must be.
        4011 => End::Refused(ListenEnd::Lost(format!(
            "the bot is in too many guilds for its connections; Discord is asked again how many it needs (close code {code})"
        ))),
        4012 => refused("Discord does not offer this version of its gateway any more; update this server"),
        4013 => refused("Discord does not know the intents that this server asks for; update this server"),
        4014 => refused(
            "Discord does not allow the intents that are needed; in the developer portal, under Bot, turn on Message \
             Content Intent and Server Members Intent, and repeat `bot add`",
        ),
        // Not authenticated (any more), an invalid sequence, a session that timed out.
        4003 | 4007 | 4009 => End::SessionLost(format!("Discord ended the session (close code {code})")),
        1_006 => End::Cut("the connection was lost".into()),
        _ => End::Cut(format!("Discord closed the socket (close code {code})")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_token_goes_only_where_it_may() {
        let bot = Bot::bare("b");
        let url = |named| resume_url(&bot, Some(named));
        assert_eq!(url("wss://gateway-us-east1-b.discord.gg/"), Some("wss://gateway-us-east1-b.discord.gg".into()));
        for named in ["ws://gateway.discord.gg", "https://x", "wss://", "wss://a b", "wss://x@y", "wss://x/\u{e9}", ""]
        {
            assert_eq!(url(named), None, "{named}");
        }
        assert_eq!(resume_url(&bot, None), None);
        let settings = BTreeMap::from([("gateway_url".to_owned(), "ws://127.0.0.1:1".to_owned())]);
        let bot = Bot::new("b", None, settings, BTreeMap::new());
        assert_eq!(resume_url(&bot, Some("wss://gateway.discord.gg")), None, "the operator says where");
    }

    #[test]
    fn every_close_code_is_understood() {
        for code in [4004, 4010, 4012, 4013, 4014] {
            let End::Refused(ListenEnd::Misconfigured(text)) = closed(code) else { panic!("{code}") };
            assert!(text.contains(&code.to_string()) && text.contains("; "), "{text}");
        }
        assert!(matches!(closed(4011), End::Refused(ListenEnd::Lost(_))));
        for code in [4003, 4007, 4009] {
            assert!(matches!(closed(code), End::SessionLost(_)), "{code}");
        }
        for code in [1_000, 1_001, 1_006, 4000, 4001, 4002, 4005, 4008] {
            assert!(matches!(closed(code), End::Cut(_)), "{code}");
        }
    }
}
