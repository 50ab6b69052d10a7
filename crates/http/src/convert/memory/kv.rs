//! Converts working memory and artifacts.

use burrow_api::ErrorCode;
use burrow_api::memory as api;
use burrow_memory::artifacts::Artifact;
use burrow_memory::kv::{Amount, Expect, KvChange, KvEvent, KvItem, KvOp, KvVersion};

use super::millis;
use crate::error::ApiError;

pub fn kv_item(item: KvItem) -> api::KvItem {
    api::KvItem {
        key: item.key,
        value: item.value,
        version: item.version,
        created_ms: item.created_ms,
        updated_ms: item.updated_ms,
        expires_ms: item.expires_ms,
    }
}

pub fn kv_version(version: KvVersion) -> api::KvVersion {
    api::KvVersion { version: version.version, at_ms: version.at_ms, item: version.item.map(kv_item) }
}

pub fn kv_event(event: KvEvent) -> api::KvEvent {
    let KvEvent { seq, key, change } = event;
    match change {
        KvChange::Set(item) => api::KvEvent::Set { seq, item: kv_item(item) },
        KvChange::Deleted => api::KvEvent::Deleted { seq, key },
        KvChange::Expired { at_ms } => api::KvEvent::Expired { seq, key, at_ms },
    }
}

pub fn kv_operation(operation: api::KvOperation) -> Result<KvOp, ApiError> {
    let ttl = |seconds: Option<u64>| seconds.map(|seconds| millis("ttl_seconds", seconds)).transpose();
    Ok(match operation {
        api::KvOperation::Set { key, value, ttl_seconds, if_version, if_absent } => {
            KvOp::Set { key, value, ttl_ms: ttl(ttl_seconds)?, expect: expect(if_version, if_absent)? }
        }
        api::KvOperation::Delete { key, if_version } => {
            KvOp::Delete { key, expect: expect(if_version, false)? }
        }
        api::KvOperation::Increment { key, by, ttl_seconds } => {
            let unfit =
                || ApiError::new(ErrorCode::Unprocessable, "`by` is not a number in the supported range");
            KvOp::Increment { key, by: Amount::of(&by).ok_or_else(unfit)?, ttl_ms: ttl(ttl_seconds)? }
        }
        api::KvOperation::Check { key, if_version, if_absent } => {
            let expect = expect(if_version, if_absent)?;
            if expect == Expect::Any {
                return Err(ApiError::invalid("`check` requires `if_version` or `if_absent`"));
            }
            KvOp::Check { key, expect }
        }
    })
}

fn expect(if_version: Option<u64>, if_absent: bool) -> Result<Expect, ApiError> {
    match (if_version, if_absent) {
        (None, false) => Ok(Expect::Any),
        (None, true) => Ok(Expect::Absent),
        (Some(version), false) => Ok(Expect::Version(version)),
        (Some(_), true) => Err(ApiError::invalid("give `if_version` or `if_absent`, not both")),
    }
}

pub fn artifact(artifact: Artifact) -> api::Artifact {
    api::Artifact {
        name: artifact.name,
        version: artifact.version,
        hash: artifact.hash,
        bytes: artifact.bytes,
        media_type: artifact.media_type,
        metadata: artifact.metadata,
        seq: artifact.seq,
        at_ms: artifact.at_ms,
    }
}
