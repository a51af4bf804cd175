//! The look of the page: HTML with `{{placeholders}}`, the built-in one or the operator's own.
//!
//! Parsed once, when the configuration is read, so that a misspelt placeholder is found there and
//! not by a visitor. Every value is escaped on the way in; the single exception, `{{refresh}}`, is
//! made by the gateway from a number.

use std::fmt::Write as _;

/// Something a template may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Lang,
    Title,
    Message,
    Seen,
    Advice,
    Hint,
    Code,
    Status,
    Reason,
    Delivery,
    Stage,
    Window,
    Detail,
    RetryAfter,
    RequestId,
    OutcomeUrl,
    Node,
    Refresh,
    LabelYou,
    LabelGateway,
    LabelApp,
    LabelAgain,
    LabelFacts,
    LabelCode,
    LabelReason,
    LabelDelivery,
    LabelStage,
    LabelRequest,
    LabelOutcome,
}

const NAMES: &[(&str, Slot)] = &[
    ("lang", Slot::Lang),
    ("title", Slot::Title),
    ("message", Slot::Message),
    ("seen", Slot::Seen),
    ("advice", Slot::Advice),
    ("hint", Slot::Hint),
    ("code", Slot::Code),
    ("status", Slot::Status),
    ("reason", Slot::Reason),
    ("delivery", Slot::Delivery),
    ("stage", Slot::Stage),
    ("window", Slot::Window),
    ("detail", Slot::Detail),
    ("retry_after", Slot::RetryAfter),
    ("request_id", Slot::RequestId),
    ("outcome_url", Slot::OutcomeUrl),
    ("node", Slot::Node),
    ("refresh", Slot::Refresh),
    ("label_you", Slot::LabelYou),
    ("label_gateway", Slot::LabelGateway),
    ("label_app", Slot::LabelApp),
    ("label_again", Slot::LabelAgain),
    ("label_facts", Slot::LabelFacts),
    ("label_code", Slot::LabelCode),
    ("label_reason", Slot::LabelReason),
    ("label_delivery", Slot::LabelDelivery),
    ("label_stage", Slot::LabelStage),
    ("label_request", Slot::LabelRequest),
    ("label_outcome", Slot::LabelOutcome),
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Slot(Slot),
    /// `{{#name}}…{{/name}}`: only if the value is not empty.
    If(Slot, Vec<Piece>),
}

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A placeholder that does not exist.
    #[error("no placeholder is called `{0}`; there are: {list}", list = known())]
    Unknown(String),
    /// `{{` without `}}`.
    #[error("a placeholder is not closed: `{{{{{0}`")]
    Unclosed(String),
    /// `{{#name}}` without `{{/name}}`, or the other way round.
    #[error("the section `{0}` is not opened and closed in pairs")]
    Section(String),
}

