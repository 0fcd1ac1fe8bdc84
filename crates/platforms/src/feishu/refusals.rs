//! What the codes of Feishu mean, and what can be done about them.

use frontdesk_wire::Code;

/// The access token is not valid (any more).
pub(super) const OF_TOKEN: [i64; 5] = [99_991_661, 99_991_663, 99_991_664, 99_991_668, 99_991_671];
/// The app or its secret is not known.
pub(super) const OF_APP: [i64; 5] = [10_003, 10_012, 10_014, 10_015, 99_991_543];
/// Too many requests: of the app, of a chat, of a message.
pub(super) const OF_RATE: [i64; 5] = [99_991_400, 230_020, 11_232, 11_233, 11_247];
/// A message with the same mark is being sent at the moment.
pub(super) const UNKNOWN_OUTCOME: i64 = 230_049;
/// There is no message of the id.
pub(super) const NO_MESSAGE: i64 = 231_003;
/// The message to answer was withdrawn, or is not there.
pub(super) const OF_ANCHOR: [i64; 4] = [230_011, 230_019, 230_110, NO_MESSAGE];
/// The bot is not there, as far as Feishu says.
pub(super) const OF_CHAT: [i64; 7] = [230_002, 232_001, 232_006, 232_009, 232_010, 232_011, 232_033];
/// It is not a message that this call can change: cards are changed by another one.
pub(super) const OF_KIND: [i64; 3] = [230_054, 230_055, 230_001];

/// What the operator or the people in the chat can do about it.
pub(super) fn remedy(code: i64) -> &'static str {
    match code {
        230_002 | 232_011 => "the bot is not in the chat: add it under the settings of the group > Bots",
        230_006 | 232_025 => "the app has no bot: turn it on under Features > Bot, and publish a version of the app",
        230_013 => {
            "the person is outside of the availability of the app: extend it under Version Management, and publish a version"
        }
        230_018 | 230_035 => "only some members may write in this group; the owner of the group can change that",
        230_022 => "the content filter of Feishu refused the text; change its wording",
        230_025 | 230_099 => "the message is too long, or has markup that Feishu does not take",
        230_027 => "the app lacks a permission for this chat: see Permissions & Scopes",
        230_038 => "the person belongs to another organization",
        230_053 => "the person has turned off messages from the bot",
        230_011 | 230_110 => "the message was withdrawn",
        231_003 | 230_019 => "there is no such message",
        230_071 => "only messages of the bot itself can be changed",
        230_072 => "Feishu allows 20 edits of a message",
        230_075 => "the settings of the organization do not allow edits after some time",
        230_026 => "only messages of the last 24 hours can be withdrawn, and only by the bot that sent them",
        231_001 => "Feishu has no such reaction",
        232_006 | 232_001 => "there is no such chat",
        232_009 => "the group was disbanded",
        232_010 | 232_033 => "the bot may not see this chat",
        99_991_672 | 99_991_679 => {
            "the app lacks a permission: add it under Permissions & Scopes, and publish a version of the app"
        }
        99_991_673 | 99_991_662 => {
            "the app is not enabled in this organization: publish a version, and let it be approved"
        }
        code if OF_APP.contains(&code) => {
            "app_id and app_secret do not belong together, or not to base_url (Feishu or Lark)"
        }
        code if OF_TOKEN.contains(&code) => {
            "the access token of the app was refused: repeat `bot add` with the app_secret"
        }
        _ => "",
    }
}

pub(super) fn code_of(code: i64) -> Code {
    match code {
        code if OF_TOKEN.contains(&code) || OF_APP.contains(&code) => Code::Unauthorized,
        230_011 | 230_019 | 230_110 | 231_003 | 232_001 | 232_006 | 232_009 => Code::NotFound,
        230_025 | 234_006 => Code::TooLarge,
        230_002 | 230_006 | 230_013 | 230_018 | 230_022 | 230_026 | 230_027 | 230_035 | 230_038 | 230_053 | 230_071
        | 230_072 | 230_075 | 232_010 | 232_011 | 232_025 | 232_033 | 99_991_672 | 99_991_673 | 99_991_662
        | 99_991_679 => Code::Forbidden,
        _ => Code::BadRequest,
    }
}
