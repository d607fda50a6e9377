//! Order statistics.

/// The value below which `share` of the values lie; 0 without values.
pub(crate) fn quantile(values: &[u64], share: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = ((sorted.len().saturating_sub(1)) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(0)
}

/// The middle value.
pub(crate) fn median(values: &[u64]) -> u64 {
    quantile(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_values() {
        assert_eq!(median(&[]), 0);
        assert_eq!(median(&[3, 1, 2]), 2);
        assert_eq!(quantile(&[1, 2, 3, 4, 100], 0.99), 100);
    }
}
