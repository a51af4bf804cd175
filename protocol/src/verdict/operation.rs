//! Whether a request reads or writes. Stated by the caller, never guessed from an HTTP method:
//! a POST may search, and what changes state is known only to who made the call.

words! {
    /// What a request does to the data of its target.
    Operation {
        /// Changes nothing; repeating it creates no duplicate.
        Read = "read",
        /// Creates, changes, deletes or sends; repeating it may do so twice.
        Write = "write",
    }
}
