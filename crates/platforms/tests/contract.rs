//! The contract of platforms, for every bundled one.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use frontdesk_core::port::platform::Bot;
use frontdesk_platforms::{Kit, NoMedia, default_settings, in_the_box, samples};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::platform_suite::{Subject, Unreachable, check};
use frontdesk_wire::Secret;

/// A complete bot of a platform, and ids as its vendor writes them.
struct Example {
    platform: &'static str,
    settings: &'static [(&'static str, &'static str)],
    secrets: &'static [(&'static str, &'static str)],
    chat_id: &'static str,
    message_id: &'static str,
}

/// Its messages mean something only with a homeserver that knows their room.
const NO_SAMPLES: [&str; 1] = ["matrix"];

const EXAMPLES: &[Example] = &[
    Example {
        platform: "discord",
        // Its socket is dialed by a library: a closed port of the loopback interface.
        settings: &[("base_url", "http://vendor.example/api/v10"), ("gateway_url", "ws://127.0.0.1:9")],
        secrets: &[("token", "MTEwMDAwMDAwMDAwMDAwMDAwMQ.secret.of-the-bot-of-discord")],
        chat_id: "1100000000000000101",
        message_id: "1100000000000000102",
    },
    Example {
        platform: "feishu",
        settings: &[("base_url", "http://vendor.example"), ("app_id", "cli_1"), ("mode", "socket")],
        secrets: &[("app_secret", "the-secret-of-the-app-of-feishu")],
        chat_id: "oc_5ad11d72b830411d72b836c20",
        message_id: "om_dc13264520392913993dd051dba21dcf",
    },
    Example {
        platform: "feishu",
        settings: &[("base_url", "http://vendor.example"), ("app_id", "cli_1"), ("mode", "events")],
        secrets: &[
            ("app_secret", "the-secret-of-the-app-of-feishu"),
            ("verification_token", "the-secret-verification-token"),
            ("encrypt_key", "the-secret-encrypt-key"),
        ],
        chat_id: "oc_5ad11d72b830411d72b836c20",
        message_id: "om_dc13264520392913993dd051dba21dcf",
    },
    Example {
        platform: "hooks",
        settings: &[],
        secrets: &[("key", "the-secret-key-of-the-webhook")],
        chat_id: "builds",
        message_id: "m1",
    },
    Example {
        platform: "matrix",
        settings: &[("homeserver_url", "http://vendor.example"), ("user_id", "@bot:vendor.example"), ("mode", "sync")],
        secrets: &[("access_token", "the-secret-token-of-matrix")],
        chat_id: "!room:vendor.example",
        message_id: "$event",
    },
    Example {
        platform: "matrix",
        settings: &[
            ("homeserver_url", "http://vendor.example"),
            ("user_id", "@bot:vendor.example"),
            ("mode", "appservice"),
        ],
        secrets: &[("as_token", "the-secret-as-token"), ("hs_token", "the-secret-hs-token")],
        chat_id: "!room:vendor.example",
        message_id: "$event",
    },
    Example {
        platform: "signal",
        settings: &[("url", "http://vendor.example"), ("account", "+15550001")],
        secrets: &[],
        chat_id: "group:R3JvdXA=",
        message_id: "1700000000000:0b6d7c9e-1111-4222-8333-444455556666",
    },
    Example {
        platform: "slack",
        settings: &[("base_url", "http://vendor.example/api"), ("mode", "socket")],
        secrets: &[("bot_token", "xoxb-1-2-secretOfTheBotOfSlack"), ("app_token", "xapp-1-A1-secretOfTheApp")],
        chat_id: "C024BE91L",
        message_id: "1700000000.000100",
    },
    Example {
        platform: "slack",
        settings: &[("base_url", "http://vendor.example/api"), ("mode", "events"), ("client_id", "1.2")],
        secrets: &[
            ("bot_token", "xoxb-1-2-secretOfTheBotOfSlack"),
            ("signing_secret", "the-secret-of-the-signature"),
            ("client_secret", "the-secret-of-the-client"),
        ],
        chat_id: "D024BE91L",
        message_id: "1700000000.000100",
    },
    Example {
        platform: "telegram",
        settings: &[("base_url", "http://vendor.example")],
        secrets: &[("token", "7001:AAsecretOfTheBotOfTelegramXX")],
        chat_id: "-1001000000001",
        message_id: "12",
    },
    Example {
        platform: "telegram",
        settings: &[("base_url", "http://vendor.example"), ("mode", "webhook")],
        secrets: &[("token", "7001:AAsecretOfTheBotOfTelegramXX"), ("webhook_secret", "the-secret-of-the-webhook")],
        chat_id: "501",
        message_id: "12",
    },
    Example {
        platform: "sms",
        settings: &[("base_url", "http://vendor.example"), ("account_sid", "AC0123"), ("from", "+15559990000")],
        secrets: &[("auth_token", "the-secret-auth-token")],
        chat_id: "+15550001111",
        message_id: "SM1",
    },
    Example {
        platform: "wecom",
        settings: &[("socket_url", "ws://vendor.example"), ("bot_id", "robot-1")],
        secrets: &[("secret", "the-secret-of-the-robot")],
        chat_id: "wrGroup",
        message_id: "m1",
    },
    Example {
        platform: "wecom_callback",
        settings: &[("base_url", "http://vendor.example"), ("corp_id", "ww5823bf96d3bd56c7"), ("agent_id", "1000002")],
        secrets: &[
            ("secret", "the-secret-of-the-app"),
            ("token", "the-token-of-the-callback"),
            ("aes_key", "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C"),
        ],
        chat_id: "ww5823bf96d3bd56c7:ann",
        message_id: "123",
    },
    Example {
        platform: "whatsapp_cloud",
        settings: &[("base_url", "http://vendor.example"), ("phone_number_id", "106540352242922")],
        secrets: &[
            ("access_token", "the-secret-access-token"),
            ("app_secret", "the-secret-of-the-app"),
            ("verify_token", "the-secret-verify-token"),
        ],
        chat_id: "15550001111",
        message_id: "wamid.1",
    },
];

