/** Skills: how something is done, kept with a record of how it went. */
import { errorOf } from "../errors.js";
import type { Schemas } from "../generated/api.js";
import { values } from "../ndjson.js";
import type { Scope } from "./scope.js";

export type Skill = Schemas["Skill"];

export class Skills {
  readonly #scope: Scope;

  /** @internal */
  constructor(scope: Scope) {
    this.#scope = scope;
  }

  /** A new skill, or a new version of one. A string is a step that runs it as a command. */
  add(skill: Omit<Schemas["NewSkill"], "steps"> & { steps: (string | Schemas["SkillStep"])[] }): Promise<Skill> {
    const steps = skill.steps.map((step) => (typeof step === "string" ? { kind: "command" as const, run: step } : step));
    const body = { ...skill, steps };
    return this.#scope.transport.call("POST /v1/memory/{of}/skills", { path: this.#scope.path(), query: this.#scope.writing(), body });
  }

  list(): Promise<Skill[]> {
    return this.#scope.transport.list("GET /v1/memory/{of}/skills", { path: this.#scope.path(), query: this.#scope.reading() });
  }

  /** The newest version when none is given. */
  get(name: string, options: { version?: number } = {}): Promise<Skill> {
    const query = { ...this.#scope.reading(), ...options };
    return this.#scope.transport.call("GET /v1/memory/{of}/skills/{name}", { path: this.#scope.path({ name }), query });
  }

  /** Oldest first. */
  versions(name: string): Promise<Skill[]> {
    return this.#scope.transport.call("GET /v1/memory/{of}/skills/{name}/versions", { path: this.#scope.path({ name }), query: this.#scope.reading() });
  }

  async remove(name: string): Promise<void> {
    await this.#scope.transport.call("DELETE /v1/memory/{of}/skills/{name}", { path: this.#scope.path({ name }), query: this.#scope.writing() });
  }

  /** The best first; what worked ranks above what did not. */
  async search(query: string, options: { limit?: number } = {}): Promise<Schemas["FoundSkill"][]> {
    const body = { ...options, query };
    const answer = await this.#scope.transport.call("POST /v1/memory/{of}/skills/search", { path: this.#scope.path(), query: this.#scope.looking(), body, repeat: "safe" });
    return answer.hits;
  }

  /** A skill from commands that were run: from one process's id to another's. */
  promote(skill: Schemas["PromoteSkill"]): Promise<Skill> {
    return this.#scope.transport.call("POST /v1/memory/{of}/skills/promote", { path: this.#scope.path(), query: this.#scope.writing(), body: skill });
  }

  /** Runs it to its end, with its parameters quoted for the shell. How it went is recorded. */
  async run(name: string, parameters: Record<string, string> = {}, options: Omit<Schemas["RunSkill"], "parameters" | "stream"> = {}): Promise<Schemas["SkillRun"]> {
    const body = { ...options, parameters };
    const answer = await this.#scope.transport.call("POST /v1/memory/{of}/skills/{name}/run", { path: this.#scope.path({ name }), query: this.#scope.writing(), body });
    return answer as Schemas["SkillRun"];
  }

  /** The same, step by step. */
  async *runSteps(name: string, parameters: Record<string, string> = {}, options: Omit<Schemas["RunSkill"], "parameters" | "stream"> = {}): AsyncGenerator<Exclude<Schemas["SkillRunStep"], { kind: "error" }>, void, undefined> {
    const body = { ...options, parameters, stream: true };
    const reply = await this.#scope.transport.open("POST /v1/memory/{of}/skills/{name}/run", { path: this.#scope.path({ name }), query: this.#scope.writing(), body });
    for await (const step of values<Schemas["SkillRunStep"]>(reply)) {
      if (step.kind === "error") throw errorOf(step.error);
      yield step;
    }
  }

  /** How a run went that Burrow did not make. */
  record(name: string, outcome: Schemas["SkillOutcome"], options: { version?: number } = {}): Promise<Skill> {
    const query = { ...this.#scope.writing(), ...options };
    return this.#scope.transport.call("POST /v1/memory/{of}/skills/{name}/outcome", { path: this.#scope.path({ name }), query, body: outcome });
  }
}
