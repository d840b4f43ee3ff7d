//! Selectors: which objects of a list or watch a client wants.
//!
//! Pure. Upstream: apimachinery pkg/labels and pkg/fields.

mod fields;
mod labels;

use serde_json::Value;

use crate::error::ApiError;
use crate::resources::Resource;

pub use fields::FieldSelector;
pub use labels::{LabelSelector, SelectorError};

/// Labels and fields together; by default it takes everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selector {
    /// Reads both halves as they stand in a query.
    ///
    /// # Errors
    /// 400 if either cannot be read, or names a field that objects cannot be chosen by.
    pub fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, ApiError> {
        let unreadable = |error: SelectorError| ApiError::bad_request(error.to_string());
        let labels = LabelSelector::parse(labels).map_err(unreadable)?;
        let fields = FieldSelector::parse(resource, fields).map_err(unreadable)?;
        Ok(Self { labels, fields })
    }

    /// Only the object of this name.
    pub fn and_name(mut self, name: &str) -> Self {
        self.fields.require_name(name);
        self
    }

    /// Whether it takes everything, so that nothing need be decoded.
    pub fn takes_all(&self) -> bool {
        self.labels.takes_all() && self.fields.takes_all()
    }

    /// Whether it takes this object.
    pub fn takes(&self, object: &Value) -> bool {
        self.labels.takes(object) && self.fields.takes(object)
    }
}
