//! `/logs/`: the node's own logs, as files and, if asked by name, of services.
//!
//! Reads below one directory and nothing outside of it, whatever links say; asks
//! journalctl for services it knows.
//! Upstream: pkg/kubelet/kubelet.go (logServer), kubelet_server_journal.go.

mod files;
mod query;
mod services;

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, RANGE};
use hyper::{Request, StatusCode};

use crate::answer::{self, Reply};
use crate::listen::Shared;
use crate::routes::Query;
use query::Asked;

/// Serves a path below the node's logs, or a query about them.
pub(crate) async fn serve(
    shared: &Arc<Shared>,
    path: &str,
    query: &Query,
    request: Request<Incoming>,
) -> Reply {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let range = header(RANGE);
    if !shared.handlers.system_log_query {
        return files::serve(&shared.log_dir, path, range).await;
    }
    let asked = match query::read(query) {
        Ok(Some(asked)) => asked,
        Ok(None) => return files::serve(&shared.log_dir, path, range).await,
        Err(why) => return answer::error(StatusCode::BAD_REQUEST, &why),
    };
    if !path.is_empty() {
        return answer::error(StatusCode::NOT_ACCEPTABLE, "path not allowed in query mode");
    }
    if let Err(why) = query::check(&asked) {
        return answer::error(StatusCode::NOT_ACCEPTABLE, &why);
    }
    match asked {
        Asked { files, .. } if files.len() == 1 => {
            let path = files[0].replace('\\', "/");
            let path = path.trim_start_matches('/');
            if let Err(error) = files::find(&shared.log_dir, path).await {
                let why = format!("query: Invalid value: {files:?}: {error}");
                return answer::error(StatusCode::NOT_ACCEPTABLE, &why);
            }
            files::serve(&shared.log_dir, path, range).await
        }
        asked => {
            let gzip = header(ACCEPT_ENCODING) == Some("gzip");
            services::serve(&shared.log_dir, asked, gzip, &shared.spawn).await
        }
    }
}
