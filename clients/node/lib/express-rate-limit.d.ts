import type { Weir } from './index.js'

/**
 * A store for express-rate-limit, and for hono-rate-limiter. Each limiter needs a store of its own, with a prefix of its own if
 * their keys are alike. In an outage, `share` of each limit is granted. It has no `resetAll`.
 */
export class WeirStore {
  /** @param options `weir`: default `new Weir()`. `prefix` goes before each key: default `rl:`. */
  constructor(options?: { weir?: Weir, prefix?: string })
  readonly localKeys: false
  readonly prefix: string
  /** Called by the limiter. Before that, the window is a minute. */
  init(options: { windowMs: number }): void
  get(key: string): Promise<{ totalHits: number, resetTime: Date } | undefined>
  increment(key: string): Promise<{ totalHits: number, resetTime: Date }>
  decrement(key: string): Promise<void>
  resetKey(key: string): Promise<void>
}
