//! Secrets of tenants: stored encrypted, decrypted only to be passed to the egress process.
//!
//! ```text
//!   set, rotate ─► checked ─► encrypted for the next version ─► catalog ─► subscribers notified
//!   a sandbox's rules ─► grants (decrypted here, dropped when passed on), authority of its lineage, placeholders
//! ```
//!
//! A replaced value is kept for a while, to scrub responses of it: see `former_secrets`.
//!
//! A *lineage* is a sandbox with all sandboxes that were forked or restored from it; it is named by their memory space. It has one
//! authority, which its processes trust wherever they are restored, and one placeholder per secret. In each sandbox the placeholder
//! stands for what that sandbox's own rules grant. In other lineages authority and placeholders are unknown.

use std::collections::{BTreeMap, BTreeSet};

use burrow_catalog::{
    AuthorityRow, Catalog, CatalogError, PlaceholderRow, SandboxRow, SealedValue, SecretRow,
    SecretStoreResult,
};
use burrow_egress::{Authority, Directives, Grant};
use burrow_model::network::RequestRule;
use burrow_model::{Name, SandboxId, SecretBytes, SecretSpec, Slot, SpaceId, TenantId};
use burrow_vault::{Kind, Label, Vault};
use tokio::sync::broadcast;

use super::former_secrets::{self, FormerBudget};
use super::interception::intercepts;
use super::secret_changes::SecretChanged;
use super::transforms;
use crate::shared::Shared;
use crate::{Engine, EngineError, ObjectKind};

/// Attempts of a change that conflicts with others: each encrypts the value again, for the next version.
const ATTEMPTS_MAX: usize = 5;

/// The bundle of certificates that the agent creates; the same path is in `burrow-guest`.
const BUNDLE: &str = burrow_guest::protocol::TRUST_BUNDLE;

/// Variables that tell programs where certificates are. They are read by curl, OpenSSL, requests, git, pip, cargo, the AWS tools, npm,
/// Deno, Bun and Node; all but Node's name a whole bundle.
const BUNDLE_VARIABLES: [&str; 9] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];

/// A secret with the sandboxes whose rules name it. Never contains its value.
#[derive(Clone, Debug)]
pub struct SecretStatus {
    pub row: SecretRow,
    pub used_by: Vec<SecretUser>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretUser {
    pub id: SandboxId,
    pub name: Option<Name>,
}

impl Engine {
    /// Declares a secret with its value, or changes its declaration. An identical declaration and value change nothing.
    pub async fn set_secret(
        &self,
        tenant: &TenantId,
        spec: SecretSpec,
        value: SecretBytes,
    ) -> Result<SecretStatus, EngineError> {
        spec.check()?;
        check_value(&spec.slot, &value)?;
        let before = self.catalog().secret(tenant, &spec.name).await?;
        if let Some(row) = before
            && row.spec == spec
            // A value that cannot be decrypted any more is replaced: setting it again is the way to recover.
            && open(&self.shared, &row).await.is_ok_and(|known| known == value)
        {
            return self.status(row).await;
        }
        let (catalog, now_ms) = (self.catalog(), self.now_ms());
        let row = self
            .store_next(tenant, &spec.name, &value, |sealed| {
                catalog.put_secret(tenant, spec.clone(), sealed, now_ms)
            })
            .await?;
        self.changed(tenant, &row, "secret.set");
        self.status(row).await
    }

    /// Gives a secret a new value. Running sandboxes use it within a second. An identical value changes nothing.
    pub async fn rotate_secret(
        &self,
        tenant: &TenantId,
        name: &Name,
        value: SecretBytes,
    ) -> Result<SecretStatus, EngineError> {
        let row = self.secret_row(tenant, name).await?;
        check_value(&row.spec.slot, &value)?;
        if open(&self.shared, &row).await.is_ok_and(|known| known == value) {
            return self.status(row).await;
        }
        let (catalog, now_ms) = (self.catalog(), self.now_ms());
        let stored = self
            .store_next(tenant, name, &value, |sealed| catalog.rotate_secret(tenant, name, sealed, now_ms))
            .await;
        let row = match stored {
            Err(EngineError::Catalog(CatalogError::Unknown { .. })) => return Err(not_found(name)),
            stored => stored?,
        };
        self.changed(tenant, &row, "secret.rotated");
        self.status(row).await
    }

    /// All secrets of a tenant, by name.
    pub async fn secrets(&self, tenant: &TenantId) -> Result<Vec<SecretStatus>, EngineError> {
        let rows = self.catalog().secrets(tenant).await?;
        let mut users: BTreeMap<Name, Vec<SecretUser>> = BTreeMap::new();
        for (secret, id, name) in self.catalog().users_of_secrets(tenant).await? {
            users.entry(secret).or_default().push(SecretUser { id, name });
        }
        let status =
            |row: SecretRow| SecretStatus { used_by: users.remove(&row.spec.name).unwrap_or_default(), row };
        Ok(rows.into_iter().map(status).collect())
    }

