//! Codes with which users link themselves, and a limit on guesses.

use crate::env::Env;

/// Without characters that look alike.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const CODE_CHARS: usize = 8;
/// Wrong codes per author in this time, at all servers; then further codes are refused. With 32^8 codes, of which a few are
/// open, guessing is not feasible.
pub(super) const TRIES_MAX: u32 = 5;
pub(super) const TRIES_WINDOW_MS: u64 = 600_000;

pub(super) fn new_code(env: &dyn Env) -> String {
    let mut random = [0; CODE_CHARS];
    env.fill(&mut random);
    let letters: String = random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect();
    format!("{}-{}", &letters[..CODE_CHARS / 2], &letters[CODE_CHARS / 2..])
}
