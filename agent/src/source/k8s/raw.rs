//! An object on its way from the client library to the reader: of its metadata only what a watch needs.

use std::borrow::Cow;

use egret_core::cluster::Document;
use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::DynamicResourceScope;
use kube::discovery::ApiResource;
use serde::{Deserialize, Deserializer};

/// Any object. Nothing about it is refused here: one odd object must not cost a whole list.
#[derive(Debug, Clone)]
pub(super) struct Raw {
    metadata: ObjectMeta,
    pub(super) document: Document,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let document = Document::deserialize(deserializer)?;
        let text = |field| Some(document.metadata(field).to_owned()).filter(|text| !text.is_empty());
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, document })
    }
}

impl Resource for Raw {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
