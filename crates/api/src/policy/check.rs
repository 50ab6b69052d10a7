//! Validates a policy document: turns it into rules, or into a fault with its place and reason.
//!
//! Pure. Besides invalid values it rejects two rules that cover the same request and treat it differently (their order
//! would decide, which is not visible), unknown secrets, and rules that exceed what the owner of the secret allows. A
//! rule with a secret and without methods or paths means those of the ceiling.

use std::fmt;
use std::str::FromStr;

use burrow_model::network::{
    Approve, Budget, DENIED_MAX, Method, PathPattern, REQUEST_RULES_MAX, RULES_MAX, RequestRule,
    RequestScope, RuleMode, SCOPE_ITEMS_MAX, SETS_MAX, overlapping,
};
use burrow_model::{
    BasicUser, CEILING_MAX, EgressRule, Format, HeaderName, HostPattern, IpRange, Name, NetworkMode,
    NetworkPolicy, PlaceholderSpec, QueryName, SecretSpec, Slot,
};

use super::{
    BudgetDocument, EgressAuth, EgressDocument, PolicyDefault, PolicyDocument, RuleDocument, ScopeDocument,
    SecretDocument, SecretSource, SlotDocument,
};

/// Maximum number of secrets that one file may declare.
pub const SECRETS_MAX: usize = 200;

/// One step of the path to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Key(String),
    Index(usize),
}

/// An error in a policy document, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub place: Vec<Step>,
    pub reason: String,
    pub hint: Option<String>,
    /// For two rules that conflict: the place of the other one.
    pub other: Option<Vec<Step>>,
}

/// A valid document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedPolicy {
    pub secrets: Vec<(SecretSpec, Option<SecretSource>)>,
    /// `None` if the document has no network part.
    pub network: Option<NetworkPolicy>,
    /// The place in the document of each of the network's request rules.
    pub places: Vec<Vec<Step>>,
}

/// Returns the ceiling of a secret by its name, or `None` for an unknown secret.
pub type Ceilings<'a> = dyn Fn(&Name) -> Option<Vec<RequestScope>> + 'a;

// === impl Fault ===

impl Fault {
    fn new(place: &[Step], reason: impl Into<String>) -> Self {
        Self { place: place.to_vec(), reason: reason.into(), hint: None, other: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// As in RFC 6901: `/egress/rules/0/host`.
    pub fn pointer(&self) -> String {
        pointer(&self.place)
    }
}

pub fn pointer(place: &[Step]) -> String {
    let mut text = String::new();
    for step in place {
        text.push('/');
        match step {
            Step::Key(key) => text.push_str(&key.replace('~', "~0").replace('/', "~1")),
            Step::Index(index) => text.push_str(&index.to_string()),
        }
    }
    text
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.pointer(), self.reason)?;
        match &self.other {
            Some(other) => write!(f, " (the other is `{}`)", pointer(other)),
            None => Ok(()),
        }
    }
}

fn below(place: &[Step], key: &str) -> Vec<Step> {
    [place, &[Step::Key(key.to_owned())]].concat()
}

fn item(place: &[Step], key: &str, index: usize) -> Vec<Step> {
    [place, &[Step::Key(key.to_owned()), Step::Index(index)]].concat()
}

// === Documents ===

/// Checks everything that does not require the tenant's secrets; secrets that the document declares are known.
pub fn document(document: &PolicyDocument) -> Result<CheckedPolicy, Fault> {
    let PolicyDocument { secrets, egress, egress_auth } = document;
    let secrets = secrets_of(secrets)?;
    if egress.is_none() && egress_auth.is_empty() {
        if secrets.is_empty() {
            return Err(Fault::new(
                &[],
                "the document is empty: it has none of `egress`, `egressAuth` and `secrets`",
            ));
        }
        return Ok(CheckedPolicy { secrets, network: None, places: Vec::new() });
    }
    let (network, places) = network(egress.as_ref(), egress_auth)?;
    Ok(CheckedPolicy { secrets, network: Some(network), places })
}

