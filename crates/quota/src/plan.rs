//! Whether a directory is counted by its file system. Pure.

use crate::kernel::{Project, Support};
use crate::projects::ProjectId;

/// What is known of a directory that is to be counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) support: Support,
    /// The project it is in.
    pub(crate) project: Project,
    /// The one that the project files say it is in.
    pub(crate) listed: Option<ProjectId>,
    /// Nothing is in it.
    pub(crate) empty: bool,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is counted already.
    Keep(ProjectId),
    /// It is put into a project: the one that is listed for it, or a new one.
    Take {
        listed: Option<ProjectId>,
        /// In bytes.
        limit_max: u64,
    },
    /// It is not counted.
    Leave(Uncounted),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counting {
    /// The file system counts what is in the directory, in this project.
    Counted(ProjectId),
    /// It does not.
    Not(Uncounted),
}

/// Why a file system does not count a directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Uncounted {
    /// It counts no projects.
    #[error("{0}")]
    Unsupported(String),
    /// Files that are there already would not count.
    #[error("it was made, and holds files, before its file system counted it")]
    HasContent,
    /// The directory belongs to somebody else's project, whose limits stay in force.
    #[error(
        "it belongs to project {0}, which is not the agent's; take the directory above it out of \
         that project to have new volumes counted"
    )]
    Foreign(u32),
}

/// Decides. A directory that others put into a project stays there, other than with
/// upstream: whoever limits the agent's disk that way goes on to do so.
pub(crate) fn plan(facts: Facts) -> Step {
    let Facts { support, project, listed, empty } = facts;
    let limit_max = match support {
        Support::Counts { limit_max } => limit_max,
        Support::Not(why) => return Step::Leave(Uncounted::Unsupported(why)),
    };
    match (ProjectId::new(project.id), listed) {
        (Some(is), Some(listed)) if is == listed && project.inherited => Step::Keep(is),
        (Some(is), listed) if listed != Some(is) => Step::Leave(Uncounted::Foreign(is.number())),
        _ if empty => Step::Take { listed, limit_max },
        _ => Step::Leave(Uncounted::HasContent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wholly_counted_is_counted() {
        let id = ProjectId::new(7).unwrap();
        let counts = Support::Counts { limit_max: 9 };
        let take = |listed| Step::Take { listed, limit_max: 9 };
        let leave = Step::Leave;
        let none = Support::Not("no".to_owned());
        for (support, project, listed, empty, expected) in [
            (&none, (7, true), Some(id), true, leave(Uncounted::Unsupported("no".to_owned()))),
            (&counts, (0, false), None, true, take(None)),
            (&counts, (0, false), None, false, leave(Uncounted::HasContent)),
            // The agent was killed in between.
            (&counts, (0, false), Some(id), true, take(Some(id))),
            (&counts, (0, false), Some(id), false, leave(Uncounted::HasContent)),
            (&counts, (7, true), Some(id), false, Step::Keep(id)),
            (&counts, (7, false), Some(id), true, take(Some(id))),
            (&counts, (7, false), Some(id), false, leave(Uncounted::HasContent)),
            (&counts, (5, true), Some(id), true, leave(Uncounted::Foreign(5))),
            (&counts, (5, true), None, true, leave(Uncounted::Foreign(5))),
        ] {
            let project = Project { id: project.0, inherited: project.1 };
            let facts = Facts { support: support.clone(), project, listed, empty };
            assert_eq!(plan(facts.clone()), expected, "{facts:?}");
        }
    }
}
