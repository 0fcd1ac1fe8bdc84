// Shared by the Node scripts that test a real server: counting checks, and starting the binary.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";

/** Time limit of every wait, in milliseconds. */
export const LIMIT = 60_000;

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

/** Counts a failure outside of a check. */
function broken() {
  failed += 1;
}

/** Checks that the server stops in time after SIGTERM. */
export const checkEnd = ({ child, exited }) => check("the server stops cleanly", async () => {
  child.kill("SIGTERM");
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("still running after 12 s")), 12_000).unref());
  assert.equal((await Promise.race([exited, late])).code, 0);
});

/** Runs a script and always prints the tally. */
export async function run(main) {
  await main().catch((error) => {
    broken();
    console.log(`FAILED  ${error.stack ?? error}`);
  });
  finish();
}

/** Prints the tally and exits. */
function finish() {
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}

/** Starts the binary; `ready` resolves with the first truthy result of `read` on its output. */
export function start(binary, args, read) {
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
  const output = { stdout: "", stderr: "" };
  const exited = new Promise((resolve) => child.once("exit", (code, signal) => resolve({ code, signal })));
  const ready = new Promise((resolve, reject) => {
    const giveUp = (why) => reject(new Error(`${why}\nstdout: ${output.stdout}\nstderr: ${output.stderr.slice(-2000)}`));
    const timer = setTimeout(() => giveUp("the server was not ready in time"), LIMIT);
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
    exited.then(({ code }) => giveUp(`the server exited with ${code}`));
  });
  return { child, exited, ready, output };
}

/** `frontdesk serve` on a free port; `ready` is its address. */
export function startDesk(binary, dataDir) {
  const args = ["serve", "--data-dir", dataDir, "--listen", "127.0.0.1:0"];
  return start(binary, args, ({ stdout }) => stdout.match(/^frontdesk ready (http:\/\/\S+?)\/?$/m)?.[1]);
}
