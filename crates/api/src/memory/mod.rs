//! Memory on the wire: what agents remember, under `/v1/spaces` and `/v1/memory/{of}`.
//!
//! `{of}` is a sandbox or a space, by id or name: a sandbox first; `space:NAME` and `sandbox:NAME` select one kind. On
//! the listener inside a sandbox it is `self`. Every read takes the query parameter `as_of`: a position in the log, a
//! time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot. Writes take `space`, the name of an attached
//! space to write to.

mod artifact;
mod entry;
mod kv;
mod line;
mod sandbox;
mod search;
mod skill;
mod space;
mod turn;
mod upkeep;

pub use artifact::Artifact;
pub use entry::{
    AddEntries, AddMemory, AddedEntries, AddedEntry, Contradiction, EntryFilter, EraseEntries, ErasedEntries,
    ForgetEntries, ForgottenEntries, MemoryChange, MemoryEntry, MemorySession, MemoryVersion,
    MetadataOperator, MetadataTest, NewEntry, UpdateEntry,
};
pub use kv::{KvBatch, KvChanged, KvEvent, KvIncrement, KvItem, KvOperation, KvSet, KvVersion};
pub use line::{ImportedMemory, MemoryLine};
pub use sandbox::{
    AttachedSpace, MemoryRequest, RelatedFix, RelatedMemory, RememberMode, SandboxMemory, SpaceAccess,
};
pub use search::{
    ArmReport, ArmState, LexicalWhy, MemoryHit, NeighbourWhy, SearchMemory, SearchResult, SearchWeights,
    SearchWhy, VectorWhy,
};
pub use skill::{
    FindSkills, FoundSkill, FoundSkills, NewSkill, PromoteSkill, RunSkill, Skill, SkillOutcome,
    SkillParameter, SkillRun, SkillRunStep, SkillStep,
};
pub use space::{CreateSpace, Space, UpdateSpace};
pub use turn::{ContextBlock, ContextRequest, RecallRequest, StoreTurn, StoredTurn, TurnMessage};
pub use upkeep::{
    ConsolidateMemory, ConsolidatedMemory, EntryPolicy, KvPolicy, MemoryCheck, MemoryPart, MemoryStats,
    MergeConflict, MergeMemory, MergedMemory, VectorCoverage,
};
