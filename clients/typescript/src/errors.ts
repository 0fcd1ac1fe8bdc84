/** What can go wrong. */

/**
 * The server refused an action, or did not answer. `code` is one of the server's error codes. `ambiguous`: it may have
 * happened nevertheless, so do not repeat it blindly.
 */
export class FrontdeskError extends Error {
  override readonly name: string = "FrontdeskError";
  constructor(
    text: string,
    readonly code: string = "unknown",
    readonly ambiguous: boolean = false,
    options?: ErrorOptions,
  ) {
    super(text, options);
  }
}

/** There is no connection to the server. */
export class Closed extends FrontdeskError {
  override readonly name = "Closed";
  constructor(text = "there is no connection to the server") {
    super(text, "unavailable");
  }
}

/** The server does not accept the id and the secret of this agent. */
export class Revoked extends FrontdeskError {
  override readonly name = "Revoked";
  constructor(text = "the server does not accept this agent") {
    super(text, "unauthorized");
  }
}
