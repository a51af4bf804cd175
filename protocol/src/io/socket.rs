//! Options of TCP sockets, for both sides.
//!
//! An option that the system lacks is left out: it costs latency or a slower notice of a dead
//! peer, never correctness (liveness has its own clock).

use std::io;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;

/// Unsent bytes the kernel may hold for a carrier. More would queue a small request behind bulk
/// where the scheduler cannot reorder any more (200 Mbit/s, 20 ms, filled with downloads: 29 ms
/// for a small request with this value, 34 with 128 KiB, 100 without).
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 16 * 1024;

/// Send buffer of a connection to an app: keeps *written* close to *taken*.
const APP_SEND_BUFFER: usize = 128 * 1024;

/// Options of a carrier. `dead` is the silence after which the peer counts as dead: the kernel
/// gives up unacknowledged bytes at the same time.
///
/// # Errors
/// The system refuses an option.
pub fn tune_carrier(stream: &TcpStream, dead: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        socket.set_tcp_notsent_lowat(UNSENT)?;
        socket.set_tcp_user_timeout(Some(dead))?;
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = (socket, dead);
    Ok(())
}

/// Options of a connection to an app.
///
/// # Errors
/// The system refuses an option.
pub fn tune_app(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_send_buffer_size(APP_SEND_BUFFER)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_tuned_socket_has_the_options() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(address).await.expect("a connection");
        tune_carrier(&stream, Duration::from_secs(6)).expect("options");
        tune_app(&stream).expect("options");
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().expect("an option"));
        assert_eq!(socket.tcp_notsent_lowat().expect("an option"), UNSENT);
        let timeout = socket.tcp_user_timeout().expect("an option");
        assert_eq!(timeout, Some(Duration::from_secs(6)));
        // Linux doubles what it is asked for.
        assert_eq!(
            socket.send_buffer_size().expect("an option"),
            2 * APP_SEND_BUFFER
        );
    }
}
