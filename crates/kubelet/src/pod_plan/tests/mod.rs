//! Plans as tables: facts in, steps out; and properties over all facts.

mod containers;
mod deadline;
#[allow(clippy::duplicate_mod)] // the status tests read the same language
mod dsl;
mod init;
mod memory;
mod model;
mod probes;
mod properties;
mod resize;
mod render;
mod restarts;
mod sandboxes;
mod scenes;
mod sidecars;
mod stories;
mod termination;

use expect_test::Expect;

use super::plan_live;

fn check(text: &str, expected: Expect) {
    check_keeping(1, text, expected);
}

/// As `check`, keeping `max_dead` dead instances per container.
fn check_keeping(max_dead: u32, text: &str, expected: Expect) {
    let scene = dsl::scene(text);
    let plan = plan_live(&scene.pod, &scene.seen, &scene.context(max_dead));
    expected.assert_eq(&render::plan(&plan));
}
