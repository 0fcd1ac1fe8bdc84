//! Single rules, each with the smallest input that shows it.

use super::super::{Dialect, Rendered, Unit, render};
use super::goldens;
use super::judge::judged;

/// All inputs of the goldens.
pub(super) fn inputs() -> Vec<String> {
    goldens::inputs().iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

fn one(dialect: Dialect, text: &str) -> String {
    let parts = judged(dialect, text, 4_096, Unit::Utf16);
    assert_eq!(parts.len(), 1, "{parts:?}");
    parts[0].markup.clone()
}

fn parts(dialect: Dialect, text: &str, limit: usize) -> Vec<String> {
    judged(dialect, text, limit, Unit::Utf16).into_iter().map(|part| part.markup).collect()
}

#[test]
fn nothing_to_show_is_no_message() {
    for text in ["", " ", "\n\n\t \n", "\r\n", "```\n```", "&nbsp;"] {
        for dialect in Dialect::ALL {
            assert_eq!(render(dialect, text, 100, Unit::Chars), [] as [Rendered; 0], "{text:?}");
        }
    }
}

#[test]
fn markers_of_telegram_are_never_ambiguous() {
    for (text, markup) in [
        ("***a***", "*_a_*"),
        ("*a **b** c*", "_a *b* c_"),
        ("**a *b***", "*a _b_*"),
        ("*a*_b_", "_ab_"),
        ("*a*&#8203;*b*", "_a_\u{200B}_b_"),
        ("**`a`** b", "`a` b"),
        ("`a`**`b`**", "`ab`"),
        ("**a [b `c`](http://e.org) d**", "*a [b c](http://e.org) d*"),
        ("[a](http://e.org/x\\))", "[a](http://e.org/x\\))"),
        ("`` a`b\\c ``", "`a\\`b\\\\c`"),
        ("> a\n> > b", ">a\n>\n>\\> b"),
        ("- > a", ">• a"),
        ("a_b_c 1.5 - #x", "a\\_b\\_c 1\\.5 \\- \\#x"),
        ("<a@b.org>", "a@b\\.org"),
        ("[a](/rel)", "a \\(/rel\\)"),
        ("a~b", "a\\~b"),
        ("**a**[**b** c](http://e.org)", "*a*[*b* c](http://e.org)"),
    ] {
        assert_eq!(one(Dialect::Telegram, text), markup, "{text}");
    }
}

#[test]
fn html_is_escaped_and_links_are_restricted() {
    for (text, markup) in [
        ("<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"),
        ("[x](javascript:alert)", "<p>x (javascript:alert)</p>"),
        ("[x](https://e.org/?a=\"&b)", "<p><a href=\"https://e.org/?a=%22&amp;b\">x</a></p>"),
        ("1. a\n2. b\n   - c", "<ol><li>a</li><li>b<ul><li>c</li></ul></li></ol>"),
        ("4. a", "<ol start=\"4\"><li>a</li></ol>"),
        ("a\nb", "<p>a<br>b</p>"),
        ("|a|\n|-|\n|**b**|", "<table><thead><tr><th>a</th></tr></thead><tr><td><strong>b</strong></td></tr></table>"),
    ] {
        assert_eq!(one(Dialect::Matrix, text), markup, "{text}");
    }
}

#[test]
fn dialects_without_escapes_get_broken_markers() {
    for (dialect, text, markup) in [
        (Dialect::Slack, "\\*a\\* <@U1> & b", "*\u{200B}a*\u{200B} &lt;@U1&gt; &amp; b"),
        (Dialect::Slack, "un**frig**able", "un\u{200B}*frig*\u{200B}able"),
        (Dialect::Slack, "2 * 3 * 4 snake_case", "2 * 3 * 4 snake_case"),
        (Dialect::Slack, "[a|b](https://e.org/?x=1&y=2|3)", "<https://e.org/?x=1&amp;y=2%7C3|a|b>"),
        (Dialect::Slack, "https://e.org/a_b_.", "<https://e.org/a_b>_\u{200B}."),
        (Dialect::WhatsApp, "~~a~~ [b](https://e.org)", "~a~ b (https://e.org)"),
        (Dialect::WhatsApp, "\\> a", "\u{200B}> a"),
        (
            Dialect::Feishu,
            "**a** *b* ~~c~~ `d` [e](https://e.org/(x))",
            "**a** *b* ~~c~~ `d` [e](https://e.org/%28x%29)",
        ),
        (Dialect::Feishu, "\\*a\\* \\[b](c) 2 * 3", "*\u{200B}a*\u{200B} [b]\u{200B}(c) 2 * 3"),
        (Dialect::Feishu, "# Head\n\n- one\n- two", "**Head**\n\n- one\n- two"),
        (Dialect::Discord, "__init__ a_b ||x|| 1\\. \\# c", "**init** a_b \\|\\|x\\|\\| 1. # c"),
        (Dialect::Discord, "\\# c", "\\# c"),
        (Dialect::Discord, "<https://e.org/_a_>", "<https://e.org/_a_>"),
        (Dialect::Discord, "[https://a.org](https://b.org)", "https://a.org (<https://b.org>)"),
        (Dialect::Discord, "`` a`b ``", "``a`b``"),
    ] {
        assert_eq!(one(dialect, text), markup, "{text}");
    }
}

#[test]
fn cuts_are_between_blocks_lines_sentences_and_words() {
    let cut = |text: &str, limit| parts(Dialect::Plain, text, limit);
    assert_eq!(cut("aaaa\nbb\n\ncccc dd", 12), ["aaaa\nbb", "cccc dd"]);
    assert_eq!(cut("aaaa bb\ncc dd", 10), ["aaaa bb", "cc dd"]);
    assert_eq!(cut("aaaa. bbbb cccc dddd", 14), ["aaaa.", "bbbb cccc dddd"]);
    assert_eq!(cut("aaaa bbbb cccc", 9), ["aaaa bbbb", "cccc"]);
    assert_eq!(cut("aaaaaaaaaaaa", 8), ["aaaaaaaa", "aaaa"]);
    let family = "👨‍👩‍👧‍👦";
    assert_eq!(cut(&format!("ab{family}{family}"), 13), [format!("ab{family}"), family.to_owned()]);
    assert_eq!(cut("# Head\n\naaaa aaaa\n\n# Next\n\nbbbb bbbb", 28), ["Head\n\naaaa aaaa", "Next\n\nbbbb bbbb"]);
}

#[test]
fn what_is_cut_is_closed_and_opened_again() {
    assert_eq!(parts(Dialect::Telegram, "**aaaa bbbb *cccc dddd***", 14), ["*aaaa bbbb*", "*_cccc dddd_*"]);
    let code = "```rust\nlet a = 1;\nlet b = 2;\n```";
    assert_eq!(parts(Dialect::Telegram, code, 28), ["```rust\nlet a = 1;\n```", "```rust\nlet b = 2;\n```"]);
    assert_eq!(
        parts(Dialect::Matrix, "> aaaa\n> bbbb", 40),
        ["<blockquote><p>aaaa</p></blockquote>", "<blockquote><p>bbbb</p></blockquote>"]
    );
    // What is left of an item has no second marker.
    assert_eq!(parts(Dialect::Plain, "1. aaaa bbbb\n2. c", 8), ["1. aaaa", "bbbb", "2. c"]);
    assert_eq!(
        parts(Dialect::Matrix, "1. aaaa bbbb cccc\n2. c", 30),
        ["<ol><li>aaaa bbbb</li></ol>", "<p>cccc</p>", "<ol start=\"2\"><li>c</li></ol>"]
    );
}

#[test]
fn limits_count_in_the_unit_of_the_vendor() {
    let count = |unit| judged(Dialect::Plain, &"😀".repeat(16), 16, unit).len();
    assert_eq!((count(Unit::Chars), count(Unit::Utf16), count(Unit::Bytes)), (1, 2, 4));
}

#[test]
fn a_target_that_is_too_long_becomes_text() {
    let url = format!("https://e.org/{}", "x".repeat(100));
    let all: String = parts(Dialect::Telegram, &format!("[a]({url})"), 60).concat();
    assert!(!all.contains("]("), "{all}");
    assert!(all.replace('\\', "").contains(&url), "{all}");
}

#[test]
fn what_the_parser_drops_is_shown() {
    let shown = |text| one(Dialect::Plain, text);
    assert_eq!(shown("[10:30]: started\n\n[b]: /used \"t\"\n\n[b]"), "[10:30]: started\n\nb (/used)");
    assert_eq!(shown("* ---\n  a"), "• ———\n  a");
    assert_eq!(shown("|a|\n|-|\n|b|c|*d*|"), "a\n--+------\nb | c|*d*");
}
