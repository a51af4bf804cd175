//! The fuzz targets as tests: every kept input, every finding of the past, and a few fresh inputs.
//!
//! Deterministic: the same seed and corpus make the same inputs. `bh-fuzz` goes on for longer.

use bridgehead_tests::fuzz::TARGETS;
use bridgehead_tests::fuzz::engine::{self, Until};

/// Fresh inputs of each target.
const RUNS: u64 = 2_000;

#[test]
fn what_once_broke_a_target_is_read_without_harm() {
    for target in TARGETS {
        for (path, input) in engine::regressions(target) {
            println!("{}", path.display());
            (target.run)(&input);
        }
    }
}

#[test]
fn fresh_inputs_break_no_target() {
    let mut found = Vec::new();
    for target in TARGETS {
        let kept = engine::corpus(target).len();
        assert!(kept > 0, "{} has no corpus", target.name);
        let report = engine::drive(target, 7, Until::Runs(RUNS));
        assert!(report.signatures > 3, "{} sees no difference", target.name);
        println!(
            "{:>13}: {} signatures from {kept} kept inputs",
            target.name, report.signatures
        );
        found.extend(report.findings);
    }
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn each_target_has_its_binary_for_cargo_fuzz() {
    let home = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = std::fs::read_to_string(home.join("Cargo.toml")).expect("the manifest is there");
    for target in TARGETS {
        let entry = format!("name = \"{}\"\n", target.name);
        assert!(manifest.contains(&entry), "{} is not in it", target.name);
        let source = home
            .join("fuzz_targets")
            .join(format!("{}.rs", target.name));
        let text = std::fs::read_to_string(source).expect("its source is there");
        assert!(text.contains(&format!("run(\"{}\", data)", target.name)));
    }
}
