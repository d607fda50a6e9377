//! Pods and Services with their namespaces, which options name apart.

use super::End;

/// What was named of one end, or of either.
#[derive(Debug, Default)]
struct Named {
    namespaces: Vec<String>,
    pods: Vec<String>,
    services: Vec<String>,
}

/// What was named.
#[derive(Debug, Default)]
pub(super) struct Places {
    either: Named,
    source: Named,
    destination: Named,
}

impl Places {
    /// Whether the option is about places.
    pub(super) fn add(&mut self, field: &str, end: Option<End>, value: &str) -> bool {
        let named = match end {
            None => &mut self.either,
            Some(End::Source) => &mut self.source,
            Some(End::Destination) => &mut self.destination,
        };
        match field {
            "namespace" => named.namespaces.push(value.to_owned()),
            "all-namespaces" => named.namespaces.push(String::new()),
            "pod" => named.pods.push(value.to_owned()),
            "service" => named.services.push(value.to_owned()),
            _ => return false,
        }
        true
    }

    /// Pods and Services as filters name them.
    pub(super) fn of(&self, end: Option<End>) -> Result<(Vec<String>, Vec<String>), String> {
        let named = match end {
            None => &self.either,
            Some(End::Source) => &self.source,
            Some(End::Destination) => &self.destination,
        };
        let pods = within(&named.namespaces, &named.pods)?;
        let services = within(&named.namespaces, &named.services)?;
        if pods.is_empty() && services.is_empty() {
            return Ok((
                named.namespaces.iter().map(|namespace| format!("{namespace}/")).collect(),
                services,
            ));
        }
        Ok((pods, services))
    }
}

fn within(namespaces: &[String], names: &[String]) -> Result<Vec<String>, String> {
    if namespaces.is_empty() {
        return Ok(names.to_vec());
    }
    if let Some(name) = names.iter().find(|name| name.contains('/')) {
        return Err(format!("{name:?} names a namespace, and so does another option"));
    }
    let pairs = namespaces.iter().flat_map(|namespace| names.iter().map(move |name| (namespace, name)));
    Ok(pairs.map(|(namespace, name)| format!("{namespace}/{name}")).collect())
}
