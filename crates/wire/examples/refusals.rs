//! Prints how the server words refusals: one JSON object a line, `{"code","text","sent"}`, where `sent` says
//! whether something of the message may be in the chat. The test with the real gateway reads it
//! (`tests/hermes/classify.py`). The texts are those in the sources, and others that platforms and libraries may put in
//! the middle of them. The argument is the folder of the crates.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use frontdesk_wire::code::CODES;
use frontdesk_wire::{ActionResult, Code};
use serde_json::json;

/// What is said in results, and what platforms and libraries may say in the middle of it.
const TEXTS: &[&str] = &[
    "no hello on this socket named that platform and bot",
    "unsupported op: dance",
    "the action is malformed: missing field `chat_id`",
    "too many actions of this agent are waiting, and this one was not sent; wait for results first",
    "the action waited too long behind other actions of this socket; nothing was sent; try again later",
    "the action waited 25 s behind earlier actions of this chat or bot; nothing was sent; try again later",
    "the rate limit of the bot allows this only after 30 s; nothing was sent; try again later",
    "too many actions of this tenant wait for this bot; nothing was sent; try again later",
    "the server is stopping; nothing was sent; try again later",
    "this edit was replaced by a later one, which was not sent; send the latest text again",
    "timed out: this edit was replaced by a later one, whose outcome is unknown",
    "discord bot \"b\" is not (or no longer) a bot of this tenant",
    "the platform did not report in time which tenant this chat belongs to; nothing was sent",
    "nothing can be sent to a webhook",
    "this server does not run the platform \"irc\"",
    "relay does not support prompt",
    "a prompt needs a prompt_id",
    "the store is unavailable; nothing was sent",
    "the chat store is unavailable",
    "the platform did not answer; the action may have been carried out; check the chat before you repeat it",
    "2 of 3 parts went out, then: the platform refused it",
    "2 of 3 parts went out, then: ConnectError: network is unreachable",
    "this message was not sent by the bot",
    "thread not found in this chat",
    "file not found or expired",
    "source_url: the other side timed out",
    "source_url: ConnectionReset by peer",
    "Broken pipe (os error 32)",
    "RemoteDisconnected: EOFError, ConnectTimeout",
    "400: can't parse entities",
    "Telegram refused it: Bad Request: chat not found (400)",
    "Telegram refused it: Too Many Requests: retry after 7 (429)",
    "Telegram did not answer: status 502 without a readable body",
    "the text does not fit into one message of 4096 units",
    "Telegram has no reaction \"x\"; it has others",
    "the file went out, then: Telegram did not answer: it took too long",
    "the homeserver refused the request: M_FORBIDDEN (status 403)",
    "the homeserver cannot be reached: no connection: network is down",
    "the room is encrypted, and this server does not send unencrypted messages there",
    "the message that the thread should begin at was not found in this room",
    "no thread can begin at this message: it is in a thread, or an edit of another message",
    "the message has too many reactions to find the one of the bot; nothing was removed",
    "too many uploads of unknown size are in progress for this bot; nothing was sent; try again later, or serve the file with \
     Content-Length",
    "Slack refused it: channel_not_found; there is no such channel, or the app is not in it; invite it with /invite",
    "Slack did not answer: status 502 without a readable body",
    "Slack limits the rate; it asks to wait 7 s",
    "Slack shows a typing status only in threads",
    "Slack takes no more answers to this command: five are possible within 30 minutes",
    "Slack has no reaction \"x\" that is known here; give its name, as :eyes: or :tada:",
    "Feishu refused it: Bot/User can NOT be out of the chat. (230002); the bot is not in the chat: add it under the settings of \
     the group > Bots",
    "Feishu did not answer: the other side timed out",
    "Feishu gave no usable answer: status 502 without a readable body",
    "Feishu gave no usable answer: it returned no access token in time",
    "Feishu knows no message or topic of this id, or does not show it to the bot",
    "it is not known whether the card of this draft was sent, so no second card is created; send the final text",
    "too many uploads of unknown size are in progress; nothing was sent; try again later, or serve the file with \
     Content-Length",
    "Feishu limits the rate; it asks to wait 7 s",
    "Feishu has no reaction \"x\" that is known here; give its name, as THUMBSUP or OnIt",
    "Feishu does not support typing",
    "the message or topic is not in this chat",
    "\"x\" is not the id of a message of Feishu, like om_...",
    "the question is too long for a card with buttons",
    "files of at most 26214400 bytes can be sent to Feishu from here",
    "Discord refused it: Unknown Channel (404, code 10003)",
    "Discord takes no more answers to this interaction: they are possible for 15 minutes",
    "two options have the id \"a\", so that Discord could not tell them apart",
    "Discord refused this here a moment ago, because the bot lacks a permission; nothing was sent",
    "Discord limits the rate; it asks to wait 7 s",
    "Discord did not answer: status 502",
    "Discord refused too many requests of this server in the last ten minutes, and would ban its address for more; \
     nothing was sent",
    "\"x\" is not a Discord channel id; it must be a number such as 1100000000000000101",
    "the thread was not created by this bot",
    "the thread was renamed in the meantime",
    "there is no such channel, or the bot may not see it",
    "Twilio refused it: The 'To' number is not a valid phone number. (status 400, error 21211)",
    "Twilio did not answer: status 502",
    "Twilio takes files of at most 5242880 bytes",
    "the person has opted out with STOP, and must send START first; nothing was sent",
    "the person has opted out with STOP, and must send START first (Twilio error 21610)",
    "\"ann\" is not a phone number; write it with its country: +15551234567",
    "SMS supports only sending texts and files",
    "WeCom refused it: the member is not there, or not in the visible range of the app; widen it in the admin console of WeCom \
     (user & party & tag all invalid, error 81013)",
    "WeCom refused it: too many calls in a short time (api freq out of limit, error 45009)",
    "WeCom refused it: system busy (error -1)",
    "WeCom did not answer: no answer: it took too long",
    "WeCom answered with status 403",
    "WeCom did not deliver it: \"ann\" is not a member of the company, or not in the visible range of the app; widen it in the \
     admin console of WeCom",
    "\"@all\" is not a chat of this app: it does not name one member",
    "the text does not fit into one message of 2048 bytes",
    "WeCom takes files of 6 to 20971520 bytes, and this has 3",
    "WeCom apps do not support edit",
    "too many files are on their way to WeCom; nothing was sent, try again in a few seconds",
    "it was not sent to WeCom: the socket of the robot is not open at this server; connect the agent to the server that has the \
     connection of the robot, or see `bot check`",
    "it was not sent to WeCom: too many messages wait for the socket of the robot",
    "it was not sent to WeCom: the socket was closed",
    "WeCom did not answer: its answer has no errcode",
    "it was not sent to WeCom: too many messages wait for an answer of WeCom",
    "WeCom streams only replies, and this server has seen no message of the chat lately",
    "WeCom robots do not support edit",
    "WhatsApp refused it: Message undeliverable (status 400, error 131026)",
    "WhatsApp did not answer: no answer: it took too long; the file was not sent",
    "the person has not written for 24 hours, and WhatsApp then takes templates only; wait until they write, or set a \
     template (`bot add ... --set template=NAME`); nothing was sent",
    "the person has not written for 24 hours, and the text does not fit into the template \"note\", which takes 1024 \
     characters; nothing was sent",
    "WhatsApp shows typing only after a message of the person, and this server has seen none lately",
    "WhatsApp takes files of at most 104857600 bytes",
    "\"ann\" is not an id of WhatsApp: a phone number with its country, in digits only",
    "the question went out, then: WhatsApp refused it: no (status 400, error 131009)",
    "signal-cli refused it: the recipient is not on Signal (-1)",
    "signal-cli did not answer: no answer: it took too long",
    "the safety number of the recipient has changed (identity failure); check it and run `signal-cli trust`",
    "Signal wants a captcha (proof required); see `signal-cli submitRateLimitChallenge`",
    "the bot is in no such group",
];

