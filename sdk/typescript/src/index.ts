/** Persistent sandboxes and memory for AI agents. */
export { Client } from "./client.js";
export { type CodeContext, type CodeError, type CodeResult, CodeRun, type Contexts, type RunCodeOptions } from "./code.js";
export type { ConnectOptions } from "./config.js";
export type { AllowOptions, Egress, EgressEntry } from "./egress.js";
export {
  BrokenError,
  BurrowError,
  BusyError,
  CodeRunError,
  CommandError,
  CommandLostError,
  ConflictError,
  ConnectError,
  type ErrorCode,
  ExecEndedError,
  ForbiddenError,
  ForkError,
  InternalError,
  InvalidRequestError,
  NoSpaceError,
  NotDumpableError,
  NotExecutableError,
  NotFoundError,
  NotRunningError,
  SandboxAsleepError,
  TimeoutError,
  TooLargeError,
  UnauthorizedError,
  UnavailableError,
} from "./errors.js";
export type { FileEntry, Files, WatchEvent, WriteOptions } from "./files.js";
export type { Routes, Schemas } from "./generated/api.js";
export type { BuildOptions, BuildProgress, Images } from "./images.js";
export type { Artifact, Artifacts } from "./memory/artifacts.js";
export {
  type ContextBlock,
  type FormatOptions,
  Memory,
  type MemoryEntry,
  type MemoryHit,
  type RetrieveOptions,
  type Spaces,
  type StoreOptions,
  type TurnMessage,
} from "./memory/index.js";
export type { Kv, KvEvent, KvItem, KvSetOptions } from "./memory/kv.js";
export type { Skill, Skills } from "./memory/skills.js";
export type { Forwarding, Ports } from "./ports.js";
export {
  type Diff,
  type DiffEntry,
  type DiffNode,
  type DiffOptions,
  MergeError,
  type MergeMemoryPolicy,
  type MergeOptions,
  type MergePolicy,
  type Merged,
  type Race,
  type RaceOptions,
} from "./merges.js";
export { type Command, Process, type ProcessEvent, type RunOptions, type SpawnOptions } from "./process.js";
export { CommandResult } from "./result.js";
export { type Checkpoint, type Connection, type CreateOptions, type ForkOptions, type ListFilter, Sandbox, type SandboxInfo } from "./sandbox.js";
export type { SecretOptions, Secrets } from "./secrets.js";
export type { Services } from "./services.js";
export type { Snapshot, Snapshots } from "./snapshots.js";
