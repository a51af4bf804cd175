//! `bh-chaos`: see `bridgehead_tests::chaos`.

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    bridgehead_tests::chaos::cli::run().await
}
