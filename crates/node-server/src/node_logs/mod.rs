//! (being written)
use crate::answer::{self, Reply};
use crate::listen::Shared;
use crate::routes::Query;
use hyper::Request;
use hyper::body::Incoming;
use std::sync::Arc;
pub(crate) async fn serve(_: &Arc<Shared>, _: &str, _: &Query, _: Request<Incoming>) -> Reply {
    answer::no_route()
}
