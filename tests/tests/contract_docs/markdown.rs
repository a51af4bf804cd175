//! Just enough Markdown and shell to read our own documents: tables, code, links, command lines.
//!
//! Must not: know what any document says. What it does not understand it leaves out, so callers say
//! how much they expect to find.

use std::path::{Path, PathBuf};

/// One document.
pub(crate) struct Document {
    /// Path from the root of the repository.
    pub(crate) path: &'static str,
    /// Its text.
    pub(crate) text: String,
}

/// A fenced block.
pub(crate) struct Block {
    /// The word behind the fence.
    pub(crate) language: String,
    /// Its lines.
    pub(crate) text: String,
}

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Text of a file of the repository.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

impl Document {
    pub(crate) fn open(path: &'static str) -> Self {
        let text = read(path);
        Self { path, text }
    }

    /// Fenced blocks, and the text outside of them.
    fn parts(&self) -> (Vec<Block>, String) {
        let (mut blocks, mut prose) = (Vec::new(), String::new());
        let mut open: Option<Block> = None;
        for line in self.text.lines() {
            match (line.strip_prefix("```"), open.take()) {
                (Some(_), Some(block)) => blocks.push(block),
                (Some(language), None) => {
                    open = Some(Block {
                        language: language.to_owned(),
                        text: String::new(),
                    });
                }
                (None, Some(mut block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, None) => {
                    prose.push_str(line);
                    prose.push('\n');
                }
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.path);
        (blocks, prose)
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        self.parts().0
    }

    pub(crate) fn prose(&self) -> String {
        self.parts().1
    }

    /// Texts in single backquotes, outside of blocks; a span may go over the end of a line.
    pub(crate) fn spans(&self) -> Vec<String> {
        let prose = self.prose();
        let spans = prose.split('`').skip(1).step_by(2);
        spans
            .map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    }

    /// Rows of the table whose first heading is `first`, cells trimmed.
    pub(crate) fn table(&self, first: &str) -> Vec<Vec<String>> {
        let cells = |line: &str| -> Vec<String> {
            let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
            inner.split('|').map(|c| c.trim().to_owned()).collect()
        };
        let prose = self.prose();
        let mut lines = prose
            .lines()
            .skip_while(|line| !line.starts_with('|') || cells(line)[0] != first);
        let found = lines.next().is_some() && lines.next().is_some();
        assert!(found, "{}: no table begins with {first}", self.path);
        lines
            .take_while(|line| line.starts_with('|'))
            .map(cells)
            .collect()
    }

    /// Targets of links.
    pub(crate) fn links(&self) -> Vec<String> {
        let prose = self.prose();
        let targets = prose.split("](").skip(1);
        targets
            .filter_map(|rest| rest.split(')').next())
            .map(str::to_owned)
            .collect()
    }

    /// What links to headings of this document look like.
    pub(crate) fn anchors(&self) -> Vec<String> {
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
                let title: String = line.trim_start_matches('#').trim().to_lowercase();
                title
                    .chars()
                    .filter(kept)
                    .collect::<String>()
                    .replace(' ', "-")
            })
            .collect()
    }

    /// Command lines in shell blocks, from the program's name on, without what the shell itself takes.
    pub(crate) fn commands(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for block in self.blocks() {
            let typed: Vec<String> = match block.language.as_str() {
                "sh" => joined(&block.text),
                "console" => {
                    let joined = joined(&block.text);
                    let typed = joined.iter().filter_map(|line| line.strip_prefix("$ "));
                    typed.map(str::to_owned).collect()
                }
                _ => continue,
            };
            found.extend(typed.iter().flat_map(|line| simple_commands(line)));
        }
        found
    }
}

/// Lines, those that end with a backslash joined with the next.
fn joined(text: &str) -> Vec<String> {
    text.replace("\\\n", " ")
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The simple commands of a line, as words; redirections and comments are gone.
pub(crate) fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut skip = false;
    for word in words(line) {
        match word.as_str() {
            "&&" | "||" | "|" | ";" | "&" => commands.push(Vec::new()),
            comment if comment.starts_with('#') => break,
            ">" | ">>" | "2>" | "2>>" | "<" => skip = true,
            _ if skip => skip = false,
            _ => commands.last_mut().expect("never empty").push(word),
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

/// Words of a line; quotes keep blanks together.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => word.push(c),
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c.is_whitespace() => words.extend(take(&mut word)),
            None => word.push(c),
        }
    }
    words.extend(take(&mut word));
    words
}

fn take(word: &mut String) -> Option<String> {
    Some(std::mem::take(word)).filter(|word| !word.is_empty())
}
