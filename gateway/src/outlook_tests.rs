//! Certificates made for one test each, and the days around their ends.

use std::path::Path;

use super::*;

/// 2026-01-01 and 2026-04-01, noon of neither.
const FROM: i64 = 1_767_225_600;
const UNTIL: i64 = 1_775_001_600;
const MID: i64 = FROM + 10 * DAY;

struct Scene {
    config: Config,
    store: CertStore,
    _folder: tempfile::TempDir,
}

/// A gateway of one certificate for `names`, good from January to April of 2026.
fn scene(names: &[&str], rest: &str) -> Scene {
    let folder = tempfile::tempdir().expect("a folder");
    let key = rcgen::KeyPair::generate().expect("a key");
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).expect("names");
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2026, 4, 1);
    let made = params.self_signed(&key).expect("a certificate");
    let write = |name, text: String| std::fs::write(folder.path().join(name), text);
    write("gw.pem", made.pem()).expect("written");
    write("gw.key", key.serialize_pem()).expect("written");
    let text = format!(
        "{rest}\n[public]\nhttp = []\ndomain = \"example.com\"\n\
         tls = [{{ cert = \"gw.pem\", key = \"gw.key\" }}]\n[[app]]\nname = \"demo\"\n"
    );
    let config = Config::from_toml(&text, "gw.toml", folder.path()).expect("valid");
    Scene {
        store: CertStore::load(&config.public.tls).expect("usable"),
        config,
        _folder: folder,
    }
}

impl Scene {
    fn said(&self, now: i64, open_files: Option<u64>) -> Vec<String> {
        let stores = Stores {
            public: Some(&self.store),
            tunnel: Some(&self.store),
        };
        let file = self.config.public.tls[0].cert.display().to_string();
        let folder = Path::new(&file).parent().expect("a folder");
        let folder = format!("{}/", folder.display());
        let all = warnings(&self.config, stores, now, open_files);
        all.iter().map(|line| line.replace(&folder, "")).collect()
    }
}

#[test]
fn a_certificate_that_is_good_and_fits_is_not_spoken_of() {
    let scene = scene(
        &["*.example.com"],
        "[gateway]\nhosts = [\"gw.example.com\"]",
    );
    assert_eq!(scene.said(MID, Some(65_536)), Vec::<String>::new());
    assert_eq!(scene.said(UNTIL - SOON, None), Vec::<String>::new());
}

#[test]
fn a_certificate_is_told_once_before_it_ends_when_it_has_and_before_it_begins() {
    let scene = scene(&["*.example.com"], "");
    for (now, said) in [
        (
            UNTIL - SOON + 1,
            "the certificate gw.pem expires on 2026-04-01, in 13 days",
        ),
        (
            UNTIL,
            "the certificate gw.pem expires on 2026-04-01, in 0 days",
        ),
        (UNTIL + 1, "the certificate gw.pem expired on 2026-04-01"),
        (
            FROM - 1,
            "the certificate gw.pem is not valid before 2026-01-01",
        ),
    ] {
        assert_eq!(scene.said(now, None), [said]);
    }
}

#[test]
fn names_that_no_certificate_is_made_for_are_told() {
    let scene = scene(
        &["demo.example.com", "203.0.113.7"],
        "[gateway]\nhosts = [\"gw.example.com\", \"203.0.113.7\", \"[2001:db8::1]\"]",
    );
    assert_eq!(
        scene.said(MID, None),
        ["no certificate of [public].tls is made for gw.example.com, [2001:db8::1]"]
    );
}

#[test]
fn of_many_such_names_some_are_told_and_the_rest_counted() {
    let hosts: Vec<String> = (0..8).map(|n| format!("\"gw-{n}.example.com\"")).collect();
    let scene = scene(
        &["demo.example.com"],
        &format!("[gateway]\nhosts = [{}]", hosts.join(", ")),
    );
    let said = scene.said(MID, None);
    assert!(
        said[0].ends_with("gw-3.example.com, gw-4.example.com and 3 more"),
        "{said:?}"
    );
}

#[test]
fn fewer_open_files_than_connections_are_told_with_the_number_that_would_do() {
    let scene = scene(&["*.example.com"], "[limits]\nconnections = 5000");
    assert_eq!(scene.said(MID, Some(6_000)), Vec::<String>::new());
    let said = scene.said(MID, Some(5_999));
    assert!(
        said[0].starts_with("5999 open files") && said[0].ends_with("to 6000 or more"),
        "{said:?}"
    );
}
