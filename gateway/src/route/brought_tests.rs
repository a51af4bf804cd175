//! Names that come, stay, go and are too many.

use super::*;

fn name(text: &str) -> AppName {
    AppName::new(text).expect("a name")
}

fn names(list: &[&str]) -> Vec<AppName> {
    list.iter().map(|text| name(text)).collect()
}

fn http(list: &[&str]) -> Vec<(AppName, AppKind)> {
    names(list)
        .into_iter()
        .map(|n| (n, AppKind::Http1))
        .collect()
}

fn all(brought: &Brought) -> Vec<&str> {
    brought.names().map(|(name, _)| name.as_str()).collect()
}

/// Every name counts, three may be there.
fn turn(brought: &mut Brought, before: &[&str], after: &[&str]) -> Result<Change, TooMany> {
    brought.replace("edge", &names(before), &http(after), 3, |_| true)
}

#[test]
fn a_name_outlives_its_last_offer_and_goes_when_another_needs_its_place() {
    let mut brought = Brought::default();
    assert_eq!(turn(&mut brought, &[], &["a", "b"]), Ok(Change::Some));
    assert_eq!(turn(&mut brought, &["a", "b"], &["b"]), Ok(Change::None));
    assert_eq!(turn(&mut brought, &["b"], &["c"]), Ok(Change::Some));
    assert_eq!(all(&brought), ["a", "b", "c"]);
    assert_eq!(turn(&mut brought, &["c"], &["c", "d"]), Ok(Change::Some));
    assert_eq!(all(&brought), ["b", "c", "d"], "the longest idle one went");
}

#[test]
fn more_than_may_be_offered_are_refused_whole_and_change_nothing() {
    let mut brought = Brought::default();
    assert_eq!(turn(&mut brought, &[], &["a", "b"]), Ok(Change::Some));
    assert_eq!(turn(&mut brought, &[], &["c", "d"]), Err(TooMany));
    assert_eq!(all(&brought), ["a", "b"]);
    assert_eq!(
        turn(&mut brought, &["a", "b"], &["c", "d", "e"]),
        Ok(Change::Some)
    );
    assert_eq!(all(&brought), ["c", "d", "e"]);
}

#[test]
fn a_name_that_two_tunnels_offer_is_one_name_until_both_have_left() {
    let mut brought = Brought::default();
    assert_eq!(turn(&mut brought, &[], &["a", "b", "c"]), Ok(Change::Some));
    assert_eq!(turn(&mut brought, &[], &["a"]), Ok(Change::None));
    assert_eq!(turn(&mut brought, &["a", "b", "c"], &[]), Ok(Change::None));
    assert_eq!(turn(&mut brought, &[], &["x", "y", "z"]), Err(TooMany));
    assert_eq!(turn(&mut brought, &[], &["x", "y"]), Ok(Change::Some));
    assert_eq!(all(&brought), ["a", "x", "y"]);
}

#[test]
fn ever_new_names_push_each_other_out_and_never_another_subject_s() {
    let mut brought = Brought::default();
    let other = brought.replace("other", &[], &http(&["shop"]), 3, |_| true);
    assert_eq!(other, Ok(Change::Some));
    let mut before = Vec::new();
    for n in 0..1000 {
        let after = http(&[&format!("x{n}"), &format!("y{n}"), &format!("z{n}")]);
        let told = brought.replace("edge", &before, &after, 3, |_| true);
        assert_eq!(told, Ok(Change::Some));
        before = after.into_iter().map(|(name, _)| name).collect();
    }
    assert_eq!(all(&brought), ["x999", "y999", "z999", "shop"]);
}

#[test]
fn a_configured_app_counts_for_nobody_and_is_not_remembered() {
    let mut brought = Brought::default();
    let counts = |name: &AppName| !name.as_str().starts_with("own");
    let many: Vec<String> = (0..9).map(|n| format!("own{n}")).collect();
    let many: Vec<&str> = many
        .iter()
        .map(String::as_str)
        .chain(["a", "b", "c"])
        .collect();
    let came = brought.replace("edge", &[], &http(&many), 3, counts);
    assert_eq!((came, all(&brought).len()), (Ok(Change::Some), 12));
    let left = brought.replace("edge", &names(&many), &[], 3, counts);
    assert_eq!(
        (left, all(&brought)),
        (Ok(Change::Some), vec!["a", "b", "c"])
    );
}

#[test]
fn what_is_offered_already_is_not_refused_although_the_bound_fell() {
    let mut brought = Brought::default();
    assert_eq!(turn(&mut brought, &[], &["a", "b", "c"]), Ok(Change::Some));
    let again = |brought: &mut Brought, after: &[&str]| {
        let before = names(&["a", "b", "c"]);
        brought.replace("edge", &before, &http(after), 1, |_| true)
    };
    assert_eq!(again(&mut brought, &["a", "b", "c"]), Ok(Change::None));
    assert_eq!(again(&mut brought, &["a", "b", "d"]), Err(TooMany));
    assert_eq!(again(&mut brought, &["a", "b"]), Ok(Change::Some));
    assert_eq!(all(&brought), ["a", "b"]);
}

#[test]
fn a_name_that_nobody_offered_takes_the_protocol_that_it_is_offered_with() {
    let mut brought = Brought::default();
    assert_eq!(turn(&mut brought, &[], &["a"]), Ok(Change::Some));
    let h2c = [(name("a"), AppKind::H2c)];
    let beside = brought.replace("edge", &[], &h2c, 3, |_| true);
    assert_eq!(beside, Ok(Change::None), "the first one counts");
    let both = [name("a"), name("a")];
    assert_eq!(
        brought.replace("edge", &both, &[], 3, |_| true),
        Ok(Change::None)
    );
    assert_eq!(
        brought.replace("edge", &[], &h2c, 3, |_| true),
        Ok(Change::Some)
    );
    assert_eq!(brought.names().next(), Some((&name("a"), AppKind::H2c)));
}
