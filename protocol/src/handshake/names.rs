//! Which texts of a peer may be names. Checked once, here; behind it they are used as they are.

/// `[a-z0-9-]{1,40}`: stands in host names and metric labels.
#[must_use]
pub fn is_app_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=40).contains(&name.len()) && name.bytes().all(allowed)
}

/// `[A-Za-z0-9._-]{1,64}`: stands in logs and admin paths.
#[must_use]
pub fn is_agent_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&id.len()) && id.bytes().all(allowed)
}

/// Empty, or characters of a host with an optional port: it is written into requests as it is, so
/// nothing that could end a header line or hold userinfo passes.
#[must_use]
pub fn is_host_header(host: &str) -> bool {
    let allowed = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']')
    };
    host.len() <= 255 && host.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_anything_that_could_end_a_line_or_a_label_is_refused() {
        assert!(is_app_name("shop-1") && is_agent_id("Laptop_1.local") && is_host_header(""));
        assert!(is_host_header("[::1]:8080") && is_host_header("shop.example:80"));
        let long = "a".repeat(41);
        for bad in ["", "Shop", "a_b", "a.b", "a b", "a\n", "ä", &long] {
            assert!(!is_app_name(bad), "{bad:?}");
        }
        for bad in ["", "a/b", "a\"", "a\r", &"a".repeat(65)] {
            assert!(!is_agent_id(bad), "{bad:?}");
        }
        for bad in ["a\r\nX: y", "user@host", "a b", "a/b", &"a".repeat(256)] {
            assert!(!is_host_header(bad), "{bad:?}");
        }
    }
}
