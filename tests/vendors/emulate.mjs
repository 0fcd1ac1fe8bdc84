// Runs the Slack and the Twilio of the package `emulate` on free ports of loopback until stdin is closed. Reads one line of
// JSON, their seeds, and prints one with their addresses. FRONTDESK_NODE_MODULES is a folder that contains the package.
// tests/vendors/emulated.py drives it.

import { once } from "node:events";
import { createServer } from "node:net";
import path from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const folder = path.join(path.resolve(process.env.FRONTDESK_NODE_MODULES), "emulate", "dist", "api.js");
const { createEmulator } = await import(pathToFileURL(folder));

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

const lines = createInterface({ input: process.stdin });
const [line] = await once(lines, "line");
const seed = JSON.parse(line);
const running = {};
for (const service of ["slack", "twilio"]) {
  const port = await freePort();
  running[service] = await createEmulator({ service, port, baseUrl: `http://127.0.0.1:${port}`, seed });
}
console.log(JSON.stringify({ slack: running.slack.url, twilio: running.twilio.url }));
await once(lines, "close");
process.exit(0);
