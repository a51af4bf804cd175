//! `bh-gateway`: reads the command line and hands the work to `wiring`.

use std::process::ExitCode;

use bridgehead_gateway::cli::{self, Outcome};
use bridgehead_gateway::wiring;

#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let outcome = cli::run(
        std::env::args_os(),
        &mut std::io::stdout(),
        &mut std::io::stderr(),
    );
    match outcome {
        Outcome::Exit(code) => ExitCode::from(code),
        Outcome::Work(work) => match wiring::run(*work) {
            Ok(()) => ExitCode::from(cli::EXIT_OK),
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(error.exit_code())
            }
        },
    }
}
