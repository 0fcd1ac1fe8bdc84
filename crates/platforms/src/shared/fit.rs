//! Long texts in parts that fit into a message after rendering.

use frontdesk_core::split;
use frontdesk_wire::descriptor::LenUnit;

/// Cuts a text at `max`. Markup makes a text longer, so a part that does not fit is cut again at half of that, and so on
/// down to `min`.
pub(crate) fn split_to_fit(
    text: &str,
    max: usize,
    min: usize,
    unit: LenUnit,
    fits: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let mut fitting = Vec::new();
    for part in split::split(text, max, unit) {
        match max <= min || fits(&part) {
            true => fitting.push(part),
            false => fitting.extend(split_to_fit(&part, max / 2, min, unit, fits)),
        }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_does_not_fit_is_cut_again() {
        let fits = |part: &str| part.len() <= 40 && !(part.contains('!') && part.len() > 12);
        let text = format!("{} {}", "plain ".repeat(10).trim_end(), "loud! ".repeat(6).trim_end());
        let parts = split_to_fit(&text, 36, 4, LenUnit::Chars, &fits);
        assert!(parts.iter().all(|part| fits(part)), "{parts:?}");
        assert!(parts.iter().any(|part| part.len() > 20), "{parts:?}");
        assert_eq!(parts.join(" ").split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        assert_eq!(
            split_to_fit("abcdefgh", 8, 4, LenUnit::Chars, &|_| false),
            ["abcd", "efgh"],
            "it ends at the minimum"
        );
    }
}
