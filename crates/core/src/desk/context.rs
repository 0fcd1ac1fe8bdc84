//! Context: what was said nearby and was no turn of its own rides along, read-only, on an addressed
//! turn. Only from the same chat and thread, which its receivers can see, and only what an instance
//! has not had as an event already.

use std::sync::Arc;

use frontdesk_wire::event::ContextLine;
use frontdesk_wire::{MessageEvent, Source};
use serde_json::json;

use super::Desk;
use crate::gate::{self, Case, Ruling, Sight};
use crate::port::platform::{Nearby, Stand};
use crate::registry::facts::Instance;

/// Lines that ride along at most, and how far back they are looked for.
const LINES_MAX: usize = 20;
const LOOK_BACK: usize = 50;
/// Their size as JSON, all together.
const BYTES_MAX: usize = 16 * 1024;
/// The gateway shows this to nobody; it tells a missing context from an empty one.
const UNREADABLE: &str = "the messages nearby could not be read";

/// What each receiver gets to read.
pub(super) enum Context {
    None,
    Failed(&'static str),
    Of(Vec<(u64, Vec<ContextLine>)>),
}

impl Desk {
    pub(super) async fn context(
        &self,
        stand: Stand<'_>,
        event: &MessageEvent,
        receivers: &[Arc<Instance>],
        room_bytes: usize,
    ) -> Context {
        let source = &event.source;
        let platform = self.platform(&source.platform).filter(|found| found.descriptor().supports_context);
        let (Some(platform), false, false) = (platform, source.is_direct(), receivers.is_empty()) else {
            return Context::None;
        };
        let asked = platform.nearby(stand, &source.chat_id, source.thread_id.as_deref(), LOOK_BACK);
        let nearby = match tokio::time::timeout(super::inbound::LOOK_LIMIT, asked).await {
            Ok(Ok(nearby)) => nearby,
            failed => {
                let error = failed
                    .map_or_else(|_| "timed out".into(), |it| it.err().map_or_else(String::new, |it| it.to_string()));
                tracing::warn!(error, platform = source.platform, "no context for this turn");
                self.meters.context_failed.inc();
                return Context::Failed(UNREADABLE);
            }
        };
        let others =
            nearby.iter().filter(|line| !line.addressed && event.message_id.as_ref() != Some(&line.message_id));
        let others: Vec<(&Nearby, Vec<u64>)> =
            others.map(|line| (line, self.had_by(stand.tenant, source, line))).collect();
        let room_bytes = room_bytes.min(BYTES_MAX);
        let each = |instance: &Arc<Instance>| {
            let unseen = others.iter().filter(|(_, had)| !had.contains(&instance.no)).map(|(line, _)| *line);
            (instance.no, latest(unseen, room_bytes))
        };
        Context::Of(receivers.iter().map(each).collect())
    }

    /// Who had this line as an event of its own, by today's rules.
    fn had_by(&self, tenant: &str, here: &Source, line: &Nearby) -> Vec<u64> {
        let source = Source { user_id: Some(line.user_id.clone()), is_bot: line.is_bot, ..here.clone() };
        let case = Case { tenant, source: &source, addressed: false };
        match self.registry.read(|view| gate::judge(view, &case, &Sight::of_everyone())) {
            Ruling::Verdict(verdict) => verdict.receivers().map(|instance| instance.no).collect(),
            Ruling::Ask(_) => Vec::new(),
        }
    }
}

/// The last lines that fit, oldest first.
fn latest<'a>(lines: impl DoubleEndedIterator<Item = &'a Nearby>, room_bytes: usize) -> Vec<ContextLine> {
    let mut room = room_bytes;
    let mut taken = Vec::new();
    for line in lines.rev().take(LINES_MAX) {
        let source = json!({
            "user_id": line.user_id,
            "user_name": line.user_name,
            "is_bot": line.is_bot,
            "message_id": line.message_id,
        });
        let shown = ContextLine { text: line.text.clone(), source };
        let size = serde_json::to_string(&shown).map_or(usize::MAX, |json| json.len() + 1);
        if size > room {
            break;
        }
        room -= size;
        taken.push(shown);
    }
    taken.reverse();
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(number: usize, text: &str) -> Nearby {
        Nearby { message_id: format!("m{number}"), user_id: "ann".into(), text: text.into(), ..Nearby::default() }
    }

    #[test]
    fn the_latest_lines_oldest_first_bounded_in_number_and_bytes() {
        let lines: Vec<Nearby> = (0..30).map(|number| said(number, "x")).collect();
        let taken = latest(lines.iter(), BYTES_MAX);
        assert_eq!(taken.len(), LINES_MAX);
        assert_eq!((&taken[0].source["message_id"], &taken[19].source["message_id"]), (&json!("m10"), &json!("m29")));
        let long: Vec<Nearby> = (0..5).map(|number| said(number, &"\"".repeat(4_000))).collect();
        let taken = latest(long.iter(), BYTES_MAX);
        assert_eq!(taken.len(), 2, "each is over 8,000 bytes as JSON");
        let size: usize = taken.iter().map(|line| serde_json::to_string(line).unwrap().len()).sum();
        assert!(size <= BYTES_MAX);
        assert!(latest(lines.iter(), 10).is_empty());
    }
}
