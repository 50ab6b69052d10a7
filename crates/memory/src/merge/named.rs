//! Merges named objects: keys, skills and their outcomes, artifacts.

use super::incoming::{IncomingChanges, IncomingName};
use super::merged::{ContradictionKind, MergeCounts, MergeReport, Side};
use super::open::{ContradictedKind, Decisions};
use super::options::{KvPolicy, MergeOptions};
use crate::artifacts::carry::{self as artifact_carry, CarriedArtifact};
use crate::kv::{self, Expect, KvItem, KvOp};
use crate::skills::carry::{self as skill_carry, CarriedSkill};
use crate::space::writer::Writer;
use crate::{MemoryError, shown::shown};

pub(super) fn bring(
    writer: &mut Writer<'_>,
    incoming: &IncomingChanges,
    options: MergeOptions,
    merged: &mut MergeReport,
    decisions: &mut Decisions,
) -> Result<(), MemoryError> {
    for key in &incoming.kv {
        bring_key(writer, key, options, merged, decisions)?;
    }
    for skill in &incoming.skills {
        bring_skill(writer, skill, options, merged, decisions)?;
    }
    for outcome in &incoming.outcomes {
        merged.outcomes += u64::from(skill_carry::adopt_outcome(writer, outcome)?);
    }
    for artifact in &incoming.artifacts {
        bring_artifact(writer, artifact, options, merged, decisions)?;
    }
    Ok(())
}

/// The decision about one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Nothing,
    /// Both sides have the same state.
    Agreed,
    Take,
    /// Both sides changed it, and the policy chose this side.
    Contested(Side),
}

/// Compares three states; for a contradiction that an earlier merge listed, two.
fn judge<T>(
    incoming: &IncomingName<T>,
    here: Option<&T>,
    same: impl Fn(&T, &T) -> bool,
    policy: Option<KvPolicy>,
) -> Verdict {
    let (now, base) = (incoming.now.as_ref(), incoming.base.as_ref());
    let equal = |a: Option<&T>, b: Option<&T>| match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => same(a, b),
        (Some(_), None) | (None, Some(_)) => false,
    };
    if equal(now, here) {
        Verdict::Agreed
    } else if !incoming.reopened && equal(now, base) {
        Verdict::Nothing
    } else if !incoming.reopened && equal(base, here) {
        Verdict::Take
    } else {
        Verdict::Contested(if policy == Some(KvPolicy::Theirs) { Side::Theirs } else { Side::Ours })
    }
}

/// Records whether it stays open.
fn note(
    decisions: &mut Decisions,
    thing: ContradictedKind,
    name: &str,
    verdict: Verdict,
    options: MergeOptions,
) {
    match verdict {
        Verdict::Nothing | Verdict::Take => {}
        Verdict::Agreed => decisions.note(thing, name, true),
        Verdict::Contested(_) => decisions.note(thing, name, options.kv.is_some()),
    }
}

fn count(brought: &mut MergeCounts, removes: bool) {
    if removes {
        brought.removed += 1;
    } else {
        brought.set += 1;
    }
}

/// Fails if the policy is to merge nothing; a dry run still reports.
fn check_policy(options: MergeOptions, what: &'static str, name: &str) -> Result<(), MemoryError> {
    match (options.kv, options.dry_run) {
        (Some(KvPolicy::Fail), false) => Err(MemoryError::Contested { what, name: shown(name) }),
        (Some(KvPolicy::Fail), true) | (None | Some(KvPolicy::Ours | KvPolicy::Theirs), _) => Ok(()),
    }
}

