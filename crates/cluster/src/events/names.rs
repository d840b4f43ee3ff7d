//! Names of events that were written, for as many as upstream remembers. Pure.

use std::collections::BTreeMap;

/// Names remembered.
pub(super) const NAMES_MAX: usize = 4_096;

/// Names by the keys of events; forgets what was used longest ago.
#[derive(Debug, Default)]
pub(super) struct Names {
    uses: u64,
    by_key: BTreeMap<u64, (u64, String)>,
    by_use: BTreeMap<u64, u64>,
}

impl Names {
    pub(super) fn get(&self, key: u64) -> Option<&str> {
        self.by_key.get(&key).map(|(_, name)| name.as_str())
    }

    /// Takes a name, as the newest.
    pub(super) fn put(&mut self, key: u64, name: String) {
        if let Some((used, _)) = self.by_key.remove(&key) {
            self.by_use.remove(&used);
        }
        while self.by_key.len() >= NAMES_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_key.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.by_key.insert(key, (self.uses, name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let mut names = Names::default();
        for key in 0..NAMES_MAX as u64 {
            names.put(key, format!("n{key}"));
        }
        names.put(0, "again".to_owned());
        names.put(9_999, "new".to_owned());
        let found = [0, 1, 2, 9_999].map(|key| names.get(key));
        assert_eq!(found, [Some("again"), None, Some("n2"), Some("new")]);
        assert_eq!((names.by_key.len(), names.by_use.len()), (NAMES_MAX, NAMES_MAX));
    }
}
