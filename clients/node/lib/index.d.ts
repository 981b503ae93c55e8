import type { ConnectionOptions } from 'node:tls'

/** `retryAfter` of a cost that never fits. */
export const NEVER: number

/** Who decides takes while the server cannot be reached: this process, by `share` of each limit; nobody; or the program, by an error. */
export type Outage = 'local' | 'open' | 'closed' | 'raise'

export interface Options {
  /** The token, if it is not in the URL. */
  token?: string
  /** The domain, if it is not in the URL. The server's default is `default`. */
  domain?: string
  /** Milliseconds that a call may take, connecting included. Default 250. */
  timeoutMs?: number
  /** Goes before each key. */
  prefix?: string
  /** Default `local`. */
  outage?: Outage
  /** The part of each limit that this process grants in an outage, above 0 and at most 1. Default 1/2. */
  share?: number
  /** Calls that may wait for replies. `outage` decides further ones. Default 10000. */
  maxPending?: number
  /** For `weirs://`, as `tls.connect` takes them: `ca`, `cert`, `key`, `servername`. */
  tls?: ConnectionOptions
  /** Receives a line a minute in an outage. Default `console.warn`. */
  log?: (message: string) => void
}

/** A charge: a key, a limit and, if it has one of its own, the cost. */
export type Charge = readonly [key: string, limit: string, cost?: number]

/** Keys with a limit or several each, or charges. All are taken together, or none. */
export type Charges = Readonly<Record<string, string | readonly string[]>> | readonly Charge[]

export type Limits = string | readonly string[]

export interface CostOptions {
  /** Units of each limit. Default 1; for a peek 0. */
  cost?: number
}

export interface TakeOptions extends CostOptions {
  /** A take with an ID happens once, however often it is repeated. */
  id?: string
  /** As many units as fit, at most so many. In the place of `cost`. */
  upTo?: number
  /** Units that are left for others. */
  keep?: number
}

export interface RefundOptions extends CostOptions {
  /** The ID of the take. Without it, the newest units of each key are returned. */
  id?: string
}

export interface WaitOptions extends CostOptions {
  keep?: number
  /** The longest wait, in milliseconds. Default 30000. */
  timeoutMs?: number
  signal?: AbortSignal
}

export interface HoldOptions extends CostOptions {
  /** How long a process that was killed keeps slots, in milliseconds. Default 60000. */
  ttlMs?: number
  keep?: number
}

/** What one of several limits says. `retryAfterMs` is -1 for never. */
export interface LimitState {
  allowed: boolean
  remaining: number
  retryAfterMs: number
  resetAfterMs: number
  granted: number
}

/** The answer to a command. Numbers are those of the strictest limit. */
export class Decision {
  private constructor()
  /** Whether all units were granted. */
  readonly allowed: boolean
  /** The units that are left. */
  readonly remaining: number
  /** When the same units fit. -1: never. 0: they did. */
  readonly retryAfterMs: number
  /** When nothing is used any more. */
  readonly resetAfterMs: number
  /** The granted units. */
  readonly granted: number
  readonly delayMs: number
  /** The place of the strictest limit in the call. */
  readonly index: number
  /** Who decided: `store`, `fallback`, …, or `client_local`, `client_open`, `client_closed`. */
  readonly source: string
  /** The limit that decided: the operator's, where a rules file has one. 0 without the server. */
  readonly count: number
  readonly periodMs: number
  readonly burst: number
  /** Each limit's, in the order of the call. */
  readonly limits: LimitState[]
  /** Whether the cost never fits, because it is above the limit's burst. */
  readonly never: boolean
  /** `retryAfterMs` in whole seconds, rounded up, as the header Retry-After has it; `NEVER` for never. */
  readonly retryAfter: number
  /** RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-10), and Retry-After if it was refused. */
  readonly headers: Record<string, string>
}

/** A client. Calls share one connection, and those of one turn of the event loop one write. Nothing is connected before the first call. */
export class Weir {
  /**
   * @param url `weir://[CALLER:TOKEN@]HOST:PORT[/DOMAIN]`, `weirs://` for TLS, `weir+unix:///PATH`; default WEIR_URL, then weir://127.0.0.1:6380
   */
  constructor(url?: string | URL, options?: Options)
  constructor(options: Options)

