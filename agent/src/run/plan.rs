//! From the command line to policies: every `--allow` and every file read, or one line that says what is wrong.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use egret_core::allow::AllowRule;
use egret_core::names::{Kind, Pattern};
use egret_core::policy::{Peers, Policy, Severity, cilium};

use super::describe;
use crate::cli::RunArgs;
use crate::exit::{self, Refusal};
use crate::resolvers::{self, Resolvers};

/// Bytes of a policy file at most.
const FILE_MAX: u64 = 16 << 20;

/// What a run shall enforce.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The policies, the way to the resolvers included.
    pub(super) policies: Vec<Policy>,
    /// One line for each thing that is open (or explicitly not).
    pub(super) understood: Vec<String>,
    /// What no rule allows is denied; false only where the policy files leave egress open.
    pub(super) isolated: bool,
    /// resolv.conf and `--trusted-resolver`.
    pub(super) resolvers: Resolvers,
    /// What the user should know.
    pub(super) warnings: Vec<String>,
}

impl Plan {
    /// Reads it all. Codes: 65 for what does not parse, 66 for a file that cannot be read.
    pub(super) fn read(args: &RunArgs) -> Result<Self, Refusal> {
        let allow = args.allow.iter().map(|text| allow_rule(text)).collect::<Result<Vec<_>, _>>()?;
        let mut warnings = Vec::new();
        let mut policies = Vec::new();
        for path in &args.policy {
            policies.extend(policy_file(path, &mut warnings)?);
        }
        // Without any list, nothing but loopback; with policy files only, they say whether egress is isolated.
        if !allow.is_empty() || args.policy.is_empty() {
            policies.push(Policy::from_allow(&allow));
        }
        let isolated = policies.iter().any(|p| p.isolates().egress);
        if !isolated {
            warnings.push(
                "no policy isolates egress: what no rule denies is open, and look-ups are not filtered"
                    .into(),
            );
        }
        let mut resolvers = resolvers::read();
        resolvers.servers.extend(args.names.trusted_resolver.iter().copied());
        let understood = describe::policies(&policies);
        warnings.extend(slow_patterns(&policies));
        policies.push(Policy::to_resolvers(&resolvers.servers));
        Ok(Self { policies, understood, isolated, resolvers, warnings })
    }
}

/// Patterns that the kernel cannot match by itself have a price.
fn slow_patterns(policies: &[Policy]) -> Vec<String> {
    let named = |peers: &Peers| match peers {
        Peers::Names(patterns) => patterns.clone(),
        _ => Vec::new(),
    };
    let rules = policies.iter().flat_map(Policy::rules);
    let all = rules.flat_map(|r| named(&r.peers).into_iter().chain(r.dns.clone().unwrap_or_default()));
    let slow: BTreeSet<Pattern> = all.filter(|p| matches!(p.kind(), Kind::Slow(_))).collect();
    let tell = |pattern: Pattern| match pattern.kind() {
        Kind::Slow(slow) => format!(
            "{pattern}: a `*` inside a label is matched by egret, not in the kernel: a first look-up of any name that ends \
             in `{}` is let through, and a first connect may take a second",
            slow.tail()
        ),
        _ => String::new(),
    };
    slow.into_iter().map(tell).collect()
}

fn allow_rule(text: &str) -> Result<AllowRule, Refusal> {
    AllowRule::parse(text).map_err(|error| {
        Refusal::new(
            exit::DATA_ERROR,
            format!("--allow {text:?}: {error}"),
            "see the examples of egret run --help",
        )
    })
}

fn policy_file(path: &Path, warnings: &mut Vec<String>) -> Result<Vec<Policy>, Refusal> {
    let shown = path.display();
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|f| f.take(FILE_MAX + 1).read_to_string(&mut text));
    let size = read.map_err(|error| {
        Refusal::new(exit::NO_INPUT, format!("--policy {shown}: {error}"), "give a file that can be read")
    })?;
    if size as u64 > FILE_MAX {
        return Err(Refusal::new(
            exit::DATA_ERROR,
            format!("--policy {shown}: larger than 16 MiB"),
            "split it",
        ));
    }
    let loaded = cilium::parse(&text);
    let (errors, others): (Vec<_>, Vec<_>) =
        loaded.diagnostics.iter().partition(|d| d.severity == Severity::Error);
    if !errors.is_empty() {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let cause = format!("--policy {shown}: {}", lines.join("; "));
        return Err(Refusal::new(
            exit::DATA_ERROR,
            cause,
            "nothing of it is enforced by half: mend the file",
        ));
    }
    warnings.extend(others.iter().map(|d| format!("{shown}: {d}")));
    Ok(loaded.policies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{self, Command};

    fn plan(args: &[&str]) -> Result<Plan, Refusal> {
        let all = ["egret", "run"].iter().chain(args).chain(&["--", "true"]);
        match cli::parse_from(all.copied()).expect("usage").command {
            Command::Run(args) => Plan::read(&args),
            _ => panic!("not a run"),
        }
    }

    fn policy(name: &str, text: &str) -> String {
        let path = std::env::temp_dir().join(format!("egret-plan-{}-{name}.yaml", std::process::id()));
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    #[test]
    fn s_a02_an_empty_list_isolates() {
        let plan = plan(&[]).expect("valid");
        assert!(plan.isolated && plan.understood.is_empty());
    }

    #[test]
    fn n_a03_errors_name_the_object_and_the_field() {
        assert_eq!(plan(&["--allow", "a..b"]).expect_err("bad").code, exit::DATA_ERROR);
        assert_eq!(plan(&["--policy", "/nonexistent"]).expect_err("bad").code, exit::NO_INPUT);
        let text = "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: web}\nspec:\n  \
                    endpointSelector: {}\n  egress:\n  - toFQDNs: [{matchName: \"a..b\"}]\n";
        let path = policy("bad", text);
        let refusal = plan(&["--policy", &path]).expect_err("bad");
        assert_eq!(refusal.code, exit::DATA_ERROR);
        let line = refusal.to_string();
        assert!(
            line.contains("CiliumNetworkPolicy/web") && line.contains("spec.egress[0].toFQDNs[0]"),
            "{line}"
        );
        assert!(!line.contains('\n'));
        std::fs::remove_file(path).expect("clean up");
    }

    #[test]
    fn a_policy_that_leaves_egress_open_is_told() {
        let text = "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: web}\nspec:\n  \
                    endpointSelector: {}\n  ingress:\n  - {}\n";
        let path = policy("open", text);
        let plan = plan(&["--policy", &path]).expect("valid");
        assert!(!plan.isolated && plan.warnings.iter().any(|w| w.contains("no policy isolates egress")));
        std::fs::remove_file(path).expect("clean up");
    }
}