fn bring_key(
    writer: &mut Writer<'_>,
    key: &IncomingName<KvItem>,
    options: MergeOptions,
    merged: &mut MergeReport,
    decisions: &mut Decisions,
) -> Result<(), MemoryError> {
    let name = key.name.clone();
    let look = KvOp::Check { key: name.clone(), expect: Expect::Any };
    let here = kv::apply(writer, &[look])?.pop().flatten();
    let same = |a: &KvItem, b: &KvItem| a.value == b.value && a.expires_ms == b.expires_ms;
    let verdict = judge(key, here.as_ref(), same, options.kv);
    note(decisions, ContradictedKind::Key, &name, verdict, options);
    if let Verdict::Contested(kept) = verdict {
        check_policy(options, "key", &name)?;
        merged.kv.contested += 1;
        let text = |item: Option<&KvItem>| item.map_or(String::new(), |item| item.value.to_string());
        let (ours, theirs) = (text(here.as_ref()), text(key.now.as_ref()));
        merged.contradict(ContradictionKind::Key, &name, &ours, &theirs, kept);
    }
    if !matches!(verdict, Verdict::Take | Verdict::Contested(Side::Theirs)) {
        return Ok(());
    }
    let op = match &key.now {
        Some(item) => {
            // The rest of its time to live; a key without any is already absent.
            let ttl_ms = item.expires_ms.map(|expires_ms| expires_ms.saturating_sub(writer.now_ms()).max(1));
            KvOp::Set { key: name, value: item.value.clone(), ttl_ms, expect: Expect::Any }
        }
        None => KvOp::Delete { key: name, expect: Expect::Any },
    };
    kv::apply(writer, &[op])?;
    count(&mut merged.kv, key.now.is_none());
    Ok(())
}

fn bring_skill(
    writer: &mut Writer<'_>,
    skill: &IncomingName<CarriedSkill>,
    options: MergeOptions,
    merged: &mut MergeReport,
    decisions: &mut Decisions,
) -> Result<(), MemoryError> {
    let here = skill_carry::skill_on(writer.connection(), writer.chain(), &skill.name)?;
    let verdict = judge(skill, here.as_ref(), CarriedSkill::says_same, options.kv);
    note(decisions, ContradictedKind::Skill, &skill.name, verdict, options);
    if let Verdict::Contested(kept) = verdict {
        check_policy(options, "skill", &skill.name)?;
        merged.skills.contested += 1;
        let text = |skill: Option<&CarriedSkill>| skill.map_or("", CarriedSkill::description).to_owned();
        let (ours, theirs) = (text(here.as_ref()), text(skill.now.as_ref()));
        merged.contradict(ContradictionKind::Skill, &skill.name, &ours, &theirs, kept);
    }
    if !matches!(verdict, Verdict::Take | Verdict::Contested(Side::Theirs)) {
        return Ok(());
    }
    match &skill.now {
        Some(now) => skill_carry::adopt(writer, now)?,
        None => skill_carry::forget(writer, &skill.name)?,
    }
    count(&mut merged.skills, skill.now.is_none());
    Ok(())
}

fn bring_artifact(
    writer: &mut Writer<'_>,
    artifact: &IncomingName<CarriedArtifact>,
    options: MergeOptions,
    merged: &mut MergeReport,
    decisions: &mut Decisions,
) -> Result<(), MemoryError> {
    if artifact.now.as_ref().is_some_and(CarriedArtifact::is_gone) {
        return Ok(());
    }
    let here = artifact_carry::artifact_on(writer.connection(), writer.chain(), &artifact.name)?;
    let now = artifact.now.as_ref();
    let verdict = judge(artifact, here.as_ref(), CarriedArtifact::says_same, options.kv);
    note(decisions, ContradictedKind::Artifact, &artifact.name, verdict, options);
    if let Verdict::Contested(kept) = verdict {
        check_policy(options, "artifact", &artifact.name)?;
        merged.artifacts.contested += 1;
        let text =
            |artifact: Option<&CarriedArtifact>| artifact.map_or(String::new(), CarriedArtifact::shown);
        merged.contradict(
            ContradictionKind::Artifact,
            &artifact.name,
            &text(here.as_ref()),
            &text(now),
            kept,
        );
    }
    if !matches!(verdict, Verdict::Take | Verdict::Contested(Side::Theirs)) {
        return Ok(());
    }
    match now {
        Some(now) => artifact_carry::adopt(writer, now)?,
        None => artifact_carry::forget(writer, &artifact.name)?,
    }
    count(&mut merged.artifacts, now.is_none());
    Ok(())
}
