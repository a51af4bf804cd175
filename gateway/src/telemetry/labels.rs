//! The words that metrics and log lines use as label values, as closed enums.
//!
//! A label value that is not a configured name comes from here or from `protocol::verdict`, so the
//! number of series is bounded by construction. Pure values; nothing here counts.

/// Declares an enum of label values with `ALL` (in the order of the discriminants) and `as_str`.
macro_rules! labels {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word in metrics and log lines.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

labels! {
    /// How an exchange ended, as its client saw it.
    Outcome {
        /// The app's answer (or the gateway's own page) went out to its end.
        Answered = "answered",
        /// The gateway answered; the app did not see the request and never will.
        Refused = "refused",
        /// The gateway answered after the request may have reached the app.
        Failed = "failed",
        /// The app's answer was cut short, visibly.
        Aborted = "aborted",
        /// The client went before its answer was complete.
        ClientLeft = "client_left",
    }
}

labels! {
    /// What is known of an exchange in the outcome ledger.
    LedgerState {
        /// It runs, or what it came to is still awaited.
        Pending = "pending",
        /// The app did not see it and never will.
        NotDelivered = "not_delivered",
        /// The app began to answer it.
        Answered = "answered",
        /// Neither can be proven.
        Unknown = "unknown",
    }
}

impl LedgerState {
    /// How an uncertain end can become known.
    pub const KNOWN: &'static [Self] = &[Self::NotDelivered, Self::Answered];
    /// How an uncertainty can end.
    pub const RESOLVED: &'static [Self] = &[Self::NotDelivered, Self::Answered, Self::Unknown];
}

labels! {
    /// Parts of an exchange's time; each is measured from the arrival of the head.
    Phase {
        /// Until admission.
        Admit = "admit",
        /// Until the agent said that the app's connection stands.
        Open = "open",
        /// Until the first byte of the app's answer.
        FirstByte = "first_byte",
        /// Until the end.
        Total = "total",
    }
}

labels! {
    /// Direction of body bytes.
    Direction {
        /// From the client.
        In = "in",
        /// To the client.
        Out = "out",
    }
}

labels! {
    /// How a hold ended.
    HoldResult {
        /// The request was given to an app.
        Released = "released",
        /// The hold ran out; the caller got the refusal.
        Expired = "expired",
        /// The client left while it was held.
        ClientLeft = "client_left",
        /// It was not held: as many waited as may.
        Refused = "refused",
    }
}

labels! {
    /// Places of which one client may have a share.
    SharedPlaces {
        /// In flight.
        InFlight = "in_flight",
        /// In the queue.
        Queue = "queue",
        /// For long-lived exchanges.
        LongLived = "long_lived",
        /// Slots for large bodies.
        LargeBodies = "large_body_slots",
    }
}

labels! {
    /// State of a tunnel, as the gateway sees it.
    TunnelState {
        /// Takes new streams.
        Live = "live",
        /// Without a carrier; waits for the next one.
        Suspended = "suspended",
        /// Finishes old streams, takes no new ones.
        Draining = "draining",
    }
}

labels! {
    /// What carries a tunnel's frames.
    CarrierKind {
        /// Plain TCP.
        Tcp = "tcp",
        /// TCP under TLS.
        Tls = "tls",
        /// WebSocket without TLS.
        Ws = "ws",
        /// WebSocket over TLS.
        Wss = "wss",
    }
}

labels! {
    /// State of a stream inside the tunnels.
    StreamState {
        /// Asked for; the agent has not said that the app's connection stands.
        Opening = "opening",
        /// Carries an exchange.
        Open = "open",
        /// The exchange is over; the last word of the agent is awaited.
        Closing = "closing",
    }
}

labels! {
    /// How an agent's attempt to join ended.
    HandshakeResult {
        /// A tunnel stands.
        Accepted = "accepted",
        /// Wrong, expired or revoked token, or names outside its scope.
        Denied = "denied",
        /// Not finished in time.
        TimedOut = "timed_out",
        /// The peer did not speak the protocol, or no version of it that we speak.
        Malformed = "malformed",
        /// The connection ended before the handshake did, TLS faults included.
        Closed = "closed",
        /// Turned away although its token is valid: a bound (see [`AgentLimit`]), a drain, nothing to resume.
        Refused = "refused",
    }
}

labels! {
    /// A bound that agents share with their neighbours, and that one of them met.
    AgentLimit {
        /// Nothing new begins while memory is short.
        Memory = "memory",
        /// Tunnels of one token.
        Tunnels = "tunnels",
        /// How fast one agent, or those of one token, begin new tunnels.
        Pace = "pace",
        /// Apps that those of one token bring.
        Apps = "apps",
        /// How fast they say what they offer; the latest list waits.
        News = "news",
    }
}

labels! {
    /// How the wait of a tunnel without a carrier ended.
    ResumeResult {
        /// It went on over another carrier.
        Resumed = "resumed",
        /// Its agent did not come back within the resume window.
        Lapsed = "lapsed",
        /// An agent wanted to continue a tunnel that is not here, or not its own.
        Gone = "gone",
        /// An attempt was overtaken by a later one of the same agent.
        Stale = "stale",
    }
}

labels! {
    /// Kind of an accepted connection.
    ConnectionKind {
        /// Accepted on a public port; TLS or the protocol is not yet settled.
        Pending = "pending",
        /// HTTP/1 client.
        Http1 = "http1",
        /// HTTP/2 client.
        Http2 = "http2",
        /// Client of a TCP app.
        Tcp = "tcp",
        /// Agent, handshake included.
        Tunnel = "tunnel",
        /// Client of the admin listener.
        Admin = "admin",
    }
}

labels! {
    /// Listeners that bound who connects.
    Listener {
        /// Of clients: HTTP with and without TLS, TCP apps.
        Public = "public",
        /// Of agents.
        Tunnel = "tunnel",
    }
}

labels! {
    /// Why a connection was refused before anything was asked over it.
    ConnectionRefused {
        /// There are as many as there may be.
        Connections = "connections",
        /// Its address has as many as one may have.
        PerIp = "per_ip",
        /// A trusted proxy did not say for whom it is.
        ProxyHeader = "proxy_header",
    }
}

labels! {
    /// How a TLS handshake came to nothing.
    TlsFailure {
        /// The two could not agree, or the peer does not speak TLS.
        Failed = "failed",
        /// The peer left.
        Closed = "closed",
        /// Not finished in time.
        TimedOut = "timed_out",
    }
}

labels! {
    /// Which number of open files is told.
    DescriptorKind {
        /// Open when metrics are asked for.
        Open = "open",
        /// How many there may be.
        Limit = "limit",
    }
}

labels! {
    /// What memory is counted.
    MemoryKind {
        /// Resident set of the process, read when metrics are asked for.
        Resident = "resident",
        /// Held by running exchanges, on their way to an app or a client.
        Streams = "streams",
        /// The budget at which the gateway starts to refuse work.
        Budget = "budget",
    }
}
