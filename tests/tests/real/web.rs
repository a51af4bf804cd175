//! nginx as an app, and curl as a client.

use std::process::Command;

use bridgehead_tests::port;
use bridgehead_tests::world::{Folder, Setup, setup};

use crate::setup::{Real, behind, client, needs, program};

/// Bytes of the large file.
const LARGE: usize = 64 << 20;

/// nginx over a folder of its own, as a single process.
async fn nginx(folder: &Folder) -> Result<Real, crate::setup::Missing> {
    serve(folder, setup(), "http", "").await
}

/// The same by HTTP/2 without TLS; the flag is an old spelling that new versions still take.
async fn nginx_h2c(folder: &Folder) -> Result<Real, crate::setup::Missing> {
    let setup = setup().app("demo", "protocol = \"h2c\"");
    serve(folder, setup, "h2c", "http2").await
}

async fn serve(
    folder: &Folder,
    setup: Setup,
    scheme: &str,
    flag: &str,
) -> Result<Real, crate::setup::Missing> {
    let port = port::free();
    let root = folder.path().display().to_string();
    let config = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;\n\
         events {{}}\n\
         http {{ access_log off; gzip on; gzip_types text/plain; default_type text/plain; keepalive_timeout 2s;\n\
         client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;\n\
         uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
         server {{ listen 127.0.0.1:{port} {flag}; root {root}/www; }} }}\n"
    );
    std::fs::create_dir_all(folder.path().join("www")).expect("the folder can be written");
    folder.write("www/small.txt", &"0123456789".repeat(100));
    let large: Vec<u8> = (0..LARGE)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    std::fs::write(folder.path().join("www/large.bin"), &large).expect("the folder can be written");
    let file = folder.write("nginx.conf", &config);
    let mut command = Command::new(program("nginx")?);
    command
        .arg("-p")
        .arg(folder.path())
        .arg("-e")
        .arg(folder.path().join("error.log"))
        .arg("-c")
        .arg(file);
    Ok(behind(setup, command, port, scheme).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_serves_ranges_conditions_and_large_files() {
    let folder = Folder::new();
    let real = needs!(nginx(&folder).await);
    let host = real.world.host("demo");
    let mut client = real.world.h1().await;
    let whole = client.ask("GET", "/small.txt", &host, &[], b"").await;
    assert_eq!((whole.status, whole.body.len()), (200, 1000));
    let etag = whole.header("etag").expect("an entity tag").to_owned();
    let unchanged = client
        .ask("GET", "/small.txt", &host, &[("If-None-Match", &etag)], b"")
        .await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    let part = client
        .ask("GET", "/small.txt", &host, &[("Range", "bytes=5-14")], b"")
        .await;
    assert_eq!((part.status, part.text().as_str()), (206, "5678901234"));
    assert_eq!(part.header("content-range"), Some("bytes 5-14/1000"));
    let parts = client
        .ask(
            "GET",
            "/small.txt",
            &host,
            &[("Range", "bytes=0-1,10-11")],
            b"",
        )
        .await;
    assert_eq!(parts.status, 206);
    assert!(
        parts
            .header("content-type")
            .is_some_and(|t| t.starts_with("multipart/byteranges"))
    );
    let beyond = client
        .ask("GET", "/small.txt", &host, &[("Range", "bytes=5000-")], b"")
        .await;
    assert_eq!(beyond.status, 416);
    let packed = client
        .ask(
            "GET",
            "/small.txt",
            &host,
            &[("Accept-Encoding", "gzip")],
            b"",
        )
        .await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(
        packed.body.starts_with(&[0x1f, 0x8b]),
        "the body passes as it is"
    );
    let head = client.ask("HEAD", "/large.bin", &host, &[], b"").await;
    assert_eq!(
        head.header("content-length"),
        Some(LARGE.to_string().as_str())
    );
    let large = client.ask("GET", "/large.bin", &host, &[], b"").await;
    let file = std::fs::read(folder.path().join("www/large.bin")).expect("the file is there");
    assert!(
        large.body == file,
        "{} bytes came, not the same",
        large.body.len()
    );
    let moved = client.ask("POST", "/small.txt", &host, &[], b"x").await;
    assert_eq!(moved.status, 405, "nginx says so itself");
    assert!(!moved.made_by_gateway());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_over_http2_without_tls_answers_clients_of_both_versions() {
    let curl = needs!(program("curl"));
    let folder = Folder::new();
    let real = needs!(nginx_h2c(&folder).await);
    let host = real.world.host("demo");
    let mut client = real.world.h1().await;
    let small = client.ask("GET", "/small.txt", &host, &[], b"").await;
    assert_eq!((small.status, small.body.len()), (200, 1000));
    let etag = small.header("etag").expect("an entity tag").to_owned();
    let unchanged = client
        .ask("GET", "/small.txt", &host, &[("If-None-Match", &etag)], b"")
        .await;
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    let head = client.ask("HEAD", "/large.bin", &host, &[], b"").await;
    assert_eq!(
        head.header("content-length"),
        Some(LARGE.to_string().as_str())
    );
    // Refused before the body is over; the answer passes all the same.
    let body = vec![b'x'; 600_000];
    let refused = client.ask("POST", "/small.txt", &host, &[], &body).await;
    assert_eq!(refused.status, 405, "nginx says so itself");
    assert!(!refused.made_by_gateway());
    let url = format!("http://{host}/large.bin");
    let resolve = format!(
        "demo.localhost:{}:127.0.0.1",
        real.world.places.public.port()
    );
    let file = std::fs::read(folder.path().join("www/large.bin")).expect("the file is there");
    for flag in ["--http1.1", "--http2-prior-knowledge"] {
        let out = folder.path().join("out.bin");
        let mut command = Command::new(&curl);
        command
            .args(["-sS", "--fail", flag, "--resolve", &resolve, "-o"])
            .arg(&out)
            .arg(&url);
        crate::setup::client("curl", command);
        let got = std::fs::read(&out).expect("curl wrote it");
        assert!(got == file, "{flag}: {} bytes", got.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_gets_the_same_over_http1_http2_and_resumes() {
    let curl = needs!(program("curl"));
    let folder = Folder::new();
    let real = needs!(nginx(&folder).await);
    let url = format!("http://{}/large.bin", real.world.host("demo"));
    let resolve = format!(
        "demo.localhost:{}:127.0.0.1",
        real.world.places.public.port()
    );
    let file = std::fs::read(folder.path().join("www/large.bin")).expect("the file is there");
    for flags in [
        &["--http1.1"][..],
        &["--http2-prior-knowledge"],
        &["--http1.1", "-r", "1000-"],
    ] {
        let out = folder.path().join("out.bin");
        let mut command = Command::new(&curl);
        command
            .args(["-sS", "--fail", "--resolve", &resolve, "-o"])
            .arg(&out)
            .args(flags)
            .arg(&url);
        client("curl", command);
        let got = std::fs::read(&out).expect("curl wrote it");
        let from = if flags.contains(&"-r") { 1000 } else { 0 };
        assert!(got == file[from..], "{flags:?}: {} bytes", got.len());
    }
}
