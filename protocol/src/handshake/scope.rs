//! Which apps a token may serve.

use super::names::is_app_name;

/// A name (`demo`), or the beginning of names and a star (`shop-*`, `*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppPattern {
    stem: Box<str>,
    open: bool,
}

impl AppPattern {
    /// Reads a pattern; `None` if it is neither a name nor a beginning with one star at its end.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (stem, open) = text
            .strip_suffix('*')
            .map_or((text, false), |stem| (stem, true));
        let valid = is_app_name(stem) || (open && stem.is_empty());
        valid.then(|| Self {
            stem: stem.into(),
            open,
        })
    }

    /// True if the pattern covers `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        if self.open {
            name.starts_with(&*self.stem)
        } else {
            name == &*self.stem
        }
    }
}

/// The patterns of one token; empty covers nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope(Vec<AppPattern>);

impl Scope {
    /// A scope of these patterns.
    #[must_use]
    pub const fn new(patterns: Vec<AppPattern>) -> Self {
        Self(patterns)
    }

    /// True if any pattern covers `name`.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_covers_every_name_that_begins_so_and_a_name_only_itself() {
        let pattern = |text| AppPattern::parse(text).expect("a pattern");
        assert!(pattern("shop-*").matches("shop-1") && pattern("shop-*").matches("shop-"));
        assert!(!pattern("shop-*").matches("shop") && !pattern("shop-*").matches("my-shop-1"));
        assert!(pattern("demo").matches("demo") && !pattern("demo").matches("demo2"));
        assert!(pattern("*").matches("anything"));
        assert!(!Scope::default().covers("demo"));
    }

    #[test]
    fn a_star_elsewhere_and_a_bad_name_are_no_pattern() {
        for bad in ["", "*-shop", "a*b", "**", "Shop", "a.b"] {
            assert_eq!(AppPattern::parse(bad), None, "{bad:?}");
        }
    }
}
