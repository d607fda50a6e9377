//! Namespaces of test processes that died before they could clean up.

use std::path::Path;
use std::sync::Once;

use super::ip;

/// Removes what dead processes left, once per process.
pub(super) fn sweep() {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| {
        let names: Vec<String> = std::fs::read_dir("/run/netns")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| owner(name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()))
            .collect();
        delete(&names.iter().map(String::as_str).collect::<Vec<_>>());
    });
}

/// Deletes the namespaces; one that is already gone is no error.
pub(super) fn delete(names: &[&str]) {
    if names.is_empty() {
        return;
    }
    let commands: Vec<String> = names.iter().map(|name| format!("netns del {name}")).collect();
    if let Err(error) = ip::try_batch(None, &commands, true) {
        eprintln!("while removing namespaces: {error}");
    }
}

/// The process that made `eg-<pid>-<n>-<ns>`.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix("eg-")?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn only_our_names_have_an_owner() {
        assert_eq!(owner("eg-123-4-c"), Some(123));
        assert_eq!(owner("eg-x"), None);
        assert_eq!(owner("other-123-4"), None);
    }
}
