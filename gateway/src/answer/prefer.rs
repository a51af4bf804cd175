//! What a client would rather read: a page or JSON, English or Russian. Reads `Accept` and
//! `Accept-Language` (RFC 9110, 12.5); a malformed element is passed over.

/// Languages of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// English, and whatever is not in this list.
    En,
    /// Russian.
    Ru,
}

impl Language {
    /// Tag for `lang` and `Content-Language`.
    pub(super) const fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Ru => "ru",
        }
    }
}

/// True if `text/html` is asked for by name, and JSON is not preferred to it. A wildcard is not
/// enough: it is what programs send that never thought about it.
pub(super) fn page(accept: &str) -> bool {
    let best = |wanted: &str| {
        let mut found: Option<(u16, usize)> = None;
        for (position, (word, weight)) in weighted(accept).enumerate() {
            if word.eq_ignore_ascii_case(wanted) && found.is_none_or(|(best, _)| weight > best) {
                found = Some((weight, position));
            }
        }
        found.filter(|&(weight, _)| weight > 0)
    };
    match (best("text/html"), best("application/json")) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some((html, first)), Some((json, second))) => {
            html > json || (html == json && first < second)
        }
    }
}

/// The preferred language of those the page speaks.
pub(super) fn language(accept: Option<&str>) -> Language {
    let mut best = (0, Language::En);
    for (word, weight) in weighted(accept.unwrap_or_default()) {
        let primary = word.split('-').next().unwrap_or_default();
        let language = if primary.eq_ignore_ascii_case("ru") {
            Language::Ru
        } else if primary.eq_ignore_ascii_case("en") {
            Language::En
        } else {
            continue;
        };
        if weight > best.0 {
            best = (weight, language);
        }
    }
    best.1
}

/// Elements of a list with their weights in thousandths.
fn weighted(list: &str) -> impl Iterator<Item = (&str, u16)> {
    list.split(',').filter_map(|element| {
        let mut parts = element.split(';').map(str::trim);
        let word = parts.next().filter(|word| !word.is_empty())?;
        let weight =
            parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        Some((word, weight.map_or(Some(1000), thousandths)?))
    })
}

/// `1`, `0.8`, `0.125`: at most three digits after the point, at most one.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut value = match whole {
        "0" => 0,
        "1" => 1000,
        _ => return None,
    };
    let mut scale = 100;
    for digit in fraction.bytes() {
        value += u16::from(digit - b'0') * scale;
        scale /= 10;
    }
    (value <= 1000).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_that_navigates_gets_a_page() {
        assert!(page(
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
        ));
        assert!(page("TEXT/HTML"));
        assert!(page("text/html, application/json"));
        assert!(page("application/json;q=0.5, text/html;q=0.6"));
    }

    #[test]
    fn a_program_gets_json() {
        for accept in [
            "*/*",
            "text/*",
            "",
            "application/json",
            "application/json, text/plain, */*",
            "application/json, text/html",
            "text/html;q=0, */*",
            "text/html;q=0.5, application/json",
            "text/html;q=nonsense",
            "text/event-stream",
        ] {
            assert!(!page(accept), "{accept}");
        }
    }

    #[test]
    fn the_page_speaks_the_preferred_of_its_languages() {
        let cases = [
            (None, Language::En),
            (Some("ru-RU,ru;q=0.9,en-US;q=0.8,en;q=0.7"), Language::Ru),
            (Some("en-US,en;q=0.9,ru;q=0.8"), Language::En),
            (Some("de, RU;q=0.4"), Language::Ru),
            (Some("de, fr;q=0.4"), Language::En),
            (Some("*"), Language::En),
            (Some("ru;q=0, en;q=0.1"), Language::En),
            (Some("ru;q=0"), Language::En),
            (Some("ru;q=2, en;q=0.001"), Language::En),
            (Some("rus"), Language::En),
        ];
        for (accept, language) in cases {
            assert_eq!(super::language(accept), language, "{accept:?}");
        }
    }

    #[test]
    fn weights_are_read_exactly() {
        assert_eq!(thousandths("1"), Some(1000));
        assert_eq!(thousandths("1.000"), Some(1000));
        assert_eq!(thousandths("0.8"), Some(800));
        assert_eq!(thousandths("0.125"), Some(125));
        assert_eq!(thousandths("0."), Some(0));
        for bad in ["1.001", "2", "-1", "0.1234", "", ".5", "0.+1"] {
            assert_eq!(thousandths(bad), None, "{bad}");
        }
    }
}
