// Made from docs/openapi.json by scripts/generate.mjs: `npm run generate`. Not to be edited.

/** Names of the wire, by ours, where they differ. */
export const wireNames: Readonly<Record<string, string>> = {
  activeMs: "active_ms",
  addDeny: "add_deny",
  addRequests: "add_requests",
  addSets: "add_sets",
  agentRamBytes: "agent_ram_bytes",
  asOf: "as_of",
  asleepSinceMs: "asleep_since_ms",
  atMs: "at_ms",
  budgetMs: "budget_ms",
  budgetTokens: "budget_tokens",
  byKind: "by_kind",
  bytesIn: "bytes_in",
  bytesOut: "bytes_out",
  bytesOutToday: "bytes_out_today",
  bytesTotal: "bytes_total",
  changedMs: "changed_ms",
  connectionsOpen: "connections_open",
  contentBytes: "content_bytes",
  cpuMillis: "cpu_millis",
  cpuUs: "cpu_us",
  createdMs: "created_ms",
  defaultDriver: "default_driver",
  diskBytes: "disk_bytes",
  diskLimitBytes: "disk_limit_bytes",
  diskMib: "disk_mib",
  diskMibPerSecond: "disk_mib_per_second",
  diskRate: "disk_rate",
  diskUsedBytes: "disk_used_bytes",
  dryRun: "dry_run",
  duplicateOf: "duplicate_of",
  durationMs: "duration_ms",
  egressDenied: "egress_denied",
  endedMs: "ended_ms",
  everySeconds: "every_seconds",
  execId: "exec_id",
  execsRunning: "execs_running",
  executionCount: "execution_count",
  exitCode: "exit_code",
  expiresMs: "expires_ms",
  expiresSeconds: "expires_seconds",
  exposedPorts: "exposed_ports",
  fellBack: "fell_back",
  filesOnly: "files_only",
  fixedBy: "fixed_by",
  freedBytes: "freed_bytes",
  fromRoot: "from_root",
  fromSnapshot: "from_snapshot",
  graceMs: "grace_ms",
  guestGeneration: "guest_generation",
  halfLifeSeconds: "half_life_seconds",
  hibernateAfterSeconds: "hibernate_after_seconds",
  hostFingerprint: "host_fingerprint",
  hostKey: "host_key",
  ifAbsent: "if_absent",
  ifNotExists: "if_not_exists",
  ifVersion: "if_version",
  imageId: "image_id",
  includeCold: "include_cold",
  includeFailed: "include_failed",
  includeSuperseded: "include_superseded",
  keyId: "key_id",
  killedFromOutside: "killed_from_outside",
  kvConflicts: "kv_conflicts",
  kvKeys: "kv_keys",
  lastMs: "last_ms",
  lastUsedMs: "last_used_ms",
  logDropped: "log_dropped",
  mediaType: "media_type",
  mergeWinner: "merge_winner",
  minScore: "min_score",
  missingSets: "missing_sets",
  modifiedMs: "modified_ms",
  networkMibPerSecond: "network_mib_per_second",
  networkReceivedBytes: "network_received_bytes",
  networkSentBytes: "network_sent_bytes",
  newBytes: "new_bytes",
  nextCursor: "next_cursor",
  noCache: "no_cache",
  oldBytes: "old_bytes",
  olderThanSeconds: "older_than_seconds",
  oomKills: "oom_kills",
  openedMs: "opened_ms",
  originOf: "origin_of",
  outputBytesMax: "output_bytes_max",
  outputDropped: "output_dropped",
  outputEnd: "output_end",
  outputStart: "output_start",
  pauseAfterSeconds: "pause_after_seconds",
  pauseUs: "pause_us",
  poolFreeBytes: "pool_free_bytes",
  poolTotalBytes: "pool_total_bytes",
  publicKey: "public_key",
  ramBytes: "ram_bytes",
  ramLimitBytes: "ram_limit_bytes",
  ramMaxBytes: "ram_max_bytes",
  ramMib: "ram_mib",
  receivedBytes: "received_bytes",
  removeDeny: "remove_deny",
  removeSets: "remove_sets",
  requestId: "request_id",
  requestsThisMinute: "requests_this_minute",
  requestsToday: "requests_today",
  revokedMs: "revoked_ms",
  ringBytes: "ring_bytes",
  rollbackOnFailure: "rollback_on_failure",
  rolledUp: "rolled_up",
  sandboxId: "sandbox_id",
  sandboxName: "sandbox_name",
  sandboxesRecovering: "sandboxes_recovering",
  sandboxesRunning: "sandboxes_running",
  sentBytes: "sent_bytes",
  sinceMs: "since_ms",
  sizeBytes: "size_bytes",
  snapshotKind: "snapshot_kind",
  snapshotPolicy: "snapshot_policy",
  startedMs: "started_ms",
  stopAfterSeconds: "stop_after_seconds",
  stopReason: "stop_reason",
  stoppedMs: "stopped_ms",
  storedMs: "stored_ms",
  supersededBy: "superseded_by",
  targetShare: "target_share",
  textBytes: "text_bytes",
  thenStop: "then_stop",
  timedOut: "timed_out",
  timeoutMs: "timeout_ms",
  timeoutSeconds: "timeout_seconds",
  toRoot: "to_root",
  tookMs: "took_ms",
  tookUs: "took_us",
  ttlSeconds: "ttl_seconds",
  uniqueBytes: "unique_bytes",
  untilMs: "until_ms",
  unusedForSeconds: "unused_for_seconds",
  updatedMs: "updated_ms",
  uptimeMs: "uptime_ms",
  usedBy: "used_by",
  usedBytes: "used_bytes",
  usedTokens: "used_tokens",
  validFromMs: "valid_from_ms",
  validToMs: "valid_to_ms",
  waitMs: "wait_ms",
  waitingFor: "waiting_for",
  wallUs: "wall_us",
  whenToUse: "when_to_use",
};

/** Properties whose keys are data and keep their names. */
export const opaqueNames: ReadonlySet<string> = new Set([
  "arguments",
  "byKind",
  "changes",
  "chart",
  "content",
  "data",
  "detail",
  "env",
  "extra",
  "json",
  "labels",
  "messages",
  "metadata",
  "parameters",
  "services",
  "value",
]);

