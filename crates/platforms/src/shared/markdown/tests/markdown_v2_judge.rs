//! A strict parser of `MarkdownV2` by the published rules of the Bot API. It shares nothing with the renderer, and is
//! stricter than the server: no empty entity, no useless backslash, no code inside of another entity.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entity {
    Bold,
    Italic,
    Underline,
    Strike,
    Spoiler,
    Link,
}

struct Judge<'a> {
    rest: &'a str,
    text: String,
    /// With the length of the text when it was opened.
    open: Vec<(Entity, usize)>,
    quoted: bool,
    line_start: bool,
}

/// The text that users see, with the target behind each link that does not show it.
pub(super) fn visible(source: &str) -> Result<String, String> {
    let mut judge = Judge { rest: source, text: String::new(), open: Vec::new(), quoted: false, line_start: true };
    while !judge.rest.is_empty() {
        judge.step().map_err(|why| format!("{why} before {:?}", judge.rest.chars().take(40).collect::<String>()))?;
    }
    match judge.open.last() {
        Some((entity, _)) => Err(format!("{entity:?} is not closed")),
        None => Ok(judge.text),
    }
}

impl Judge<'_> {
    fn eat(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn escaped(&mut self) -> Result<char, String> {
        self.next().filter(|c| (1..=126).contains(&u32::from(*c))).ok_or_else(|| "a backslash alone".to_owned())
    }

    fn step(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.line_start) {
            let quoted = self.eat(">");
            if self.quoted && !self.open.is_empty() {
                return Err("an entity goes over the end of a line of a quote".into());
            }
            self.quoted = quoted;
            if quoted {
                return Ok(());
            }
        }
        if self.eat("```") {
            return self.pre();
        }
        if self.eat("`") {
            return self.code();
        }
        // Greedy: two underscores are always underline.
        for (marker, entity) in [
            ("__", Entity::Underline),
            ("_", Entity::Italic),
            ("*", Entity::Bold),
            ("~", Entity::Strike),
            ("||", Entity::Spoiler),
        ] {
            if self.eat(marker) {
                return self.toggle(entity);
            }
        }
        if self.eat("[") {
            if self.open.iter().any(|(entity, _)| *entity == Entity::Link) {
                return Err("a link in a link".into());
            }
            self.open.push((Entity::Link, self.text.len()));
            return Ok(());
        }
        if self.eat("]") {
            return self.link();
        }
        match self.next() {
            Some('\\') => {
                let c = self.escaped()?;
                self.text.push(c);
            }
            Some(c) if "()>#+-=|{}.!".contains(c) => return Err(format!("{c:?} is reserved")),
            Some(c) => {
                self.text.push(c);
                self.line_start = c == '\n';
            }
            None => {}
        }
        Ok(())
    }

    fn toggle(&mut self, entity: Entity) -> Result<(), String> {
        match self.open.iter().position(|(open, _)| *open == entity) {
            None => self.open.push((entity, self.text.len())),
            Some(at) if at + 1 == self.open.len() => {
                let from = self.open.pop().map_or(0, |(_, from)| from);
                if self.text.len() == from {
                    return Err(format!("{entity:?} is empty"));
                }
            }
            Some(_) => return Err(format!("{entity:?} is closed before what is inside of it")),
        }
        Ok(())
    }

    fn link(&mut self) -> Result<(), String> {
        let Some((Entity::Link, from)) = self.open.pop() else { return Err("] closes nothing".into()) };
        if !self.eat("(") {
            return Err("a link without a target".into());
        }
        let mut url = String::new();
        loop {
            match self.next().ok_or("the target of a link does not end")? {
                ')' => break,
                '\\' => url.push(self.escaped()?),
                c if c.is_whitespace() => return Err("a blank in a target".into()),
                c => url.push(c),
            }
        }
        if self.text.len() == from || url.is_empty() {
            return Err("an empty link".into());
        }
        if self.text[from..] != url {
            self.text.push_str(&format!(" ({url})"));
        }
        Ok(())
    }

    fn code(&mut self) -> Result<(), String> {
        if !self.open.is_empty() {
            return Err("code in another entity".into());
        }
        let from = self.text.len();
        loop {
            match self.next().ok_or("code is not closed")? {
                '`' => break,
                '\\' => {
                    let c = self.escaped()?;
                    self.text.push(c);
                }
                '\n' => return Err("a line end in code".into()),
                c => self.text.push(c),
            }
        }
        if self.text.len() == from { Err("code is empty".into()) } else { Ok(()) }
    }

    fn pre(&mut self) -> Result<(), String> {
        if !self.open.is_empty() || self.quoted {
            return Err("a block of code in another entity".into());
        }
        let (language, rest) = self.rest.split_once('\n').ok_or("a block of code without a line")?;
        if language.contains(['`', '\\', ' ']) {
            return Err("a malformed language".into());
        }
        self.rest = rest;
        loop {
            if self.eat("```") {
                return Ok(());
            }
            match self.next().ok_or("a block of code is not closed")? {
                '`' => return Err("a backtick in a block of code".into()),
                '\\' => {
                    let c = self.escaped()?;
                    self.text.push(c);
                }
                c => self.text.push(c),
            }
        }
    }
}

#[test]
fn the_judge_refuses_what_the_rules_forbid() {
    for bad in [
        "a.",
        "a-b",
        "*a",
        "_a__b_",
        "*a_b*c_",
        "**",
        "[a]",
        "[a](b",
        "[a]()",
        "\\",
        "`a",
        "``",
        "```\na",
        "*`a`*",
        "a > b",
        ">*a\n>b*",
        "[a [b](c)](d)",
        "||",
        "__a_",
    ] {
        assert!(visible(bad).is_err(), "{bad}");
    }
    for (good, text) in [
        ("*a _b_* ~c~", "a b c"),
        ("a\\.b", "a.b"),
        (">a\n>b\nc", "a\nb\nc"),
        ("[a](b\\)c)", "a (b)c)"),
        ("```rust\na\\`\n```", "a`\n"),
        ("__a__ `\\\\`", "a \\"),
    ] {
        assert_eq!(visible(good).as_deref(), Ok(text), "{good}");
    }
}
