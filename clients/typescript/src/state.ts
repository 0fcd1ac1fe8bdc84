/** What an agent remembers between two runs: its place in the inbox, and the payloads of its alarms. */

import { FrontdeskError } from "./errors.js";
import { environment, errorText, files } from "./host.js";

/** Where the state is kept. `save` must be atomic: after a crash `load` returns the old text or the new one. */
export interface StateStore {
  load(): Promise<string | undefined>;
  save(text: string): Promise<void>;
}

export interface State {
  /** Number of the last message that was handled. */
  inbox?: number;
  /** The newest handled messages of the inbox, to know them when they come on the socket as well. */
  handled?: string[];
  /** The times and payloads of alarms. */
  alarms?: Record<string, { at: string; payload?: unknown }>;
}

/** Reads once, then writes every change. */
export class Remembered {
  readonly #store: StateStore;
  #state: Promise<State> | undefined;
  #saving: Promise<void> = Promise.resolve();

  constructor(store: StateStore) {
    this.#store = store;
  }

  get(): Promise<State> {
    return (this.#state ??= this.#load());
  }

  async #load(): Promise<State> {
    const text = await this.#store.load();
    try {
      const { letters, ...state } = (text ? JSON.parse(text) : {}) as State & { letters?: string[] };
      return letters ? { handled: letters, ...state } : state; // what earlier versions called it
    } catch (error) {
      throw new FrontdeskError(`the state of the agent is not valid JSON: ${errorText(error)}`, "bad_request", false, {
        cause: error,
      });
    }
  }

  async change(change: (state: State) => void): Promise<void> {
    const state = await this.get();
    change(state);
    // One write after the other, each with everything that is known by then.
    const saved = this.#saving.catch(() => undefined).then(() => this.#store.save(JSON.stringify(state)));
    this.#saving = saved;
    await saved;
  }
}

/** A file that only this user can read, replaced as a whole. */
export function fileState(path: string): StateStore {
  return {
    async load() {
      try {
        return new TextDecoder().decode(await fileSystem().readFile(path));
      } catch (error) {
        if ((error as { code?: string }).code === "ENOENT") return undefined;
        throw error;
      }
    },
    async save(text) {
      const fs = fileSystem();
      const folder = path.replace(/[^/\\]*$/, "");
      if (folder) await fs.mkdir(folder, { recursive: true, mode: 0o700 });
      const file = await fs.open(`${path}.new`, "w", 0o600);
      try {
        await file.writeFile(text);
        await file.sync();
      } finally {
        await file.close();
      }
      await fs.rename(`${path}.new`, path);
    },
  };
}

/** Asked for only when something is to be remembered: an agent without jobs and messages of the inbox needs no files. */
function fileSystem(): NonNullable<ReturnType<typeof files>> {
  const fs = files();
  if (!fs) throw new FrontdeskError("this runtime has no files: pass `state`, an object with load() and save()", "bad_request");
  return fs;
}

/** Two agents, or one at two servers, have different files. */
export function defaultState(base: string, gatewayId: string): StateStore {
  const home = environment("XDG_STATE_HOME") ?? `${environment("HOME") ?? "."}/.local/state`;
  const name = encodeURIComponent(`${base.replace(/^https?:\/\//i, "")}-${gatewayId}`).slice(-200);
  return fileState(`${home}/frontdesk/${name}.json`);
}
