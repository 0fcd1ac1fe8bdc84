// What the scripts that drive a real desk from Node share: counting checks, and starting the binary.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";

/** Whatever is waited for comes much sooner. */
export const LIMIT = 20_000;

let passed = 0;
let failed = 0;

export async function check(name, run) {
  const started = Date.now();
  try {
    await run();
    passed += 1;
    console.log(`ok      ${name} (${Date.now() - started} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n        ${String(error.stack ?? error).split("\n").slice(0, 8).join("\n        ")}`);
  }
}

/** Something failed outside of a check. */
function broken() {
  failed += 1;
}

/** A check of its own: told to stop, it stops, and in time. */
export const checkEnd = ({ child, exited }) => check("the desk ends cleanly", async () => {
  child.kill("SIGTERM");
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("still running after 12 s")), 12_000).unref());
  assert.equal((await Promise.race([exited, late])).code, 0);
});

/** Runs a script to its end, whatever happens. */
export async function run(main) {
  await main().catch((error) => {
    broken();
    console.log(`FAILED  ${error.stack ?? error}`);
  });
  finish();
}

/** The last line of a script, and its end. */
function finish() {
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}

/** Starts the binary; `ready` resolves with what `read` makes of its output, once that is something. */
export function start(binary, args, read) {
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
  const output = { stdout: "", stderr: "" };
  const exited = new Promise((resolve) => child.once("exit", (code, signal) => resolve({ code, signal })));
  const ready = new Promise((resolve, reject) => {
    const giveUp = (why) => reject(new Error(`${why}\nstdout: ${output.stdout}\nstderr: ${output.stderr.slice(-2000)}`));
    const timer = setTimeout(() => giveUp("the desk was not ready in time"), LIMIT);
    const look = (stream) => (chunk) => {
      output[stream] += chunk;
      const found = read(output);
      if (!found) return;
      clearTimeout(timer);
      resolve(found);
    };
    child.stdout.setEncoding("utf8").on("data", look("stdout"));
    child.stderr.setEncoding("utf8").on("data", look("stderr"));
    child.once("error", (error) => giveUp(error.message));
    exited.then(({ code }) => giveUp(`the desk ended with ${code}`));
  });
  return { child, exited, ready, output };
}

/** `frontdesk serve` on a free port; `ready` is its address. */
export function startDesk(binary, dataDir) {
  const args = ["serve", "--data-dir", dataDir, "--listen", "127.0.0.1:0"];
  return start(binary, args, ({ stdout }) => stdout.match(/^frontdesk ready (http:\/\/\S+?)\/?$/m)?.[1]);
}
