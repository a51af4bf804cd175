//! The admin listener's metrics, read as numbers.
//!
//! Must not: know which metrics exist; the tests name them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::client;

/// One reading of all series: `name{labels}` → value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot(BTreeMap<String, f64>);

/// Reads `/metrics`.
pub async fn read(admin: SocketAddr) -> Snapshot {
    let answer = client::ask(admin, "GET", "/metrics", &admin.to_string()).await;
    assert_eq!(answer.status, 200, "metrics: {}", answer.text());
    Snapshot::parse(&answer.text())
}

impl Snapshot {
    /// Reads `/metrics`; nothing if nobody answers.
    pub async fn try_read(admin: SocketAddr) -> Option<Self> {
        let stream = tokio::net::TcpStream::connect(admin).await.ok()?;
        let mut connection = client::H1::over(stream);
        let host = admin.to_string();
        connection
            .request("GET", "/metrics", &host, &[("Connection", "close")], b"")
            .await;
        let answer = connection.try_answer("GET").await.ok()?;
        (answer.status == 200).then(|| Self::parse(&answer.text()))
    }

    /// The series of `bridgehead_NAME`, by the value of one label.
    pub fn by_label(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let found = self.by_labels(name, [label]).into_iter();
        found.map(|([value], number)| (value, number)).collect()
    }

    /// The series of `bridgehead_NAME` that carry all of `labels`, by their values.
    pub fn by_labels<const N: usize>(
        &self,
        name: &str,
        labels: [&str; N],
    ) -> BTreeMap<[String; N], f64> {
        let whole = format!("bridgehead_{name}{{");
        let starts = labels.map(|label| format!("{label}=\""));
        let values = |series: &String| {
            let carried = series.strip_prefix(&whole)?;
            let value = |start: &String| {
                let (_, rest) = carried.split_once(start.as_str())?;
                rest.split('"').next().map(str::to_owned)
            };
            let found: Option<Vec<String>> = starts.iter().map(value).collect();
            found?.try_into().ok()
        };
        let mut found = BTreeMap::new();
        for (series, number) in &self.0 {
            if let Some(values) = values(series) {
                *found.entry(values).or_default() += number;
            }
        }
        found
    }

    /// Reads what `/metrics` answers.
    pub fn parse(text: &str) -> Self {
        let series = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Self(
            text.lines()
                .filter(|l| !l.starts_with('#'))
                .filter_map(series)
                .collect(),
        )
    }

    /// Sum of the series of `bridgehead_NAME` that carry every one of `labels`.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let whole = format!("bridgehead_{name}");
        let fits = |series: &str| {
            let (base, rest) = series.split_once('{').unwrap_or((series, ""));
            base == whole
                && labels
                    .iter()
                    .all(|(l, v)| rest.contains(&format!("{l}=\"{v}\"")))
        };
        self.0
            .iter()
            .filter(|(series, _)| fits(series))
            .map(|(_, value)| value)
            .sum()
    }

    /// Series whose value differs from `before`, with the difference; only names that `keep` accepts.
    pub fn moved(&self, before: &Self, keep: impl Fn(&str) -> bool) -> BTreeMap<String, f64> {
        let mut moved = BTreeMap::new();
        for (series, value) in &self.0 {
            let was = before.0.get(series).copied().unwrap_or(0.0);
            if keep(series) && (value - was).abs() > f64::EPSILON {
                moved.insert(series.clone(), value - was);
            }
        }
        moved
    }
}
