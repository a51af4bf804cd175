//! What a client is told of a try that failed: its reason, its code, and what a person may want to know.
//!
//! The delivery comes in ready; nothing here decides it.

use bridgehead_protocol::planted::Bug;
use bridgehead_protocol::verdict::{Code, Delivery, Judgement, Reason, WindowKind};

use super::{Attempt, Miss};
use crate::error::Failure;
use crate::request::app::AppFault;
use crate::request::forward::Finish;
use crate::request::front::ClientFault;
use crate::request::load::GivenUp;
use crate::request::upload::UploadFault;
use crate::request::{Shared, draining, evidence};
use crate::telemetry::access::AppConn;

impl Shared {
    /// The failure as its client is told it. `told`: what may be said after all tries.
    pub(super) fn failure(&self, attempt: &Attempt<'_>, miss: &Miss, told: Judgement) -> Failure {
        let nobody = matches!(miss.reason, Reason::NoAgent | Reason::AgentDraining);
        if nobody && told == Judgement::NOT_DELIVERED && self.shutdown.is_draining() {
            return draining();
        }
        let code = match miss.finish {
            Finish::Window(_) => Code::BhAppTimeout,
            Finish::GivenUp(_) => Code::ServiceUnavailable,
            Finish::App(AppFault::NoUpgrade(_)) => Code::UpgradeUnsupported,
            Finish::App(AppFault::Unspeakable(_)) => Code::BadRequest,
            Finish::App(AppFault::Ended(_) | AppFault::BadHttp(_) | AppFault::GaveUp(_))
            | Finish::Complete
            | Finish::ClientLeft => match told.delivery {
                Delivery::Delivered => Code::BhAppBroken,
                Delivery::NotDelivered | Delivery::Unknown => Code::BhAppStarting,
            },
            Finish::Upload(UploadFault::TooLarge(_)) => Code::BodyTooLarge,
            Finish::Upload(UploadFault::Client(ClientFault::TooSlow)) => Code::ClientTimeout,
            Finish::Upload(UploadFault::Client(ClientFault::Malformed(_) | ClientFault::Left)) => {
                Code::BadRequest
            }
        };
        let told = match miss.finish {
            Finish::Upload(UploadFault::TooLarge(_)) if Bug::TooLargeNotDelivered.bites() => {
                Judgement::NOT_DELIVERED
            }
            _ => told,
        };
        let failure = Failure::judged(code, miss.reason, told);
        match miss.finish {
            Finish::Window(window) => failure.with_window(window),
            Finish::GivenUp(GivenUp::Memory) => {
                failure.with_detail("the gateway is short of memory")
            }
            Finish::GivenUp(GivenUp::Ending) => failure,
            Finish::App(
                AppFault::BadHttp(what) | AppFault::NoUpgrade(what) | AppFault::Unspeakable(what),
            ) => failure.with_detail(what),
            Finish::App(AppFault::GaveUp(code)) => {
                failure.with_detail(format!("the app gave the exchange up: {code}"))
            }
            Finish::Upload(UploadFault::TooLarge(limit)) => {
                failure.with_detail(format!("max_body is {limit} bytes"))
            }
            Finish::Upload(UploadFault::Client(fault)) => failure.with_detail(fault.to_string()),
            Finish::App(AppFault::Ended(_)) | Finish::Complete | Finish::ClientLeft => {
                self.with_run(failure, attempt)
            }
        }
    }

    /// A repeated refusal says since when and how often, so that a crash at boot does not look like
    /// a start for ever.
    fn with_run(&self, failure: Failure, attempt: &Attempt<'_>) -> Failure {
        match attempt.app.refusals().filter(|run| run.count > 1) {
            Some(run) => {
                let since = self.clock.stamp(run.since);
                failure.with_detail(match run.reason {
                    Reason::NoAgent => format!("without an agent since {since}"),
                    _ => format!("refused {} times since {since}", run.count),
                })
            }
            None => failure,
        }
    }
}

/// Why a try failed.
pub(super) fn reason(finish: Finish, judgement: Judgement, conn: AppConn) -> Reason {
    match finish {
        Finish::Window(WindowKind::FirstFrame) => Reason::FirstFrame,
        Finish::Window(WindowKind::Stall) => Reason::Stall,
        Finish::App(AppFault::BadHttp(_)) => Reason::BadHttp,
        Finish::App(AppFault::NoUpgrade(_)) => Reason::Upgrade,
        Finish::App(AppFault::Unspeakable(_)) => Reason::BadRequest,
        Finish::App(AppFault::GaveUp(_)) => match judgement.delivery {
            Delivery::NotDelivered => Reason::StaleConnection,
            Delivery::Unknown => Reason::ClosedBeforeHead,
            Delivery::Delivered => Reason::AppClosed,
        },
        Finish::App(AppFault::Ended(ended)) => match evidence::reason(ended) {
            Reason::ClosedBeforeHead => match judgement.delivery {
                Delivery::Delivered => Reason::AppClosed,
                // It was closed before the exchange began, and the news came too late.
                Delivery::NotDelivered if conn == AppConn::Reused => Reason::StaleConnection,
                Delivery::NotDelivered | Delivery::Unknown => Reason::ClosedBeforeHead,
            },
            reason => reason,
        },
        Finish::Upload(UploadFault::TooLarge(_)) => Reason::BodyLimit,
        Finish::Upload(UploadFault::Client(ClientFault::TooSlow)) => Reason::ClientTimeout,
        Finish::Upload(UploadFault::Client(ClientFault::Malformed(_) | ClientFault::Left)) => {
            Reason::BadRequest
        }
        Finish::GivenUp(GivenUp::Memory) => Reason::Overload,
        Finish::GivenUp(GivenUp::Ending) => Reason::Draining,
        Finish::Complete | Finish::ClientLeft => Reason::Internal,
    }
}