    pub async fn secret(&self, tenant: &TenantId, name: &Name) -> Result<SecretStatus, EngineError> {
        let row = self.secret_row(tenant, name).await?;
        self.status(row).await
    }

    /// `force`: even if rules of sandboxes name it. Requests that those rules cover are denied from then on.
    pub async fn delete_secret(
        &self,
        tenant: &TenantId,
        name: &Name,
        force: bool,
    ) -> Result<(), EngineError> {
        let status = self.secret(tenant, name).await?;
        if !force && !status.used_by.is_empty() {
            let by = status.used_by.iter().map(SecretUser::to_string).collect();
            return Err(EngineError::SecretInUse { name: name.clone(), by });
        }
        self.catalog().delete_secret(tenant, name).await?;
        self.changed(tenant, &status.row, "secret.deleted");
        Ok(())
    }

    /// Subscribes to every change of a secret from now on.
    pub fn secret_changes(&self) -> broadcast::Receiver<SecretChanged> {
        self.shared.secrets.subscribe()
    }

    /// Everything that the egress process needs for a sandbox's requests. Contains secrets: pass it on, and keep no copy.
    pub async fn directives(
        &self,
        row: &SandboxRow,
        generation: u64,
    ) -> Result<Option<Directives>, EngineError> {
        directives_for(&self.shared, row, generation).await
    }

    async fn secret_row(&self, tenant: &TenantId, name: &Name) -> Result<SecretRow, EngineError> {
        self.catalog().secret(tenant, name).await?.ok_or_else(|| not_found(name))
    }

    async fn status(&self, row: SecretRow) -> Result<SecretStatus, EngineError> {
        let users = self.catalog().users_of_secrets(&row.tenant).await?.into_iter();
        let own = users.filter(|(secret, _, _)| *secret == row.spec.name);
        let used_by = own.map(|(_, id, name)| SecretUser { id, name }).collect();
        Ok(SecretStatus { row, used_by })
    }

    /// Encrypts a value for its next version, and stores it; repeated if another change was stored in between.
    async fn store_next<F>(
        &self,
        tenant: &TenantId,
        name: &Name,
        value: &SecretBytes,
        store: impl Fn(SealedValue) -> F,
    ) -> Result<SecretRow, EngineError>
    where
        F: Future<Output = Result<SecretStoreResult, CatalogError>>,
    {
        let mut known = self.catalog().secret(tenant, name).await?.map_or(0, |row| row.version);
        for _ in 0..ATTEMPTS_MAX {
            let sealed = seal(&self.shared.seams.vault, tenant, name, known + 1, value).await?;
            match store(sealed).await? {
                SecretStoreResult::Stored(row) => return Ok(*row),
                SecretStoreResult::Overtaken { version } => known = version,
            }
        }
        Err(EngineError::SecretBusy { name: name.clone() })
    }

    fn changed(&self, tenant: &TenantId, row: &SecretRow, kind: &str) {
        let detail = serde_json::json!({ "secret": row.spec.name, "version": row.version });
        self.shared.event(tenant, kind, None, detail);
        self.shared.secrets.tell(tenant, &row.spec.name);
    }
}

impl std::fmt::Display for SecretUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name.as_str()),
            None => f.write_str(self.id.as_str()),
        }
    }
}

fn not_found(name: &Name) -> EngineError {
    EngineError::NotFound { kind: ObjectKind::Secret, what: name.to_string() }
}

fn check_value(slot: &Slot, value: &SecretBytes) -> Result<(), EngineError> {
    slot.check(value)?;
    match slot {
        Slot::ClientCert => Ok(burrow_vault::check_client_certificate(value)?),
        Slot::Header { .. } | Slot::GrpcMetadata { .. } | Slot::Query { .. } | Slot::Basic { .. } => Ok(()),
    }
}

pub(crate) async fn seal(
    vault: &Vault,
    tenant: &TenantId,
    name: &Name,
    version: u64,
    value: &SecretBytes,
) -> Result<SealedValue, EngineError> {
    let label = Label { tenant, kind: Kind::Secret, name: name.as_str(), version };
    let sealed = vault.seal(&label, value).await?;
    Ok(SealedValue { version, sealed: sealed.to_text(), sealed_by: sealed.key.clone() })
}

