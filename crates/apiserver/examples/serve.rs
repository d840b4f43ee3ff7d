//! An API server to try things on: `cargo run -p apiserver --example serve admin.kubeconfig`.
//!
//! Listens on a free port of the loopback until interrupted; the file it writes is
//! for `kubectl --kubeconfig`.

use apiserver::{ApiServer, Settings};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name a file for the kubeconfig")?;
    let server = ApiServer::start(Settings { approves_nodes: true, ..Settings::default() }).await?;
    std::fs::write(&path, server.admin_kubeconfig()?)?;
    println!("{} as in {path}", server.url);
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}
