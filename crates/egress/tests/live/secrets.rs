//! Setup of a sandbox whose requests carry secrets.

use std::sync::Arc;

use burrow_audit::spool::{Reader, Segment, SegmentPart};
use burrow_audit::{Action, Event};
use burrow_egress::{Directives, Egress, Grant};
use burrow_model::network::{Budget, RequestRule, RequestScope, RuleMode};
use burrow_model::{SecretBytes, Slot, TenantId};
use http::Version;

use crate::certificates::{KeyAndCertificate, Validity, authority};
use crate::encrypted::{Host, HttpClient, connect_http, host};
use crate::world::{Daemon, Sandbox, World, eventually, policy};

pub(crate) const SECRET: &str = "sk-live/0123+secret";
pub(crate) const ROTATED: &str = "sk-live/9876+rotated";
pub(crate) const PLACEHOLDER: &str = "sk-fake-0123456789abcdef";

/// A sandbox whose requests to `ok.example` are intercepted and carry a secret.
pub(crate) struct Setup {
    pub(crate) world: World,
    pub(crate) daemon: Daemon,
    pub(crate) sandbox: Sandbox,
    pub(crate) lineage: Arc<KeyAndCertificate>,
    pub(crate) internet: Arc<KeyAndCertificate>,
    pub(crate) directives: Directives,
    spool: std::path::PathBuf,
}

pub(crate) fn scope(methods: &[&str], paths: &[&str]) -> RequestScope {
    RequestScope {
        methods: methods.iter().map(|method| method.parse().unwrap()).collect(),
        paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
        ..RequestScope::of("ok.example".parse().unwrap())
    }
}

pub(crate) fn rule(scope: RequestScope, secret: Option<&str>) -> RequestRule {
    RequestRule {
        scope,
        mode: RuleMode::Intercept,
        secret: secret.map(|name| name.parse().unwrap()),
        budget: None,
        approve: None,
    }
}

pub(crate) fn bearer() -> Slot {
    Slot::Header { name: "authorization".parse().unwrap(), format: "Bearer {}".parse().unwrap() }
}

pub(crate) fn grant(slot: Slot, value: &str) -> Grant {
    Grant {
        name: "key".parse().unwrap(),
        version: 1,
        slot,
        value: SecretBytes::new(value.into()),
        allow: vec![scope(&["POST", "GET"], &["/v1/**"])],
        placeholder: Some(SecretBytes::new(PLACEHOLDER.into())),
        former: Vec::new(),
    }
}

impl Setup {
    /// The complete setup, including a segment of the audit spool.
    pub(crate) async fn new(mut world: World, slot: Slot, value: &str) -> Self {
        let (lineage, internet) = (Arc::new(authority("lineage")), Arc::new(authority("internet")));
        world.extra_roots = vec![internet.certificate.clone()];
        let directives = Directives {
            tenant: TenantId::generate(),
            generation: 1,
            authority: Some(lineage.as_authority()),
            rules: vec![
                rule(scope(&["POST", "GET"], &["/v1/**"]), Some("key")),
                rule(scope(&["POST"], &["/free/**"]), None),
            ],
            grants: vec![grant(slot, value)],
            transforms: Vec::new(),
        };
        let (daemon, sandbox) = (world.daemon().await, world.sandbox().await);
        daemon
            .supervisor
            .attach(&sandbox.id, &policy(&[]).with_directives(directives.clone()))
            .await
            .unwrap();
        let folder = world.egress_dir().with_file_name("spool");
        std::fs::create_dir_all(&folder).unwrap();
        let segment = Segment::create(&folder, 1).unwrap();
        let spool = segment.path.clone();
        daemon.supervisor.set_spool(segment.file).await.unwrap();
        Self { world, daemon, sandbox, lineage, internet, directives, spool }
    }

    pub(crate) async fn usual(world: World) -> (Self, Host) {
        let setup = Self::new(world, bearer(), SECRET).await;
        let upstream = setup.host(&["h2", "http/1.1"]).await;
        (setup, upstream)
    }

    pub(crate) async fn host(&self, protocols: &[&str]) -> Host {
        host(&self.internet.host("ok.example", Validity::Long), 443, protocols, None).await
    }

    pub(crate) async fn set(&mut self, change: impl FnOnce(&mut Directives)) {
        self.directives.generation += 1;
        change(&mut self.directives);
        let policy = policy(&[]).with_directives(self.directives.clone());
        self.daemon.supervisor.set_policy(&self.sandbox.id, &policy).await.unwrap();
    }

    pub(crate) async fn connect_http(&self, version: Version) -> HttpClient {
        connect_http(&self.sandbox, &self.lineage, version).await
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        Reader::open(&self.spool, None).unwrap().read(SegmentPart::Acknowledged, 10_000).unwrap()
    }

    /// Waits until a matching event is recorded.
    pub(crate) async fn event(&self, action: Action, of: impl Fn(&Event) -> bool) -> Event {
        let wanted = |event: &&Event| event.action == action && of(event);
        let what = format!("an event {action}");
        eventually(&what, async || self.events().iter().any(|event| wanted(&event))).await;
        self.events().iter().find(wanted).cloned().unwrap()
    }

    /// Asserts that the audit log contains no secret.
    pub(crate) fn assert_nothing_leaked(&self) {
        let bytes = std::fs::read(&self.spool).unwrap();
        for secret in [SECRET, ROTATED, PLACEHOLDER] {
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret}");
        }
    }
}

pub(crate) fn budget(requests_per_minute: u64) -> Budget {
    Budget { requests_per_minute: Some(requests_per_minute), ..Budget::default() }
}