fn network(
    egress: Option<&EgressDocument>,
    short: &[EgressAuth],
) -> Result<(NetworkPolicy, Vec<Vec<Step>>), Fault> {
    let nothing = EgressDocument::default();
    let EgressDocument { default, rules: written, allow, sets, deny } = egress.unwrap_or(&nothing);
    let place = [Step::Key("egress".to_owned())];
    let (mut requests, mut places) = (Vec::new(), Vec::new());
    for (index, rule) in written.iter().enumerate() {
        let place = item(&place, "rules", index);
        requests.push(self::rule(rule, &place)?);
        places.push(place);
    }
    for (index, auth) in short.iter().enumerate() {
        let place = item(&[], "egressAuth", index);
        let rule = short_rule(auth, &place)?;
        // The full form of the same rule takes precedence: it may also have a budget.
        let has_full_form = |own: &RequestRule| own.secret == rule.secret && own.scope == rule.scope;
        if !requests.iter().any(has_full_form) {
            requests.push(rule);
            places.push(place);
        }
    }
    at_most(requests.len(), REQUEST_RULES_MAX, &below(&place, "rules"), "request rules")?;
    apart(&requests, &places)?;
    at_most(allow.len(), RULES_MAX, &below(&place, "allow"), "rules")?;
    at_most(sets.len(), SETS_MAX, &below(&place, "sets"), "host sets")?;
    at_most(deny.len(), DENIED_MAX, &below(&place, "deny"), "address blocks")?;
    let network = NetworkPolicy {
        mode: match default {
            None | Some(PolicyDefault::Deny) => NetworkMode::Allowlist,
            Some(PolicyDefault::Allow) => NetworkMode::Open,
        },
        rules: distinct::<EgressRule>(allow, &place, "allow")?,
        sets: distinct::<Name>(sets, &place, "sets")?,
        requests,
        deny: distinct::<IpRange>(deny, &place, "deny")?,
        transforms: None,
    };
    Ok((network, places))
}

/// Parses rules without a document, at `place`.
pub fn rules(written: &[RuleDocument], place: &[Step]) -> Result<Vec<RequestRule>, Fault> {
    at_most(written.len(), REQUEST_RULES_MAX, place, "request rules")?;
    let at = |index: usize| [place, &[Step::Index(index)]].concat();
    let read = |(index, rule)| self::rule(rule, &at(index));
    let rules: Vec<RequestRule> = written.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    let places: Vec<Vec<Step>> = (0..rules.len()).map(at).collect();
    apart(&rules, &places)?;
    Ok(rules)
}

fn at_most(count: usize, max: usize, place: &[Step], what: &str) -> Result<(), Fault> {
    if count > max { Err(Fault::new(place, format!("more than {max} {what}"))) } else { Ok(()) }
}

fn distinct<T: FromStr<Err: fmt::Display> + PartialEq>(
    texts: &[String],
    place: &[Step],
    key: &str,
) -> Result<Vec<T>, Fault> {
    let mut items = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        let parsed: T = parse(text, &item(place, key, index))?;
        if !items.contains(&parsed) {
            items.push(parsed);
        }
    }
    Ok(items)
}

fn parse<T: FromStr<Err: fmt::Display>>(text: &str, place: &[Step]) -> Result<T, Fault> {
    text.parse().map_err(|error: T::Err| Fault::new(place, error.to_string()))
}

// === Rules ===

fn rule(written: &RuleDocument, place: &[Step]) -> Result<RequestRule, Fault> {
    let RuleDocument { host, port, methods, paths, mode, secret, budget, approve } = written;
    let scope = scope(host, *port, methods, paths, place)?;
    let mode = match mode {
        None | Some(super::RuleMode::Intercept) => RuleMode::Intercept,
        Some(super::RuleMode::Sni) => RuleMode::Sni,
    };
    if mode == RuleMode::Sni {
        let needs = [
            ("methods", !methods.is_empty()),
            ("paths", !paths.is_empty()),
            ("secret", secret.is_some()),
            ("budget", budget.is_some()),
            ("approve", approve.is_some()),
        ];
        if let Some((key, _)) = needs.into_iter().find(|(_, given)| *given) {
            let reason = format!("`{key}` requires decryption, and `mode: sni` does not decrypt");
            return Err(Fault::new(&below(place, key), reason).hint("remove `mode`"));
        }
    }
    let secret = secret.as_ref().map(|name| parse::<Name>(name, &below(place, "secret"))).transpose()?;
    Ok(RequestRule {
        scope,
        mode,
        secret,
        budget: budget.as_ref().map(|budget| self::budget(budget, &below(place, "budget"))).transpose()?,
        approve: approve.map(|approve| match approve {
            super::Approve::Once => Approve::Once,
            super::Approve::Session => Approve::Session,
        }),
    })
}

fn short_rule(auth: &EgressAuth, place: &[Step]) -> Result<RequestRule, Fault> {
    let secret = parse::<Name>(&auth.auth_ref, &below(place, "authRef"))?;
    let host = self::host(&auth.destination, &below(place, "destination"))?;
    Ok(RequestRule {
        scope: RequestScope::of(host),
        mode: RuleMode::Intercept,
        secret: Some(secret),
        budget: None,
        approve: None,
    })
}

