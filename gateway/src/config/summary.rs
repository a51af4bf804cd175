//! A configuration told to a person: what listens, what is reachable where, what looks forgotten.
//!
//! Pure. Shows no hash and no token. Place in the path: `bh-gateway check`.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::settings::{AppEntry, AppKind, Config};
use bridgehead_protocol::config::show_duration;

/// Lines for a person; `now` is the second of the epoch, for keys that are over. `ahead`: further
/// warnings, of what stands in other files.
#[must_use]
pub fn summary(config: &Config, now: u64, ahead: Vec<String>) -> String {
    let mut text = String::new();
    let mut line = |name: &str, rest: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<8} {rest}");
    };
    if !config.public.http.is_empty() {
        line("http", addresses(&config.public.http));
    }
    if !config.public.https.is_empty() {
        line("https", addresses(&config.public.https));
    }
    if let Some(domain) = &config.public.domain {
        line("domain", format!("<app>.{domain}"));
    }
    if !config.gateway.hosts.is_empty() {
        let hosts: Vec<&str> = config
            .gateway
            .hosts
            .iter()
            .map(|host| host.as_str())
            .collect();
        line("own", hosts.join(", "));
    }
    let carrier = match config.tunnel.plain {
        true => "plain TCP",
        false => "TLS",
    };
    line(
        "tunnel",
        format!("{}, {carrier}", addresses(&config.tunnel.listen)),
    );
    let guard = match config.admin.token_hash {
        Some(_) => "token",
        None => "this machine only",
    };
    line("admin", format!("{}, {guard}", config.admin.listen));
    for agent in &config.agents {
        let valid = agent
            .keys
            .iter()
            .filter(|key| key.expires.is_none_or(|end| end > now));
        let served: Vec<&str> = (config.apps.iter())
            .filter(|app| {
                agent
                    .apps
                    .iter()
                    .any(|pattern| pattern.matches(app.name.as_str()))
            })
            .map(|app| app.name.as_str())
            .collect();
        let serves = match served.is_empty() {
            true => "no [[app]] by name".to_owned(),
            false => served.join(", "),
        };
        line(
            "agent",
            format!(
                "{}: {} valid token(s), serves {serves}",
                agent.id,
                valid.count()
            ),
        );
    }
    for app in &config.apps {
        line("app", app_line(config, app));
    }
    for warning in warnings(config, now).into_iter().chain(ahead) {
        line("warning", warning);
    }
    text
}

fn addresses(list: &[SocketAddr]) -> String {
    let shown: Vec<String> = list.iter().map(ToString::to_string).collect();
    shown.join(", ")
}

fn app_line(config: &Config, app: &AppEntry) -> String {
    let (kind, places) = match app.kind {
        AppKind::Tcp => (
            "tcp",
            vec![format!("port {}", app.port.unwrap_or_default())],
        ),
        AppKind::Http1 => ("http1", http_places(config, app)),
        AppKind::H2c => ("h2c", http_places(config, app)),
    };
    let settings = &app.settings;
    format!(
        "{} ({kind}) at {}; first frame {}, stall {}, hold {}",
        app.name,
        places.join(", "),
        show_duration(settings.first_frame_window),
        show_duration(settings.stall_window),
        show_duration(settings.hold)
    )
}

fn http_places(config: &Config, app: &AppEntry) -> Vec<String> {
    let named = config
        .public
        .domain
        .iter()
        .map(|domain| format!("{}.{domain}", app.name));
    let hosts = named.chain(app.hosts.iter().map(ToString::to_string));
    let with_paths = |host: String| {
        let places = app.paths.iter().map(move |path| match path.as_str() {
            "/" => host.clone(),
            path => format!("{host}{path}"),
        });
        places.collect::<Vec<String>>()
    };
    hosts.flat_map(with_paths).collect()
}

/// Valid, but hardly meant.
fn warnings(config: &Config, now: u64) -> Vec<String> {
    let mut found = Vec::new();
    if config.agents.is_empty() {
        found.push("no [[agent]]: nobody can dial in; `bh-gateway token new` makes one".to_owned());
    }
    for agent in &config.agents {
        for key in &agent.keys {
            if key.expires.is_some_and(|end| end <= now) {
                found.push(format!(
                    "the token {} of the agent {} is over",
                    key.id, agent.id
                ));
            }
        }
    }
    for app in &config.apps {
        let served = (config.agents.iter()).any(|agent| {
            agent
                .apps
                .iter()
                .any(|pattern| pattern.matches(app.name.as_str()))
        });
        if !served && !config.agents.is_empty() {
            found.push(format!("no [[agent]] may serve the app {}", app.name));
        }
    }
    found
}
