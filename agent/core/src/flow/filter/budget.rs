//! How much the filters of one request may take, and the tests that are made within it.

use regex_lite::{Regex, RegexBuilder};

use super::{FilterError, Flow, Matcher};

/// Values of a field at most.
const VALUES: usize = 256;
/// Bytes that all values of a request may take.
const BYTES: usize = 256 * 1024;
/// What a value takes beside its letters.
const VALUE: usize = 64;
/// What a regular expression may take, smallest first: only by trying is it known.
const REGEX: [usize; 7] = [512, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15];

/// What is left.
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(BYTES)
    }
}

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.0 = self.0.checked_sub(bytes).ok_or("all filters together are too large")?;
        Ok(())
    }

    fn regex(&mut self, pattern: &str) -> Result<Regex, String> {
        let mut built = Err("too large".into());
        for size in REGEX {
            match RegexBuilder::new(pattern).size_limit(size).build() {
                Ok(regex) => {
                    // A search notes for each state where each group began and ended.
                    self.take(size.saturating_mul(regex.captures_len() + 1))?;
                    return Ok(regex);
                }
                Err(error) => built = Err(error.to_string()),
            }
        }
        built
    }
}

/// The tests of one filter.
pub(super) struct Tests<'a> {
    pub(super) tests: Matcher,
    pub(super) budget: &'a mut Budget,
}

impl Tests<'_> {
    /// Adds a test that one of the values passes, unless there are none.
    pub(super) fn any_of<T: Clone + Send + Sync + 'static>(
        &mut self,
        field: &'static str,
        values: &[T],
        passes: impl Fn(&T, &Flow) -> bool + Send + Sync + 'static,
    ) -> Result<(), FilterError> {
        self.count(field, values.len())?;
        self.add(values.to_vec(), passes);
        Ok(())
    }

    /// The same of values as `read` reads them.
    pub(super) fn any_read<T: Send + Sync + 'static>(
        &mut self,
        field: &'static str,
        values: &[String],
        read: impl Fn(&str) -> Result<T, String>,
        passes: impl Fn(&T, &Flow) -> bool + Send + Sync + 'static,
    ) -> Result<(), FilterError> {
        let values = self.read(field, values, |value, _| read(value))?;
        self.add(values, passes);
        Ok(())
    }

    /// The same of regular expressions, as `pattern` makes them of values.
    pub(super) fn any_regex(
        &mut self,
        field: &'static str,
        values: &[String],
        pattern: impl Fn(&str) -> Result<String, String>,
        passes: impl Fn(&Regex, &Flow) -> bool + Send + Sync + 'static,
    ) -> Result<(), FilterError> {
        let values = self.read(field, values, |value, budget| budget.regex(&pattern(value)?))?;
        self.add(values, passes);
        Ok(())
    }

    fn read<T>(
        &mut self,
        field: &'static str,
        values: &[String],
        read: impl Fn(&str, &mut Budget) -> Result<T, String>,
    ) -> Result<Vec<T>, FilterError> {
        self.count(field, values.len())?;
        let mut all = Vec::with_capacity(values.len());
        for value in values {
            let one = self.budget.take(value.len()).and_then(|()| read(value, self.budget));
            all.push(one.map_err(|why| FilterError::new(field, value, why))?);
        }
        Ok(all)
    }

    fn count(&mut self, field: &'static str, values: usize) -> Result<(), FilterError> {
        let taken = match values {
            0..=VALUES => self.budget.take(values * VALUE),
            _ => Err(format!("more than {VALUES} values")),
        };
        taken.map_err(|why| FilterError::new(field, "", why))
    }

    fn add<T: Send + Sync + 'static>(
        &mut self,
        values: Vec<T>,
        passes: impl Fn(&T, &Flow) -> bool + Send + Sync + 'static,
    ) {
        if !values.is_empty() {
            self.tests.push(Box::new(move |flow| values.iter().any(|value| passes(value, flow))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Filters, FlowFilter};

    /// The field that is too much, or nothing.
    fn refused(white: &[FlowFilter], black: &[FlowFilter]) -> Option<(&'static str, String)> {
        Filters::new(white, black).err().map(|error| (error.field, error.why))
    }

    fn queries(pattern: &str, count: usize) -> FlowFilter {
        FlowFilter { dns_query: vec![pattern.to_owned(); count], ..FlowFilter::default() }
    }

    #[test]
    fn what_filters_take_is_bounded() {
        let together = |field| Some((field, "all filters together are too large".to_owned()));
        let many = |count| vec![FlowFilter::default(); count];
        assert_eq!(refused(&many(64), &many(64)), None);
        assert_eq!(refused(&many(65), &[]), Some(("whitelist", "more than 64 filters".into())));
        assert_eq!(refused(&[], &many(65)), Some(("blacklist", "more than 64 filters".into())));
        let ports = |count| FlowFilter { verdict: vec![1; count], ..FlowFilter::default() };
        assert_eq!(refused(&[ports(256)], &[]), None);
        assert_eq!(refused(&[ports(257)], &[]), Some(("verdict", "more than 256 values".into())));
        let names = |count| FlowFilter { http_method: vec!["GET".into(); count], ..FlowFilter::default() };
        assert_eq!(refused(&[names(257)], &[]), Some(("http_method", "more than 256 values".into())));
        assert_eq!(refused(&vec![ports(256); 16], &[]), None);
        assert_eq!(refused(&vec![ports(256); 8], &vec![ports(256); 9]), together("verdict"));
        assert_eq!(refused(&[names(1), queries(&"x".repeat(1 << 18), 1)], &[]), together("dns_query"));
    }

    #[test]
    fn what_expressions_take_is_bounded() {
        let together = |field| Some((field, "all filters together are too large".to_owned()));
        assert_eq!(refused(&[queries(r"^(api|www)\.example\.com\.$", 16)], &[]), None);
        let mut names = FlowFilter::default();
        names.destination.fqdn = vec!["*.example.com".into(); 32];
        assert_eq!(refused(&[names.clone()], &[]), None);
        // 250 kB each, in a few letters.
        let (field, why) = refused(&[queries(r"(\w{10}){300}", 1)], &[]).expect("refused");
        assert!(field == "dns_query" && why.contains("size limit"), "{why}");
        assert_eq!(refused(&[queries(r"\w{100}", 200)], &[]), together("dns_query"));
        // Small ones, and a place for each group in each state.
        assert_eq!(refused(&[queries(&"(a)".repeat(100), 1)], &[]), together("dns_query"));
        // One budget for all.
        names.destination.fqdn = vec!["*.example.com".into(); 256];
        assert_eq!(refused(&[], &[names]), together("destination_fqdn"));
        let error = Filters::new(&[queries(&"[".repeat(5000), 1)], &[]).expect_err("no expression");
        assert_eq!(error.value.len(), 256);
    }
}