async fn open(shared: &Shared, row: &SecretRow) -> Result<SecretBytes, EngineError> {
    let name = row.spec.name.as_str();
    let label = Label { tenant: &row.tenant, kind: Kind::Secret, name, version: row.version };
    Ok(shared.seams.vault.open(&label, &label.parse(&row.sealed)?).await?)
}

// === Grants of a sandbox ===

/// The lineage of a sandbox.
pub(crate) fn lineage_of(row: &SandboxRow) -> SpaceId {
    row.memory().space
}

/// The secrets that rules name.
pub(crate) fn named_by(rules: &[RequestRule]) -> BTreeSet<Name> {
    rules.iter().filter_map(|rule| rule.secret.clone()).collect()
}

/// Everything that the egress process needs for a sandbox's requests; `None` without request rules and headers.
pub(crate) async fn directives_for(
    shared: &Shared,
    row: &SandboxRow,
    generation: u64,
) -> Result<Option<Directives>, EngineError> {
    let rules = &row.spec.network.requests;
    if rules.is_empty() && row.spec.network.transforms.is_none() {
        return Ok(None);
    }
    let lineage = lineage_of(row);
    let authority =
        if intercepts(row) { Some(authority(shared, &row.tenant, &lineage).await?) } else { None };
    let grants = grants(shared, &row.tenant, &named_by(rules), &lineage).await?;
    let transforms = transforms::open(shared, row).await?;
    let (tenant, rules) = (row.tenant.clone(), rules.clone());
    Ok(Some(Directives { tenant, generation, authority, rules, grants, transforms }))
}

/// Decrypted secrets for a sandbox of a lineage. A secret that is missing, or that cannot be decrypted, is omitted: requests that its
/// rule covers are denied, and other secrets continue to work.
pub(crate) async fn grants(
    shared: &Shared,
    tenant: &TenantId,
    names: &BTreeSet<Name>,
    lineage: &SpaceId,
) -> Result<Vec<Grant>, EngineError> {
    let (mut grants, mut budget) = (Vec::new(), FormerBudget::of_a_sandbox());
    for name in names {
        let Some(row) = shared.seams.catalog.secret(tenant, name).await? else { continue };
        let value = match open(shared, &row).await {
            Ok(value) => value,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(secret = %name, error, "a secret cannot be decrypted; requests that need it are denied");
                continue;
            }
        };
        let placeholder = placeholder(shared, &row, lineage).await?;
        let former = former_secrets::open(shared, &row, &value, &mut budget).await?;
        grants.push(Grant {
            name: name.clone(),
            version: row.version,
            slot: row.spec.slot,
            value,
            allow: row.spec.allow,
            placeholder: placeholder.map(|text| SecretBytes::new(text.into_bytes())),
            former,
        });
    }
    Ok(grants)
}

/// The authority of a lineage with its key, created at first use.
pub(crate) async fn authority(
    shared: &Shared,
    tenant: &TenantId,
    lineage: &SpaceId,
) -> Result<Authority, EngineError> {
    let row = authority_row(shared, tenant, lineage).await?;
    let label = authority_label(tenant, lineage);
    let key = shared.seams.vault.open(&label, &label.parse(&row.sealed)?).await?;
    Ok(Authority { certificate: row.certificate, key })
}

/// The certificate that a sandbox of a lineage trusts, in PEM.
pub(crate) async fn certificate(
    shared: &Shared,
    tenant: &TenantId,
    lineage: &SpaceId,
) -> Result<String, EngineError> {
    let row = authority_row(shared, tenant, lineage).await?;
    Ok(burrow_vault::certificate_pem(&row.certificate))
}

async fn authority_row(
    shared: &Shared,
    tenant: &TenantId,
    lineage: &SpaceId,
) -> Result<AuthorityRow, EngineError> {
    let catalog = &shared.seams.catalog;
    if let Some(row) = catalog.authority(tenant, lineage).await? {
        return Ok(row);
    }
    let minted = burrow_vault::mint_authority(lineage.as_str())?;
    let sealed = shared.seams.vault.seal(&authority_label(tenant, lineage), &minted.key).await?;
    let row = AuthorityRow {
        lineage: lineage.clone(),
        tenant: tenant.clone(),
        certificate: minted.certificate,
        sealed: sealed.to_text(),
        sealed_by: sealed.key,
        created_ms: shared.now_ms(),
    };
    // If two are created at once, the first is used for both.
    Ok(catalog.keep_authority(row).await?)
}

fn authority_label<'a>(tenant: &'a TenantId, lineage: &'a SpaceId) -> Label<'a> {
    Label { tenant, kind: Kind::Authority, name: lineage.as_str(), version: 1 }
}