fn known() -> String {
    NAMES
        .iter()
        .map(|&(name, _)| name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// A parsed page.
///
/// `{{name}}` puts a value, escaped; `{{#name}}…{{/name}}` keeps its inside only if the value is
/// not empty. A page without `{{refresh}}` inside its head does not reload itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

impl Template {
    /// Parses a page.
    ///
    /// # Errors
    /// Names the first placeholder that does not exist or does not end.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut open: Vec<(&str, Slot, Vec<Piece>)> = Vec::new();
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            push_text(&mut pieces, before);
            let Some((tag, next)) = after.split_once("}}") else {
                return Err(TemplateError::Unclosed(after.chars().take(20).collect()));
            };
            rest = next;
            let tag = tag.trim();
            if let Some(name) = tag.strip_prefix('#') {
                open.push((name, slot(name)?, std::mem::take(&mut pieces)));
            } else if let Some(name) = tag.strip_prefix('/') {
                let (_, slot, outer) = open
                    .pop()
                    .filter(|&(opened, ..)| opened == name)
                    .ok_or_else(|| TemplateError::Section(name.to_owned()))?;
                let inside = std::mem::replace(&mut pieces, outer);
                pieces.push(Piece::If(slot, inside));
            } else {
                pieces.push(Piece::Slot(slot(tag)?));
            }
        }
        push_text(&mut pieces, rest);
        match open.pop() {
            Some((name, ..)) => Err(TemplateError::Section(name.to_owned())),
            None => Ok(Self { pieces }),
        }
    }

    /// Fills the page in. `values` gives the raw text of a slot.
    pub(super) fn fill(&self, values: impl Fn(Slot) -> String) -> String {
        let mut page = String::with_capacity(4096);
        fill(&self.pieces, &values, &mut page);
        page
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

fn slot(name: &str) -> Result<Slot, TemplateError> {
    let found = NAMES.iter().find(|&&(known, _)| known == name);
    found
        .map(|&(_, slot)| slot)
        .ok_or_else(|| TemplateError::Unknown(name.to_owned()))
}

fn fill(pieces: &[Piece], values: &impl Fn(Slot) -> String, page: &mut String) {
    for piece in pieces {
        match piece {
            Piece::Text(text) => page.push_str(text),
            Piece::Slot(Slot::Refresh) => refresh(&values(Slot::Refresh), page),
            Piece::Slot(slot) => escape(&values(*slot), page),
            Piece::If(slot, inside) => {
                if !values(*slot).is_empty() {
                    fill(inside, values, page);
                }
            }
        }
    }
}

/// The element that makes the page reload itself; nothing unless the value is a number of seconds.
fn refresh(seconds: &str, page: &mut String) {
    if let Ok(seconds) = seconds.parse::<u32>() {
        // Writing to a String cannot fail.
        let _ = write!(page, "<meta http-equiv=\"refresh\" content=\"{seconds}\">");
    }
}

/// Escapes for element content and for attribute values in either kind of quotes.
fn escape(text: &str, page: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            other => page.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(template: &str, value: &str) -> String {
        Template::parse(template)
            .expect("the template is well formed")
            .fill(|_| value.to_owned())
    }

    #[test]
    fn a_value_is_escaped_and_the_template_is_not() {
        assert_eq!(
            filled("<b>{{ title }}</b>", "<'a' & \"b\">"),
            "<b>&lt;&#39;a&#39; &amp; &quot;b&quot;&gt;</b>"
        );
    }

    #[test]
    fn a_section_appears_only_with_a_value() {
        assert_eq!(filled("a{{#detail}}({{detail}}){{/detail}}b", "x"), "a(x)b");
        assert_eq!(filled("a{{#detail}}({{detail}}){{/detail}}b", ""), "ab");
        assert_eq!(
            filled("{{#detail}}{{#node}}n{{/node}}{{/detail}}", "x"),
            "n"
        );
    }

    #[test]
    fn refresh_takes_a_number_and_nothing_else() {
        assert_eq!(
            filled("{{refresh}}", "7"),
            "<meta http-equiv=\"refresh\" content=\"7\">"
        );
        assert_eq!(filled("{{refresh}}", "0;url=//elsewhere"), "");
        assert_eq!(filled("{{refresh}}", ""), "");
    }

    #[test]
    fn a_broken_template_is_refused_with_its_place() {
        let cases = [
            ("{{titel}}", TemplateError::Unknown("titel".to_owned())),
            ("{{title", TemplateError::Unclosed("title".to_owned())),
            ("{{#node}}x", TemplateError::Section("node".to_owned())),
            ("x{{/node}}", TemplateError::Section("node".to_owned())),
            (
                "{{#node}}{{#code}}{{/node}}{{/code}}",
                TemplateError::Section("node".to_owned()),
            ),
        ];
        for (text, error) in cases {
            assert_eq!(Template::parse(text), Err(error), "{text}");
        }
        let said = TemplateError::Unknown("titel".to_owned()).to_string();
        assert!(
            said.contains("`titel`") && said.contains("request_id"),
            "{said}"
        );
    }

    proptest! {
        #[test]
        fn no_value_brings_markup_into_a_page(value in any::<String>()) {
            let page = filled("{{title}}", &value);
            prop_assert!(!page.contains(['<', '>', '"', '\'']));
        }

        #[test]
        fn a_page_without_placeholders_is_kept_byte_for_byte(text in "[^{]*") {
            prop_assert_eq!(filled(&text, "x"), text);
        }
    }
}
