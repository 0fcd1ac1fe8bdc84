//! Random markdown, and inputs made to be slow.

use std::time::Duration;

use proptest::prelude::*;

use super::super::{Dialect, Unit, render};
use super::judge::{UNITS, judged};

/// Pieces that matter to the syntax, put together at random.
const PIECES: &[&str] = &[
    "*",
    "**",
    "_",
    "__",
    "***",
    "~~",
    "`",
    "``",
    "```",
    "```rust\n",
    "~~~\n",
    "\n",
    "\n\n",
    "  \n",
    "> ",
    "- ",
    "1. ",
    "9) ",
    "- [ ] ",
    "- [x] ",
    "# ",
    "### ",
    "---\n",
    "| a | b |\n|---|---|\n",
    "| `x\\|y` | c |\n",
    "|",
    "[",
    "](",
    ")",
    "](https://e.org/a_(b)_c)",
    "![",
    "<https://e.org/?a=1&b=2>",
    "https://e.org/x_y_z.",
    "<b>",
    "<br>",
    "&amp;",
    "&lt;",
    "\\*",
    "\\",
    "  ",
    "    ",
    "\t",
    " ",
    "a",
    "word ",
    "end. ",
    "snake_case_name",
    "_x_",
    "é",
    "e\u{301}",
    "👨‍👩‍👧‍👦",
    "🇩🇪",
    "שלום ",
    "\u{200d}",
    "\u{200b}",
    "漢字。",
    "||",
    "{}",
    "!",
    "=",
    "+",
    "<@1>",
    "@a",
    "mailto:a@b.c",
    "<a@b.c>",
    "\0",
    "\r\n",
    "(",
    "]",
];

fn markdown() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_markdown_keeps_all_properties(
        text in markdown(),
        limit in prop::sample::select(vec![8usize, 9, 12, 20, 33, 64, 120, 400, 4096]),
        unit in prop::sample::select(UNITS.to_vec()),
    ) {
        for dialect in Dialect::ALL {
            judged(dialect, &text, limit, unit);
        }
    }

    #[test]
    fn random_text_keeps_all_properties(text in "\\PC{0,200}", limit in 8usize..200) {
        for dialect in Dialect::ALL {
            judged(dialect, &text, limit, Unit::Utf16);
        }
    }
}

/// Each was chosen because it is quadratic, or overflows the stack, in some renderer.
#[test]
fn deep_and_long_inputs_take_linear_time() {
    let bytes = std::env::var("SLOW_INPUT_BYTES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    for piece in [
        ">",
        "> ",
        "[",
        "*",
        "_",
        "**a ",
        "*a_ ",
        "- ",
        "1. ",
        "`",
        "``a",
        "~~",
        "<",
        "![",
        "](",
        "[a](",
        "\\",
        "|",
        "|\n",
        "&",
        "a\n\n",
        "- a\n",
        "> a\n\n",
        "\u{301}",
        "🇩",
        "http://",
        "(",
        "<b>",
        "#",
        "\n",
        " ",
        "[a](http://e.org)",
        "**a**",
        "`a`",
    ] {
        let input = piece.repeat(bytes / piece.len());
        for input in [format!("a | b\n-|-\n{input}"), input] {
            for dialect in [Dialect::Telegram, Dialect::Matrix] {
                let start = now();
                render(dialect, &input, 4096, Unit::Utf16);
                let took = now() - start;
                if took > Duration::from_millis(500) {
                    println!("{dialect:?} {:?} took {took:?}", input.chars().take(24).collect::<String>());
                }
                assert!(took < Duration::from_secs(20), "{dialect:?} {piece:?} took {took:?}");
            }
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a test of speed measures")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[test]
fn a_megabyte_is_rendered() {
    let section = include_str!("../goldens/answer.md");
    let text = section.repeat(1_000_000 / section.len() + 1);
    for (dialect, limit, unit) in [
        (Dialect::Telegram, 4096, Unit::Utf16),
        (Dialect::Matrix, 16_000, Unit::Chars),
        (Dialect::Discord, 2_000, Unit::Chars),
        (Dialect::Slack, 39_000, Unit::Chars),
        (Dialect::WhatsApp, 4_096, Unit::Chars),
        (Dialect::Plain, 1_600, Unit::Chars),
        (Dialect::Plain, 2_048, Unit::Bytes),
    ] {
        let start = now();
        let parts = render(dialect, &text, limit, unit);
        let took = now() - start;
        println!("{dialect:?}: {} bytes in {} parts of {limit} took {took:?}", text.len(), parts.len());
        let least = text.len() / limit / 2;
        assert!(parts.len() > least && parts.len() < least * 6, "{}", parts.len());
        assert!(took < Duration::from_mins(1));
    }
}
