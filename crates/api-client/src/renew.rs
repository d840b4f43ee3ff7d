//! A client certificate that is renewed while the client lives.
//!
//! One writer, [`Renewer`]; every client that has a [`Renewed`] opens its next connection
//! with the newest certificate. Watches on older connections end, so that these can close;
//! answers under way still arrive. Upstream: pkg/kubelet/certificate/transport.go.

use std::sync::Arc;

use tokio::sync::watch;

use crate::tls::Identity;

/// The newest certificate, or why there is none.
type Newest = Result<Arc<Identity>, String>;

/// Says which certificate is the newest. Not `Clone`: exactly one writer.
pub struct Renewer(watch::Sender<Newest>);

/// Knows the newest certificate.
#[derive(Clone)]
pub struct Renewed(watch::Receiver<Newest>);

/// A certificate that is not there yet, and why.
pub fn renewed(why: &str) -> (Renewer, Renewed) {
    let (sender, receiver) = watch::channel(Err(why.to_owned()));
    (Renewer(sender), Renewed(receiver))
}

impl Renewer {
    /// From now on this one is used; or none can be, for a reason.
    pub fn set(&self, newest: Result<Arc<Identity>, String>) {
        self.0.send_if_modified(|known| {
            let news = *known != newest;
            if news {
                *known = newest;
            }
            news
        });
    }
}

impl Renewed {
    pub(crate) fn newest(&self) -> Newest {
        self.0.borrow().clone()
    }

    /// Completes once another certificate has taken this one's place.
    pub(crate) async fn replaced(&mut self, of: &Arc<Identity>) {
        let other = |newest: &Newest| newest.as_ref().is_ok_and(|newest| !Arc::ptr_eq(newest, of));
        if self.0.wait_for(other).await.is_err() {
            // Nobody renews it any more.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(text: &str) -> Arc<Identity> {
        Arc::new(Identity { certificate: text.into(), key: Vec::new() })
    }

    #[tokio::test]
    async fn only_another_certificate_takes_its_place() {
        let (renewer, mut renewed) = renewed("none yet");
        assert_eq!(renewed.newest(), Err("none yet".to_owned()));
        let first = identity("a");
        renewer.set(Ok(Arc::clone(&first)));
        let mut waiting = Box::pin(renewed.replaced(&first));
        let waits = tokio::time::timeout(std::time::Duration::ZERO, &mut waiting).await;
        assert!(waits.is_err());
        renewer.set(Err("expired".to_owned()));
        let waits = tokio::time::timeout(std::time::Duration::ZERO, &mut waiting).await;
        assert!(waits.is_err(), "what is under way goes on");
        renewer.set(Ok(identity("b")));
        waiting.await;
    }
}
