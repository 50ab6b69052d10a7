//! Whether two scopes cover a common request. If they do, the order of their rules would decide, which users would not notice.
//!
//! Exact, except for two segments with a star each: for those it may report an overlap that does not exist.

use super::host::HostPattern;
use super::request::{Method, PathPattern, RequestRule, RequestScope, segment_matches};

/// The first two rules that cover a common request and treat it differently, or count it twice; the earlier one first.
pub fn overlapping(rules: &[RequestRule]) -> Option<(usize, usize)> {
    let collide = |one: &RequestRule, other: &RequestRule| {
        (!one.treats_as(other) || one.budget.is_some()) && one.scope.overlaps(&other.scope)
    };
    rules.iter().enumerate().find_map(|(later, rule)| {
        let earlier = rules[..later].iter().position(|other| collide(rule, other))?;
        Some((earlier, later))
    })
}

impl RequestRule {
    /// Whether both treat a request in the same way, whatever their scopes are.
    pub fn treats_as(&self, other: &Self) -> bool {
        (self.mode, &self.secret, self.budget, self.approve)
            == (other.mode, &other.secret, other.budget, other.approve)
    }
}

impl RequestScope {
    /// Whether every method with every path named here is within one scope of a ceiling. For methods and paths that are not
    /// named, the ceiling decides.
    pub fn fits(&self, ceiling: &[Self]) -> bool {
        let one = |method: Option<&Method>, path: Option<&PathPattern>| {
            ceiling.iter().any(|allowed| {
                let methods = method.map_or_else(|| allowed.methods.clone(), |method| vec![method.clone()]);
                let paths = path.map_or_else(|| allowed.paths.clone(), |path| vec![path.clone()]);
                allowed.contains(&Self { methods, paths, ..self.clone() })
            })
        };
        let paths = some_or_none(&self.paths);
        some_or_none(&self.methods).iter().all(|method| paths.iter().all(|path| one(*method, *path)))
    }

    /// Whether a request exists that both cover.
    pub fn overlaps(&self, other: &Self) -> bool {
        let methods = self.methods.is_empty()
            || other.methods.is_empty()
            || self.methods.iter().any(|method| other.methods.contains(method));
        let paths = self.paths.is_empty()
            || other.paths.is_empty()
            || self.paths.iter().any(|ours| other.paths.iter().any(|theirs| ours.overlaps(theirs)));
        self.port == other.port && methods && paths && self.host.overlaps(&other.host)
    }
}

impl HostPattern {
    /// Whether a host exists that both match.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Suffix(above), Self::Suffix(below)) => {
                above == below || self.matches(below) || other.matches(above)
            }
            (Self::Suffix(_), Self::Exact(name)) => self.matches(name),
            (Self::Exact(name), Self::Suffix(_)) => other.matches(name),
            (Self::Block(block), Self::Address(address)) | (Self::Address(address), Self::Block(block)) => {
                block.contains(*address)
            }
            (Self::Block(one), Self::Block(two)) => one.contains(two.first()) || two.contains(one.first()),
            (Self::Exact(_) | Self::Address(_), Self::Exact(_) | Self::Address(_)) => self == other,
            (Self::Suffix(_), Self::Address(_) | Self::Block(_))
            | (Self::Address(_) | Self::Block(_), Self::Suffix(_))
            | (Self::Exact(_), Self::Block(_))
            | (Self::Block(_), Self::Exact(_)) => false,
        }
    }
}

impl PathPattern {
    /// Whether a path exists that both match.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (ours, ours_below) = parts(self.as_str());
        let (theirs, theirs_below) = parts(other.as_str());
        let (mut ours, mut theirs) = (ours.split('/'), theirs.split('/'));
        loop {
            match (ours.next(), theirs.next()) {
                (Some(our), Some(their)) if segments_overlap(our, their) => {}
                (Some(_), Some(_)) => return false,
                // `/**` matches everything longer, and nothing of the same length.
                (None, Some(_)) => return ours_below,
                (Some(_), None) => return theirs_below,
                (None, None) => return ours_below == theirs_below,
            }
        }
    }
}

fn some_or_none<T>(items: &[T]) -> Vec<Option<&T>> {
    if items.is_empty() { vec![None] } else { items.iter().map(Some).collect() }
}

/// The part before `/**`, and whether there was a `/**`.
fn parts(pattern: &str) -> (&str, bool) {
    pattern.strip_suffix("/**").map_or((pattern, false), |front| (front, true))
}

fn segments_overlap(ours: &str, theirs: &str) -> bool {
    match (ours.split_once('*'), theirs.split_once('*')) {
        (_, None) => segment_matches(ours, theirs),
        (None, Some(_)) => segment_matches(theirs, ours),
        (Some((front, back)), Some((other_front, other_back))) => {
            (front.starts_with(other_front) || other_front.starts_with(front))
                && (back.ends_with(other_back) || other_back.ends_with(back))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_overlap_where_some_path_is_matched_by_both() {
        for (ours, theirs, overlap) in [
            ("/v1/**", "/v1/chat", true),
            ("/v1/**", "/v1", false),
            ("/v1/**", "/v1/", true),
            ("/v1/**", "/v2/**", false),
            ("/v1/**", "/v1/a/**", true),
            ("/**", "/", true),
            ("/*", "/a", true),
            ("/*", "/a/b", false),
            ("/*/b", "/a/*", true),
            ("/gpt-*", "/*-mini", true),
            ("/gpt-*", "/o1-*", false),
            ("/a", "/a", true),
            ("/a", "/b", false),
            ("/*", "/", false),
        ] {
            let (a, b): (PathPattern, PathPattern) = (ours.parse().unwrap(), theirs.parse().unwrap());
            assert_eq!((a.overlaps(&b), b.overlaps(&a)), (overlap, overlap), "{ours} {theirs}");
        }
    }

    #[test]
    fn hosts_overlap_by_their_names() {
        for (ours, theirs, overlap) in [
            ("a.example.com", "a.example.com", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "*.a.example.com", true),
            ("*.example.com", "*.example.org", false),
        ] {
            let (a, b): (HostPattern, HostPattern) = (ours.parse().unwrap(), theirs.parse().unwrap());
            assert_eq!((a.overlaps(&b), b.overlaps(&a)), (overlap, overlap), "{ours} {theirs}");
        }
    }
}
