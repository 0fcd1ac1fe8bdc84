/** Write an agent that sleeps behind a Frontdesk server. */

export { Agent, type AgentOptions, type CronTiming, type MessageHandler } from "./agent.js";
export { CronExpression } from "./cron.js";
export { enroll, provision, type Credentials, type EnrollOptions, type ProvisionOptions } from "./enroll.js";
export { Closed, FrontdeskError, Revoked } from "./errors.js";
export type { Json, Log } from "./host.js";
export type { Fire, FireHandler } from "./jobs.js";
export type { Answer, DeliverOptions, InboxMessage, Receipt } from "./inbox.js";
export {
  chatKey,
  type Chat,
  type FileOptions,
  type FileSource,
  type Media,
  type Message,
  type Pressed,
  type SendOptions,
  type Sent,
  type Stream,
} from "./message.js";
export type { StateStore } from "./state.js";
