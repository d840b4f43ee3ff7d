//! Tokens against a server in memory, with a clock in hand.

use std::sync::atomic::AtomicI64;

use api_client::Watching;
use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::json;

use super::*;

const START: i64 = 1_700_000_000;

/// Gives tokens `t1`, `t2` and so on, each for an hour, unless told otherwise.
struct Issuer {
    now: AtomicI64,
    given: AtomicU64,
    asked: AtomicU64,
    refusal: Mutex<Option<ApiError>>,
    has_endpoint: bool,
}

#[async_trait]
impl Api for Issuer {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        if call.path == "/api/v1" {
            let name = if self.has_endpoint { "serviceaccounts/token" } else { "pods" };
            return Ok(json!({"resources": [{"name": name}]}));
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
        if let Some(error) = self.refusal.lock().unwrap().clone() {
            return Err(error);
        }
        let n = self.given.fetch_add(1, Ordering::Relaxed) + 1;
        let expires = Timestamp::from_second(self.now.load(Ordering::Relaxed) + 3600).unwrap();
        Ok(json!({"spec": {"expirationSeconds": 3600},
            "status": {"token": format!("t{n}"), "expirationTimestamp": expires.to_string()}}))
    }
    async fn watch(&self, _: &str) -> Result<Box<dyn Watching>, ApiError> {
        Err(ApiError::Unusable("no watches here".to_owned()))
    }
}

fn issuer(has_endpoint: bool) -> (Arc<Issuer>, Tokens) {
    let issuer = Arc::new(Issuer {
        now: AtomicI64::new(START),
        given: AtomicU64::new(0),
        asked: AtomicU64::new(0),
        refusal: Mutex::new(None),
        has_endpoint,
    });
    let clock: Clock = {
        let issuer = Arc::clone(&issuer);
        Arc::new(move || Timestamp::from_second(issuer.now.load(Ordering::Relaxed)).unwrap())
    };
    let api = Arc::clone(&issuer) as Arc<dyn Api>;
    (issuer, Tokens::new(api, clock, Arc::new(|_| Duration::from_secs(4))))
}

impl Issuer {
    fn pass(&self, seconds: i64) {
        self.now.fetch_add(seconds, Ordering::Relaxed);
    }

