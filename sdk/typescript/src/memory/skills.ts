/** Skills: named procedures, stored with a record of their outcomes. */
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

  /** Stores a skill, or a new version of an existing one. A step that is a string runs a command. */
  add(skill: Omit<Schemas["NewSkill"], "steps"> & { steps: (string | Schemas["SkillStep"])[] }): Promise<Skill> {
    const steps = skill.steps.map((step) => (typeof step === "string" ? { kind: "command" as const, run: step } : step));
    const body = { ...skill, steps };
    return this.#scope.transport.call("POST /v1/memory/{of}/skills", { path: this.#scope.path(), query: this.#scope.writing(), body });
  }

  list(): Promise<Skill[]> {
    return this.#scope.transport.list("GET /v1/memory/{of}/skills", { path: this.#scope.path(), query: this.#scope.reading() });
  }

  /** Returns a skill. Defaults to the newest version. */
  get(name: string, options: { version?: number } = {}): Promise<Skill> {
    const query = { ...this.#scope.reading(), ...options };
    return this.#scope.transport.call("GET /v1/memory/{of}/skills/{name}", { path: this.#scope.path({ name }), query });
  }

  /** All versions, oldest first. */
  versions(name: string): Promise<Skill[]> {
    return this.#scope.transport.call("GET /v1/memory/{of}/skills/{name}/versions", { path: this.#scope.path({ name }), query: this.#scope.reading() });
  }

  async remove(name: string): Promise<void> {
    await this.#scope.transport.call("DELETE /v1/memory/{of}/skills/{name}", { path: this.#scope.path({ name }), query: this.#scope.writing() });
  }

  /** Searches for skills, best first. Skills that succeeded rank above skills that failed. */
  async search(query: string, options: { limit?: number } = {}): Promise<Schemas["FoundSkill"][]> {
    const body = { ...options, query };
    const answer = await this.#scope.transport.call("POST /v1/memory/{of}/skills/search", { path: this.#scope.path(), query: this.#scope.looking(), body, repeat: "safe" });
    return answer.hits;
  }

  /** Creates a skill from commands that were run, from one exec id to another. */
  promote(skill: Schemas["PromoteSkill"]): Promise<Skill> {
    return this.#scope.transport.call("POST /v1/memory/{of}/skills/promote", { path: this.#scope.path(), query: this.#scope.writing(), body: skill });
  }

  /** Runs a skill to its end, with its parameters quoted for the shell, and records the outcome. */
  async run(name: string, parameters: Record<string, string> = {}, options: Omit<Schemas["RunSkill"], "parameters" | "stream"> = {}): Promise<Schemas["SkillRun"]> {
    const body = { ...options, parameters };
    const answer = await this.#scope.transport.call("POST /v1/memory/{of}/skills/{name}/run", { path: this.#scope.path({ name }), query: this.#scope.writing(), body });
    return answer as Schemas["SkillRun"];
  }

  /** Like `run`, and yields the result of each step as it ends. */
  async *runSteps(name: string, parameters: Record<string, string> = {}, options: Omit<Schemas["RunSkill"], "parameters" | "stream"> = {}): AsyncGenerator<Exclude<Schemas["SkillRunStep"], { kind: "error" }>, void, undefined> {
    const body = { ...options, parameters, stream: true };
    const reply = await this.#scope.transport.open("POST /v1/memory/{of}/skills/{name}/run", { path: this.#scope.path({ name }), query: this.#scope.writing(), body });
    for await (const step of values<Schemas["SkillRunStep"]>(reply)) {
      if (step.kind === "error") throw errorOf(step.error);
      yield step;
    }
  }

  /** Records the outcome of a run that was made outside Burrow. */
  record(name: string, outcome: Schemas["SkillOutcome"], options: { version?: number } = {}): Promise<Skill> {
    const query = { ...this.#scope.writing(), ...options };
    return this.#scope.transport.call("POST /v1/memory/{of}/skills/{name}/outcome", { path: this.#scope.path({ name }), query, body: outcome });
  }
}
