//! Error numbers of `WeCom`, with texts that help.

use frontdesk_wire::Code;

/// The token is not valid, or no longer: a new one may be.
pub(super) const TOKEN: [i64; 4] = [40_001, 40_014, 41_001, 42_001];
/// There is no such file, or no longer.
pub(super) const FILE_GONE: i64 = 40_007;
/// "The system is busy": nothing was done.
const BUSY: i64 = -1;

/// What to do about it, where more can be said than the vendor does.
fn hint(code: i64) -> Option<&'static str> {
    Some(match code {
        40_001 | 40_091 => "the secret is not that of the app, or of this company; copy it again and repeat `bot add`",
        40_013 => "corp_id is not the id of a company; it begins with ww or wx",
        40_014 | 41_001 | 42_001 => "the access token was not accepted, although it is new",
        40_056 | 301_002 => "agent_id is not the AgentId of the app that the secret belongs to",
        40_003 | 46_004 | 60_111 => "there is no such member in the company",
        40_007 => "the file does not exist, or is older than three days",
        40_004 | 40_009 | 45_001 => "WeCom does not take a file of this type or size",
        44_004 => "the text is empty",
        45_002 => "the text is too long",
        45_009 | 45_033 | 846_607 => "too many calls in a short time",
        48_002 | 48_005 => "the app may not use this interface; grant it in the admin console of WeCom",
        50_003 => "the app is disabled; enable it in the admin console of WeCom",
        60_011 => "the member is not in the visible range of the app",
        60_020 => {
            "the address of this server is not on the app's list of trusted IPs; add it in the admin console of WeCom, at the \
             app, \"Trusted IPs\""
        }
        81_013 => {
            "the member is not there, or not in the visible range of the app; widen it in the admin console of WeCom"
        }
        93_000 | 846_605 => "WeCom accepts no reply to a message this old; send a new message",
        _ => return None,
    })
}

/// The vendor's own text, what it means, and the number.
pub(super) fn error_text(code: i64, message: &str) -> String {
    // The vendor adds a page of hints of its own, with ids of the request and the address of the caller.
    let message = message.split(", hint:").next().unwrap_or_default().split(", more info").next().unwrap_or_default();
    let message: String = message.chars().take(300).collect();
    let message = if message.is_empty() { "no reason given".to_owned() } else { message };
    match hint(code) {
        Some(hint) => format!("{hint} ({message}, error {code})"),
        None => format!("{message} (error {code})"),
    }
}

pub(super) fn code_of(code: i64) -> Code {
    match code {
        BUSY => Code::Unavailable,
        45_009 | 45_033 | 846_607 => Code::RateLimited,
        48_002 | 48_005 | 50_003 | 60_011 | 60_020 => Code::Forbidden,
        40_003 | 40_007 | 46_004 | 60_111 | 81_013 => Code::NotFound,
        40_004 | 40_008 | 40_058 | 44_004 => Code::BadRequest,
        40_009 | 45_001 | 45_002 => Code::TooLarge,
        _ => Code::PlatformFailed,
    }
}

/// How long to pause. The vendor does not say; its limits are for a minute.
pub(super) fn retry_after_ms(code: i64) -> Option<u64> {
    match code {
        45_033 => Some(1_000),
        45_009 | 846_607 => Some(60_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let text = error_text(
            60_020,
            "not allow to access from your ip, hint: [1700_x], from ip: 1.2.3.4, more info at https://x",
        );
        assert!(text.contains("Trusted IPs") && text.contains("60020") && !text.contains("1.2.3.4"), "{text}");
        assert_eq!(error_text(7, ""), "no reason given (error 7)");
        assert_eq!((code_of(45_009), retry_after_ms(45_009)), (Code::RateLimited, Some(60_000)));
        assert_eq!(
            (code_of(81_013), code_of(48_002), code_of(-1)),
            (Code::NotFound, Code::Forbidden, Code::Unavailable)
        );
        assert_eq!((code_of(40_001), retry_after_ms(0)), (Code::PlatformFailed, None));
    }
}
