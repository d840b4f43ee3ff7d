//! Credential providers: programs that make registry logins on demand.
//!
//! Owns their answers while they are good. Reads the programs' output. A
//! provider that fails is logged and gives no credentials. Upstream:
//! pkg/credentialprovider/plugin.

mod config;
mod talk;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubelet_model::Mono;

pub use config::{Configured, ProviderConfigError, load};
pub use talk::AnswerError;

use super::flights::Flights;
use super::keyring::{self, Keyring, Logins};
use super::metrics::ImageMetrics;
use crate::ports::{Clock, ProgramCall, ProgramError, Programs};
use talk::{Answer, Scope};

/// Longest a provider may take, as upstream.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// Answers kept per provider; the one that ends first makes room.
const ANSWERS_MAX: usize = 1_000;
/// Key of answers that are good for everything; no registry has such a name.
const GLOBAL: &str = "<global>";

/// One provider, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Its name.
    pub name: String,
    /// Its program.
    pub program: PathBuf,
    /// The images it is asked for.
    pub match_images: Vec<String>,
    /// How long an answer is good that does not say so itself.
    pub cache_for: Duration,
    /// How to talk to it.
    pub api_version: String,
    /// Arguments.
    pub arguments: Vec<String>,
    /// Environment besides the agent's own.
    pub environment: Vec<(String, String)>,
    /// Set if it works with tokens of service accounts; whether it needs one.
    pub requires_service_account: Option<bool>,
}

/// Why a provider gave no credentials.
#[derive(Debug, Clone, thiserror::Error)]
enum ProviderError {
    #[error(transparent)]
    Program(Arc<ProgramError>),
    #[error(transparent)]
    Answer(AnswerError),
    #[error(
        "it wants a token of the service account {0}, and without an API server there are none"
    )]
    NoServiceAccounts(String),
}

impl ProviderError {
    /// For the pod's status, which others read than the log: a program may complain
    /// of anything, its secrets included.
    fn in_public(&self) -> String {
        match self {
            Self::Program(error) => match &**error {
                ProgramError::Failed { status, .. } => {
                    format!("it ended with {status}; klet's log has its words")
                }
                other => other.to_string(),
            },
            other => other.to_string(),
        }
    }
}

/// Every provider with its answers.
pub struct Plugins {
    programs: Arc<dyn Programs>,
    clock: Arc<dyn Clock>,
    providers: Vec<Arc<Known>>,
    metrics: ImageMetrics,
}

struct Known {
    provider: Provider,
    answers: Mutex<BTreeMap<String, (Mono, Arc<Logins>)>>,
    flights: Flights<String, Result<Arc<Logins>, ProviderError>>,
}

impl Plugins {
    /// Providers in the order of configuration.
    pub fn new(
        programs: Arc<dyn Programs>,
        clock: Arc<dyn Clock>,
        providers: Vec<Provider>,
        metrics: ImageMetrics,
    ) -> Self {
        let known = |provider| {
            Arc::new(Known { provider, answers: Mutex::default(), flights: Flights::default() })
        };
        Self { programs, clock, providers: providers.into_iter().map(known).collect(), metrics }
    }

    /// What the providers give for a repository, and why some gave nothing.
    pub async fn keyring(&self, repository: &str, service_account: &str) -> (Keyring, Vec<String>) {
        let (mut keyring, mut failed) = (Keyring::default(), Vec::new());
        for known in &self.providers {
            match self.ask(known, repository, service_account).await {
                Ok(Some(logins)) => keyring.add(&logins),
                Ok(None) => {}
                Err(error) => {
                    let provider = &known.provider.name;
                    tracing::warn!(provider, image = repository, %error, "no credentials from provider");
                    failed.push(format!("{provider}: {}", error.in_public()));
                }
            }
        }
        (keyring, failed)
    }

    async fn ask(
        &self,
        known: &Arc<Known>,
        repository: &str,
        service_account: &str,
    ) -> Result<Option<Arc<Logins>>, ProviderError> {
        let provider = &known.provider;
        if !provider.match_images.iter().any(|glob| keyring::matches(glob, repository)) {
            return Ok(None);
        }
        match provider.requires_service_account {
            Some(true) if service_account.is_empty() => return Ok(None),
            Some(_) if !service_account.is_empty() => {
                return Err(ProviderError::NoServiceAccounts(service_account.to_owned()));
            }
            _ => {}
        }
        if let Some(logins) = known.cached(repository, self.clock.mono()) {
            return Ok(Some(logins));
        }
        let (programs, clock) = (Arc::clone(&self.programs), Arc::clone(&self.clock));
        let (asked, image) = (Arc::clone(known), repository.to_owned());
        let metrics = self.metrics.clone();
        let run = || async move {
            let began = clock.mono();
            let output = asked.run(&*programs, &image).await;
            let took = clock.mono().since(began);
            metrics.ran_plugin(&asked.provider.name, took, output.is_ok());
            let answer = talk::answer(&asked.provider.api_version, &output?);
            let answer = answer.map_err(ProviderError::Answer)?;
            Ok(asked.keep(answer, &image, clock.mono()))
        };
        known.flights.join(&repository.to_owned(), run).await.map(Some)
    }
}

impl Known {
    async fn run(&self, programs: &dyn Programs, image: &str) -> Result<Vec<u8>, ProviderError> {
        let provider = &self.provider;
        let call = ProgramCall {
            path: provider.program.clone(),
            arguments: provider.arguments.clone(),
            environment: provider.environment.clone(),
            input: talk::question(&provider.api_version, image),
            limit: RUN_LIMIT,
        };
        programs.run(call).await.map_err(|error| ProviderError::Program(Arc::new(error)))
    }

    fn cached(&self, repository: &str, now: Mono) -> Option<Arc<Logins>> {
        let mut answers = self.lock();
        answers.retain(|_, (until, _)| *until >= now);
        let keys = [repository, registry_of(repository), GLOBAL];
        keys.iter().find_map(|key| answers.get(*key)).map(|(_, logins)| Arc::clone(logins))
    }

    fn keep(&self, answer: Answer, repository: &str, now: Mono) -> Arc<Logins> {
        let logins = Arc::new(answer.logins);
        let good_for = answer.cache_for.unwrap_or(self.provider.cache_for);
        if good_for.is_zero() {
            return logins;
        }
        let key = match answer.scope {
            Scope::Image => repository,
            Scope::Registry => registry_of(repository),
            Scope::Global => GLOBAL,
        };
        let mut answers = self.lock();
        if answers.len() >= ANSWERS_MAX {
            let soonest = answers.iter().min_by_key(|(_, (until, _))| *until);
            let soonest = soonest.map(|(key, _)| key.clone());
            soonest.and_then(|key| answers.remove(&key));
        }
        answers.insert(key.to_owned(), (now + good_for, Arc::clone(&logins)));
        logins
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (Mono, Arc<Logins>)>> {
        self.answers.lock().expect("answer lock: no code panics while holding it")
    }
}

fn registry_of(repository: &str) -> &str {
    repository.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
