//! The vdevs of one pool, by name.

use engine::dsl::Dsl;
use engine::pool::properties::{VdevProp, VdevProperties};
use engine::pool::status::{self, VdevClass, VdevNode};
use engine::properties::{Shown, Style, is_user};
use ondisk::Guid;

use crate::api::edge::Edge;
use crate::api::{self, ApiError, Listed, Property, VdevEntry};
use crate::daemon::datasets::listing::unset;
use crate::daemon::{Daemon, dataset_error};

impl Daemon {
    /// Lists vdevs of an open pool with their properties.
    ///
    /// # Errors
    /// A pool that is not open, or whose configuration cannot be read.
    pub async fn list_vdevs(&self, request: api::ListVdevs) -> Result<Listed<VdevEntry>, ApiError> {
        let pool = self.pool(&request.pool)?;
        let failed = |error| dataset_error("read vdevs of", &request.pool, error);
        let dsl = pool.dsl().await.map_err(failed)?;
        let root = status::vdevs_with_space(&dsl).await.map_err(failed)?;
        let mut listed = Listed::default();
        let mut chosen = Vec::new();
        for name in &request.vdevs {
            match find(&root, name) {
                Some(vdev) => chosen.push(vdev),
                None => listed.failed.push(ApiError::not_found(format!(
                    "cannot open '{name}': no such device in pool '{}'",
                    request.pool
                ))),
            }
        }
        if request.vdevs.is_empty() {
            let all = root.walk().filter(|vdev| holds_blocks(vdev));
            chosen = std::iter::once(&root).chain(all).collect();
        }
        for vdev in chosen {
            let properties = properties(&dsl, vdev, &request.properties).await.map_err(failed)?;
            listed.entries.push(VdevEntry { vdev: vdev.clone().edge(), properties });
        }
        Ok(listed)
    }
}

/// The vdev of this name below the root, or the root itself by OpenZFS's names for it.
pub(in crate::daemon) fn find<'a>(root: &'a VdevNode, name: &str) -> Option<&'a VdevNode> {
    match name {
        "root" | "root-0" => Some(root),
        _ => root.walk().find(|vdev| vdev.kind != "root" && is_called(vdev, name)),
    }
}

pub(in crate::daemon) fn is_called(vdev: &VdevNode, name: &str) -> bool {
    let last_part = vdev.name.rsplit_once('/').map(|(_, last)| last);
    vdev.name == name || last_part == Some(name) || name.parse() == Ok(vdev.guid)
}

fn holds_blocks(vdev: &VdevNode) -> bool {
    let auxiliary = matches!(vdev.class, VdevClass::Spare | VdevClass::L2cache);
    !auxiliary && !matches!(vdev.kind.as_str(), "root" | "hole" | "missing")
}

async fn properties(dsl: &Dsl, vdev: &VdevNode, wanted: &[String]) -> engine::Result<Vec<Property>> {
    let set = VdevProperties::load(dsl, Guid(vdev.guid)).await?;
    // `name` is a property that `all` does not show.
    let with_name = |style: Style| {
        let name = set.get(VdevProp::Name, style);
        name.into_iter().chain(set.all(style)).collect::<Vec<_>>()
    };
    let parsable = with_name(Style::PARSABLE);
    let told = |shown: Shown| Property {
        parsable: parsable.iter().find(|other| other.name == shown.name).map(|other| other.value.clone()),
        value: Some(shown.value),
        source: shown.source.edge(),
        name: shown.name,
        received: None,
        received_parsable: None,
    };
    let all: Vec<Property> = with_name(Style::HUMAN_UTC).into_iter().map(told).collect();
    let of_name = |name: &String| {
        let is_wanted = |property: &&Property| match name.as_str() {
            "all" => property.name != "name",
            name => property.name == name,
        };
        let found: Vec<Property> = all.iter().filter(is_wanted).cloned().collect();
        match found.is_empty() && is_user(name) {
            true => vec![unset(name)],
            false => found,
        }
    };
    Ok(wanted.iter().flat_map(of_name).collect())
}
