//! Which app a request reaches, and whom that app believes it came from.

use bridgehead_tests::app::{self, App};
use bridgehead_tests::client::H1;
use bridgehead_tests::world::{World, setup};

use crate::support::{One, one};

/// First line that the echoing app says of a request for `host` and `target`; the status if refused.
async fn reached(world: &World, host: &str, target: &str) -> String {
    let answer = world.h1().await.ask("GET", target, host, &[], b"").await;
    if answer.made_by_gateway() {
        return answer.status.to_string();
    }
    answer.header("x-app").unwrap_or_default().to_owned()
}

/// An app that says its own name in a field.
async fn named(name: &'static str) -> App {
    App::start(move |mut conn| async move {
        while conn.read_head().await.is_some() {
            let head = format!("HTTP/1.1 200 OK\r\nX-App: {name}\r\nContent-Length: 0\r\n\r\n");
            conn.write(head).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_and_the_longest_path_decide_which_app_is_reached() {
    let (site, api, admin) = (
        named("site").await,
        named("api").await,
        named("admin").await,
    );
    let world = setup()
        .app("demo", "hosts = [\"shop.example\"]")
        .app("api", "hosts = [\"shop.example\"]\npaths = [\"/api\"]")
        .app(
            "admin",
            "hosts = [\"shop.example\"]\npaths = [\"/api/admin\"]",
        )
        .start()
        .await;
    let targets = [
        ("demo", site.target()),
        ("api", api.target()),
        ("admin", admin.target()),
    ];
    let targets: Vec<(&str, &str)> = targets.iter().map(|(n, t)| (*n, t.as_str())).collect();
    let _agent = world.join("a1", &targets).await;
    for (target, app) in [
        ("/", "site"),
        ("/api", "api"),
        ("/api/", "api"),
        ("/api/x?y=/api/admin", "api"),
        ("/apix", "site"),
        ("/api/admin/users", "admin"),
        ("/API", "site"),
        ("/x/api", "site"),
        ("/?next=/api", "site"),
    ] {
        assert_eq!(
            reached(&world, "shop.example", target).await,
            app,
            "{target}"
        );
    }
    assert_eq!(
        reached(&world, "SHOP.Example", "/api").await,
        "api",
        "hosts know no case"
    );
    assert_eq!(
        reached(&world, "shop.example:8080", "/api").await,
        "api",
        "a port is no part of a route"
    );
    assert_eq!(
        reached(&world, "demo.localhost", "/").await,
        "site",
        "a name below the domain works too"
    );
    assert_eq!(reached(&world, "example", "/").await, "404");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_two_parsers_could_read_differently_reaches_no_other_app() {
    let (site, admin) = (named("site").await, named("admin").await);
    let world = setup()
        .app("demo", "hosts = [\"shop.example\"]")
        .app("admin", "hosts = [\"shop.example\"]\npaths = [\"/admin\"]")
        .start()
        .await;
    let _agent = world
        .join(
            "a1",
            &[("demo", &site.target()), ("admin", &admin.target())],
        )
        .await;
    for target in [
        "/x/../admin",
        "/./admin",
        "//admin",
        "/%61dmin",
        "/admin%2f..",
        "/x/%2e%2e/admin",
    ] {
        let reached = reached(&world, "shop.example", target).await;
        let seen = admin.text();
        assert_ne!(
            reached, "admin",
            "{target} is not below /admin as it is written: {seen}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_absolute_form_is_routed_by_its_own_authority() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let host = world.host("demo");
    let answer = world
        .h1()
        .await
        .ask("GET", &format!("http://{host}/abs?x=1"), &host, &[], b"")
        .await;
    assert!(
        answer.text().starts_with("GET /abs?x=1\n"),
        "{}",
        answer.text()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_proxy_is_believed_about_its_client_and_nobody_else_is() {
    let trusting = setup().section("public", "trusted_proxies = [\"127.0.0.1/32\"]");
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(trusting, app::echo).await;
    let fields = [
        ("X-Forwarded-For", "6.6.6.6, 203.0.113.9"),
        ("X-Forwarded-Proto", "https"),
    ];
    let text = world
        .h1()
        .await
        .ask("GET", "/", &world.host("demo"), &fields, b"")
        .await
        .text();
    assert!(
        text.contains("203.0.113.9") && text.contains("x-forwarded-proto: https\n"),
        "{text}"
    );
    assert!(
        text.contains("bridgehead-tunnel: 1\n"),
        "the app can tell tunnelled requests apart: {text}"
    );
    let id = text
        .lines()
        .find_map(|l| l.strip_prefix("x-request-id: "))
        .expect("an id")
        .to_owned();
    let known = world.admin(&format!("/v1/exchanges/{id}")).await;
    assert_eq!(known["client"].as_str(), Some("203.0.113.9"), "{known}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_header_from_a_trusted_peer_names_the_client() {
    let lines = "trusted_proxies = [\"127.0.0.1/32\"]\nproxy_protocol = \"from_trusted\"";
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup().section("public", lines), app::echo).await;
    let mut client = H1::connect(world.places.public).await;
    client
        .send("PROXY TCP4 198.51.100.7 127.0.0.1 4711 80\r\n")
        .await;
    let text = client
        .ask("GET", "/", &world.host("demo"), &[], b"")
        .await
        .text();
    assert!(text.contains("x-forwarded-for: 198.51.100.7\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_a_proxy_header_names_speaks_for_nobody_though_its_address_is_that_of_a_proxy()
 {
    let lines = "trusted_proxies = [\"127.0.0.0/8\"]\nproxy_protocol = \"from_trusted\"";
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup().section("public", lines), app::echo).await;
    let mut client = H1::connect(world.places.public).await;
    client
        .send("PROXY TCP4 127.0.0.9 127.0.0.1 4711 80\r\n")
        .await;
    let claims = [
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-Proto", "https"),
    ];
    let answer = client
        .ask("GET", "/", &world.host("demo"), &claims, b"")
        .await;
    let text = answer.text();
    assert!(text.contains("x-forwarded-for: 127.0.0.9\n"), "{text}");
    assert!(text.contains("x-forwarded-proto: http\n"), "{text}");
    let id = text.lines().find_map(|l| l.strip_prefix("x-request-id: "));
    let known = world
        .admin(&format!("/v1/exchanges/{}", id.expect("an id")))
        .await;
    assert_eq!(known["client"].as_str(), Some("127.0.0.9"), "{known}");
    // The proxy speaks for itself: its word is believed, as without the header.
    let mut proxy = H1::connect(world.places.public).await;
    proxy.send("PROXY UNKNOWN\r\n").await;
    let text = proxy
        .ask("GET", "/", &world.host("demo"), &claims, b"")
        .await
        .text();
    assert!(
        text.contains("x-forwarded-for: 203.0.113.9, 127.0.0.1\n"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_may_give_the_app_another_host() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(
        setup().app("demo", "host_header = \"inside.example:81\""),
        app::echo,
    )
    .await;
    let text = world.get("/").await.text();
    assert!(text.contains("host: inside.example:81\n"), "{text}");
    assert!(
        text.contains("x-forwarded-host: demo.localhost"),
        "the client's own stays known: {text}"
    );
}