  /** Ask the server for an answer, and reject with what is wrong: {@link Forbidden} for credentials, {@link Unavailable} if it cannot be reached. For the start of a program. It takes 5 s at most, or `timeoutMs` if that is longer. */
  check(): Promise<void>

  /** Charge `cost` units to all limits, or to none. */
  take(key: string, limits: Limits, options?: TakeOptions): Promise<Decision>
  take(charges: Charges, options?: TakeOptions): Promise<Decision>

  /** Say whether `cost` units would fit, and when, and charge nothing. */
  peek(key: string, limits: Limits, options?: CostOptions): Promise<Decision>
  peek(charges: Charges, options?: CostOptions): Promise<Decision>

  /** Return units: those of the take with the `id`, else the newest of each key, never below zero. */
  refund(key: string, limits: Limits, options?: RefundOptions): Promise<Decision>
  refund(charges: Charges, options?: RefundOptions): Promise<Decision>

  /** Charge units that were used already, beyond the limit if need be. */
  record(key: string, limits: Limits, options?: CostOptions): Promise<Decision>
  record(charges: Charges, options?: CostOptions): Promise<Decision>

  /** Forget what was used. */
  reset(key: string, limits: Limits): Promise<Decision>
  reset(charges: Charges): Promise<Decision>

  /** Sleep until the units fit, and take them. Reject with {@link Refused} at once if that is later than `timeoutMs`. */
  wait(key: string, limits: Limits, options?: WaitOptions): Promise<Decision>
  wait(charges: Charges, options?: WaitOptions): Promise<Decision>

  /**
   * Charge an estimate and run `work`; reject with {@link Refused} if it does not fit. Without {@link Hold.settle}, the estimate is
   * charged, and an error returns it. Without `work`, resolve to the hold.
   */
  hold<T>(key: string, limits: Limits, options: HoldOptions, work: (hold: Hold) => T | PromiseLike<T>): Promise<T>
  hold<T>(key: string, limits: Limits, work: (hold: Hold) => T | PromiseLike<T>): Promise<T>
  hold(key: string, limits: Limits, options?: HoldOptions): Promise<Hold>
  hold<T>(charges: Charges, options: HoldOptions, work: (hold: Hold) => T | PromiseLike<T>): Promise<T>
  hold<T>(charges: Charges, work: (hold: Hold) => T | PromiseLike<T>): Promise<T>
  hold(charges: Charges, options?: HoldOptions): Promise<Hold>

  /** Return a function that takes `cost` units of the key for each call of `work`, or rejects with {@link Refused}. */
  limit<A extends unknown[], R>(limits: Limits, options: CostOptions & { key: string | ((...args: A) => string) }, work: (...args: A) => R): (...args: A) => Promise<Awaited<R>>

  /** Wait for replies, and close the connection. The client stays usable. */
  close(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** Units that are held until they are settled or released. */
export class Hold {
  private constructor()
  readonly decision: Decision
  readonly id: string
  /** Whether it was settled or released. */
  readonly ended: boolean
  /** Charge what was used, more or less than the estimate: of all limits, or of each. Default: the estimate. In an outage the estimate stays charged. */
  settle(used?: number | readonly number[]): Promise<void>
  /** Return all units. */
  release(): Promise<void>
  /** Keep slots for another `ttlMs`. */
  renew(): Promise<void>
  /** Settle at the estimate, unless it has ended: `await using hold = await weir.hold(…)`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** A mistake of the program: the server refused the command, and nothing was charged. `code` is the first word of the server's error. */
export class WeirError extends Error {
  constructor(message: string, code?: string, options?: ErrorOptions)
  readonly code: string
}
/** The credentials are wrong, or do not allow the command in this domain. */
export class Forbidden extends WeirError {}
/** No granted take with the ID is remembered. */
export class UnknownID extends WeirError {}
/** The ID belongs to a take of other keys or limits. */
export class IDReused extends WeirError {}
/** The take with the ID was settled, refunded or released before. */
export class Settled extends WeirError {}
/** No decision was reached. */
export class Unavailable extends WeirError {}
/** No decision was reached and nothing was charged: a repeat is safe. */
export class NotCharged extends Unavailable {}
/** No decision is known: the charge may have been made. A repeat is safe with an ID. */
export class Ambiguous extends Unavailable {}

/** What was asked for does not fit. `decision` says when it will. */
export class Refused extends Error {
  constructor(decision: Decision)
  readonly decision: Decision
}
