//! The calls to drivers that are under way. A driver gets one call for a claim at a time.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;

use async_channel::Receiver;

use super::v1::Claim;
use crate::platform::rpc::Error;
use crate::platform::rt;

#[derive(Default)]
pub(super) struct RunningCalls {
    of_claims: RefCell<Vec<RunningCall>>,
    tasks: rt::UncancelledTasks,
}

struct RunningCall {
    /// The UIDs of its claims.
    claims: Vec<String>,
    /// Closed when the driver has answered.
    ended: Receiver<()>,
}

/// Ends by its own deadline.
pub(super) type DriverCall = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>>>>;

impl RunningCalls {
    /// Makes a call for these claims when the former ones for them have ended. It goes on if the caller is dropped: a
    /// driver may go on with a cancelled call, and would prepare a claim after it was unprepared.
    pub(super) async fn run(&self, claims: &[Claim], call: DriverCall) -> Result<Vec<u8>, Error> {
        while let Some(ended) = self.end_of_call_for(claims) {
            // The channel closes.
            let _ = ended.recv().await;
        }
        let (ends, ended) = async_channel::bounded(1);
        let claims = claims.iter().map(|claim| claim.uid.clone()).collect();
        let mut calls = self.of_claims.take();
        calls.retain(|call| !call.ended.is_closed());
        calls.push(RunningCall { claims, ended });
        self.of_claims.replace(calls);
        let call = async move {
            let outcome = call.await;
            drop(ends);
            outcome
        };
        self.tasks.run(Box::pin(call)).await
    }

    fn end_of_call_for(&self, claims: &[Claim]) -> Option<Receiver<()>> {
        let calls = self.of_claims.borrow();
        let shares = |call: &&RunningCall| claims.iter().any(|claim| call.claims.contains(&claim.uid));
        calls.iter().filter(|call| !call.ended.is_closed()).find(shares).map(|call| call.ended.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn call_waits_for_an_abandoned_one_for_its_claim_only() {
        let minute = Duration::from_secs(60);
        let seconds = rt::simulate(1, |world| async move {
            let calls = RunningCalls::default();
            let claims = |uid: &str| [Claim { uid: uid.to_owned(), ..Claim::default() }];
            let call = |takes| {
                Box::pin(async move {
                    rt::sleep(takes).await;
                    Ok(b"done".to_vec())
                })
            };
            let (a, b) = (claims("a"), claims("b"));
            // The pod terminates while its claim is being prepared.
            rt::deadline(Duration::from_secs(1), calls.run(&a, call(minute))).await.unwrap_err();
            calls.run(&b, call(Duration::ZERO)).await.unwrap();
            let other = world.passed().as_secs();
            let answer = calls.run(&a, call(Duration::ZERO)).await.unwrap();
            (other, world.passed().as_secs(), answer)
        });
        assert_eq!(seconds, Ok((1, 60, b"done".to_vec())));
    }
}
