//! State that all sandboxes share.

use std::sync::Arc;

use super::dial::Dialler;
use super::pipes::Pipes;
use crate::audit::Audit;
use crate::intercept::Roots;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dialler: Dialler,
    pub(crate) pipes: Pipes,
    pub(crate) roots: Roots,
    pub(crate) audit: Arc<Audit>,
}

impl Shared {
    /// Must be called within a runtime.
    pub(crate) fn new(roots: Roots) -> Arc<Self> {
        let audit = Arc::new(Audit::new());
        Arc::new(Self { dialler: Dialler::new(), pipes: Pipes::new(), roots, audit })
    }
}
