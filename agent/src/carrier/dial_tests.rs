//! Tests of dialling with real sockets.
