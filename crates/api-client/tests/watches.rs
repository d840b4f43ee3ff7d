//! A watch over a real socket whose server never ends it.
#![allow(clippy::disallowed_methods, reason = "tests are no part of the agent")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api_client::{Access, Api as _, ApiClient};
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

#[tokio::test]
async fn a_watch_that_nobody_ends_is_over_after_a_while() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let access = Access {
        server: format!("http://{}", listener.local_addr()?),
        authority: None,
        server_name: None,
        insecure: false,
        certificate: None,
        token: None,
        exec: None,
    };
    let client = ApiClient::new(access, "klet-test", Arc::new(Timestamp::now))?;
    let serve = async {
        let (mut socket, _) = listener.accept().await?;
        let mut request = [0; 4096];
        let size = socket.read(&mut request).await?;
        ensure!(size > 0, "no request");
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        socket.write_all(head.as_bytes()).await?;
        Ok(socket)
    };
    let watch = client.watch("/api/v1/pods?watch=true&timeoutSeconds=300");
    let (watch, socket) = tokio::join!(watch, serve);
    let (mut watch, _held_open) = (watch?, socket.context("a server")?);
    // Nothing will come any more: time may pass at once.
    tokio::time::pause();
    let begun = Instant::now();
    ensure!(watch.next().await.is_none(), "it is over");
    let lasted = begun.elapsed();
    ensure!(lasted > Duration::from_secs(300) && lasted < Duration::from_secs(400), "{lasted:?}");
    Ok(())
}
