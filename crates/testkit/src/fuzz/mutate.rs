//! Makes new inputs from known ones. The same random numbers give the same input.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::world::Dice;

/// Inputs are cut to this length: longer ones cost time and find nothing new.
pub(super) const INPUT_MAX_BYTES: usize = 4096;
/// Words of the seeds that are longer than this are not reused.
const WORD_MAX_BYTES: usize = 64;

/// Typical edge cases for parsers.
const TOKENS: [&[u8]; 64] = [
    // JSON
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\"",
    b"\\",
    b"{}",
    b"[]",
    b"\"\"",
    b"null",
    b"true",
    b"false",
    b"NaN",
    b"\"\\u0000\"",
    b"\"\\ud800\"",
    b"\"\\udc00\\ud800\"",
    b"\"\\ud83d\\ude00\"",
    b"\\u000",
    b"\\n",
    // numbers
    b"0",
    b"-0",
    b"-1",
    b"1.5",
    b"1e999",
    b"-1e999",
    b"5e-324",
    b"1.7976931348623157e308",
    b"255",
    b"65536",
    b"4294967295",
    b"4294967296",
    b"9007199254740993",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551615",
    b"18446744073709551616",
    b"340282366920938463463374607431768211456",
    b"00",
    b"+1",
    // whitespace and line ends
    b" ",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"\t",
    b"\0",
    b"\x1c",
    "\u{2028}".as_bytes(),
    "\u{feff}".as_bytes(),
    "\u{85}".as_bytes(),
    // text with several lengths (bytes, characters, UTF-16)
    "é".as_bytes(),
    "e\u{301}\u{301}".as_bytes(),
    "😀".as_bytes(),
    "👨\u{200d}👩\u{200d}👧\u{200d}👦".as_bytes(),
    "\u{202e}".as_bytes(),
    // invalid UTF-8: lone byte, truncated, surrogate, out of range, overlong
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\x80",
    b"\x80",
];

/// Repeated to make long and deeply nested inputs.
const REPEATED: [&[u8]; 10] = [b"a", b"[", b"{\"a\":", b"]", b"}", b"\\", b"0", b"`", b"~", "😀".as_bytes()];

pub(super) struct Mutator {
    dice: Dice,
    /// Words of the seeds, i.e. keys and values that the parsers know.
    words: Vec<Vec<u8>>,
}

impl Mutator {
    pub(super) fn new(seed: u64, seeds: &[Vec<u8>]) -> Self {
        let words: BTreeSet<Vec<u8>> = seeds
            .iter()
            .flat_map(|seed| tokens(seed).into_iter().map(|range| seed[range].to_vec()))
            .filter(|word| (2..=WORD_MAX_BYTES).contains(&word.len()))
            .collect();
        Self { dice: Dice::new(seed), words: words.into_iter().collect() }
    }

    /// One of the known inputs with one or more changes.
    pub(super) fn next(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.dice.pick(corpus).clone();
        let changes = 1 + self.dice.below(4) * self.dice.below(3);
        for _ in 0..changes {
            self.change(&mut input, corpus);
        }
        input.truncate(INPUT_MAX_BYTES);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        match self.dice.below(12) {
            0 => self.flip_bit(input),
            1 => self.set_byte(input),
            2 => {
                let at = self.place(input);
                let byte = self.byte();
                input.insert(at, byte);
            }
            3 => {
                let range = self.chunk(input);
                input.drain(range);
            }
            4 => self.copy_chunk(input),
            5 => self.splice(input, corpus),
            6 => self.insert_token(input),
            7..=9 => self.replace_token(input),
            10 => self.swap_tokens(input),
            _ => self.repeat(input),
        }
    }

    fn flip_bit(&mut self, input: &mut [u8]) {
        if !input.is_empty() {
            let at = self.dice.below(input.len());
            input[at] ^= 1 << self.dice.below(8);
        }
    }

    fn set_byte(&mut self, input: &mut [u8]) {
        if !input.is_empty() {
            let at = self.dice.below(input.len());
            input[at] = self.byte();
        }
    }

    /// Inserts a copy of a part somewhere else.
    fn copy_chunk(&mut self, input: &mut Vec<u8>) {
        let chunk = input[self.chunk(input)].to_vec();
        self.insert(input, &chunk);
    }

