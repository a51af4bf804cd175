//! Why an exchange failed: a closed list, finer than the codes. One code may have many reasons
//! (a port that refuses and an absent agent are both `BH_APP_STARTING`), so that a person can tell
//! a crash from a cold start. Words only; nothing is decided here.

words! {
    /// Which of the two windows ran out.
    WindowKind {
        /// No progress by the app before its final head.
        FirstFrame = "first_frame",
        /// The answer had begun and fell silent.
        Stall = "stall",
    }
}

words! {
    /// What happened, in one word.
    Reason {
        /// No agent that offers the app is connected.
        NoAgent = "no_agent",
        /// The app's port refused the connection.
        ConnectRefused = "connect_refused",
        /// The connection to the app was not established in time.
        ConnectTimeout = "connect_timeout",
        /// The connection broke while it was being established.
        ConnectReset = "connect_reset",
        /// The TLS handshake with the app failed.
        TlsFailed = "tls_failed",
        /// The agent serves no app of that name.
        NoSuchApp = "no_such_app",
        /// The app's host does not resolve, or no network route leads to it.
        Unreachable = "unreachable",
        /// The agent is going away and takes no new streams.
        AgentDraining = "agent_draining",
        /// The agent's stream or descriptor limit is reached.
        AgentLimit = "agent_limit",
        /// The time left was over before the first byte could be handed to the app.
        Expired = "expired",
        /// The kept connection to the app turned out to be closed or dirty; nothing was written.
        StaleConnection = "stale_connection",
        /// The app closed its connection without a byte of an answer.
        ClosedBeforeHead = "closed_before_head",
        /// The tunnel to the agent broke and was not resumed.
        TunnelLost = "tunnel_lost",
        /// The first-frame window ran out.
        FirstFrame = "first_frame",
        /// The stalled-response window ran out.
        Stall = "stall",
        /// The app closed its connection in the middle of an answer.
        AppClosed = "app_closed",
        /// The app's answer is not well-formed HTTP.
        BadHttp = "bad_http",
        /// The app's queue has no free place.
        QueueFull = "queue_full",
        /// The request waited in the queue for longer than allowed.
        QueueWait = "queue_wait",
        /// A rate limit refused it.
        Rate = "rate",
        /// The app is paused after a run of timeouts.
        Quarantine = "quarantine",
        /// A run of identical failures tripped the breaker.
        ErrorLoop = "error_loop",
        /// Every slot for large bodies is taken.
        LargeBody = "large_body",
        /// The gateway is short of memory or connections.
        Overload = "overload",
        /// The gateway is shutting down in order.
        Draining = "draining",
        /// The client sent its request too slowly.
        ClientTimeout = "client_timeout",
        /// The request is not well formed.
        BadRequest = "bad_request",
        /// No route leads from this host and path to an app.
        NoRoute = "no_route",
        /// The body is larger than the route allows.
        BodyLimit = "body_limit",
        /// The request target is too long.
        UriLimit = "uri_limit",
        /// The head is too large or has too many fields.
        HeadLimit = "head_limit",
        /// The host does not belong to the connection it came on.
        WrongHost = "wrong_host",
        /// The asked upgrade cannot be served.
        Upgrade = "upgrade",
        /// An access list refused the client.
        Denied = "denied",
        /// The gateway itself failed.
        Internal = "internal",
    }
}
