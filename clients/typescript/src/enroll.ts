/** How an agent gets its id and secret. */

import { given, randomHex, type Json } from "./host.js";
import { baseUrl, request } from "./http.js";

/** For `new Agent(credentials)`. The secret is shown once: keep it. */
export interface Credentials {
  readonly url: string;
  readonly gatewayId: string;
  readonly secret: string;
  readonly tenant: string;
}

export interface EnrollOptions {
  /** Default: a random one. */
  gatewayId?: string;
  /** A token of scope `identity` (FRONTDESK_IDENTITY_TOKEN). */
  identityToken?: string;
}

export interface ProvisionOptions extends EnrollOptions {
  platform?: string;
  /** Default: the tenant's default bot of that platform. */
  botId?: string;
  /** The name of the agent, if it is not the gateway id. */
  name?: string;
  /** Called with GET when messages wait and no connection is open. */
  wakeUrl?: string;
}

/** Redeems a one-time token (`frontdesk enroll-token`). */
export async function enroll(url: string, enrollmentToken: string, options: EnrollOptions = {}): Promise<Credentials> {
  return await ask(url, "enroll", options, { enrollmentToken });
}

/** Creates the gateway, or renews its secret. */
export async function provision(url: string, options: ProvisionOptions = {}): Promise<Credentials> {
  const { platform = "relay", botId = "", name, wakeUrl } = options;
  const more = { ...(name ? { instanceId: name } : {}), ...(wakeUrl ? { wakeUrl } : {}) };
  return await ask(url, "provision", options, { platform, botId, gatewayEndpoint: "", routeKeys: [], ...more });
}

async function ask(url: string, call: string, options: EnrollOptions, body: Json): Promise<Credentials> {
  const base = baseUrl(url);
  const bearer = given(options.identityToken, "FRONTDESK_IDENTITY_TOKEN", "enrolling needs a token of scope `identity`");
  const json = { gatewayId: options.gatewayId ?? `agent-${randomHex(8)}`, ...body };
  const made = await request<{ gatewayId: string; secret: string; tenant: string }>(`${base}/relay/${call}`, { bearer, json });
  return { url: base, gatewayId: made.gatewayId, secret: made.secret, tenant: made.tenant };
}
