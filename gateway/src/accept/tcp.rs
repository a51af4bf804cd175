//! Connections to TCP apps: one public port, one app, nothing to parse.

use std::future::Future;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::net::TcpStream;

use super::listener::{Arrival, Serve, refuse};
use super::opening::{Entry, Opening, open};
use crate::request::front::ClientInfo;

/// What a TCP app's connections are handed to.
pub trait TcpCorridor: Clone + Send + Sync + 'static {
    /// Serve one connection to its end. Dropping `stream` closes it; a broken exchange must be ended
    /// by a reset (`set_zero_linger`), since a close is a clean end here.
    fn connection(&self, info: ClientInfo, stream: TcpStream) -> impl Future<Output = ()> + Send;
}

/// Serves the connections of one TCP app's port.
#[derive(Clone, Debug)]
pub struct TcpFront<T> {
    /// Where connections go.
    pub corridor: T,
    /// How connections begin.
    pub opening: Arc<ArcSwap<Opening>>,
}

impl<T: TcpCorridor> Serve for TcpFront<T> {
    async fn serve(self, arrival: Arrival) {
        let opened = match open(arrival, &self.opening.load_full()).await {
            Entry::Opened(opened) => opened,
            Entry::Full(stream, ..) => return refuse(&stream),
            Entry::Gone => return,
        };
        self.corridor.connection(opened.info, opened.stream).await;
        drop(opened.permit);
    }
}