const CALL: &str = "ActionResult::refused(";
/// The text of a call is in it, or in a variable that was set this far before it.
const BEFORE_MAX: usize = 600;

/// The first string literal, without its escapes.
fn literal(code: &str) -> Option<String> {
    let (mut text, mut rest) = (String::new(), code.split_once('"')?.1.chars());
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => match rest.next()? {
                '\n' => rest = rest.as_str().trim_start().chars(),
                other => text.push(other),
            },
            letter => text.push(letter),
        }
    }
}

/// The texts of all calls in the sources below this folder.
fn texts_below(folder: &Path, found: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            texts_below(&path, found)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            let source = std::fs::read_to_string(&path)?;
            for (at, _) in source.match_indices(CALL) {
                let call = source[at..].split_once(';').map_or(&source[at..], |(call, _)| call);
                let before = &source[source.floor_char_boundary(at.saturating_sub(BEFORE_MAX))..at];
                let set = before.rfind("let ").map_or("", |at| &before[at..]);
                found.extend(literal(call).or_else(|| literal(set)).filter(|text| text.contains(' ')));
            }
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let crates = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| "crates".into()));
    let mut texts: BTreeSet<String> = BTreeSet::new();
    for folder in ["core", "platforms"] {
        texts_below(&crates.join(folder).join("src"), &mut texts)?;
    }
    assert!(texts.len() > 80, "{} texts in the sources", texts.len());
    texts.extend(TEXTS.iter().map(|text| (*text).to_owned()));
    let mut out = io::stdout().lock();
    let mut print = |result: &ActionResult| {
        let code = result.code.map_or("none", Code::name);
        let sent = result.ambiguous
            || matches!(result.code, Some(Code::Partial | Code::Unknown | Code::Timeout | Code::Internal) | None);
        writeln!(out, "{}", json!({ "code": code, "text": result.error, "sent": sent }))
    };
    for text in &texts {
        for code in CODES {
            let result = ActionResult::refused(code, text.as_str());
            print(&result)?;
            print(&ActionResult { ambiguous: true, ..result }.worded())?;
        }
    }
    print(&ActionResult::egress_declined("discord"))?;
    print(&ActionResult::capability_unavailable())
}
