//! The figures as they come, and the verdict over all of them.

use std::process::ExitCode;

use serde_json::{Value, json};

/// One figure.
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) name: String,
    /// What it was.
    pub(crate) measured: f64,
    /// Least and most that it may be.
    pub(crate) bounds: (f64, f64),
    /// Of both.
    pub(crate) unit: &'static str,
}

impl Figure {
    /// A figure that may be anything up to `most`.
    pub(crate) fn upto(
        name: impl Into<String>,
        measured: f64,
        most: f64,
        unit: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            measured,
            bounds: (0.0, most),
            unit,
        }
    }

    fn holds(&self) -> bool {
        (self.bounds.0..=self.bounds.1).contains(&self.measured)
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "measured": self.measured,
            "least": self.bounds.0,
            "most": self.bounds.1,
            "unit": self.unit,
            "ok": self.holds(),
        })
    }
}

/// All figures.
pub(crate) struct Table {
    json: bool,
    figures: Vec<Figure>,
}

impl Table {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            figures: Vec::new(),
        }
    }

    /// Takes a figure, and shows it at once where people look.
    pub(crate) fn add(&mut self, figure: Figure) {
        if !self.json {
            let (least, most) = figure.bounds;
            let bound = if least > 0.0 {
                format!("{least} to {most}")
            } else {
                format!("at most {most}")
            };
            let verdict = if figure.holds() { "ok" } else { "OVER" };
            println!(
                "{:<66} {:>9.3} {:<4} {bound:<14} {verdict}",
                figure.name, figure.measured, figure.unit
            );
        }
        self.figures.push(figure);
    }

    /// The end of the process.
    pub(crate) fn finish(self) -> ExitCode {
        if self.json {
            let all: Vec<Value> = self.figures.iter().map(Figure::json).collect();
            println!("{}", json!({ "figures": all }));
        }
        let over = self.figures.iter().filter(|f| !f.holds()).count();
        if over > 0 {
            eprintln!("{over} of {} figures are over", self.figures.len());
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}
