//! `bh-load`: see `bridgehead_tests::load`.

#[tokio::main]
async fn main() -> std::process::ExitCode {
    bridgehead_tests::load::cli::main().await
}
