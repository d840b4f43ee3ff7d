//! The table against upstream's list, and the reading of arguments.

use super::*;

fn read_args(args: &[&str]) -> Result<CommandLine, clap::Error> {
    let command = add_to(Command::new("kubelet").no_binary_name(true));
    command
        .try_get_matches_from(normalise(args.iter().map(OsString::from)))
        .map(|matches| read(&matches))
}

/// Every flag of kubelet v1.36.4 on Linux, besides help and version.
const UPSTREAM: &str = include_str!("upstream.txt");

/// Flags that upstream does not have.
const KLETS_OWN: [&str; 2] = ["profile", "streams-need-create"];

#[test]
fn the_table_has_exactly_upstreams_flags() {
    let upstream: std::collections::BTreeSet<&str> = UPSTREAM.lines().collect();
    let ours: std::collections::BTreeSet<&str> = FLAGS.iter().map(|flag| flag.name).collect();
    assert_eq!(ours.len(), FLAGS.len(), "a flag is listed twice");
    let own: std::collections::BTreeSet<&str> = KLETS_OWN.into_iter().collect();
    assert!(own.is_disjoint(&upstream), "upstream has a flag of that name now");
    assert_eq!(ours, &own | &upstream);
}

#[test]
fn the_command_is_consistent() {
    add_to(Command::new("kubelet")).debug_assert();
}

#[test]
fn every_flag_outside_the_configuration_is_stored() {
    for flag in FLAGS.iter().filter(|flag| flag.target == Target::Flags) {
        assert!(Flags::default().set(flag.name, &Value::Null), "--{} has no field", flag.name);
    }
}

#[test]
fn underscores_are_dashes_in_names_only() {
    let line = read_args(&["--hostname_override=a_b", "--root_dir", "/x_y", "--node_ip", "--a_b"])
        .unwrap();
    assert_eq!(line.flags.hostname_override.as_deref(), Some("a_b"));
    assert_eq!(line.flags.root_dir, std::path::Path::new("/x_y"));
    assert_eq!(line.flags.node_ip.as_deref(), Some("--a_b"));
}

#[test]
fn booleans_need_no_value() {
    let line = read_args(&[
        "--seccomp-default",
        "--exit-on-lock-contention=false",
        "--fail-swap-on=false",
    ])
    .unwrap();
    assert!(line.flags.seccomp_default);
    assert!(!line.flags.exit_on_lock_contention);
    assert_eq!(line.settings[0].value, serde_json::json!(false));
    // A word after a boolean is not its value but an argument too many.
    assert!(read_args(&["--seccomp-default", "false"]).is_err());
}

#[test]
fn verbosity_has_every_spelling() {
    for args in [&["-v", "4"][..], &["-v4"], &["-v=4"], &["--v=4"], &["--v", "4"]] {
        let line = read_args(args).unwrap();
        assert_eq!(line.settings[0].value, serde_json::json!(4), "{args:?}");
    }
}

#[test]
fn negative_numbers_are_values() {
    let line = read_args(&["--oom-score-adj", "-5", "--maximum-dead-containers", "-1"]).unwrap();
    assert_eq!(line.settings[0].value, serde_json::json!(-5));
    assert_eq!(line.flags.maximum_dead_containers, -1);
}

#[test]
fn unknown_flags_get_a_suggestion() {
    let error = read_args(&["--max-pod=3"]).unwrap_err().to_string();
    assert!(error.contains("--max-pod") && error.contains("--max-pods"), "{error}");
    assert!(read_args(&["run"]).is_err());
}

#[test]
fn every_bad_value_is_reported() {
    let line = read_args(&["--port=x", "--max-pods=y", "--sync-frequency=z"]).unwrap();
    assert_eq!(line.problems.len(), 3);
}

#[test]
fn flags_without_effect_say_so() {
    let line = read_args(&["--boot-id-file=/x"]).unwrap();
    assert!(
        line.warnings
            .iter()
            .any(|w| matches!(w, Warning::NoEffect { what, .. } if what == "--boot-id-file"))
    );
}

#[test]
fn version_spellings() {
    let version = |args: &[&str]| read_args(args).unwrap().version;
    assert_eq!(version(&["--version"]), Some(VersionRequest::Short));
    assert_eq!(version(&["--version=true"]), Some(VersionRequest::Short));
    assert_eq!(version(&["--version=raw"]), Some(VersionRequest::Raw));
    assert_eq!(version(&["--version=false"]), None);
    assert_eq!(version(&[]), None);
}

proptest::proptest! {
    #[test]
    fn any_arguments_are_read_or_refused(args in proptest::collection::vec("(--)?[a-z_=0-9,:<-]{0,24}", 0..6)) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let _ = read_args(&args);
    }
}
