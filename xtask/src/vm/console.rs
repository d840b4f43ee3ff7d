//! What the guest says on its console, understood: whether it is up, what was skipped,
//! which programs passed, and whether it came to its end.
//!
//! Pure: takes lines.

/// The guest's own lines begin with this.
const MARK: &str = "klet-vm: ";

/// What was understood so far.
#[derive(Debug, Default)]
pub struct Console {
    /// The kernel runs its first process.
    pub up: bool,
    /// How many programs failed, once the last has ended.
    pub failed: Option<u32>,
    /// A line for each program that has ended.
    pub ended: Vec<String>,
    /// What tests could not do, in their words.
    pub skipped: Vec<String>,
}

impl Console {
    /// Takes in a line.
    pub fn hear(&mut self, line: &str) {
        if let Some(at) = line.find("SKIPPED") {
            self.skipped.push(line[at..].to_owned());
        }
        let Some(said) = line.strip_prefix(MARK) else { return };
        if said == "up" {
            self.up = true;
        } else if said.starts_with("passed ") || said.starts_with("FAILED ") {
            self.ended.push(said.to_owned());
        } else if let Some(count) = said.strip_prefix("end, ") {
            self.failed = count.strip_suffix(" failed").and_then(|count| count.parse().ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_own_lines_are_told_from_others() {
        let mut console = Console::default();
        console.hear("a program that says klet-vm: end, 0 failed");
        assert!(!console.up && console.failed.is_none());
        for line in [
            "klet-vm: up",
            "klet-vm: running tests/resize",
            "test a_volume ... SKIPPED a_volume: no pages",
            "klet-vm: passed tests/resize in 12 s",
            "klet-vm: FAILED (101) tests/security in 3 s",
            "klet-vm: end, 1 failed",
        ] {
            console.hear(line);
        }
        assert!(console.up);
        assert_eq!(console.failed, Some(1));
        assert_eq!(
            console.ended,
            ["passed tests/resize in 12 s", "FAILED (101) tests/security in 3 s"]
        );
        assert_eq!(console.skipped, ["SKIPPED a_volume: no pages"]);
    }
}
