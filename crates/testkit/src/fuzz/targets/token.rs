//! Untrusted bearer tokens authenticate no caller, and a minted token is accepted only with its own secret.
//!
//! The input is `bearer NUL gateway NUL expiry`.

use frontdesk_wire::Secret;
use frontdesk_wire::token::{Proof, SKEW_S, claim, mint};

use super::super::engine::{Outcome, outcome};

/// Longer tokens are refused without parsing.
const TOKEN_MAX_BYTES: usize = 2048;

pub fn token(input: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(input);
    let mut parts = text.splitn(3, '\0');
    let (bearer, gateway) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let exp_s: u64 = parts.next().and_then(|text| text.parse().ok()).unwrap_or_default();
    outcome((stranger(bearer), own(gateway, exp_s)))
}

/// The seeds contain valid tokens, signed with another secret than this one.
fn stranger(bearer: &str) -> Option<usize> {
    let claimed = claim(bearer)?;
    assert!(!claimed.gateway_id.is_empty() && bearer.len() <= TOKEN_MAX_BYTES);
    assert!(claimed.prove([&Secret::new("not the signer's")], 0) == Proof::Bad);
    assert!(claimed.prove([], u64::MAX) == Proof::Bad);
    Some(claimed.gateway_id.matches(':').count().min(3))
}

fn own(gateway: &str, exp_s: u64) -> Option<bool> {
    let (secret, other) = (Secret::new("the signer's"), Secret::new("not the signer's"));
    let minted = mint(gateway, &secret, exp_s);
    let Some(claimed) = claim(&minted) else {
        assert!(gateway.is_empty() || minted.len() > TOKEN_MAX_BYTES, "{gateway:?} has no token");
        return None;
    };
    assert_eq!(claimed.gateway_id, gateway);
    assert_eq!(claimed.prove([&other, &secret], 0), Proof::Good);
    assert_eq!(claimed.prove([&other], 0), Proof::Bad);
    let late = claimed.prove([&secret], exp_s.saturating_add(SKEW_S).saturating_add(1));
    let ends = exp_s != 0 && exp_s.checked_add(SKEW_S + 1).is_some();
    assert_eq!(late, if ends { Proof::Expired } else { Proof::Good }, "{exp_s}");
    Some(ends)
}
