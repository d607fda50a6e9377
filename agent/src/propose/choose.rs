//! Which workloads are meant: in the words of a user, of the core, and of the API.

use egret_core::labels::Labels;
use egret_core::propose::Choice;

use super::usage;
use crate::cli::LearnArgs;
use crate::exit::Refusal;
use crate::observe::proto::flow::{FlowFilter, Workload};

/// Reads the options.
pub(super) fn choice(args: &LearnArgs) -> Result<Choice, Refusal> {
    if let Some(pod) = &args.pod {
        let (namespace, name) = parts(pod, "--pod", "NS/NAME")?;
        return Ok(Choice::Pod { namespace, name });
    }
    if let Some(namespace) = &args.namespace {
        let labels = args.selector.as_deref().map(labels).transpose()?.unwrap_or_default();
        return Ok(Choice::Labels { namespace: namespace.clone(), labels });
    }
    if let Some(workload) = &args.workload {
        let (namespace, rest) = parts(workload, "--workload", "NS/KIND/NAME")?;
        let (kind, name) = parts(&rest, "--workload", "NS/KIND/NAME")?;
        return Ok(Choice::Workload { namespace, kind, name });
    }
    if args.all_namespaces || !args.check.is_empty() {
        return Ok(Choice::All);
    }
    Err(usage("say whose policy: --pod, --namespace with --selector, --workload or --all-namespaces"))
}

fn parts(text: &str, option: &str, form: &str) -> Result<(String, String), Refusal> {
    match text.split_once('/') {
        Some((first, rest)) if !first.is_empty() && !rest.is_empty() => {
            Ok((first.to_owned(), rest.to_owned()))
        }
        _ => Err(usage(format!("{option} {text:?}: write {form}"))),
    }
}

fn labels(text: &str) -> Result<Labels, Refusal> {
    let legal = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
    let one = |part: &str| {
        let (key, value) = part.split_once("==").or_else(|| part.split_once('='))?;
        let (key, value) = (key.trim(), value.trim());
        let good = !key.is_empty() && legal(key) && legal(value);
        good.then(|| (key.to_owned(), value.to_owned()))
    };
    let all: Option<Labels> = text.split(',').map(one).collect();
    all.ok_or_else(|| usage(format!("--selector {text:?}: write key=value, several with commas")))
}

/// What to ask a server for: no flow less than the choice means.
pub(super) fn filters(choice: &Choice) -> Vec<FlowFilter> {
    let either = |own: FlowFilter, other: FlowFilter| vec![own, other];
    let pods = |prefix: String, selector: Vec<String>| {
        either(
            FlowFilter {
                source_pod: vec![prefix.clone()],
                source_label: selector.clone(),
                ..FlowFilter::default()
            },
            FlowFilter {
                destination_pod: vec![prefix],
                destination_label: selector,
                ..FlowFilter::default()
            },
        )
    };
    match choice {
        Choice::All => Vec::new(),
        Choice::Pod { namespace, name } => pods(format!("{namespace}/{name}"), Vec::new()),
        Choice::Labels { namespace, labels } => {
            let all: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let selector = if all.is_empty() { Vec::new() } else { vec![all.join(",")] };
            pods(format!("{namespace}/"), selector)
        }
        Choice::Workload { kind, name, .. } => {
            let wanted = vec![Workload { name: name.clone(), kind: kind.clone() }];
            either(
                FlowFilter { source_workload: wanted.clone(), ..FlowFilter::default() },
                FlowFilter { destination_workload: wanted, ..FlowFilter::default() },
            )
        }
    }
}
