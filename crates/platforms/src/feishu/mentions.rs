//! Who is mentioned in a message. Texts have placeholders (`@_user_1`), and a list says who they are. Texts become the
//! same as in the gateway's own adapter.

use serde_json::Value;

use super::value::text_of;

pub(super) const EVERYBODY: &str = "@_all";
const PLACEHOLDER: &str = "@_user_";
/// What may follow the name of the bot at the beginning of a text.
const BOUNDARY: &str = " \t\n\r.,;:!?、，。；：！？()[]{}<>\"'`";
/// What may follow it at the end.
const TERMINAL: &str = " \t\n\r.!?。！？";

/// Who the bot is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Me {
    pub(super) open_id: String,
    pub(super) name: String,
}

impl Me {
    /// The id decides; a name only where one of the ids is not known.
    fn is(&self, open_id: &str, name: &str) -> bool {
        match (open_id.is_empty(), self.open_id.is_empty()) {
            (false, false) => self.open_id == open_id,
            _ => !self.name.is_empty() && self.name == name,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mention {
    name: String,
    open_id: String,
    is_all: bool,
    pub(super) is_self: bool,
}

impl Mention {
    pub(super) fn shown(&self) -> &str {
        super::value::first([self.name.as_str(), &self.open_id, "user"])
    }
}

/// By placeholder, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Mentions(Vec<(String, Mention)>);

impl Mentions {
    /// Events name an object of ids, the API one id and its kind.
    pub(super) fn of(list: &[Value], me: &Me) -> Self {
        let mut all = Self::default();
        for mention in list {
            let key = text_of(mention, "key");
            if key == EVERYBODY {
                all.note_all();
            } else if !key.is_empty() {
                let id = &mention["id"];
                let open_id = match (id.as_str(), text_of(mention, "id_type")) {
                    (Some(id), "open_id") => id,
                    (Some(_), _) => "",
                    (None, _) => text_of(id, "open_id"),
                };
                let name = text_of(mention, "name").trim();
                let is_self = me.is(open_id, name);
                let mention = Mention { name: name.into(), open_id: open_id.into(), is_all: false, is_self };
                all.put(key, mention);
            }
        }
        all
    }

    fn put(&mut self, key: &str, mention: Mention) {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = mention,
            None => self.0.push((key.to_owned(), mention)),
        }
    }

    /// Feishu does not always list it.
    pub(super) fn note_all(&mut self) {
        if self.get(EVERYBODY).is_none() {
            self.put(EVERYBODY, Mention { is_all: true, ..Mention::default() });
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Mention> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, mention)| mention)
    }

    fn all(&self) -> impl Iterator<Item = &Mention> {
        self.0.iter().map(|(_, mention)| mention)
    }

    pub(super) fn has_self(&self) -> bool {
        self.all().any(|mention| mention.is_self)
    }

    pub(super) fn has_all(&self) -> bool {
        self.all().any(|mention| mention.is_all)
    }

    /// Who else is mentioned, with ids by which an agent can name them.
    pub(super) fn hint(&self) -> Option<String> {
        let mut seen: Vec<&Mention> = Vec::new();
        for mention in self.all().filter(|mention| !mention.is_self) {
            if !seen.contains(&mention) {
                seen.push(mention);
            }
        }
        let known = |name: &str| if name.is_empty() { "unknown".to_owned() } else { name.to_owned() };
        let shown = seen.iter().map(|mention| match mention {
            Mention { is_all: true, .. } => "@all".to_owned(),
            Mention { open_id, name, .. } if !open_id.is_empty() => format!("{} (open_id={open_id})", known(name)),
            Mention { name, .. } => known(name),
        });
        let shown: Vec<String> = shown.collect();
        (!shown.is_empty()).then(|| format!("[Mentioned: {}]", shown.join(", ")))
    }

    /// The text without mentions of the bot at its edges. Those within a sentence stay.
    pub(super) fn without_self(&self, text: &str) -> String {
        let names: Vec<String> = self.all().filter(|it| it.is_self).map(|it| format!("@{}", it.shown())).collect();
        if text.is_empty() || names.is_empty() {
            return text.to_owned();
        }
        let mut rest = text.trim_start_matches(is_space);
        let follows = |rest: &str| rest.chars().next().is_none_or(|c| BOUNDARY.contains(c));
        while let Some(after) = names.iter().find_map(|name| rest.strip_prefix(name.as_str()).filter(|it| follows(it)))
        {
            rest = after.trim_start_matches(is_space);
        }
        let mut rest = rest.to_owned();
        loop {
            let body = rest.trim_end_matches(|c| TERMINAL.contains(c));
            let tail = &rest[body.len()..];
            match names.iter().find_map(|name| body.strip_suffix(name.as_str())) {
                Some(before) => rest = format!("{}{tail}", before.trim_end_matches(is_space)),
                None => return rest,
            }
        }
    }
}

/// As Python sees it.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// With names instead of placeholders, and blanks put together. A placeholder that is not listed is a blank.
pub(super) fn normal(text: &str, mentions: &Mentions) -> String {
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(PLACEHOLDER) {
        let digits = rest[at + PLACEHOLDER.len()..].bytes().take_while(u8::is_ascii_digit).count();
        let end = at + PLACEHOLDER.len() + digits;
        named.push_str(&rest[..at]);
        match (digits, mentions.get(&rest[at..end])) {
            (0, _) => named.push_str(PLACEHOLDER),
            (_, None) => named.push(' '),
            (_, Some(mention)) => named.push_str(&format!("@{}", mention.shown())),
        }
        rest = &rest[end..];
    }
    named.push_str(rest);
    let named = named.replace(EVERYBODY, "@all").replace("\r\n", "\n").replace('\r', "\n");
    let line = |line: &str| line.split(is_space).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = named.split('\n').map(line).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mentions() -> Mentions {
        let me = Me { open_id: "ou_me".into(), name: "Desk".into() };
        let list = json!([
            { "key": "@_user_1", "id": { "open_id": "ou_me", "user_id": "" }, "name": "Desk" },
            { "key": "@_user_2", "id": { "open_id": "ou_bob" }, "name": "Bob" },
            { "key": "@_user_10", "id": "ou_eve", "id_type": "open_id", "name": "Eve" },
        ]);
        Mentions::of(list.as_array().unwrap(), &me)
    }

    #[test]
    fn placeholders_become_names() {
        let all = mentions();
        assert_eq!(
            normal("@_user_1 hi  @_user_2\t, @_user_10 @_user_3 x\r\n\r\n  y @_all @_user_", &all),
            "@Desk hi @Bob , @Eve x\ny @all @_user_"
        );
        assert_eq!(all.hint().unwrap(), "[Mentioned: Bob (open_id=ou_bob), Eve (open_id=ou_eve)]");
        assert!(all.has_self() && !all.has_all());
        assert_eq!(Mentions::default().hint(), None);
    }

    #[test]
    fn the_bot_is_taken_off_the_edges_only() {
        let all = mentions();
        for (text, left) in [
            ("@Desk hello", "hello"),
            ("@Desk @Desk, hello", ", hello"),
            ("@Desktop hello", "@Desktop hello"),
            ("hello @Desk", "hello"),
            ("hello @Desk!", "hello!"),
            ("do not @Desk again", "do not @Desk again"),
            ("@Desk", ""),
            ("@Bob hello", "@Bob hello"),
        ] {
            assert_eq!(all.without_self(text), left, "{text}");
        }
    }

    #[test]
    fn ids_count_more_than_names() {
        let me = Me { open_id: "ou_me".into(), name: "Desk".into() };
        assert!(me.is("ou_me", "x") && !me.is("ou_other", "Desk") && me.is("", "Desk"));
        assert!(!Me::default().is("", ""), "a bot without a name is nobody");
    }
}
