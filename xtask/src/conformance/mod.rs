//! `make interop`, second half: upstream's conformance suite against klet and, on the same
//! machine, against upstream's own kubelet.
//!
//! Owns a control plane, a containerd and a node for each of the two in turn. Upstream's
//! binaries and images are named by whoever calls; nothing of them is kept. Writes
//! docs/conformance.md.

mod report;
mod suite;

use std::path::{Path, PathBuf};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use testkit::cluster::condition;
use testkit::control_plane::{self, ControlPlane};
use testkit::registry::Registry;
use testkit::{NodeOptions, eventually};

use suite::{Outcomes, Suite};

/// How long a node may take to be ready.
const READY_LIMIT: Duration = Duration::from_secs(120);

/// What to run.
#[derive(clap::Args)]
pub struct Options {
    /// The klet to run; built if not given.
    #[arg(long)]
    klet: Option<PathBuf>,
    /// Upstream's e2e.test.
    #[arg(long, env = "E2E_TEST")]
    e2e_test: Option<PathBuf>,
    /// A directory of image archives (*.tar) with the images that the specs name.
    #[arg(long, env = "E2E_IMAGES")]
    images: Option<PathBuf>,
    /// Upstream's kubelet, to compare with.
    #[arg(long, env = "UPSTREAM_KUBELET")]
    upstream: Option<PathBuf>,
    /// Which specs: a regular expression of their names.
    #[arg(long, default_value = r"\[NodeConformance\]|\[sig-node\].*\[Conformance\]")]
    focus: String,
    /// How many specs run at a time; those marked Serial run alone.
    #[arg(long, default_value_t = 4)]
    streams: usize,
    /// Run the suite against both at the same time: quicker, on a machine that can bear it.
    #[arg(long)]
    together: bool,
    /// Where the table goes.
    #[arg(long, default_value = "docs/conformance.md")]
    out: PathBuf,
}

/// Runs the suite against each kubelet and writes the table.
pub fn run(options: &Options) -> Result<()> {
    let Some(binaries) = control_plane::binaries("conformance") else { return Ok(()) };
    let (Some(e2e), Some(images)) = (&options.e2e_test, &options.images) else {
        eprintln!(
            "SKIPPED conformance: set E2E_TEST to upstream's e2e.test and E2E_IMAGES to a \
             directory of the images it needs"
        );
        return Ok(());
    };
    ensure!(options.streams > 0, "--streams must be at least 1");
    let klet = match &options.klet {
        Some(path) => path.clone(),
        None => testkit::binaries::klet_binary()?,
    };
    let mut contenders = vec![("klet", klet)];
    contenders.extend(options.upstream.clone().map(|path| ("upstream", path)));
    let measure = |(name, program): &(&'static str, PathBuf)| -> Result<(&str, Outcomes)> {
        println!("conformance: {name} ({})", program.display());
        let of = Contender { name, program, binaries: &binaries, images };
        Ok((*name, measure(&of, e2e, options)?))
    };
    let results: Vec<(&str, Outcomes)> = if options.together {
        std::thread::scope(|scope| {
            let all = contenders.iter().map(|one| scope.spawn(|| measure(one)));
            let all: Vec<_> = all.collect();
            let ended = |thread: ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(result) => result,
                Err(_) => bail!("a run panicked"),
            };
            all.into_iter().map(ended).collect::<Result<_>>()
        })?
    } else {
        contenders.iter().map(measure).collect::<Result<_>>()?
    };
    report::write(&options.out, &testkit::host::containerd_version()?, &results)?;
    println!("conformance: {} is written", options.out.display());
    let worse = report::worse_than_upstream(&results);
    if !worse.is_empty() {
        bail!("klet fails where upstream passes:\n{}", worse.join("\n"));
    }
    Ok(())
}

struct Contender<'a> {
    name: &'static str,
    program: &'a Path,
    binaries: &'a Path,
    images: &'a Path,
}

fn measure(of: &Contender<'_>, e2e: &Path, options: &Options) -> Result<Outcomes> {
    let place = format!("klet-conformance-{}-{}", std::process::id(), of.name);
    let place = std::env::temp_dir().join(place);
    let plane = ControlPlane::start(of.binaries, &place)?;
    ensure!(plane.is_whole(), "kube-controller-manager and kube-scheduler are needed, too");
    let images = archives(of.images)?;
    let (_registry, hosts) = serve(&images, &place)?;
    let options_of_node = NodeOptions { registry_hosts: Some(hosts), ..Default::default() };
    let mut node = plane.prepare_node_with(options_of_node)?;
    for image in &images {
        node.containerd.import(image)?;
    }
    match of.name {
        "klet" => node.klet.launch_program(of.program)?,
        _ => node.klet.launch_upstream_alike(of.program)?,
    }
    node.klet.wait_healthy()?;
    eventually(READY_LIMIT, "the node to be ready", || {
        let object = plane.get("node", "n1")?;
        ensure!(condition(&object, "Ready") == Some("True"), "it is {:#}", object["status"]);
        Ok(())
    })?;
    let suite =
        Suite { program: e2e.to_owned(), kubeconfig: plane.admin_kubeconfig(), dir: place.clone() };
    let outcomes = suite.run(&options.focus, options.streams)?;
    node.klet.stop()?;
    drop((node, plane));
    std::fs::remove_dir_all(&place)
        .with_context(|| format!("cannot remove {}", place.display()))?;
    Ok(outcomes)
}

fn archives(dir: &Path) -> Result<Vec<PathBuf>> {
    let unread = || format!("cannot read the images in {}", dir.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(unread)? {
        let path = entry.with_context(unread)?.path();
        if path.extension().is_some_and(|kind| kind == "tar") {
            found.push(path);
        }
    }
    ensure!(!found.is_empty(), "{} holds no *.tar", dir.display());
    Ok(found)
}

/// Some specs pull although the image is there: a registry on loopback stands in for the
/// hosts that the images' names begin with.
fn serve(images: &[PathBuf], place: &Path) -> Result<(Registry, PathBuf)> {
    let registry = Registry::start(place, false)?;
    let hosts = place.join("hosts");
    for image in images {
        let host = registry
            .push_archive(image)
            .with_context(|| format!("cannot serve {}", image.display()))?;
        let dir = hosts.join(host);
        let address = format!("http://{}", registry.host());
        let file = format!(
            "server = \"{address}\"\n[host.\"{address}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
        );
        std::fs::create_dir_all(&dir)
            .and_then(|()| std::fs::write(dir.join("hosts.toml"), file))
            .with_context(|| format!("cannot write below {}", dir.display()))?;
    }
    Ok((registry, hosts))
}
