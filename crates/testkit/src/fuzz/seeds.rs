//! Seeds of the targets: the golden files of `crates/wire`, and inputs written for each parser.

use frontdesk_wire::Secret;
use frontdesk_wire::token::mint;

/// Golden files by name.
macro_rules! golden {
    ($($name:literal),* $(,)?) => {
        vec![$(include_str!(concat!("../../../wire/tests/golden/", $name, ".json")).trim_end().as_bytes().to_vec()),*]
    };
}

fn with(mut seeds: Vec<Vec<u8>>, more: &[&str]) -> Vec<Vec<u8>> {
    seeds.extend(more.iter().map(|text| text.as_bytes().to_vec()));
    seeds
}

pub(super) fn frames() -> Vec<Vec<u8>> {
    let seeds = golden![
        "gateway_going_idle",
        "gateway_hello",
        "gateway_hello_manifest",
        "gateway_inbound_ack",
        "gateway_interrupt",
        "gateway_interrupt_null",
        "gateway_outbound",
        "gateway_outbound_bare",
        "gateway_unknown_fields",
        "gateway_unknown_type",
        "action_delete",
        "action_draft",
        "action_edit",
        "action_follow_up",
        "action_get_chat_info",
        "action_prompt",
        "action_react",
        "action_send",
        "action_send_media",
        "action_thread_create",
        "action_thread_rename",
        "action_typing",
    ];
    let more = [
        r#"{"type":"hello","platform":"relay","botId":"b","ready":true}"#,
        r#"{"type":"inbound_ack","bufferId":"0a1b2c3d-7-42"}"#,
        r#"{"type":"outbound","requestId":"r"}"#,
        r#"["hello","relay"]"#,
        r#"{"op":"draft","chat_id":"c","draft_id":17,"final":true,"metadata":{"thread_id":"t"}}"#,
    ];
    with(seeds, &more)
}

/// Messages separated by NUL bytes; a line has at most 64 bytes.
pub(super) fn lines() -> Vec<Vec<u8>> {
    let long = "x".repeat(64);
    let more = [
        "a\nb\n\n  \nc\n",
        "a\0b\0c\nd\0\n",
        "unfinished",
        "\r\n\0\r\n",
        &format!("{long}\n"),
        &format!("{long}\0y\n"),
    ];
    with(Vec::new(), &more)
}

/// `bearer NUL gateway NUL expiry`
pub(super) fn tokens() -> Vec<Vec<u8>> {
    let secret = Secret::new("a secret of a seed");
    let minted = |id: &str, exp_s: u64| format!("{}\0{id}\0{exp_s}", mint(id, &secret, exp_s));
    let more = [minted("gw-1", 0), minted("a:b:c", 1_700_000_300), minted("é 1", u64::MAX), "Zzo\0\0".to_owned()];
    with(Vec::new(), &more.each_ref().map(String::as_str))
}

pub(super) fn manage_bodies() -> Vec<Vec<u8>> {
    let seeds = golden![
        "chat_post",
        "chat_press",
        "chat_settings",
        "enroll_request",
        "explanation",
        "policy",
        "provision_reply",
        "provision_request",
    ];
    let more = [
        r#"{"platform":"relay"}"#,
        r#"{"platform":"relay","scope_id":"g","channel_id":"c","tenant":"home"}"#,
        r#"{"policy":"allow-list","allow":["u-1"]}"#,
        r#"{"platform":"relay","user_id":"u","tenant":"home","instance":"i"}"#,
        r#"{"members":null}"#,
        r#"{"members":["u-1","u-2"],"name":"n"}"#,
        r#"{"tenant":"home","scope":"agents","instance":"i","ttl_s":60}"#,
        r#"{"platform":"relay","id":"b","tenant":"home","settings":{"url":"u"},"secrets":{"key":"s"}}"#,
        r#"{"platform":"relay","key":"k","tenant":"home"}"#,
        r#"{"id":"g","tenant":"home","instance":"i","wake_url":"https://agent.example/wake"}"#,
        r#"{"name":"n","reason":"r"}"#,
    ];
    with(seeds, &more)
}

pub(super) fn agent_bodies() -> Vec<Vec<u8>> {
    let seeds = golden![
        "agent_delivery_augment",
        "agent_delivery_receipt",
        "agent_delivery_template",
        "agent_descriptor",
        "agent_dispatch",
        "agent_fault",
        "agent_inbox",
        "agent_notified",
        "agent_notify",
        "agent_put",
        "agent_reply",
        "agent_reply_post",
        "agent_state",
        "agent_wake_opts",
        "agent_wake_opts_now",
        "agent_wake_receipt",
        "agent_wake_receipt_later",
        "data_portable",
        "data_portable_bare",
        "data_query",
        "data_write",
        "data_written",
        "manifest_info",
        "skill_filter",
        "skill_meta",
        "skill_put",
        "skill_source",
        "skill_version",
    ];
    let more = [
        r#"{"type":"webhook","url":"https://agent.example/in","timeout_ms":5000}"#,
        r#"{"type":"noop"}"#,
        r#"{"status":["Draft","Approved"],"tag":"a","since":1,"offset":0,"limit":10}"#,
        r#"{"query":"tea","limit":3,"mode":"any","permissive_filters":true,"domain_tags":["a"]}"#,
        r#"{"versions":[]}"#,
        r#"{"items":[]}"#,
    ];
    with(seeds, &more)
}

