//! "Did you mean": the known word nearest to an unknown one.
//!
//! Pure; used for configuration keys only.

/// The known word with the smallest edit distance to `word`, if it is near enough to be a slip:
/// at most a third of the word, and at least one edit.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let allowed = (word.chars().count() / 3).max(1);
    known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(edits, _)| *edits <= allowed)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Edits between two words, where swapping `-` for `_` costs nothing: it is the commonest slip.
fn distance(left: &str, right: &str) -> usize {
    let same = |a: char, b: char| a == b || (matches!(a, '-' | '_') && matches!(b, '-' | '_'));
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(!same(a, *b));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_a_stranger_finds_none() {
        let known = ["gateway", "token_file", "tunnels"];
        assert_eq!(nearest("gatway", &known), Some("gateway"));
        assert_eq!(nearest("token-file", &known), Some("token_file"));
        assert_eq!(nearest("tunnel", &known), Some("tunnels"));
        assert_eq!(nearest("colour", &known), None);
    }
}
