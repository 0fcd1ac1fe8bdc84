// An agent on the official package @agentclientprotocol/sdk, for the tests of `frontdesk agent run --acp`.
import { Readable, Writable } from "node:stream";

import { agent, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";

const say = (client, sessionId, text) =>
    client.notify(methods.client.session.update, {
        sessionId,
        update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
    });

let sessions = 0;
agent({ name: "test" })
    .onRequest(methods.agent.initialize, () => ({ protocolVersion: PROTOCOL_VERSION, agentCapabilities: {} }))
    .onRequest(methods.agent.session.new, () => ({ sessionId: `session-${++sessions}` }))
    .onRequest(methods.agent.session.prompt, async ({ params, client }) => {
        const { sessionId, prompt } = params;
        const text = prompt.map((block) => block.text ?? "").join("");
        if (text === "permit") {
            const { outcome } = await client.request(methods.client.session.requestPermission, {
                sessionId,
                toolCall: { toolCallId: "call-1", title: "format the disk" },
                options: [
                    { optionId: "go", name: "Allow", kind: "allow_once" },
                    { optionId: "halt", name: "Deny", kind: "reject_once" },
                ],
            });
            await say(client, sessionId, `outcome ${outcome.optionId ?? outcome.outcome}`);
        } else {
            await say(client, sessionId, `heard ${text} in ${sessionId}`);
        }
        return { stopReason: "end_turn" };
    })
    .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