pub(super) fn cron_bodies() -> Vec<Vec<u8>> {
    let more = [
        r#"{"job_id":"j","fire_at":"2030-01-01T00:00:00Z","agent_callback_url":"https://agent.example"}"#,
        r#"{"job_id":"j","fire_at":"2030-01-01T00:00:00+02:00","agent_callback_url":"relay:","dedup_key":"d","misfire":{"grace_s":60,"on_miss":"skip"}}"#,
        r#"{"grace_s":null,"on_miss":"fire"}"#,
        r#"{"armed":[{"job_id":"j","fire_at":"2030-01-01T00:00:00Z","schedule_id":"sh_1"}]}"#,
        r#"{"history":[{"id":1,"job_id":"j","fire_at":"2030-01-01T00:00:00Z","schedule_id":"sh_1","outcome":"fired","attempts":1,"at":2,"note":""}]}"#,
        r#"{"agent_id":"a","job_id":"j","fire_at":"2030-01-01T00:00:00Z"}"#,
        r#"{"schedule_id":"sh_1"}"#,
    ];
    with(Vec::new(), &more)
}

pub(super) fn events() -> Vec<Vec<u8>> {
    golden![
        "event_agent_message",
        "event_full",
        "event_minimal",
        "passthrough_forward",
        "desk_descriptor",
        "desk_going_idle_ack",
        "desk_inbound",
        "desk_interrupt_inbound",
        "desk_outbound_result",
        "desk_passthrough_forward",
        "result_ambiguous",
        "result_chat_info",
        "result_partial",
        "result_sent",
    ]
}

/// Sources of the platforms with special keys, and session names.
pub(super) fn sources() -> Vec<Vec<u8>> {
    let more = [
        r#"{"platform":"relay","chat_id":"c"}"#,
        r#"{"platform":"telegram","chat_id":"42","chat_type":"dm","thread_id":"7"}"#,
        r#"{"platform":"discord","chat_id":"th","chat_type":"thread","user_id":"u","thread_id":"th","scope_id":"g","guild_id":"g"}"#,
        r#"{"platform":"discord","chat_id":"c","chat_type":"group","user_id":"u","prospective_thread_id":"t"}"#,
        r#"{"platform":"slack","chat_id":"C1","chat_type":"channel","user_id":"U1","message_id":"17.5","scope_id":"T1","guild_id":"T1","profile":"main"}"#,
        r#"{"platform":"whatsapp","chat_id":" +4912:47@s.whatsapp.net ","chat_type":"dm"}"#,
        r#"{"platform":"whatsapp","chat_id":"g@g.us","chat_type":"group","user_id":"99@lid","user_id_alt":"++12"}"#,
        r#"{"platform":"relay","chat_id":"","chat_type":"","user_id":"u","profile":"default"}"#,
        "agent:main~:slack:group:T1:C1:U1",
        "agent:main:discord:group:c:u",
        "agent:main:relay:dm:c",
        "agent:main",
    ];
    with(Vec::new(), &more)
}

/// The first line is the address, the others are registered ids.
pub(super) fn addresses() -> Vec<Vec<u8>> {
    with(
        Vec::new(),
        &[
            "alice\nalice",
            "alice@term-1\nalice\nbob",
            "a@b.example@tab\na@b.example\na",
            "a@b@c\na\na@b",
            "bob@\nbob",
            "@\n",
        ],
    )
}

pub(super) fn skills() -> Vec<Vec<u8>> {
    let more = [
        "# Skill: hello\n# Status: Approved v1:abc\n# Tags: a, B, a\n# Description: says hello\n\nSay hello.\n",
        "# Skill:\n\n hello\n\n\nbody",
        "  # status : draft  \r\n\r\nbody",
        "#Status:disabled\u{2028}# Skill: x",
        "body without a header",
        "hello-1.2_x",
    ];
    with(Vec::new(), &more)
}

/// Two bytes of limit, one byte of unit, then the text.
pub(super) fn texts() -> Vec<Vec<u8>> {
    let code = "    let line = 1; // a line of code\n".repeat(12);
    let more = [
        "\u{b}\0\0aaaa\nbb\n\ncccc dd".to_owned(),
        "\u{b}\0\u{1}😀😀😀 👨\u{200d}👩\u{200d}👧\u{200d}👦".to_owned(),
        format!("\u{2}\u{1}\0Look:\n```rust\n{code}```\nDone."),
        format!("\u{2}\u{1}\u{1}Look:\n~~~~ text\n```\n{code}~~~~\nDone."),
        format!("\u{1}\u{1}\0```\ncode\n```\n{}", "a run ```` and ~~~~~~~~ within a line ".repeat(12)),
        format!("d\0\0{}", "word and word, ".repeat(40)),
        format!("d\0\0```\n{}\n```", "x".repeat(300)),
    ];
    with(Vec::new(), &more.each_ref().map(String::as_str))
}
