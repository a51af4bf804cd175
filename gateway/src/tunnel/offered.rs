//! What one tunnel offers now, and who has to be told when that changes.
//!
//! The guard of the names that a tunnel brings: whatever becomes of the tunnel, its drop takes them back.
//! Must not know routes; whoever listens does.

use std::sync::Arc;

use bridgehead_protocol::wire::AppOffer;

/// A token subject brings more apps than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the agents of this token bring more than {most} apps that no [[app]] of the gateway names \
     ([tunnel].apps_per_agent)"
)]
pub struct TooManyApps {
    /// How many it may bring.
    pub most: usize,
}

/// Told what the tunnel of a subject offered before and what it offers from now on; may refuse, and then
/// nothing has changed. Fewer apps are never refused.
pub type OnOffer =
    Box<dyn Fn(&str, &[AppOffer], &[AppOffer]) -> Result<(), TooManyApps> + Send + Sync>;

/// What a tunnel offers.
pub struct Offered {
    listener: Arc<OnOffer>,
    subject: Box<str>,
    apps: Vec<AppOffer>,
}

impl Offered {
    /// A tunnel of `subject` that offers `apps`.
    ///
    /// # Errors
    /// [`TooManyApps`].
    pub fn new(
        listener: &Arc<OnOffer>,
        subject: &str,
        apps: &[AppOffer],
    ) -> Result<Self, TooManyApps> {
        let mut offered = Self {
            listener: Arc::clone(listener),
            subject: subject.into(),
            apps: Vec::new(),
        };
        offered.replace(apps)?;
        Ok(offered)
    }

    /// What it offers.
    #[must_use]
    pub fn apps(&self) -> &[AppOffer] {
        &self.apps
    }

    /// True if `apps` has a name that is not offered yet.
    #[must_use]
    pub fn lacks_any(&self, apps: &[AppOffer]) -> bool {
        let has = |name: &str| self.apps.iter().any(|app| app.name == name);
        apps.iter().any(|app| !has(&app.name))
    }

    /// It offers exactly `apps` from now on.
    ///
    /// # Errors
    /// [`TooManyApps`]; it offers what it did.
    pub fn replace(&mut self, apps: &[AppOffer]) -> Result<(), TooManyApps> {
        (self.listener)(&self.subject, &self.apps, apps)?;
        self.apps = apps.to_vec();
        Ok(())
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let fewer = (self.listener)(&self.subject, &self.apps, &[]);
        debug_assert!(fewer.is_ok(), "fewer apps are never refused");
    }
}
