//! Finds the two binaries beside the test executable, building them first if they are stale.
//!
//! Owns: one `cargo build` per test process, in the profile and target directory of the test itself,
//! so that plain `cargo test --workspace` needs no step before it. `BH_BIN_DIR` names a folder of
//! ready binaries instead (another build, an installed package).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of `bh-gateway`.
pub fn gateway() -> PathBuf {
    folder().join(executable("bh-gateway"))
}

/// Path of `bh-agent`.
pub fn agent() -> PathBuf {
    folder().join(executable("bh-agent"))
}

/// Path of a tool of the tests crate, always of this build.
pub fn tool(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build).join(executable(name))
}

/// Folder below the target directory that tests may fill and keep between runs.
pub fn scratch(name: &str) -> PathBuf {
    let folder = profile_folder().join("bh-tests").join(name);
    std::fs::create_dir_all(&folder).expect("a folder below the target directory can be made");
    folder
}

fn executable(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| match std::env::var_os("BH_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => build(),
    })
}

/// `target/debug` or `target/release`: the folder above `deps`, in which this executable lies.
fn profile_folder() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    let folder = own.parent().expect("an executable lies in a folder");
    let above = if folder.ends_with("deps") {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    above.to_path_buf()
}

fn build() -> PathBuf {
    let folder = profile_folder();
    let target = folder
        .parent()
        .expect("a profile folder lies in a target directory");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the tests crate lies in the workspace");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The whole workspace, so that features are those of the running test build and nothing is built twice.
    cargo
        .args(["build", "--workspace", "--bins", "--quiet", "--target-dir"])
        .arg(target)
        .current_dir(root);
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "the binaries under test do not build");
    folder
}
