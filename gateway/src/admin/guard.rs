//! Who may speak to the admin listener. Pure: facts of one request in, a refusal or nothing out.
//!
//! Two dangers: a stranger who reaches the port, and a web page in the operator's browser that
//! reaches the loopback address for him (by DNS rebinding, or by a request across origins).
//! Invariants: a configured token is demanded from everyone (a rebound page cannot have it);
//! without one only loopback peers that name an address or an own host pass; a request that a
//! foreign page caused never does. Tokens are compared in constant time.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};

use crate::config::Config;

/// Open to everyone who reaches the port, for probes; they tell no more than alive and ready.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// What the listener demands.
#[derive(Clone, Debug)]
pub struct Access {
    token: Option<blake3::Hash>,
    hosts: Vec<String>,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// No token, or not the right one.
    #[error("a valid token is required: Authorization: Bearer …")]
    Token,
    /// No token is configured, and the peer is not on this machine.
    #[error("without a configured token only this machine may ask")]
    Remote,
    /// The name in `Host` could have been pointed here by anybody.
    #[error("ask by address, by localhost or by one of the gateway's own hosts")]
    Host,
    /// A web page of another origin caused the request.
    #[error("requests from other origins are refused")]
    CrossOrigin,
}

impl Access {
    /// Demand the token with this hash from everyone. `hosts` are the gateway's own names.
    #[must_use]
    pub fn with_token(token: blake3::Hash, hosts: Vec<String>) -> Self {
        Self {
            token: Some(token),
            hosts,
        }
    }

    /// What a configuration demands.
    #[must_use]
    pub fn configured(config: &Config) -> Self {
        let own = config.gateway.hosts.iter();
        let hosts = own.map(|host| host.as_str().to_owned()).collect();
        match &config.admin.token_hash {
            Some(hash) => Self::with_token(hash.value(), hosts),
            None => Self::loopback(hosts),
        }
    }

    /// Let in peers on this machine only.
    #[must_use]
    pub fn loopback(hosts: Vec<String>) -> Self {
        Self { token: None, hosts }
    }

    /// May this request be answered?
    pub(super) fn check(
        &self,
        peer: IpAddr,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), Denied> {
        if crosses_origins(headers) {
            return Err(Denied::CrossOrigin);
        }
        let open = OPEN.contains(&path);
        if let Some(expected) = &self.token {
            // blake3 compares hashes in constant time.
            let right = |token: &str| blake3::hash(token.as_bytes()) == *expected;
            return if open || bearer(headers).is_some_and(right) {
                Ok(())
            } else {
                Err(Denied::Token)
            };
        }
        if !self.knows(headers) {
            return Err(Denied::Host);
        }
        if open || peer.to_canonical().is_loopback() {
            Ok(())
        } else {
            Err(Denied::Remote)
        }
    }

    /// Is `Host` a name that no stranger can point at this machine?
    fn knows(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return false;
        };
        let Some(name) = host.to_str().ok().and_then(without_port) else {
            return false;
        };
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// The token of a single well-formed `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim_matches(' '))
}

/// Did a page of another origin cause this? Programs that are no browser send neither header.
fn crosses_origins(headers: &HeaderMap) -> bool {
    let fetched = headers.get_all("sec-fetch-site").iter();
    if fetched
        .into_iter()
        .any(|v| v != "same-origin" && v != "none")
    {
        return true;
    }
    let host = headers.get(HOST).and_then(|h| h.to_str().ok());
    headers.get_all(ORIGIN).iter().any(|origin| {
        let origin = origin.to_str().ok();
        let authority = origin.and_then(|o| o.split_once("://")).map(|(_, a)| a);
        authority.is_none() || authority != host
    })
}

/// The host of `host`, `host:port` or `[v6]:port`.
fn without_port(authority: &str) -> Option<&str> {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split_once(']').map(|(address, _)| address);
    }
    authority.split(':').next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v)))
            .collect()
    }

    fn loopback() -> Access {
        Access::loopback(vec!["gw.example.com".into()])
    }

    fn guarded() -> Access {
        Access::with_token(blake3::hash(b"s3cret"), Vec::new())
    }

    #[test]
    fn without_a_token_this_machine_may_ask_by_address_or_own_name() {
        for host in [
            "127.0.0.1:9090",
            "localhost:9090",
            "LOCALHOST",
            "[::1]:9090",
            "gw.example.com",
        ] {
            let asked = headers(&[("host", host)]);
            assert_eq!(
                loopback().check(HERE, "/v1/status", &asked),
                Ok(()),
                "{host}"
            );
        }
    }

    #[test]
    fn without_a_token_a_rebound_name_is_refused_even_on_open_addresses() {
        for path in ["/v1/status", "/healthz"] {
            let asked = headers(&[("host", "evil.example:9090")]);
            assert_eq!(loopback().check(HERE, path, &asked), Err(Denied::Host));
            assert_eq!(
                loopback().check(HERE, path, &headers(&[])),
                Err(Denied::Host)
            );
        }
    }

    #[test]
    fn without_a_token_another_machine_may_only_probe() {
        let asked = headers(&[("host", "10.0.0.1:9090")]);
        assert_eq!(
            loopback().check(THERE, "/metrics", &asked),
            Err(Denied::Remote)
        );
        assert_eq!(loopback().check(THERE, "/readyz", &asked), Ok(()));
    }

    #[test]
    fn a_mapped_loopback_address_is_this_machine() {
        let mapped = "::ffff:127.0.0.1".parse().expect("an address");
        let asked = headers(&[("host", "localhost")]);
        assert_eq!(loopback().check(mapped, "/metrics", &asked), Ok(()));
    }

    #[test]
    fn a_configured_token_is_demanded_from_this_machine_too() {
        let without = headers(&[("host", "127.0.0.1")]);
        let wrong = headers(&[("host", "127.0.0.1"), ("authorization", "Bearer s3cre")]);
        let basic = headers(&[("host", "127.0.0.1"), ("authorization", "Basic s3cret")]);
        for asked in [without, wrong, basic] {
            assert_eq!(
                guarded().check(HERE, "/metrics", &asked),
                Err(Denied::Token)
            );
        }
        let right = headers(&[("host", "any.name"), ("authorization", "bearer s3cret")]);
        assert_eq!(guarded().check(THERE, "/metrics", &right), Ok(()));
        let probe = headers(&[("host", "gateway:9090")]);
        assert_eq!(guarded().check(THERE, "/readyz", &probe), Ok(()));
    }

    #[test]
    fn a_page_of_another_origin_never_gets_through() {
        let fetched = headers(&[("host", "localhost"), ("sec-fetch-site", "cross-site")]);
        let posted = headers(&[
            ("host", "localhost:9090"),
            ("origin", "http://evil.example"),
        ]);
        let sandboxed = headers(&[("host", "localhost:9090"), ("origin", "null")]);
        for asked in [fetched, posted, sandboxed] {
            let refused = loopback().check(HERE, "/v1/drain", &asked);
            assert_eq!(refused, Err(Denied::CrossOrigin));
        }
        let own = headers(&[
            ("host", "localhost:9090"),
            ("origin", "http://localhost:9090"),
        ]);
        assert_eq!(loopback().check(HERE, "/v1/drain", &own), Ok(()));
    }
}