async fn placeholder(
    shared: &Shared,
    row: &SecretRow,
    lineage: &SpaceId,
) -> Result<Option<String>, EngineError> {
    let Some(spec) = &row.spec.placeholder else { return Ok(None) };
    let (catalog, name) = (&shared.seams.catalog, &row.spec.name);
    if let Some(known) = catalog.placeholder(&row.tenant, name, lineage, row.epoch).await? {
        return Ok(Some(known));
    }
    let new = PlaceholderRow {
        tenant: row.tenant.clone(),
        secret: name.clone(),
        lineage: lineage.clone(),
        epoch: row.epoch,
        value: burrow_vault::placeholder(spec)?,
        created_ms: shared.now_ms(),
    };
    Ok(catalog.keep_placeholder(new).await?)
}

/// Variables with the placeholders of the secrets that a sandbox's rules name.
pub(crate) async fn placeholders_env(
    shared: &Shared,
    row: &SandboxRow,
) -> Result<BTreeMap<String, String>, EngineError> {
    let mut env = BTreeMap::new();
    let lineage = lineage_of(row);
    for name in named_by(&row.spec.network.requests) {
        let Some(secret) = shared.seams.catalog.secret(&row.tenant, &name).await? else { continue };
        if let Some(spec) = &secret.spec.placeholder
            && let Some(text) = placeholder(shared, &secret, &lineage).await?
        {
            env.insert(spec.env.clone(), text);
        }
    }
    Ok(env)
}

/// The default environment of every process of a sandbox: where certificates are, and placeholders. Variables that an image or a user
/// sets take precedence.
pub(crate) async fn environment(
    shared: &Shared,
    row: &SandboxRow,
) -> Result<BTreeMap<String, String>, EngineError> {
    if row.spec.network.requests.is_empty() && row.spec.network.transforms.is_none() {
        return Ok(BTreeMap::new());
    }
    let mut env = placeholders_env(shared, row).await?;
    if intercepts(row) {
        env.extend(BUNDLE_VARIABLES.map(|name| (name.to_owned(), BUNDLE.to_owned())));
        env.insert("npm_config_cafile".to_owned(), BUNDLE.to_owned());
        env.insert("JAVA_TOOL_OPTIONS".to_owned(), java_options());
    }
    Ok(env)
}

/// Java reads neither the system's bundle nor any of the variables above.
fn java_options() -> String {
    let store = burrow_guest::protocol::TRUST_STORE;
    format!("-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStoreType=JKS")
}

/// The certificate that its agent installs for its programs; `None` if nothing is decrypted.
pub(crate) async fn trust_of(shared: &Shared, row: &SandboxRow) -> Result<Option<String>, EngineError> {
    if !intercepts(row) {
        return Ok(None);
    }
    certificate(shared, &row.tenant, &lineage_of(row)).await.map(Some)
}

// === Upkeep ===

/// Encrypts again, with the present key, what another key encrypted. What cannot be decrypted stays unchanged, in case its key is found.
pub(crate) async fn reseal(shared: &Shared) -> Result<(), EngineError> {
    let (vault, catalog) = (&shared.seams.vault, &shared.seams.catalog);
    let (secrets, authorities) = catalog.sealed_otherwise(&vault.key_id()).await?;
    let (of_transforms, lost_transforms) = transforms::reseal(vault, catalog).await?;
    let (former, lost_former) = former_secrets::reseal(vault, catalog).await?;
    let found = secrets.len() + authorities.len() + of_transforms + former;
    let mut lost = lost_transforms + lost_former;
    for row in secrets {
        let Ok(value) = open(shared, &row).await else {
            lost += 1;
            continue;
        };
        let resealed = seal(vault, &row.tenant, &row.spec.name, row.version, &value).await?;
        catalog.reseal_secret(&row.tenant, &row.spec.name, resealed).await?;
    }
    for row in authorities {
        lost += usize::from(!reseal_authority(vault, catalog, &row).await?);
    }
    if found > 0 {
        tracing::info!(
            found,
            key = vault.key_id(),
            "encrypted secrets or authorities again with the present key"
        );
    }
    if lost > 0 {
        tracing::error!(lost, "secrets or authorities cannot be decrypted: their key is missing");
    }
    Ok(())
}

/// False if its key is missing.
async fn reseal_authority(vault: &Vault, catalog: &Catalog, row: &AuthorityRow) -> Result<bool, EngineError> {
    let label = authority_label(&row.tenant, &row.lineage);
    let Ok(sealed) = label.parse(&row.sealed) else { return Ok(false) };
    let Ok(key) = vault.open(&label, &sealed).await else { return Ok(false) };
    let resealed = vault.seal(&label, &key).await?;
    catalog.reseal_authority(&row.lineage, resealed.to_text(), resealed.key).await?;
    Ok(true)
}
