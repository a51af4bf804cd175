//! Reads Rust source into the paths it names.
//!
//! Owns: lexing (by `proc-macro2`), the flattening of `use` trees, and knowing what is test code.
//! Must not: judge; the rules are in `rules.rs`. Invariant: a path inside a string or a comment is
//! never reported, and `use a::{b, c::d}` is reported as `a::b` and `a::c::d`.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One path named by a source file, by `use` or in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its segments, `crate`, `self` and `super` resolved to the file's own place.
    pub(crate) path: Vec<String>,
    /// Line of its first segment, from 1.
    pub(crate) line: usize,
    /// True inside `#[cfg(test)]`.
    pub(crate) test: bool,
}

impl Named {
    /// The path as written in a rule: `crate_name::module::item`.
    pub(crate) fn joined(&self) -> String {
        self.path.join("::")
    }
}

/// Modules that `text` declares for tests only, by `#[cfg(test)] mod name;`, as whole module paths.
pub(crate) fn test_modules(text: &str, module: &[String]) -> Result<Vec<String>, String> {
    Ok(read(text, module)?.test_modules)
}

/// Every path that `text` names. `module` is the file's own module path, crate name first.
pub(crate) fn paths(text: &str, module: &[String]) -> Result<Vec<Named>, String> {
    Ok(read(text, module)?.found)
}

fn read(text: &str, module: &[String]) -> Result<Reader, String> {
    let stream: TokenStream = text
        .parse()
        .map_err(|error| format!("does not lex: {error}"))?;
    let mut reader = Reader::default();
    let place = Place {
        module: module.to_vec(),
        test: false,
    };
    reader.block(stream, &place);
    Ok(reader)
}

/// Where the reader stands.
#[derive(Clone)]
struct Place {
    module: Vec<String>,
    test: bool,
}

#[derive(Default)]
struct Reader {
    found: Vec<Named>,
    test_modules: Vec<String>,
}

impl Reader {
    fn block(&mut self, stream: TokenStream, place: &Place) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        let mut next_is_test = false;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Punct(p) if p.as_char() == '#' => {
                    next_is_test |= is_cfg_test(tokens.get(at + 1));
                    at += if matches!(tokens.get(at + 1), Some(TokenTree::Group(_))) {
                        2
                    } else {
                        1
                    };
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = end_of_statement(&tokens, at);
                    let inner = Place {
                        test: place.test || next_is_test,
                        ..place.clone()
                    };
                    self.use_tree(&tokens[at + 1..end], &[], &inner);
                    next_is_test = false;
                    at = end + 1;
                }
                TokenTree::Ident(word) if word == "mod" => {
                    at = self.module(&tokens, at, place, next_is_test);
                    next_is_test = false;
                }
                TokenTree::Ident(_) => at = self.expression_path(&tokens, at, place, next_is_test),
                TokenTree::Group(group) => {
                    let inner = Place {
                        test: place.test || next_is_test,
                        ..place.clone()
                    };
                    self.block(group.stream(), &inner);
                    if group.delimiter() == Delimiter::Brace {
                        next_is_test = false;
                    }
                    at += 1;
                }
                TokenTree::Punct(p) => {
                    if p.as_char() == ';' {
                        next_is_test = false;
                    }
                    at += 1;
                }
                TokenTree::Literal(_) => at += 1,
            }
        }
    }

    /// `mod name { … }` or `mod name;`, from the word `mod`. Returns where to go on.
    fn module(&mut self, tokens: &[TokenTree], at: usize, place: &Place, test: bool) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
            return at + 1;
        };
        let Some(TokenTree::Group(body)) = tokens.get(at + 2) else {
            if place.test || test {
                let path = place.module.iter().cloned().chain([name.to_string()]);
                self.test_modules.push(path.collect::<Vec<_>>().join("::"));
            }
            return at + 2;
        };
        let mut inner = Place {
            test: place.test || test,
            ..place.clone()
        };
        inner.module.push(name.to_string());
        self.block(body.stream(), &inner);
        at + 3
    }

    /// `a::b::c` in code. A single identifier is no path. Returns where to go on.
    fn expression_path(
        &mut self,
        tokens: &[TokenTree],
        at: usize,
        place: &Place,
        test: bool,
    ) -> usize {
        let mut path = Vec::new();
        let mut next = at;
        while let Some(TokenTree::Ident(word)) = tokens.get(next) {
            path.push(word.to_string());
            if !is_double_colon(tokens, next + 1) {
                next += 1;
                break;
            }
            next += 3;
        }
        if path.len() > 1 {
            let place = Place {
                test: place.test || test,
                ..place.clone()
            };
            self.report(path, line_of(&tokens[at]), &place);
        }
        next.max(at + 1)
    }

    fn use_tree(&mut self, tokens: &[TokenTree], prefix: &[String], place: &Place) {
        for branch in tokens.split(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == ',')) {
            let mut path = prefix.to_vec();
            let mut line = 0;
            let mut nested = false;
            for token in branch {
                match token {
                    TokenTree::Ident(word) if word == "as" => break,
                    TokenTree::Ident(word) => {
                        path.push(word.to_string());
                        line = line_of(token);
                    }
                    TokenTree::Punct(p) if p.as_char() == '*' => path.push("*".into()),
                    TokenTree::Group(group) => {
                        let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                        self.use_tree(&inner, &path, place);
                        nested = true;
                    }
                    _ => {}
                }
            }
            if !nested && path.len() > prefix.len() {
                self.report(path, line, place);
            }
        }
    }

    fn report(&mut self, path: Vec<String>, line: usize, place: &Place) {
        self.found.push(Named {
            path: resolve(path, &place.module),
            line,
            test: place.test,
        });
    }
}

/// `crate::a` → `this_crate::a`; `super::a` and `self::a` → the place they mean.
fn resolve(path: Vec<String>, module: &[String]) -> Vec<String> {
    let mut base: Option<Vec<String>> = None;
    let mut rest = path.as_slice();
    while let Some((first, tail)) = rest.split_first() {
        match first.as_str() {
            "crate" => base = Some(module[..1].to_vec()),
            "self" if base.is_none() => base = Some(module.to_vec()),
            "super" => {
                let mut up = base.unwrap_or_else(|| module.to_vec());
                if up.len() > 1 {
                    up.pop();
                }
                base = Some(up);
            }
            _ => break,
        }
        rest = tail;
    }
    let mut whole = base.unwrap_or_default();
    whole.extend(rest.iter().filter(|s| *s != "self").cloned());
    whole
}

fn is_cfg_test(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else {
        return false;
    };
    let text: String = group.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test")
}

fn is_double_colon(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |i: usize| matches!(tokens.get(i), Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(at) && colon(at + 1) && matches!(tokens.get(at + 2), Some(TokenTree::Ident(_)))
}

fn end_of_statement(tokens: &[TokenTree], from: usize) -> usize {
    let is_end = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ';');
    tokens[from..]
        .iter()
        .position(is_end)
        .map_or(tokens.len(), |n| from + n)
}

fn line_of(token: &TokenTree) -> usize {
    token.span().start().line
}
