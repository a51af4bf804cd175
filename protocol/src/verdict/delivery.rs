//! The three verdicts and the stages of a request on its way to the app. Words only; which of
//! them may be said is decided in `evidence`.

words! {
    /// Did the app see the request? *Saw* = the kernel accepted at least one of its bytes for an
    /// established socket to the app.
    Delivery {
        /// The app did not see it and never will.
        NotDelivered = "not_delivered",
        /// Neither can be proven.
        Unknown = "unknown",
        /// At least one byte of the app's answer to this request reached the gateway.
        Delivered = "delivered",
    }
}

words! {
    /// How far the request is known to have got. A lower bound: more may have been handed over
    /// where the verdict is `unknown`.
    Stage {
        /// No byte is known to have been taken.
        None = "none",
        /// Some bytes of the head.
        PartOfHead = "part_of_head",
        /// The whole head, nothing of the body.
        Head = "head",
        /// The head and a part of the body.
        Body = "body",
        /// The whole request.
        All = "all",
        /// The app began to answer.
        AnswerBegun = "answer_begun",
    }
}
