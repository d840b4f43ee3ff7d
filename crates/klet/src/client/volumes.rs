//! `klet volumes`: which volumes there are and what they hold; `klet volumes clean`
//! ends those that nobody needs any more and a mount keeps.

use std::process::ExitCode;

use anyhow::bail;
use clap::ArgMatches;
use kubelet::server::local::wire::{CleanAnswer, VolumeItem, VolumesAnswer};

use super::endpoint::Endpoint;
use super::{emit, table};
use crate::cli::{complain, say};

pub async fn run(endpoint: &Endpoint, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match matches.subcommand() {
        Some(("clean", clean_matches)) => clean(endpoint, clean_matches).await,
        _ => list(endpoint, matches).await,
    }
}

async fn list(endpoint: &Endpoint, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let mut answer: VolumesAnswer = endpoint.get("/volumes").await?;
    let namespace = matches.get_one::<String>("namespace");
    answer.items.retain(|item| namespace.is_none_or(|wanted| item.namespace == *wanted));
    if matches.get_one::<String>("output").is_some_and(|output| output == "json") {
        emit(format!("{}\n", serde_json::to_string_pretty(&answer)?).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if answer.items.is_empty() {
        complain("No volumes.");
        return Ok(ExitCode::SUCCESS);
    }
    let wide = matches.get_one::<String>("output").is_some_and(|output| output == "wide");
    emit(table::columns(&rows(&answer.items, wide)).as_bytes())?;
    for item in &answer.items {
        if let Some(problem) = &item.problem {
            say(&format!("\n{}: {problem}\n", whose(item)));
            if item.state == "Leaving" {
                say(&format!("`klet volumes clean --dry-run {}` shows what keeps it.\n", item.uid));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The pod and the volume, as the table shows them.
fn whose(item: &VolumeItem) -> String {
    format!("{} {}", pod_of(item), item.name)
}

/// The pod, or the uid of one that is forgotten.
fn pod_of(item: &VolumeItem) -> String {
    match item.pod.is_empty() {
        true => item.uid.clone(),
        false => format!("{}/{}", item.namespace, item.pod),
    }
}

fn rows(items: &[VolumeItem], wide: bool) -> Vec<Vec<String>> {
    let mut titles = vec!["POD", "VOLUME", "KIND", "STATE", "USED", "FILES", "FREE"];
    titles.extend(wide.then_some("PATH"));
    let none = || "<none>".to_owned();
    let row = |item: &VolumeItem| {
        let usage = |shown: fn(&_) -> String| item.usage.as_ref().map_or_else(none, shown);
        let mut row = vec![
            pod_of(item),
            item.name.clone(),
            if item.kind.is_empty() { "<unknown>".to_owned() } else { item.kind.clone() },
            item.state.clone(),
            usage(|usage| amount(usage.used_bytes)),
            usage(|usage| usage.inodes_used.to_string()),
            usage(|usage| {
                format!("{} of {}", amount(usage.available_bytes), amount(usage.capacity_bytes))
            }),
        ];
        row.extend(wide.then(|| item.path.clone().unwrap_or_else(none)));
        row
    };
    std::iter::once(table::header(&titles)).chain(items.iter().map(row)).collect()
}

/// Bytes, to three digits or so.
fn amount(bytes: u64) -> String {
    let units = ["Ki", "Mi", "Gi", "Ti"];
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    match bytes {
        0..1024 => bytes.to_string(),
        _ if scaled < 10.0 => format!("{scaled:.1}{}", units[unit]),
        _ => format!("{scaled:.0}{}", units[unit]),
    }
}

async fn clean(endpoint: &Endpoint, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let wanted = matches.get_one::<String>("pod").map_or("", String::as_str);
    let volumes: VolumesAnswer = endpoint.get("/volumes").await?;
    let uid = uid_of(&volumes, wanted)?;
    let dry_run = matches.get_flag("dry-run");
    let path = format!("/volumes/{uid}/clean?dry_run={dry_run}");
    let answer: CleanAnswer = endpoint.post(&path, &()).await?;
    let verb = if answer.unmounted { "unmounted" } else { "would unmount" };
    for mount in &answer.mounts {
        say(&format!("{verb} {mount}\n"));
    }
    if answer.mounts.is_empty() {
        say("Nothing is mounted there; klet removes what is left by itself.\n");
    } else if answer.unmounted {
        say("Nothing that was mounted was removed. klet removes the directories by itself.\n");
    }
    Ok(ExitCode::SUCCESS)
}

/// The uid of a pod whose volumes are on their way out, by uid or by name.
fn uid_of(volumes: &VolumesAnswer, wanted: &str) -> anyhow::Result<String> {
    let suffix = format!("-{}", volumes.node);
    let is_it = |item: &&VolumeItem| {
        let short = item.pod.strip_suffix(&suffix).unwrap_or(&item.pod);
        let (namespace, name) = wanted.split_once('/').unwrap_or((&item.namespace, wanted));
        item.uid == wanted || (item.namespace == namespace && (item.pod == name || short == name))
    };
    // Another pod of the name may wait for the end of the one that is meant.
    let all = volumes.items.iter().filter(is_it);
    match all.min_by_key(|item| item.state != "Leaving") {
        Some(item) => Ok(item.uid.clone()),
        None => bail!("no volumes of a pod {wanted}; `klet volumes` lists those there are"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubelet::server::local::wire::VolumeUseItem;

    fn item(pod: &str, state: &str) -> VolumeItem {
        VolumeItem {
            namespace: if pod.is_empty() { String::new() } else { "default".to_owned() },
            pod: pod.to_owned(),
            uid: format!("uid-{pod}-{state}"),
            name: "data".to_owned(),
            kind: "emptyDir".to_owned(),
            state: state.to_owned(),
            problem: None,
            path: Some("/p".to_owned()),
            usage: Some(VolumeUseItem {
                used_bytes: 12_345,
                capacity_bytes: 5 << 30,
                available_bytes: 1 << 40,
                inodes_used: 3,
                inodes: 10,
                inodes_free: 7,
            }),
        }
    }

    #[test]
    fn a_volume_is_one_row() {
        let forgotten = VolumeItem { usage: None, kind: String::new(), ..item("", "Leaving") };
        let text = table::columns(&rows(&[item("web", "Ready"), forgotten], true));
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("   ").map(str::trim).filter(|w| !w.is_empty()).collect())
            .collect();
        assert_eq!(
            words[1],
            ["default/web", "data", "emptyDir", "Ready", "12Ki", "3", "1.0Ti of 5.0Gi", "/p"]
        );
        assert_eq!(
            words[2],
            ["uid--Leaving", "data", "<unknown>", "Leaving", "<none>", "<none>", "<none>", "/p"]
        );
    }

    #[test]
    fn amounts_are_short() {
        let shown = [0, 1023, 1024, 10 << 10, 1536 << 10, 3 << 50].map(amount);
        assert_eq!(shown, ["0", "1023", "1.0Ki", "10Ki", "1.5Mi", "3072Ti"]);
    }

    #[test]
    fn the_pod_that_leaves_is_meant() {
        let items = vec![item("web", "Ready"), item("web", "Leaving"), item("db-n1", "Leaving")];
        let volumes = VolumesAnswer { node: "n1".to_owned(), items };
        assert_eq!(uid_of(&volumes, "default/web").unwrap(), "uid-web-Leaving");
        for name in ["db", "db-n1", "default/db", "default/db-n1"] {
            assert_eq!(uid_of(&volumes, name).unwrap(), "uid-db-n1-Leaving", "{name}");
        }
        assert!(uid_of(&volumes, "other/db").is_err());
        assert_eq!(uid_of(&volumes, "uid-web-Ready").unwrap(), "uid-web-Ready");
        assert!(uid_of(&volumes, "we").is_err());
    }
}
