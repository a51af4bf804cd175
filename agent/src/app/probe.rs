//! Looks whether an app that is not known to be ready has come, so that the gateway can release what it
//! holds within 250 ms.
//!
//! One loop for each app, so that a slow one delays no other. A look is one connection, closed at once,
//! and no look is made at an app that is ready.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};

use super::connect::CONNECT_LIMIT;
use super::table::{App, AppTable};

/// Runs until dropped. Cancel safe.
pub async fn watch(table: Arc<AppTable>) {
    join_all(table.iter().map(|app| watch_one(&table, app))).await;
}

async fn watch_one(table: &AppTable, app: &App) {
    let mut changes = table.changes();
    loop {
        let next = app.next_probe();
        let due = async {
            match next {
                Some(moment) => sleep_until(table.clock().instant(moment)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // The table owns the sender, so an error would mean that the table is gone.
            changed = changes.changed() => if changed.is_err() { return },
            () = due => {
                // A stream may have connected meanwhile; then there is nothing left to find out.
                if app.next_probe() == next {
                    // No exchange waits for it, so only the limit of every connection holds.
                    let whenever = Instant::now() + 2 * CONNECT_LIMIT;
                    // The table remembers what it showed; the connection itself is dropped.
                    drop(table.connect_app(app, whenever).await);
                }
            }
        }
    }
}