    /// Replaces a part by a part of another input.
    fn splice(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let other = self.dice.pick(corpus);
        let chunk = other[self.chunk(other)].to_vec();
        let range = self.chunk(input);
        input.splice(range, chunk);
    }

    fn insert_token(&mut self, input: &mut Vec<u8>) {
        let token = self.token();
        self.insert(input, &token);
    }

    /// Keeps the syntax: replaces a whole string, number or sign by another one.
    fn replace_token(&mut self, input: &mut Vec<u8>) {
        let known = tokens(input);
        if known.is_empty() {
            return self.insert_token(input);
        }
        let (range, token) = (self.dice.pick(&known).clone(), self.token());
        input.splice(range, token);
    }

    fn swap_tokens(&mut self, input: &mut Vec<u8>) {
        let known = tokens(input);
        if known.len() < 2 {
            return;
        }
        let (a, b) = (self.dice.pick(&known).clone(), self.dice.pick(&known).clone());
        let (first, second) = if a.start <= b.start { (a, b) } else { (b, a) };
        if first != second {
            let (left, right) = (input[first.clone()].to_vec(), input[second.clone()].to_vec());
            input.splice(second, left);
            input.splice(first, right);
        }
    }

    /// Inserts the same piece up to some hundred times.
    fn repeat(&mut self, input: &mut Vec<u8>) {
        let times = 1 << self.dice.below(10);
        let piece = self.dice.pick(&REPEATED).repeat(times);
        self.insert(input, &piece);
    }

    fn insert(&mut self, input: &mut Vec<u8>, piece: &[u8]) {
        let at = self.place(input);
        input.splice(at..at, piece.iter().copied());
    }

    fn token(&mut self) -> Vec<u8> {
        if self.words.is_empty() || self.dice.chance(50) {
            self.dice.pick(&TOKENS).to_vec()
        } else {
            self.dice.pick(&self.words).clone()
        }
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.dice.below(256)).unwrap()
    }

    /// A position between two bytes, or at either end.
    fn place(&mut self, input: &[u8]) -> usize {
        self.dice.below(input.len() + 1)
    }

    /// A part of the input, mostly short; empty only if the input is empty.
    fn chunk(&mut self, input: &[u8]) -> Range<usize> {
        if input.is_empty() {
            return 0..0;
        }
        let start = self.dice.below(input.len());
        let longest = input.len() - start;
        let most = if self.dice.chance(75) { longest.min(16) } else { longest };
        start..start + 1 + self.dice.below(most)
    }
}

/// The tokens of JSON: strings with quotes, words and numbers, single signs. Whitespace is skipped.
fn tokens(input: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < input.len() {
        let length = match input[at] {
            b'"' => string_length(&input[at..]),
            byte if is_word(byte) => input[at..].iter().take_while(|byte| is_word(**byte)).count(),
            _ => 1,
        };
        if !input[at].is_ascii_whitespace() {
            found.push(at..at + length);
        }
        at += length;
    }
    found
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte) || byte >= 0x80
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_split_into_json_tokens() {
        let input = br#" {"a\"b":-1.5e3,[null]"#;
        let found: Vec<&[u8]> = tokens(input).into_iter().map(|range| &input[range]).collect();
        let expected: [&[u8]; 8] = [b"{", br#""a\"b""#, b":", b"-1.5e3", b",", b"[", b"null", b"]"];
        assert_eq!(found, expected);
        assert_eq!(tokens(b"\"open\\"), vec![0..6]);
        assert!(tokens(b"").is_empty() && tokens(b" \n").is_empty());
    }

    #[test]
    fn the_same_seed_makes_the_same_inputs_within_the_bound() {
        let seeds = vec![br#"{"type":"hello","n":1}"#.to_vec(), Vec::new(), b"x".repeat(INPUT_MAX_BYTES)];
        let run = |seed| {
            let mut mutator = Mutator::new(seed, &seeds);
            (0..2_000).map(|_| mutator.next(&seeds)).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert!(run(7).iter().all(|input| input.len() <= INPUT_MAX_BYTES));
        assert!(run(7).iter().any(|input| std::str::from_utf8(input).is_err()));
        assert!(run(7).iter().any(|input| input.starts_with(br#"{"type":"#) && !seeds.contains(input)));
    }
}
