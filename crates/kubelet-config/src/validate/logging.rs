//! Checks of the agent's own log. Upstream: component-base/logs/api/v1.

use super::Check;
use crate::go_duration::GoDuration;

impl Check<'_> {
    pub(super) fn logging(&mut self) {
        let Some(logging) = &self.c.logging else {
            return;
        };
        self.one_of("logging.format", logging.format.as_ref(), &["text", "json"]);
        if let Some(period) =
            logging.flush_frequency.map(|p| p.0).filter(|period| *period <= GoDuration::ZERO)
        {
            self.bad("logging.flushFrequency", period, "must be longer than zero");
        }
        let level_max = i32::MAX.unsigned_abs();
        self.range("logging.verbosity", logging.verbosity, 0, level_max);
        let modules = logging.vmodule.as_deref().unwrap_or_default();
        if !modules.is_empty() && logging.format.as_deref() == Some("json") {
            self.bad(
                "logging.vmodule",
                format!("a list of {}", modules.len()),
                "works in text format only",
            );
        }
        for (index, module) in modules.iter().enumerate() {
            let path = format!("logging.vmodule[{index}]");
            if module.file_pattern.is_empty() || module.file_pattern.contains(['=', ',']) {
                let shown = format!("{:?}", module.file_pattern);
                self.bad(
                    path.clone(),
                    shown,
                    "the file pattern must not be empty nor contain = or ,",
                );
            }
            self.range(&path, Some(module.verbosity), 0, level_max);
        }
        let options = logging.options.clone().unwrap_or_default();
        if self.gates.enabled("LoggingAlphaOptions") {
            return;
        }
        for (name, routing) in [("text", options.text), ("json", options.json)] {
            let routing = routing.unwrap_or_default();
            let wrong = "needs the feature gate LoggingAlphaOptions";
            if routing.split_stream == Some(true) {
                self.bad(format!("logging.options.{name}.splitStream"), true, wrong);
            }
            if let Some(size) = routing.info_buffer_size.filter(|size| !size.is_zero()) {
                self.bad(format!("logging.options.{name}.infoBufferSize"), size, wrong);
            }
        }
    }
}