fn host(text: &str, place: &[Step]) -> Result<HostPattern, Fault> {
    let host: HostPattern = parse(text, place)?;
    if matches!(host, HostPattern::Address(_) | HostPattern::Block(_)) {
        let reason = "a request rule requires a host name, not an address: certificates are verified by name";
        return Err(Fault::new(place, reason).hint("put addresses into `egress.allow`"));
    }
    Ok(host)
}

fn scope(
    host: &str,
    port: Option<u16>,
    methods: &[String],
    paths: &[String],
    place: &[Step],
) -> Result<RequestScope, Fault> {
    let host = self::host(host, &below(place, "host"))?;
    if port == Some(0) {
        return Err(Fault::new(&below(place, "port"), "a port must be between 1 and 65535"));
    }
    at_most(methods.len(), SCOPE_ITEMS_MAX, &below(place, "methods"), "methods")?;
    at_most(paths.len(), SCOPE_ITEMS_MAX, &below(place, "paths"), "paths")?;
    let of = RequestScope::of(host);
    Ok(RequestScope {
        port: port.unwrap_or(of.port),
        methods: distinct::<Method>(methods, place, "methods")?,
        paths: distinct::<PathPattern>(paths, place, "paths")?,
        ..of
    })
}

fn budget(written: &BudgetDocument, place: &[Step]) -> Result<Budget, Fault> {
    let BudgetDocument { requests_per_minute, requests_per_day, bytes_out_per_day } = *written;
    let counts = [("requestsPerMinute", requests_per_minute), ("requestsPerDay", requests_per_day)];
    if let Some((key, _)) = counts.into_iter().find(|(_, count)| *count == Some(0)) {
        let reason = "a budget of 0 allows nothing: remove the rule instead";
        return Err(Fault::new(&below(place, key), reason));
    }
    let budget = Budget {
        requests_per_minute,
        requests_per_day,
        bytes_out_per_day: bytes_out_per_day.map(|size| size.0),
    };
    if budget == Budget::default() {
        let reason = "the budget is empty: set `requestsPerMinute`, `requestsPerDay` or `bytesOutPerDay`";
        return Err(Fault::new(place, reason));
    }
    Ok(budget)
}

/// Rejects two rules that cover the same request and treat it differently, or count it twice.
fn apart(rules: &[RequestRule], places: &[Vec<Step>]) -> Result<(), Fault> {
    let Some((earlier, later)) = overlapping(rules) else { return Ok(()) };
    let same = rules[earlier].treats_as(&rules[later]);
    let how = if same { "would count them twice" } else { "treats them differently" };
    let reason = format!("it covers the same requests as `{}`, and {how}", rules[earlier]);
    let fault = Fault::new(&places[later], reason);
    let hint = "narrow `methods` or `paths` until each request is covered by one rule";
    Err(Fault { other: Some(places[earlier].clone()), ..fault }.hint(hint))
}

// === Ceilings ===

/// Rejects a rule whose secret is unknown, or that exceeds what the owner of the secret allows.
pub fn within(rules: &[RequestRule], places: &[Vec<Step>], ceilings: &Ceilings<'_>) -> Result<(), Fault> {
    for (rule, place) in rules.iter().zip(places) {
        let Some(secret) = &rule.secret else { continue };
        let at = |key: &str| below(place, key);
        let short = matches!(place.first(), Some(Step::Key(key)) if key == "egressAuth");
        let Some(ceiling) = ceilings(secret) else {
            let place = if short { at("authRef") } else { at("secret") };
            let reason = format!("secret `{secret}` does not exist");
            // Most providers take a token. A secret in another place needs another option than `--header`.
            let hint = format!(
                "create it with `burrow secret set {secret} --allow '{}' --header 'Authorization: Bearer {{}}'`",
                rule.scope
            );
            return Err(Fault::new(&place, reason).hint(hint));
        };
        if !rule.scope.fits(&ceiling) {
            let allowed: Vec<String> = ceiling.iter().map(|scope| format!("`{scope}`")).collect();
            let reason = format!(
                "`{}` exceeds what the owner of `{secret}` allows, which is {}",
                rule.scope,
                allowed.join(", ")
            );
            return Err(Fault::new(place, reason).hint("a policy can only narrow a secret's ceiling"));
        }
    }
    Ok(())
}

// === Secrets ===

