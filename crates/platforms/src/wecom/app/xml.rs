//! XML as `WeCom` writes it: one root, its fields, and little below them. Anything else is refused: declarations of types,
//! entities but the five of the standard, attributes, comments, processing instructions.

use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::Event;
use quick_xml::reader::Reader;

const DEPTH_MAX: usize = 8;
const ELEMENTS_MAX: usize = 512;

/// Why a body is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BadXml {
    #[error("the XML is not valid UTF-8")]
    Text,
    #[error("the XML is malformed")]
    Malformed,
    #[error("the XML has a document type, an entity, an attribute, a comment or an instruction; WeCom sends none")]
    Forbidden,
    #[error("the XML has too many elements, or they are too deep")]
    TooLarge,
}

/// The elements below the root, in their order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    /// The only field of this name; an empty one is none. Of two, another parser might read the other one.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(known, _)| known == name);
        let (_, value) = found.next()?;
        found.next().is_none().then_some(value.as_str()).filter(|value| !value.is_empty())
    }
}

/// The fields of a document. Its size is that of the body, which is limited before it is read.
pub fn read(body: &[u8]) -> Result<Fields, BadXml> {
    let text = std::str::from_utf8(body).map_err(|_| BadXml::Text)?;
    let mut reader = Reader::from_str(text);
    reader.config_mut().enable_all_checks(true);
    let mut reading = Reading::default();
    loop {
        match reader.read_event().map_err(|_| BadXml::Malformed)? {
            Event::Start(tag) => {
                reading.open(tag.name().as_ref(), tag.attributes_raw())?;
            }
            Event::Empty(tag) => {
                reading.open(tag.name().as_ref(), tag.attributes_raw())?;
                reading.close()?;
            }
            Event::End(_) => reading.close()?,
            Event::Text(part) => reading.say(&part)?,
            Event::CData(part) => reading.say_inside(&part)?,
            Event::GeneralRef(entity) => {
                let character = entity.resolve_char_ref().map_err(|_| BadXml::Malformed)?;
                match (character, resolve_xml_entity(&entity)) {
                    (Some(character), _) => reading.say_inside(character.encode_utf8(&mut [0; 4]))?,
                    (None, Some(known)) => reading.say_inside(known)?,
                    (None, None) => return Err(BadXml::Forbidden),
                }
            }
            // Of the version and the encoding, which is that of the text already.
            Event::Decl(_) if reading.is_at_start() => {}
            Event::Decl(_) | Event::DocType(_) | Event::PI(_) | Event::Comment(_) => return Err(BadXml::Forbidden),
            Event::Eof => return reading.end(),
        }
    }
}

#[derive(Default)]
struct Reading {
    depth: usize,
    elements: usize,
    fields: Vec<(String, String)>,
}

impl Reading {
    fn is_at_start(&self) -> bool {
        self.elements == 0
    }

    fn open(&mut self, name: &str, attributes: &str) -> Result<(), BadXml> {
        if !attributes.trim().is_empty() {
            return Err(BadXml::Forbidden);
        }
        if self.depth == 0 && self.elements > 0 {
            return Err(BadXml::Malformed); // a second root
        }
        (self.depth, self.elements) = (self.depth + 1, self.elements + 1);
        if self.depth > DEPTH_MAX || self.elements > ELEMENTS_MAX {
            return Err(BadXml::TooLarge);
        }
        if self.depth == 2 {
            self.fields.push((name.to_owned(), String::new()));
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), BadXml> {
        self.depth = self.depth.checked_sub(1).ok_or(BadXml::Malformed)?;
        Ok(())
    }

    /// Between elements only white space may stand.
    fn say(&mut self, text: &str) -> Result<(), BadXml> {
        match self.depth {
            0 | 1 if text.trim_ascii().is_empty() => Ok(()),
            _ => self.say_inside(text),
        }
    }

    fn say_inside(&mut self, text: &str) -> Result<(), BadXml> {
        if self.depth < 2 || text.chars().any(|c| c.is_control() && !['\t', '\n', '\r'].contains(&c) && c < '\u{80}') {
            return Err(BadXml::Malformed);
        }
        // What is deeper is not needed.
        if let (2, Some((_, value))) = (self.depth, self.fields.last_mut()) {
            value.push_str(text);
        }
        Ok(())
    }

    fn end(self) -> Result<Fields, BadXml> {
        match self.depth == 0 && self.elements > 0 {
            true => Ok(Fields(self.fields)),
            false => Err(BadXml::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Fields, BadXml> {
        super::read(text.as_bytes())
    }

    #[test]
    fn fields_are_read() {
        let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<xml><A><![CDATA[a <b> & ]]>]]&gt;<![CDATA[c]]></A>\n <B>1</B>\
                    <C/><D>&lt;&amp;&#x4f60;&#22909;&quot;</D><E><F>deep</F></E><G>x</G><G>y</G></xml>\n";
        let fields = read(text).unwrap();
        assert_eq!(fields.get("A"), Some("a <b> & ]]>c"));
        assert_eq!((fields.get("B"), fields.get("C"), fields.get("D")), (Some("1"), None, Some("<&你好\"")));
        assert_eq!((fields.get("E"), fields.get("F"), fields.get("G")), (None, None, None), "deep, absent and twice");
    }

    #[test]
    fn bombs_are_refused() {
        let lol = "<!DOCTYPE lolz [<!ENTITY lol \"lol\"><!ENTITY lol2 \"&lol;&lol;&lol;\">]><xml><A>&lol2;</A></xml>";
        let file = "<!DOCTYPE x [<!ENTITY e SYSTEM \"file:///etc/passwd\">]><xml><A>&e;</A></xml>";
        let outside = "<!DOCTYPE x SYSTEM \"http://evil.example/x.dtd\"><xml><A>1</A></xml>";
        for text in [
            lol,
            file,
            outside,
            "<xml><A>&lol;</A></xml>",
            "<xml><A>&nbsp;</A></xml>",
            "<xml a=\"1\"><A>1</A></xml>",
            &format!("<xml><A b=\"{}\">1</A></xml>", "x".repeat(200_000)),
            "<xml><!-- x --><A>1</A></xml>",
            "<xml><?php x ?><A>1</A></xml>",
            "<xml><A>1</A><?xml version=\"1.0\"?></xml>",
        ] {
            assert_eq!(read(text), Err(BadXml::Forbidden), "{}", &text[..text.len().min(80)]);
        }
        let deep = format!("{}{}", "<a>".repeat(50_000), "</a>".repeat(50_000));
        let many = format!("<xml>{}</xml>", "<a/>".repeat(50_000));
        assert_eq!((read(&deep), read(&many)), (Err(BadXml::TooLarge), Err(BadXml::TooLarge)));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for text in [
            "",
            " ",
            "x",
            "{}",
            "<xml>",
            "<xml><A></xml>",
            "<xml></A></xml>",
            "<xml>text</xml>",
            "<xml/><xml/>",
            "<xml/>x",
            "</xml>",
            "<xml><A>&</A></xml>",
            "<xml><A>&#0;</A></xml>",
            "<xml><A>&#1;</A></xml>",
            "<xml><A>&#xd800;</A></xml>",
            "<xml><A><![CDATA[x</A></xml>",
        ] {
            assert_eq!(read(text), Err(BadXml::Malformed), "{text}");
        }
        assert_eq!(super::read(b"<xml><A>\xff</A></xml>"), Err(BadXml::Text));
        assert_eq!(read("<xml/>"), Ok(Fields::default()));
    }
}
