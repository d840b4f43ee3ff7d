//! One question at a time to a program that knows credentials.
//!
//! Owns the question under way: whoever waits for it may give up, the program works on,
//! and the next one gets its answer; so a program that takes longer than a caller waits is
//! not begun anew by each. After a failure it rests, longer each time, and whoever asks
//! meanwhile hears what went wrong. Upstream: client-go plugin/pkg/client/auth/exec.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::access::ExecPlugin;
use crate::exec_plugin::{self, Given};

/// Rest after the first failure; doubles with each.
const REST_FIRST: Duration = Duration::from_secs(2);
/// The longest rest: as long as a watch pauses for a server that is away.
const REST_MAX: Duration = Duration::from_secs(30);

type Question = Pin<Box<dyn Future<Output = Result<Given, String>> + Send>>;

/// Asks a program.
#[derive(Default)]
pub(crate) struct Asking(Mutex<State>);

#[derive(Default)]
struct State {
    /// Its limit in time is its own.
    question: Option<Question>,
    failures: u32,
    /// Until when it rests, and why.
    rests: Option<(Instant, String)>,
}

impl Asking {
    /// What the program gives. May be dropped and called again: the question goes on.
    pub(crate) async fn ask(&self, plugin: &ExecPlugin) -> Result<Given, String> {
        let mut state = self.0.lock().await;
        if state.question.is_none()
            && let Some((until, why)) = &state.rests
            && let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            return Err(format!("{why}; it is run again in {} s", left.as_secs() + 1));
        }
        let question = state.question.get_or_insert_with(|| {
            let plugin = plugin.clone();
            Box::pin(async move { exec_plugin::ask(&plugin).await })
        });
        let given = question.as_mut().await;
        state.question = None;
        match &given {
            Ok(_) => (state.failures, state.rests) = (0, None),
            Err(why) => {
                state.rests = Some((Instant::now() + rest(state.failures), why.clone()));
                state.failures = state.failures.saturating_add(1);
            }
        }
        given
    }
}

/// How long it rests after so many failures and one more.
fn rest(failures: u32) -> Duration {
    REST_FIRST.saturating_mul(1 << failures.min(16)).min(REST_MAX)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use tokio::time::timeout;

    use super::*;

    const V1: &str = "client.authentication.k8s.io/v1";

    /// Notes that it began, and then does as it is told.
    fn plugin(dir: &Path, script: &str) -> ExecPlugin {
        ExecPlugin {
            command: PathBuf::from("sh"),
            args: vec!["-c".to_owned(), format!("cd {}; echo >> began; {script}", dir.display())],
            env: Vec::new(),
            api_version: V1.to_owned(),
            install_hint: None,
            cluster: None,
        }
    }

    fn began(dir: &Path) -> usize {
        std::fs::read(dir.join("began")).map_or(0, |text| text.len())
    }

    #[tokio::test]
    async fn a_program_that_is_slow_is_run_once_for_all_who_wait() {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            r#"until [ -e go ]; do sleep 0.02; done; printf \
               '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"t"}}}}'"#
        );
        let plugin = plugin(dir.path(), &script);
        let asking = Asking::default();
        while began(dir.path()) == 0 {
            assert!(timeout(Duration::from_millis(20), asking.ask(&plugin)).await.is_err());
        }
        for _ in 0..5 {
            assert!(timeout(Duration::from_millis(20), asking.ask(&plugin)).await.is_err());
        }
        std::fs::write(dir.path().join("go"), "").unwrap();
        let (one, two) = tokio::join!(asking.ask(&plugin), asking.ask(&plugin));
        assert_eq!(one.unwrap().token.as_deref(), Some("t"));
        assert!(two.is_ok());
        // The second came when the first had its answer: it is asked anew for it.
        assert_eq!(began(dir.path()), 2, "those who gave up did not end it");
    }

    #[tokio::test]
    async fn a_program_that_fails_rests() {
        let dir = tempfile::tempdir().unwrap();
        let plugin = plugin(dir.path(), "echo no luck >&2; exit 3");
        let asking = Asking::default();
        let first = asking.ask(&plugin).await.err().unwrap();
        assert!(first.ends_with("no luck"), "{first}");
        for _ in 0..100 {
            let again = asking.ask(&plugin).await.err().unwrap();
            assert!(again.starts_with(&first) && again.contains("run again in"), "{again}");
        }
        assert_eq!(began(dir.path()), 1);
        tokio::time::pause();
        tokio::time::advance(REST_FIRST).await;
        tokio::time::resume();
        assert!(asking.ask(&plugin).await.is_err());
        assert_eq!(began(dir.path()), 2, "it is tried again");
    }

    #[test]
    fn rests_grow_and_have_an_end() {
        let all: Vec<u64> = (0..6).map(|failures| rest(failures).as_secs()).collect();
        assert_eq!(all, [2, 4, 8, 16, 30, 30]);
        assert_eq!(rest(u32::MAX), REST_MAX);
    }
}
