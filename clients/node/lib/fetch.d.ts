import type { Charges, Decision, Weir } from './index.js'

/** The request did not leave, since its turn is later than it may wait. */
export class RequestRefused extends Error {
  constructor(message: string, decision?: Decision | null, options?: ErrorOptions)
  /** When its turn is. Null if it was the host that asked to retry later. */
  readonly decision: Decision | null
}

/**
 * Return a `fetch` that takes the units of each request before it leaves. `limits` returns keys and limits, or null for a request
 * without a limit. A request waits for at most `waitMs` (30000) for its turn; if that is later, it rejects with
 * {@link RequestRefused} at once. A host whose 429 or 503 has Retry-After gets no limited request before that. No request is sent twice.
 */
export function limitedFetch(
  weir: Weir,
  limits: (url: URL, init?: RequestInit) => Charges | null | undefined | false | Promise<Charges | null | undefined | false>,
  options?: { waitMs?: number, fetch?: typeof globalThis.fetch },
): typeof globalThis.fetch