fn secrets_of(written: &[SecretDocument]) -> Result<Vec<(SecretSpec, Option<SecretSource>)>, Fault> {
    at_most(written.len(), SECRETS_MAX, &below(&[], "secrets"), "secrets")?;
    let mut secrets: Vec<(SecretSpec, Option<SecretSource>)> = Vec::with_capacity(written.len());
    for (index, secret) in written.iter().enumerate() {
        let place = item(&[], "secrets", index);
        let spec = self::secret(secret, &place)?;
        if let Some(first) = secrets.iter().position(|(known, _)| known.name == spec.name) {
            let fault = Fault::new(&below(&place, "name"), format!("`{}` is declared twice", spec.name));
            return Err(Fault { other: Some(below(&item(&[], "secrets", first), "name")), ..fault });
        }
        if let Some(from) = &secret.from {
            let given = [&from.env, &from.file, &from.command];
            if given.iter().filter(|one| one.as_ref().is_some_and(|text| !text.is_empty())).count() != 1
                || given.iter().filter(|one| one.is_some()).count() != 1
            {
                let reason = "the source of the value must be one of `env`, `file`, `command`";
                return Err(Fault::new(&below(&place, "from"), reason));
            }
        }
        secrets.push((spec, secret.from.clone()));
    }
    Ok(secrets)
}

fn secret(written: &SecretDocument, place: &[Step]) -> Result<SecretSpec, Fault> {
    let SecretDocument { name, from: _, allow, slot, placeholder } = written;
    let name: Name = parse(name, &below(place, "name"))?;
    if allow.is_empty() {
        let reason = "a secret requires at least one host that it may be sent to";
        return Err(Fault::new(&below(place, "allow"), reason));
    }
    at_most(allow.len(), CEILING_MAX, &below(place, "allow"), "scopes")?;
    let scope_at = |(index, scope): (usize, &ScopeDocument)| {
        let ScopeDocument { host, port, methods, paths } = scope;
        self::scope(host, *port, methods, paths, &item(place, "allow", index))
    };
    let allow = allow.iter().enumerate().map(scope_at).collect::<Result<_, _>>()?;
    let placeholder = placeholder.as_ref().map(|placeholder| PlaceholderSpec {
        env: placeholder.env.clone(),
        prefix: placeholder.prefix.clone(),
    });
    let spec = SecretSpec { name, allow, slot: self::slot(slot, &below(place, "slot"))?, placeholder };
    spec.check().map_err(|error| Fault::new(&below(place, "placeholder"), error.to_string()))?;
    Ok(spec)
}

fn slot(written: &SlotDocument, place: &[Step]) -> Result<Slot, Fault> {
    let SlotDocument { header, grpc_metadata, query, basic, client_cert, format } = written;
    let given = [header.is_some(), grpc_metadata.is_some(), query.is_some(), basic.is_some()];
    let kinds = given.iter().filter(|given| **given).count() + usize::from(*client_cert == Some(true));
    if kinds != 1 || *client_cert == Some(false) {
        let reason = "the slot must be one of `header`, `grpcMetadata`, `query`, `basic`, `clientCert`";
        return Err(Fault::new(place, reason));
    }
    let formatted = || match format {
        Some(text) => parse::<Format>(text, &below(place, "format")),
        None => Ok(Format::plain()),
    };
    if let Some(name) = header {
        let name = parse::<HeaderName>(name, &below(place, "header"))?;
        return Ok(Slot::Header { name, format: formatted()? });
    }
    if let Some(name) = grpc_metadata {
        let name = parse::<HeaderName>(name, &below(place, "grpcMetadata"))?;
        return Ok(Slot::GrpcMetadata { name, format: formatted()? });
    }
    if format.is_some() {
        let reason = "only `header` and `grpcMetadata` have a format";
        return Err(Fault::new(&below(place, "format"), reason));
    }
    if let Some(name) = query {
        return Ok(Slot::Query { name: parse::<QueryName>(name, &below(place, "query"))? });
    }
    match basic {
        Some(user) => Ok(Slot::Basic { user: parse::<BasicUser>(user, &below(place, "basic"))? }),
        None => Ok(Slot::ClientCert),
    }
}

// === Answers ===

impl From<&RequestRule> for RuleDocument {
    /// The rule in the format of a document.
    fn from(rule: &RequestRule) -> Self {
        let RequestScope { host, port, methods, paths } = &rule.scope;
        Self {
            host: host.to_string(),
            port: Some(*port).filter(|port| *port != RequestScope::of(host.clone()).port),
            methods: methods.iter().map(ToString::to_string).collect(),
            paths: paths.iter().map(ToString::to_string).collect(),
            mode: match rule.mode {
                RuleMode::Sni => Some(super::RuleMode::Sni),
                RuleMode::Intercept => None,
            },
            secret: rule.secret.as_ref().map(Name::to_string),
            budget: rule.budget.map(|budget| BudgetDocument {
                requests_per_minute: budget.requests_per_minute,
                requests_per_day: budget.requests_per_day,
                bytes_out_per_day: budget.bytes_out_per_day.map(super::Size),
            }),
            approve: rule.approve.map(|approve| match approve {
                Approve::Once => super::Approve::Once,
                Approve::Session => super::Approve::Session,
            }),
        }
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