/// The defaults of all platforms.
fn settings() -> toml::Table {
    let defaults: toml::Table = default_settings().parse().unwrap();
    defaults["platform"].as_table().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn every_platform_keeps_the_contract() {
    let vendor = Arc::new(Unreachable::default());
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: vendor.clone(),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: settings(),
    };
    let platforms = in_the_box(&kit).unwrap();
    for platform in &platforms {
        let name = &platform.descriptor().platform;
        assert!(EXAMPLES.iter().any(|it| it.platform == name), "{name} needs an example here");
        let has_sample = samples().iter().any(|it| it.platform() == name);
        assert!(
            has_sample || platform.doors().is_empty() || NO_SAMPLES.contains(&name.as_str()),
            "{name} needs a sample"
        );
    }
    for example in EXAMPLES {
        let platform = platforms.iter().find(|it| it.descriptor().platform == example.platform).unwrap();
        let settings = example.settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets = example.secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
        let bot = Bot::new("bot", Some("home".into()), settings, secrets);
        let values: Vec<&str> = example.secrets.iter().map(|(_, value)| *value).collect();
        let subject = Subject {
            platform: &**platform,
            bot: &bot,
            secrets: &values,
            chat_id: example.chat_id,
            message_id: example.message_id,
        };
        check(&subject, &vendor).await;
    }
    let urls = vendor.urls.lock().unwrap();
    let elsewhere: Vec<&String> =
        urls.iter().filter(|url| !url.starts_with("http://vendor.example") && !url.contains("files.example")).collect();
    assert!(elsewhere.is_empty() && !urls.is_empty(), "calls beside the base URL: {elsewhere:?}");
}