    fn refuse(&self, error: Option<ApiError>) {
        *self.refusal.lock().unwrap() = error;
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

fn refused(code: u16) -> ApiError {
    let (reason, message) = (String::new(), "no".to_owned());
    ApiError::Answered { code, reason, message, retry_after: None }
}

fn ask(pod: &str) -> TokenAsk {
    TokenAsk {
        namespace: "ns".to_owned(),
        account: "default".to_owned(),
        audiences: Vec::new(),
        expiration_seconds: Some(3600),
        pod: Some(BoundPod { name: pod.to_owned(), uid: pod.to_owned() }),
        account_uid: String::new(),
    }
}

/// Those who ask are tasks.
fn spawnable<F: Future + Send>(work: F) -> F {
    work
}

async fn shown(tokens: &Tokens, ask: &TokenAsk) -> String {
    match spawnable(tokens.get(ask)).await {
        Ok(token) => token.secret,
        Err(error) => error.to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_serves_until_it_is_due() {
    let (issuer, tokens) = issuer(true);
    let a = ask("a");
    assert_eq!(tokens.next_refresh(&a), None);
    assert_eq!(shown(&tokens, &a).await, "t1");
    assert_eq!(tokens.next_refresh(&a).unwrap().as_second(), START + 2876);
    issuer.pass(2876);
    assert_eq!(shown(&tokens, &a).await, "t1");
    let other = TokenAsk { audiences: vec!["vault".to_owned()], ..ask("a") };
    assert_eq!(shown(&tokens, &other).await, "t2");
    issuer.pass(1);
    assert_eq!(shown(&tokens, &a).await, "t3");
    assert_eq!(tokens.next_refresh(&a).unwrap().as_second(), START + 2877 + 2876);
}

#[tokio::test(start_paused = true)]
async fn an_old_token_serves_while_there_is_no_new_one() {
    let (issuer, tokens) = issuer(true);
    let a = ask("a");
    issuer.refuse(Some(refused(500)));
    assert_eq!(shown(&tokens, &a).await, "failed to fetch token: no");
    issuer.refuse(None);
    assert_eq!(shown(&tokens, &a).await, "t1");
    issuer.refuse(Some(refused(500)));
    issuer.pass(2900);
    assert_eq!(shown(&tokens, &a).await, "t1");
    assert_eq!(tokens.next_refresh(&a).unwrap().as_second(), START + 2900 + 60);
    issuer.pass(680);
    assert_eq!(shown(&tokens, &a).await, "t1");
    assert_eq!(tokens.next_refresh(&a).unwrap().as_second(), START + 3600, "it ends sooner");
    // Between two looks for expired tokens it is still known that there was one.
    issuer.pass(21);
    let expired = format!("token {a} expired and refresh failed: no");
    assert_eq!(shown(&tokens, &a).await, expired);
    issuer.refuse(None);
    assert_eq!(shown(&tokens, &a).await, "t2");
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_at_once_make_one_request() {
    let (issuer, tokens) = issuer(true);
    let a = ask("a");
    let all = join_all((0..50).map(|_| shown(&tokens, &a))).await;
    assert!(all.iter().all(|token| token == "t1"), "{all:?}");
    assert_eq!(issuer.asked(), 1);
    issuer.refuse(Some(refused(500)));
    issuer.pass(7200);
    let all = join_all((0..50).map(|_| shown(&tokens, &a))).await;
    assert!(all.iter().all(|text| text.ends_with("no")), "{all:?}");
    assert_eq!(issuer.asked(), 2, "a failure is for all who waited");
    // Whoever gives up leaves the turn to the next.
    issuer.refuse(None);
    let given_up = tokio::time::timeout(Duration::from_millis(1), tokens.get(&a)).await;
    assert!(given_up.is_err());
    assert_eq!(shown(&tokens, &a).await, "t2");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_tokens_is_named() {
    let (issuer, tokens) = issuer(false);
    issuer.refuse(Some(refused(404)));
    let unsupported =
        "failed to fetch token: the API server does not have TokenRequest endpoints enabled";
    assert_eq!(shown(&tokens, &ask("a")).await, unsupported);
    let (issuer, tokens) = super::tests::issuer(true);
    issuer.refuse(Some(refused(404)));
    assert_eq!(shown(&tokens, &ask("a")).await, "failed to fetch token: no");
}

#[tokio::test(start_paused = true)]
async fn tokens_are_forgotten() {
    let (issuer, tokens) = issuer(true);
    let count = || tokens.lock().slots.len();
    for n in 0..TOKENS_MAX + 3 {
        issuer.pass(i64::from(n == 5));
        tokens.get(&ask(&format!("p{n}"))).await.unwrap();
    }
    assert_eq!(count(), TOKENS_MAX);
    assert_eq!(tokens.next_refresh(&ask("p0")), None, "the oldest went first");
    assert!(tokens.next_refresh(&ask("p3")).is_some());
    tokens.forget(&ask("p3"));
    assert_eq!((tokens.next_refresh(&ask("p3")), count()), (None, TOKENS_MAX - 1));
    issuer.pass(3700);
    tokens.get(&ask("new")).await.unwrap();
    assert_eq!(count(), 1, "all others have expired");
    // A failure leaves nothing behind.
    issuer.refuse(Some(refused(403)));
    assert!(tokens.get(&ask("refused")).await.is_err());
    assert_eq!(count(), 2);
    issuer.pass(61);
    tokens.get(&ask("new")).await.unwrap();
    assert_eq!(count(), 1);
}