/** Every route: what it takes in its query and body, and what it answers. */
export interface Routes {
  "GET /healthz": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "GET /metrics": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "GET /readyz": {
    query: undefined;
    body: undefined;
    answer: Schemas["Readiness"];
  };
  "GET /v1/audit": {
    query: { sandbox?: string; action?: string; outcome?: string; actor?: string; secret?: string; sinceMs?: number; untilMs?: number; cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_AuditEvent"];
  };
  "GET /v1/audit/checkpoint": {
    query: undefined;
    body: undefined;
    answer: Schemas["AuditCheckpoint"];
  };
  "GET /v1/audit/export": {
    query: undefined;
    body: undefined;
    answer: string;
  };
  "GET /v1/audit/follow": {
    query: { from?: number; sandbox?: string; action?: string; outcome?: string; limit?: number };
    body: undefined;
    answer: Schemas["AuditEvent"];
  };
  "GET /v1/audit/proof/consistency": {
    query: { from: number; to?: number };
    body: undefined;
    answer: Schemas["AuditConsistency"];
  };
  "GET /v1/audit/proof/inclusion": {
    query: { index: number; size?: number };
    body: undefined;
    answer: Schemas["AuditInclusion"];
  };
  "GET /v1/backup": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "GET /v1/config": {
    query: undefined;
    body: undefined;
    answer: Record<string, unknown>;
  };
  "GET /v1/diff": {
    query: { from: string; to: string; glob?: (string)[]; all?: boolean; content?: boolean; limit?: number };
    body: undefined;
    answer: Schemas["Diff"];
  };
  "POST /v1/diff": {
    query: undefined;
    body: Schemas["DiffRequest"];
    answer: Schemas["Diff"];
  };
  "GET /v1/events": {
    query: { since?: number; follow?: boolean; sandbox?: string; limit?: number };
    body: undefined;
    answer: Schemas["Event"];
  };
  "GET /v1/execs/{exec}": {
    query: undefined;
    body: undefined;
    answer: Schemas["Exec"];
  };
  "GET /v1/gc": {
    query: { unusedForSeconds?: number };
    body: undefined;
    answer: Schemas["GarbageReport"];
  };
  "POST /v1/gc": {
    query: undefined;
    body: Schemas["CollectGarbage"];
    answer: Schemas["GarbageReport"];
  };
  "GET /v1/host": {
    query: undefined;
    body: undefined;
    answer: Schemas["HostInfo"];
  };
  "GET /v1/images": {
    query: { name?: string; cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Image"];
  };
  "POST /v1/images": {
    query: undefined;
    body: Schemas["BuildImage"];
    answer: Schemas["BuildProgress"];
  };
  "PUT /v1/images/build": {
    query: undefined;
    body: undefined;
    answer: Schemas["BuildProgress"];
  };
  "PUT /v1/images/import": {
    query: { name?: string };
    body: undefined;
    answer: Schemas["BuildProgress"];
  };
  "POST /v1/images/prune": {
    query: undefined;
    body: undefined;
    answer: Schemas["Pruned"];
  };
  "GET /v1/images/{image}": {
    query: undefined;
    body: undefined;
    answer: Schemas["ImageDetail"];
  };
  "DELETE /v1/images/{image}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "GET /v1/images/{image}/export": {
    query: { compression?: "none" | "gzip" | "zstd" };
    body: undefined;
    answer: undefined;
  };
  "POST /v1/images/{image}/tags": {
    query: undefined;
    body: Schemas["TagImage"];
    answer: Schemas["Image"];
  };
  "DELETE /v1/images/{image}/tags/{tag}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "GET /v1/keys": {
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Key"];
  };
  "POST /v1/keys": {
    query: undefined;
    body: Schemas["CreateKey"];
    answer: Schemas["CreatedKey"];
  };
  "GET /v1/keys/{key}": {
    query: undefined;
    body: undefined;
    answer: Schemas["Key"];
  };
  "DELETE /v1/keys/{key}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "GET /v1/memory/{of}": {
    query: { asOf?: string; space?: string };
    body: undefined;
    answer: Schemas["MemoryStats"];
  };
  "GET /v1/memory/{of}/artifact-versions/{name}": {
    query: { asOf?: string; space?: string };
    body: undefined;
    answer: (Schemas["Artifact"])[];
  };
  "GET /v1/memory/{of}/artifacts": {
    query: { prefix?: string; asOf?: string; space?: string; cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Artifact"];
  };
  "GET /v1/memory/{of}/artifacts/{name}": {
    query: { version?: number; asOf?: string; space?: string };
    body: undefined;
    answer: undefined;
  };
  "PUT /v1/memory/{of}/artifacts/{name}": {
    query: { space?: string };
    body: undefined;
    answer: Schemas["Artifact"];
  };
  "DELETE /v1/memory/{of}/artifacts/{name}": {
    query: { space?: string };
    body: undefined;
    answer: undefined;
  };
  "HEAD /v1/memory/{of}/artifacts/{name}": {
    query: { version?: number; asOf?: string; space?: string };
    body: undefined;
    answer: undefined;
  };
  "POST /v1/memory/{of}/check": {
    query: { space?: string };
    body: undefined;
    answer: Schemas["MemoryCheck"];
  };
  "POST /v1/memory/{of}/consolidate": {
    query: { space?: string };
    body: Schemas["ConsolidateMemory"];
    answer: Schemas["ConsolidatedMemory"];
  };
  "POST /v1/memory/{of}/context": {
    query: { asOf?: string };
    body: Schemas["ContextRequest"];
    answer: Schemas["ContextBlock"];
  };
  "GET /v1/memory/{of}/entries": {
    query: { asOf?: string; space?: string; kind?: string; metadata?: string; session?: string; source?: string; user?: string; agent?: string; sinceMs?: number; untilMs?: number; includeCold?: boolean; includeSuperseded?: boolean; cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_MemoryEntry"];
  };
  "POST /v1/memory/{of}/entries": {
    query: { space?: string };
    body: Schemas["AddMemory"];
    answer: Schemas["AddedEntries"];
  };
  "GET /v1/memory/{of}/entries/{entry}": {
    query: { asOf?: string; space?: string };
    body: undefined;
    answer: Schemas["MemoryEntry"];
  };
  "DELETE /v1/memory/{of}/entries/{entry}": {
    query: { space?: string };
    body: undefined;
    answer: undefined;
  };
  "PATCH /v1/memory/{of}/entries/{entry}": {
    query: { space?: string };
    body: Schemas["UpdateEntry"];
    answer: Schemas["MemoryEntry"];
  };
  "GET /v1/memory/{of}/entries/{entry}/history": {
    query: { asOf?: string; space?: string };
    body: undefined;
    answer: (Schemas["MemoryVersion"])[];
  };
  "POST /v1/memory/{of}/erase": {
    query: { space?: string };
    body: Schemas["EraseEntries"];
    answer: Schemas["ErasedEntries"];
  };
  "GET /v1/memory/{of}/export": {
    query: { asOf?: string; space?: string };
    body: undefined;
    answer: Schemas["MemoryLine"];
  };
  "POST /v1/memory/{of}/forget": {
    query: { space?: string };
    body: Schemas["ForgetEntries"];
    answer: Schemas["ForgottenEntries"];
  };
  "POST /v1/memory/{of}/import": {
    query: { space?: string };
    body: Schemas["MemoryLine"];
    answer: Schemas["ImportedMemory"];
  };
  "GET /v1/memory/{of}/kv": {
    query: { prefix?: string; asOf?: string; space?: string; cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_KvItem"];
  };
  "POST /v1/memory/{of}/kv-batch": {
    query: { space?: string };
    body: Schemas["KvBatch"];
    answer: Schemas["KvChanged"];
  };
  "GET /v1/memory/{of}/kv-history/{key}": {
    query: { asOf?: string; space?: string };
    body: undefined;
    answer: (Schemas["KvVersion"])[];
  };
  "POST /v1/memory/{of}/kv-increment": {
    query: { space?: string };
    body: Schemas["KvIncrement"];
    answer: Schemas["KvItem"];
  };
  "GET /v1/memory/{of}/kv-watch": {
    query: { prefix?: string; since?: number; space?: string };
    body: undefined;
    answer: Schemas["KvEvent"];
  };
  "GET /v1/memory/{of}/kv/{key}": {
    query: { asOf?: string; space?: string };
    body: undefined;
    answer: Schemas["KvItem"];
  };
  "PUT /v1/memory/{of}/kv/{key}": {
    query: { space?: string };
    body: Schemas["KvSet"];
    answer: Schemas["KvItem"];
  };
  "DELETE /v1/memory/{of}/kv/{key}": {
    query: { space?: string; ifVersion?: number };
    body: undefined;
    answer: undefined;
  };
  "POST /v1/memory/{of}/merge": {
    query: undefined;
    body: Schemas["MergeMemory"];
    answer: Schemas["MergedMemory"];
  };
  "POST /v1/memory/{of}/rebuild": {
    query: { space?: string };
    body: undefined;
    answer: Schemas["MemoryCheck"];
  };
  "POST /v1/memory/{of}/recall": {
    query: { asOf?: string };
    body: Schemas["RecallRequest"];
    answer: Schemas["ContextBlock"];
  };
  "POST /v1/memory/{of}/search": {
    query: { asOf?: string };
    body: Schemas["SearchMemory"];
    answer: Schemas["SearchResult"];
  };
  "GET /v1/memory/{of}/sessions": {
    query: { asOf?: string; space?: string; cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_MemorySession"];
  };
  "GET /v1/memory/{of}/skills": {
    query: { asOf?: string; space?: string; cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Skill"];
  };
  "POST /v1/memory/{of}/skills": {
    query: { space?: string };
    body: Schemas["NewSkill"];
    answer: Schemas["Skill"];
  };
  "POST /v1/memory/{of}/skills/promote": {
    query: { space?: string };
    body: Schemas["PromoteSkill"];
    answer: Schemas["Skill"];
  };
  "POST /v1/memory/{of}/skills/search": {
    query: { asOf?: string };
    body: Schemas["FindSkills"];
    answer: Schemas["FoundSkills"];
  };
  "GET /v1/memory/{of}/skills/{name}": {
    query: { version?: number; asOf?: string; space?: string };
    body: undefined;
    answer: Schemas["Skill"];
  };
  "DELETE /v1/memory/{of}/skills/{name}": {
    query: { space?: string };
    body: undefined;
    answer: undefined;
  };
  "POST /v1/memory/{of}/skills/{name}/outcome": {
    query: { version?: number; space?: string };
    body: Schemas["SkillOutcome"];
    answer: Schemas["Skill"];
  };
  "POST /v1/memory/{of}/skills/{name}/run": {
    query: { space?: string };
    body: Schemas["RunSkill"];
    answer: Schemas["SkillRun"];
  };
  "GET /v1/memory/{of}/skills/{name}/versions": {
    query: { asOf?: string; space?: string };
    body: undefined;
    answer: (Schemas["Skill"])[];
  };
  "POST /v1/memory/{of}/turns": {
    query: { space?: string };
    body: Schemas["StoreTurn"];
    answer: Schemas["StoredTurn"];
  };
  "GET /v1/races": {
    query: undefined;
    body: undefined;
    answer: Schemas["Races"];
  };
  "POST /v1/races": {
    query: undefined;
    body: Schemas["StartRace"];
    answer: Schemas["Race"];
  };
  "GET /v1/races/{race}": {
    query: { after?: number; waitMs?: number };
    body: undefined;
    answer: Schemas["Race"];
  };
  "DELETE /v1/races/{race}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "POST /v1/races/{race}/merge": {
    query: undefined;
    body: Schemas["MergeRace"];
    answer: Schemas["Merged"];
  };
  "GET /v1/sandboxes": {
    query: { label?: (string)[]; state?: ("creating" | "starting" | "running" | "paused" | "hibernating" | "hibernated" | "waking" | "restoring" | "stopping" | "stopped" | "deleting" | "failed")[]; cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Sandbox"];
  };
  "POST /v1/sandboxes": {
    query: undefined;
    body: Schemas["CreateSandbox"];
    answer: Schemas["Sandbox"];
  };
  "GET /v1/sandboxes/{sandbox}": {
    query: undefined;
    body: undefined;
    answer: Schemas["Sandbox"];
  };
  "DELETE /v1/sandboxes/{sandbox}": {
    query: { snapshots?: boolean };
    body: undefined;
    answer: undefined;
  };
  "PATCH /v1/sandboxes/{sandbox}": {
    query: undefined;
    body: Schemas["UpdateSandbox"];
    answer: Schemas["Sandbox"];
  };
  "GET /v1/sandboxes/{sandbox}/contexts": {
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_CodeContext"];
  };
  "POST /v1/sandboxes/{sandbox}/contexts": {
    query: undefined;
    body: Schemas["CreateCodeContext"];
    answer: Schemas["CodeContext"];
  };
  "GET /v1/sandboxes/{sandbox}/contexts/{context}": {
    query: undefined;
    body: undefined;
    answer: Schemas["CodeContext"];
  };
  "DELETE /v1/sandboxes/{sandbox}/contexts/{context}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "POST /v1/sandboxes/{sandbox}/contexts/{context}/interrupt": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "POST /v1/sandboxes/{sandbox}/contexts/{context}/restart": {
    query: undefined;
    body: undefined;
    answer: Schemas["CodeContext"];
  };
  "POST /v1/sandboxes/{sandbox}/contexts/{context}/run": {
    query: undefined;
    body: Schemas["RunCode"];
    answer: Schemas["CodeRun"];
  };
  "GET /v1/sandboxes/{sandbox}/egress": {
    query: undefined;
    body: undefined;
    answer: Schemas["EgressStatus"];
  };
  "GET /v1/sandboxes/{sandbox}/egress/approvals": {
    query: undefined;
    body: undefined;
    answer: Schemas["Page_EgressApproval"];
  };
  "POST /v1/sandboxes/{sandbox}/egress/approvals/{approval}": {
    query: undefined;
    body: Schemas["AnswerApproval"];
    answer: undefined;
  };
  "POST /v1/sandboxes/{sandbox}/egress/explain": {
    query: undefined;
    body: Schemas["EgressQuestion"];
    answer: Schemas["EgressExplanation"];
  };
  "GET /v1/sandboxes/{sandbox}/egress/log": {
    query: { denied?: boolean; follow?: boolean; since?: number; cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_EgressEntry"];
  };
  "PUT /v1/sandboxes/{sandbox}/egress/policy": {
    query: undefined;
    body: Schemas["PolicyDocument"];
    answer: Schemas["Sandbox"];
  };
  "POST /v1/sandboxes/{sandbox}/egress/test": {
    query: undefined;
    body: Schemas["EgressQuestion"];
    answer: Schemas["EgressTrial"];
  };
  "GET /v1/sandboxes/{sandbox}/execs": {
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Exec"];
  };
  "POST /v1/sandboxes/{sandbox}/execs": {
    query: undefined;
    body: Schemas["CreateExec"];
    answer: Schemas["RunResult"] | Schemas["Exec"];
  };
  "GET /v1/sandboxes/{sandbox}/execs/{exec}": {
    query: undefined;
    body: undefined;
    answer: Schemas["Exec"];
  };
  "GET /v1/sandboxes/{sandbox}/execs/{exec}/attach": {
    query: { offset?: number; mode?: "lossless" | "lossy" };
    body: undefined;
    answer: undefined;
  };
  "GET /v1/sandboxes/{sandbox}/execs/{exec}/output": {
    query: { offset?: number; follow?: boolean; format?: "ndjson" | "raw" };
    body: undefined;
    answer: Schemas["OutputChunk"];
  };
  "POST /v1/sandboxes/{sandbox}/execs/{exec}/resize": {
    query: undefined;
    body: Schemas["TerminalSize"];
    answer: undefined;
  };
  "POST /v1/sandboxes/{sandbox}/execs/{exec}/signal": {
    query: undefined;
    body: Schemas["SendSignal"];
    answer: undefined;
  };
  "POST /v1/sandboxes/{sandbox}/execs/{exec}/stdin": {
    query: { close?: boolean };
    body: undefined;
    answer: undefined;
  };
  "GET /v1/sandboxes/{sandbox}/execs/{exec}/wait": {
    query: { timeoutMs?: number };
    body: undefined;
    answer: Schemas["Exec"];
  };
  "GET /v1/sandboxes/{sandbox}/files": {
    query: { path: string };
    body: undefined;
    answer: undefined;
  };
  "PUT /v1/sandboxes/{sandbox}/files": {
    query: { path: string; mode?: string; user?: string; parents?: boolean; offset?: number; sync?: boolean };
    body: undefined;
    answer: Schemas["FileEntry"];
  };
  "DELETE /v1/sandboxes/{sandbox}/files": {
    query: { path: string; recursive?: boolean };
    body: undefined;
    answer: undefined;
  };
  "POST /v1/sandboxes/{sandbox}/files/chmod": {
    query: undefined;
    body: Schemas["ChangeMode"];
    answer: Schemas["FileEntry"];
  };
  "GET /v1/sandboxes/{sandbox}/files/list": {
    query: { path: string; depth?: number };
    body: undefined;
    answer: Schemas["FileList"];
  };
  "POST /v1/sandboxes/{sandbox}/files/mkdir": {
    query: undefined;
    body: Schemas["MakeDirectory"];
    answer: Schemas["FileEntry"];
  };
  "POST /v1/sandboxes/{sandbox}/files/move": {
    query: undefined;
    body: Schemas["MoveFile"];
    answer: Schemas["FileEntry"];
  };
  "GET /v1/sandboxes/{sandbox}/files/stat": {
    query: { path: string; follow?: boolean };
    body: undefined;
    answer: Schemas["FileEntry"];
  };
  "GET /v1/sandboxes/{sandbox}/files/tar": {
    query: { path: string };
    body: undefined;
    answer: undefined;
  };
  "PUT /v1/sandboxes/{sandbox}/files/tar": {
    query: { path: string; user?: string };
    body: undefined;
    answer: Schemas["TarSummary"];
  };
  "GET /v1/sandboxes/{sandbox}/files/watch": {
    query: { path: string; recursive?: boolean };
    body: undefined;
    answer: Schemas["WatchEvent"];
  };
  "POST /v1/sandboxes/{sandbox}/fork": {
    query: undefined;
    body: Schemas["ForkSandbox"];
    answer: Schemas["Forked"];
  };
  "POST /v1/sandboxes/{sandbox}/hibernate": {
    query: undefined;
    body: undefined;
    answer: Schemas["Sandbox"];
  };
  "POST /v1/sandboxes/{sandbox}/merge": {
    query: undefined;
    body: Schemas["MergeSandbox"];
    answer: Schemas["Merged"];
  };
  "GET /v1/sandboxes/{sandbox}/merges": {
    query: undefined;
    body: undefined;
    answer: Schemas["PastMerges"];
  };
  "POST /v1/sandboxes/{sandbox}/pause": {
    query: undefined;
    body: undefined;
    answer: Schemas["Sandbox"];
  };
  "GET /v1/sandboxes/{sandbox}/ports": {
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Port"];
  };
  "PUT /v1/sandboxes/{sandbox}/ports/{port}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "DELETE /v1/sandboxes/{sandbox}/ports/{port}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "GET /v1/sandboxes/{sandbox}/ports/{port}/connect": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "POST /v1/sandboxes/{sandbox}/ports/{port}/url": {
    query: undefined;
    body: Schemas["CreatePortUrl"];
    answer: Schemas["PortUrl"];
  };
  "POST /v1/sandboxes/{sandbox}/restore": {
    query: undefined;
    body: Schemas["RestoreSandbox"];
    answer: Schemas["Restored"];
  };
  "POST /v1/sandboxes/{sandbox}/resume": {
    query: undefined;
    body: undefined;
    answer: Schemas["Sandbox"];
  };
  "POST /v1/sandboxes/{sandbox}/revoke-tokens": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "GET /v1/sandboxes/{sandbox}/services": {
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Service"];
  };
  "PUT /v1/sandboxes/{sandbox}/services/{name}": {
    query: undefined;
    body: Schemas["CreateService"];
    answer: Schemas["Service"];
  };
  "DELETE /v1/sandboxes/{sandbox}/services/{name}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "POST /v1/sandboxes/{sandbox}/services/{name}/restart": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "POST /v1/sandboxes/{sandbox}/snapshots": {
    query: undefined;
    body: Schemas["CreateSnapshot"];
    answer: Schemas["Snapshot"];
  };
  "POST /v1/sandboxes/{sandbox}/start": {
    query: { filesOnly?: boolean };
    body: undefined;
    answer: Schemas["Sandbox"];
  };
  "GET /v1/sandboxes/{sandbox}/stats": {
    query: undefined;
    body: undefined;
    answer: Schemas["Stats"];
  };
  "POST /v1/sandboxes/{sandbox}/stop": {
    query: { graceMs?: number };
    body: undefined;
    answer: Schemas["Sandbox"];
  };
  "POST /v1/sandboxes/{sandbox}/wake": {
    query: undefined;
    body: undefined;
    answer: Schemas["Sandbox"];
  };
  "GET /v1/secrets": {
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Secret"];
  };
  "GET /v1/secrets/{secret}": {
    query: undefined;
    body: undefined;
    answer: Schemas["Secret"];
  };
  "PUT /v1/secrets/{secret}": {
    query: undefined;
    body: Schemas["SetSecret"];
    answer: Schemas["Secret"];
  };
  "DELETE /v1/secrets/{secret}": {
    query: { force?: boolean };
    body: undefined;
    answer: undefined;
  };
  "POST /v1/secrets/{secret}/rotate": {
    query: undefined;
    body: Schemas["RotateSecret"];
    answer: Schemas["Secret"];
  };
  "GET /v1/snapshots": {
    query: { sandbox?: string; label?: (string)[]; kind?: ("manual" | "policy" | "before-restore" | "exec" | "fork" | "before-rotate" | "before-merge")[]; cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Snapshot"];
  };
  "POST /v1/snapshots": {
    query: { name?: string; filesOnly?: boolean; trust?: string };
    body: undefined;
    answer: Schemas["ImportedSnapshot"];
  };
  "GET /v1/snapshots/{snapshot}": {
    query: undefined;
    body: undefined;
    answer: Schemas["Snapshot"];
  };
  "DELETE /v1/snapshots/{snapshot}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "GET /v1/snapshots/{snapshot}/export": {
    query: { since?: string; filesOnly?: boolean };
    body: undefined;
    answer: undefined;
  };
  "POST /v1/snapshots/{snapshot}/sandboxes": {
    query: undefined;
    body: Schemas["SandboxFromSnapshot"];
    answer: Schemas["Sandbox"];
  };
  "GET /v1/spaces": {
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Space"];
  };
  "POST /v1/spaces": {
    query: undefined;
    body: Schemas["CreateSpace"];
    answer: Schemas["Space"];
  };
  "GET /v1/spaces/{space}": {
    query: undefined;
    body: undefined;
    answer: Schemas["Space"];
  };
  "DELETE /v1/spaces/{space}": {
    query: { force?: boolean };
    body: undefined;
    answer: undefined;
  };
  "PATCH /v1/spaces/{space}": {
    query: undefined;
    body: Schemas["UpdateSpace"];
    answer: Schemas["Space"];
  };
  "GET /v1/ssh": {
    query: undefined;
    body: undefined;
    answer: Schemas["Ssh"];
  };
  "GET /v1/ssh/keys": {
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_SshKey"];
  };
  "POST /v1/ssh/keys": {
    query: undefined;
    body: Schemas["AddSshKey"];
    answer: Schemas["SshKey"];
  };
  "DELETE /v1/ssh/keys/{key}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
  "GET /v1/tree": {
    query: undefined;
    body: undefined;
    answer: Schemas["Tree"];
  };
  "GET /v1/version": {
    query: undefined;
    body: undefined;
    answer: Schemas["Version"];
  };
  "GET /v1/volumes": {
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_Volume"];
  };
  "POST /v1/volumes": {
    query: undefined;
    body: Schemas["CreateVolume"];
    answer: Schemas["Volume"];
  };
  "GET /v1/volumes/{volume}": {
    query: undefined;
    body: undefined;
    answer: Schemas["Volume"];
  };
  "DELETE /v1/volumes/{volume}": {
    query: { snapshots?: boolean };
    body: undefined;
    answer: undefined;
  };
  "GET /v1/volumes/{volume}/files": {
    query: { path: string };
    body: undefined;
    answer: undefined;
  };
  "PUT /v1/volumes/{volume}/files": {
    query: { path: string; mode?: string; uid?: number; gid?: number; parents?: boolean };
    body: undefined;
    answer: Schemas["FileEntry"];
  };
  "DELETE /v1/volumes/{volume}/files": {
    query: { path: string };
    body: undefined;
    answer: undefined;
  };
  "GET /v1/volumes/{volume}/files/list": {
    query: { path?: string; depth?: number };
    body: undefined;
    answer: Schemas["FileList"];
  };
  "POST /v1/volumes/{volume}/restore": {
    query: undefined;
    body: Schemas["RestoreVolume"];
    answer: Schemas["Volume"];
  };
  "GET /v1/volumes/{volume}/snapshots": {
    query: { cursor?: string; limit?: number };
    body: undefined;
    answer: Schemas["Page_VolumeSnapshot"];
  };
  "POST /v1/volumes/{volume}/snapshots": {
    query: undefined;
    body: Schemas["CreateVolumeSnapshot"];
    answer: Schemas["VolumeSnapshot"];
  };
  "DELETE /v1/volumes/{volume}/snapshots/{snapshot}": {
    query: undefined;
    body: undefined;
    answer: undefined;
  };
}

export type Schemas = Components["schemas"];

interface Components {
    schemas: {
        Ability: {
            /** @description The command that mends it. */
            fix?: string | null;
            /** @description Why not. */
            reason?: string | null;
            yes: boolean;
        };
        AddEntries: {
            /** @description Stored in this order, all or none. */
            entries: Schemas["NewEntry"][];
        };
        /** @description `POST /v1/memory/{of}/entries`: one entry, or several that are stored together or not at all. */
        AddMemory: Schemas["AddEntries"] | Schemas["NewEntry"];
        /** @description `POST /v1/ssh/keys`. */
        AddSshKey: {
            /** @description For people; the key's own comment when absent. */
            name?: string | null;
            /** @description One line, as in `~/.ssh/id_ed25519.pub`. */
            publicKey: string;
        };
        /** @description Answer of adding: one for each entry, in order. */
        AddedEntries: {
            entries: Schemas["AddedEntry"][];
        };
        AddedEntry: {
            /** @description An older entry that says the same. Both are kept; search shows one. */
            duplicateOf?: string | null;
            /** @description There was an entry with this key already: nothing was stored. */
            existed: boolean;
            id: string;
            /**
             * Format: int64
             * @description Its number in the log.
             */
            seq: number;
        };
        /** @description `POST …/egress/approvals/{approval}`. */
        AnswerApproval: {
            allow: boolean;
        };
        /** @enum {string} */
        Approve: "once" | "session";
        ArmReport: {
            /** @description `lexical`, `vector`, `neighbours`, … */
            arm: string;
            /**
             * Format: float
             * @description Share of the entries that it could see, from 0 to 1, when not all.
             */
            covered?: number | null;
            /** @description Why it was down. */
            reason?: string | null;
            state: Schemas["ArmState"];
        };
        /** @enum {string} */
        ArmState: "took" | "off" | "down" | "partial";
        /**
         * @description One version of an artifact. `PUT /v1/memory/{of}/artifacts/{name}` takes the bytes as its body, the media type as
         *     `Content-Type` and the metadata as a JSON object in `X-Burrow-Metadata`.
         */
        Artifact: {
            /** Format: int64 */
            atMs: number;
            /** Format: int64 */
            bytes: number;
            /** @description BLAKE3 of the bytes, in hexadecimal; also the `ETag`. */
            hash: string;
            mediaType: string;
            metadata: Record<string, unknown>;
            name: string;
            /**
             * Format: int64
             * @description Number in the log.
             */
            seq: number;
            /**
             * Format: int64
             * @description 1, and one more each time it is put.
             */
            version: number;
        };
        AttachClientMessage: {
            /** Format: int32 */
            columns: number;
            /** @enum {string} */
            kind: "resize";
            /** Format: int32 */
            rows: number;
        } | {
            /** @enum {string} */
            kind: "signal";
            signal: string;
        } | {
            /** @enum {string} */
            kind: "close-stdin";
        };
        AttachServerMessage: {
            /** Format: int64 */
            from: number;
            /** @enum {string} */
            kind: "gap";
            /** Format: int64 */
            to: number;
        } | {
            exec: Schemas["Exec"];
            /** @enum {string} */
            kind: "exit";
        } | {
            error: Schemas["ErrorDetail"];
            /** @enum {string} */
            kind: "error";
        };
        /** @description A space that a sandbox searches besides the one it remembers in. */
        AttachedSpace: {
            access?: Schemas["SpaceAccess"];
            /** @description Its name or id; in answers its id. */
            space: string;
        };
        /** @description The log's size and root, signed: to be kept elsewhere, and compared with later. */
        AuditCheckpoint: {
            /** @description The checkpoint as text, a signed note: origin, size, root, signature. */
            note: string;
            /** @description The public key that signed it: `burrow-audit+…+…`. */
            publicKey: string;
            /** @description The root of the tree, in hexadecimal digits. */
            root: string;
            /**
             * Format: int64
             * @description Events in the log.
             */
            size: number;
        };
        /** @description That the log of `to` events begins with that of `from` (RFC 6962). Hashes are in hexadecimal digits. */
        AuditConsistency: {
            /** Format: int64 */
            from: number;
            fromRoot: string;
            path: string[];
            /** Format: int64 */
            to: number;
            toRoot: string;
        };
        /** @description One event of the log. */
        AuditEvent: {
            /** @description `egress.inject`, `exec.start`, `key.create`, `api.call`, … */
            action: string;
            /** @description Who did it: a key's id and name, `sandbox`, `daemon`. */
            actor?: string | null;
            /**
             * Format: int64
             * @description By the clock of who tells; the order is that of `index`.
             */
            atMs: number;
            /**
             * Format: int64
             * @description From the host to the sandbox.
             */
            bytesIn?: number | null;
            /**
             * Format: int64
             * @description From the sandbox to the host.
             */
            bytesOut?: number | null;
            /** Format: int64 */
            durationMs?: number | null;
            host?: string | null;
            /**
             * Format: int64
             * @description Its place in the log, from 0, without gaps: the number of its leaf.
             */
            index: number;
            method?: string | null;
            /** @description `allowed`, `denied`, `done` or `failed`. */
            outcome: string;
            /** @description Without its query. */
            path?: string | null;
            /** Format: int32 */
            port?: number | null;
            reason?: string | null;
            requestId?: string | null;
            /** @description The rule that decided. */
            rule?: string | null;
            sandboxId?: string | null;
            /** @description The name of a secret, never its value. */
            secret?: string | null;
            /**
             * Format: int32
             * @description Of the answer.
             */
            status?: number | null;
            /** @description The id or name of whatever else it is about: a key, a snapshot, an exec. */
            target?: string | null;
        };
        /** @description That an event is in the log (RFC 6962). Hashes are in hexadecimal digits. */
        AuditInclusion: {
            /** Format: int64 */
            index: number;
            leaf: string;
            /** @description From the leaf to the root. */
            path: string[];
            root: string;
            /**
             * Format: int64
             * @description Of the tree it is proven for.
             */
            size: number;
        };
        /** @description How much of a rule may be used. */
        BudgetDocument: {
            bytesOutPerDay?: Schemas["Size"] | null;
            /** Format: int64 */
            requestsPerDay?: number | null;
            /** Format: int64 */
            requestsPerMinute?: number | null;
        };
        /** @description What is left of a rule's budget now. */
        BudgetLeft: {
            /** Format: int64 */
            bytesOutToday?: number | null;
            /** Format: int64 */
            requestsThisMinute?: number | null;
            /** Format: int64 */
            requestsToday?: number | null;
        };
        /**
         * @description `POST /v1/images`: makes an image. The answer is NDJSON of [`BuildProgress`].
         *
         *     Fields that do not belong to `from` must be absent.
         */
        BuildImage: {
            /** @description `packages`: the image to install them in, by name or id; the default image when absent. */
            base?: string | null;
            config?: Schemas["ImageConfigChange"] | null;
            credentials?: Schemas["RegistryCredentials"] | null;
            from?: Schemas["ImageFrom"];
            /** @description `pull`: the registry speaks HTTP without TLS. Loopback does so without being asked. */
            insecure?: boolean;
            /** @description What to call it. When absent: `debian` for the default image, the reference for `pull`, else nothing. */
            name?: string | null;
            network?: Schemas["NetworkRequest"] | null;
            /** @description `packages`, `recipe`: run every step, whatever is kept of earlier builds. */
            noCache?: boolean;
            /** @description `packages`: what to install. */
            packages?: string[];
            /** @description `pull`: like `linux/amd64`; the host's own when absent. */
            platform?: string | null;
            /** @description `default`: build again even if the name exists. */
            rebuild?: boolean;
            /** @description `recipe`: the build file's text. One that copies files is sent with them to `/v1/images/build`. */
            recipe?: string | null;
            /** @description `pull`: where the image is, as in `registry.example.com/org/app:v1`. */
            reference?: string | null;
            /** @description `sandbox`: whose files, by name or id. */
            sandbox?: string | null;
        };
        /** @description One line of what a long request on images answers. */
        BuildProgress: {
            /** @enum {string} */
            kind: "stage";
            /**
             * Format: int32
             * @description From 0 to 100, where known.
             */
            percent?: number | null;
            stage: string;
        } | {
            /**
             * Format: int64
             * @description Bytes so far, of a transfer.
             */
            bytes: number;
            /**
             * Format: int64
             * @description Bytes in all, where known.
             */
            bytesTotal?: number | null;
            /**
             * Format: int32
             * @description How many there are.
             */
            count: number;
            /**
             * Format: int32
             * @description From 0.
             */
            index: number;
            /** @enum {string} */
            kind: "item";
            state: Schemas["ItemState"];
            /** @description A digest's beginning, or the step as the recipe has it. */
            what: string;
        } | {
            /** @enum {string} */
            kind: "output";
            text: string;
        } | {
            image: Schemas["Image"];
            /** @enum {string} */
            kind: "done";
            /** @description Further images of the same archive. */
            more?: Schemas["Image"][];
        } | {
            error: Schemas["ErrorDetail"];
            /** @enum {string} */
            kind: "error";
        };
        Change: {
            kind: Schemas["ChangeKind"];
            path: string;
        };
        /** @enum {string} */
        ChangeKind: "added" | "changed" | "deleted";
        /** @description `POST …/files/chmod`. */
        ChangeMode: {
            /** @description Octal, e.g. `0644`. */
            mode: string;
            path: string;
        };
        /** @description What is different from the snapshot before. */
        Changes: {
            /** @description Not all were looked at: there are too many, or they are on a microVM's disk, which only a diff reads. */
            more?: boolean;
            /** @description The first 1,000, in order; always empty in lists. */
            paths: Schemas["Change"][];
            /** @description Against which snapshot; absent: against the image. */
            since?: string | null;
            /**
             * Format: int64
             * @description How many there are in all; at least, if there are `more`.
             */
            total: number;
        };
        /** @description A language's process that keeps its variables between runs, and as long as the processes of its sandbox are kept. */
        CodeContext: {
            cwd: string;
            /**
             * Format: int64
             * @description Runs since it was made or restarted.
             */
            executionCount: number;
            id: string;
            language: string;
            state: Schemas["CodeContextState"];
        };
        /** @enum {string} */
        CodeContextState: "idle" | "busy" | "dead";
        /** @description What code failed with. */
        CodeError: {
            /** @description `ZeroDivisionError`; of a run that was ended from outside `KeyboardInterrupt`, `TimeoutError` and the like. */
            name: string;
            /** @description As the language writes it, lines with their line ends. */
            traceback: string;
            value: string;
        };
        /** @description One line of a run's answer. */
        CodeEvent: {
            /** @enum {string} */
            kind: "stdout";
            text: string;
        } | {
            /** @enum {string} */
            kind: "stderr";
            text: string;
        } | (Schemas["CodeResult"] & {
            /** @enum {string} */
            kind: "result";
        }) | (Schemas["CodeError"] & {
            /** @enum {string} */
            kind: "error";
        }) | {
            /** Format: int64 */
            durationMs: number;
            /**
             * Format: int64
             * @description Of the context, with this run; absent where none was counted.
             */
            executionCount?: number | null;
            /** @enum {string} */
            kind: "end";
            status: Schemas["CodeRunStatus"];
        } | {
            error: Schemas["ErrorDetail"];
            /** @enum {string} */
            kind: "broken";
        };
        /** @description One thing shown, in every form there is of it. Pictures and PDFs are base64. */
        CodeResult: {
            /** @description What a plot shows: its kind, its axes, its points. */
            chart?: unknown;
            /** @description Columns of a data frame, each a list. */
            data?: unknown;
            /** @description Forms of other kinds, by media type. */
            extra?: unknown;
            html?: string | null;
            javascript?: string | null;
            jpeg?: string | null;
            json?: unknown;
            latex?: string | null;
            /** @description The value of the last line, rather than something shown on the way. */
            main: boolean;
            markdown?: string | null;
            pdf?: string | null;
            png?: string | null;
            svg?: string | null;
            text?: string | null;
        };
        /** @description A run that was waited for. */
        CodeRun: {
            /** Format: int64 */
            durationMs: number;
            error?: Schemas["CodeError"] | null;
            /** Format: int64 */
            executionCount?: number | null;
            results: Schemas["CodeResult"][];
            status: Schemas["CodeRunStatus"];
            stderr: string;
            stdout: string;
            /** @description More was written than is shown here. */
            truncated: boolean;
        };
        /** @enum {string} */
        CodeRunStatus: "ok" | "error" | "interrupted" | "timed_out" | "output_limit" | "kernel_died";
        /** @description `POST /v1/gc`: does what `GET /v1/gc` says. */
        CollectGarbage: {
            /**
             * Format: int64
             * @description What nobody used for this long is stale; 30 days when absent.
             */
            unusedForSeconds?: number | null;
        };
        /** @description `POST /v1/memory/{of}/consolidate`. Everything is optional. */
        ConsolidateMemory: {
            /**
             * Format: int64
             * @description Time it may take; 30 s when absent.
             */
            budgetMs?: number | null;
            /** @description Only say what would happen. */
            dryRun?: boolean;
            /**
             * Format: int64
             * @description Entries looked at, at most; 10000 when absent.
             */
            entries?: number | null;
            /**
             * Format: int64
             * @description Only what is older than this; `memory.consolidate_older_than` of the configuration when absent.
             */
            olderThanSeconds?: number | null;
            /**
             * Format: float
             * @description Share of the entries that should stay warm, from 0 to 1; as many as are worth it when absent.
             */
            targetShare?: number | null;
        };
        /** @description Answer of a consolidation. Nothing is lost: sources stay, in `as_of` reads, the history and exports. */
        ConsolidatedMemory: {
            /** Format: int64 */
            after: number;
            /**
             * Format: int64
             * @description Warm entries before and after.
             */
            before: number;
            /**
             * Format: int64
             * @description Their entries, which moved to the cold tier.
             */
            cooled: number;
            dryRun: boolean;
            /**
             * Format: int64
             * @description Entries looked at.
             */
            examined: number;
            /**
             * Format: int64
             * @description Summaries that the configured endpoint failed to write: they are the sources' own sentences.
             */
            fellBack: number;
            /**
             * Format: int64
             * @description Duplicates joined with what they repeat.
             */
            joined: number;
            /** @description There is more to do than fitted in the budget. */
            more: boolean;
            /**
             * Format: int64
             * @description Groups of old entries that a summary now stands for.
             */
            rolledUp: number;
            /** @description Ids of the summaries; each cites its sources. */
            summaries: string[];
        };
        /** @description A block for a prompt, and what it is made of. */
        ContextBlock: {
            arms: Schemas["ArmReport"][];
            /** @description Ids of the entries in it. */
            ids: string[];
            /**
             * @description Dated, with ids and relevance, fenced as data so that stored text cannot pose as instructions. Empty when there
             *     is nothing to tell.
             */
            text: string;
            /** @description There was more to tell than fits. */
            truncated: boolean;
            /**
             * Format: int32
             * @description Tokens it takes, as estimated.
             */
            usedTokens: number;
        };
        /** @description `POST /v1/memory/{of}/context`: a block for a prompt. */
        ContextRequest: {
            /**
             * Format: int32
             * @description Tokens the block may take; 1000 when absent.
             * @default 1000
             */
            budgetTokens?: number | null;
            filter?: Schemas["EntryFilter"] | null;
            /** @description The conversation so far; the last messages count most. */
            messages?: Schemas["TurnMessage"][];
            /**
             * @description What it should be about. Without it and without messages: "where was I", the last session, open work and recent
             *     failures.
             */
            query?: string | null;
            /** @description The session that goes on, if it has a name. */
            session?: string | null;
            /** @description Names or ids of the spaces to look in, among the sandbox's own (`own`) and the attached ones; all when empty. */
            spaces?: string[];
        };
        /** @description Two things that cannot both hold. */
        Contradiction: {
            /** @description What is said here, cut short; empty for nothing. */
            ours: string;
            /** @description What is said there. */
            theirs: string;
            /** @description What they disagree about, and which of them is here now. */
            why: string;
        };
        /** @description `POST /v1/sandboxes/{sandbox}/contexts`. */
        CreateCodeContext: {
            /** @description Absolute; the home of the user it runs as when absent. */
            cwd?: string | null;
            /** @description For its whole life. */
            env?: {
                [key: string]: string;
            };
            /** @description `python` when absent; which others there are is the image's to say. */
            language?: string | null;
        };
        /** @description `POST /v1/sandboxes/{sandbox}/execs`. Give either `argv` or `command`. */
        CreateExec: {
            /** @description Program and arguments. */
            argv?: string[];
            /** @description A line for `/bin/sh -c`. */
            command?: string | null;
            /** @description Wins over the sandbox's environment. */
            env?: {
                [key: string]: string;
            };
            /** @description The caller is about to attach: let the process wait for it (30 s at most) rather than lose output. */
            hold?: boolean;
            /** @description Text written to its standard input at once, which is then closed. */
            input?: string | null;
            /**
             * Format: int32
             * @description Bytes of output to keep for re-attaching.
             */
            ringBytes?: number | null;
            /**
             * @description Take a snapshot, and restore it in place if the exec ends with anything but exit code 0: what it did leaves no
             *     trace. Needs `wait` or `hold`.
             */
            rollbackOnFailure?: boolean;
            /** @description Take a snapshot just before it starts; the answer names it. */
            snapshot?: boolean;
            /** @description What the process finds on its standard input. */
            stdin?: Schemas["StdinMode"];
            terminal?: Schemas["TerminalSize"] | null;
            /** @description Stop the sandbox when this exec has ended (an ephemeral one is then deleted). */
            thenStop?: boolean;
            /**
             * Format: int64
             * @description End the whole process group after this time.
             */
            timeoutMs?: number | null;
            /** @description `name`, `uid`, `name:group` or `uid:gid`. */
            user?: string | null;
            /** @description Answer when it has ended, with its output ([`RunResult`], status 200) instead of at once ([`Exec`], 201). */
            wait?: boolean;
            /** @description Absolute; the sandbox's, the image's, else the user's home, when absent. */
            workdir?: string | null;
        };
        /** @description `POST /v1/keys`. */
        CreateKey: {
            /** @description For people. */
            name: string;
            /** @description Only this sandbox (name or id). */
            sandbox?: string | null;
            scope: Schemas["Scope"];
            /** Format: int64 */
            ttlSeconds?: number | null;
        };
        /** @description `POST /v1/sandboxes/{sandbox}/ports/{port}/url`: a link that a browser can open. */
        CreatePortUrl: {
            /**
             * Format: int32
             * @description How long the link opens the port.
             * @default 3600
             */
            expiresSeconds?: number;
        };
        /** @description `POST /v1/sandboxes`. Everything is optional. */
        CreateSandbox: {
            /** @description What isolates it, `container` or `microvm`; the daemon's default when absent. */
            driver?: string | null;
            /** @description Environment of every exec. */
            env?: {
                [key: string]: string;
            };
            /** @description Delete it, with all it holds, as soon as it stops. */
            ephemeral?: boolean;
            /** @description With a name that exists: answer that sandbox, started or woken if it was not running, with status 200. */
            ifNotExists?: boolean;
            /** @description Name or id of an image; `debian` when absent. */
            image?: string | null;
            labels?: {
                [key: string]: string;
            };
            limits?: Schemas["LimitsRequest"] | null;
            memory?: Schemas["MemoryRequest"] | null;
            /** @description Lower-case letters, digits and hyphens; unique. Usable wherever an id is. */
            name?: string | null;
            network?: Schemas["NetworkRequest"] | null;
            rotate?: Schemas["RotateRequest"] | null;
            /** @description Supervised processes, started with the sandbox, by name. */
            services?: {
                [key: string]: Schemas["CreateService"];
            };
            sleep?: Schemas["SleepRequest"] | null;
            snapshotPolicy?: Schemas["SnapshotPolicyRequest"] | null;
            /**
             * Format: int64
             * @description Delete it this long after creation, whatever it does.
             */
            ttlSeconds?: number | null;
            /** @description Who execs run as; the image's user, else root, when absent. */
            user?: string | null;
            /** @description Volumes in it. */
            volumes?: Schemas["MountVolume"][];
            /** @description Where execs start; the image's, else the user's home, when absent. */
            workdir?: string | null;
        };
        /** @description `PUT /v1/sandboxes/{sandbox}/services/{name}`, and in a sandbox's specification. Give `argv` or `command`. */
        CreateService: {
            argv?: string[];
            /** @description A line for `/bin/sh -c`. */
            command?: string | null;
            env?: {
                [key: string]: string;
            };
            restart?: Schemas["RestartPolicy"];
            user?: string | null;
            workdir?: string | null;
        };
        /** @description `POST /v1/sandboxes/{sandbox}/snapshots`. Everything is optional. */
        CreateSnapshot: {
            /** @description For people. */
            description?: string;
            /**
             * Format: int64
             * @description Delete it this long after it was taken.
             */
            expiresSeconds?: number | null;
            /** @description Leave the processes out: quicker, smaller, and possible whatever runs. A sandbox made from it boots. */
            filesOnly?: boolean;
            labels?: {
                [key: string]: string;
            };
            /** @description Lower-case letters, digits and hyphens; unique among snapshots. Usable wherever an id is. */
            name?: string | null;
        };
        /** @description `POST /v1/spaces`. */
        CreateSpace: {
            /** @description For people. */
            description?: string;
            labels?: {
                [key: string]: string;
            };
            /** @description Lower-case letters, digits and hyphens; unique among spaces. Usable wherever an id is. */
            name: string;
        };
        /** @description `POST /v1/volumes`. */
        CreateVolume: {
            /**
             * Format: int32
             * @description Most that is written to it, in MiB; that of a sandbox's disk when absent.
             */
            diskMib?: number | null;
            /** @description Id of a snapshot of any volume, whose files it begins with; empty when absent. */
            fromSnapshot?: string | null;
            /** @description Lower-case letters, digits and hyphens; unique among volumes, for good. Usable wherever an id is. */
            name: string;
        };
        /** @description `POST /v1/volumes/{volume}/snapshots`. */
        CreateVolumeSnapshot: {
            /** @description Unique among the volume's snapshots. */
            name?: string | null;
        };
        /** @description Shown once: the daemon keeps only a hash. */
        CreatedKey: {
            key: Schemas["Key"];
            /** @description `e2b_` and 40 hexadecimal digits. */
            secret: string;
        };
        /** @description What is different. */
        Diff: {
            /**
             * Format: int64
             * @description Paths added, changed and deleted, listed or not.
             */
            added: number;
            base?: Schemas["DiffSide"] | null;
            /** Format: int64 */
            changed: number;
            /** @description There are more than are listed. */
            cut: boolean;
            /** Format: int64 */
            deleted: number;
            /** @description By path. */
            entries: Schemas["DiffEntry"][];
            from: Schemas["DiffSide"];
            /** Format: int64 */
            newBytes: number;
            /** @description What was left out, and how much of it. */
            noise: Schemas["DiffNoise"][];
            /**
             * Format: int64
             * @description Bytes of the files among them, before and after.
             */
            oldBytes: number;
            to: Schemas["DiffSide"];
        };
        /** @enum {string} */
        DiffAspect: "content" | "kind" | "mode" | "owner" | "link" | "device" | "xattr";
        /** @description One path. */
        DiffEntry: {
            change: Schemas["ChangeKind"];
            lines?: Schemas["DiffLines"] | null;
            new?: Schemas["DiffNode"] | null;
            old?: Schemas["DiffNode"] | null;
            path: string;
            /** @description In what it has changed; empty for what was added or deleted. */
            what: Schemas["DiffAspect"][];
        };
        DiffLines: {
            /** Format: int64 */
            added: number;
            /** @description They are more than this. */
            cut: boolean;
            /** @description As `diff -u` writes them, without the names above. */
            hunks: string;
            /** Format: int64 */
            removed: number;
        };
        /** @description What is, or was, at a path. */
        DiffNode: {
            /** Format: int32 */
            gid: number;
            kind: Schemas["FileKind"];
            /** @description Octal permission bits, e.g. `0644`. */
            mode: string;
            /** Format: int64 */
            size: number;
            /** @description Of a symbolic link. */
            target?: string | null;
            /** Format: int32 */
            uid: number;
            /** @description Names of extended attributes. */
            xattrs?: string[];
        };
        DiffNoise: {
            /** Format: int64 */
            count: number;
            /** @description What it is, for people: `caches`, `logs`. */
            what: string;
        };
        /**
         * @description `POST /v1/diff`: what is different in one tree of files from another. `GET /v1/diff` takes the same as query parameters.
         *
         *     Each side is a sandbox, a snapshot or an image, by id, by a unique beginning of it, or by name; a name of several kinds
         *     means the sandbox first, then the snapshot. `sandbox:`, `snapshot:` or `image:` before it says which.
         */
        DiffRequest: {
            /** @description Noise too: caches, temporary files, logs, pid files. */
            all?: boolean;
            /** @description With the lines of text files that differ. */
            content?: boolean;
            /** @description What is there before. */
            from: string;
            /** @description Only paths that one of these patterns matches: `*.py`, `/srv/**`. */
            globs?: string[];
            /**
             * Format: int32
             * @description Entries at most; 10,000 when absent. More are only counted.
             */
            limit?: number | null;
            /** @description What is there after. */
            to: string;
        };
        DiffSide: {
            id: string;
            kind: Schemas["DiffSideKind"];
        };
        /** @enum {string} */
        DiffSideKind: "sandbox" | "snapshot" | "image";
        Driver: {
            available: Schemas["Ability"];
            diskRate?: Schemas["Ability"] | null;
            hibernate: Schemas["Ability"];
            limits: Schemas["Ability"];
            name: string;
            /** @description By what its machines run, where there is more than one way. */
            note?: string | null;
            pause: Schemas["Ability"];
            volumes?: Schemas["Ability"] | null;
        };
        /** @description A request that waits for somebody to agree. */
        EgressApproval: {
            /** @description How far a yes goes. */
            approve: Schemas["Approve"];
            host: string;
            /**
             * Format: int64
             * @description In its sandbox, until its network is opened anew.
             */
            id: number;
            method: string;
            /** @description Without its query. */
            path: string;
            /** Format: int32 */
            port: number;
            /** @description The rule that asks, in one line. */
            rule: string;
            /** @description The secret that would go along. */
            secret?: string | null;
            /**
             * Format: int64
             * @description Since when it waits.
             */
            sinceMs: number;
        };
        /** @description The short form of one rule. */
        EgressAuth: {
            /** @description A secret's name. */
            authRef: string;
            /** @description A host, as in a rule. */
            destination: string;
        };
        EgressCounters: {
            /** Format: int64 */
            allowed: number;
            /** Format: int64 */
            connectionsOpen: number;
            /** Format: int64 */
            denied: number;
            /** Format: int64 */
            failed: number;
            /**
             * Format: int64
             * @description Log entries that were dropped since they came too fast.
             */
            logDropped: number;
            /** Format: int64 */
            receivedBytes: number;
            /** Format: int64 */
            sentBytes: number;
        };
        /**
         * @description Something that was not let through while an exec ran. By time, not by process: a neighbour of the exec in the same
         *     sandbox may have asked.
         */
        EgressDenied: {
            /** @description The name that was asked for, or the address where there was none. */
            host: string;
            /**
             * Format: int32
             * @description Absent when it was the name that was refused.
             */
            port?: number | null;
            reason: string;
        };
        /** @description What may be reached. */
        EgressDocument: {
            /** @description Rules about connections, such as `tcp://db.example.com:5432`: not decrypted. */
            allow?: string[];
            default?: Schemas["Otherwise"] | null;
            /** @description Blocks of addresses that are not dialled, such as `203.0.113.0/24`, unless `allow` names the address or its block. */
            deny?: string[];
            /** @description Rules about requests. No request may be covered by two of them. */
            rules?: Schemas["RuleDocument"][];
            /** @description Names of host sets in the daemon's configuration. */
            sets?: string[];
        };
        /** @description One line of a sandbox's egress log. */
        EgressEntry: {
            /** @description Where it was connected to. */
            address?: string | null;
            /** Format: int64 */
            atMs: number;
            /** Format: int64 */
            durationMs?: number | null;
            /** @description The name that was asked for, or the address where there was none. */
            host: string;
            kind: Schemas["EgressKind"];
            /** Format: int32 */
            port?: number | null;
            /** @description Why not, or what went wrong. */
            reason?: string | null;
            /** Format: int64 */
            receivedBytes?: number | null;
            /** @description The rule that let it through. */
            rule?: string | null;
            /**
             * Format: int64
             * @description Of a connection that has ended: bytes the sandbox sent and received, and how long it lasted.
             */
            sentBytes?: number | null;
            /**
             * Format: int64
             * @description Grows; names a place in the log.
             */
            seq: number;
            /**
             * Format: int64
             * @description How many alike it stands for: repeats are counted instead of listed.
             */
            times: number;
            verdict: Schemas["EgressVerdict"];
        };
        /** @description What would happen, without anything being looked up or dialled. */
        EgressExplanation: {
            allowed: boolean;
            /** @description In words. */
            because: string;
            /** @description What to do to have it otherwise. */
            hint?: string | null;
            /** @description As it was understood. */
            host: string;
            mode: Schemas["NetworkMode"];
            /** Format: int32 */
            port: number;
            protocol: Schemas["EgressKind"];
            request?: Schemas["EgressRequestExplained"] | null;
            /** @description The rule that decides, if one does. */
            rule?: string | null;
            /** @description The host set the rule is of; absent for the sandbox's own rules. */
            set?: string | null;
        };
        /** @enum {string} */
        EgressKind: "dns" | "tls" | "http" | "tcp";
        /** @description `POST …/egress/explain` and `…/egress/test`. */
        EgressQuestion: {
            /** @description Of the request that is asked about, where its host is decrypted; `GET` when absent. */
            method?: string | null;
            /** @description `https://host/path`, `http://host`, `tcp://host:port`, `host:port` or `host`, which means HTTPS. */
            target: string;
        };
        /** @description What would be done to one request. */
        EgressRequestExplained: {
            /** @description Whether a person is asked before. */
            approval: boolean;
            /** @description Whether it would be decrypted. */
            decrypted: boolean;
            left?: Schemas["BudgetLeft"] | null;
            method: string;
            /** @description As it is matched. */
            path: string;
            /** @description The secret that would be put in. */
            secret?: string | null;
            /** @description Where: `header authorization`, `query key`, … */
            slot?: string | null;
        };
        /** @description A rule about requests, and how it stands. */
        EgressRequestRule: {
            budget?: Schemas["BudgetDocument"] | null;
            left?: Schemas["BudgetLeft"] | null;
            /** @description Why it lets nothing through now, if so: its secret is gone, cannot be opened, or may not go there any more. */
            problem?: string | null;
            rule: Schemas["RuleDocument"];
            /** @description In one line. */
            text: string;
        };
        EgressRuleInForce: {
            rule: string;
            /** @description Absent for the sandbox's own. */
            set?: string | null;
        };
        /** @description `GET …/egress`: what is in force, and what came of it since the sandbox started. */
        EgressStatus: {
            counters?: Schemas["EgressCounters"] | null;
            /** @description Host sets it names that the configuration does not have any more. */
            missingSets: string[];
            network: Schemas["Network"];
            /** @description Its rules about requests, and how they stand. */
            requests?: Schemas["EgressRequestRule"][];
            /** @description Every rule in force, those of its host sets included. */
            rules: Schemas["EgressRuleInForce"][];
        };
        EgressStep: {
            detail: string;
            ok: boolean;
            /** @description `decide`, `resolve`, `check`, `dial`. */
            step: string;
            /** Format: int64 */
            tookUs: number;
        };
        /** @description What did happen when the egress process tried. */
        EgressTrial: {
            hint?: string | null;
            host: string;
            /** Format: int32 */
            port: number;
            /** @description Whether it came all the way. */
            reached: boolean;
            /** @description In order; the last one is where it ended. */
            steps: Schemas["EgressStep"][];
        };
        /** @enum {string} */
        EgressVerdict: "allowed" | "denied" | "failed" | "closed";
        /** @description Which entries; everything is optional, and all that is given must hold. */
        EntryFilter: {
            agent?: string | null;
            /** @description Among these. */
            ids?: string[];
            /** @description Those in the cold tier too. */
            includeCold?: boolean;
            /** @description Those that others replaced too. */
            includeSuperseded?: boolean;
            /** @description Of one of these kinds. */
            kinds?: string[];
            /** @description What their metadata must say. */
            metadata?: Schemas["MetadataTest"][];
            session?: string | null;
            /**
             * Format: int64
             * @description Happened at this time or later.
             */
            sinceMs?: number | null;
            source?: string | null;
            /**
             * Format: int64
             * @description Happened before this time.
             */
            untilMs?: number | null;
            user?: string | null;
        };
        /** @enum {string} */
        EntryPolicy: "ours" | "theirs" | "both";
        /**
         * @description `POST /v1/memory/{of}/erase`: what is erased is gone from every version, branch, snapshot and index of the space,
         *     and from the disk. Only a mark without content stays. Give exactly one of `ids`, `filter` and `older_than_seconds`.
         */
        EraseEntries: {
            /** @description Only say what would be erased. */
            dryRun?: boolean;
            filter?: Schemas["EntryFilter"] | null;
            ids?: string[];
            /**
             * Format: int64
             * @description What happened longer ago than this.
             */
            olderThanSeconds?: number | null;
        };
        /** @description Answer of erasing. Copies in other spaces, in exports and in backups are out of its reach, and not counted. */
        ErasedEntries: {
            /**
             * Format: int64
             * @description On how many branches they lay: forks and restored selves of the sandbox had them as well.
             */
            branches: number;
            /**
             * @description Entries of the space that say the very same under another id, or were joined with one of them by a merge, and are
             *     still there. The first 1,000.
             */
            copies: string[];
            /**
             * Format: int64
             * @description How many in all, summaries included.
             */
            count: number;
            dryRun: boolean;
            /** @description The first 1,000 of those that were meant. */
            ids: string[];
            /** @description Summaries that were made of them, and went along. The first 1,000. */
            summaries: string[];
        };
        /** @description Body of every answer that is not a success. */
        ErrorBody: {
            error: Schemas["ErrorDetail"];
        };
        /**
         * @description Stable: codes are only added. Each has one HTTP status.
         * @enum {string}
         */
        ErrorCode: "invalid_request" | "unauthorized" | "forbidden" | "not_found" | "no_such_route" | "method_not_allowed" | "conflict" | "not_running" | "exec_ended" | "idempotency_mismatch" | "idempotency_in_flight" | "too_large" | "unsupported_media_type" | "range_not_satisfiable" | "unprocessable" | "no_such_program" | "cannot_execute" | "too_many" | "busy" | "no_space" | "guest_unreachable" | "port_closed" | "bad_gateway" | "gateway_timeout" | "not_dumpable" | "restore_failed" | "sandbox_asleep" | "snapshot_in_use" | "damaged" | "unsupported" | "internal";
        ErrorDetail: {
            code: Schemas["ErrorCode"];
            /** @description What to do about it. */
            hint?: string | null;
            /** @description What was tried and on what. */
            message: string;
        };
        /** @description One line of `GET /v1/events`. */
        Event: {
            /** Format: int64 */
            atMs: number;
            detail: Record<string, unknown>;
            execId?: string | null;
            /** @description `sandbox.created`, `sandbox.stopped`, `exec.started`, … */
            kind: string;
            sandboxId?: string | null;
            /**
             * Format: int64
             * @description Grows by one with each event; pass the last one seen as `since`.
             */
            seq: number;
        };
        Exec: {
            argv: string[];
            /**
             * @description What its sandbox was not let through to while it ran, at most 16, each once. By time, not by process: whatever
             *     else ran in the sandbox counts too. Not told in lists.
             */
            egressDenied?: Schemas["EgressDenied"][];
            /** Format: int64 */
            endedMs?: number | null;
            id: string;
            outcome?: Schemas["ExecOutcome"] | null;
            /** Format: int64 */
            outputDropped: number;
            /**
             * Format: int64
             * @description One past the last byte of output; the first byte still held; bytes nobody read and the ring dropped.
             */
            outputEnd: number;
            /** Format: int64 */
            outputStart: number;
            /**
             * Format: int32
             * @description Inside the sandbox.
             */
            pid?: number | null;
            /**
             * @description What is remembered of failures like this one, where it failed and that is worth showing. Told once, to those who
             *     waited for it or were attached to its output.
             */
            related?: Schemas["RelatedMemory"][];
            rollback?: Schemas["Rollback"] | null;
            sandboxId: string;
            /**
             * @description The snapshot taken just before it started, as long as it is there: with `snapshot`, or until it is known that
             *     there is nothing to roll back. Not told in lists.
             */
            snapshot?: string | null;
            /** Format: int64 */
            startedMs: number;
            state: Schemas["ExecState"];
            terminal: boolean;
        };
        ExecOutcome: {
            /** Format: int64 */
            cpuUs: number;
            /** Format: int32 */
            exitCode?: number | null;
            /** @description Most likely the kernel, for want of RAM. */
            killedFromOutside: boolean;
            /** Format: int64 */
            ramMaxBytes: number;
            /** @description `SIGKILL` and the like. */
            signal?: string | null;
            timedOut: boolean;
            /** Format: int64 */
            wallUs: number;
        };
        /** @enum {string} */
        ExecState: "running" | "ended" | "lost";
        /** @description One path that both changed, each in its way. */
        FileConflict: {
            base?: Schemas["DiffNode"] | null;
            kind: Schemas["MergeConflictKind"];
            ours?: Schemas["DiffNode"] | null;
            path: string;
            theirs?: Schemas["DiffNode"] | null;
        };
        FileEntry: {
            /** Format: int32 */
            gid: number;
            group?: string | null;
            kind: Schemas["FileKind"];
            /** @description Octal permission bits, e.g. `0644`. */
            mode: string;
            /** Format: int64 */
            modifiedMs: number;
            name: string;
            path: string;
            /** Format: int64 */
            size: number;
            target?: string | null;
            /** Format: int32 */
            uid: number;
            user?: string | null;
        };
        /** @enum {string} */
        FileKind: "file" | "directory" | "symlink" | "other";
        FileList: {
            entries: Schemas["FileEntry"][];
        };
        /** @description `POST /v1/memory/{of}/skills/search`. */
        FindSkills: {
            /**
             * Format: int32
             * @description 10 when absent.
             * @default 10
             */
            limit?: number | null;
            query: string;
        };
        /**
         * @description `POST /v1/memory/{of}/forget`: what is forgotten is found no more, from now on and on this branch; `as_of`, the
         *     history and snapshots still have it. Give exactly one of `ids`, `filter` and `older_than_seconds`.
         */
        ForgetEntries: {
            /** @description Only say what would be forgotten. */
            dryRun?: boolean;
            filter?: Schemas["EntryFilter"] | null;
            ids?: string[];
            /**
             * Format: int64
             * @description What happened longer ago than this.
             */
            olderThanSeconds?: number | null;
        };
        /** @description Answer of forgetting. */
        ForgottenEntries: {
            /**
             * Format: int64
             * @description How many in all.
             */
            count: number;
            dryRun: boolean;
            /** @description The first 1,000 of them. */
            ids: string[];
        };
        /** @description `POST /v1/sandboxes/{sandbox}/fork`: children that go on from where it is now. */
        ForkSandbox: {
            /**
             * Format: int32
             * @default 1
             */
            count?: number;
            /** @description Delete each child, with all it holds, as soon as it stops. */
            ephemeral?: boolean;
            /** @description Leave the processes out: the children boot from the files. */
            filesOnly?: boolean;
            /** @description The children's labels; the parent's when absent. */
            labels?: {
                [key: string]: string;
            } | null;
            /** @description None, one per child, or one for several, which are then called `NAME-1`, `NAME-2` and so on. */
            names?: string[];
            /**
             * Format: int64
             * @description Delete each child this long after creation, whatever it does.
             */
            ttlSeconds?: number | null;
        };
        /** @description Answer of a fork. At least one child came to life. */
        Forked: {
            children: Schemas["Sandbox"][];
            /** @description Why others did not, one for each. */
            failed: Schemas["ErrorDetail"][];
            /**
             * Format: int64
             * @description How long the parent stood still, in microseconds.
             */
            pauseUs: number;
            /** @description The snapshot that the children stand on. */
            snapshot: string;
        };
        FoundSkill: {
            /**
             * Format: double
             * @description How well it fits, from 0 to 1.
             */
            relevance: number;
            /**
             * Format: double
             * @description How well it fits and how well it went, from 0 to 1.
             */
            score: number;
            skill: Schemas["Skill"];
            /** @description Where it was found: a space's name, or the sandbox's whose own it is. */
            space: string;
        };
        FoundSkills: {
            /** @description Best first. */
            hits: Schemas["FoundSkill"][];
        };
        /**
         * @description What is done about it.
         * @enum {string}
         */
        GarbageAction: "keep" | "remove";
        GarbageItem: {
            action: Schemas["GarbageAction"];
            /**
             * Format: int64
             * @description What it costs, in bytes of disk; RAM included where it holds any.
             */
            bytes: number;
            /** @description Why the action could not be taken. */
            failure?: string | null;
            id: string;
            kind: Schemas["GarbageKind"];
            name?: string | null;
            /** @description Why it counts as stale, and what it holds. */
            why: string;
        };
        /** @enum {string} */
        GarbageKind: "sandbox" | "snapshot" | "image";
        /** @description What is stale, and what becomes of it. */
        GarbageReport: {
            /** @description Whether the actions were taken, or only named. */
            applied: boolean;
            items: Schemas["GarbageItem"][];
            /** Format: int64 */
            unusedForSeconds: number;
        };
        /** @description `GET /v1/host`: what this host can do. */
        HostInfo: {
            /** @description The driver of a sandbox whose creator does not say. */
            defaultDriver: string;
            drivers: Schemas["Driver"][];
            /** Format: int64 */
            poolFreeBytes: number;
            /** Format: int64 */
            poolTotalBytes: number;
            /** Format: int64 */
            sandboxes: number;
            /**
             * Format: int64
             * @description Sandboxes that cannot be used yet: the daemon was restarted and is still finishing what it was doing to them.
             */
            sandboxesRecovering?: number;
            /** Format: int64 */
            sandboxesRunning: number;
            version: string;
        };
        /** @description What sandboxes start from. */
        Image: {
            config: Schemas["ImageConfig"];
            /** Format: int64 */
            createdMs: number;
            id: string;
            /** @description Its first name; absent when newer images took all its names over. */
            name?: string | null;
            names: string[];
            /** @description `debian`, `pull`, `import`, `build` or `commit`. */
            origin: string;
            /** @description A reference with its digest, a base image, a sandbox. */
            originOf?: string | null;
            /**
             * Format: int64
             * @description Bytes of its files, those it shares with other images included.
             */
            sizeBytes: number;
        };
        /** @description What an image says about the processes run in it. */
        ImageConfig: {
            cmd: string[];
            entrypoint: string[];
            env: {
                [key: string]: string;
            };
            exposedPorts: string[];
            labels: {
                [key: string]: string;
            };
            user?: string | null;
            workdir?: string | null;
        };
        /** @description Absent stays as it is. */
        ImageConfigChange: {
            cmd?: string[] | null;
            entrypoint?: string[] | null;
            /** @description Added to what is there. */
            env?: {
                [key: string]: string;
            };
            labels?: {
                [key: string]: string;
            };
            user?: string | null;
            workdir?: string | null;
        };
        /** @description `GET /v1/images/{image}`: everything about one image. */
        ImageDetail: Schemas["Image"] & {
            /** @description What was done, oldest first. */
            history: Schemas["ImageStep"][];
            /** @description Lowest first. */
            layers: Schemas["ImageLayer"][];
            /**
             * Format: int64
             * @description Bytes of layers that no other image stands on: what removing it would free at least.
             */
            uniqueBytes: number;
            /** @description Sandboxes made from it, a hundred at most. */
            usedBy: string[];
        };
        /**
         * @description Where a new image comes from.
         * @enum {string}
         */
        ImageFrom: "default" | "pull" | "packages" | "recipe" | "sandbox";
        /** @description A layer that an image stands on. It is stored once, however many images do. */
        ImageLayer: {
            /** @description Chain id, or the key of a build's step. */
            key: string;
            /** Format: int64 */
            sizeBytes: number;
            what: string;
        };
        ImageStep: {
            /** Format: int64 */
            sizeBytes: number;
            what: string;
        };
        /** @description Answer of an import. */
        ImportedMemory: {
            /**
             * Format: int64
             * @description Stored now.
             */
            added: number;
            /**
             * Format: int64
             * @description Was erased here, and stays so.
             */
            erased: number;
            /**
             * Format: int64
             * @description There already, as new or newer.
             */
            existed: number;
            /**
             * Format: int64
             * @description Lines read.
             */
            lines: number;
            /**
             * Format: int64
             * @description A newer version of what was there.
             */
            updated: number;
        };
        /** @description What `POST /v1/snapshots` took in. */
        ImportedSnapshot: {
            /**
             * Format: int64
             * @description Bytes of the file.
             */
            bytes: number;
            /**
             * Format: int64
             * @description Bytes of all content, holes not counted.
             */
            contentBytes: number;
            /**
             * Format: int64
             * @description Names in the file.
             */
            entries: number;
            /** @description What the file was, in 64 hexadecimal digits: later exports may hold no more than what differs from it. */
            identity: string;
            /** @description The snapshot's id where it came from. */
            origin: string;
            snapshot: Schemas["Snapshot"];
        };
        /**
         * @description How far a layer or step is.
         * @enum {string}
         */
        ItemState: "downloading" | "unpacking" | "running" | "cached" | "done";
        Key: {
            /** Format: int64 */
            createdMs: number;
            /** Format: int64 */
            expiresMs?: number | null;
            id: string;
            /** Format: int64 */
            lastUsedMs?: number | null;
            name: string;
            /** @description First characters of the key, to recognise it by. */
            prefix: string;
            /** Format: int64 */
            revokedMs?: number | null;
            sandboxId?: string | null;
            scope: Schemas["Scope"];
        };
        /** @description `POST /v1/memory/{of}/kv-batch`: all of it, or nothing. */
        KvBatch: {
            ops: Schemas["KvOperation"][];
        };
        /** @description Answer of a batch: what each step left under its key, in order; `null` where nothing is left. */
        KvChanged: {
            items: (Schemas["KvItem"] | null)[];
        };
        /** @description One line of `GET /v1/memory/{of}/kv-watch`. */
        KvEvent: {
            item: Schemas["KvItem"];
            /** @enum {string} */
            kind: "set";
            /** Format: int64 */
            seq: number;
        } | {
            key: string;
            /** @enum {string} */
            kind: "deleted";
            /** Format: int64 */
            seq: number;
        } | {
            /** Format: int64 */
            atMs: number;
            key: string;
            /** @enum {string} */
            kind: "expired";
            /** Format: int64 */
            seq: number;
        } | {
            /** @enum {string} */
            kind: "reset";
            /** Format: int64 */
            seq: number;
        } | {
            /** @enum {string} */
            kind: "heartbeat";
            /** Format: int64 */
            seq: number;
        } | {
            error: Schemas["ErrorDetail"];
            /** @enum {string} */
            kind: "error";
        };
        /** @description `POST /v1/memory/{of}/kv-increment`. What is not there counts from 0. */
        KvIncrement: {
            /**
             * Format: double
             * @description 1 when absent. Whole numbers stay whole.
             * @default 1
             */
            by?: number;
            key: string;
            /**
             * Format: int64
             * @description Goes away by itself after this time; keeps the time it had when absent.
             */
            ttlSeconds?: number | null;
        };
        /** @description A value and its version. */
        KvItem: {
            /** Format: int64 */
            createdMs: number;
            /**
             * Format: int64
             * @description When it goes away by itself.
             */
            expiresMs?: number | null;
            key: string;
            /** Format: int64 */
            updatedMs: number;
            /** @description Any JSON. */
            value: unknown;
            /**
             * Format: int64
             * @description Number in the log of this version: give it as `if_version` to change nothing but this.
             */
            version: number;
        };
        /** @description One step of a batch. A step whose `if_version` or `if_absent` does not hold undoes the whole batch. */
        KvOperation: {
            ifAbsent?: boolean;
            /** Format: int64 */
            ifVersion?: number | null;
            key: string;
            /** @enum {string} */
            op: "set";
            /** Format: int64 */
            ttlSeconds?: number | null;
            value: unknown;
        } | {
            /** Format: int64 */
            ifVersion?: number | null;
            key: string;
            /** @enum {string} */
            op: "delete";
        } | {
            /**
             * Format: double
             * @default 1
             */
            by?: number;
            key: string;
            /** @enum {string} */
            op: "increment";
            /** Format: int64 */
            ttlSeconds?: number | null;
        } | {
            ifAbsent?: boolean;
            /** Format: int64 */
            ifVersion?: number | null;
            key: string;
            /** @enum {string} */
            op: "check";
        };
        /** @enum {string} */
        KvPolicy: "ours" | "theirs" | "fail";
        /** @description `PUT /v1/memory/{of}/kv/{key}`. */
        KvSet: {
            /** @description Only if there is none. */
            ifAbsent?: boolean;
            /**
             * Format: int64
             * @description Only if this is its version still; else a conflict that says which it is.
             */
            ifVersion?: number | null;
            /**
             * Format: int64
             * @description Goes away by itself after this time; stays when absent.
             */
            ttlSeconds?: number | null;
            /** @description Any JSON, 256 KiB at most. */
            value: unknown;
        };
        /** @description One version of a key. */
        KvVersion: {
            /** Format: int64 */
            atMs: number;
            item?: Schemas["KvItem"] | null;
            /** Format: int64 */
            version: number;
        };
        /** @description Its words. */
        LexicalWhy: {
            /**
             * Format: int64
             * @description Place among the arm's finds, from 1.
             */
            rank: number;
            /** Format: float */
            score: number;
            /** @description The words of the query that it has. */
            terms?: string[];
        };
        Limits: {
            /**
             * Format: int32
             * @description Thousandths of a core.
             */
            cpuMillis: number;
            /** Format: int32 */
            diskMib: number;
            /**
             * Format: int32
             * @description Absent: as fast as the host is.
             */
            diskMibPerSecond?: number | null;
            /**
             * Format: int32
             * @description Each way by itself. Absent: as fast as the host is.
             */
            networkMibPerSecond?: number | null;
            /** Format: int32 */
            pids: number;
            /** Format: int32 */
            ramMib: number;
        };
        /** @description Limits to set; what is absent stays, or takes the daemon's default. */
        LimitsRequest: {
            /**
             * Format: int32
             * @description Thousandths of a core.
             */
            cpuMillis?: number | null;
            /** Format: int32 */
            diskMib?: number | null;
            /**
             * Format: int32
             * @description What it reads from its disk and writes to it in a second, together; without a bound when absent. 0 in an update
             *     takes the bound away. Not every driver can hold a disk to a rate: `GET /v1/host` tells.
             */
            diskMibPerSecond?: number | null;
            /**
             * Format: int32
             * @description What it sends in a second, and as much again for what it receives; without a bound when absent. 0 in an update
             *     takes the bound away. Execs and files are not counted: they are not its network.
             */
            networkMibPerSecond?: number | null;
            /**
             * Format: int32
             * @description Processes and threads.
             */
            pids?: number | null;
            /** Format: int32 */
            ramMib?: number | null;
        };
        /** @description `POST …/files/mkdir`. */
        MakeDirectory: {
            /** @description Octal, e.g. `0755`. */
            mode?: string | null;
            /** @description Make missing parents; an existing directory is fine. */
            parents?: boolean;
            path: string;
            user?: string | null;
        };
        /**
         * @description What became of an entry.
         * @enum {string}
         */
        MemoryChange: "written" | "forgotten" | "cooled" | "warmed" | "repeated";
        /** @description `POST /v1/memory/{of}/check` and `…/rebuild`: whether a space is what was written, and all its indices agree. */
        MemoryCheck: {
            ok: boolean;
            /** @description What was compared. */
            parts: Schemas["MemoryPart"][];
            /** @description What is wrong, if anything is. The first 100. */
            problems: string[];
            /** Format: int64 */
            tookMs: number;
        };
        /** @description Something remembered, as it is now or was at `as_of`. */
        MemoryEntry: {
            agent?: string | null;
            artifacts: string[];
            /**
             * Format: int64
             * @description When it happened.
             */
            atMs: number;
            /** @description The line of memory that it was written on: the sandbox's own, or one that it came from. */
            branch: string;
            /** @description Old and little used: search shows it to those who ask (`include_cold`). */
            cold: boolean;
            /**
             * Format: int64
             * @description How often it happened: repeats are counted rather than stored again.
             */
            count: number;
            id: string;
            /** Format: float */
            importance: number;
            kind: string;
            links: string[];
            metadata: Record<string, unknown>;
            /**
             * Format: int64
             * @description Number in the log of this version.
             */
            seq: number;
            session?: string | null;
            source?: string | null;
            /**
             * Format: int64
             * @description When it was stored.
             */
            storedMs: number;
            supersededBy?: string | null;
            supersedes: string[];
            /** @description As it was given. Data that somebody stored, not instructions. */
            text: string;
            user?: string | null;
            /** Format: int64 */
            validFromMs?: number | null;
            /** Format: int64 */
            validToMs?: number | null;
            /**
             * Format: int64
             * @description 1, and one more with each update.
             */
            version: number;
        };
        MemoryHit: {
            /** @description Ids of entries that say nearly the same, shown by this one. */
            collapsed?: string[];
            entry: Schemas["MemoryEntry"];
            /**
             * Format: float
             * @description From 0 to 1.
             */
            score: number;
            /** @description Where it was found: a space's name, or the sandbox's whose own it is. */
            space: string;
            why: Schemas["SearchWhy"];
        };
        /**
         * @description One line of `GET /v1/memory/{of}/export`, and of what `POST …/import` takes: `line` says what it is, `header` or
         *     `entry`, and an entry's fields are those of a `MemoryEntry`. Ids are kept, so importing twice stores once.
         */
        MemoryLine: Record<string, unknown>;
        MemoryPart: {
            /** Format: int64 */
            count: number;
            /** @description `entries`, `words`, `vectors`, `pending`, `branches`, `artifacts`, … */
            part: string;
        };
        /** @description What a sandbox remembers and where; what is absent stays, or takes the default. */
        MemoryRequest: {
            /** @description Spaces searched as well, all of them: the list replaces the one there is. 8 at most. */
            attached?: Schemas["AttachedSpace"][] | null;
            remember?: Schemas["Remember"] | null;
            /**
             * @description Name or id of a space that outlives the sandbox, to remember in instead of its own; `own` for its own, the
             *     default. Only its own is rolled back, restored and forked with it.
             */
            space?: string | null;
        };
        /** @description What was said or done together. */
        MemorySession: {
            /** @description Nothing joins it any more unless it is named. */
            closed: boolean;
            /** Format: int64 */
            entries: number;
            /** @description How its first entry begins. */
            first: string;
            /** @description How its last entry begins. */
            last: string;
            /** Format: int64 */
            lastMs: number;
            /** Format: int64 */
            openedMs: number;
            session: string;
        };
        /** @description `GET /v1/memory/{of}`. */
        MemoryStats: {
            /** Format: int64 */
            artifacts: number;
            /** @description Spaces that are searched as well. */
            attached: Schemas["AttachedSpace"][];
            /** @description The line of it that is seen here. */
            branch: string;
            byKind: {
                [key: string]: number;
            };
            /**
             * Format: int64
             * @description Of these, in the cold tier.
             */
            cold: number;
            /**
             * Format: int64
             * @description Entries, those in the cold tier and those that others replaced included.
             */
            entries: number;
            /** Format: int64 */
            kvKeys: number;
            /** @description Its name; absent for a sandbox's own. */
            name?: string | null;
            /** @description The sandbox it was asked for by, if it was. */
            sandbox?: string | null;
            /**
             * Format: int64
             * @description The last number of the log that is seen here; 0: nothing.
             */
            seq: number;
            /** Format: int64 */
            sessions: number;
            /** Format: int64 */
            skills: number;
            /** @description Id of the space. */
            space: string;
            /**
             * Format: int64
             * @description Of these, replaced by others.
             */
            superseded: number;
            /**
             * Format: int64
             * @description Of the texts of these entries.
             */
            textBytes: number;
            vectors: Schemas["VectorCoverage"];
        };
        /** @description One step in the life of an entry. */
        MemoryVersion: {
            /** @description The line of memory that it was written on. */
            branch: string;
            change: Schemas["MemoryChange"];
            entry?: Schemas["MemoryEntry"] | null;
            /**
             * Format: int64
             * @description Its number in the log.
             */
            seq: number;
            /** Format: int64 */
            storedMs: number;
            /**
             * Format: int64
             * @description With `repeated`: how often.
             */
            times?: number | null;
        };
        /** @description A key that both changed. */
        MergeConflict: {
            key: string;
            /** @description What it is here, cut short; absent where it was deleted. */
            ours?: string | null;
            /** @description Whose is there now. */
            taken: Schemas["KvPolicy"];
            theirs?: string | null;
        };
        /** @enum {string} */
        MergeConflictKind: "both-changed" | "both-added" | "deleted-by-ours" | "deleted-by-theirs" | "kind" | "attributes" | "directory";
        /** @description `POST /v1/memory/{of}/merge`: brings what a fork remembered back. */
        MergeMemory: {
            /** @description Only say what would happen. */
            dryRun?: boolean;
            entries?: Schemas["EntryPolicy"] | null;
            /** @description Name or id of the sandbox to merge from: a fork, or one of the same descent. */
            from: string;
            kv?: Schemas["KvPolicy"] | null;
        };
        /** @enum {string} */
        MergeMemoryPolicy: "none" | "list" | "ours" | "theirs" | "both" | "fail";
        MergeOpenFile: {
            path: string;
            /**
             * Format: int32
             * @description As the host numbers it.
             */
            pid: number;
            program: string;
        };
        /** @enum {string} */
        MergePolicy: "fail" | "ours" | "theirs" | "union" | "text";
        /** @description `POST /v1/races/{race}/merge`. */
        MergeRace: {
            /** @description Only say what would happen. */
            dryRun?: boolean;
            memory?: Schemas["MergeMemoryPolicy"];
            policies?: Schemas["MergeRule"][];
            policy?: Schemas["MergePolicy"];
        };
        MergeRule: {
            /** @description Which paths: `*.md`, `/srv/**`. */
            glob: string;
            policy: Schemas["MergePolicy"];
        };
        /**
         * @description `POST /v1/sandboxes/{sandbox}/merge`: brings what a fork did into the sandbox, three-way against the snapshot that both
         *     came from.
         */
        MergeSandbox: {
            /** @description Noise too: caches, temporary files, logs, pid files. */
            all?: boolean;
            /** @description Name or id of the sandbox whose work is brought. */
            child: string;
            /** @description Only say what would happen. */
            dryRun?: boolean;
            /** @description What becomes of what the child remembers. */
            memory?: Schemas["MergeMemoryPolicy"];
            /** @description What is done where both changed the same path, by pattern; the first that matches counts. */
            policies?: Schemas["MergeRule"][];
            /** @description What is done where no pattern matches; `fail` when absent. */
            policy?: Schemas["MergePolicy"];
        };
        /** @description What a merge did, would do, or why it did nothing. */
        Merged: {
            /** @description Whether anything was changed. Not where there are conflicts. */
            applied: boolean;
            /** @description The snapshot that both came from. */
            base: string;
            /** @description Paths by what happens to them: `added`, `changed`, `deleted`, `merged` (lines of both). The first 10,000 of each. */
            changes: {
                [key: string]: string[];
            };
            child: string;
            /** @description Where there are any, nothing is merged. */
            conflicts: Schemas["FileConflict"][];
            /** @description There are more than are listed. */
            cut: boolean;
            dryRun: boolean;
            /** @description Absent where nothing was done. */
            id?: string | null;
            memory?: Schemas["MergedMemory"] | null;
            /** @description Files that one moved and the other changed: changed where they are now. */
            moved: Schemas["MovedFile"][];
            /** @description What the child changed and was left out, and how much of it. */
            noise: Schemas["DiffNoise"][];
            /** @description Files that were replaced or removed while processes of the parent have them open: these go on with the old ones. */
            open: Schemas["MergeOpenFile"][];
            parent: string;
            /**
             * Format: int64
             * @description How long the parent stood still, in microseconds.
             */
            pauseUs: number;
            /**
             * Format: int64
             * @description How many paths that are in all.
             */
            total: number;
            undo?: Schemas["Snapshot"] | null;
        };
        /** @description Answer of a merge. */
        MergedMemory: {
            /**
             * Format: int64
             * @description Entries that are new here.
             */
            added: number;
            /** Format: int64 */
            artifacts: number;
            /** @description What cannot both hold, and which of it is here now. The first 1,000. */
            contradictions: Schemas["Contradiction"][];
            dryRun: boolean;
            /**
             * Format: int64
             * @description Entries that said what was known, joined with what was there.
             */
            joined: number;
            /**
             * Format: int64
             * @description Keys taken over.
             */
            kv: number;
            /** @description Keys that both changed. The first 1,000. */
            kvConflicts: Schemas["MergeConflict"][];
            /** Format: int64 */
            skills: number;
            /**
             * Format: int64
             * @description Updates and forgettings taken over.
             */
            updated: number;
        };
        /** @enum {string} */
        MetadataOperator: "eq" | "ne" | "in" | "exists" | "lt" | "gt";
        /** @description One test of an entry's metadata. */
        MetadataTest: {
            operator?: Schemas["MetadataOperator"];
            /** @description A key, or keys with dots between them for what lies deeper. */
            path: string;
            /** @description What to compare with: a list for `in`, absent for `exists`. */
            value?: unknown;
        };
        /** @description A volume for a sandbox. */
        MountVolume: {
            /** @description `rw` when absent. */
            mode?: Schemas["VolumeMode"];
            /** @description The volume's name or id. */
            name: string;
            /** @description Where in the sandbox: absolute, and not a directory of the system's. */
            path: string;
        };
        /** @description `POST …/files/move`. */
        MoveFile: {
            from: string;
            to: string;
        };
        MovedFile: {
            from: string;
            to: string;
        };
        /** @description What was said or done just before and after it. */
        NeighbourWhy: {
            /** @description Ids of the neighbours that have words of the query, as far as known. */
            ids?: string[];
            /** Format: float */
            score: number;
        };
        /** @description What a sandbox may reach. */
        Network: {
            /** @description Its own rules, as they are written. */
            allow: string[];
            /** @description Blocks of addresses that are not dialled. */
            deny?: string[];
            mode: Schemas["NetworkMode"];
            /** @description Its rules about requests. */
            requests?: Schemas["RuleDocument"][];
            /** @description Names of host sets. */
            sets: string[];
        };
        /**
         * @description How far a sandbox may reach.
         * @enum {string}
         */
        NetworkMode: "none" | "allowlist" | "open";
        /**
         * @description What a new sandbox may reach. What is absent takes the daemon's default; rules or sets without a mode mean
         *     `allowlist`.
         */
        NetworkRequest: {
            /** @description Rules like `example.com`, `*.example.com:443`, `https://example.com`, `tcp://db.example.com:5432`. */
            allow?: string[] | null;
            /**
             * @description Blocks of addresses that are not dialled, such as `203.0.113.0/24`, whatever name leads to them. A rule about an
             *     address or a block is an exception.
             */
            deny?: string[] | null;
            mode?: Schemas["NetworkMode"] | null;
            /** @description Rules about requests, as in a policy document: which are decrypted, and what is put into them. */
            requests?: Schemas["RuleDocument"][] | null;
            /** @description Names of host sets in the daemon's configuration. */
            sets?: string[] | null;
        };
        /** @description Something to remember. */
        NewEntry: {
            agent?: string | null;
            /** @description Names or hashes of artifacts that belong to it. */
            artifacts?: string[];
            /**
             * Format: int64
             * @description When it happened; now when absent.
             */
            atMs?: number | null;
            /**
             * Format: float
             * @description From 0 to 1; 0.5 when absent. Counts in the ranking.
             * @default 0.5
             */
            importance?: number;
            /** @description Adding the same key again answers the entry that is there, whatever else is given. */
            key?: string | null;
            /**
             * @description A lower-case word: `note` when absent; also `fact`, `decision`, `observation`, `turn`, …
             * @default note
             */
            kind?: string;
            /** @description Ids of entries that it has to do with. */
            links?: string[];
            /** @description Anything to filter by. 16 KiB at most. */
            metadata?: Record<string, unknown>;
            /** @description What was said or done together; the open session when absent. */
            session?: string | null;
            /** @description Where it comes from: a file, an address, a program. */
            source?: string | null;
            /** @description Ids of entries that this one replaces: they are found only by those who ask for them. */
            supersedes?: string[];
            /** @description Kept verbatim. 64 KiB at most; what is larger belongs in an artifact. */
            text: string;
            user?: string | null;
            /**
             * Format: int64
             * @description From when it holds.
             */
            validFromMs?: number | null;
            /**
             * Format: int64
             * @description Until when it holds.
             */
            validToMs?: number | null;
        };
        /** @description `POST /v1/memory/{of}/skills`: a new skill, or a new version of one. */
        NewSkill: {
            /** @description What it does. */
            description: string;
            /** @description Lower-case letters, digits, `-`, `_` and `.`; not `search` or `promote`. */
            name: string;
            parameters?: Schemas["SkillParameter"][];
            /** @description Where it comes from. */
            source?: string | null;
            steps: Schemas["SkillStep"][];
            /** @description When it is of use: what somebody would be looking for. */
            whenToUse?: string;
        };
        /** @description Where a sandbox came from, when not from an image. */
        Origin: {
            kind: Schemas["OriginKind"];
            /** @description The sandbox that snapshot was taken of. */
            sandbox: string;
            /** @description The snapshot it goes on from. */
            snapshot: string;
        };
        /** @enum {string} */
        OriginKind: "fork" | "restore";
        /** @enum {string} */
        Otherwise: "deny" | "allow";
        /** @description One line of `GET …/output` as NDJSON. Exactly one of the parts is there. */
        OutputChunk: {
            /** @description The bytes in base64, when they are not. */
            base64?: string | null;
            /** @enum {string} */
            kind: "output";
            /** Format: int64 */
            offset: number;
            stream: Schemas["OutputStream"];
            /** @description The bytes, when they are UTF-8. */
            text?: string | null;
        } | {
            /** Format: int64 */
            from: number;
            /** @enum {string} */
            kind: "gap";
            /** Format: int64 */
            to: number;
        } | {
            exec: Schemas["Exec"];
            /** @enum {string} */
            kind: "exit";
        } | {
            /** @enum {string} */
            kind: "drained";
            /** Format: int64 */
            offset: number;
        } | {
            error: Schemas["ErrorDetail"];
            /** @enum {string} */
            kind: "error";
        };
        /** @enum {string} */
        OutputStream: "stdout" | "stderr";
        Page_Artifact: {
            items: {
                /** Format: int64 */
                atMs: number;
                /** Format: int64 */
                bytes: number;
                /** @description BLAKE3 of the bytes, in hexadecimal; also the `ETag`. */
                hash: string;
                mediaType: string;
                metadata: Record<string, unknown>;
                name: string;
                /**
                 * Format: int64
                 * @description Number in the log.
                 */
                seq: number;
                /**
                 * Format: int64
                 * @description 1, and one more each time it is put.
                 */
                version: number;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_AuditEvent: {
            items: {
                /** @description `egress.inject`, `exec.start`, `key.create`, `api.call`, … */
                action: string;
                /** @description Who did it: a key's id and name, `sandbox`, `daemon`. */
                actor?: string | null;
                /**
                 * Format: int64
                 * @description By the clock of who tells; the order is that of `index`.
                 */
                atMs: number;
                /**
                 * Format: int64
                 * @description From the host to the sandbox.
                 */
                bytesIn?: number | null;
                /**
                 * Format: int64
                 * @description From the sandbox to the host.
                 */
                bytesOut?: number | null;
                /** Format: int64 */
                durationMs?: number | null;
                host?: string | null;
                /**
                 * Format: int64
                 * @description Its place in the log, from 0, without gaps: the number of its leaf.
                 */
                index: number;
                method?: string | null;
                /** @description `allowed`, `denied`, `done` or `failed`. */
                outcome: string;
                /** @description Without its query. */
                path?: string | null;
                /** Format: int32 */
                port?: number | null;
                reason?: string | null;
                requestId?: string | null;
                /** @description The rule that decided. */
                rule?: string | null;
                sandboxId?: string | null;
                /** @description The name of a secret, never its value. */
                secret?: string | null;
                /**
                 * Format: int32
                 * @description Of the answer.
                 */
                status?: number | null;
                /** @description The id or name of whatever else it is about: a key, a snapshot, an exec. */
                target?: string | null;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_CodeContext: {
            items: {
                cwd: string;
                /**
                 * Format: int64
                 * @description Runs since it was made or restarted.
                 */
                executionCount: number;
                id: string;
                language: string;
                state: Schemas["CodeContextState"];
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_EgressApproval: {
            items: {
                /** @description How far a yes goes. */
                approve: Schemas["Approve"];
                host: string;
                /**
                 * Format: int64
                 * @description In its sandbox, until its network is opened anew.
                 */
                id: number;
                method: string;
                /** @description Without its query. */
                path: string;
                /** Format: int32 */
                port: number;
                /** @description The rule that asks, in one line. */
                rule: string;
                /** @description The secret that would go along. */
                secret?: string | null;
                /**
                 * Format: int64
                 * @description Since when it waits.
                 */
                sinceMs: number;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_EgressEntry: {
            items: {
                /** @description Where it was connected to. */
                address?: string | null;
                /** Format: int64 */
                atMs: number;
                /** Format: int64 */
                durationMs?: number | null;
                /** @description The name that was asked for, or the address where there was none. */
                host: string;
                kind: Schemas["EgressKind"];
                /** Format: int32 */
                port?: number | null;
                /** @description Why not, or what went wrong. */
                reason?: string | null;
                /** Format: int64 */
                receivedBytes?: number | null;
                /** @description The rule that let it through. */
                rule?: string | null;
                /**
                 * Format: int64
                 * @description Of a connection that has ended: bytes the sandbox sent and received, and how long it lasted.
                 */
                sentBytes?: number | null;
                /**
                 * Format: int64
                 * @description Grows; names a place in the log.
                 */
                seq: number;
                /**
                 * Format: int64
                 * @description How many alike it stands for: repeats are counted instead of listed.
                 */
                times: number;
                verdict: Schemas["EgressVerdict"];
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Exec: {
            items: {
                argv: string[];
                /**
                 * @description What its sandbox was not let through to while it ran, at most 16, each once. By time, not by process: whatever
                 *     else ran in the sandbox counts too. Not told in lists.
                 */
                egressDenied?: Schemas["EgressDenied"][];
                /** Format: int64 */
                endedMs?: number | null;
                id: string;
                outcome?: Schemas["ExecOutcome"] | null;
                /** Format: int64 */
                outputDropped: number;
                /**
                 * Format: int64
                 * @description One past the last byte of output; the first byte still held; bytes nobody read and the ring dropped.
                 */
                outputEnd: number;
                /** Format: int64 */
                outputStart: number;
                /**
                 * Format: int32
                 * @description Inside the sandbox.
                 */
                pid?: number | null;
                /**
                 * @description What is remembered of failures like this one, where it failed and that is worth showing. Told once, to those who
                 *     waited for it or were attached to its output.
                 */
                related?: Schemas["RelatedMemory"][];
                rollback?: Schemas["Rollback"] | null;
                sandboxId: string;
                /**
                 * @description The snapshot taken just before it started, as long as it is there: with `snapshot`, or until it is known that
                 *     there is nothing to roll back. Not told in lists.
                 */
                snapshot?: string | null;
                /** Format: int64 */
                startedMs: number;
                state: Schemas["ExecState"];
                terminal: boolean;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Image: {
            items: {
                config: Schemas["ImageConfig"];
                /** Format: int64 */
                createdMs: number;
                id: string;
                /** @description Its first name; absent when newer images took all its names over. */
                name?: string | null;
                names: string[];
                /** @description `debian`, `pull`, `import`, `build` or `commit`. */
                origin: string;
                /** @description A reference with its digest, a base image, a sandbox. */
                originOf?: string | null;
                /**
                 * Format: int64
                 * @description Bytes of its files, those it shares with other images included.
                 */
                sizeBytes: number;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Key: {
            items: {
                /** Format: int64 */
                createdMs: number;
                /** Format: int64 */
                expiresMs?: number | null;
                id: string;
                /** Format: int64 */
                lastUsedMs?: number | null;
                name: string;
                /** @description First characters of the key, to recognise it by. */
                prefix: string;
                /** Format: int64 */
                revokedMs?: number | null;
                sandboxId?: string | null;
                scope: Schemas["Scope"];
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_KvItem: {
            items: {
                /** Format: int64 */
                createdMs: number;
                /**
                 * Format: int64
                 * @description When it goes away by itself.
                 */
                expiresMs?: number | null;
                key: string;
                /** Format: int64 */
                updatedMs: number;
                /** @description Any JSON. */
                value: unknown;
                /**
                 * Format: int64
                 * @description Number in the log of this version: give it as `if_version` to change nothing but this.
                 */
                version: number;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_MemoryEntry: {
            items: {
                agent?: string | null;
                artifacts: string[];
                /**
                 * Format: int64
                 * @description When it happened.
                 */
                atMs: number;
                /** @description The line of memory that it was written on: the sandbox's own, or one that it came from. */
                branch: string;
                /** @description Old and little used: search shows it to those who ask (`include_cold`). */
                cold: boolean;
                /**
                 * Format: int64
                 * @description How often it happened: repeats are counted rather than stored again.
                 */
                count: number;
                id: string;
                /** Format: float */
                importance: number;
                kind: string;
                links: string[];
                metadata: Record<string, unknown>;
                /**
                 * Format: int64
                 * @description Number in the log of this version.
                 */
                seq: number;
                session?: string | null;
                source?: string | null;
                /**
                 * Format: int64
                 * @description When it was stored.
                 */
                storedMs: number;
                supersededBy?: string | null;
                supersedes: string[];
                /** @description As it was given. Data that somebody stored, not instructions. */
                text: string;
                user?: string | null;
                /** Format: int64 */
                validFromMs?: number | null;
                /** Format: int64 */
                validToMs?: number | null;
                /**
                 * Format: int64
                 * @description 1, and one more with each update.
                 */
                version: number;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_MemorySession: {
            items: {
                /** @description Nothing joins it any more unless it is named. */
                closed: boolean;
                /** Format: int64 */
                entries: number;
                /** @description How its first entry begins. */
                first: string;
                /** @description How its last entry begins. */
                last: string;
                /** Format: int64 */
                lastMs: number;
                /** Format: int64 */
                openedMs: number;
                session: string;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Port: {
            items: {
                /** @description Where it listens inside; empty while nothing does, or while the sandbox does not run. */
                addresses: string[];
                /** @description Its command line, cut to a sane length. */
                command?: string | null;
                /**
                 * Format: int32
                 * @description The process behind it, inside; absent where it cannot be told.
                 */
                pid?: number | null;
                /** Format: int32 */
                port: number;
                /** @description Its name. */
                process?: string | null;
                /** @description Whether anybody may open it, without a key. */
                published: boolean;
                /** @description Where HTTP reaches it: with a key, or, if it is published, without one. */
                url: string;
                /** @description Whose socket it is, inside. */
                user?: string | null;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Sandbox: {
            items: {
                /**
                 * Format: int64
                 * @description When it was last seen at work.
                 */
                activeMs?: number | null;
                /**
                 * Format: int64
                 * @description Since when it is paused or hibernated.
                 */
                asleepSinceMs?: number | null;
                /** Format: int64 */
                createdMs: number;
                driver: string;
                env: {
                    [key: string]: string;
                };
                ephemeral: boolean;
                /** Format: int64 */
                expiresMs?: number | null;
                /** @description Why it failed. */
                failure?: string | null;
                id: string;
                image: string;
                imageId: string;
                labels: {
                    [key: string]: string;
                };
                limits: Schemas["Limits"];
                memory?: Schemas["SandboxMemory"] | null;
                name?: string | null;
                /** @description What it may reach. */
                network?: Schemas["Network"];
                origin?: Schemas["Origin"] | null;
                /** @description Why it cannot be used yet: the daemon was restarted and is still finishing what it was doing to this sandbox. */
                recovering?: string | null;
                rotate?: Schemas["RotatePolicy"] | null;
                /** @description Names of its services. */
                services: string[];
                /** @description When it is put to sleep if it does no work. */
                sleep?: Schemas["SleepPolicy"];
                snapshotPolicy?: Schemas["SnapshotPolicy"] | null;
                /** Format: int64 */
                startedMs?: number | null;
                state: Schemas["SandboxState"];
                stopReason?: Schemas["StopReason"] | null;
                /** Format: int64 */
                stoppedMs?: number | null;
                user?: string | null;
                /** @description Volumes in it. */
                volumes?: Schemas["VolumeMount"][];
                workdir?: string | null;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Secret: {
            items: {
                allow: Schemas["SecretScope"][];
                /**
                 * Format: int64
                 * @description When its value was last set.
                 */
                changedMs: number;
                /** Format: int64 */
                createdMs: number;
                name: string;
                placeholder?: Schemas["SecretPlaceholder"] | null;
                slot: Schemas["SecretSlot"];
                /** @description Sandboxes whose rules name it. */
                usedBy: Schemas["SecretUser"][];
                /**
                 * Format: int64
                 * @description Raised by every new value.
                 */
                version: number;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Service: {
            items: {
                argv: string[];
                /** @description Its present or last run; its output is read like any exec's. */
                execId?: string | null;
                name: string;
                restart: Schemas["RestartPolicy"];
                /** Format: int32 */
                restarts: number;
                state: Schemas["ServiceState"];
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Skill: {
            items: {
                /** Format: int64 */
                createdMs: number;
                description: string;
                /** Format: int64 */
                failures: number;
                last?: Schemas["SkillOutcome"] | null;
                name: string;
                parameters: Schemas["SkillParameter"][];
                /**
                 * Format: double
                 * @description How likely it works, from 0 to 1: learned from its runs.
                 */
                score: number;
                /**
                 * Format: int64
                 * @description Number in the log.
                 */
                seq: number;
                source?: string | null;
                steps: Schemas["SkillStep"][];
                /**
                 * Format: int64
                 * @description Runs of this version that went well, and that did not.
                 */
                successes: number;
                /**
                 * Format: int64
                 * @description 1, and one more each time it is put.
                 */
                version: number;
                whenToUse: string;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Snapshot: {
            items: {
                changes: Schemas["Changes"];
                /** Format: int64 */
                createdMs: number;
                description: string;
                /**
                 * Format: int64
                 * @description Bytes of files that no other snapshot held when it was taken, as far as known.
                 */
                diskBytes: number;
                /** Format: int64 */
                expiresMs?: number | null;
                id: string;
                /** @description The image the sandbox was made from: as it was asked for, and which that was. */
                image: string;
                imageId: string;
                kind: Schemas["SnapshotKind"];
                labels: {
                    [key: string]: string;
                };
                name?: string | null;
                /** @description The snapshot that the sandbox came from, or the one taken of it before. */
                parent?: string | null;
                /**
                 * Format: int64
                 * @description How long the sandbox stood still for it, in microseconds.
                 */
                pauseUs: number;
                /** @description Whether it holds processes besides files. */
                processes: boolean;
                /**
                 * Format: int64
                 * @description Bytes on disk of the processes' RAM.
                 */
                ramBytes: number;
                /** @description The sandbox it was taken of, which may be gone by now. */
                sandboxId: string;
                /** @description Its name when the snapshot was taken. */
                sandboxName?: string | null;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Space: {
            items: {
                /** Format: int64 */
                createdMs: number;
                description: string;
                id: string;
                labels: {
                    [key: string]: string;
                };
                name: string;
                /** @description Ids of the sandboxes that remember in it or have it attached. Empty in lists. */
                usedBy?: string[];
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_SshKey: {
            items: {
                /** Format: int64 */
                createdMs: number;
                /** @description `SHA256:…`. */
                fingerprint: string;
                id: string;
                /** @description The API key that it stands for. */
                keyId: string;
                /** Format: int64 */
                lastUsedMs?: number | null;
                name: string;
                /** @description `ssh-ed25519 AAAA…`. */
                publicKey: string;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_Volume: {
            items: {
                /** Format: int64 */
                createdMs: number;
                /**
                 * Format: int32
                 * @description Most that is written to it, in MiB.
                 */
                diskMib: number;
                /** @description Id of the snapshot it was made from. */
                fromSnapshot?: string | null;
                id: string;
                name: string;
                /** @description Sandboxes that have it, in whatever state they are. */
                usedBy?: Schemas["VolumeUser"][];
                /**
                 * Format: int64
                 * @description Charged to it. Absent in lists, and where the pool keeps no account.
                 */
                usedBytes?: number | null;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        Page_VolumeSnapshot: {
            items: {
                /** Format: int64 */
                createdMs: number;
                id: string;
                name?: string | null;
                /** @description Id of its volume. */
                volume: string;
            }[];
            /** @description Pass as `cursor` to get the next page; absent on the last one. */
            nextCursor?: string | null;
        };
        /** @description `GET /v1/sandboxes/{sandbox}/merges`: one that was done. */
        PastMerge: {
            base: string;
            child: string;
            /** Format: int64 */
            createdMs: number;
            id: string;
            /**
             * Format: int64
             * @description Paths that it changed.
             */
            total: number;
            /** @description Snapshot of the parent as it was before. */
            undo: string;
        };
        PastMerges: {
            /** @description Newest first, the last hundred. */
            merges: Schemas["PastMerge"][];
        };
        /** @description A sandbox's whole egress policy. */
        PolicyDocument: {
            egress?: Schemas["EgressDocument"] | null;
            /** @description The short form: each is one rule that puts a secret into the requests to one host. */
            egressAuth?: Schemas["EgressAuth"][];
        };
        /** @description A TCP port that something listens on, or that was published. */
        Port: {
            /** @description Where it listens inside; empty while nothing does, or while the sandbox does not run. */
            addresses: string[];
            /** @description Its command line, cut to a sane length. */
            command?: string | null;
            /**
             * Format: int32
             * @description The process behind it, inside; absent where it cannot be told.
             */
            pid?: number | null;
            /** Format: int32 */
            port: number;
            /** @description Its name. */
            process?: string | null;
            /** @description Whether anybody may open it, without a key. */
            published: boolean;
            /** @description Where HTTP reaches it: with a key, or, if it is published, without one. */
            url: string;
            /** @description Whose socket it is, inside. */
            user?: string | null;
        };
        /** @description Text messages of `GET …/ports/{port}/connect`, both ways. Bytes travel as binary messages. */
        PortMessage: {
            /** @enum {string} */
            kind: "end";
        } | {
            error: Schemas["ErrorDetail"];
            /** @enum {string} */
            kind: "error";
        };
        /** @description A link to a port. Whoever has it may open the port: it is as good as a key for that one port. */
        PortUrl: {
            /** Format: int64 */
            expiresMs: number;
            url: string;
        };
        /** @description `POST /v1/memory/{of}/skills/promote`: a skill from commands that were run. */
        PromoteSkill: {
            /** @description Made from the commands when empty. */
            description?: string;
            /** @description The first exec and the last: ids, or unique beginnings of them. All between them that ended well become steps. */
            first: string;
            /** @description Those that failed as well. */
            includeFailed?: boolean;
            /** @description `first` when absent. */
            last?: string | null;
            name: string;
            /** @description Each value given here becomes a parameter of that name, with the value as its default, wherever a step has it. */
            parameters?: {
                [key: string]: string;
            };
            /** @description The sandbox whose execs; the one in the path when absent. */
            sandbox?: string | null;
            whenToUse?: string;
        };
        /** @description What `POST /v1/images/prune` removed. */
        Pruned: {
            /**
             * Format: int64
             * @description Bytes of files in what was removed.
             */
            freedBytes: number;
            /** @description Ids of images that had no name and no sandbox. */
            images: string[];
            /**
             * Format: int32
             * @description Layers that no image stands on, and steps kept for builds.
             */
            layers: number;
        };
        /** @description A race as it stands. */
        Race: {
            attempts: Schemas["RaceAttempt"][];
            /** @description The snapshot that all attempts started from. */
            base?: string | null;
            /** Format: int64 */
            createdMs: number;
            /** Format: int64 */
            endedMs?: number | null;
            /** @description Why it ended early. */
            failure?: string | null;
            id: string;
            judge?: string[] | null;
            merged?: Schemas["RaceMerged"] | null;
            parent: string;
            run: string[];
            stage: Schemas["RaceStage"];
            /**
             * Format: int64
             * @description Grows with every change: `after` takes it.
             */
            version: number;
            /**
             * Format: int32
             * @description Number of the attempt that won; absent: none yet, or none at all.
             */
            winner?: number | null;
        };
        RaceAttempt: {
            /**
             * Format: int64
             * @description Paths it added, changed and deleted.
             */
            added?: number | null;
            /** Format: int64 */
            changed?: number | null;
            /** Format: int64 */
            deleted?: number | null;
            exec?: string | null;
            /** Format: int32 */
            exitCode?: number | null;
            /** @description Its sandbox is deleted. */
            gone: boolean;
            /**
             * Format: int32
             * @description From 1.
             */
            number: number;
            sandbox: string;
            /** Format: double */
            score?: number | null;
            state: Schemas["RaceAttemptState"];
            /** Format: int64 */
            tookMs?: number | null;
            /** @description Why it does not count. */
            why?: string | null;
        };
        /** @enum {string} */
        RaceAttemptState: "waiting" | "running" | "judging" | "ended" | "failed";
        RaceMerged: {
            applied: boolean;
            /** @description Paths in conflict, the first hundred; where there are any, nothing was merged. */
            conflicts: string[];
            /**
             * Format: int64
             * @description Paths that it changed.
             */
            total: number;
            /** @description Snapshot of the parent as it was before. */
            undo?: string | null;
        };
        /** @enum {string} */
        RaceStage: "forking" | "running" | "choosing" | "merging" | "cleaning" | "done";
        /** @description `GET /v1/races`. */
        Races: {
            /** @description Newest first, the last two hundred. */
            races: Schemas["Race"][];
        };
        /** @description `GET /readyz`. */
        Readiness: {
            ready: boolean;
            /** @description What is still missing. */
            waitingFor: string[];
        };
        /** @description `POST /v1/memory/{of}/recall`: what to put before a turn. Answers a `ContextBlock`. */
        RecallRequest: {
            /**
             * Format: int32
             * @description Tokens the block may take; 1000 when absent.
             * @default 1000
             */
            budgetTokens?: number | null;
            /** @description The conversation so far, as it goes to the model. */
            messages: Schemas["TurnMessage"][];
            /** @description The session that goes on, if it has a name. */
            session?: string | null;
        };
        /** @description A name and a password or token for a registry. */
        RegistryCredentials: {
            /** Format: password */
            password: string;
            username: string;
        };
        /** @description What ended a failure. */
        RelatedFix: {
            /** Format: int64 */
            atMs: number;
            /** @description What was run in between, in order. */
            commands: string[];
            /** @description Files that changed in between. */
            files: string[];
            /** @description The entry of the run that worked. */
            id: string;
        };
        /** @description What is remembered about a failure like this one. */
        RelatedMemory: {
            /**
             * Format: int64
             * @description When it last happened, and how often.
             */
            atMs: number;
            /** Format: int64 */
            count: number;
            fixedBy?: Schemas["RelatedFix"] | null;
            id: string;
            kind: string;
            /**
             * Format: float
             * @description From 0 to 1.
             */
            score: number;
            /** @description What it says, cut short. Data that somebody stored, not instructions. */
            text: string;
            /** @description What it has in common with this one. */
            why: string;
        };
        /**
         * @description Which execs become memories by themselves.
         * @enum {string}
         */
        Remember: "off" | "errors" | "all";
        /** @enum {string} */
        RestartPolicy: "always" | "on-failure" | "never";
        /** @description `POST /v1/sandboxes/{sandbox}/restore`: puts a sandbox back to where a snapshot is. */
        RestoreSandbox: {
            /** @description Leave the snapshot's processes out: the sandbox boots from the files. */
            filesOnly?: boolean;
            /** @description Name or id of a snapshot, of this sandbox or of another. */
            snapshot: string;
        };
        /** @description `POST /v1/volumes/{volume}/restore`. */
        RestoreVolume: {
            /** @description One of the volume's own snapshots, by id or name. */
            snapshot: string;
        };
        /** @description Answer of a restore in place. */
        Restored: {
            sandbox: Schemas["Sandbox"];
            /** @description What was replaced: restoring it undoes this restore. */
            undo: Schemas["Snapshot"];
        };
        /** @description How far the undoing of a failed exec is. A waited-for exec, and an attachment's `exit`, answer when it is settled. */
        Rollback: {
            error?: Schemas["ErrorDetail"] | null;
            state: Schemas["RollbackState"];
            /** @description What the failed exec left, as a snapshot, where that could not be removed. */
            undo?: string | null;
        };
        /** @enum {string} */
        RollbackState: "pending" | "unneeded" | "done" | "failed";
        /** @description How a sandbox is renewed. What it replaces is kept as a snapshot. */
        RotatePolicy: {
            /** Format: int64 */
            everySeconds: number;
            /** @description The snapshot's id. */
            snapshot: string;
        };
        /** @description Renewal from a known good state; replaces the policy there is. */
        RotateRequest: {
            /**
             * Format: int64
             * @description At least 10; 0: no more.
             */
            everySeconds: number;
            /** @description Name or id of the snapshot to go back to; needed unless `every_seconds` is 0. */
            snapshot?: string | null;
        };
        /** @description `POST /v1/secrets/{secret}/rotate`. */
        RotateSecret: {
            /**
             * Format: byte
             * @description The bytes of the secret, in base64: 8 to 65,536 of them.
             */
            value: string;
        };
        /** @description One rule about the requests to a host. */
        RuleDocument: {
            approve?: Schemas["Approve"] | null;
            budget?: Schemas["BudgetDocument"] | null;
            /** @description `api.example.com` or `*.example.com`. */
            host: string;
            /** @description Every method when absent; with a secret, those its owner allows. */
            methods?: string[];
            mode?: Schemas["RuleMode"] | null;
            /** @description Patterns such as `/v1/**`. Every path when absent; with a secret, those its owner allows. */
            paths?: string[];
            /**
             * Format: int32
             * @description 443 when absent.
             */
            port?: number | null;
            /** @description The secret that is put into what it covers. */
            secret?: string | null;
        };
        /** @enum {string} */
        RuleMode: "sni" | "intercept";
        /** @description `POST /v1/sandboxes/{sandbox}/contexts/{context}/run`. */
        RunCode: {
            code: string;
            /** @description Variables of the environment during this run. */
            env?: {
                [key: string]: string;
            };
            /**
             * Format: int64
             * @description Interrupt it when it has written more than this; 16 MiB when absent.
             */
            outputBytesMax?: number | null;
            /**
             * Format: int64
             * @description Interrupt it after this time; never when absent. Time in a queue does not count.
             */
            timeoutMs?: number | null;
            /** @description Answer when it has ended ([`CodeRun`]) instead of line by line ([`CodeEvent`]). */
            wait?: boolean;
        };
        /** @description Answer of a waited-for exec. */
        RunResult: {
            exec: Schemas["Exec"];
            stderr: string;
            /** @description Bytes that are not UTF-8 are replaced; the output routes give the exact bytes. */
            stdout: string;
            /** @description More was written than is shown here. */
            truncated: boolean;
        };
        /** @description `POST /v1/memory/{of}/skills/{name}/run`. */
        RunSkill: {
            parameters?: {
                [key: string]: string;
            };
            /** @description The sandbox to run it in; the one in the path when absent. */
            sandbox?: string | null;
            /**
             * @description Answer with one `SkillRunStep` per line as each step ends (`application/x-ndjson`), the last line saying how it
             *     went, instead of with all of it (`SkillRun`).
             */
            stream?: boolean;
            /** @description Wins over the user of the sandbox. */
            user?: string | null;
            /**
             * Format: int64
             * @description The newest when absent.
             */
            version?: number | null;
        };
        Sandbox: {
            /**
             * Format: int64
             * @description When it was last seen at work.
             */
            activeMs?: number | null;
            /**
             * Format: int64
             * @description Since when it is paused or hibernated.
             */
            asleepSinceMs?: number | null;
            /** Format: int64 */
            createdMs: number;
            driver: string;
            env: {
                [key: string]: string;
            };
            ephemeral: boolean;
            /** Format: int64 */
            expiresMs?: number | null;
            /** @description Why it failed. */
            failure?: string | null;
            id: string;
            image: string;
            imageId: string;
            labels: {
                [key: string]: string;
            };
            limits: Schemas["Limits"];
            memory?: Schemas["SandboxMemory"] | null;
            name?: string | null;
            /** @description What it may reach. */
            network?: Schemas["Network"];
            origin?: Schemas["Origin"] | null;
            /** @description Why it cannot be used yet: the daemon was restarted and is still finishing what it was doing to this sandbox. */
            recovering?: string | null;
            rotate?: Schemas["RotatePolicy"] | null;
            /** @description Names of its services. */
            services: string[];
            /** @description When it is put to sleep if it does no work. */
            sleep?: Schemas["SleepPolicy"];
            snapshotPolicy?: Schemas["SnapshotPolicy"] | null;
            /** Format: int64 */
            startedMs?: number | null;
            state: Schemas["SandboxState"];
            stopReason?: Schemas["StopReason"] | null;
            /** Format: int64 */
            stoppedMs?: number | null;
            user?: string | null;
            /** @description Volumes in it. */
            volumes?: Schemas["VolumeMount"][];
            workdir?: string | null;
        };
        /** @description `POST /v1/snapshots/{snapshot}/sandboxes`: a new sandbox that goes on where a snapshot is. */
        SandboxFromSnapshot: {
            /** @description Delete it, with all it holds, as soon as it stops. */
            ephemeral?: boolean;
            /** @description Leave the snapshot's processes out: the sandbox boots from the files. */
            filesOnly?: boolean;
            /** @description Its labels; those of the snapshot's sandbox when absent. */
            labels?: {
                [key: string]: string;
            } | null;
            name?: string | null;
            /**
             * Format: int64
             * @description Delete it this long after creation, whatever it does.
             */
            ttlSeconds?: number | null;
        };
        /** @description What a sandbox remembers and where. */
        SandboxMemory: {
            attached: Schemas["AttachedSpace"][];
            /** @description Its line in that space. */
            branch: string;
            /** @description Whether that is its own, which is rolled back, restored and forked with it. */
            own: boolean;
            remember: Schemas["Remember"];
            /** @description Id of the space it remembers in. */
            space: string;
        };
        /** @enum {string} */
        SandboxState: "creating" | "starting" | "running" | "paused" | "hibernating" | "hibernated" | "waking" | "restoring" | "stopping" | "stopped" | "deleting" | "failed";
        /** @enum {string} */
        Scope: "read" | "exec" | "admin";
        /** @description `POST /v1/memory/{of}/search`. */
        SearchMemory: {
            /** @description Tell the terms and figures of each arm for each hit. */
            explain?: boolean;
            filter?: Schemas["EntryFilter"] | null;
            /**
             * Format: int64
             * @description Age that halves what recency adds to the score.
             */
            halfLifeSeconds?: number | null;
            /** @description The cold tier too. */
            includeCold?: boolean;
            /**
             * Format: int32
             * @description Hits at most; 10 when absent.
             * @default 10
             */
            limit?: number | null;
            /**
             * Format: float
             * @description Only hits with at least this score.
             */
            minScore?: number | null;
            /** @description Words, a question, or a whole message. */
            query: string;
            /** @description Names or ids of the spaces to search, among the sandbox's own (`own`) and the attached ones; all when empty. */
            spaces?: string[];
            weights?: Schemas["SearchWeights"] | null;
        };
        /** @description Answer of a search. */
        SearchResult: {
            /** @description Which arms took part, and which did not and why. */
            arms: Schemas["ArmReport"][];
            /** @description Best first. */
            hits: Schemas["MemoryHit"][];
            /**
             * Format: int64
             * @description Entries that could have been found.
             */
            searched: number;
            /** Format: int64 */
            tookUs: number;
        };
        /** @description What counts how much, relative to one another; what is absent keeps its default. */
        SearchWeights: {
            /** Format: float */
            importance?: number | null;
            /**
             * Format: float
             * @description Words.
             */
            lexical?: number | null;
            /**
             * Format: float
             * @description What was said or done just before and after.
             */
            neighbours?: number | null;
            /** Format: float */
            recency?: number | null;
            /**
             * Format: float
             * @description Meaning.
             */
            vector?: number | null;
        };
        /** @description What each arm found in it; an arm that did not find it is absent. */
        SearchWhy: {
            /**
             * Format: float
             * @description What its importance added.
             */
            importance: number;
            lexical?: Schemas["LexicalWhy"] | null;
            neighbours?: Schemas["NeighbourWhy"] | null;
            /**
             * Format: float
             * @description What its age added.
             */
            recency: number;
            /**
             * Format: float
             * @description What is left of the score because of when it holds: 1 where it holds now.
             */
            validity: number;
            vector?: Schemas["VectorWhy"] | null;
        };
        /** @description A secret, without its value: no route shows it. */
        Secret: {
            allow: Schemas["SecretScope"][];
            /**
             * Format: int64
             * @description When its value was last set.
             */
            changedMs: number;
            /** Format: int64 */
            createdMs: number;
            name: string;
            placeholder?: Schemas["SecretPlaceholder"] | null;
            slot: Schemas["SecretSlot"];
            /** @description Sandboxes whose rules name it. */
            usedBy: Schemas["SecretUser"][];
            /**
             * Format: int64
             * @description Raised by every new value.
             */
            version: number;
        };
        /** @description A variable inside that holds a fake token. */
        SecretPlaceholder: {
            /** @description `OPENAI_API_KEY` and the like. */
            env: string;
            /** @description What the fake begins with, such as `sk-`. */
            prefix?: string;
        };
        /** @description Requests to a host. */
        SecretScope: {
            /** @description `api.example.com`, or `*.example.com` for all below it. */
            host: string;
            /** @description None: every method. */
            methods?: string[];
            /** @description `/v1/**` and the like. None: every path. */
            paths?: string[];
            /**
             * Format: int32
             * @description 443 when absent.
             */
            port?: number | null;
        };
        /** @description Where in a request a secret stands. What a program put there itself is taken away before. */
        SecretSlot: {
            /** @description `{}` is the secret, as in `Bearer {}`; the secret alone when absent. */
            format?: string | null;
            /** @enum {string} */
            kind: "header";
            name: string;
        } | {
            format?: string | null;
            /** @enum {string} */
            kind: "grpc_metadata";
            name: string;
        } | {
            /** @enum {string} */
            kind: "query";
            name: string;
        } | {
            /** @enum {string} */
            kind: "basic";
            user: string;
        } | {
            /** @enum {string} */
            kind: "client_cert";
        };
        SecretUser: {
            id: string;
            name?: string | null;
        };
        /** @description `POST …/signal`. */
        SendSignal: {
            /** @description The whole process group, as a terminal does, or its first process only. */
            group?: boolean;
            /** @description `TERM`, `SIGTERM` or `15`. */
            signal: string;
        };
        Service: {
            argv: string[];
            /** @description Its present or last run; its output is read like any exec's. */
            execId?: string | null;
            name: string;
            restart: Schemas["RestartPolicy"];
            /** Format: int32 */
            restarts: number;
            state: Schemas["ServiceState"];
        };
        /** @enum {string} */
        ServiceState: "running" | "backing_off" | "ended" | "stopped";
        /** @description `PUT /v1/secrets/{secret}`. */
        SetSecret: {
            /** @description Where it may go at most, whatever a sandbox's rules say. */
            allow: Schemas["SecretScope"][];
            placeholder?: Schemas["SecretPlaceholder"] | null;
            slot: Schemas["SecretSlot"];
            /**
             * Format: byte
             * @description The bytes of the secret, in base64: 8 to 65,536 of them.
             */
            value: string;
        };
        Size: number | string;
        /** @description One version of a skill, with how it went. */
        Skill: {
            /** Format: int64 */
            createdMs: number;
            description: string;
            /** Format: int64 */
            failures: number;
            last?: Schemas["SkillOutcome"] | null;
            name: string;
            parameters: Schemas["SkillParameter"][];
            /**
             * Format: double
             * @description How likely it works, from 0 to 1: learned from its runs.
             */
            score: number;
            /**
             * Format: int64
             * @description Number in the log.
             */
            seq: number;
            source?: string | null;
            steps: Schemas["SkillStep"][];
            /**
             * Format: int64
             * @description Runs of this version that went well, and that did not.
             */
            successes: number;
            /**
             * Format: int64
             * @description 1, and one more each time it is put.
             */
            version: number;
            whenToUse: string;
        };
        /** @description `POST /v1/memory/{of}/skills/{name}/outcome`: how a run went that Burrow did not make. */
        SkillOutcome: {
            /**
             * Format: int64
             * @description When it was told; not to be given.
             */
            atMs?: number | null;
            /** @description What is worth knowing about it. */
            detail?: string;
            /** Format: int32 */
            exitCode?: number | null;
            ok: boolean;
            /** Format: int64 */
            tookMs?: number;
        };
        /**
         * @description What a skill wants to be told. Commands have it as `{{name}}`, as one quoted word; it is in the environment, too, as
         *     `PARAM_NAME`.
         */
        SkillParameter: {
            default?: string | null;
            description?: string;
            name: string;
            required?: boolean;
        };
        /** @description How a run of a skill went. It stops at the first step that fails. */
        SkillRun: {
            error?: Schemas["ErrorDetail"] | null;
            name: string;
            ok: boolean;
            /** @description The outcome was remembered with the skill. */
            recorded: boolean;
            steps: Schemas["RunResult"][];
            /** Format: int64 */
            tookMs: number;
            /**
             * Format: int32
             * @description Steps in all, those included that were not come to.
             */
            total: number;
            /** Format: int64 */
            version: number;
        };
        /** @description One line of a streamed run. */
        SkillRunStep: {
            /** @enum {string} */
            kind: "start";
            run: string;
            /** Format: int32 */
            step: number;
            /** Format: int32 */
            total: number;
        } | {
            /** @enum {string} */
            kind: "step";
            result: Schemas["RunResult"];
            /** Format: int32 */
            step: number;
        } | {
            /** @enum {string} */
            kind: "end";
            ok: boolean;
            recorded: boolean;
            /** Format: int64 */
            tookMs: number;
        } | {
            error: Schemas["ErrorDetail"];
            /** @enum {string} */
            kind: "error";
            recorded: boolean;
        };
        SkillStep: {
            env?: {
                [key: string]: string;
            };
            /** @enum {string} */
            kind: "command";
            run: string;
            /** Format: int64 */
            timeoutSeconds?: number | null;
            workdir?: string | null;
        } | {
            arguments?: unknown;
            /** @enum {string} */
            kind: "tool-call";
            tool: string;
        } | {
            env?: {
                [key: string]: string;
            };
            /** @description A program and its arguments, such as `python3` or `bash -e`. */
            interpreter: string;
            /** @enum {string} */
            kind: "script";
            text: string;
        };
        /** @description When a sandbox that does no work is put to sleep. Absent: never. */
        SleepPolicy: {
            /** Format: int64 */
            hibernateAfterSeconds?: number | null;
            /** Format: int64 */
            pauseAfterSeconds?: number | null;
            /** Format: int64 */
            stopAfterSeconds?: number | null;
        };
        /**
         * @description When to put a sandbox that does no work to sleep. What is absent stays, or takes the daemon's default; 0: never.
         *     Those that are set ascend.
         */
        SleepRequest: {
            /**
             * Format: int64
             * @description RAM to disk.
             */
            hibernateAfterSeconds?: number | null;
            /**
             * Format: int64
             * @description Stand still, RAM kept.
             */
            pauseAfterSeconds?: number | null;
            /**
             * Format: int64
             * @description Files only.
             */
            stopAfterSeconds?: number | null;
        };
        /** @description An immutable point in a sandbox's life: its files, its configuration and, unless left out, its processes. */
        Snapshot: {
            changes: Schemas["Changes"];
            /** Format: int64 */
            createdMs: number;
            description: string;
            /**
             * Format: int64
             * @description Bytes of files that no other snapshot held when it was taken, as far as known.
             */
            diskBytes: number;
            /** Format: int64 */
            expiresMs?: number | null;
            id: string;
            /** @description The image the sandbox was made from: as it was asked for, and which that was. */
            image: string;
            imageId: string;
            kind: Schemas["SnapshotKind"];
            labels: {
                [key: string]: string;
            };
            name?: string | null;
            /** @description The snapshot that the sandbox came from, or the one taken of it before. */
            parent?: string | null;
            /**
             * Format: int64
             * @description How long the sandbox stood still for it, in microseconds.
             */
            pauseUs: number;
            /** @description Whether it holds processes besides files. */
            processes: boolean;
            /**
             * Format: int64
             * @description Bytes on disk of the processes' RAM.
             */
            ramBytes: number;
            /** @description The sandbox it was taken of, which may be gone by now. */
            sandboxId: string;
            /** @description Its name when the snapshot was taken. */
            sandboxName?: string | null;
        };
        /**
         * @description Why a snapshot was taken.
         * @enum {string}
         */
        SnapshotKind: "manual" | "policy" | "before-restore" | "exec" | "fork" | "before-rotate" | "before-merge";
        /** @description Snapshots a sandbox takes by itself, while it works. */
        SnapshotPolicy: {
            /** Format: int64 */
            everySeconds: number;
            filesOnly: boolean;
            /** Format: int32 */
            keep: number;
        };
        /** @description Snapshots to take by themselves; replaces the policy there is. */
        SnapshotPolicyRequest: {
            /**
             * Format: int64
             * @description At least 10; 0: no more.
             */
            everySeconds: number;
            filesOnly?: boolean;
            /**
             * Format: int32
             * @description The oldest of the policy's own go beyond this many.
             * @default 10
             */
            keep?: number;
        };
        /** @description A space that outlives sandboxes. A sandbox's own is not listed: it comes and goes with the sandbox. */
        Space: {
            /** Format: int64 */
            createdMs: number;
            description: string;
            id: string;
            labels: {
                [key: string]: string;
            };
            name: string;
            /** @description Ids of the sandboxes that remember in it or have it attached. Empty in lists. */
            usedBy?: string[];
        };
        /** @enum {string} */
        SpaceAccess: "read" | "read-write";
        /** @description `GET /v1/ssh`. */
        Ssh: {
            /** @description Where it listens, as `127.0.0.1:2222`; absent where it is turned off or could not listen. */
            address?: string | null;
            /** @description `SHA256:…`, as clients show it. */
            hostFingerprint?: string | null;
            /** @description `ssh-ed25519 AAAA…`, for a client's list of known hosts. */
            hostKey?: string | null;
        };
        /** @description A public key by which somebody logs in. It opens what the API key that added it opens, for as long as that one does. */
        SshKey: {
            /** Format: int64 */
            createdMs: number;
            /** @description `SHA256:…`. */
            fingerprint: string;
            id: string;
            /** @description The API key that it stands for. */
            keyId: string;
            /** Format: int64 */
            lastUsedMs?: number | null;
            name: string;
            /** @description `ssh-ed25519 AAAA…`. */
            publicKey: string;
        };
        /** @description `POST /v1/races`. */
        StartRace: {
            /** Format: int32 */
            attempts: number;
            /** @description The attempts boot from the parent's files, without its processes. */
            filesOnly?: boolean;
            /**
             * @description A command that is run in every attempt after its end, and whose last line of output is a number: the highest wins. It
             *     turns an attempt down by exiting with another code than 0. Without one, an attempt that exits 0 is good, and the
             *     quickest of them wins.
             */
            judge?: string[] | null;
            /** @description The attempts stay when all is over. */
            keep?: boolean;
            memory?: Schemas["MergeMemoryPolicy"];
            /** @description Merge the winner into the parent. */
            mergeWinner?: boolean;
            /**
             * Format: int32
             * @description How many run at once; all when absent.
             */
            parallel?: number | null;
            /** @description Name or id of the sandbox whose forks race. */
            parent: string;
            /** @description How the winner is merged, as in a merge. */
            policies?: Schemas["MergeRule"][];
            policy?: Schemas["MergePolicy"];
            /** @description The command of every attempt. It finds its number in `BURROW_ATTEMPT`. */
            run: string[];
            /**
             * Format: int64
             * @description How long an attempt may take.
             */
            timeoutSeconds?: number | null;
        };
        /** @description `GET /v1/sandboxes/{sandbox}/stats`. */
        Stats: {
            /** Format: int64 */
            agentRamBytes: number;
            /** Format: int64 */
            cpuUs: number;
            /** Format: int64 */
            diskLimitBytes: number;
            /**
             * Format: int64
             * @description Charged to the sandbox's quota.
             */
            diskUsedBytes: number;
            /** Format: int32 */
            execsRunning: number;
            id: string;
            /** Format: int64 */
            networkReceivedBytes: number;
            /** Format: int64 */
            networkSentBytes: number;
            /**
             * Format: int64
             * @description Processes the kernel ended for want of RAM since the sandbox started.
             */
            oomKills: number;
            /** Format: int32 */
            processes: number;
            /** Format: int64 */
            ramBytes: number;
            /** Format: int64 */
            ramLimitBytes: number;
            /** @description Asking wakes nobody: of one that is paused or hibernated, what is known without it, and 0 for the rest. */
            state: Schemas["SandboxState"];
            /** Format: int32 */
            threads: number;
            /** Format: int64 */
            uptimeMs: number;
        };
        /** @enum {string} */
        StdinMode: "null" | "pipe";
        /** @enum {string} */
        StopReason: "requested" | "guest_exited" | "host_restarted" | "expired" | "idle";
        /** @description `POST /v1/memory/{of}/turns`: what to remember after a turn. */
        StoreTurn: {
            agent?: string | null;
            /** @description What is new: what was asked and what was answered. What was stored just before is not stored again. */
            messages: Schemas["TurnMessage"][];
            /** @description The open session when absent; one opens and closes by itself. */
            session?: string | null;
            user?: string | null;
        };
        /** @description Answer of storing a turn. */
        StoredTurn: {
            /**
             * Format: int64
             * @description How many of them are new.
             */
            added: number;
            /** @description Ids of the entries, in order, those that were there already included. */
            ids: string[];
            session: string;
        };
        /** @description `POST /v1/images/{image}/tags`: gives an image one more name. */
        TagImage: {
            name: string;
        };
        /** @description Answer of `PUT …/files/tar`. */
        TarSummary: {
            /** Format: int64 */
            bytes: number;
            /** Format: int64 */
            entries: number;
        };
        TerminalSize: {
            /** Format: int32 */
            columns: number;
            /** Format: int32 */
            rows: number;
        };
        /** @description `GET /v1/tree`: sandboxes and snapshots by descent. */
        Tree: {
            /** @description Parents before their children; siblings oldest first. */
            nodes: Schemas["TreeNode"][];
        };
        /** @description A sandbox or a snapshot. */
        TreeNode: {
            /** Format: int64 */
            createdMs: number;
            id: string;
            kind: Schemas["TreeNodeKind"];
            name?: string | null;
            /**
             * @description Place of its parent in `nodes`, lower than its own. A snapshot's is the one of the same sandbox that it followed,
             *     else its sandbox; a sandbox's is the snapshot it was made from. None when that is gone, or was never there.
             */
            parent?: number | null;
            /** @description Whether a snapshot holds processes. */
            processes?: boolean | null;
            /** @description The sandbox that a snapshot was taken of, which may be gone, and its name then. */
            sandboxId?: string | null;
            sandboxName?: string | null;
            snapshotKind?: Schemas["SnapshotKind"] | null;
            state?: Schemas["SandboxState"] | null;
        };
        /** @enum {string} */
        TreeNodeKind: "sandbox" | "snapshot";
        /** @description One message of a conversation, as model APIs write it: what goes to a model can be given as it is. */
        TurnMessage: Record<string, unknown> & {
            /** @description A text, or a list of parts. */
            content?: unknown;
            /** @description `user`, `assistant`, `tool`, `system`, … */
            role: string;
        };
        /**
         * @description `PATCH /v1/memory/{of}/entries/{id}`: a new version; the old one stays in the history. What is absent stays as it
         *     is.
         */
        UpdateEntry: {
            /** @description Replaces what there is. */
            artifacts?: string[] | null;
            /**
             * Format: int64
             * @description Only if this is its version still; else a conflict that says which it is.
             */
            ifVersion?: number | null;
            /** Format: float */
            importance?: number | null;
            kind?: string | null;
            /** @description Replaces what there is. */
            links?: string[] | null;
            /** @description Replaces what there is. */
            metadata?: Record<string, unknown> | null;
            text?: string | null;
            /** Format: int64 */
            validFromMs?: number | null;
            /** Format: int64 */
            validToMs?: number | null;
        };
        /** @description What a sandbox may reach from now on. What is absent stays; connections that are no longer allowed are cut. */
        UpdateNetwork: {
            /** @description Rules to add; one that is there already stays. */
            add?: string[];
            /** @description Blocks to deny; one that is denied already stays so. */
            addDeny?: string[];
            /** @description Rules about requests to add; one that is there already stays. */
            addRequests?: Schemas["RuleDocument"][];
            addSets?: string[];
            /** @description All rules there are afterwards, instead of those there were. */
            allow?: string[] | null;
            /** @description All blocks of addresses that are denied afterwards. */
            deny?: string[] | null;
            mode?: Schemas["NetworkMode"] | null;
            /** @description Rules to remove; one that is not there is an error, since its remover believes it to be in force. */
            remove?: string[];
            /** @description Blocks to deny no longer; one that is not denied is an error. */
            removeDeny?: string[];
            removeSets?: string[];
            /** @description All rules about requests there are afterwards. */
            requests?: Schemas["RuleDocument"][] | null;
            /** @description All host sets there are afterwards. */
            sets?: string[] | null;
        };
        /** @description `PATCH /v1/sandboxes/{sandbox}`. What is absent stays as it is. */
        UpdateSandbox: {
            /** @description Variables to set; `null` removes one. Execs started from now on see them. */
            env?: {
                [key: string]: string | null;
            };
            /** @description Labels to set; `null` removes one. */
            labels?: {
                [key: string]: string | null;
            };
            limits?: Schemas["LimitsRequest"] | null;
            memory?: Schemas["MemoryRequest"] | null;
            /** @description A new name. */
            name?: string | null;
            network?: Schemas["UpdateNetwork"] | null;
            rotate?: Schemas["RotateRequest"] | null;
            sleep?: Schemas["SleepRequest"] | null;
            snapshotPolicy?: Schemas["SnapshotPolicyRequest"] | null;
            /** @description All its volumes anew; only of one that is stopped. */
            volumes?: Schemas["MountVolume"][] | null;
        };
        /** @description `PATCH /v1/spaces/{space}`. What is absent stays as it is. */
        UpdateSpace: {
            description?: string | null;
            /** @description Labels to set; `null` removes one. */
            labels?: {
                [key: string]: string | null;
            };
            /** @description A new name. */
            name?: string | null;
        };
        /** @description How far vectors have come. */
        VectorCoverage: {
            /**
             * Format: int64
             * @description Entries that have one of this model, and that wait for theirs.
             */
            covered: number;
            /** @description What makes them. */
            model: string;
            /** Format: int64 */
            pending: number;
        };
        /** @description Its meaning. */
        VectorWhy: {
            /**
             * Format: float
             * @description How alike, from -1 to 1.
             */
            cosine: number;
            /**
             * Format: int64
             * @description Place among the arm's finds, from 1.
             */
            rank: number;
        };
        /** @description `GET /v1/version`. */
        Version: {
            /**
             * Format: int32
             * @description Generation of the host–guest protocol.
             */
            guestGeneration: number;
            version: string;
        };
        Volume: {
            /** Format: int64 */
            createdMs: number;
            /**
             * Format: int32
             * @description Most that is written to it, in MiB.
             */
            diskMib: number;
            /** @description Id of the snapshot it was made from. */
            fromSnapshot?: string | null;
            id: string;
            name: string;
            /** @description Sandboxes that have it, in whatever state they are. */
            usedBy?: Schemas["VolumeUser"][];
            /**
             * Format: int64
             * @description Charged to it. Absent in lists, and where the pool keeps no account.
             */
            usedBytes?: number | null;
        };
        /**
         * @description Who may write to a volume: of all sandboxes that have it one at most, and any number reads beside it.
         * @enum {string}
         */
        VolumeMode: "ro" | "rw";
        /** @description A volume in a sandbox. */
        VolumeMount: {
            id: string;
            mode: Schemas["VolumeMode"];
            name: string;
            path: string;
        };
        /** @description The files of a volume as they were once. */
        VolumeSnapshot: {
            /** Format: int64 */
            createdMs: number;
            id: string;
            name?: string | null;
            /** @description Id of its volume. */
            volume: string;
        };
        /** @description A sandbox that has a volume. */
        VolumeUser: {
            mode: Schemas["VolumeMode"];
            name?: string | null;
            path: string;
            sandbox: string;
        };
        /** @description One line of `GET …/files/watch` as NDJSON. */
        WatchEvent: {
            from?: string | null;
            kind: Schemas["WatchEventKind"];
            path: string;
        };
        /** @enum {string} */
        WatchEventKind: "ready" | "created" | "written" | "removed" | "renamed" | "attributes" | "overflow";
    };
}
