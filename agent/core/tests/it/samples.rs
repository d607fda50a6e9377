//! `deploy/samples`, which our CRDs take or refuse, as the agent reads them: what a CRD lets through is either in force or
//! named by the field that is not.
//!
//! A sample begins with `# valid` or `# refused: ...`, which is the CRDs' business; `# agent: PATH: MESSAGE` is ours.

use std::{fs, path::Path};

use egret_core::{cluster, policy::Severity};

#[test]
fn what_a_crd_takes_is_read_or_named() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/samples");
    let mut taken = 0;
    for entry in fs::read_dir(folder).expect("a folder of samples") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a sample");
        if !text.starts_with("# valid\n") {
            continue;
        }
        taken += 1;
        let wanted: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# agent: ")).collect();
        let contents = cluster::read(&text);
        let errors = contents.diagnostics.iter().filter(|d| d.severity == Severity::Error);
        let errors: Vec<String> = errors.map(|d| format!("{}: {}", d.path, d.message)).collect();
        assert_eq!(errors, wanted, "{}", path.display());
        assert_eq!(contents.objects.len(), usize::from(wanted.is_empty()), "{}", path.display());
    }
    assert!(taken >= 4, "only {taken} samples");
}
