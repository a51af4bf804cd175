//! Finds the files of the workspace and says to which room each source file belongs.
//!
//! Must not: read build output. Invariant: every file that would be committed is listed once.

use std::path::{Path, PathBuf};

/// Root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests crate lies in the workspace")
        .to_path_buf()
}

/// Every text file of the workspace, relative to its root, sorted.
pub(crate) fn files() -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    found.sort();
    found
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder of the workspace can be listed");
    for entry in entries {
        let entry = entry.expect("an entry can be read");
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().expect("an entry has a type").is_dir() {
            if !matches!(
                name.as_str(),
                ".git" | "target" | "node_modules" | "__pycache__"
            ) {
                walk(root, &path, found);
            }
        } else if name != ".git" {
            found.push(
                path.strip_prefix(root)
                    .expect("below the root")
                    .to_path_buf(),
            );
        }
    }
}

/// Text of a file, or nothing where it is not text.
pub(crate) fn text(path: &Path) -> Option<String> {
    std::fs::read(root().join(path))
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
}

/// Module path of a source file, crate name first: `gateway/src/route/host.rs` → `bridgehead_gateway::route::host`.
/// Nothing for files outside a `src` folder.
pub(crate) fn module(path: &Path) -> Option<Vec<String>> {
    let parts: Vec<String> = path
        .iter()
        .map(|p| p.to_string_lossy().into_owned())
        .collect();
    let [package, src, rest @ ..] = parts.as_slice() else {
        return None;
    };
    if src != "src" || path.extension().is_none_or(|e| e != "rs") {
        return None;
    }
    let mut module = vec![format!("bridgehead_{package}")];
    for part in rest {
        let name = part.trim_end_matches(".rs");
        if !matches!(name, "lib" | "main" | "mod") {
            module.push(name.to_owned());
        }
    }
    Some(module)
}
